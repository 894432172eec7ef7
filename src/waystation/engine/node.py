"""The node as one machine over all protocols.

``open`` admits an address, ``connect`` gives the connection a number and a protocol, and from then on every input of
that number goes to its protocol's machine. A protocol of datagrams has no connections: ``receive_datagrams`` is its one
input, with banned addresses left out. ``take`` returns each protocol's effects in their order; facts have already gone
to the recorder by then and never leave this room.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol, cast, runtime_checkable

from waystation.core.effects import (
    Append,
    Close,
    Commit,
    Datagram,
    Dial,
    Effect,
    Hold,
    Peer,
    Send,
    SendMany,
    SendTo,
    Verify,
)
from waystation.core.facts import Fact, Refused
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.core.machine import DatagramMachine, Machine, Progress
from waystation.engine.admission import Admission, AdmissionRefusal, Handshakes, address_key
from waystation.engine.bans import BanList
from waystation.engine.policy import Policy
from waystation.engine.recorder import Recorder, Traffic

__all__ = [
    "KEYS_MAX",
    "DatagramRelay",
    "DialsOut",
    "HasDoors",
    "HearsHalf",
    "Node",
    "Relay",
    "SeesCertificates",
    "Service",
    "TakesMany",
]

KEYS_MAX: Final = 65_536  # hosts whose address key is remembered while there are bans; as many as LPRP knows sources
_FIRST_PEER: Final = 1
_FOR_THE_SERVER: Final = frozenset({Append, Commit, Dial, Hold, Verify})
"""Effects that pass through this room as they are."""


class Service(Progress, Protocol):
    """What the node asks of any relay besides its inputs."""

    def retire(self) -> None:
        """Take no new work; finish what is under way."""

    def settled(self) -> bool:
        """Return whether nothing is under way."""

    def shut(self, now: Instant) -> None:
        """Close every connection."""

    def expel(self, identity: PublicKey, now: Instant) -> None:
        """Close the connections of an identity."""

    def sizes(self) -> dict[str, int]:
        """Return how much of each bounded thing there is."""


class Relay(Service, Machine, Protocol):
    """A relay over connections."""


@runtime_checkable
class DatagramRelay(Service, DatagramMachine, Protocol):
    """A relay without connections."""


@runtime_checkable
class DialsOut(Protocol):
    """What the node asks of a relay that has upstreams besides."""

    def connect_upstream(self, peer: Peer, name: str, now: Instant) -> None:
        """A connection that we dialled stands; ``name`` is the one under which the relay knows the other side."""

    def upstream_failed(self, name: str, now: Instant) -> None:
        """The other side could not be reached."""


class SeesCertificates(Protocol):
    """What the node asks of a relay whose upstreams prove themselves by the certificate that they show."""

    def connect_upstream(self, peer: Peer, name: str, now: Instant, certificate: bytes) -> None:
        """As ``DialsOut``; ``certificate`` is the SHA-256 of the one that was seen."""


@runtime_checkable
class HearsHalf(Protocol):
    """What a relay may have besides: it goes on writing to who has ended only their own half of a connection."""

    def half_closed(self, peer: Peer, now: Instant) -> None:
        """The other side sends no more; the relay closes the connection when it has said all."""


@runtime_checkable
class HasDoors(Protocol):
    """What the node asks of a relay that is spoken to differently by whoever comes through another door."""

    def connect_by(self, peer: Peer, door: str, now: Instant, address: str = "") -> None:
        """A new connection stands that came through ``door``; else as ``Machine.connect``."""


@runtime_checkable
class TakesMany(Protocol):
    """What a relay may have besides: several messages cost it less together than one by one."""

    def receive_many(self, peer: Peer, messages: Sequence[bytes], now: Instant) -> None:
        """Several messages arrived at once; the effects are those of ``receive`` for each."""


class Link:
    """What the node keeps of one connection: its relay, what it is counted under, and its traffic."""

    __slots__ = ("address", "relay", "takes_many", "traffic")

    def __init__(self, relay: Relay, address: str | None) -> None:
        self.relay = relay
        self.takes_many = relay.receive_many if isinstance(relay, TakesMany) else None
        self.address = address
        """None for a connection that we dialled: admission does not count it."""
        self.traffic = Traffic()


class Node:
    """All relays of one node behind one set of inputs."""

    def __init__(
        self,
        relays: Mapping[str, Relay | DatagramRelay],
        admission: Admission,
        bans: BanList,
        recorder: Recorder,
        policy: Policy | None = None,
    ) -> None:
        """Put a node together.

        Args:
            relays: One relay per protocol name.
            admission: Counts connections of all protocols together.
            bans: Addresses that may not connect, and whose datagrams are not read.
            recorder: Gets every fact.
            policy: What was published about sources; None for nothing.
        """
        self._relays: dict[str, Service] = dict(relays)
        self._streams: dict[str, Relay] = {}
        self._datagrams: dict[str, DatagramRelay] = {}
        for protocol, relay in relays.items():
            if isinstance(relay, DatagramRelay):
                self._datagrams[protocol] = relay
            else:
                self._streams[protocol] = relay
        self._traffic = {protocol: Traffic() for protocol in self._datagrams}
        self._address_keys: dict[str, str] = {}
        self._wall_offset_us = 0
        """Wall clock minus monotonic clock when datagrams came last."""
        self._admission = admission
        self._handshakes = Handshakes(per_address=admission.per_address)
        self._bans = bans
        self._policy = policy if policy is not None else Policy()
        self._recorder = recorder
        self._links: dict[Peer, Link] = {}
        self._next_peer = _FIRST_PEER
        self._retiring = False

    # Inputs

    def open(self, protocol: str, host: str, wall_us: int, now: Instant) -> bool:
        """Count a connection of ``host`` in before anything is paid for it; False closes it at once.

        What was opened is either connected or released.
        """
        key = address_key(host)
        refusal: AdmissionRefusal | None
        if self._retiring:
            refusal = AdmissionRefusal.RETIRING
        elif self._bans.refuses(f"address:{key}", wall_us):
            refusal = AdmissionRefusal.ADDRESS_BANNED
        elif not self._policy.is_active or (refusal := self._policy.refuses(host, now)) is None:
            refusal = self._handshakes.begin(key)
            if refusal is None and (refusal := self._admission.admit(key)) is not None:
                self._handshakes.end(key)
        if refusal is not None:
            self._recorder.refused_at_door(protocol, refusal, now, key)
        return refusal is None

    def release(self, host: str) -> None:
        """An opened connection ended before it was connected."""
        key = address_key(host)
        self._handshakes.end(key)
        self._admission.release(key)

    def connect(self, protocol: str, host: str, now: Instant, door: str = "") -> Peer:
        """An opened connection stands; return its number.

        Args:
            protocol: One of ours.
            host: As in ``open``.
            now: Monotonic time.
            door: Which of the relay's doors it came through, "" for the one that every relay has.
        """
        address = address_key(host)
        self._handshakes.end(address)
        peer, link = self._link(protocol, address, now)
        if door:
            assert isinstance(link.relay, HasDoors)
            link.relay.connect_by(peer, door, now, address)
        else:
            link.relay.connect(peer, now, address)
        return peer

    def connect_out(self, protocol: str, name: str, now: Instant, certificate: bytes | None = None) -> Peer:
        """A connection that we dialled stands; return its number.

        Args:
            protocol: One whose relay has upstreams.
            name: What the relay calls the other side.
            now: Monotonic time.
            certificate: SHA-256 of the one that the other side has shown, for a relay that ``SeesCertificates``.
        """
        peer, link = self._link(protocol, None, now)
        assert isinstance(link.relay, DialsOut)
        if certificate is None:
            link.relay.connect_upstream(peer, name, now)
        else:
            cast("SeesCertificates", link.relay).connect_upstream(peer, name, now, certificate)
        return peer

    def dial_failed(self, protocol: str, name: str, now: Instant) -> None:
        """What a ``Dial`` of this protocol asked for could not be reached."""
        relay = self._streams[protocol]
        assert isinstance(relay, DialsOut)
        relay.upstream_failed(name, now)

    def receive(self, peer: Peer, data: bytes, now: Instant) -> None:
        """Bytes arrived."""
        link = self._links.get(peer)
        if link is not None:
            link.traffic.bytes_in += len(data)
            link.relay.receive(peer, data, now)

    def receive_many(self, peer: Peer, messages: Sequence[bytes], now: Instant) -> None:
        """Several messages arrived at once."""
        link = self._links.get(peer)
        if link is None:
            return
        link.traffic.bytes_in += sum(map(len, messages))
        if link.takes_many is not None:
            link.takes_many(peer, messages, now)
            return
        for message in messages:
            link.relay.receive(peer, message, now)

    def receive_datagrams(self, protocol: str, datagrams: Sequence[Datagram], wall_us: int, now: Instant) -> None:
        """Datagrams arrived; those of banned addresses are counted and go no further.

        Args:
            protocol: One whose relay has no connections.
            datagrams: In the order in which they came.
            wall_us: Wall clock, microseconds UTC.
            now: Monotonic time.
        """
        self._wall_offset_us = wall_us - now
        self._traffic[protocol].bytes_in += sum([len(data) for data, _ in datagrams])
        if self._bans.addresses:
            welcome = [datagram for datagram in datagrams if not self._is_banned(datagram[1][0], wall_us)]
            if times := len(datagrams) - len(welcome):
                reason = AdmissionRefusal.ADDRESS_BANNED.value
                self._recorder.note(Refused(protocol, None, reason, times), now)
            datagrams = welcome
        if self._policy.is_active:
            datagrams = self._within_policy(protocol, datagrams, now)
        if datagrams:
            self._datagrams[protocol].receive_datagrams(datagrams, now)

    def disconnect(self, peer: Peer, now: Instant) -> None:
        """The connection ended; unknown numbers (closed by the relay before) are fine."""
        link = self._links.get(peer)
        if link is not None:
            link.relay.disconnect(peer, now)
            self._drop(peer, link)

    def half_closed(self, peer: Peer, now: Instant) -> bool:
        """The other side sends no more; return whether its relay goes on writing, else the connection is over."""
        link = self._links.get(peer)
        if link is None or not isinstance(link.relay, HearsHalf):
            return False
        link.relay.half_closed(peer, now)
        return True

    def congested(self, peer: Peer, now: Instant) -> None:
        """Bytes wait for this peer, or fewer wait than at the last call."""
        link = self._links.get(peer)
        if link is not None:
            link.relay.congested(peer, now)

    def drained(self, peer: Peer, now: Instant) -> None:
        """No byte waits for this peer."""
        link = self._links.get(peer)
        if link is not None:
            link.relay.drained(peer, now)

    def committed(self, protocol: str, ticket: int, now: Instant) -> None:
        """The changes of a ``Commit`` of this protocol are on disk."""
        self._relays[protocol].committed(ticket, now)

    def verified(self, protocol: str, ticket: int, answers: Sequence[int], now: Instant) -> None:
        """Here are the answers to a ``Verify`` of this protocol."""
        self._relays[protocol].verified(ticket, answers, now)

    def wake(self, now: Instant) -> None:
        """A deadline has come."""
        for relay in self._relays.values():
            relay.wake(now)
        self._recorder.wake(now)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due."""
        earliest = self._recorder.deadline()
        for relay in self._relays.values():
            at = relay.deadline()
            if at is not None and (earliest is None or at < earliest):
                earliest = at
        return earliest

    def take(self, now: Instant) -> Iterator[tuple[str, list[Effect]]]:
        """Yield, for each protocol that has any, its effects in order; facts go to the recorder instead."""
        for protocol, relay in self._relays.items():
            effects = relay.take()
            if not effects:
                continue
            traffic = self._traffic.get(protocol)
            if traffic is None:
                yield protocol, self._without_facts(effects, now)
            else:
                yield protocol, self._datagrams_without_facts(traffic, effects, now)

    # Commands

    def retire(self) -> None:
        """Admit nobody and take no new work."""
        self._retiring = True
        for relay in self._relays.values():
            relay.retire()

    def settled(self) -> bool:
        """Return whether no relay has anything under way."""
        return all(relay.settled() for relay in self._relays.values())

    def shut(self, now: Instant) -> None:
        """Close every connection."""
        for relay in self._relays.values():
            relay.shut(now)

    def expel(self, identity: PublicKey, now: Instant) -> None:
        """Close the connections of an identity in every protocol."""
        for relay in self._relays.values():
            relay.expel(identity, now)

    def sizes(self) -> dict[str, dict[str, int]]:
        """Return how much of each bounded thing there is, by protocol."""
        sizes = {protocol: relay.sizes() for protocol, relay in self._relays.items()}
        sizes["node"] = {
            "connections": self._admission.total,
            "handshakes": self._handshakes.total,
            "bans": len(self._bans),
        }
        return sizes

    def traffic(self) -> dict[str, dict[str, int]]:
        """Return the bytes "in" and "out" of each protocol without connections since the start.

        Those of connections stand in the journal, each under its connection.
        """
        return {name: {"in": traffic.bytes_in, "out": traffic.bytes_out} for name, traffic in self._traffic.items()}

    def _within_policy(self, protocol: str, datagrams: Sequence[Datagram], now: Instant) -> list[Datagram]:
        """Return those that published rules leave; the others are counted."""
        kept: list[Datagram] = []
        refused: dict[AdmissionRefusal, int] = {}
        for datagram in datagrams:
            refusal = self._policy.refuses(datagram[1][0], now, connects=False)
            if refusal is None:
                kept.append(datagram)
            else:
                refused[refusal] = refused.get(refusal, 0) + 1
        for refusal, times in refused.items():
            self._recorder.note(Refused(protocol, None, refusal.value, times), now)
        return kept

    def _is_banned(self, host: str, wall_us: int) -> bool:
        key = self._address_keys.get(host)
        if key is None:
            if len(self._address_keys) >= KEYS_MAX:
                self._address_keys.clear()
            key = self._address_keys[host] = address_key(host)
        return self._bans.refuses(f"address:{key}", wall_us)

    def _datagrams_without_facts(self, traffic: Traffic, effects: list[Effect], now: Instant) -> list[Effect]:
        kept: list[Effect] = []
        wall_us = now + self._wall_offset_us if self._bans.addresses else None
        for effect in effects:
            if type(effect) is SendTo:
                if wall_us is not None and self._is_banned(effect.address[0], wall_us):
                    continue
                traffic.bytes_out += len(effect.data)
                kept.append(effect)
            elif type(effect) in _FOR_THE_SERVER:
                kept.append(effect)
            else:
                self._recorder.note(cast("Fact", effect), now)
        return kept

    def _without_facts(self, effects: list[Effect], now: Instant) -> list[Effect]:
        kept: list[Effect] = []
        links = self._links
        last, link = None, None  # pages of history are hundreds of Sends to one peer
        for effect in effects:
            if type(effect) is Send:
                peer, data, _ = effect
                if peer != last:
                    last, link = peer, links.get(peer)
                if link is not None:
                    link.traffic.bytes_out += len(data)
                kept.append(effect)
            elif type(effect) is SendMany:
                last, link = effect.peer, links.get(effect.peer)
                if link is not None:
                    link.traffic.bytes_out += sum(map(len, effect.messages))
                kept.append(effect)
            elif type(effect) is Close:
                last, link = None, links.get(effect.peer)
                if link is not None:
                    self._drop(effect.peer, link)
                kept.append(effect)
            elif type(effect) in _FOR_THE_SERVER:
                kept.append(effect)
            else:
                self._recorder.note(cast("Fact", effect), now)
        return kept

    def _link(self, protocol: str, address: str | None, now: Instant) -> tuple[Peer, Link]:
        peer = Peer(self._next_peer)
        self._next_peer += 1
        link = self._links[peer] = Link(self._streams[protocol], address)
        self._recorder.connected(protocol, peer, link.traffic, now)
        return peer, link

    def _drop(self, peer: Peer, link: Link) -> None:
        del self._links[peer]
        if link.address is not None:
            self._admission.release(link.address)
