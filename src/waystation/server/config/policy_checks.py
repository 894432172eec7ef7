"""Checks the values in ``[policy]`` that a declaration cannot express: valid keys and addresses.

``config.load`` calls it with ``policy.key`` and ``policy.allow``.
"""

from collections.abc import Sequence

from waystation.core.errors import LocalError
from waystation.core.ids import decode_key_hex
from waystation.engine.policy import parse_allowed

__all__ = ["check_allowed", "check_policy_key"]


def check_policy_key(text: str) -> None:
    """Check ``policy.key``.

    Raises:
        LocalError: It is neither empty nor a key; begins with the name of the setting.
    """
    try:
        if text:
            decode_key_hex(text)
    except LocalError as error:
        raise LocalError(
            f'key: {error}; allowed: 64 hexadecimal digits, or "" for the key of a lake in the home'
        ) from error


def check_allowed(texts: Sequence[str]) -> None:
    """Check ``policy.allow``.

    Raises:
        LocalError: An entry is none; begins with the name of the setting.
    """
    try:
        parse_allowed(texts)
    except LocalError as error:
        raise LocalError(f"allow: {error}") from error
