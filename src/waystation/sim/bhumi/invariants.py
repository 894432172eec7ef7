"""Invariants of Bhumi requests, answers, privacy and memory, and the list of all invariants of a Bhumi scenario.

Each is a class that gets every observation of a run and raises when its rule is broken. ``relay_invariants`` has those
of frames and dials, ``record_invariants`` those of presence and advert records.
"""

from collections import Counter, deque
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.crypto.hashing import REFERENCE_BYTES
from waystation.journal import events
from waystation.protocols.bhumi.messages import Status
from waystation.sim import invariants as shared
from waystation.sim.bhumi import observations as seen
from waystation.sim.bhumi.record_invariants import Fresh, Newest, NoEcho, OnlySigned, OwnWord
from waystation.sim.bhumi.relay_invariants import GuardedDials, Negotiated, Prompt
from waystation.sim.invariants import Invariant
from waystation.sim.observations import Sized

__all__ = [
    "AnswersSurvive",
    "AsksOnce",
    "Bounded",
    "CommitFirst",
    "DeliveredOnce",
    "Faithful",
    "Liveness",
    "OneResult",
    "SenderHidden",
    "bhumi_invariants",
]

ANSWER_MARGIN_US: Final = 1_000_000  # a SEND may wait this long between the node's socket and the relay
NODE_CONNECTIONS_MAX: Final = 10_000
PRESENCES_MAX: Final = 100_000
ADVERTS_MAX: Final = 1_024
LINKS_MAX: Final = 8
GOSSIP_PEERS_IN_MAX: Final = 64
COMMITS_MAX: Final = 4_096
RECIPIENTS_MAX: Final = 4_096
GOSSIP_HOSTS_MAX: Final = 256
ROUND_RECORDS_MAX: Final = 20_000
OWN_ADDRESSES_MAX: Final = 64
PENDING_MAX: Final = 32
LATE_ACKS_MAX: Final = 65_536
CACHED_MAX: Final = 65_536
CACHED_BYTES_MAX: Final = 64 * 1_048_576
PROBED_MAX: Final = 16_384
"""Devices that a relay remembers to have asked for a probe, so as not to ask them again too soon."""
RIGHT_SHARE_MIN: Final = 0.95
DUE_MIN: Final = 40
"""Fewer look-ups than this prove nothing about a share."""


class DeliveredOnce(Invariant):
    """A preimage reaches its device at most as often, in one life of the node, as the device offered its commit.

    Devices offer a preimage once, and again only on a new connection, or with a second I_AM, as long as they have
    not seen it; so for nearly all preimages this means: once.
    """

    name = "delivered-once"

    def __init__(self) -> None:
        self._offered: Counter[tuple[bytes, bytes]] = Counter()
        self._delivered: Counter[tuple[bytes, bytes]] = Counter()

    def _on_life(self, _observation: seen.LifeBegan, _now: Instant) -> None:
        # What a device offered before the node came back may still reach it: offers stay, deliveries start anew.
        self._delivered.clear()

    def _on_offered(self, observation: seen.Offered, _now: Instant) -> None:
        self._offered.update((observation.recipient, preimage) for preimage in observation.preimages)

    def _on_delivered(self, observation: seen.Delivered, _now: Instant) -> None:
        if observation.preimage is None:
            return
        key = (observation.recipient, observation.preimage)
        self._delivered[key] += 1
        if self._delivered[key] > self._offered[key]:
            raise self.broken(
                f"preimage {key[1].hex()[:16]} delivered {self._delivered[key]} times, "
                f"offered {self._offered[key]} times"
            )


