"""Reads and writes the rows that survive a restart: leases, whitelists, accepted packets, last times.

The relay and its commands note changes here. Changes are gathered until the relay commits them. Each tenant is one row.
All packets accepted since the last commit form one row, a bundle, because a row costs twenty times its bytes
(LPRP-BUNDLE). A bitmap marks the finished packets of a bundle. When all are finished, both rows are removed. When few
are left, these move into the next bundle, so one slow tenant does not keep the mail of others on disk.

Layouts (integers big-endian): ``lprp_tenants`` key -> version 1, lease 8, last_ts 8, state_ts 8, whitelist time 8.
``lprp_whitelists`` key -> keys of 32 bytes, ascending. ``lprp_packets`` bundle 8 -> version 1, then per packet flags 1,
accepted 8, length 2, bytes. ``lprp_done`` bundle 8 -> bitmap, bit ``i % 8`` of byte ``i // 8`` for packet ``i``.
"""

import struct
from collections.abc import Iterator
from typing import Final

from waystation.core.errors import HostError
from waystation.core.ids import KEY_BYTES, PublicKey
from waystation.core.records import Change, Record, Store
from waystation.protocols.lprp.messages import PACKET_BYTES_MAX, PACKET_BYTES_MIN, SIGNATURE_BYTES
from waystation.protocols.lprp.relay.mailbox import QueuedPacket
from waystation.protocols.lprp.relay.tenants import Tenant, Tenants

__all__ = ["BUNDLE_PACKETS_MAX", "Ledger"]

BUNDLE_PACKETS_MAX: Final = 1_024  # half a megabyte: one packet that stays keeps no more than this on disk
_MOVE_BELOW: Final = 4  # when fewer than one packet in four is left, those move on
_MOVE_COUNT_MIN: Final = 8  # a small bundle may stay as it is

_TENANTS: Final = "lprp_tenants"
_WHITELISTS: Final = "lprp_whitelists"
_PACKETS: Final = "lprp_packets"
_DONE: Final = "lprp_done"
_VERSION: Final = 1
_STORE_EXIT_CODE: Final = 5
_PAGE: Final = 256
_TENANT: Final = struct.Struct(">BQQQQ")
_ENTRY: Final = struct.Struct(">BQH")
_FROM_UNLISTED: Final = 1
_NUMBER: Final = struct.Struct(">Q")


class _Bundle:
    """Packets that were committed together."""

    __slots__ = ("left", "marked", "packets")

    def __init__(self, packets: list[QueuedPacket | None], *, marked: bool) -> None:
        self.packets = packets
        """None for those that are done."""
        self.left = sum(queued is not None for queued in packets)
        self.marked = marked
        """Whether a bitmap is on disk."""


