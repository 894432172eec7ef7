"""Who a BSP peer is at a relay: the same Ed25519 key, unless somebody says otherwise.

A device, a MERK client, a Bhumi participant and an LPRP tenant are each an Ed25519 key. One key for all of them means
that a peer's key is also its address. What a relay's key proves is never relied on for what a bundle says: bundles are
sealed and signed by the devices themselves.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from waystation.core.errors import HostError, LocalError
from waystation.core.ids import PublicKey
from waystation.crypto.hashing import hkdf_sha256
from waystation.crypto.signing import KeyPair
from waystation.protocols.merk.keys import Keys
from waystation.sdk.private_file import read_private, write_private

__all__ = ["Identities", "merk_keys_of", "put_key"]

_MERK_INFO: Final = b"waystation/bsp/merk/1"


class Identities:
    """Which key each peer has at one relay."""

    def __init__(self, relay_keys: Mapping[PublicKey, PublicKey] | None = None) -> None:
        """Describe them.

        Args:
            relay_keys: Keys at the relay, 32 bytes each, of peers that use another one there; everybody else has one
                key for both.

        Raises:
            LocalError: Two peers have one key at the relay.
        """
        self._relay_keys = dict(relay_keys or {})
        self._peers = {relay_key: peer for peer, relay_key in self._relay_keys.items()}
        if len(self._peers) < len(self._relay_keys):
            raise LocalError("two peers cannot have one key at a relay")

    def relay_key_of(self, peer: PublicKey) -> PublicKey:
        """Return the key that a peer has at the relay."""
        return self._relay_keys.get(peer, peer)

    def peer_of(self, relay_key: bytes) -> PublicKey:
        """Return whose key at the relay this is, known peer or not."""
        key = PublicKey(relay_key)
        return self._peers.get(key, key)


def merk_keys_of(key_pair: KeyPair) -> Keys:
    """Return a device's identity as a MERK client: its own key, and an agreement key that grows from the same seed.

    Others pin agreement keys, so it must be the same at every start.
    """
    return Keys.from_seeds(key_pair.seed, hkdf_sha256(key_pair.seed, salt=b"", info=_MERK_INFO))


def put_key(path: Path, key_pair: KeyPair) -> None:
    """Make a device's key that of a Bhumi or LPRP folder, whose key file is ``path``, before the folder is used.

    Raises:
        LocalError: The folder has another key already.
        HostError: The file cannot be read or written, or others may read it.
    """
    text = read_private(path, secret=True)
    if text is None:
        write_private(path, key_pair.seed.hex() + "\n", replace=False)
        path.parent.chmod(_FOLDER_MODE)
        return
    try:
        seed = bytes.fromhex(text.strip())
    except ValueError as error:
        raise HostError(f"{path} does not hold a key") from error
    if seed != key_pair.seed:
        raise LocalError(f"{path} holds another key than the device's; use another folder, or map the identities")


_FOLDER_MODE: Final = 0o700
