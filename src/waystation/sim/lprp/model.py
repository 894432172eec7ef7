"""A model of what an LPRP host must know (leases, contacts, whitelists), made from its datagrams and the spec.

The invariants compare the host's answers with it. A host works asynchronously: it receives, verifies, commits, and
answers. The model therefore tracks what is certain and what is possible. After a delay given by the settings, a host
has either processed a datagram or dropped it. The model never inspects the host. Spec: specs/lprp.md 4; LPRP-D11,
LPRP-D13, LPRP-D14 and LPRP-C.
"""

from collections.abc import Sequence
from typing import Final

from waystation.core.effects import Address
from waystation.core.instant import Instant
from waystation.sim.lprp.packets import Seen, set_hash
from waystation.sim.observations import DiskLost

__all__ = ["ZERO", "Contact", "Leases", "Lists", "Model", "is_lost", "tenants_of", "toggled"]

KEYS_MAX: Final = 256
ZERO: Final = bytes(32)
_STATES_MAX: Final = 64
_OF_TENANTS: Final = ("lprp_tenants", "lprp_whitelists")
_CHANGES: Final = frozenset({0x104, 0x108, 0x808})
RELAY: Final = 0x102


def toggled(keys: frozenset[bytes], payload: bytes) -> frozenset[bytes]:
    """Return a set after the keys of a 108 changed sides, one after the other."""
    result = set(keys)
    for at in range(32, len(payload), 32):
        result ^= {payload[at : at + 32]}
    return frozenset(result)


class Leases:
    """Who has a lease at one host, as its answers say; all times are the host's own clock."""

    def __init__(self, lease_ms: int) -> None:
        """Begin with nobody."""
        self.lease_ms = lease_ms
        self._granted: dict[bytes, int] = {}
        self._worked: dict[bytes, int] = {}
        self._answered: set[bytes] = set()
        self._open: set[bytes] = set()
        """Whose work has no answer yet."""
        self._slack: dict[bytes, int] = {}
        self._ended: set[bytes] = set()
        """Whose lease was over by the host's clock, wherever that clock was set since."""

    def stepped(self, step_ms: int) -> None:
        """The host's clock was set: what is granted at this very moment may begin at either time."""
        for key in self._open:
            self._slack[key] = self._slack.get(key, 0) + abs(step_ms)

    def passed(self, wall_ms: int) -> None:
        """The host's clock has stood here."""
        self._ended |= {key for key, since in self._granted.items() if wall_ms - since > self.lease_ms}

    def worked(self, key: bytes, signature: bytes, wall_ms: int) -> None:
        """The host received a 101 of ``key`` for a lease: it may have one now; the same 101 again changes nothing."""
        if signature not in self._answered:
            self._answered.add(signature)
            self._worked[key] = wall_ms
            self._open.add(key)
            self._slack.pop(key, None)

    def granted(self, key: bytes, reference: bytes, wall_ms: int) -> bool:
        """The host sent 204; return whether that is new."""
        if reference in self._answered:
            return False
        self._answered.add(reference)
        # The clock may have been set while the answer waited for the disk.
        self._granted[key] = self._worked.get(key, wall_ms)
        self._open.discard(key)
        self._ended.discard(key)
        return True

    def is_sure(self, key: bytes, wall_ms: int, margin_ms: int) -> bool:
        """Return whether ``key`` has a lease that lasts for so much longer, whatever is under way."""
        since = self._granted.get(key)
        return since is not None and key not in self._ended and 0 <= wall_ms - since <= self.lease_ms - margin_ms

    def may_be(self, key: bytes) -> bool:
        """Return whether ``key`` may have, or have had, a lease."""
        return key in self._granted or key in self._worked

    def granted_keys(self) -> list[bytes]:
        """Return everybody who was ever granted a lease."""
        return list(self._granted)

    def forget(self, key: bytes) -> None:
        """The host's disk has lost what it was granted: it may have a lease, and nobody can say until when."""
        self._granted.pop(key, None)
        self._slack.pop(key, None)
        self._open.discard(key)
        self._ended.discard(key)

    def bounds(self, key: bytes, wall_ms: int) -> tuple[int, int]:
        """Return how many milliseconds the lease of one of ``granted_keys`` lasts on, at least and at most."""
        starts = [self._granted[key]]
        if key in self._open:
            starts.append(self._worked[key])
        left = [max(0, self.lease_ms - (wall_ms - start)) for start in starts]
        slack = self._slack.get(key, 0)
        return 0 if key in self._ended else max(0, min(left) - slack), max(left) + slack


