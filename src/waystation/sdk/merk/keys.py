"""Stores a MERK client's identity in a file, and imports and exports it in the format of the reference implementation.

Programs and ``waystation merk`` call it with the folder of an identity. The key file has both key pairs as JSON. Any
holder of the file can impersonate its owner and read the owner's messages. Senders need the owner's public key, which
is its address. Clients of the reference implementation also need the agreement key; this client finds it in the key
directory.

Spec: specs/merk.md 3 "Key export JSON".
"""

import random
from pathlib import Path
from typing import Final

from waystation.protocols.merk.keys import Keys
from waystation.sdk.identity import load_identity_file, save_identity_file

__all__ = ["KEY_FILE", "create_keys", "import_keys", "load_keys", "open_keys"]

KEY_FILE: Final = "merk.key"


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
    return load_identity_file(home / KEY_FILE, Keys.import_json, "merk", "MERK keys")


def open_keys(home: Path) -> Keys:
    """Return the identity kept in a folder, made if absent; raises HostError as ``load_keys`` and ``create_keys``."""
    return load_keys(home) if (home / KEY_FILE).exists() else create_keys(home)


def _save(home: Path, keys: Keys) -> Keys:
    save_identity_file(home / KEY_FILE, keys.export_json())
    return keys
