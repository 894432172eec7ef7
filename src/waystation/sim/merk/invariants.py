"""Invariants of a simulated MERK mesh, one checker class each.

``MerkScenario`` has each observation passed to them. Checkers see only observations; ``presences`` computes which
frames must be delivered. Spec: specs/merk.md 5 to 8, 10.
"""

from collections import Counter
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.protocols.merk.limits import DEFAULT_LIMITS
from waystation.protocols.merk.messages import DeliveryCode
from waystation.protocols.merk.relay.outbox import REPLIES_HELD_BYTES
from waystation.sim import invariants as shared
from waystation.sim.invariants import ExceptLost, Invariant
from waystation.sim.merk import observations as seen
from waystation.sim.observations import Sized

__all__ = [
    "Authentic",
    "Bounded",
    "ClaimsDrawNothing",
    "Confidential",
    "DeliveredOnce",
    "Forwarding",
    "GuardedDials",
    "KeepsMail",
    "Liveness",
    "OneOutcome",
    "OwnOnly",
    "PathDelivers",
    "ReadIsTaken",
    "Remembers",
    "TrueOutcome",
    "merk_invariants",
]

LEARNT_DIALS_MAX: Final = DEFAULT_LIMITS.dials_per_minute  # in any 60 s of one life
ENVELOPE_BYTES: Final = 256
KEPT: Final = frozenset({"addresses", "learnt_addresses", "connect_addresses", "adverts", "mailboxes"})
"""What may be there when everybody has left."""
MINUTE_US: Final = 60 * MICROSECONDS_PER_SECOND


class DeliveredOnce(Invariant):
    """A frame arrives at most as often as it was sent, over all connections, and is handed on at most once."""

    name = "delivered-once"

    def __init__(self) -> None:
        self._sent: Counter[bytes] = Counter()
        self._arrived: Counter[bytes] = Counter()
        self._handed_on: set[tuple[bytes, bytes]] = set()

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

    What a hostile node signs itself may arrive: a client of it could have written that (MERK-UNNAMED).
    """

    name = "own-only"

    def _on_arrived(self, arrived: seen.Arrived, now: Instant) -> None:  # noqa: ARG002
        if arrived.target != arrived.key:
            raise self.broken(f"connection {arrived.line} got frame {arrived.frame.hex()}, which is for another key")
        if arrived.origin not in {"honest", "resigned"}:
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

    def _on_key(self, shown: seen.KeyShown, now: Instant) -> None:  # noqa: ARG002
        if not shown.is_true:
            raise self.broken(f"a client was shown an agreement key that {shown.key.hex()[:8]} never had")

    def _on_taken(self, taken: seen.Taken, now: Instant) -> None:  # noqa: ARG002
        if not taken.is_theirs and taken.auth in {"bound", "legacy"}:
            raise self.broken(f"client {taken.key.hex()[:8]} calls {taken.frame.hex()} {taken.auth}, and it is forged")


class Confidential(Invariant):
    """What was encrypted for one client is handed on by no other, and opened by nobody else."""

    name = "confidential"

    def _on_exposed(self, exposed: seen.Exposed, now: Instant) -> None:  # noqa: ARG002
        raise self.broken(f"{exposed.frame.hex()} is encrypted for who is not its target")

    def _on_taken(self, taken: seen.Taken, now: Instant) -> None:  # noqa: ARG002
        if not taken.is_aimed:
            raise self.broken(f"client {taken.key.hex()[:8]} reads {taken.frame.hex()}, which is for another")


class ClaimsDrawNothing(Invariant):
    """Who cannot show a client's presence, or has its login by a challenge passed on, gets no mail of it."""

    name = "claims-draw-nothing"

    def _on_forwarded(self, forwarded: seen.Forwarded, now: Instant) -> None:  # noqa: ARG002
        if not forwarded.is_shown:
            raise self.broken(f"node {forwarded.node} forwards {forwarded.frame.hex()} to who only claims its target")

    def _on_drawn(self, drawn: seen.Drawn, now: Instant) -> None:  # noqa: ARG002
        if drawn.is_known:
            raise self.broken(f"node {drawn.node} gives {drawn.frame.hex()} to a relayed login")


class PathDelivers(Invariant):
    """A frame arrives when a path of at most one hop existed, undisturbed, for long enough."""

    name = "path-delivers"

    def __init__(self) -> None:
        self._arrived: Counter[bytes] = Counter()
        self._owed: Counter[bytes] = Counter()
        self._stolen: set[bytes] = set()

    def _on_arrived(self, arrived: seen.Arrived, now: Instant) -> None:  # noqa: ARG002
        self._arrived[arrived.frame] += 1

    def _on_stolen(self, stolen: seen.Stolen, now: Instant) -> None:  # noqa: ARG002
        self._stolen.add(stolen.frame)

    def _on_due(self, due: seen.Due, now: Instant) -> None:  # noqa: ARG002
        self._owed[due.frame] += due.is_owed
        if self._arrived[due.frame] < self._owed[due.frame] and due.frame not in self._stolen:
            raise self.broken(f"frame {due.frame.hex()} had a path all the time and never arrived")


