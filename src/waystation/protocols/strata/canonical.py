"""Parses JSON strictly (I-JSON: no duplicate names, exact numbers), and writes canonical bytes (JCS, RFC 8785).

``packet`` and all signing code call it: a JSON value goes in, bytes come out. All hashed or signed JSON is JCS.
``orjson`` is ten times faster than a JCS library but not always equal. A guard lets it write only values whose bytes
are proved equal:

- numbers: ``parse`` returns fractions as ``LosslessFloat``, which orjson refuses. Its strict option refuses integers
  beyond 2**53-1. So orjson writes plain numbers only;
- spelling: floats from ``normalise`` are passed to orjson only where both libraries write plain decimals;
- order: orjson sorts keys by UTF-8 bytes, JCS by UTF-16 code units. The orders differ only between U+E000..U+FFFF and
  the characters above. A text without both kinds has one order, and so have ASCII keys.

All other values use ``rfc8785``. ``fuzz/strata/canonical.py`` compares the two on generated values.
Spec: specs/strata.md 1, 2 (D1, D2), 24.1 to 24.3.
"""

import math
from decimal import Decimal
from typing import Any, Final

import jiter
import orjson
import rfc8785

from waystation.core.base58 import encode_base58
from waystation.core.errors import LocalError
from waystation.crypto.hashing import blake3_256
from waystation.protocols.strata.refusals import Code, Refusal, RefusedError

__all__ = [
    "DEPTH_MAX",
    "INTEGER_MAX",
    "MESSAGE_DEPTH_MAX",
    "canonicalise",
    "canonicalise_parsed",
    "canonicalise_plain",
    "document_hash",
    "normalise",
    "parse",
]

DEPTH_MAX: Final = 64
"""Levels of objects and arrays in a packet or document, itself included. Spec: specs/strata.md 24.3."""

MESSAGE_DEPTH_MAX: Final = DEPTH_MAX + 1
"""Levels of a message: its own object, and a packet in it."""

INTEGER_MAX: Final = 2**53 - 1
"""Greatest integer of I-JSON (RFC 7493 2.2); its negative is the smallest."""

_UNSAFE: Final = 2.0**53  # refused in every spelling, so that what vector raw-int-2p53 forbids is never served either
_PLAIN_FROM: Final = 1e-4  # from here to 2**53 orjson and ECMAScript both write a fraction without exponent
_EXPONENT_FROM: Final = 10**21  # RFC 8785 3.2.2.3: spelled with an exponent from here on, so no integer token matches
_MULTIHASH_BLAKE3: Final = b"\x1e\x20"  # multihash: blake3, 32 bytes
_OPTIONS: Final = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER
_FRACTIONS: Final = (jiter.LosslessFloat, Decimal)


def parse(data: bytes, depth_max: int = DEPTH_MAX) -> object:
    """Parse one I-JSON text; fractions come as ``jiter.LosslessFloat`` until ``normalise`` makes numbers of them.

    Args:
        data: The whole text in UTF-8, without byte order mark.
        depth_max: Levels of objects and arrays, at most 190.

    Raises:
        RefusedError: invalid_schema with detail bad_utf8, duplicate_key, not_ijson, too_deep or bad_json.
    """
    try:
        # D1: strict I-JSON: NaN, infinities and members that occur twice are refused.
        value = jiter.from_json(
            data, allow_inf_nan=False, catch_duplicate_keys=True, float_mode="lossless-float", cache_mode="keys"
        )
    except ValueError as error:
        # Spec 1: the detail names the corner of JSON that the text breaks.
        raise _refused(_detail_of(data, str(error))) from error
    # Only a text with more opening brackets than levels can be too deep; two counts are cheaper than a walk.
    # Spec 24.3: the packet object is level 1; 64 is allowed, 65 is not.
    if data.count(b"{") + data.count(b"[") > depth_max:
        _check_depth(value, depth_max)
    return value


def canonicalise(value: object) -> bytes:
    """Return the RFC 8785 bytes of any JSON value, from ``parse`` or built by a program.

    Raises:
        RefusedError: invalid_schema with detail not_ijson (a number or text that I-JSON has no form for) or too_deep.
        LocalError: A type that JSON does not have, or a key that is no text.
    """
    return canonicalise_plain(normalise(value))


def canonicalise_parsed(value: object) -> tuple[bytes, object]:
    """Return the RFC 8785 bytes of a value from ``parse`` and the value with plain numbers, the same when it had them.

    Only for values from ``parse``: a Python float would be spelled wrongly.

    Raises:
        RefusedError: invalid_schema, detail not_ijson.
    """
    try:
        written = orjson.dumps(value, option=_OPTIONS)
    except TypeError:
        plain = normalise(value)
        return canonicalise_plain(plain), plain
    if _has_one_order(written) or _has_ascii_keys(value):
        return written, value
    return rfc8785.dumps(value), value  # type: ignore[arg-type]


def canonicalise_plain(plain: object) -> bytes:
    """Return the RFC 8785 bytes of what ``normalise`` returned, or of a part of it."""
    if _is_spelled_alike(plain):
        written = orjson.dumps(plain, option=_OPTIONS)
        if _has_one_order(written) or _has_ascii_keys(plain):
            return written
    return rfc8785.dumps(plain)  # type: ignore[arg-type]


