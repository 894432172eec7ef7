"""Supplies the relay with the keys of an author, from stored and pending key events.

Intake, AUTH and retention ask it for a keyring. The directory resolves a DID to keys. This module passes it the
author's key events, each with the key that signed it, which is stored beside the packet. Accepted but uncommitted
events are included, so the packet after a KEY_EVENT is checked by it. Undone events are hidden from readers but used
here, because the keys that they added must stay known.
Spec: specs/strata.md 4.1; decision STRATA-SIGNERS.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import orjson

from waystation.core.packets import PacketReader, PacketRow
from waystation.core.records import Record, Store
from waystation.crypto.signing import verify_any
from waystation.protocols.strata.keys.keyring import (
    KEY_EVENT_TYPES,
    KEY_EVENTS_MAX,
    KeyEvent,
    Keyring,
    candidates,
    has_room,
    is_recovery_key,
)
from waystation.protocols.strata.packet import PACKET_ID_BYTES, Packet
from waystation.protocols.strata.refusals import Code, Refusal
from waystation.protocols.strata.relay.directory import Directory

__all__ = ["KEY_EVENT_TYPES", "SIGNERS_TABLE", "Authors", "Room"]

SIGNERS_TABLE: Final = "strata_signers"
_NO_SPACE: Final = Refusal(Code.RATE_LIMITED, "key_events_space", extra=(("retry_after", 3_600),))


class Room(NamedTuple):
    """What key events may have in the store."""

    unpublished: int
    """How many of an author of whom no other packet is stored."""
    space_bytes: int
    """All of them together."""


class Authors:
    """Resolves authors through a directory and keeps its key events."""

    def __init__(self, store: Store, packets: PacketReader) -> None:
        """Read key events from ``packets`` and their signers from ``store``; ``use`` sets the directory."""
        self._store = store
        self._packets = packets
        self._pending: dict[bytes, tuple[str, KeyEvent]] = {}
        self._lost: dict[str, frozenset[bytes]] = {}
        """Key events of an author that are damaged on the disk, by packet id."""
        self._directory: Directory | None = None

    def use(self, directory: Directory) -> Directory:
        """Resolve through ``directory``, which reads its events from ``events``; return it."""
        self._directory = directory
        return directory

    @property
    def directory(self) -> Directory:
        """The directory in use."""
        assert self._directory is not None
        return self._directory

    def ring(self, did: str, wall_s: int, packet_id: bytes = b"") -> Keyring | None:
        """Return the keys of a DID, or None when they are unknown, or a key event is damaged on the disk.

        Args:
            did: The author.
            wall_s: Unix seconds.
            packet_id: The packet that the keys are asked for; a lost key event that comes again may be checked.
        """
        ring = self.directory.ring(did, wall_s)
        # STRATA-LOST: the event may have revoked a key, so none of the author's is believed before it is there again.
        lost = self._lost.get(did)
        return ring if not lost or packet_id in lost else None

    def signer(self, ring: Keyring | None, message: bytes, signature: bytes) -> bytes | None:
        """Return the key of the ring that verifies the signature, checked synchronously."""
        if ring is None:
            return None
        keys = candidates(ring)
        index = verify_any(keys, message, signature)
        return keys[index] if index >= 0 else None

    def events(self, did: str) -> Sequence[KeyEvent]:
        """Return the key events of a DID, stored and pending, hidden ones too."""
        found = {}
        prefix = _signers_of(did)
        lost = set()
        for key, signer in self._store.scan(SIGNERS_TABLE, prefix, KEY_EVENTS_MAX):
            if not key.startswith(prefix):
                continue
            row = self._packets.packet(key[-PACKET_ID_BYTES:])
            if row is not None:
                # Spec 4.1: a packet does not name its key, so the signer was stored when it was known.
                found[row.packet_id] = _event(row, signer, orjson.loads(row.canonical)["content"])
            else:
                lost.add(key[-PACKET_ID_BYTES:])  # key events are never dropped
        lost.update(
            row.key[-PACKET_ID_BYTES:]
            for row in self._store.damaged(SIGNERS_TABLE)
            if row.key_is_good and row.key.startswith(prefix)
        )
        self._lost.pop(did, None)
        if lost := lost - self._pending.keys():
            self._lost[did] = frozenset(lost)
        for packet_id, (author, event) in self._pending.items():
            if author == did:
                # A key event counts from its acceptance: the packet right after it may be signed by the new key.
                found.setdefault(packet_id, event)
        return list(found.values())

    def why_no_room(
        self, packet: Packet, signer: bytes, wall_s: int, most: Room, *, is_replica: bool
    ) -> Refusal | None:
        """Return why one more key event may not be kept, or None (STRATA-ROOM).

        Args:
            packet: The key event.
            signer: The key that signed it.
            wall_s: Unix seconds.
            most: What all key events may have.
            is_replica: Whether a relay that the operator named, or an import, brought it; then the author may have
                published packets that are gone.
        """
        did = packet.author_id
        ring = self.directory.ring(did, wall_s)
        # Spec 4.1: 256 key events per author, 32 of them reserved for recovery keys.
        if ring is None or not has_room(ring, signer, len(ring.statuses)):
            return Refusal(Code.INVALID_SCHEMA, "key_events_max")
        bytes_wanted = self._packets.bytes_held() + len(packet.canonical)
        has_few = len(ring.statuses) < most.unpublished and bytes_wanted <= most.space_bytes // 2
        # DIDs cost nothing: who has published nothing else may fill half of the space, a few key events each.
        is_known = has_few or is_replica or is_recovery_key(ring, signer) or self._packets.has_droppable(did)
        if not is_known:
            if len(ring.statuses) >= most.unpublished:
                return Refusal(Code.INVALID_SCHEMA, "key_events_unpublished")
            return _NO_SPACE
        return _NO_SPACE if bytes_wanted > most.space_bytes else None

    def note(self, row: PacketRow, signer: bytes, content: dict[str, Any]) -> Record:
        """Apply a key event from now on; the record belongs into its commit."""
        self._pending[row.packet_id] = (row.author_id, _event(row, signer, content))
        # The ring is replayed with the new event at the next packet of this author.
        self.directory.forget(row.author_id)
        return Record(SIGNERS_TABLE, _signers_of(row.author_id) + row.packet_id, signer)

    def committed(self, packet_id: bytes) -> None:
        """Forget a pending packet that is in the store."""
        self._pending.pop(packet_id, None)

    def not_committed(self, row: PacketRow) -> None:
        """Undo a pending key event that the store refused."""
        if self._pending.pop(row.packet_id, None) is not None:
            self.directory.forget(row.author_id)


def _signers_of(did: str) -> bytes:
    return did.encode() + b"\0"  # no DID holds a zero


def _event(row: PacketRow, signer: bytes, content: dict[str, Any]) -> KeyEvent:
    # The time that never changes: an earlier witness must not rewrite who could sign when.
    return KeyEvent(row.packet_id, row.order_at, row.seq, signer, content)
