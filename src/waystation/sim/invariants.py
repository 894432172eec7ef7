"""What must hold in every world, one checker for each law.

A checker sees observations one by one and raises ``ViolationError`` the moment a law is broken. What it remembers of a
connection goes with the connection.
"""

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from waystation.core.errors import WaystationError
from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.crypto.hashing import REFERENCE_BYTES
from waystation.engine.admission import CONNECTIONS_MAX
from waystation.journal import events
from waystation.protocols.bhumi.cache import ENTRIES_MAX, TOTAL_BYTES_MAX
from waystation.protocols.bhumi.deliveries import PENDING_PER_RECIPIENT_MAX
from waystation.protocols.bhumi.exchanges import LATE_TOTAL_MAX
from waystation.protocols.bhumi.messages import Status
from waystation.protocols.bhumi.wire import COMMITS_MAX
from waystation.sim import observations as seen
from waystation.sim.observations import Observation

__all__ = [
    "AnswersSurvive",
    "BoundedMemory",
    "CommitFirst",
    "DeliveredOnce",
    "Faithful",
    "Invariant",
    "Liveness",
    "OneResult",
    "SenderHidden",
    "ViolationError",
    "Watch",
    "bhumi_invariants",
]

ANSWER_MARGIN_US: Final = 1_000_000  # a SEND may wait this long between the node's socket and the relay


class ViolationError(WaystationError):
    """A law is broken.

    Attributes:
        invariant: Name of the checker.
        detail: What happened.
    """

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
        self.detail = detail


Handler = Callable[[Any, Instant], None]


class Invariant(ABC):
    """One law."""

    name: ClassVar[str]
    """What a violation is called."""

    @abstractmethod
    def handlers(self) -> dict[type[Observation], Handler]:
        """Return what this law looks at, and with which method."""

    def broken(self, detail: str) -> ViolationError:
        """Return the error to raise."""
        return ViolationError(self.name, detail)


class Watch:
    """Shows each observation to the laws that look at its kind."""

    def __init__(self, invariants: Sequence[Invariant]) -> None:
        """Watch with ``invariants``, in their order."""
        self._handlers: dict[type[Any], list[Handler]] = {}
        for invariant in invariants:
            for kind, handler in invariant.handlers().items():
                self._handlers.setdefault(kind, []).append(handler)

    def observe(self, observation: Observation, now: Instant) -> None:
        """Show one observation.

        Raises:
            ViolationError: A law is broken.
        """
        for handler in self._handlers.get(type(observation), ()):
            handler(observation, now)


class DeliveredOnce(Invariant):
    """A preimage reaches its device at most as often, in one life of the node, as the device offered its commit.

    Devices offer a preimage once, and again only on a new connection, or with a second I_AM, as long as they have
    not seen it; so for nearly all preimages this says: once.
    """

    name = "delivered-once"

    def __init__(self) -> None:
        self._offered: Counter[tuple[bytes, bytes]] = Counter()
        self._delivered: Counter[tuple[bytes, bytes]] = Counter()

    def handlers(self) -> dict[type[Observation], Handler]:
        """Look at offers and deliveries; a new life begins with what is offered in it."""
        return {seen.LifeBegan: self._on_life, seen.Offered: self._on_offered, seen.Delivered: self._on_delivered}

    def _on_life(self, _observation: seen.LifeBegan, _now: Instant) -> None:
        # What a device said before the node came back may still reach it: offers stay, deliveries start anew.
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

    def handlers(self) -> dict[type[Observation], Handler]:
        """Look at offers and deliveries."""
        return {seen.Offered: self._on_offered, seen.Delivered: self._on_delivered}

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
    """What a device gets is, byte for byte, what somebody asked it with this preimage."""

    name = "faithful"

    def __init__(self) -> None:
        self._asked: dict[tuple[bytes, bytes], list[bytes]] = {}

    def handlers(self) -> dict[type[Observation], Handler]:
        """Look at requests and deliveries."""
        return {seen.Asked: self._on_asked, seen.Delivered: self._on_delivered}

    def _on_asked(self, observation: seen.Asked, _now: Instant) -> None:
        payloads = self._asked.setdefault((observation.recipient, observation.preimage), [])
        if observation.payload not in payloads:
            payloads.append(observation.payload)

    def _on_delivered(self, observation: seen.Delivered, _now: Instant) -> None:
        if observation.preimage is None:
            return
        if observation.payload not in self._asked.get((observation.recipient, observation.preimage), ()):
            raise self.broken(f"connection {observation.connection} got a payload that nobody sent to it")


