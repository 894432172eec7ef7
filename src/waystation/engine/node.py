"""The node as one state machine over all protocols.

``server.hub`` and the simulator drive it. ``open`` admits an address. ``connect`` assigns the connection a number and a
protocol. Every later input with that number is routed to the protocol's machine. Datagram protocols have no
connections: ``receive_datagrams`` is their only input, and datagrams of refused addresses are dropped. ``take`` returns
each protocol's effects in order. Facts are removed from the effects first and passed to the recorder.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, cast

from waystation.core.effects import (
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
from waystation.core.facts import Fact, PeerIdentified, Refused
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.engine.access import Access
from waystation.engine.admission import Admission, AdmissionLimits, AdmissionRefusal, Handshakes, address_key
from waystation.engine.bans import BanList
from waystation.engine.connections import Connection, Traffic
from waystation.engine.guarded import Guarded, OnFailure
from waystation.engine.policy import Policy
from waystation.engine.recorder import Recorder
from waystation.engine.relays import (
    DatagramRelay,
    DialsOut,
    HasEndpoints,
    Relay,
    SeesCertificates,
    Service,
    TakesHalfClose,
    TakesMany,
)

__all__ = [
    "DatagramRelay",
    "DialsOut",
    "HasEndpoints",
    "Node",
    "Relay",
    "SeesCertificates",
    "Service",
    "TakesHalfClose",
    "TakesMany",
]

_FIRST_PEER: Final = 1
_STATUS_REFUSED: Final = 1008  # RFC 6455 7.4.1: the policy of the server, where the transport has a status
_FOR_THE_SERVER: Final = frozenset({Commit, Dial, Hold, Verify})
"""Effects that pass through this room as they are."""


class Link:
    """What the node keeps of one connection: its relay, what it is counted under, and its traffic."""

    __slots__ = ("address", "is_exempt", "protocol", "relay", "takes_many", "traffic")

    def __init__(self, protocol: str, relay: Relay, address: str | None) -> None:
        self.protocol = protocol
        self.relay = relay
        self.takes_many = relay.receive_many if isinstance(relay, TakesMany) else None
        self.address = address
        """None for a connection that we dialled: admission does not count it."""
        self.is_exempt = False
        """Whether admission counts it in the total alone."""
        self.traffic = Traffic()


class Node:
    """All relays of one node, with one set of inputs."""

    def __init__(
        self,
        relays: Mapping[str, Relay | DatagramRelay],
        admission: Admission,
        bans: BanList,
        recorder: Recorder,
        policy: Policy | None = None,
        access: Access | None = None,
    ) -> None:
        """Put a node together.

        Args:
            relays: One relay per protocol name.
            admission: Counts connections of all protocols together.
            bans: The operator's list.
            recorder: Gets every fact.
            policy: What was published about sources; None for nothing.
            access: Refuses addresses; None for ``bans`` alone.
        """
        self._relays: dict[str, Service] = dict(relays)
        self._guarded = Guarded(self._relays)
        self._streams: dict[str, Relay] = {}
        self._datagrams: dict[str, DatagramRelay] = {}
        for protocol, relay in relays.items():
            if isinstance(relay, DatagramRelay):
                self._datagrams[protocol] = relay
            else:
                self._streams[protocol] = relay
        self._traffic = {protocol: Traffic() for protocol in self._datagrams}
        self._wall_offset_us = 0
        """Wall clock minus monotonic clock when somebody or something came last."""
        self._admission = admission
        self._handshakes = Handshakes(admission.limits, per_address=admission.per_address)
        self._displaced: list[str] = []
        self._bans = bans
        self._access = access if access is not None else Access(bans)
        self._ended: dict[str, list[Effect]] = {}
        """By protocol: the ends of connections whose address is refused now."""
        self._policy = policy if policy is not None else Policy()
        self._recorder = recorder
        self._links: dict[Peer, Link] = {}
        self._next_peer = _FIRST_PEER
        self._retiring = False

    def report_failures(self, on_failure: OnFailure) -> None:
        """Report what a relay raises in ``take``, ``wake`` or ``deadline``; without this it goes on to the caller."""
        self._guarded.on_failure = on_failure

    # Inputs

    def open(self, protocol: str, host: str, wall_us: int, now: Instant, *, has_handshake: bool = True) -> bool:
        """Count a connection of ``host`` in before anything is paid for it; False closes it at once.

        What was opened is either connected or released. ``displaced`` says whose handshake lost its place for it.

        Args:
            protocol: One of ours.
            host: The client's address, "" for none.
            wall_us: Wall clock, microseconds UTC.
            now: Monotonic time.
            has_handshake: Whether the connection is established only after a handshake, such as that of TLS.
        """
        key = address_key(host)
        self._wall_offset_us = wall_us - now
        refusal: AdmissionRefusal | None
        if self._retiring:
            refusal = AdmissionRefusal.RETIRING
        elif (refusal := self._access.refuses_address(host, wall_us)) is not None:
            pass
        elif not self._policy.is_active or (refusal := self._policy.refuses(host, now)) is None:
            refusal = self._admission.admit(key)
            if refusal is None and has_handshake and (refusal := self._begin_handshake(protocol, key, now)) is not None:
                self._admission.release(key)
        if refusal is not None:
            self._recorder.refused_by_admission(protocol, refusal, now, key)
        return refusal is None

    def displaced(self) -> list[str]:
        """Return, once, the keys of addresses whose oldest handshake lost its place; each of them is to be released."""
        displaced, self._displaced = self._displaced, []
        return displaced

    def use_limits(self, limits: AdmissionLimits) -> None:
        """Hold connections to these limits from now on; those that stand stay."""
        self._admission.limits.now = limits

    def release(self, host: str, *, has_handshake: bool = True) -> None:
        """An opened connection ended before it was connected."""
        key = address_key(host)
        if has_handshake:
            self._handshakes.end(key)
        self._admission.release(key)

    def connect(
        self, protocol: str, host: str, now: Instant, endpoint: str = "", *, has_handshake: bool = True
    ) -> Peer:
        """An opened connection is established; return its number.

        Args:
            protocol: One of ours.
            host: As in ``open``.
            now: Monotonic time.
            endpoint: The relay's listener that it came through, "" for the one that every relay has.
            has_handshake: As in ``open``.
        """
        address = address_key(host)
        if has_handshake:
            self._handshakes.end(address, established=True)
        peer, link = self._link(protocol, address, now, endpoint=endpoint)
        if endpoint:
            assert isinstance(link.relay, HasEndpoints)
            link.relay.connect_by(peer, endpoint, now, address)
        else:
            link.relay.connect(peer, now, address)
        if self._access.judges_addresses:  # the operator may have said no during the handshake
            self._end_refused(peer, link, now)
        return peer

    def connect_out(self, protocol: str, name: str, now: Instant, certificate: bytes | None = None) -> Peer:
        """A connection that the node dialled is established; return its number.

        Args:
            protocol: One whose relay has upstreams.
            name: What the relay calls the other side.
            now: Monotonic time.
            certificate: SHA-256 of the one that the other side has shown, for a relay that ``SeesCertificates``.
        """
        peer, link = self._link(protocol, None, now, dialled=name)
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
        if self._access.judges_addresses:
            datagrams = self._within(protocol, datagrams, now, lambda host: self._access.refuses_address(host, wall_us))
        if self._policy.is_active:
            datagrams = self._within(
                protocol, datagrams, now, lambda host: self._policy.refuses(host, now, connects=False)
            )
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
        if link is None or not isinstance(link.relay, TakesHalfClose):
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

    def not_committed(self, protocol: str, ticket: int, now: Instant) -> None:
        """The store did not take the changes of a ``Commit`` of this protocol."""
        self._relays[protocol].not_committed(ticket, now)

    def verified(self, protocol: str, ticket: int, answers: Sequence[int], now: Instant) -> None:
        """Here are the answers to a ``Verify`` of this protocol."""
        self._relays[protocol].verified(ticket, answers, now)

    def wake(self, now: Instant) -> None:
        """A deadline has come."""
        self._guarded.wake(now)
        self._recorder.wake(now)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due."""
        ours, theirs = self._recorder.deadline(), self._guarded.deadline()
        return theirs if ours is None else ours if theirs is None else min(ours, theirs)

    def take(self, now: Instant) -> Iterator[tuple[str, list[Effect]]]:
        """Yield, for each protocol that has any, its effects in order; facts go to the recorder instead."""
        for protocol, effects in self._guarded.take(now):
            traffic = self._traffic.get(protocol)
            if traffic is None:
                yield protocol, self._without_facts(effects, now)
            else:
                yield protocol, self._datagrams_without_facts(traffic, effects, now)
        ended, self._ended = self._ended, {}
        yield from ended.items()  # the relays have forgotten these connections, and sent what they had to say

    # Commands

    def retire(self) -> None:
        """Admit no connection and take no new work."""
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

    def review(self, wall_us: int, now: Instant) -> None:
        """End the connections of every identity and address that is refused now: a ban came, or other lists."""
        self._wall_offset_us = wall_us - now
        for relay in self._relays.values():
            relay.review(now)
        if self._access.judges_addresses:
            for peer, link in list(self._links.items()):
                self._end_refused(peer, link, now)

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

        Those of connections are in the journal, each under its connection.
        """
        return {name: {"in": traffic.bytes_in, "out": traffic.bytes_out} for name, traffic in self._traffic.items()}

    def _within(
        self,
        protocol: str,
        datagrams: Sequence[Datagram],
        now: Instant,
        refuses: Callable[[str], AdmissionRefusal | None],
    ) -> list[Datagram]:
        """Return those whose host is not refused; the others are counted."""
        kept: list[Datagram] = []
        refused: dict[AdmissionRefusal, int] = {}
        for datagram in datagrams:
            refusal = refuses(datagram[1][0])
            if refusal is None:
                kept.append(datagram)
            else:
                refused[refusal] = refused.get(refusal, 0) + 1
        for refusal, times in refused.items():
            self._recorder.note(Refused(protocol, None, refusal.value, times), now)
        return kept

    def _begin_handshake(self, protocol: str, key: str, now: Instant) -> AdmissionRefusal | None:
        refusal, displaced = self._handshakes.begin(key)
        if displaced is not None:
            self._displaced.append(displaced)
            self._recorder.refused_by_admission(protocol, AdmissionRefusal.HANDSHAKE_DISPLACED, now, displaced)
        return refusal

    def _datagrams_without_facts(self, traffic: Traffic, effects: list[Effect], now: Instant) -> list[Effect]:
        kept: list[Effect] = []
        access = self._access
        wall_us = now + self._wall_offset_us if access.judges_addresses else None
        for effect in effects:
            if type(effect) is SendTo:
                if wall_us is not None and access.refuses_address(effect.address[0], wall_us) is not None:
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
                self._note(cast("Fact", effect), now)
        return kept

    def _note(self, fact: Fact, now: Instant) -> None:
        """Record a fact, and count a connection whose identity no ceiling binds in the total alone (NODE-ACCESS)."""
        if isinstance(fact, PeerIdentified) and self._access.is_unlimited(fact.identity):
            link = self._links.get(Peer(fact.peer))
            if link is not None and link.address is not None and not link.is_exempt:
                link.is_exempt = True
                self._admission.exempt(link.address)
        self._recorder.note(fact, now)

    def _link(
        self, protocol: str, address: str | None, now: Instant, *, endpoint: str = "", dialled: str = ""
    ) -> tuple[Peer, Link]:
        peer = Peer(self._next_peer)
        self._next_peer += 1
        link = self._links[peer] = Link(protocol, self._streams[protocol], address)
        connection = Connection(protocol, peer, link.traffic, now, address or "")
        connection.endpoint, connection.dialled = endpoint, dialled
        self._recorder.connected(connection)
        return peer, link

    def _end_refused(self, peer: Peer, link: Link, now: Instant) -> None:
        """Close a connection whose address may not have it; one that we dialled stays."""
        if link.address is None:
            return
        refusal = self._access.refuses_address(link.address, now + self._wall_offset_us)
        if refusal is None:
            return
        self._recorder.refused_by_admission(link.protocol, refusal, now, link.address)
        link.relay.disconnect(peer, now)
        self._ended.setdefault(link.protocol, []).append(Close(peer, refusal, status=_STATUS_REFUSED))
        self._drop(peer, link)

    def _drop(self, peer: Peer, link: Link) -> None:
        del self._links[peer]
        if link.address is not None:
            self._admission.release(link.address, is_exempt=link.is_exempt)
