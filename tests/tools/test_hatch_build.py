"""Laws of the build hook: what a wheel holds of the microcontroller package, and which version it has."""

from pathlib import Path
from typing import NamedTuple

from tools.hatch_build import McuBuildHook
from waystation.version import __version__

ROOT = Path(__file__).parents[2]


class Metadata(NamedTuple):
    """As much of hatchling's as the hook reads."""

    version: str


def hook():
    return McuBuildHook(str(ROOT), {}, None, Metadata("9.9.9+tabc"), str(ROOT / "dist"), "wheel")


def test_wheel_has_sources_and_compiled_files():
    """Each module comes twice; the compiled files are gone when the wheel is written, and none is in the repository."""
    building, data = hook(), {"force_include": {}}
    building.initialize("standard", data)
    files = {target: Path(source) for source, target in data["force_include"].items() if "_mcu" in target}
    magic = {path.read_bytes()[:1] for target, path in files.items() if target.endswith(".mpy")}
    building.finalize("standard", data, "")

    sources = {path.stem for path in (ROOT / "micropython" / "bhumi").glob("*.py")}
    assert set(files) == {f"waystation/_mcu/bhumi/{stem}.{kind}" for stem in sources for kind in ("py", "mpy")}
    assert magic == {b"M"}
    assert not [path for path in files.values() if path.suffix == ".mpy" and path.exists()]
    assert not list((ROOT / "micropython").rglob("*.mpy"))


def test_wheel_says_which_build_it_is():
    """What runs from a wheel names its build; everything else in version.py is as in the repository."""
    building, data = hook(), {"force_include": {}}
    building.initialize("standard", data)
    (written,) = [Path(source) for source, target in data["force_include"].items() if target == "waystation/version.py"]
    text = written.read_text()
    building.finalize("standard", data, "")

    assert text == (ROOT / "src/waystation/version.py").read_text().replace(__version__, "9.9.9+tabc")


def test_editable_install_has_nothing_more():
    """In a checkout the sources are found where they are."""
    building, data = hook(), {"force_include": {}}
    building.initialize("editable", data)
    building.finalize("editable", data, "")

    assert data == {"force_include": {}}
