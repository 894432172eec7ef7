"""What must hold of an open Bhumi world, one checker for each law.

Laws about the records that relays give away are in ``bhumi_open_record_laws``, those about requests and their outcomes
in ``invariants``.
"""

from collections import deque
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.protocols.bhumi.messages import Feature
from waystation.sim import bhumi_open_observations as seen
from waystation.sim import bhumi_open_records as records
from waystation.sim.bhumi_open_forgery import is_private
from waystation.sim.bhumi_open_record_laws import (
    QUESTIONS_BURST,
    QUESTIONS_PER_SECOND,
    Fresh,
    Newest,
    NoEcho,
    OnlySigned,
    OwnWord,
)
from waystation.sim.invariants import (
    CommitFirst,
    DeliveredOnce,
    Faithful,
    Handler,
    Invariant,
    OneResult,
)

__all__ = [
    "AsksOnce",
    "Bounded",
    "GuardedDials",
    "Liveness",
    "Negotiated",
    "Prompt",
    "open_invariants",
]

ANSWER_US: Final = 2 * MICROSECONDS_PER_SECOND
"""How long a relay may take for an answer."""
PRESENCES_MAX: Final = 100_000
NEIGHBOURS_MAX: Final = 1_024
LINKS_MAX: Final = 8
CONTACTS_IN_MAX: Final = 64
COMMITS_MAX: Final = 4_096
PENDING_MAX: Final = 32
PROBED_MAX: Final = 16_384
"""Devices that a relay remembers to have asked for a probe, so as not to ask them again too soon."""
RIGHT_SHARE_MIN: Final = 0.95
DUE_MIN: Final = 40
"""Fewer look-ups than this say nothing about a share."""

_FEATURE_OF: Final = {
    0x42: Feature.BINDING,
    0x43: Feature.I_AM_OK,
    **dict.fromkeys(range(records.PRESENCE, records.RELAYS + 1), Feature.PRESENCE),
    0x4A: Feature.QA,
    records.GOSSIP: Feature.PRESENCE,
}
"""What must be agreed on before a relay sends a frame of this type; OPTIONS itself is missing."""


class Negotiated(Invariant):
    """An extension frame goes only where its feature was agreed on, and is laid out as the specification says."""

    name = "negotiated"

    def handlers(self) -> dict[type, Handler]:
        """Look at extension frames of relays."""
        return {seen.Said: self._on_said}

    def _on_said(self, said: seen.Said, _now: Instant) -> None:
        if said.features is None:
            raise self.broken(f"relay {said.node} sends {said.kind:#x} to a connection that never sent OPTIONS")
        feature = _FEATURE_OF.get(said.kind)
        if said.kind != records.OPTIONS and (feature is None or not said.features & feature):
            raise self.broken(f"relay {said.node} sends {said.kind:#x} where it was not agreed on")
        if not said.is_readable:
            raise self.broken(f"relay {said.node} sends a {said.kind:#x} that cannot be read")


class Prompt(Invariant):
    """Every question gets one answer, soon and in order; who asks too much gets no more than the named rate."""

    name = "prompt"

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, int], deque[tuple[Instant, bytes]]] = {}
        self._filled: dict[tuple[int, int], deque[Instant]] = {}
        """When answers that say something were given lately, by connection."""

    def handlers(self) -> dict[type, Handler]:
        """Look at questions and answers."""
        return {
            seen.RelayBegan: self._on_began,
            seen.Questioned: self._on_questioned,
            seen.Answered: self._on_answered,
            seen.Parted: self._on_parted,
            seen.Sized: self._on_sized,
        }

    def _on_began(self, began: seen.RelayBegan, _now: Instant) -> None:
        self._waiting = {place: waiting for place, waiting in self._waiting.items() if place[0] != began.node}
        self._filled = {place: times for place, times in self._filled.items() if place[0] != began.node}

    def _on_questioned(self, question: seen.Questioned, now: Instant) -> None:
        self._waiting.setdefault((question.node, question.peer), deque()).append((now, question.identity))

    def _on_answered(self, answered: seen.Answered, now: Instant) -> None:
        place = (answered.node, answered.peer)
        waiting = self._waiting.get(place)
        if not waiting or waiting.popleft()[1] != answered.identity:
            raise self.broken(f"relay {answered.node} gives an answer that is not the next one's")
        if not answered.slips:
            return
        times = self._filled.setdefault(place, deque())
        times.append(now)
        # Over any second there are at most a full bucket, what drips into it, and one for the rounding.
        while times[0] < now - MICROSECONDS_PER_SECOND:
            times.popleft()
        if len(times) > QUESTIONS_BURST + QUESTIONS_PER_SECOND + 1:
            raise self.broken(f"relay {answered.node} answers {len(times)} questions of one connection in a second")

    def _on_sized(self, sized: seen.Sized, now: Instant) -> None:
        """Look whether somebody has waited for too long; now is as good as any time."""
        for (node, peer), waiting in self._waiting.items():
            if node == sized.node and waiting and now - waiting[0][0] > ANSWER_US:
                raise self.broken(f"relay {node} does not answer the question of connection {peer}")

    def _on_parted(self, parted: seen.Parted, _now: Instant) -> None:
        self._waiting.pop((parted.node, parted.peer), None)
        self._filled.pop((parted.node, parted.peer), None)


