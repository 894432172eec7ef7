"""Deletes stored packets by age, expiry and space, and hides packets that a revoked key signed.

The relay calls ``wake``; its changes go to the store through ``chores``. Each step deletes at most
``DROPS_PER_STEP_MAX`` packets. Key events are kept for ever; ids are remembered as long as the packet may be offered
again. A back-dated REVOKE starts a scan over its author's packets. Packets do not name their key, so the scan tries
each signature with the revoked key, a few per step. Its position is on disk and survives a restart. A pending recovery
event keeps its author's scan open, because it may become such a REVOKE.

Spec: specs/strata.md 4.1 (D6), 7, clarification 8; decisions STRATA-RETENTION, STRATA-HIDE.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import orjson

from waystation.core.instant import Instant, after_ms
from waystation.core.packets import DropPackets, HidePackets, PacketQuery, PacketReader, PacketRow
from waystation.core.records import Change, Record, Store
from waystation.crypto.signing import verify_any
from waystation.protocols.strata.canonical import canonicalise
from waystation.protocols.strata.keys.keyring import Keyring, hidden_after, is_hidden, next_change
from waystation.protocols.strata.relay.authors import KEY_EVENT_TYPES, Authors
from waystation.protocols.strata.settings import StrataSettings

__all__ = ["SCANS_TABLE", "Retention"]

SCANS_TABLE: Final = "strata_scans"
LOOK_MS: Final = 60_000
STEP_MS: Final = 50
DROPS_PER_STEP_MAX: Final = 512
CHECKS_PER_STEP_MAX: Final = 32  # about 2 ms of signatures
SCANS_MAX: Final = 65_536  # taken up after a restart
DEDUP_S: Final = 604_800  # RFC-0002 8: at least seven days
EXPIRED_KEPT_S: Final = 86_400  # so that by-id answers can say 410 for a while
_DAY_S: Final = 86_400
_MIB: Final = 1_048_576


class _Scan(msgspec.Struct):
    """The position of the search for packets of one author's revoked keys."""

    author: str
    seq: int = 0
    due_at: int = 0
    """Unix seconds; the scan rests before."""