class OneResult(Invariant):
    """Every SEND on a connection that lives gets exactly one result, in order, and its own."""

    name = "one-result"

    def __init__(self) -> None:
        self._waiting: dict[int, deque[int]] = {}
        self._taken: dict[int, int] = {}

    def handlers(self) -> dict[type[Observation], Handler]:
        """Look at requests, results and ends of senders' connections."""
        return {
            seen.Asked: self._on_asked,
            seen.AskArrived: self._on_arrived,
            seen.Concluded: self._on_concluded,
            seen.ConnectionEnded: self._on_ended,
        }

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
    """An answer the node has read reaches the first SEND that asks for it, as long as it is kept.

    Only the first: once its result has left the node the answer is evicted, whether or not it arrives.
    """

    name = "answers-survive"

    def __init__(self, response_ttl_ms: int) -> None:
        """Judge a relay that keeps answers for ``response_ttl_ms``."""
        self._ttl_us = response_ttl_ms * MICROSECONDS_PER_MS - ANSWER_MARGIN_US
        self._answered: dict[tuple[bytes, bytes], Instant | None] = {}
        self._asked: dict[tuple[int, int], tuple[bytes, bytes]] = {}
        self._must_succeed: set[tuple[int, int]] = set()

    def handlers(self) -> dict[type[Observation], Handler]:
        """Look at answers, requests and results; a restart forgives."""
        return {
            seen.LifeBegan: self._on_life,
            seen.AnswerArrived: self._on_answer,
            seen.Asked: self._on_asked,
            seen.AskArrived: self._on_arrived,
            seen.Concluded: self._on_concluded,
        }

    def _on_life(self, _observation: seen.LifeBegan, _now: Instant) -> None:
        self._answered.clear()
        self._asked.clear()
        self._must_succeed.clear()

    def _on_answer(self, observation: seen.AnswerArrived, now: Instant) -> None:
        # A second answer to the same preimage does not replace the first; None marks one that was asked for.
        self._answered.setdefault((observation.recipient, observation.preimage), now)

    def _on_asked(self, observation: seen.Asked, _now: Instant) -> None:
        self._asked[observation.connection, observation.token] = (observation.recipient, observation.preimage)

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


class BoundedMemory(Invariant):
    """Nothing grows beyond its limit, and nothing is left when everybody has left."""

    name = "bounded-memory"

    def handlers(self) -> dict[type[Observation], Handler]:
        """Look at sizes."""
        return {seen.Sized: self._on_sized}

    def _on_sized(self, observation: seen.Sized, _now: Instant) -> None:
        relay, node = observation.sizes["bhumi"], observation.sizes["node"]
        limits = {
            "connections": node["connections"],
            "identities": relay["connections"],
            "commits": relay["identities"] * COMMITS_MAX,
            "exchanges": relay["identities"] * PENDING_PER_RECIPIENT_MAX,
            "late_acks": LATE_TOTAL_MAX,
            "cached_responses": ENTRIES_MAX,
            "cached_bytes": TOTAL_BYTES_MAX,
            "alarms": relay["connections"],
        }
        for name, limit in limits.items():
            if relay[name] > limit:
                raise self.broken(f"{name} is {relay[name]}, at most {limit}")
        if node["connections"] > CONNECTIONS_MAX:
            raise self.broken(f"{node['connections']} connections, at most {CONNECTIONS_MAX}")
        if observation.settled:
            left = {name: size for name, size in {**relay, **node}.items() if size and name != "bans"}
            if left:
                raise self.broken(f"left over when everybody had gone: {left}")


class SenderHidden(Invariant):
    """No journal event says who a sender is, or ties a connection to a delivery."""

    name = "sender-hidden"

    def __init__(self) -> None:
        self._references: frozenset[bytes] = frozenset()
        self._hosts: tuple[str, ...] = ()
        self._hidden_bytes: set[bytes] = set()
        self._harmless_words: set[str] = set()
        self._connections: set[bytes] = set()

    def handlers(self) -> dict[type[Observation], Handler]:
        """Look at the journal and at who takes part."""
        return {seen.Everybody: self._on_everybody, seen.Journalled: self._on_event}

    def _on_everybody(self, observation: seen.Everybody, _now: Instant) -> None:
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


class Liveness(Invariant):
    """After the faults have ended, everybody who asks is answered."""

    name = "liveness"

    def handlers(self) -> dict[type[Observation], Handler]:
        """Look at how last requests ended."""
        return {seen.Probed: self._on_probed}

    def _on_probed(self, observation: seen.Probed, _now: Instant) -> None:
        if observation.status != Status.OK:
            raise self.broken(f"sender {observation.sender} got {observation.status} after the faults had ended")


def bhumi_invariants(response_ttl_ms: int) -> list[Invariant]:
    """Return one checker of each law for a Bhumi world whose relay keeps answers for ``response_ttl_ms``."""
    return [
        DeliveredOnce(),
        CommitFirst(),
        Faithful(),
        OneResult(),
        AnswersSurvive(response_ttl_ms),
        BoundedMemory(),
        SenderHidden(),
        Liveness(),
    ]