class Contact:
    """Where one tenant may be reached, by the rule that only a newer packet moves it (LPRP-D13)."""

    def __init__(self) -> None:
        """Begin with a tenant that nobody received from."""
        self.sure_ms = 0
        """Highest packet time that surely was noted."""
        self._kept_ms = 0
        """The same, over any restart."""
        self._places: dict[Address, tuple[int, Instant]] = {}
        """Addresses of packets that are not older than the newest sure one: its time, and when it was last received."""
        self._past: dict[Address, Instant] = {}
        """Addresses that count no more, and since when."""
        self._asked: dict[Address, list[int]] = {}
        self._worked: dict[Address, int] = {}
        self._known: set[bytes] = set()
        self._changed_ms = 0

    def received(self, packet: Seen, address: Address, now: Instant, *, is_tenant: bool) -> None:
        """The host received a signed packet of this tenant, addressed to itself if it is no 102."""
        if packet.time_ms <= self.sure_ms:
            return
        if packet.command == RELAY:  # it only says that the tenant is still where it was
            if address in self._places:
                self._places[address] = (self._places[address][0], now)
            return
        if packet.command == 0x101:
            self._worked[address] = packet.time_ms
        if packet.command == 0x100:
            self._asked.setdefault(address, []).append(packet.time_ms)
        newest_ms, _ = self._places.get(address, (0, now))
        self._places[address] = (max(newest_ms, packet.time_ms), now)
        # The same packet again may get the answer that it got, and then notes nothing (LPRP-D10); so does a change that
        # is not newer than the last (LPRP-D14).
        is_new = packet.signature not in self._known
        if packet.command in _CHANGES:
            is_new &= packet.time_ms > self._changed_ms
            self._changed_ms = max(self._changed_ms, packet.time_ms)
        if is_tenant and is_new:
            self._be_sure(packet.time_ms, now)
        self._known.add(packet.signature)

    def granted(self, address: Address, now: Instant) -> None:
        """The host sent 204 to an address: what asked for it was noted."""
        if self._worked.get(address, 0) > self.sure_ms:
            self._be_sure(self._worked[address], now)
            for place in [place for place, (time_ms, _) in self._places.items() if time_ms == self.sure_ms]:
                if place != address:  # of one time the first place wins
                    del self._places[place]

    def _be_sure(self, time_ms: int, now: Instant) -> None:
        """Forget where packets older than ``time_ms`` came from."""
        self.sure_ms = max(self.sure_ms, time_ms)
        for place in [place for place, (other_ms, _) in self._places.items() if other_ms < self.sure_ms]:
            self._past[place] = now
            del self._places[place]

    def answered(self, address: Address) -> None:
        """The host sent 200: one more time is on its disk."""
        times = self._asked.get(address)
        if times:
            self._kept_ms = max(self._kept_ms, times.pop(0))

    def restarted(self) -> None:
        """The host keeps what it answered, and no address."""
        self.sure_ms = self._kept_ms
        self._places.clear()
        self._past.clear()
        self._asked.clear()
        self._worked.clear()
        self._known.clear()

    def forget(self) -> None:
        """The host's disk has lost the highest packet time."""
        self._kept_ms = 0

    def allows(self, address: Address, now: Instant, grace_us: int, stale_us: int) -> bool:
        """Return whether mail may go to an address now."""
        place = self._places.get(address)
        if place is not None:
            return now - place[1] <= stale_us + grace_us
        past = self._past.get(address)
        return past is not None and now - past <= grace_us

    def places(self, now: Instant, grace_us: int) -> set[Address]:
        """Return every address that a host may have on file now."""
        return {*self._places, *(place for place, since in self._past.items() if now - since <= grace_us)}