class OneOutcome(Invariant):
    """A sender that asked for outcomes gets exactly one for each frame, soon, and none of frames of others."""

    name = "one-outcome"

    def __init__(self) -> None:
        self._sent: Counter[tuple[int, bytes]] = Counter()
        self._due: Counter[tuple[int, bytes]] = Counter()
        self._reported: Counter[tuple[int, bytes]] = Counter()

    def _on_sent(self, sent: seen.Sent, now: Instant) -> None:  # noqa: ARG002
        self._sent[sent.line, sent.frame] += 1

    def _on_report(self, report: seen.Reported, now: Instant) -> None:  # noqa: ARG002
        place = (report.line, report.frame)
        self._reported[place] += 1
        if self._reported[place] > self._sent[place]:
            raise self.broken(
                f"connection {report.line} got {self._reported[place]} outcomes of {report.frame.hex()}, "
                f"sent {self._sent[place]} times"
            )

    def _on_due(self, due: seen.OutcomeDue, now: Instant) -> None:  # noqa: ARG002
        place = (due.line, due.frame)
        self._due[place] += 1
        if due.is_owed and self._reported[place] < self._due[place]:
            raise self.broken(f"connection {due.line} never got an outcome of {due.frame.hex()}")


class TrueOutcome(Invariant):
    """The outcomes that a sender gets are true.

    "Delivered" is reported of frames that were written to a connection of the recipient, and no failure of a frame
    whose recipient was within reach all the time; failures name their cause.
    """

    name = "true-outcome"

    def __init__(self) -> None:
        self._arrived: set[bytes] = set()
        self._stolen: set[bytes] = set()
        self._failures: dict[bytes, str] = {}

    def _on_arrived(self, arrived: seen.Arrived, now: Instant) -> None:  # noqa: ARG002
        self._arrived.add(arrived.frame)

    def _on_stolen(self, stolen: seen.Stolen, now: Instant) -> None:  # noqa: ARG002
        self._stolen.add(stolen.frame)

    def _on_report(self, report: seen.Reported, now: Instant) -> None:  # noqa: ARG002
        code = DeliveryCode(report.code)
        if code is not DeliveryCode.DELIVERED:
            self._failures[report.frame] = code.name
        elif not report.is_target_known and report.frame not in self._stolen:
            raise self.broken(f"frame {report.frame.hex()} is for nobody, and its sender got DELIVERED")
        if code is DeliveryCode.LOOKUP_TIMEOUT and not (report.is_silence_likely or report.is_target_shaky):
            raise self.broken(f"frame {report.frame.hex()}: a look-up timed out, and every peer was there to answer")
        if code is DeliveryCode.QUEUE_FULL and not (report.is_crowded or report.is_target_shaky):
            raise self.broken(f"frame {report.frame.hex()}: a queue is said to be full, and next to nothing was sent")
        if code in {DeliveryCode.RATE, DeliveryCode.TOO_LARGE}:
            raise self.broken(f"frame {report.frame.hex()} of an honest client: {code.name}")

    def _on_due(self, due: seen.Due, now: Instant) -> None:  # noqa: ARG002
        if due.is_owed and due.frame in self._failures and due.frame not in self._stolen:
            raise self.broken(f"frame {due.frame.hex()}: {self._failures[due.frame]}, and its recipient was there")

    def _on_written_due(self, due: seen.WrittenDue, now: Instant) -> None:  # noqa: ARG002
        if due.frame not in self._arrived and due.frame not in self._stolen and not due.is_excused:
            raise self.broken(f"frame {due.frame.hex()} was called delivered, and never arrived")


class Forwarding(Invariant):
    """A frame crosses one link: a node forwards what its own clients sent, to whom it has asked and who said yes.

    Several at once go to who understands that (MERK-RUNS). Of what was forwarded to it a node says one outcome at
    most, to who has brought it (MERK-NOTICES).
    """

    name = "forwarding"

    def _on_bundled(self, bundled: seen.Bundled, now: Instant) -> None:  # noqa: ARG002
        if not bundled.is_right:
            raise self.broken(f"node {bundled.node} forwards frames by a message that is broken or not understood")

    def _on_gathered(self, gathered: seen.Gathered, now: Instant) -> None:  # noqa: ARG002
        if not gathered.is_right:
            raise self.broken(f"node {gathered.node} names frames that nobody brought")

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


class Remembers(Invariant):
    """A node has the addresses on its disk at which it has found others."""

    name = "remembers"

    def _on_remembered(self, remembered: seen.Remembered, _now: Instant) -> None:
        if not remembered.is_stored:
            raise self.broken(f"node {remembered.node} is linked with {remembered.url}, and has not stored it")