def normalise(value: object) -> object:
    """Return a copy with plain numbers: whatever has the value of a safe integer is an ``int``, the rest ``float``.

    Raises:
        RefusedError: invalid_schema with detail not_ijson or too_deep.
        LocalError: A type that JSON does not have, or a key that is no text.
    """
    holder: list[object] = [value]
    waiting: list[tuple[Any, int]] = [(holder, 0)]
    while waiting:
        container, depth = waiting.pop()
        if depth > DEPTH_MAX:
            raise _refused("too_deep")
        if isinstance(container, dict):
            _check_keys(container)
        members = container.items() if isinstance(container, dict) else enumerate(container)
        for key, member in list(members):
            if isinstance(member, dict | list | tuple):
                copy = dict(member) if isinstance(member, dict) else list(member)
                container[key] = copy
                waiting.append((copy, depth + 1))
            else:
                container[key] = _scalar(member)
    return holder[0]


def document_hash(document: object) -> str:
    """Return the text that names a DID Document by its content: z and base58 of a BLAKE3 multihash of its JCS.

    Raises:
        RefusedError: The document has no canonical form.
    """
    # Spec 3: DID Document hash: 1e 20 and BLAKE3-256 of the canonical document, z and base58btc.
    return "z" + encode_base58(_MULTIHASH_BLAKE3 + blake3_256(canonicalise(document)))


def _has_one_order(written: bytes) -> bool:
    """Return whether the UTF-8 text lacks characters above U+FFFF, or lacks those from U+E000 to U+FFFF.

    Lead bytes: F0 to F4 for the first, EE and EF for the second. The text is orjson's, which escapes nothing of them.
    """
    if written.isascii() or not (b"\xef" in written or b"\xee" in written):
        return True
    return not any(lead in written for lead in (b"\xf0", b"\xf3", b"\xf1", b"\xf2", b"\xf4"))


def _has_ascii_keys(value: object) -> bool:
    waiting = [value]
    while waiting:
        container = waiting.pop()
        if isinstance(container, dict):
            if not "".join(container).isascii():
                return False
            waiting += container.values()
        elif isinstance(container, list):
            waiting += container
    return True


def _is_spelled_alike(plain: object) -> bool:
    waiting = [plain]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, float) and not _PLAIN_FROM <= abs(value) < _UNSAFE:
            return False
    return True


def _check_keys(members: dict[str, object]) -> None:
    for key in members:
        # JSON has no other keys; a program that builds such a value has a bug.
        if type(key) is not str:
            raise LocalError(f"JSON keys are text, not {type(key).__name__}")
        _check_text(key)


def _check_text(text: str) -> None:
    try:
        # Spec 1: an unpaired surrogate has no UTF-8.
        text.encode()
    except UnicodeEncodeError as error:
        raise _refused("not_ijson") from error


def _scalar(value: object) -> object:
    """Return the plain form of what is neither object nor array."""
    if value is None or value is True or value is False:
        return value
    if type(value) is str:
        _check_text(value)
        return value
    if type(value) is int:
        return value if -INTEGER_MAX <= value <= INTEGER_MAX else _great_integer(value)
    if type(value) is float:
        return _fraction(value)
    if isinstance(value, _FRACTIONS):
        number = float(str(value))
        # Spec 24.1: 2^53 itself is refused in every spelling.
        if abs(number) == _UNSAFE:
            raise _refused("not_ijson")
        return _fraction(number)
    raise LocalError(f"JSON has no form for {type(value).__name__}")


def _fraction(number: float) -> float:
    # Spec 1: a number too large for a double is no I-JSON.
    if not math.isfinite(number):
        raise _refused("not_ijson")
    # Spec 24.2: an integer is one by value: 1.0 and 1.7e9 are.
    if number.is_integer() and -INTEGER_MAX <= number <= INTEGER_MAX:
        return int(number)
    return number


def _great_integer(token: int) -> float:
    """Return the double of an integer beyond the safe ones when the token is exactly its spelling."""
    if -_EXPONENT_FROM < token < _EXPONENT_FROM:
        number = float(token)
        # Spec 24.1: beyond 2^53-1 only a token that is exactly the canonical spelling of its double.
        if abs(number) != _UNSAFE and rfc8785.dumps(number) == str(token).encode():
            return number
    raise _refused("not_ijson")


def _check_depth(value: object, depth_max: int) -> None:
    """Walk level by level; what a level holds is what the text held, so the work is bounded by its length."""
    level = [value]
    for _ in range(depth_max):
        inner: list[object] = []
        for container in level:
            if isinstance(container, dict):
                inner += [member for member in container.values() if isinstance(member, dict | list)]
            elif isinstance(container, list):
                inner += [member for member in container if isinstance(member, dict | list)]
        if not inner:
            return
        level = inner
    raise _refused("too_deep")


def _detail_of(data: bytes, message: str) -> str:
    """Return the rule that a text breaks, from jiter's message; its echo of the text comes after the prefix."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return "bad_utf8"
    return next((detail for prefix, detail in _DETAILS if message.startswith(prefix)), "bad_json")


_DETAILS: Final = (
    ("Detected duplicate key", "duplicate_key"),
    ("recursion limit exceeded", "too_deep"),
    ("number out of range", "not_ijson"),
    ("unexpected end of hex escape", "not_ijson"),
    ("lone leading surrogate", "not_ijson"),
)


def _refused(detail: str) -> RefusedError:
    return RefusedError(Refusal(Code.INVALID_SCHEMA, detail))