class Lists:
    """What one tenant's whitelist may be at a host."""

    def __init__(self) -> None:
        """Begin with the empty list."""
        self._states: set[frozenset[bytes]] = {frozenset()}
        self._pending: dict[bytes, Seen] = {}
        self._requests: dict[bytes, Seen] = {}
        self._answered: set[bytes] = set()
        self._past: list[tuple[Instant, frozenset[frozenset[bytes]]]] = []
        self.changed_at_ms: int | None = None
        """Host's clock at the last 208 that changed something."""
        self._newest_ms = 0
        self._received_ms = 0
        self.is_unknown = False
        """Whether the host's disk has lost it once: nothing can be said of it any more."""

    def forget(self) -> None:
        """The host's disk has lost the list, or its times."""
        self.is_unknown = True

    def received(self, packet: Seen) -> None:
        """The host received a signed 104, 108 or 808 of the tenant; all three share one time (LPRP-D14)."""
        is_comparison = packet.command == 0x108 and packet.payload[32:] == ZERO
        if not is_comparison:
            self._received_ms = max(self._received_ms, packet.time_ms)
        if packet.command != 0x104:
            self._requests[packet.signature] = packet
        is_late = packet.time_ms <= self._newest_ms and not is_comparison
        if packet.command != 0x104 and not is_late and packet.signature not in self._answered:
            self._pending.setdefault(packet.signature, packet)

    def states(self) -> set[frozenset[bytes]]:
        """Return every list that the host may have now: each pending change was applied or was not, in any order."""
        found, fresh = set(self._states), set(self._states)
        while fresh and len(found) < _STATES_MAX:
            after = {next_ for keys in fresh for packet in self._pending.values() for next_ in _apply(keys, packet)}
            fresh = after - found
            found |= fresh
        return found

    def recent(self, now: Instant, grace_us: int) -> set[frozenset[bytes]]:
        """Return every list that the host may have, or had a moment ago."""
        self._past = [(at, states) for at, states in self._past if now - at <= grace_us]
        return self.states().union(*(states for _, states in self._past))

    def request(self, signature: bytes) -> Seen | None:
        """Return a 108 or 808 that was received, however long ago."""
        return self._requests.get(signature)

    def is_answered(self, signature: bytes) -> bool:
        """Return whether a request has had its 208 or 408 before."""
        return signature in self._answered

    def done(self, packet: Seen, now: Instant, wall_ms: int) -> bool:
        """The host sent 208; return whether that can be true."""
        if self.is_unknown:
            return True
        before = self.states()
        self._answered.add(packet.signature)
        self._pending.pop(packet.signature, None)
        if packet.command == 0x108 and packet.payload[32:] == ZERO:
            after = {keys for keys in before if set_hash(keys) == packet.payload[:32]}
        else:
            if packet.time_ms <= self._newest_ms:
                return False
            after = {next_ for keys in before for next_ in _apply(keys, packet)}
            self.changed_at_ms = wall_ms
            self._newest_ms = max(self._newest_ms, packet.time_ms)
            self._pending = {
                signature: other
                for signature, other in self._pending.items()
                if other.time_ms > packet.time_ms or other.payload[32:] == ZERO
            }
        if not after:
            return False
        self._past.append((now, frozenset(before)))
        self._states = after
        return True

    def differs(self, packet: Seen) -> bool:
        """The host sent 408; return whether that can be true."""
        if self.is_unknown:
            return True
        self._answered.add(packet.signature)
        self._pending.pop(packet.signature, None)
        is_overtaken = packet.time_ms < self._received_ms
        has_zero = any(packet.payload[at : at + 32] == ZERO for at in range(32, len(packet.payload), 32))
        if packet.payload[32:] == ZERO:
            return any(set_hash(keys) != packet.payload[:32] for keys in self.states())
        return is_overtaken or has_zero or any(not _apply(keys, packet) for keys in self.states())


class Model:
    """Leases, contacts and whitelists of every host."""

    def __init__(self, hosts: Sequence[bytes], lease_ms: int, grace_us: int) -> None:
        """Begin with nobody.

        Args:
            hosts: Keys of the hosts, in their order.
            lease_ms: How long leases last.
            grace_us: How long a host may take to act on what it received, in microseconds.
        """
        self.hosts = list(hosts)
        self.grace_us = grace_us
        self.leases = [Leases(lease_ms) for _ in hosts]
        self._contacts: dict[tuple[int, bytes], Contact] = {}
        self._lists: dict[tuple[int, bytes], Lists] = {}

    def contact(self, host: int, key: bytes) -> Contact:
        """Return what is known of where a tenant is."""
        return self._contacts.setdefault((host, key), Contact())

    def contacts(self, host: int) -> list[Contact]:
        """Return all contacts of one host."""
        return [contact for place, contact in self._contacts.items() if place[0] == host]

    def lists(self, host: int, key: bytes) -> Lists:
        """Return what is known of a tenant's whitelist."""
        return self._lists.setdefault((host, key), Lists())


def tenants_of(lost: DiskLost) -> list[bytes]:
    """Return the tenants of whom a host has lost a row."""
    return sorted({row.key for row in lost.lost if row.table in _OF_TENANTS})


def is_lost(signature: bytes, lost: DiskLost) -> bool:
    """Return whether a packet stood in a row that was lost, or that says of such a row what is done with."""
    return any(signature in value for value in lost.values)


def _apply(keys: frozenset[bytes], packet: Seen) -> set[frozenset[bytes]]:
    """Return the list after a change that applies, or nothing."""
    if packet.command == 0x808:
        return {frozenset()}
    after = toggled(keys, packet.payload)
    wrong = ZERO in after or len(after) > KEYS_MAX or set_hash(after) != packet.payload[:32]
    return set() if wrong else {after}
