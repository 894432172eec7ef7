"""Settings as data: one frozen dataclass per package, the source of the CLI, the docs and the sample file.

``setting()`` declares a field with its default, unit, range or choices, and help text. ``limit()`` declares an
allowance, a ceiling or a quota, with the refusal at it. ``check()`` validates a value; its error names the allowed
values.
"""

import dataclasses
from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, Generic, TypeVar, get_args, get_origin, get_type_hints

from waystation.core.errors import LocalError

__all__ = ["InForce", "check", "describe_allowed", "limit", "setting"]


_Settings = TypeVar("_Settings")


class InForce(Generic[_Settings]):
    """The settings of one class that hold now; every part of a machine reads them here, and a reload replaces them."""

    __slots__ = ("now",)

    def __init__(self, settings: _Settings) -> None:
        """Begin with ``settings``."""
        self.now = settings


def setting(
    default: Any,
    help: str,  # noqa: A002 - the name users know
    *,
    unit: str = "",
    at_least: int | None = None,
    at_most: int | None = None,
    choices: Sequence[str] = (),
    reload: bool = False,
    refusal: Enum | str | None = None,
    use: str = "",
) -> Any:
    """Declare one setting as a dataclass field.

    Args:
        default: Value when no source sets one; lists and tables are copied.
        help: One sentence for the operator.
        unit: Unit of a number, such as "ms" or "bytes".
        at_least: Smallest number allowed.
        at_most: Largest number allowed.
        choices: The values allowed, for text with a closed set of values.
        reload: True when SIGHUP applies a new value without a restart.
        refusal: For a setting that is a limit too, and is listed with the limits: as for ``limit``.
        use: As for ``limit``.
    """
    metadata: dict[str, Any] = {
        "help": help,
        "unit": unit,
        "at_least": at_least,
        "at_most": at_most,
        "choices": tuple(choices),
        "reload": reload,
    }
    if refusal is not None:
        metadata |= {"refusal": refusal.value if isinstance(refusal, Enum) else refusal, "use": use}
    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def limit(
    default: int,
    help: str,  # noqa: A002 - as for setting
    *,
    at_most: int,
    unit: str = "",
    at_least: int = 1,
    refusal: Enum | str = "",
    use: str = "",
) -> Any:
    """Declare one limit of ``[limits]`` as a dataclass field; SIGHUP applies a new value.

    Args:
        default: Value when no source sets one.
        help: One sentence for the operator.
        at_most: The hard upper bound, which protects the node's memory or its time.
        unit: Unit of the number, such as "bytes" or "per s".
        at_least: Smallest number allowed.
        refusal: Why a peer at the limit is refused: a member of the protocol's refusal enum, or its value; "" when
            nobody is refused, because the oldest entry makes room.
        use: The entry of the relay's ``sizes()`` that counts against it, "" when each peer has its own count.
    """
    return setting(default, help, unit=unit, at_least=at_least, at_most=at_most, reload=True, refusal=refusal, use=use)


def describe_allowed(owner: type[Any], name: str) -> str:
    """Return a phrase that names the values the field ``name`` of a settings dataclass takes."""
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
        LocalError: The value has the wrong type, or is outside what is allowed; the text names what is.
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
