"""Settings as data: one frozen dataclass per room, from which CLI, docs and sample file derive.

``setting()`` declares a field with its default, unit, bounds or choices, and help; ``check()`` says what is wrong
with a value in words an operator can act on.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final, get_args, get_origin, get_type_hints

from waystation.core.errors import LocalError

__all__ = ["check", "describe_allowed", "setting"]


def setting(
    default: Any,
    help: str,  # noqa: A002 - the word users know it by
    *,
    unit: str = "",
    at_least: int | None = None,
    at_most: int | None = None,
    choices: Sequence[str] = (),
    reload: bool = False,
) -> Any:
    """Declare one setting as a dataclass field.

    Args:
        default: Value when nobody says anything; lists and tables are copied.
        help: One sentence for people.
        unit: Unit of a number, such as "ms" or "bytes".
        at_least: Smallest number allowed.
        at_most: Largest number allowed.
        choices: The words allowed, for text with a closed set of values.
        reload: True when SIGHUP applies a new value without a restart.
    """
    metadata = {
        "help": help,
        "unit": unit,
        "at_least": at_least,
        "at_most": at_most,
        "choices": tuple(choices),
        "reload": reload,
    }
    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def describe_allowed(owner: type[Any], name: str) -> str:
    """Return in words which values the field ``name`` of a settings dataclass takes."""
    field = _field(owner, name)
    kind = get_type_hints(owner)[name]
    if field.metadata["choices"]:
        return "one of " + ", ".join(f'"{choice}"' for choice in field.metadata["choices"])
    if kind is bool:
        return "true or false"
    if kind is int:
        return _describe_range(field)
    if get_origin(kind) is list:
        return _LISTS.get(get_args(kind)[0], "a list of tables, each of names with texts or lists of text")
    return "a table of names with texts" if get_origin(kind) is dict else "text"


def check(owner: type[Any], name: str, value: object) -> None:
    """Check ``value`` against the declaration of field ``name``.

    Raises:
        LocalError: The value has the wrong type, or is outside what is allowed; the text says what is.
    """
    field = _field(owner, name)
    kind = get_type_hints(owner)[name]
    allowed = describe_allowed(owner, name)
    if get_origin(kind) is list:
        (item,) = get_args(kind)
        fits = isinstance(value, list) and all(_is_item(entry, item) for entry in value)
    elif get_origin(kind) is dict:
        fits = _is_item(value, kind)
    else:
        fits = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
    if fits and isinstance(value, int) and kind is int:
        low, high = field.metadata["at_least"], field.metadata["at_most"]
        fits = (low is None or value >= low) and (high is None or value <= high)
    if fits and field.metadata["choices"]:
        fits = value in field.metadata["choices"]
    if not fits:
        raise LocalError(f"{name} = {value!r} is not allowed; allowed: {allowed}")


_LISTS: Final = {str: "a list of text", dict[str, str]: "a list of tables, each of names with texts"}


def _is_item(entry: object, kind: Any) -> bool:
    if get_origin(kind) is not dict:
        return isinstance(entry, kind)
    _, value_kind = get_args(kind)
    takes_lists = value_kind is not str
    return isinstance(entry, dict) and all(
        isinstance(value, str) or (takes_lists and _is_list_of_text(value)) for value in entry.values()
    )


def _is_list_of_text(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(part, str) for part in value)


def _field(owner: type[Any], name: str) -> dataclasses.Field[Any]:
    return next(field for field in dataclasses.fields(owner) if field.name == name)


def _describe_range(field: dataclasses.Field[Any]) -> str:
    low, high, unit = (field.metadata[key] for key in ("at_least", "at_most", "unit"))
    words = "a whole number"
    if low is not None and high is not None:
        words += f" from {low} to {high}"
    elif low is not None:
        words += f" of at least {low}"
    return f"{words} ({unit})" if unit else words
