"""Reads and makes the key file of a client's folder, mode 0600: one Ed25519 seed, or a larger identity as JSON.

Each protocol's state opens its key here: a path goes in, a ``KeyPair`` or an identity comes out. A missing key beside
an existing database is an error, because a new key would be another identity.
"""

import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from waystation.core.errors import HostError, LocalError
from waystation.crypto.signing import SEED_BYTES, KeyPair
from waystation.sdk.private_database import EXIT_STORE
from waystation.sdk.private_file import read_private, write_private

__all__ = ["load_identity_file", "owner_key", "put_key", "read_key", "read_or_make_key", "save_identity_file"]

_Identity = TypeVar("_Identity")


def read_key(path: Path) -> KeyPair | None:
    """Return the identity in a file of 64 hexadecimal digits, None without a file.

    Raises:
        HostError: The file cannot be read, holds no key, or others may read it.
    """
    text = read_private(path, secret=True)
    if text is None:
        return None
    try:
        seed = bytes.fromhex(text.strip())
    except ValueError:
        seed = b""
    if len(seed) != SEED_BYTES:
        raise HostError(f"{path} does not hold a key: {2 * SEED_BYTES} hexadecimal digits are expected")
    return KeyPair.from_seed(seed)


def read_or_make_key(path: Path, rng: random.Random | None = None) -> KeyPair:
    """Return the identity in a file, made if absent; two programs that start at once agree on one.

    Args:
        path: In a folder that is private to its owner.
        rng: Source of a new key; anything but None is for tests.

    Raises:
        HostError: As ``read_key``, or the file cannot be written.
    """
    found = read_key(path)
    if found is None:
        with contextlib.suppress(LocalError):  # another program has just made one
            write_private(path, (rng or random.SystemRandom()).randbytes(SEED_BYTES).hex() + "\n", replace=False)
        found = read_key(path)
    assert found is not None
    return found


def owner_key(path: Path, database: Path, foreign: str, rng: random.Random | None = None) -> KeyPair:
    """Return the identity in a file, made if absent, that the database beside it belongs to.

    Args:
        path: As for ``read_or_make_key``.
        database: What is useless with another key.
        foreign: What to say and to do when it is there and the key is not.
        rng: As for ``read_or_make_key``.

    Raises:
        HostError: As ``read_or_make_key``, or the key is gone (exit code 5).
    """
    if database.exists() and not path.exists():
        raise HostError(f"{path} is gone; {foreign}", exit_code=EXIT_STORE)
    return read_or_make_key(path, rng)


def put_key(path: Path, key_pair: KeyPair) -> None:
    """Make a device's key that of another client's folder, whose key file is ``path``, before the folder is used.

    Raises:
        LocalError: The folder has another key already.
        HostError: As ``read_or_make_key``.
    """
    found = read_key(path)
    if found is None:
        write_private(path, key_pair.seed.hex() + "\n", replace=False)
        path.parent.chmod(0o700)
    elif found.seed != key_pair.seed:
        raise LocalError(f"{path} holds another key than the device's; use another folder, or map the identities")


def load_identity_file(path: Path, parse: Callable[[str], _Identity], protocol: str, what: str) -> _Identity:
    """Return an identity that is more than one seed.

    Args:
        path: The key file.
        parse: Reads its text; raises LocalError or ValueError for one that is none.
        protocol: Whose ``keys create`` makes the file.
        what: What the file holds, as sentences have it.

    Raises:
        LocalError: There is no file.
        HostError: It cannot be read, holds something else, or others may read it.
    """
    text = read_private(path, secret=True)
    if text is None:
        raise LocalError(f"there is no identity in {path.parent}; `waystation {protocol} keys create` makes one")
    try:
        return parse(text)
    except (ValueError, RecursionError, LocalError) as error:
        raise HostError(f"{path} does not hold {what}: {error}") from error


def save_identity_file(path: Path, text: str, *, replace: bool = False) -> Path:
    """Write a key file, whole or not at all, its folder made if absent, and return its path.

    Raises:
        LocalError: One is there and ``replace`` is false.
        HostError: The file cannot be written.
    """
    try:
        write_private(path, text + "\n", replace=replace)
    except LocalError as error:
        raise LocalError(f"there is an identity in {path.parent} already; it is not overwritten") from error
    return path
