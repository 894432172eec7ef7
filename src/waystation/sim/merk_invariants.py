"""What must hold in every MERK world, one checker for each law.

Checkers see observations only; which frames are owed to whom says ``merk_whereabouts``. Spec: specs/merk.md 5 to 8, 10.
"""

from collections import Counter
from typing import Any, Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.protocols.merk.forwards import FLIGHTS_MAX, SEEN_MAX
from waystation.protocols.merk.key_directory import QUESTIONS_MAX
from waystation.protocols.merk.lookups import (
    ALL_QUEUES_BYTES_MAX,
    LOCATIONS_MAX,
    LOOKUPS_MAX,
    LOOKUPS_PER_CLIENT_MAX,
)
from waystation.protocols.merk.mesh import DIALS_PER_MINUTE, ORIGINALS_MAX, PEERS_MAX
from waystation.protocols.merk.messages import DeliveryCode
from waystation.protocols.merk.outbox import BUFFERED_BYTES_MAX, REPLIES_HELD_BYTES
from waystation.sim import merk_observations as seen
from waystation.sim.invariants import Handler, Invariant

__all__ = [
    "Authentic",
    "Bounded",
    "DeliveredOnce",
    "Forwarding",
    "GuardedDials",
    "Liveness",
    "OneOutcome",
    "OwnOnly",
    "PathDelivers",
    "TrueOutcome",
    "merk_invariants",
]

Handlers = dict[type[Any], Handler]
LEARNT_DIALS_MAX: Final = DIALS_PER_MINUTE  # in any 60 s of one life
ENVELOPE_BYTES: Final = 256
KEPT: Final = frozenset({"addresses", "adverts"})
"""What may be there when everybody has left."""
MINUTE_US: Final = 60 * MICROSECONDS_PER_SECOND


class DeliveredOnce(Invariant):
    """A frame arrives at most as often as it was sent, over all connections, and is handed on at most once."""

    name = "delivered-once"

    def __init__(self) -> None:
        self._sent: Counter[bytes] = Counter()
        self._arrived: Counter[bytes] = Counter()
        self._handed_on: set[tuple[bytes, bytes]] = set()

    def handlers(self) -> Handlers:
        """Look at both ends of every frame."""
        return {
            seen.Sent: self._on_sent,
            seen.Injected: self._on_sent,
            seen.Arrived: self._on_arrived,
            seen.Taken: self._on_taken,
        }

    def _on_sent(self, sent: seen.Sent | seen.Injected, now: Instant) -> None:  # noqa: ARG002
        self._sent[sent.frame] += 1

    def _on_arrived(self, arrived: seen.Arrived, now: Instant) -> None:  # noqa: ARG002
        self._arrived[arrived.frame] += 1
        if arrived.origin == "honest" and self._arrived[arrived.frame] > self._sent[arrived.frame]:
            times, sent = self._arrived[arrived.frame], self._sent[arrived.frame]
            raise self.broken(f"frame {arrived.frame.hex()} arrived {times} times, sent {sent} times")

    def _on_taken(self, taken: seen.Taken, now: Instant) -> None:  # noqa: ARG002
        if taken.is_plain:
            return  # the same plain bytes may be meant twice
        if (taken.key, taken.frame) in self._handed_on:
            raise self.broken(f"client {taken.key.hex()[:8]} handed frame {taken.frame.hex()} on twice")
        self._handed_on.add((taken.key, taken.frame))


