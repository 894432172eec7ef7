"""Base58 encoder and decoder (Bitcoin alphabet, multibase prefix ``z``) for keys in DIDs and for document hashes.

Bytes go in and text comes out, or the reverse. ``core.ids`` uses it for keys in DIDs (decentralised identifiers),
Strata's ``canonical`` for hashes.
"""

from typing import Final

from waystation.core.errors import LocalError

__all__ = ["TEXT_CHARS_MAX", "decode_base58", "encode_base58"]

TEXT_CHARS_MAX: Final = 128
"""Longest text that is decoded; the work grows with its square, and what we read has at most 48 characters."""

_ALPHABET: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_VALUES: Final = {character: value for value, character in enumerate(_ALPHABET)}
_RADIX: Final = len(_ALPHABET)


def encode_base58(data: bytes) -> str:
    """Return the text of ``data``; each leading zero byte is one ``1``.

    Cost: O(bytes²); meant for keys and hashes.
    """
    characters = []
    number = int.from_bytes(data, "big")
    while number:
        number, digit = divmod(number, _RADIX)
        characters.append(_ALPHABET[digit])
    zeros = len(data) - len(data.lstrip(b"\0"))
    return "1" * zeros + "".join(reversed(characters))


def decode_base58(text: str) -> bytes:
    """Return the bytes whose text this is; every text of the alphabet is the text of exactly one byte string.

    Raises:
        LocalError: A character outside the alphabet, or more than 128 characters.
    """
    if len(text) > TEXT_CHARS_MAX:
        raise LocalError(f"base58 text of {len(text)} characters, at most {TEXT_CHARS_MAX}")
    number = 0
    try:
        for character in text:
            number = number * _RADIX + _VALUES[character]
    except KeyError as error:
        raise LocalError(f"not base58: {error.args[0]!r} is outside the alphabet") from error
    zeros = len(text) - len(text.lstrip("1"))
    return bytes(zeros) + number.to_bytes((number.bit_length() + 7) // 8, "big")
