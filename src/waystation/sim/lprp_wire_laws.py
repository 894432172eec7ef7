"""What must hold on the wires of every LPRP host: nothing unearned, nothing unasked, nothing for free.

Each law judges datagrams alone, in the order in which a host was handed them and handed them on; ``lprp_laws`` and
``lprp_mail_laws`` know more. Spec: specs/lprp.md 3 to 8, LPRP-D17, LPRP-D18, LPRP-D21.
"""

from collections import Counter
from typing import Any, Final

from waystation.core.effects import Address
from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.sim import lprp_observations as seen
from waystation.sim.invariants import Handler, Invariant
from waystation.sim.lprp_books import ZERO, Books
from waystation.sim.lprp_packets import ANSWERS, DEMANDS, WINDOW_MS, Seen, prefix_of, work_bits

__all__ = ["Answered", "Earned", "Mailed", "Worked"]

STALE_US: Final = (1 << 17) * MICROSECONDS_PER_MS
LIFE_MS: Final = 1 << 19
UNPROVED_TIMES: Final = 4
_PAID_FOR: Final = frozenset({0x202, 0x204, 0x208})
SURE_MS: Final = 3_000  # a lease that lasts so much longer lasts through everything that is under way

Handlers = dict[type[Any], Handler]


class _Account:
    """What one address has paid and got since it was last silent for long."""

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.proved_by: bytes | None = None
        self.heard_at = Instant(0)


class Earned(Invariant):
    """An address gets nothing before it spoke, at most 4 times its bytes until it is proved, and strangers once."""

    name = "earned"

    def __init__(self, books: Books) -> None:
        """Know from ``books`` who is no stranger."""
        self._books = books
        self._accounts: dict[tuple[int, Address], _Account] = {}
        self._prefixes: Counter[tuple[int, str]] = Counter()
        self._challenges: dict[bytes, set[Address]] = {}

    def handlers(self) -> Handlers:
        """Look at both directions; a restarted host has forgotten what was paid."""
        return {seen.HostBegan: self._on_began, seen.Heard: self._on_heard, seen.Said: self._on_said}

    def _on_began(self, began: seen.HostBegan, _now: Instant) -> None:
        self._accounts = {place: each for place, each in self._accounts.items() if place[0] != began.host}
        for place in [place for place in self._prefixes if place[0] == began.host]:
            del self._prefixes[place]

    def _on_heard(self, heard: seen.Heard, now: Instant) -> None:
        packet, place = heard.packet, (heard.host, heard.address)
        if packet is None:
            return
        account = self._accounts.get(place)
        if account is None or now - account.heard_at > STALE_US:
            account = self._accounts[place] = _Account()
        account.heard_at = now
        account.bytes_in += heard.size
        self._prefixes[heard.host, prefix_of(heard.address[0])] += heard.size
        # Only whoever reads what is sent to the address knows a challenge that was sent nowhere else.
        is_proof = packet.command == 0x101 and self._challenges.get(packet.reference) == {heard.address}
        if is_proof and heard.is_signed:
            account.proved_by = packet.sender

    def _on_said(self, said: seen.Said, now: Instant) -> None:
        account = self._accounts.get((said.host, said.address))
        if account is None:
            raise self.broken(f"host {said.host} sends {said.size} bytes to {said.address}, which never spoke to it")
        if now - account.heard_at > STALE_US + self._books.grace_us:
            raise self.broken(f"host {said.host} sends to {said.address}, silent for {now - account.heard_at} us")
        account.bytes_out += said.size
        packet = said.packet
        if packet is None:
            return
        # An address that one tenant has proved may be the one that another wants its mail to pile up at.
        is_mail = packet.command == 0x102
        is_proved = account.proved_by == packet.recipient if is_mail else account.proved_by is not None
        if not is_proved and account.bytes_out > UNPROVED_TIMES * account.bytes_in:
            raise self.broken(
                f"host {said.host} has sent {account.bytes_out} bytes to {said.address}, "
                f"which did not prove itself and sent {account.bytes_in}"
            )
        if said.is_signed and packet.command in DEMANDS:
            self._challenges.setdefault(packet.signature, set()).add(said.address)
        if not self._books.leases[said.host].may_be(packet.recipient):
            prefix = (said.host, prefix_of(said.address[0]))
            self._prefixes[prefix] -= said.size
            if self._prefixes[prefix] < 0:
                raise self.broken(
                    f"host {said.host} has sent strangers of {prefix[1]} more bytes than it got from there"
                )


