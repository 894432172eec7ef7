"""Old names, kept for one version: each still works and warns with the new name.

Modules of the SDK whose names changed use it, so a program that is a version behind keeps running.
"""

import warnings
from collections.abc import Callable, Mapping

__all__ = ["renamed_names", "warn_renamed"]


def warn_renamed(old: str, new: str) -> None:
    """Warn the caller of the function that calls this."""
    warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=3)


def renamed_names(module: str, names: Mapping[str, tuple[str, object]]) -> Callable[[str], object]:
    """Return a module's ``__getattr__`` for names that it had; each leads to the new name and to what it is now."""

    def find(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        new, value = names[name]
        warn_renamed(f"{module}.{name}", new)
        return value

    return find
