"""Reads and creates the key file of a client's folder: an Ed25519 seed as 64 hexadecimal digits, mode 0600."""

import contextlib
import random
from pathlib import Path

from waystation.core.errors import HostError, LocalError
from waystation.crypto.signing import SEED_BYTES, KeyPair
from waystation.sdk.private_file import read_private, write_private

__all__ = ["put_key", "read_key", "read_or_make_key"]


def read_key(path: Path) -> KeyPair | None:
    """Return the identity in a file, None without a file.

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
