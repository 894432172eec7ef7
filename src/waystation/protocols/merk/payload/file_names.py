"""Makes a safe file name from one that another person chose.

``sdk.merk.message`` saves received files under it. A name such as ``../../x`` could otherwise write outside the folder.
"""

import unicodedata
from typing import Final

__all__ = ["safe_name"]

_NAME_BYTES_MAX: Final = 200  # file systems take 255; room for a number and an ending
_NAMELESS: Final = "file"
_RESERVED: Final = frozenset(
    {"con", "prn", "aux", "nul", *(f"{name}{number}" for name in ("com", "lpt") for number in range(1, 10))}
)


def safe_name(name: str) -> str:
    """Return a file name that stays in its folder and can be shown, as near as possible to an untrusted one."""
    last = name.replace("\\", "/").rpartition("/")[2]
    shown = "".join("_" if _is_unsafe(each) else each for each in last).strip(" .")
    if shown.partition(".")[0].lower() in _RESERVED:
        shown = f"_{shown}"
    stem, dot, ending = shown.rpartition(".")
    while len(shown.encode()) > _NAME_BYTES_MAX:
        stem, ending = (stem[:-1], ending) if len(stem) > 1 else (stem, ending[:-1])
        shown = f"{stem}{dot}{ending}"
    return shown or _NAMELESS


def _is_unsafe(character: str) -> bool:
    return character in '<>:"|?*' or unicodedata.category(character)[0] == "C"