class OwnOnly(Invariant):
    """A client gets what is for its key, byte for byte as somebody sent it, and extensions only when it asked for them.

    What a hostile node makes up may arrive: only signatures tell (specs/merk.md 8).
    """

    name = "own-only"

    def handlers(self) -> Handlers:
        """Look at what arrives."""
        return {seen.Arrived: self._on_arrived, seen.Extended: self._on_extended, seen.Dropped: self._on_dropped}

    def _on_arrived(self, arrived: seen.Arrived, now: Instant) -> None:  # noqa: ARG002
        if arrived.target != arrived.key:
            raise self.broken(f"connection {arrived.line} got frame {arrived.frame.hex()}, which is for another key")
        if arrived.origin not in {"honest", "peer"}:
            raise self.broken(
                f"connection {arrived.line} got frame {arrived.frame.hex()}, forged by a {arrived.origin}"
            )

    def _on_extended(self, extended: seen.Extended, now: Instant) -> None:  # noqa: ARG002
        raise self.broken(f"connection {extended.line} said no EXT_HELLO and got subtype {extended.subtype:#x}")

    def _on_dropped(self, dropped: seen.Dropped, now: Instant) -> None:  # noqa: ARG002
        if dropped.refusal != "duplicate":
            raise self.broken(f"client {dropped.key.hex()[:8]} turned a good frame down: {dropped.refusal}")


class Authentic(Invariant):
    """What a client says is proved was made by the sender that it names."""

    name = "authentic"

    def handlers(self) -> Handlers:
        """Look at what is handed on."""
        return {seen.Taken: self._on_taken, seen.KeyShown: self._on_key}

    def _on_key(self, shown: seen.KeyShown, now: Instant) -> None:  # noqa: ARG002
        if not shown.is_true:
            raise self.broken(f"a client was shown an agreement key that {shown.key.hex()[:8]} never had")

    def _on_taken(self, taken: seen.Taken, now: Instant) -> None:  # noqa: ARG002
        if not taken.is_theirs and taken.auth in {"bound", "legacy"}:
            raise self.broken(f"client {taken.key.hex()[:8]} calls {taken.frame.hex()} {taken.auth}, and it is forged")


class PathDelivers(Invariant):
    """A frame arrives when a path of at most one hop existed, undisturbed, for long enough."""

    name = "path-delivers"

    def __init__(self) -> None:
        self._arrived: Counter[bytes] = Counter()
        self._owed: Counter[bytes] = Counter()
        self._stolen: set[bytes] = set()

    def handlers(self) -> Handlers:
        """Look at arrivals when they are due."""
        return {seen.Arrived: self._on_arrived, seen.Stolen: self._on_stolen, seen.Due: self._on_due}

    def _on_arrived(self, arrived: seen.Arrived, now: Instant) -> None:  # noqa: ARG002
        self._arrived[arrived.frame] += 1

    def _on_stolen(self, stolen: seen.Stolen, now: Instant) -> None:  # noqa: ARG002
        self._stolen.add(stolen.frame)

    def _on_due(self, due: seen.Due, now: Instant) -> None:  # noqa: ARG002
        self._owed[due.frame] += due.is_owed
        if self._arrived[due.frame] < self._owed[due.frame] and due.frame not in self._stolen:
            raise self.broken(f"frame {due.frame.hex()} had a path all the time and never arrived")


class OneOutcome(Invariant):
    """Who asked for outcomes is told exactly one for each frame, soon, and none of a frame that it did not send."""

    name = "one-outcome"

    def __init__(self) -> None:
        self._sent: Counter[tuple[int, bytes]] = Counter()
        self._due: Counter[tuple[int, bytes]] = Counter()
        self._told: Counter[tuple[int, bytes]] = Counter()

    def handlers(self) -> Handlers:
        """Look at outcomes."""
        return {seen.Sent: self._on_sent, seen.Told: self._on_told, seen.OutcomeDue: self._on_due}

    def _on_sent(self, sent: seen.Sent, now: Instant) -> None:  # noqa: ARG002
        self._sent[sent.line, sent.frame] += 1

    def _on_told(self, told: seen.Told, now: Instant) -> None:  # noqa: ARG002
        place = (told.line, told.frame)
        self._told[place] += 1
        if self._told[place] > self._sent[place]:
            raise self.broken(
                f"connection {told.line} was told {self._told[place]} outcomes of {told.frame.hex()}, "
                f"sent {self._sent[place]} times"
            )

    def _on_due(self, due: seen.OutcomeDue, now: Instant) -> None:  # noqa: ARG002
        place = (due.line, due.frame)
        self._due[place] += 1
        if due.is_owed and self._told[place] < self._due[place]:
            raise self.broken(f"connection {due.line} was never told what became of {due.frame.hex()}")


