"""The key file of a Strata author: an identity as one JSON object, mode 0600.

Programs and ``waystation strata`` call it with the folder of an identity. A lost file means a lost DID, unless a
recovery key was added before. After a rotation the file has the new seed.
Spec: RFC-0001; specs/strata.md 4.1.
"""

import secrets
from pathlib import Path
from typing import Final

from waystation.crypto.signing import SEED_BYTES, KeyPair
from waystation.protocols.strata.client.identity import Identity, format_identity, parse_exported, parse_identity
from waystation.sdk.identity import load_identity_file, save_identity_file

__all__ = ["KEY_FILE", "create_identity", "import_identity", "load_identity", "open_identity", "save_identity"]

KEY_FILE: Final = "strata.key"


def create_identity(home: Path) -> Identity:
    """Make a new identity in a folder, which is made if absent.

    Raises:
        LocalError: There is one already.
        HostError: The file cannot be written.
    """
    identity = Identity.of(KeyPair.from_seed(secrets.token_bytes(SEED_BYTES)))
    save_identity(home, identity, replace=False)
    return identity


def import_identity(home: Path, text: str) -> Identity:
    """Take over an identity that was exported, as ``parse_exported`` reads it, into a folder, made if absent.

    Raises:
        LocalError: The text is no identity, or there is an identity already.
        HostError: The file cannot be written.
    """
    identity = parse_exported(text.strip())
    save_identity(home, identity, replace=False)
    return identity


def load_identity(home: Path) -> Identity:
    """Return the identity kept in a folder; raises as ``load_identity_file``."""
    return load_identity_file(home / KEY_FILE, parse_identity, "strata", "a Strata key")


def open_identity(home: Path) -> Identity:
    """Return the identity kept in a folder, made if absent; raises HostError."""
    return load_identity(home) if (home / KEY_FILE).exists() else create_identity(home)


def save_identity(home: Path, identity: Identity, *, replace: bool = True) -> Path:
    """Write the key file and return its path; raises as ``save_identity_file``."""
    return save_identity_file(home / KEY_FILE, format_identity(identity), replace=replace)
