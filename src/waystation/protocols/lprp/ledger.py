"""What survives a restart: leases, whitelists, accepted packets, last times.

Changes gather here until the relay commits them; then everything of one tenant is one row, and all packets that were
accepted since the last commit are one row too, a bundle, because a row costs twenty times what its bytes do
(LPRP-BUNDLE). Which packets of a bundle are done stands in a bitmap of its own; when all are, both rows go, and when
few are left these move on into the next bundle, so that one slow tenant does not keep the mail of others on the disk.

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
from waystation.protocols.lprp.mailbox import Letter
from waystation.protocols.lprp.messages import PACKET_BYTES_MAX, PACKET_BYTES_MIN, SIGNATURE_BYTES
from waystation.protocols.lprp.tenants import Tenant, Tenants

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
_FROM_STRANGER: Final = 1
_NUMBER: Final = struct.Struct(">Q")


class _Bundle:
    """Packets that were committed together."""

    __slots__ = ("left", "letters", "marked")

    def __init__(self, letters: list[Letter | None], *, marked: bool) -> None:
        self.letters = letters
        """None for those that are done."""
        self.left = sum(letter is not None for letter in letters)
        self.marked = marked
        """Whether a bitmap stands on disk."""


class Ledger:
    """Gathers changes, and reads back what earlier lives committed.

    Cost: O(1) per call; ``changes`` O(what changed).
    """

    def __init__(self, store: Store) -> None:
        """Start with nothing changed; ``load`` first."""
        self._store = store
        self._tenants: dict[PublicKey, Tenant] = {}
        self._whitelists: dict[PublicKey, Tenant] = {}
        self._forgotten: list[PublicKey] = []
        self._gathered: list[Letter] = []
        self._bundles: dict[int, _Bundle] = {}
        self._touched: set[int] = set()
        self._next_bundle = 1

    @property
    def is_dirty(self) -> bool:
        """Whether anything waits for a commit."""
        return bool(self._tenants or self._whitelists or self._forgotten or self._gathered or self._touched)

    @property
    def bundles_count(self) -> int:
        """How many bundles stand on disk."""
        return len(self._bundles)

    # Changes

    def note_tenant(self, tenant: Tenant) -> None:
        """The tenant's times changed."""
        self._tenants[tenant.key] = tenant

    def note_whitelist(self, tenant: Tenant) -> None:
        """The tenant's whitelist changed, and with it its times."""
        self._whitelists[tenant.key] = tenant
        self._tenants[tenant.key] = tenant

    def note_letter(self, letter: Letter) -> None:
        """A packet was accepted."""
        self._gathered.append(letter)

    def note_gone(self, letter: Letter) -> None:
        """A packet was delivered, or its tenant forgotten."""
        letter.gone = True
        if letter.bundle is None:
            return
        bundle = self._bundles[letter.bundle]
        bundle.letters[letter.index] = None
        bundle.left -= 1
        self._touched.add(letter.bundle)

    def forget(self, tenant: Tenant) -> None:
        """The tenant's lease and all that was kept after it are over; its letters are noted as gone beside this."""
        self._tenants.pop(tenant.key, None)
        self._whitelists.pop(tenant.key, None)
        self._forgotten.append(tenant.key)

    def changes(self) -> tuple[Change, ...]:
        """Return what is to be committed in one group, and forget it."""
        records: list[Change] = []
        for key in self._forgotten:
            records += (Record(_TENANTS, key, None), Record(_WHITELISTS, key, None))
        for key, tenant in self._tenants.items():
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
        count = len(bundle.letters)
        if bundle.left and (count < _MOVE_COUNT_MIN or bundle.left * _MOVE_BELOW > count):
            bundle.marked = True
            return [Record(_DONE, key, _bitmap(bundle.letters))]
        for letter in bundle.letters:
            if letter is not None:
                letter.bundle = None
                self._gathered.append(letter)
        del self._bundles[number]
        ends: list[Change] = [Record(_PACKETS, key, None)]
        if bundle.marked:
            ends.append(Record(_DONE, key, None))
        return ends

    def _bundled(self) -> list[Change]:
        """Return new bundles of what was accepted and is not done already."""
        waiting = [letter for letter in self._gathered if not letter.gone]
        self._gathered.clear()
        records: list[Change] = []
        for start in range(0, len(waiting), BUNDLE_PACKETS_MAX):
            letters: list[Letter | None] = [*waiting[start : start + BUNDLE_PACKETS_MAX]]
            number = self._next_bundle
            self._next_bundle += 1
            parts = [bytes((_VERSION,))]
            for index, letter in enumerate(waiting[start : start + BUNDLE_PACKETS_MAX]):
                letter.bundle, letter.index = number, index
                parts += (_ENTRY.pack(letter.from_stranger, letter.accepted_ms, len(letter.data)), letter.data)
            self._bundles[number] = _Bundle(letters, marked=False)
            records.append(Record(_PACKETS, _NUMBER.pack(number), b"".join(parts)))
        return records

    # Reading back

    def load(self, tenants: Tenants) -> int:
        """Give ``tenants`` what earlier lives committed; return how many packets wait.

        Raises:
            HostError: A row is not one of ours (exit code 5).
        """
        rows = [(key, self._tenant_row(key, value)) for key, value in self._rows(_TENANTS)]
        known: dict[bytes, Tenant] = {}
        for key, (lease_at_ms, last_ts, state_ts, whitelist_at_ms) in sorted(rows, key=lambda row: row[1][0]):
            tenant = known[key] = tenants.load(PublicKey(key), lease_at_ms)
            tenant.last_ts = tenant.kept_ts = last_ts
            tenant.state_ts, tenant.whitelist_at_ms = state_ts, whitelist_at_ms
        for key, value in self._rows(_WHITELISTS):
            if key in known:
                known[key].whitelist = _whitelist(value)
        letters = [each for key, value in self._rows(_PACKETS) for each in self._load_bundle(key, value, known)]
        letters.sort(key=lambda letter: letter.accepted_ms)  # what moved on stands in a newer bundle than its age
        for letter in letters:
            mailbox = known[letter.recipient].mailbox
            if letter.signature in mailbox:
                raise _damaged(_PACKETS)
            mailbox.add(letter)
        return len(letters)

    def _load_bundle(self, key: bytes, value: bytes, known: dict[bytes, Tenant]) -> list[Letter]:
        """Return what is left of a bundle; a move and the end of its bundle are one commit, so none is in two."""
        if len(key) != _NUMBER.size:
            raise _damaged(_PACKETS)
        (number,) = _NUMBER.unpack(key)
        bundled = list(_letters(value))
        bitmap = self._store.get(_DONE, key)
        done = bytes(_bitmap_bytes(len(bundled))) if bitmap is None else bitmap
        if len(done) != _bitmap_bytes(len(bundled)):
            raise _damaged(_DONE)
        letters: list[Letter | None] = []
        for index, letter in enumerate(bundled):
            is_done = done[index // 8] >> index % 8 & 1
            letter.bundle, letter.index = number, index
            letters.append(letter if letter.recipient in known and not is_done else None)
        bundle = self._bundles[number] = _Bundle(letters, marked=bitmap is not None)
        self._next_bundle = max(self._next_bundle, number + 1)
        if not bundle.left:
            self._touched.add(number)
        return [letter for letter in letters if letter is not None]

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


def _letters(value: bytes) -> Iterator[Letter]:
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
        yield Letter(data, signature, from_stranger=bool(flags & _FROM_STRANGER), accepted_ms=accepted_ms, attempt=0)


def _bitmap_bytes(count: int) -> int:
    return (count + 7) // 8


def _bitmap(letters: list[Letter | None]) -> bytes:
    bits = bytearray(_bitmap_bytes(len(letters)))
    for index, letter in enumerate(letters):
        if letter is None:
            bits[index // 8] |= 1 << index % 8
    return bytes(bits)