class CommitFirst(Invariant):
    """Nothing is delivered on a connection on which its commit was not offered."""

    name = "commit-first"

    def __init__(self) -> None:
        self._offered: dict[bytes, set[int]] = {}

    def _on_offered(self, observation: seen.Offered, _now: Instant) -> None:
        for preimage in observation.preimages:
            self._offered.setdefault(preimage, set()).add(observation.connection)

    def _on_delivered(self, observation: seen.Delivered, _now: Instant) -> None:
        if observation.preimage is None:
            raise self.broken(
                f"connection {observation.connection} got a request whose preimage its device never issued"
            )
        if observation.connection not in self._offered.get(observation.preimage, ()):
            raise self.broken(
                f"connection {observation.connection} got preimage {observation.preimage.hex()[:16]}, "
                "whose commit was not offered on it"
            )


class Faithful(Invariant):
    """What a device gets is, byte for byte, what a sender asked it with this preimage."""

    name = "faithful"

    def __init__(self) -> None:
        self._asked: dict[tuple[bytes, bytes], list[bytes]] = {}

    def _on_asked(self, observation: seen.Asked, _now: Instant) -> None:
        payloads = self._asked.setdefault((observation.recipient, observation.preimage), [])
        if observation.payload not in payloads:
            payloads.append(observation.payload)

    def _on_delivered(self, observation: seen.Delivered, _now: Instant) -> None:
        if observation.preimage is None:
            return
        if observation.payload not in self._asked.get((observation.recipient, observation.preimage), ()):
            raise self.broken(f"connection {observation.connection} got a payload that no sender sent to it")


class OneResult(Invariant):
    """Every SEND on a connection that lives gets exactly one result, in order, and its own."""

    name = "one-result"

    def __init__(self) -> None:
        self._waiting: dict[int, deque[int]] = {}
        self._taken: dict[int, int] = {}

    def _on_asked(self, observation: seen.Asked, _now: Instant) -> None:
        self._waiting.setdefault(observation.connection, deque()).append(observation.token)

    def _on_arrived(self, observation: seen.AskArrived, _now: Instant) -> None:
        if observation.taken and observation.connection in self._waiting:
            self._taken[observation.connection] = observation.token

    def _on_concluded(self, observation: seen.Concluded, _now: Instant) -> None:
        waiting = self._waiting.get(observation.connection)
        if not waiting or waiting[0] != observation.token:
            raise self.broken(f"connection {observation.connection} got a result for {observation.token} out of order")
        waiting.popleft()
        if observation.status == Status.OK and observation.answer != observation.expected:
            raise self.broken(f"connection {observation.connection}, request {observation.token}: another one's answer")
        if observation.status != Status.OK and observation.answer:
            raise self.broken(
                f"connection {observation.connection}, request {observation.token}: a failure with answer"
            )

    def _on_ended(self, observation: seen.ConnectionEnded, _now: Instant) -> None:
        waiting = self._waiting.pop(observation.connection, deque())
        taken = self._taken.pop(observation.connection, 0)
        if observation.reason == "self" or observation.faulted:
            return
        if observation.reason != "peer":
            raise self.broken(f"connection {observation.connection} ended by its sender: {observation.reason}")
        if waiting and waiting[0] <= taken:
            raise self.broken(f"connection {observation.connection} closed by the node instead of a result")


