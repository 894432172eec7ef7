"""Canonical JSON lines: sorted names, no blanks, ASCII; any other spelling of an object is refused.

Published policy, scores and their pointer (``rules.policy``, ``rules.snapshot``) are written and read with it. A
decoded line must encode back to the same bytes and have exactly the expected fields. A hash or signature of the line
therefore covers every value in it.
"""

import json
from collections.abc import Collection, Mapping
from typing import Final

from waystation.core.errors import RemoteError

__all__ = ["decode_line", "encode_line"]

_SHOWN_CHARS: Final = 60


def encode_line(document: Mapping[str, object]) -> bytes:
    """Return the one spelling of an object: names sorted, no blanks, ASCII; without a line end."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def decode_line(data: bytes, names: Collection[str], bytes_max: int) -> dict[str, object]:
    """Return the object in ``data``, which has exactly the fields ``names``.

    Raises:
        RemoteError: It is longer than ``bytes_max``, no JSON object, spelled another way, or has other fields.
    """
    if len(data) > bytes_max:
        raise RemoteError(f"has {len(data)} bytes; at most {bytes_max} are read")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RemoteError("is not JSON") from error
    if not isinstance(document, dict):
        raise RemoteError("is not a JSON object")
    if document.keys() != set(names):
        odd = min(document.keys() ^ set(names))[:_SHOWN_CHARS]
        raise RemoteError(f"has not the fields that it should: {odd!r}")
    if not _reads_back(document, data):
        raise RemoteError("is not spelled the one way that it may be")
    return document


def _reads_back(document: dict[str, object], data: bytes) -> bool:
    try:
        return encode_line(document) == data
    except (ValueError, RecursionError):  # NaN, which JSON has not
        return False
