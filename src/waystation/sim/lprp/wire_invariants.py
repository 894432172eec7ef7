"""Invariants of the datagrams of an LPRP host: amplification limits, solicited answers, mail addresses, proof of work.

``LprpScenario`` has each observation passed to them. Checkers use only datagrams, in the order in which the host
received and sent them. ``invariants`` and ``mail_invariants`` also use other observations. Spec: specs/lprp.md 3 to 8,
LPRP-D17, LPRP-D18, LPRP-D21.
"""

from collections import Counter
from typing import Final

from waystation.core.effects import Address
from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.sim.invariants import Invariant
from waystation.sim.lprp import observations as seen
from waystation.sim.lprp.invariants import ModelInvariant, SignedInvariant
from waystation.sim.lprp.model import ZERO, Model
from waystation.sim.lprp.packets import ANSWERS, DEMANDS, WINDOW_MS, Seen, prefix_of, work_bits

__all__ = ["Answered", "Earned", "Mailed", "Worked"]

STALE_US: Final = (1 << 17) * MICROSECONDS_PER_MS
LIFE_MS: Final = 1 << 19
UNPROVED_TIMES: Final = 4
_PAID_FOR: Final = frozenset({0x202, 0x204, 0x208})
SURE_MS: Final = 3_000  # a lease that lasts so much longer lasts through everything that is under way


class _Account:
    """What one address has paid and got since it was last silent for long."""

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.proved_by: bytes | None = None
        self.received_at = Instant(0)


class Earned(Invariant):
    """An address gets nothing before it sent, at most 4 times its bytes until it is proved; an unknown sender, once."""

    name = "earned"

    def __init__(self, model: Model) -> None:
        """Know from ``model`` who is known."""
        self._model = model
        self._accounts: dict[tuple[int, Address], _Account] = {}
        self._prefixes: Counter[tuple[int, str]] = Counter()
        self._challenges: dict[bytes, set[Address]] = {}

    def _on_began(self, began: seen.HostStarted, _now: Instant) -> None:
        self._accounts = {place: each for place, each in self._accounts.items() if place[0] != began.host}
        for place in [place for place in self._prefixes if place[0] == began.host]:
            del self._prefixes[place]

    def _on_received(self, received: seen.Received, now: Instant) -> None:
        packet, place = received.packet, (received.host, received.address)
        if packet is None:
            return
        account = self._accounts.get(place)
        if account is None or now - account.received_at > STALE_US:
            account = self._accounts[place] = _Account()
        account.received_at = now
        account.bytes_in += received.size
        self._prefixes[received.host, prefix_of(received.address[0])] += received.size
        # Only whoever reads what is sent to the address knows a challenge that was sent nowhere else.
        is_proof = packet.command == 0x101 and self._challenges.get(packet.reference) == {received.address}
        if is_proof and received.is_signed:
            account.proved_by = packet.sender

    def _on_sent(self, sent: seen.Sent, now: Instant) -> None:
        account = self._accounts.get((sent.host, sent.address))
        if account is None:
            raise self.broken(f"host {sent.host} sends {sent.size} bytes to {sent.address}, which never spoke to it")
        if now - account.received_at > STALE_US + self._model.grace_us:
            raise self.broken(f"host {sent.host} sends to {sent.address}, silent for {now - account.received_at} us")
        account.bytes_out += sent.size
        packet = sent.packet
        if packet is None:
            return
        # An address that one tenant has proved may be the one that another wants its mail to pile up at.
        is_mail = packet.command == 0x102
        is_proved = account.proved_by == packet.recipient if is_mail else account.proved_by is not None
        if not is_proved and account.bytes_out > UNPROVED_TIMES * account.bytes_in:
            raise self.broken(
                f"host {sent.host} has sent {account.bytes_out} bytes to {sent.address}, "
                f"which did not prove itself and sent {account.bytes_in}"
            )
        if sent.is_signed and packet.command in DEMANDS:
            self._challenges.setdefault(packet.signature, set()).add(sent.address)
        if not self._model.leases[sent.host].may_be(packet.recipient):
            prefix = (sent.host, prefix_of(sent.address[0]))
            self._prefixes[prefix] -= sent.size
            if self._prefixes[prefix] < 0:
                raise self.broken(
                    f"host {sent.host} has sent unknown senders of {prefix[1]} more bytes than it got from there"
                )