class TrueOutcome(Invariant):
    """What a sender is told is so.

    "Delivered" is told of frames that were written to a connection of the recipient, and no failure of a frame whose
    recipient was within reach all the time; failures name their cause.
    """

    name = "true-outcome"

    def __init__(self) -> None:
        self._arrived: set[bytes] = set()
        self._stolen: set[bytes] = set()
        self._failures: dict[bytes, str] = {}

    def handlers(self) -> Handlers:
        """Compare what was told with what arrived."""
        return {
            seen.Arrived: self._on_arrived,
            seen.Stolen: self._on_stolen,
            seen.Told: self._on_told,
            seen.Due: self._on_due,
            seen.WrittenDue: self._on_written_due,
        }

    def _on_arrived(self, arrived: seen.Arrived, now: Instant) -> None:  # noqa: ARG002
        self._arrived.add(arrived.frame)

    def _on_stolen(self, stolen: seen.Stolen, now: Instant) -> None:  # noqa: ARG002
        self._stolen.add(stolen.frame)

    def _on_told(self, told: seen.Told, now: Instant) -> None:  # noqa: ARG002
        code = DeliveryCode(told.code)
        if code is not DeliveryCode.DELIVERED:
            self._failures[told.frame] = code.name
        elif not told.is_target_known and told.frame not in self._stolen:
            raise self.broken(f"frame {told.frame.hex()} is for nobody, and its sender was told that it is delivered")
        if code is DeliveryCode.LOOKUP_TIMEOUT and not (told.is_silence_likely or told.is_target_shaky):
            raise self.broken(f"frame {told.frame.hex()}: a look-up timed out, and every peer was there to answer")
        if code is DeliveryCode.QUEUE_FULL and not (told.is_crowded or told.is_target_shaky):
            raise self.broken(f"frame {told.frame.hex()}: a queue is said to be full, and next to nothing was sent")
        if code in {DeliveryCode.RATE, DeliveryCode.TOO_LARGE}:
            raise self.broken(f"frame {told.frame.hex()} of an honest client: {code.name}")

    def _on_due(self, due: seen.Due, now: Instant) -> None:  # noqa: ARG002
        if due.is_owed and due.frame in self._failures and due.frame not in self._stolen:
            raise self.broken(f"frame {due.frame.hex()}: {self._failures[due.frame]}, and its recipient was there")

    def _on_written_due(self, due: seen.WrittenDue, now: Instant) -> None:  # noqa: ARG002
        if due.frame not in self._arrived and due.frame not in self._stolen and not due.is_excused:
            raise self.broken(f"frame {due.frame.hex()} was called delivered, and never arrived")


class Forwarding(Invariant):
    """A frame crosses one link: a node forwards what its own clients sent, to whom it has asked and who said yes."""

    name = "forwarding"

    def handlers(self) -> Handlers:
        """Look at what hostile nodes are sent, which see it all."""
        return {seen.Forwarded: self._on_forwarded}

    def _on_forwarded(self, forwarded: seen.Forwarded, now: Instant) -> None:  # noqa: ARG002
        if forwarded.hop != 1 or not forwarded.is_own:
            raise self.broken(f"node {forwarded.node} forwards {forwarded.frame.hex()}, which is not its client's")
        if not forwarded.is_invited:
            raise self.broken(f"node {forwarded.node} forwards {forwarded.frame.hex()} to one that it did not ask")