class AnswersSurvive(Invariant):
    """An answer that a relay has read reaches the first SEND that asks this relay for it, as long as it is kept.

    Only the first: once its result has left the relay the answer is evicted, whether or not it arrives.
    """

    name = "answers-survive"

    def __init__(self, response_ttl_ms: int) -> None:
        """Judge a relay that keeps answers for ``response_ttl_ms``."""
        self._ttl_us = response_ttl_ms * MICROSECONDS_PER_MS - ANSWER_MARGIN_US
        self._nodes: dict[int, int] = {}
        """The relay of each sender's connection."""
        self._answered: dict[tuple[int, bytes, bytes], Instant | None] = {}
        self._asked: dict[tuple[int, int], tuple[int, bytes, bytes]] = {}
        self._must_succeed: set[tuple[int, int]] = set()

    def _on_began(self, began: seen.RelayBegan, _now: Instant) -> None:
        node = began.node
        self._answered = {key: at for key, at in self._answered.items() if key[0] != node}
        self._asked = {place: key for place, key in self._asked.items() if key[0] != node}
        self._must_succeed = {place for place in self._must_succeed if self._nodes[place[0]] != node}

    def _on_connected(self, observation: seen.Connected, _now: Instant) -> None:
        self._nodes[observation.connection] = observation.node

    def _on_answer(self, observation: seen.AnswerArrived, now: Instant) -> None:
        # A second answer to the same preimage does not replace the first; None marks one that was asked for.
        self._answered.setdefault((observation.node, observation.recipient, observation.preimage), now)

    def _on_asked(self, observation: seen.Asked, _now: Instant) -> None:
        key = (self._nodes[observation.connection], observation.recipient, observation.preimage)
        self._asked[observation.connection, observation.token] = key

    def _on_arrived(self, observation: seen.AskArrived, now: Instant) -> None:
        place = (observation.connection, observation.token)
        key = self._asked.pop(place, None)
        answered_at = self._answered.get(key) if key is not None else None
        if key is None or answered_at is None:
            return
        self._answered[key] = None
        if now - answered_at < self._ttl_us:
            self._must_succeed.add(place)

    def _on_concluded(self, observation: seen.Concluded, _now: Instant) -> None:
        place = (observation.connection, observation.token)
        if place in self._must_succeed:
            self._must_succeed.discard(place)
            if observation.status != Status.OK:
                raise self.broken(
                    f"connection {place[0]}, request {place[1]}: status {observation.status}, was answered"
                )


class AsksOnce(Invariant):
    """A device's application is asked once per preimage, however often and wherever the request arrives."""

    name = "asks-once"

    def __init__(self) -> None:
        self._handled: set[tuple[bytes, bytes]] = set()

    def _on_handled(self, handled: seen.Handled, _now: Instant) -> None:
        if handled in self._handled:
            raise self.broken(f"{handled.identity.hex()[:16]} is asked again about {handled.preimage.hex()[:16]}")
        self._handled.add(handled)


class SenderHidden(Invariant):
    """No journal event shows who a sender is, or ties a connection to a delivery."""

    name = "sender-hidden"

    def __init__(self) -> None:
        self._references: frozenset[bytes] = frozenset()
        self._hosts: tuple[str, ...] = ()
        self._hidden_bytes: set[bytes] = set()
        self._harmless_words: set[str] = set()
        self._connections: set[bytes] = set()

    def _on_participants(self, observation: seen.Participants, _now: Instant) -> None:
        self._references, self._hosts = observation.references, observation.hosts
        # A reference has 8 or 16 bytes; an identity cut to that length would still be one.
        self._hidden_bytes = {secret[:size] for secret in observation.secrets for size in (8, REFERENCE_BYTES)}

    def _on_event(self, observation: seen.Journalled, _now: Instant) -> None:
        event = observation.event
        for value in event:
            if type(value) is bytes:
                if len(value) > REFERENCE_BYTES or value in self._hidden_bytes:
                    raise self.broken(f"{type(event).__name__} shows who a sender is, or an identity: {value.hex()}")
            elif isinstance(value, str) and value not in self._harmless_words:
                if any(host in value for host in self._hosts):
                    raise self.broken(f"{type(event).__name__} shows an address: {value}")
                self._harmless_words.add(value)
        if isinstance(event, events.PeerIdentified | events.PeerLeft):
            self._on_peer(event)
        elif isinstance(event, events.DeliveryAccepted | events.DeliveryFinished) and (
            event.attempt_ref in self._connections or event.attempt_ref[-8:] in self._connections
        ):
            raise self.broken(f"{type(event).__name__} names a connection")

    def _on_peer(self, event: events.PeerIdentified | events.PeerLeft) -> None:
        self._connections.add(event.conn_ref)
        if event.peer_ref not in self._references:
            raise self.broken(f"{type(event).__name__} of an identity that never logs in")