class Answered(SignedInvariant):
    """A host says only what it signed and was asked for, once per question, or mail as its sender signed it."""

    name = "answered"

    def __init__(self) -> None:
        self._open: Counter[tuple[int, Address, bytes]] = Counter()
        self._signers: dict[bytes, tuple[bytes, int]] = {}
        self._roots: dict[bytes, bytes] = {}
        self._mail: set[tuple[int, bytes]] = set()

    def _on_began(self, began: seen.HostStarted, _now: Instant) -> None:
        for place in [place for place in self._open if place[0] == began.host]:
            del self._open[place]

    def _look_in(self, received: seen.Received, packet: Seen, _now: Instant) -> None:
        self._signers[packet.signature] = (packet.sender, packet.command)
        if packet.command == 0x102:
            self._mail.add((received.host, packet.data))
        if packet.command == 0x101:  # it is answered in the name of what the work was demanded for
            self._roots[packet.signature] = self._roots.get(packet.reference, packet.signature)
        root = packet.sender if packet.command == 0x100 else self._roots.get(packet.signature, packet.signature)
        self._open[received.host, received.address, root] += 1

    def _on_sent(self, sent: seen.Sent, _now: Instant) -> None:
        packet = sent.packet
        if packet is not None and (sent.host, packet.data) in self._mail:
            return
        if packet is None or not sent.is_signed or packet.command not in ANSWERS:
            raise self.broken(f"host {sent.host} sends {sent.size} bytes that are neither its answer nor mail")
        root, wanted_bytes = packet.recipient, 144
        asker: tuple[bytes, int] | None = (packet.recipient, 0x100)
        if packet.command != 0x200:
            root, wanted_bytes = self._roots.get(packet.reference, packet.reference), 208
            asker = self._signers.get(packet.reference)
        if sent.size != wanted_bytes:
            raise self.broken(f"host {sent.host} answers {packet.command:x} in {sent.size} bytes")
        if asker is None or asker[0] != packet.recipient or asker[1] not in ANSWERS[packet.command]:
            raise self.broken(f"host {sent.host} says {packet.command:x} to somebody who did not ask for it")
        if packet.command in DEMANDS:
            self._roots[packet.signature] = packet.reference
        self._open[sent.host, sent.address, root] -= 1
        if self._open[sent.host, sent.address, root] < 0:
            raise self.broken(
                f"host {sent.host} says {packet.command:x} to {sent.address} more often than it was asked"
            )


class Mailed(ModelInvariant):
    """Mail goes where the newest packet of its tenant came from, and what a host shows of a tenant says the same."""

    name = "mail-address"

    def _on_sent(self, sent: seen.Sent, now: Instant) -> None:
        packet = sent.packet
        if packet is None or packet.command != 0x102:
            return
        contact = self._model.contact(sent.host, packet.recipient)
        if not contact.allows(sent.address, now, self._model.grace_us, STALE_US):
            raise self.broken(f"host {sent.host} sends mail of {packet.recipient.hex()[:16]} to {sent.address}")

    def _on_measured(self, measured: seen.Measured, now: Instant) -> None:
        for key, view in measured.views.items():
            places = self._model.contact(measured.host, key).places(now, self._model.grace_us)
            if view["address"] and view["address"] not in {f"{host}:{port}" for host, port in places}:
                raise self.broken(f"host {measured.host} has {key.hex()[:16]} at {view['address']}")