class Answered(Invariant):
    """A host says only what it signed and was asked for, once per question, or mail as its sender signed it."""

    name = "answered"

    def __init__(self) -> None:
        self._open: Counter[tuple[int, Address, bytes]] = Counter()
        self._signers: dict[bytes, tuple[bytes, int]] = {}
        self._roots: dict[bytes, bytes] = {}
        self._mail: set[tuple[int, bytes]] = set()

    def handlers(self) -> Handlers:
        """Look at both directions; what was asked before a restart is asked again."""
        return {seen.HostBegan: self._on_began, seen.Heard: self._on_heard, seen.Said: self._on_said}

    def _on_began(self, began: seen.HostBegan, _now: Instant) -> None:
        for place in [place for place in self._open if place[0] == began.host]:
            del self._open[place]

    def _on_heard(self, heard: seen.Heard, _now: Instant) -> None:
        packet = heard.packet
        if packet is None or not heard.is_signed:
            return
        self._signers[packet.signature] = (packet.sender, packet.command)
        if packet.command == 0x102:
            self._mail.add((heard.host, packet.data))
        if packet.command == 0x101:  # it is answered in the name of what the work was demanded for
            self._roots[packet.signature] = self._roots.get(packet.reference, packet.signature)
        root = packet.sender if packet.command == 0x100 else self._roots.get(packet.signature, packet.signature)
        self._open[heard.host, heard.address, root] += 1

    def _on_said(self, said: seen.Said, _now: Instant) -> None:
        packet = said.packet
        if packet is not None and (said.host, packet.data) in self._mail:
            return
        if packet is None or not said.is_signed or packet.command not in ANSWERS:
            raise self.broken(f"host {said.host} sends {said.size} bytes that are neither its answer nor mail")
        root, wanted_bytes = packet.recipient, 144
        asker: tuple[bytes, int] | None = (packet.recipient, 0x100)
        if packet.command != 0x200:
            root, wanted_bytes = self._roots.get(packet.reference, packet.reference), 208
            asker = self._signers.get(packet.reference)
        if said.size != wanted_bytes:
            raise self.broken(f"host {said.host} answers {packet.command:x} in {said.size} bytes")
        if asker is None or asker[0] != packet.recipient or asker[1] not in ANSWERS[packet.command]:
            raise self.broken(f"host {said.host} says {packet.command:x} to somebody who did not ask for it")
        if packet.command in DEMANDS:
            self._roots[packet.signature] = packet.reference
        self._open[said.host, said.address, root] -= 1
        if self._open[said.host, said.address, root] < 0:
            raise self.broken(
                f"host {said.host} says {packet.command:x} to {said.address} more often than it was asked"
            )


class Mailed(Invariant):
    """Mail goes where the newest packet of its tenant came from, and what a host shows of a tenant says the same."""

    name = "mail-address"

    def __init__(self, books: Books) -> None:
        """Know the contacts from ``books``."""
        self._books = books

    def handlers(self) -> Handlers:
        """Look at mail, and at what hosts show."""
        return {seen.Said: self._on_said, seen.Measured: self._on_measured}

    def _on_said(self, said: seen.Said, now: Instant) -> None:
        packet = said.packet
        if packet is None or packet.command != 0x102:
            return
        contact = self._books.contact(said.host, packet.recipient)
        if not contact.allows(said.address, now, self._books.grace_us, STALE_US):
            raise self.broken(f"host {said.host} sends mail of {packet.recipient.hex()[:16]} to {said.address}")

    def _on_measured(self, measured: seen.Measured, now: Instant) -> None:
        for key, view in measured.views.items():
            places = self._books.contact(measured.host, key).places(now, self._books.grace_us)
            if view["address"] and view["address"] not in {f"{host}:{port}" for host, port in places}:
                raise self.broken(f"host {measured.host} has {key.hex()[:16]} at {view['address']}")


