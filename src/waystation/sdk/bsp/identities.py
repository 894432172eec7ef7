"""Maps each BSP peer to its key at a relay: its own Ed25519 key, unless a table names another.

The bridges ask it in both directions. Devices, MERK clients, Bhumi participants and LPRP tenants are all identified by
an Ed25519 key. With one key for all of them, a peer's key is also its address. The relay's key never authenticates a
bundle: devices seal and sign bundles.
"""

from collections.abc import Mapping

from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey

__all__ = ["Identities"]


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