class Worked(ModelInvariant):
    """Leases, packets of unknown senders and hasty updates are paid for, once each, and nobody pays who need not."""

    name = "worked"

    def __init__(self, model: Model, base_bits: int, *, exact: bool) -> None:
        """Judge hosts that demand ``base_bits``, or, when not ``exact``, at least so many."""
        super().__init__(model)
        self._base_bits = base_bits
        self._exact = exact
        self._demands: dict[bytes, tuple[Seen, int]] = {}
        self._paid: set[tuple[int, bytes]] = set()
        self._works: dict[bytes, tuple[int, int]] = {}
        self._asked: dict[tuple[int, bytes], _Asked] = {}

    def _look_in(self, received: seen.Received, packet: Seen, now: Instant) -> None:
        if packet.command == 0x101:
            self._on_work(received, packet)
        elif packet.command in {0x102, 0x104, 0x108, 0x808}:
            asked = self._asked.setdefault((received.host, packet.signature), _Asked(packet))
            if packet.command == 0x102:
                self._look(received, asked, now)

    def _on_work(self, received: seen.Received, packet: Seen) -> None:
        demand, made_ms = self._demands.get(packet.reference, (None, 0))
        if demand is None or demand.sender != self._model.hosts[received.host]:
            return
        bits, age_ms = work_bits(demand.data, packet.payload[64:]), received.wall_ms - made_ms
        self._works[packet.signature] = (bits, age_ms)
        if demand.recipient == packet.sender and bits >= self._base_bits and age_ms <= LIFE_MS:
            self._paid.add((received.host, demand.reference))
            if demand.command == 0x604:
                self._model.leases[received.host].worked(packet.sender, packet.signature, received.wall_ms)

    def _look(self, received: seen.Received, asked: "_Asked", now: Instant) -> None:
        """Note whether a sender is, or may be, on its recipient's whitelist at this instant."""
        packet, model = asked.packet, self._model
        if model.lists(received.host, packet.recipient).is_unknown:
            asked.may_be_friend, asked.must_be_friend = True, False
            return
        lists = model.lists(received.host, packet.recipient).recent(now, model.grace_us)
        is_own = packet.sender == packet.recipient
        asked.may_be_friend |= is_own or any(packet.sender in keys for keys in lists)
        is_tenant = model.leases[received.host].is_sure(packet.recipient, received.wall_ms, SURE_MS)
        is_friend = is_tenant and (is_own or all(packet.sender in keys for keys in lists))
        asked.must_be_friend = is_friend if asked.must_be_friend is None else asked.must_be_friend and is_friend

    def _look_out(self, sent: seen.Sent, packet: Seen, now: Instant) -> None:
        asked = self._asked.get((sent.host, packet.reference))
        if packet.command in DEMANDS:
            self._demands.setdefault(packet.signature, (packet, sent.wall_ms))
            if asked is not None:
                self._on_demand(sent, asked)
        elif packet.command == 0x401:
            self._on_refused_work(sent, packet)
        elif packet.command in _PAID_FOR and asked is not None and not asked.answered:
            asked.answered = True
            if (sent.host, packet.reference) not in self._paid:
                self._on_free(sent, asked, now)

    def _on_demand(self, sent: seen.Sent, asked: "_Asked") -> None:
        is_unknown = self._model.lists(sent.host, asked.packet.recipient).is_unknown
        if asked.packet.command == 0x102 and asked.must_be_friend and not asked.demanded and not is_unknown:
            raise self.broken(f"host {sent.host} demands work of a friend of {asked.packet.recipient.hex()[:16]}")
        asked.demanded = True

    def _on_refused_work(self, sent: seen.Sent, refusal: Seen) -> None:
        bits, age_ms = self._works.get(refusal.reference, (0, 0))
        if self._exact and bits >= self._base_bits and age_ms <= LIFE_MS and refusal.reference in self._works:
            raise self.broken(f"host {sent.host} refuses work of {bits} bits after {age_ms} ms")

    def _on_free(self, sent: seen.Sent, asked: "_Asked", now: Instant) -> None:
        """Judge something for which nobody worked."""
        packet = asked.packet
        if packet.command == 0x104:
            raise self.broken(f"host {sent.host} grants a lease without work")
        if packet.command == 0x108:
            self._on_free_update(sent, packet)
        elif packet.command == 0x102 and not asked.may_be_friend:
            known = self._model.lists(sent.host, packet.recipient)
            lists = known.recent(now, self._model.grace_us)
            if not known.is_unknown and not any(packet.sender in keys for keys in lists):
                raise self.broken(f"host {sent.host} takes the packet of an unknown sender without work")

    def _on_free_update(self, sent: seen.Sent, packet: Seen) -> None:
        lists = self._model.lists(sent.host, packet.sender)
        changed_ms = None if lists.is_unknown else lists.changed_at_ms
        is_update = packet.command == 0x108 and packet.payload[32:] != ZERO
        # Since the change was made the answer has waited for the disk: what was soon may look late, never the reverse.
        if is_update and changed_ms is not None and 0 <= sent.wall_ms - changed_ms <= WINDOW_MS - SURE_MS:
            raise self.broken(f"host {sent.host} updates a list after {sent.wall_ms - changed_ms} ms for free")


class _Asked:
    """A request and what could be sent of it when it was received."""

    def __init__(self, packet: Seen) -> None:
        self.packet = packet
        self.may_be_friend = False
        self.must_be_friend: bool | None = None
        self.demanded = False
        self.answered = False