class Retention:
    """Drops and hides packets, a few at a time."""

    def __init__(self, settings: StrataSettings, store: Store, packets: PacketReader, authors: Authors) -> None:
        """Resume the scans that a restart interrupted.

        Args:
            settings: How long and how much is kept.
            store: Has the positions of scans.
            packets: The stored packets.
            authors: Has the revocations of keys.
        """
        self._settings = settings
        self._packets = packets
        self._authors = authors
        interrupted = store.scan(SCANS_TABLE, count_max=SCANS_MAX)
        self._scans = {key.decode(): _Scan(key.decode(), int(seq)) for key, seq in interrupted}
        # NODE-ROT: a scan whose position is lost begins again, or packets of a revoked key would stay.
        damaged = (row.key.decode() for row in store.damaged(SCANS_TABLE) if row.key_is_good)
        self._scans |= {author: _Scan(author) for author in damaged}
        self._changes: list[Change] = []
        self._look_at = Instant(0)
        self._step_at: Instant | None = Instant(0) if self._scans else None

    def stored(self, row: PacketRow, wall_s: int) -> None:
        """Note a packet that was committed: a REVOKE may reach back."""
        # Only key events can hide packets that are stored already.
        if row.content_type not in KEY_EVENT_TYPES:
            return
        ring = self._authors.ring(row.author_id, wall_s)
        if ring is not None and (hidden_after(ring) or next_change(ring, wall_s) is not None):
            self._scans[row.author_id] = _Scan(row.author_id)  # a scan under way starts afresh
            self._changes.append(Record(SCANS_TABLE, row.author_id.encode(), b"0"))
            self._step_at = Instant(0)

    def wake(self, now: Instant, wall_s: int) -> None:
        """Do one step of each task that is due."""
        if now >= self._look_at:
            more = self._drop(wall_s)
            self._look_at = after_ms(now, STEP_MS if more else LOOK_MS)
        if self._step_at is not None and now >= self._step_at:
            more = self._scan(wall_s)
            self._step_at = after_ms(now, STEP_MS if more else LOOK_MS) if self._scans else None

    def deadlines(self) -> list[Instant]:
        """Return when ``wake`` is due."""
        return [self._look_at] if self._step_at is None else [self._look_at, self._step_at]

    def changes(self) -> list[Change]:
        """Return and forget the changes to write."""
        changes, self._changes = self._changes, []
        return changes

    def _drop(self, wall_s: int) -> bool:
        """Drop packets that are due; return whether there are more."""
        settings = self._settings
        too_old = wall_s - settings.retention_days * _DAY_S
        # Expired packets stay a day longer, so that answers by id can be 410.
        found = self._packets.droppable(too_old, wall_s - EXPIRED_KEPT_S, DROPS_PER_STEP_MAX)
        # Age and expiry first; then the oldest packets go until the rest fits retention_mib.
        # Key events have a space of their own: what they hold pushes no packet out.
        excess = self._packets.bytes_kept() - self._packets.bytes_held() - settings.retention_mib * _MIB
        if not found and excess > 0:
            found = _up_to(self._packets.droppable(wall_s + 1, wall_s + 1, DROPS_PER_STEP_MAX), excess)
        if not found:
            return False
        # Spec 7: ids are remembered for at least 7 days after a packet was dropped (D24).
        remember_until = wall_s + max(DEDUP_S, settings.max_backfill_s)
        self._changes.append(DropPackets(tuple(packet_id for packet_id, _ in found), remember_until))
        return True

    def _scan(self, wall_s: int) -> bool:
        """Check the next packets of the first scan that is due; return whether there was one."""
        scan = next((scan for scan in self._scans.values() if scan.due_at <= wall_s), None)
        if scan is None:
            return False
        ring = self._authors.ring(scan.author, wall_s)
        if ring is None:  # without the keys no packet can be judged
            scan.due_at = wall_s + LOOK_MS // 1_000
            return True
        keys_count = len(hidden_after(ring))
        rows_max = max(1, CHECKS_PER_STEP_MAX // max(1, keys_count))  # each packet is tried with each key
        query = PacketQuery((scan.author,), by_seq=True, start=(0, scan.seq), rows_max=rows_max)
        page = self._packets.page(query)
        skew = self._settings.clock_skew_s
        hidden = tuple(row.packet_id for row in page.rows if _is_revoked(row, ring, skew))
        # Spec 4.1: a REVOKE dated back hides what the key signed after revoked_at + skew (D6).
        if hidden:
            self._changes.append(HidePackets(hidden, hidden=True))
        self._move(scan, page.position, next_change(ring, wall_s))
        return True

    def _move(self, scan: _Scan, position: tuple[int, int] | None, change_at: int | None) -> None:
        """Go on after ``position``, begin again when the author's keys change by themselves, or end the scan."""
        # Every packet of the author was tried, and no pending event can change the answer: the scan ends.
        if position is None and change_at is None:
            del self._scans[scan.author]
            self._changes.append(Record(SCANS_TABLE, scan.author.encode(), None))
            return
        scan.seq, scan.due_at = (position[1], 0) if position is not None else (0, change_at or 0)
        self._changes.append(Record(SCANS_TABLE, scan.author.encode(), b"%d" % scan.seq))


def _is_revoked(row: PacketRow, ring: Keyring, skew: int) -> bool:
    """Return whether a packet was signed by a key of the ring after its revocation."""
    # D6: only what was received after revoked_at and the skew can be hidden.
    late = [public for public, revoked_at in hidden_after(ring) if row.received_at > revoked_at + skew]
    if not late:
        return False
    packet: dict[str, Any] = orjson.loads(row.canonical)
    signature = bytes.fromhex(packet.pop("signature")[2:])
    # Spec 3: the signature covers the canonical packet without packet_id and signature.
    del packet["packet_id"]
    index = verify_any(late, canonicalise(packet), signature)
    return index >= 0 and is_hidden(ring, row.packet_id, late[index], row.received_at, skew)


def _up_to(found: Sequence[tuple[bytes, int]], bytes_wanted: int) -> list[tuple[bytes, int]]:
    """Return as many of the oldest as free ``bytes_wanted``."""
    taken = []
    for packet_id, size in found:
        if bytes_wanted <= 0:
            break
        taken.append((packet_id, size))
        bytes_wanted -= size
    return taken