_REMEMBERED: Final = {
    "probed_devices": PROBED_MAX,
    "remembered_recipients": RECIPIENTS_MAX,
    "gossip_addresses": GOSSIP_HOSTS_MAX,
    "own_addresses": OWN_ADDRESSES_MAX,
}
"""What outlives the peers that it is about."""


class Bounded(Invariant):
    """Nothing grows beyond its limit, and nothing is left when every peer has left."""

    name = "bounded"

    def _on_sized(self, sized: Sized, _now: Instant) -> None:
        for name, limit in _limits_of(sized).items():
            if sized.sizes.get(name, 0) > limit:
                raise self.broken(f"relay {sized.node}: {name} is {sized.sizes[name]}, at most {limit}")
        kept = {"addresses": sized.facts["peers"], **_REMEMBERED}
        left = {name: size for name, size in sized.sizes.items() if size > kept.get(name, 0)}
        if sized.settled and left:
            raise self.broken(f"every peer has left relay {sized.node}, and there is still {left}")

    def _on_node_sized(self, sized: seen.NodeSized, _now: Instant) -> None:
        connections = sized.sizes["connections"]
        if sized.relay_connections > connections or connections > NODE_CONNECTIONS_MAX:
            raise self.broken(f"node {sized.node}: {connections} connections, its relay {sized.relay_connections}")
        left = {name: size for name, size in sized.sizes.items() if size and name != "bans"}
        if sized.settled and left:
            raise self.broken(f"every peer has left node {sized.node}, and there is still {left}")


class Liveness(shared.Liveness):
    """Look-ups are right in a plan without faults, and after the faults every device is found and answers."""

    def _on_tallied(self, tallied: seen.Tallied, _now: Instant) -> None:
        if tallied.is_faultless and tallied.due >= DUE_MIN and tallied.right < RIGHT_SHARE_MIN * tallied.due:
            raise self.broken(f"{tallied.right} of {tallied.due} look-ups are right")


def _limits_of(sized: Sized) -> dict[str, int]:
    """Return how much there may be of each thing at a relay."""
    sizes = sized.sizes
    identities = sizes["identities"]
    links_max = LINKS_MAX + sized.facts["peers"]
    return {
        "identities": sizes["connections"],
        "commits": identities * COMMITS_MAX,
        "exchanges": identities * PENDING_MAX,
        "late_acks": LATE_ACKS_MAX,
        "remembered_recipients": RECIPIENTS_MAX,
        "cached_responses": CACHED_MAX,
        "cached_bytes": CACHED_BYTES_MAX,
        "alarms": sizes["connections"],
        "presences": PRESENCES_MAX,
        "neighbours": ADVERTS_MAX,
        "links": links_max,
        "contacts": links_max + GOSSIP_PEERS_IN_MAX,
        "contacts_in": GOSSIP_PEERS_IN_MAX,
        "gossip_addresses": GOSSIP_HOSTS_MAX,
        "round_records": ROUND_RECORDS_MAX,
        "local_relays": 0,
        "own_addresses": OWN_ADDRESSES_MAX,
        "addresses": sized.facts["peers"] + sizes.get("neighbours", 0) + links_max,
        "probes_open": identities,
        "probed_devices": PROBED_MAX,
    }


def bhumi_invariants(response_ttl_ms: int) -> list[Invariant]:
    """Return one checker of each invariant, for relays that keep answers for ``response_ttl_ms``."""
    return [
        Fresh(),
        OnlySigned(),
        OwnWord(),
        Newest(),
        NoEcho(),
        Negotiated(),
        Prompt(),
        GuardedDials(),
        AsksOnce(),
        DeliveredOnce(),
        CommitFirst(),
        Faithful(),
        OneResult(),
        AnswersSurvive(response_ttl_ms),
        Bounded(),
        SenderHidden(),
        Liveness(),
    ]
