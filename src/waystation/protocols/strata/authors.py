"""Who may sign for whom, as of what is stored and what is about to be.

The directory knows how a DID becomes keys; this module feeds it the key events of the store, each with the key that
signed it (kept beside the packet, because a packet does not name its key), and those accepted but not committed yet, so
that the packet right behind a KEY_EVENT is judged by it. Events that were undone are hidden from readers but not from
here, or it would be forgotten which keys they had brought in. Spec: specs/strata.md 4.1; decision STRATA-SIGNERS.
"""

from collections.abc import Sequence
from typing import Any, Final

import orjson

from waystation.core.packets import PacketReader, PacketRow
from waystation.core.records import Record, Store
from waystation.crypto.signing import verify_any
from waystation.protocols.strata.directory import Directory
from waystation.protocols.strata.keyring import KEY_EVENT_TYPES, KEY_EVENTS_MAX, KeyEvent, Keyring, candidates, has_room
from waystation.protocols.strata.packet import PACKET_ID_BYTES

__all__ = ["KEY_EVENT_TYPES", "SIGNERS_TABLE", "Authors"]

SIGNERS_TABLE: Final = "strata_signers"


class Authors:
    """Resolves authors through a directory and keeps its key events."""

    def __init__(self, store: Store, packets: PacketReader) -> None:
        """Read key events from ``packets`` and their signers from ``store``; ``use`` hands in the directory."""
        self._store = store
        self._packets = packets
        self._pending: dict[bytes, tuple[str, KeyEvent]] = {}
        self._directory: Directory | None = None

    def use(self, directory: Directory) -> None:
        """Resolve through ``directory``, which reads its events from ``events``."""
        self._directory = directory

    @property
    def directory(self) -> Directory:
        """The directory in use."""
        assert self._directory is not None
        return self._directory

    def ring(self, did: str, wall_s: int) -> Keyring | None:
        """Return the keys of a DID, or None when nobody can say."""
        return self.directory.ring(did, wall_s)

    def signer(self, ring: Keyring | None, message: bytes, signature: bytes) -> bytes | None:
        """Return which key of the ring verifies the signature, checked here and now."""
        if ring is None:
            return None
        keys = candidates(ring)
        index = verify_any(keys, message, signature)
        return keys[index] if index >= 0 else None

    def events(self, did: str) -> Sequence[KeyEvent]:
        """Return the key events of a DID, stored and pending, hidden ones too."""
        found = {}
        prefix = _signers_of(did)
        for key, signer in self._store.scan(SIGNERS_TABLE, prefix, KEY_EVENTS_MAX):
            row = self._packets.packet(key[-PACKET_ID_BYTES:]) if key.startswith(prefix) else None
            if row is not None:
                found[row.packet_id] = _event(row, signer, orjson.loads(row.canonical)["content"])
        for packet_id, (author, event) in self._pending.items():
            if author == did:
                found.setdefault(packet_id, event)
        return list(found.values())

    def has_room(self, did: str, signer: bytes, wall_s: int) -> bool:
        """Return whether one more key event of this signer may be kept."""
        ring = self.ring(did, wall_s)
        return ring is not None and has_room(ring, signer, len(ring.standings))

    def note(self, row: PacketRow, signer: bytes, content: dict[str, Any]) -> Record:
        """Apply a key event from now on; the record belongs into its commit."""
        self._pending[row.packet_id] = (row.author_id, _event(row, signer, content))
        self.directory.forget(row.author_id)
        return Record(SIGNERS_TABLE, _signers_of(row.author_id) + row.packet_id, signer)

    def committed(self, packet_id: bytes) -> None:
        """The packet is in the store, and need not be held here any more."""
        self._pending.pop(packet_id, None)


def _signers_of(did: str) -> bytes:
    return did.encode() + b"\0"  # no DID holds a zero


def _event(row: PacketRow, signer: bytes, content: dict[str, Any]) -> KeyEvent:
    # The time that never changes: an earlier witness must not rewrite who could sign when.
    return KeyEvent(row.packet_id, row.order_at, row.seq, signer, content)