class Worked(Invariant):
    """Leases, packets of strangers and hasty updates are paid for, once each, and nobody pays who need not."""

    name = "worked"

    def __init__(self, books: Books, base_bits: int, *, exact: bool) -> None:
        """Judge hosts that demand ``base_bits``, or, when not ``exact``, at least so many."""
        self._books = books
        self._base_bits = base_bits
        self._exact = exact
        self._demands: dict[bytes, tuple[Seen, int]] = {}
        self._paid: set[tuple[int, bytes]] = set()
        self._works: dict[bytes, tuple[int, int]] = {}
        self._asked: dict[tuple[int, bytes], _Asked] = {}

    def handlers(self) -> Handlers:
        """Look at both directions."""
        return {seen.Heard: self._on_heard, seen.Said: self._on_said}

    def _on_heard(self, heard: seen.Heard, now: Instant) -> None:
        packet = heard.packet
        if packet is None or not heard.is_signed:
            return
        if packet.command == 0x101:
            self._on_work(heard, packet)
        elif packet.command in {0x102, 0x104, 0x108, 0x808}:
            asked = self._asked.setdefault((heard.host, packet.signature), _Asked(packet))
            if packet.command == 0x102:
                self._look(heard, asked, now)

    def _on_work(self, heard: seen.Heard, packet: Seen) -> None:
        demand, made_ms = self._demands.get(packet.reference, (None, 0))
        if demand is None or demand.sender != self._books.hosts[heard.host]:
            return
        bits, age_ms = work_bits(demand.data, packet.payload[64:]), heard.wall_ms - made_ms
        self._works[packet.signature] = (bits, age_ms)
        if demand.recipient == packet.sender and bits >= self._base_bits and age_ms <= LIFE_MS:
            self._paid.add((heard.host, demand.reference))
            if demand.command == 0x604:
                self._books.leases[heard.host].worked(packet.sender, packet.signature, heard.wall_ms)

    def _look(self, heard: seen.Heard, asked: "_Asked", now: Instant) -> None:
        """Note whether a sender is, or may be, on its recipient's whitelist at this instant."""
        packet, books = asked.packet, self._books
        lists = books.lists(heard.host, packet.recipient).recent(now, books.grace_us)
        is_own = packet.sender == packet.recipient
        asked.may_be_friend |= is_own or any(packet.sender in keys for keys in lists)
        is_tenant = books.leases[heard.host].is_sure(packet.recipient, heard.wall_ms, SURE_MS)
        is_friend = is_tenant and (is_own or all(packet.sender in keys for keys in lists))
        asked.must_be_friend = is_friend if asked.must_be_friend is None else asked.must_be_friend and is_friend

    def _on_said(self, said: seen.Said, now: Instant) -> None:
        packet = said.packet
        if packet is None or not said.is_signed:
            return
        asked = self._asked.get((said.host, packet.reference))
        if packet.command in DEMANDS:
            self._demands.setdefault(packet.signature, (packet, said.wall_ms))
            if asked is not None:
                self._on_demand(said, asked)
        elif packet.command == 0x401:
            self._on_refused_work(said, packet)
        elif packet.command in _PAID_FOR and asked is not None and not asked.answered:
            asked.answered = True
            if (said.host, packet.reference) not in self._paid:
                self._on_free(said, asked, now)

    def _on_demand(self, said: seen.Said, asked: "_Asked") -> None:
        if asked.packet.command == 0x102 and asked.must_be_friend and not asked.demanded:
            raise self.broken(f"host {said.host} demands work of a friend of {asked.packet.recipient.hex()[:16]}")
        asked.demanded = True

    def _on_refused_work(self, said: seen.Said, refusal: Seen) -> None:
        bits, age_ms = self._works.get(refusal.reference, (0, 0))
        if self._exact and bits >= self._base_bits and age_ms <= LIFE_MS and refusal.reference in self._works:
            raise self.broken(f"host {said.host} refuses work of {bits} bits after {age_ms} ms")

    def _on_free(self, said: seen.Said, asked: "_Asked", now: Instant) -> None:
        """Judge something for which nobody worked."""
        packet = asked.packet
        if packet.command == 0x104:
            raise self.broken(f"host {said.host} grants a lease without work")
        if packet.command == 0x108:
            self._on_free_update(said, packet)
        elif packet.command == 0x102 and not asked.may_be_friend:
            lists = self._books.lists(said.host, packet.recipient).recent(now, self._books.grace_us)
            if not any(packet.sender in keys for keys in lists):
                raise self.broken(f"host {said.host} takes a stranger's packet without work")

    def _on_free_update(self, said: seen.Said, packet: Seen) -> None:
        changed_ms = self._books.lists(said.host, packet.sender).changed_at_ms
        is_update = packet.command == 0x108 and packet.payload[32:] != ZERO
        # Since the change was made the answer has waited for the disk: what was soon may look late, never the reverse.
        if is_update and changed_ms is not None and 0 <= said.wall_ms - changed_ms <= WINDOW_MS - SURE_MS:
            raise self.broken(f"host {said.host} updates a list after {said.wall_ms - changed_ms} ms for free")


class _Asked:
    """A request and what could be said of it when it was heard."""

    def __init__(self, packet: Seen) -> None:
        self.packet = packet
        self.may_be_friend = False
        self.must_be_friend: bool | None = None
        self.demanded = False
        self.answered = False