class GuardedDials(Invariant):
    """No advert makes a relay dial a private address, or hand one on, unless its operator allows that."""

    name = "guarded-dials"

    def __init__(self) -> None:
        self._may: set[int] = set()
        """Relays whose operator allows it."""

    def handlers(self) -> dict[type, Handler]:
        """Look at dials and at adverts."""
        return {seen.RelayBegan: self._on_began, seen.Dialled: self._on_dialled, seen.Gave: self._on_gave}

    def _on_began(self, began: seen.RelayBegan, _now: Instant) -> None:
        if began.dials_private:
            self._may.add(began.node)

    def _on_dialled(self, dialled: seen.Dialled, _now: Instant) -> None:
        if dialled.is_configured or dialled.node in self._may:
            return
        if not dialled.only_public or is_private(dialled.url):
            raise self.broken(f"relay {dialled.node} would dial {dialled.url} wherever it leads")

    def _on_gave(self, gave: seen.Gave, _now: Instant) -> None:
        if gave.node not in self._may and is_private(gave.slip.address):
            raise self.broken(f"relay {gave.node} passes on an advert for {gave.slip.address}")


class AsksOnce(Invariant):
    """A device's application is asked once per preimage, however often and wherever the request arrives."""

    name = "asks-once"

    def __init__(self) -> None:
        self._handled: set[tuple[bytes, bytes]] = set()

    def handlers(self) -> dict[type, Handler]:
        """Look at applications."""
        return {seen.Handled: self._on_handled}

    def _on_handled(self, handled: seen.Handled, _now: Instant) -> None:
        if handled in self._handled:
            raise self.broken(f"{handled.identity.hex()[:16]} is asked again about {handled.preimage.hex()[:16]}")
        self._handled.add(handled)


class Bounded(Invariant):
    """Nothing grows beyond its limit, and nothing is left of who has left."""

    name = "bounded"

    def handlers(self) -> dict[type, Handler]:
        """Look at sizes."""
        return {seen.Sized: self._on_sized}

    def _on_sized(self, sized: seen.Sized, _now: Instant) -> None:
        for name, limit in _limits_of(sized).items():
            if sized.sizes[name] > limit:
                raise self.broken(f"relay {sized.node}: {name} is {sized.sizes[name]}, at most {limit}")
        kept = {"addresses": sized.peers_count, "probed_devices": PROBED_MAX}
        left = {name: size for name, size in sized.sizes.items() if size > kept.get(name, 0)}
        if sized.settled and left:
            raise self.broken(f"everybody has left relay {sized.node}, and there is still {left}")


class Liveness(Invariant):
    """Where nothing goes wrong look-ups are right, and after the faults everybody is found and answers."""

    name = "liveness"

    def handlers(self) -> dict[type, Handler]:
        """Look at complaints and at the share of right look-ups."""
        return {seen.LeftHanging: self._on_left_hanging, seen.Tallied: self._on_tallied}

    def _on_left_hanging(self, hanging: seen.LeftHanging, _now: Instant) -> None:
        raise self.broken(hanging.what)

    def _on_tallied(self, tallied: seen.Tallied, _now: Instant) -> None:
        if tallied.is_quiet and tallied.due >= DUE_MIN and tallied.right < RIGHT_SHARE_MIN * tallied.due:
            raise self.broken(f"{tallied.right} of {tallied.due} look-ups are right")


def _limits_of(sized: seen.Sized) -> dict[str, int]:
    """Return how much there may be of each thing at a relay."""
    sizes = sized.sizes
    links_max = LINKS_MAX + sized.peers_count
    return {
        "identities": sizes["connections"],
        "commits": sizes["identities"] * COMMITS_MAX,
        "exchanges": sizes["identities"] * PENDING_MAX,
        "alarms": sizes["connections"],
        "presences": PRESENCES_MAX,
        "neighbours": NEIGHBOURS_MAX,
        "links": links_max,
        "contacts": links_max + CONTACTS_IN_MAX,
        "addresses": sized.peers_count + sizes["neighbours"] + links_max,
        "probes_open": sizes["identities"],
        "probed_devices": PROBED_MAX,
    }


def open_invariants() -> list[Invariant]:
    """Return one checker of each law of an open world."""
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
        Bounded(),
        Liveness(),
    ]