class KeepsMail(ExceptLost):
    """What was reported as stored reaches its owner, crashes included, is taken once, and is gone then."""

    name = "keeps-mail"

    def __init__(self) -> None:
        super().__init__()
        self._owed: set[tuple[bytes, bytes]] = set()
        self._read: set[tuple[bytes, bytes]] = set()
        self._taken: dict[tuple[bytes, bytes], int] = {}
        self._injected: set[bytes] = set()

    def _on_stored(self, stored: seen.MailStored, now: Instant) -> None:  # noqa: ARG002
        if (stored.owner, stored.frame) not in self._read:
            self._owed.add((stored.owner, stored.frame))

    def _on_read(self, read: seen.MailRead, now: Instant) -> None:  # noqa: ARG002
        place = (read.owner, read.frame)
        if place in self._read:
            raise self.broken(f"mailbox {read.owner.hex()[:8]}: {read.frame.hex()} is read twice")
        self._read.add(place)
        self._owed.discard(place)

    def _on_taken(self, taken: seen.MailTaken, now: Instant) -> None:  # noqa: ARG002
        self._taken[taken.owner, taken.frame] = taken.life

    def _on_injected(self, injected: seen.Injected, now: Instant) -> None:  # noqa: ARG002
        self._injected.add(injected.frame)

    def _on_given(self, given: seen.MailGiven, now: Instant) -> None:  # noqa: ARG002
        if given.frame in self._injected:  # a hostile node, and not the mailbox, may have sent it again
            return
        # A node that dies before the disk has the removal may give it again in its next life (MERK-MAILTWICE).
        if self._taken.get((given.owner, given.frame)) == given.life:
            raise self.broken(f"mailbox {given.owner.hex()[:8]}: {given.frame.hex()} comes again after TAKEN")

    def _on_due(self, due: seen.MailDue, now: Instant) -> None:  # noqa: ARG002
        lost = [frame.hex() for owner, frame in self._owed if owner == due.owner]
        if lost and not any(self._lost.values()):
            raise self.broken(f"mailbox {due.owner.hex()[:8]}: {min(lost)} was called stored, and never came")


class ReadIsTaken(Invariant):
    """A sender's client reports a message as read once, and only after its recipient's program has taken it."""

    name = "read-is-taken"

    def __init__(self) -> None:
        self._read: set[tuple[bytes, bytes]] = set()
        self._reported: set[tuple[bytes, bytes]] = set()

    def _on_read(self, read: seen.MailRead, now: Instant) -> None:  # noqa: ARG002
        self._read.add((read.owner, read.frame))

    def _on_reported(self, reported: seen.ReadReported, now: Instant) -> None:  # noqa: ARG002
        place = (reported.owner, reported.frame)
        if place not in self._read:
            raise self.broken(f"{reported.frame.hex()} is reported as read, and no program has taken it")
        if place in self._reported:
            raise self.broken(f"{reported.frame.hex()} is reported as read twice")
        self._reported.add(place)


class Bounded(Invariant):
    """Nothing grows beyond its limit, and nothing is left of who has left."""

    name = "bounded"

    def _on_sized(self, sized: Sized, now: Instant) -> None:  # noqa: ARG002
        for name, limit in _limits_of(sized).items():
            size = sized.facts["unsent_bytes_peak"] if name == "unsent_bytes" else sized.sizes[name]
            if size > limit:
                raise self.broken(f"node {sized.node}: {name} is {size}, at most {limit}")
        left = {name: size for name, size in sized.sizes.items() if size and name not in KEPT}
        if sized.settled and left:
            raise self.broken(f"everybody has left node {sized.node}, and there is still {left}")


class Liveness(shared.Liveness):
    """After the faults have ended all nodes find each other, and every client gets what is due."""

    def _on_meshed(self, meshed: seen.Meshed, now: Instant) -> None:  # noqa: ARG002
        if meshed.missing:
            raise self.broken(f"node {meshed.node} has not found {list(meshed.missing)}")


def _limits_of(sized: Sized) -> dict[str, int]:
    """Return how much there may be of each thing at a node."""
    sizes, limits = sized.sizes, DEFAULT_LIMITS
    return {
        "clients": sizes["connections"],
        "nodes": limits.nodes,
        "original_relays": limits.original_relays,
        "addresses": limits.learnt_addresses + sized.facts["peers_count"],
        "lookups": min(limits.lookups, limits.lookups_per_client * sizes["connections"]),
        "lookup_bytes": limits.lookup_bytes_all,
        "places": min(limits.places, sized.facts["targets_count"]),
        "forwards": limits.forwards,
        "seen_forwards": 2 * limits.seen_forwards,  # two generations
        "buffered_bytes": limits.buffered_bytes,
        "adverts": sized.facts["targets_count"],
        "key_questions": limits.key_questions,
        "slow_readers": sizes["connections"],
        # What one connection may have ahead, one frame on top, and our own answers.
        "unsent_bytes": 3 * (sized.facts["max_frame_bytes"] + ENVELOPE_BYTES) + 3 * REPLIES_HELD_BYTES,
    }


def merk_invariants() -> list[Invariant]:
    """Return all laws of a MERK world."""
    return [
        DeliveredOnce(),
        OwnOnly(),
        Authentic(),
        Confidential(),
        ClaimsDrawNothing(),
        PathDelivers(),
        OneOutcome(),
        TrueOutcome(),
        Forwarding(),
        GuardedDials(),
        Remembers(),
        KeepsMail(),
        ReadIsTaken(),
        Bounded(),
        Liveness(),
    ]