class Ledger:
    """Gathers changes, and reads back the committed rows.

    Cost: O(1) per call; ``changes`` O(what changed).
    """

    def __init__(self, store: Store) -> None:
        """Start with nothing changed; ``load`` first."""
        self._store = store
        self._tenants: dict[PublicKey, Tenant] = {}
        self._whitelists: dict[PublicKey, Tenant] = {}
        self._forgotten: list[PublicKey] = []
        self._gathered: list[QueuedPacket] = []
        self._bundles: dict[int, _Bundle] = {}
        self._touched: set[int] = set()
        self._next_bundle = 1
        self._doubtful: list[Tenant] = []

    @property
    def is_dirty(self) -> bool:
        """Whether anything waits for a commit."""
        return bool(self._tenants or self._whitelists or self._forgotten or self._gathered or self._touched)

    @property
    def bundles_count(self) -> int:
        """Number of bundles on disk."""
        return len(self._bundles)

    # Changes

    def note_tenant(self, tenant: Tenant) -> None:
        """Note that a tenant's times changed."""
        self._tenants[tenant.key] = tenant

    def note_whitelist(self, tenant: Tenant) -> None:
        """Note that a tenant's whitelist changed, and with it its times."""
        self._whitelists[tenant.key] = tenant
        self._tenants[tenant.key] = tenant

    def note_accepted(self, queued: QueuedPacket) -> None:
        """Note an accepted packet."""
        self._gathered.append(queued)

    def note_gone(self, queued: QueuedPacket) -> None:
        """Note that a packet was delivered, or its tenant forgotten."""
        queued.gone = True
        if queued.bundle is None:
            return
        bundle = self._bundles[queued.bundle]
        bundle.packets[queued.index] = None
        bundle.left -= 1
        self._touched.add(queued.bundle)

    def forget(self, tenant: Tenant) -> None:
        """Remove a tenant's rows after its lease is over; its packets are noted as gone separately."""
        self._tenants.pop(tenant.key, None)
        self._whitelists.pop(tenant.key, None)
        self._forgotten.append(tenant.key)

    def changes(self) -> tuple[Change, ...]:
        """Return what is to be committed in one group, and forget it."""
        records: list[Change] = []
        for key in self._forgotten:
            records += (Record(_TENANTS, key, None), Record(_WHITELISTS, key, None))
        for key, tenant in self._tenants.items():
            # LPRP-AHEAD: the disk may have a time a second ahead already; it never goes back.
            tenant.kept_ts = max(tenant.kept_ts, tenant.last_ts)
            times = (tenant.lease_at_ms, tenant.kept_ts, tenant.state_ts, tenant.whitelist_at_ms)
            records.append(Record(_TENANTS, key, _TENANT.pack(_VERSION, *times)))
        for key, tenant in self._whitelists.items():
            records.append(Record(_WHITELISTS, key, b"".join(sorted(tenant.whitelist)) or None))
        for number in sorted(self._touched):
            records += self._marked(number)
        records += self._bundled()
        self._forgotten.clear()
        self._tenants.clear()
        self._whitelists.clear()
        self._touched.clear()
        return tuple(records)

    def _marked(self, number: int) -> list[Change]:
        """Return the new bitmap of a bundle, or its end."""
        bundle = self._bundles[number]
        key = _NUMBER.pack(number)
        count = len(bundle.packets)
        # LPRP-BUNDLE: when fewer than a quarter are left, these move into the next row.
        if bundle.left and (count < _MOVE_COUNT_MIN or bundle.left * _MOVE_BELOW > count):
            bundle.marked = True
            return [Record(_DONE, key, _bitmap(bundle.packets))]
        for queued in bundle.packets:
            if queued is not None:
                queued.bundle = None
                self._gathered.append(queued)
        del self._bundles[number]
        ends: list[Change] = [Record(_PACKETS, key, None)]
        if bundle.marked:
            ends.append(Record(_DONE, key, None))
        return ends

    def _bundled(self) -> list[Change]:
        """Return new bundles of accepted packets that are not done already."""
        waiting = [queued for queued in self._gathered if not queued.gone]
        self._gathered.clear()
        records: list[Change] = []
        for start in range(0, len(waiting), BUNDLE_PACKETS_MAX):
            packets: list[QueuedPacket | None] = [*waiting[start : start + BUNDLE_PACKETS_MAX]]
            number = self._next_bundle
            self._next_bundle += 1
            parts = [bytes((_VERSION,))]
            for index, queued in enumerate(waiting[start : start + BUNDLE_PACKETS_MAX]):
                queued.bundle, queued.index = number, index
                parts += (_ENTRY.pack(queued.from_unlisted, queued.accepted_ms, len(queued.data)), queued.data)
            self._bundles[number] = _Bundle(packets, marked=False)
            records.append(Record(_PACKETS, _NUMBER.pack(number), b"".join(parts)))
        return records

    # Reading back

    def load(self, tenants: Tenants) -> int:
        """Load the committed rows into ``tenants``; return how many packets wait.

        Raises:
            HostError: A row is not one of ours (exit code 5).
        """
        rows = [(key, self._tenant_row(key, value)) for key, value in self._rows(_TENANTS)]
        newest_ms = max((times[0] for _, times in rows), default=0)
        known: dict[bytes, Tenant] = {}
        for key, (lease_at_ms, last_ts, state_ts, whitelist_at_ms) in sorted(rows, key=lambda row: row[1][0]):
            tenant = known[key] = tenants.load(PublicKey(key), lease_at_ms)
            tenant.last_ts = tenant.kept_ts = last_ts
            tenant.state_ts, tenant.whitelist_at_ms = state_ts, whitelist_at_ms
        for key in self._lost(_TENANTS):
            known[key] = tenants.load(PublicKey(key), newest_ms)
            self._doubtful.append(known[key])
        for key, value in self._rows(_WHITELISTS):
            if key in known:
                known[key].whitelist = _whitelist(value)
        for key in self._lost(_WHITELISTS):
            if key in known:
                known[key].whitelist_at_ms = 0  # LPRP-DAMAGED: a list that is lost may be set anew without work
        self._skip_lost_bundles()
        packets = [each for key, value in self._rows(_PACKETS) for each in self._load_bundle(key, value, known)]
        packets.sort(key=lambda queued: queued.accepted_ms)  # a moved packet is in a newer bundle than its age
        for queued in packets:
            mailbox = known[queued.recipient].mailbox
            # A packet in two bundles would be delivered twice: the commit was not whole.
            if queued.signature in mailbox:
                raise _damaged(_PACKETS)
            mailbox.add(queued)
        return len(packets)

    def _load_bundle(self, key: bytes, value: bytes, known: dict[bytes, Tenant]) -> list[QueuedPacket]:
        """Return the packets left in a bundle; a move and the end of its bundle are one commit, so none is in two."""
        if len(key) != _NUMBER.size:
            raise _damaged(_PACKETS)
        (number,) = _NUMBER.unpack(key)
        bundled = list(_packets(value))
        bitmap = self._store.get(_DONE, key)
        is_lost = bitmap is None and any(row.key == key for row in self._store.damaged(_DONE))
        done = bytes(_bitmap_bytes(len(bundled))) if bitmap is None else bitmap
        if len(done) != _bitmap_bytes(len(bundled)):
            raise _damaged(_DONE)
        packets: list[QueuedPacket | None] = []
        for index, queued in enumerate(bundled):
            is_done = done[index // 8] >> index % 8 & 1
            queued.bundle, queued.index = number, index
            packets.append(queued if queued.recipient in known and not is_done else None)
        bundle = self._bundles[number] = _Bundle(packets, marked=bitmap is not None or is_lost)
        self._next_bundle = max(self._next_bundle, number + 1)
        if not bundle.left:
            self._touched.add(number)
        return [queued for queued in packets if queued is not None]

    def begin_damaged(self, tenants: Tenants, wall_ms: int) -> None:
        """Set the times of the tenants whose row was damaged, once the wall clock is known; later calls do nothing."""
        doubtful, self._doubtful = self._doubtful, []
        for tenant in doubtful:
            # LPRP-DAMAGED: its lease begins anew, and nothing from before the start is accepted for it.
            tenants.grant(tenant.key, wall_ms)
            tenant.last_ts = tenant.state_ts = wall_ms
            self.note_tenant(tenant)

    def _lost(self, table: str) -> list[bytes]:
        """Return the keys of damaged rows, as far as they are known and may be one's."""
        return [row.key for row in self._store.damaged(table) if row.key_is_good and len(row.key) == KEY_BYTES]

    def _skip_lost_bundles(self) -> None:
        """Never use the number of a damaged bundle again, nor one whose bitmap is left: it would mark other packets."""
        keys = [key for table in (_PACKETS, _DONE) for key, _ in self._rows(table)]
        keys += [row.key for table in (_PACKETS, _DONE) for row in self._store.damaged(table) if row.key_is_good]
        for key in keys:
            if len(key) == _NUMBER.size:
                self._next_bundle = max(self._next_bundle, _NUMBER.unpack(key)[0] + 1)

    def _tenant_row(self, key: bytes, value: bytes) -> tuple[int, int, int, int]:
        if len(value) != _TENANT.size or value[0] != _VERSION or len(key) != KEY_BYTES:
            raise _damaged(_TENANTS)
        _, lease_at_ms, last_ts, state_ts, whitelist_at_ms = _TENANT.unpack(value)
        return lease_at_ms, last_ts, state_ts, whitelist_at_ms

    def _rows(self, table: str) -> Iterator[tuple[bytes, bytes]]:
        start = b""
        while True:
            page = list(self._store.scan(table, start, _PAGE))
            yield from page
            if len(page) < _PAGE:
                return
            start = page[-1][0] + b"\x00"


def _damaged(table: str) -> HostError:
    return HostError(
        f"the store's table {table} is damaged, or was written by a newer waystation", exit_code=_STORE_EXIT_CODE
    )


def _whitelist(value: bytes) -> frozenset[PublicKey]:
    if not value or len(value) % KEY_BYTES:
        raise _damaged(_WHITELISTS)
    return frozenset(PublicKey(value[at : at + KEY_BYTES]) for at in range(0, len(value), KEY_BYTES))


def _packets(value: bytes) -> Iterator[QueuedPacket]:
    """Yield the packets of a bundle.

    Raises:
        HostError: It is not one of ours.
    """
    if len(value) < 1 + _ENTRY.size or value[0] != _VERSION:
        raise _damaged(_PACKETS)
    offset = 1
    while offset < len(value):
        if offset + _ENTRY.size > len(value):
            raise _damaged(_PACKETS)
        flags, accepted_ms, length = _ENTRY.unpack_from(value, offset)
        offset += _ENTRY.size
        data = value[offset : offset + length]
        if len(data) != length or not PACKET_BYTES_MIN <= length <= PACKET_BYTES_MAX:
            raise _damaged(_PACKETS)
        offset += length
        signature = data[:SIGNATURE_BYTES]
        yield QueuedPacket(
            data, signature, from_unlisted=bool(flags & _FROM_UNLISTED), accepted_ms=accepted_ms, attempt=0
        )


def _bitmap_bytes(count: int) -> int:
    return (count + 7) // 8


def _bitmap(packets: list[QueuedPacket | None]) -> bytes:
    bits = bytearray(_bitmap_bytes(len(packets)))
    for index, queued in enumerate(packets):
        if queued is None:
            bits[index // 8] |= 1 << index % 8
    return bytes(bits)