class GuardedDials(Invariant):
    """Nobody makes a node dial a private address, what a client names, or more than a few addresses a minute."""

    name = "guarded-dials"

    def __init__(self) -> None:
        self._learnt: dict[tuple[int, int], list[Instant]] = {}

    def handlers(self) -> Handlers:
        """Look at dials."""
        return {seen.Dialled: self._on_dialled}

    def _on_dialled(self, dialled: seen.Dialled, now: Instant) -> None:
        if dialled.is_configured:
            return
        if dialled.is_from_client:
            raise self.broken(f"node {dialled.node} dials {dialled.url}, which only a client has named")
        if not dialled.only_public and not dialled.is_private_allowed:
            raise self.broken(f"node {dialled.node} would dial {dialled.url} wherever it leads")
        place = (dialled.node, dialled.life)
        recent = [at for at in self._learnt.get(place, ()) if at > now - MINUTE_US]
        self._learnt[place] = [*recent, now]
        if len(recent) >= LEARNT_DIALS_MAX:
            raise self.broken(f"node {dialled.node} dials {len(recent) + 1} learnt addresses in a minute")


class Bounded(Invariant):
    """Nothing grows beyond its limit, and nothing is left of who has left."""

    name = "bounded"

    def handlers(self) -> Handlers:
        """Look at sizes."""
        return {seen.Sized: self._on_sized}

    def _on_sized(self, sized: seen.Sized, now: Instant) -> None:  # noqa: ARG002
        for name, limit in _limits_of(sized).items():
            size = sized.unsent_bytes_peak if name == "unsent_bytes" else sized.sizes[name]
            if size > limit:
                raise self.broken(f"node {sized.node}: {name} is {size}, at most {limit}")
        left = {name: size for name, size in sized.sizes.items() if size and name not in KEPT}
        if sized.settled and left:
            raise self.broken(f"everybody has left node {sized.node}, and there is still {left}")


class Liveness(Invariant):
    """After the faults have ended all nodes find each other, and everybody is told and gets what is due."""

    name = "liveness"

    def handlers(self) -> Handlers:
        """Look at complaints."""
        return {seen.LeftHanging: self._on_left_hanging, seen.Meshed: self._on_meshed}

    def _on_left_hanging(self, hanging: seen.LeftHanging, now: Instant) -> None:  # noqa: ARG002
        raise self.broken(hanging.what)

    def _on_meshed(self, meshed: seen.Meshed, now: Instant) -> None:  # noqa: ARG002
        if meshed.missing:
            raise self.broken(f"node {meshed.node} has not found {list(meshed.missing)}")


def _limits_of(sized: seen.Sized) -> dict[str, int]:
    """Return how much there may be of each thing at a node."""
    sizes = sized.sizes
    return {
        "clients": sizes["connections"],
        "nodes": PEERS_MAX,
        "original_relays": ORIGINALS_MAX,
        "addresses": PEERS_MAX + sized.peers_count,
        "lookups": min(LOOKUPS_MAX, LOOKUPS_PER_CLIENT_MAX * sizes["connections"]),
        "lookup_bytes": ALL_QUEUES_BYTES_MAX,
        "places": min(LOCATIONS_MAX, sized.targets_count),
        "forwards": FLIGHTS_MAX,
        "seen_forwards": 2 * SEEN_MAX,  # two generations
        "buffered_bytes": BUFFERED_BYTES_MAX,
        "adverts": sized.targets_count,
        "key_questions": QUESTIONS_MAX,
        "slow_readers": sizes["connections"],
        # What one connection may have ahead, one frame on top, and our own answers.
        "unsent_bytes": 3 * (sized.max_frame_bytes + ENVELOPE_BYTES) + 3 * REPLIES_HELD_BYTES,
    }


def merk_invariants() -> list[Invariant]:
    """Return all laws of a MERK world."""
    return [
        DeliveredOnce(),
        OwnOnly(),
        Authentic(),
        PathDelivers(),
        OneOutcome(),
        TrueOutcome(),
        Forwarding(),
        GuardedDials(),
        Bounded(),
        Liveness(),
    ]
