"""The identity of a MERK client in a file, in the original's own format, and how the keys of others are written.

The key file is what the original exports: both key pairs as JSON. Whoever has it is you, and can read what was sent to
you. Other people need two things of you: the public key, which is your name, and only with clients of the original also
the agreement key; ours find it in the key directory.

Spec: specs/merk.md 3 "Key export JSON".
"""

import random
from pathlib import Path
from typing import Final

from waystation.core.errors import HostError, LocalError
from waystation.core.ids import KEY_BYTES, decode_id52, decode_key_hex
from waystation.protocols.merk.keys import Keys
from waystation.sdk.private_file import read_private, write_private

__all__ = ["KEY_FILE", "create_keys", "import_keys", "load_keys", "open_keys", "parse_key"]

KEY_FILE: Final = "merk.key"
_HEX_CHARS: Final = 2 * KEY_BYTES


def create_keys(home: Path) -> Keys:
    """Make a new identity in a folder, which is made if absent.

    Raises:
        LocalError: There is one already.
        HostError: The file cannot be written.
    """
    return _save(home, Keys.generate(random.SystemRandom()))


def import_keys(home: Path, text: str) -> Keys:
    """Take over the identity of an exported key file; its text may come from the original.

    Raises:
        LocalError: The text is no key file, or there is an identity already.
        HostError: The file cannot be written.
    """
    return _save(home, Keys.import_json(text))


def load_keys(home: Path) -> Keys:
    """Return the identity kept in a folder.

    Raises:
        LocalError: There is none.
        HostError: The file cannot be read, holds no keys, or others may read it.
    """
    text = read_private(home / KEY_FILE, secret=True)
    if text is None:
        raise LocalError(f"there is no identity in {home}; `waystation merk keys create` makes one")
    try:
        return Keys.import_json(text)
    except LocalError as error:
        raise HostError(f"{home / KEY_FILE} does not hold MERK keys: {error}") from error


def open_keys(home: Path) -> Keys:
    """Return the identity kept in a folder, made if absent; raises HostError as ``load_keys`` and ``create_keys``."""
    return load_keys(home) if (home / KEY_FILE).exists() else create_keys(home)


def parse_key(text: str | bytes) -> bytes:
    """Return the 32 bytes of a public key: as they are, as 64 hexadecimal digits, or as an id52.

    Raises:
        LocalError: It is none of these.
    """
    if isinstance(text, bytes):
        if len(text) != KEY_BYTES:
            raise LocalError(f"a key has {KEY_BYTES} bytes, this has {len(text)}")
        return text
    stripped = text.strip()
    try:
        return decode_key_hex(stripped) if len(stripped) == _HEX_CHARS else decode_id52(stripped)
    except LocalError as error:
        raise LocalError(
            f"a key has 64 hexadecimal digits, or 52 characters as id52; this is neither: {text}"
        ) from error


def _save(home: Path, keys: Keys) -> Keys:
    path = home / KEY_FILE
    try:
        write_private(path, keys.export_json() + "\n", replace=False)
    except LocalError as error:
        raise LocalError(f"there is an identity in {home} already; it is not overwritten") from error
    return keys
