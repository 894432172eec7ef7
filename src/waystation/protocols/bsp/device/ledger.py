"""Encodes and decodes the rows that survive a restart: messages, their graph state, and what each peer holds.

The repository writes through it with each commit, and reads through it at the start. A message is one row, so storing
it costs one write. A later state change is a small second row. A chain of waiting messages can thus change at once
without its bodies being rewritten. The flags of 256 messages towards one peer are one row (BSP-ROWS). Counts and times
of copies are stored only if a copy may still arrive after a restart: those in files and at relays.

Layouts (integers big-endian): ``bsp_messages`` group 32 + message 32 -> version 1, bits 1 (state 2, shared 4, body
there 8, refusal follows 16), seq 4, timestamp 8, stored 8 (Unix ms), order 4, size 4, dependencies count 1, 32 each,
refusal (length 1, ASCII), body. ``bsp_states`` the same key -> version 1, bits 1, order 4, which override those of the
message. ``bsp_flags`` group 32 + peer 32 + chunk 4 -> version 1, count of flags 2, flags, then per row whose copy may
still arrive: index 1, copies 1, next 8 (Unix ms), base 4 (s).
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from waystation.core.errors import HostError
from waystation.core.ids import PublicKey
from waystation.core.records import Record, Store
from waystation.protocols.bsp.graph.order import State, Vertex
from waystation.protocols.bsp.messages import ID_BYTES
from waystation.protocols.bsp.refusals import Refusal

__all__ = ["CHUNK_MESSAGES", "KeptCopy", "KeptFlags", "Ledger"]

CHUNK_MESSAGES: Final = 256

_MESSAGES: Final = "bsp_messages"
_STATES: Final = "bsp_states"
_FLAGS: Final = "bsp_flags"
_VERSION: Final = 1
_STORE_EXIT_CODE: Final = 5
_PAGE: Final = 256
_HEAD: Final = struct.Struct(">BBIQQIIB")
_STATE: Final = struct.Struct(">BBI")
_FLAGS_HEAD: Final = struct.Struct(">BH")
_COPY: Final = struct.Struct(">BBQI")
_CHUNK: Final = struct.Struct(">I")
_FIRST_ORDER: Final = 1  # of what was delivered at a place that is lost: before all that depends on it
_STATE_BITS: Final = 3
_SHARED: Final = 4
_BODY: Final = 8
_REFUSAL: Final = 16


class KeptCopy(NamedTuple):
    """A copy that may still arrive."""

    place: int
    """Of its message in the chunk, 0 to 255."""
    copies: int
    """How often the message went out, 1 to 255."""
    next_ms: int
    """When it may go out again, Unix milliseconds."""
    base_s: int
    """Base interval of the link that carried it, seconds."""


class KeptFlags(NamedTuple):
    """One chunk of flags."""

    chunk: int
    flags: bytes
    copies: Sequence[KeptCopy]


class Ledger:
    """Turns messages and flags into rows of a store, and back."""

    def __init__(self, store: Store) -> None:
        """Read from ``store``; what is to be written is returned as records."""
        self._store = store

    # Writing

    def message(self, group_id: bytes, vertex: Vertex, body: bytes) -> Record:
        """Return the row of a message; ``body`` is left out when it was deleted."""
        bits = _bits(vertex)
        dependencies = vertex.dependencies
        tail = b""
        # The reason survives, so that ``why`` names it after a restart.
        if vertex.refusal is not None:
            bits |= _REFUSAL
            reason = vertex.refusal.value.encode()
            tail = bytes((len(reason),)) + reason
        head = _HEAD.pack(
            _VERSION,
            bits,
            vertex.seq,
            vertex.timestamp,
            vertex.stored_ms,
            vertex.order,
            vertex.size_bytes,
            len(dependencies),
        )
        parts = (head, *dependencies, tail, body if vertex.body_present else b"")
        return Record(_MESSAGES, group_id + vertex.message_id, b"".join(parts))

    def state(self, group_id: bytes, vertex: Vertex) -> Record:
        """Return the row of a new state of a message whose body stays."""
        # BSP-ROWS: a later state is a row of its own; the message with its body is not written again.
        value = _STATE.pack(_VERSION, _bits(vertex), vertex.order)
        return Record(_STATES, group_id + vertex.message_id, value)

    def emptied(self, group_id: bytes, vertex: Vertex) -> tuple[Record, Record]:
        """Return the rows of a message whose body is gone."""
        return self.message(group_id, vertex, b""), Record(_STATES, group_id + vertex.message_id, None)

    def no_message(self, group_id: bytes, message_id: bytes) -> tuple[Record, Record]:
        """Return the removals of a message's rows."""
        key = group_id + message_id
        return Record(_MESSAGES, key, None), Record(_STATES, key, None)

    def flags(self, group_id: bytes, peer: PublicKey, kept: KeptFlags) -> Record:
        """Return the row of a chunk of flags."""
        # BSP-COPIES: counts and times survive only where the copy does, in files and at relays.
        copies = b"".join(_COPY.pack(*copy) for copy in kept.copies)
        value = _FLAGS_HEAD.pack(_VERSION, len(kept.flags)) + kept.flags + copies
        return Record(_FLAGS, group_id + peer + _CHUNK.pack(kept.chunk), value)

    def no_flags(self, group_id: bytes, peer: PublicKey, chunk: int) -> Record:
        """Return the removal of a chunk of flags."""
        return Record(_FLAGS, group_id + peer + _CHUNK.pack(chunk), None)

    # Reading

    def read_body(self, group_id: bytes, vertex: Vertex) -> bytes | None:
        """Return the body of a message, None when it is not on disk."""
        value = self._store.get(_MESSAGES, group_id + vertex.message_id)
        # A tombstone's row ends before the body: the size alone would point into the dependencies.
        if value is None or not vertex.body_present:
            return None
        return value[len(value) - vertex.size_bytes :]

    def read_bodies(self, wanted: Sequence[tuple[bytes, Vertex]]) -> dict[bytes, bytes]:
        """Return the bodies of messages, given by group and vertex, as far as they are on disk; by identifier."""
        sizes = {group_id + vertex.message_id: vertex.size_bytes for group_id, vertex in wanted}
        rows = self._store.get_many(_MESSAGES, list(sizes))
        return {key[ID_BYTES:]: value[len(value) - sizes[key] :] for key, value in rows.items()}

    def read_messages(self, group_id: bytes) -> Iterator[Vertex]:
        """Yield the messages of a group, by their identifiers.

        Raises:
            HostError: A row is not one of ours (exit code 5).
        """
        states = dict(self._rows(_STATES, group_id))
        for key, value in self._rows(_MESSAGES, group_id):
            vertex = _vertex(key[ID_BYTES:], value)
            state = states.get(key)
            # BSP-ROWS: the state row holds over the bits that the message was first written with.
            if state is not None:
                _enter_state(vertex, state)
            yield vertex

    def stand_ins(self, vertices: Sequence[Vertex]) -> list[Vertex]:
        """Return tombstones for damaged messages that delivered ones of a group depend on, and deliver what was.

        A damaged message on which nothing depends is simply missing, so a peer may bring it again (BSP-DAMAGED). No
        more of them are stood in for than rows are damaged.

        Args:
            vertices: Those of the group that are whole; one whose state row is damaged is marked as delivered here,
                when a delivered one depends on it.
        """
        lost = len(self._store.damaged(_MESSAGES)) + len(self._store.damaged(_STATES))
        if not lost:
            return []
        there = {vertex.message_id: vertex for vertex in vertices}
        needed = [each for vertex in vertices if vertex.state is State.DELIVERED for each in vertex.dependencies]
        found: dict[bytes, Vertex] = {}
        seq = max((vertex.seq for vertex in vertices), default=-1)
        while needed and lost:
            message_id = needed.pop()
            vertex = there.get(message_id) or found.get(message_id)
            if vertex is not None and vertex.state is State.DELIVERED:
                continue
            lost -= 1
            if vertex is None:
                seq += 1
                vertex = found[message_id] = Vertex(message_id, 0, 0, ())
                vertex.seq, vertex.body_present = seq, False
            needed += vertex.dependencies
            vertex.state, vertex.order = State.DELIVERED, _FIRST_ORDER
        return list(found.values())

    def seq_after_lost(self, group_id: bytes) -> int:
        """Return the first number behind all flags of a group whose messages may be damaged, 0 when none is."""
        if not self._store.damaged(_MESSAGES):
            return 0
        chunks = (_kept_flags(key, value) for key, value in self._rows(_FLAGS, group_id))
        return max((kept.chunk * CHUNK_MESSAGES + len(kept.flags) for kept in chunks), default=0)

    def check_whole(self, vertices: Sequence[Vertex]) -> None:
        """Check that no delivered message of a group depends on one that is not there (BSP-WHOLE).

        Raises:
            HostError: Some rows are gone (exit code 5).
        """
        # BSP-WHOLE: what was delivered cannot be taken back, so a gap means a damaged store.
        there = {vertex.message_id for vertex in vertices if vertex.state is State.DELIVERED}
        for vertex in vertices:
            if vertex.state is State.DELIVERED and not there.issuperset(vertex.dependencies):
                raise _damaged(_MESSAGES)

    def read_flags(self, group_id: bytes, peer: PublicKey) -> Iterator[KeptFlags]:
        """Yield the chunks of flags of a group towards a peer.

        Raises:
            HostError: A row is not one of ours (exit code 5).
        """
        for key, value in self._rows(_FLAGS, group_id + peer):
            yield _kept_flags(key, value)

    def flag_rows(self, group_id: bytes) -> Iterator[bytes]:
        """Yield the keys of all rows of flags of a group, of every peer."""
        for key, _ in self._rows(_FLAGS, group_id):
            yield key

    def no_flag_row(self, key: bytes) -> Record:
        """Return the removal of a row of flags by its key."""
        return Record(_FLAGS, key, None)

    def _rows(self, table: str, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        start = prefix
        while True:
            page = list(self._store.scan(table, start, _PAGE))
            for key, value in page:
                # A page may reach into the next group: keys are ordered, so nothing of ours follows.
                if not key.startswith(prefix):
                    return
                yield key, value
            if len(page) < _PAGE:
                return
            start = page[-1][0] + b"\x00"


def _vertex(message_id: bytes, value: bytes) -> Vertex:
    if len(value) < _HEAD.size or value[0] != _VERSION or len(message_id) != ID_BYTES:
        raise _damaged(_MESSAGES)
    _, bits, seq, timestamp, stored_ms, order, size, count = _HEAD.unpack_from(value)
    at = _HEAD.size + count * ID_BYTES
    dependencies = tuple(value[start : start + ID_BYTES] for start in range(_HEAD.size, at, ID_BYTES))
    refusal = None
    if bits & _REFUSAL:
        end = at + 1 + (value[at] if at < len(value) else 0)
        refusal, at = _refusal(value[at + 1 : end]), end
    # The body is the rest of the row; any other length is damage, not a shorter message.
    if len(value) != at + (size if bits & _BODY else 0):
        raise _damaged(_MESSAGES)
    vertex = Vertex(message_id, timestamp, size, dependencies)
    vertex.seq, vertex.state, vertex.order, vertex.stored_ms = seq, State(bits & _STATE_BITS), order, stored_ms
    vertex.shared, vertex.body_present, vertex.refusal = bool(bits & _SHARED), bool(bits & _BODY), refusal
    return vertex


def _bits(vertex: Vertex) -> int:
    return vertex.state | (_SHARED if vertex.shared else 0) | (_BODY if vertex.body_present else 0)


def _enter_state(vertex: Vertex, value: bytes) -> None:
    if len(value) != _STATE.size or value[0] != _VERSION:
        raise _damaged(_STATES)
    _, bits, vertex.order = _STATE.unpack(value)
    vertex.state, vertex.shared = State(bits & _STATE_BITS), bool(bits & _SHARED)


def _refusal(text: bytes) -> Refusal:
    try:
        return Refusal(text.decode())
    except ValueError as error:
        raise _damaged(_MESSAGES) from error


def _kept_flags(key: bytes, value: bytes) -> KeptFlags:
    if len(value) < _FLAGS_HEAD.size or value[0] != _VERSION or len(key) != 2 * ID_BYTES + _CHUNK.size:
        raise _damaged(_FLAGS)
    _, count = _FLAGS_HEAD.unpack_from(value)
    at = _FLAGS_HEAD.size + count
    # Copies follow the flags in whole rows of 10 bytes; anything else is not ours.
    if count > CHUNK_MESSAGES or len(value) < at or (len(value) - at) % _COPY.size:
        raise _damaged(_FLAGS)
    copies = [KeptCopy(*fields) for fields in _COPY.iter_unpack(value[at:])]
    (chunk,) = _CHUNK.unpack_from(key, 2 * ID_BYTES)
    return KeptFlags(chunk, value[_FLAGS_HEAD.size : at], copies)


def _damaged(table: str) -> HostError:
    return HostError(
        f"the store's table {table} is damaged, or was written by a newer waystation", exit_code=_STORE_EXIT_CODE
    )
