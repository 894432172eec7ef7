"""What must hold wherever devices keep groups the same, one checker for each law.

None of them looks into a device: they see records on lines, what applications are told, what a device shows of its
messages, and whether a record that an acknowledgement is about stands in its store. Spec: bsp 2 to 4, 10.
"""

from collections import Counter
from typing import Any, Final

from waystation.core.instant import Instant
from waystation.sim import bsp_observations as seen
from waystation.sim.bsp_records import ACK, KINDS, MESSAGE, OFFER, REQUEST, dependencies_of
from waystation.sim.invariants import Handler, Invariant

__all__ = [
    "Agreed",
    "AskedFor",
    "Bounded",
    "CausalOrder",
    "Faithful",
    "ModeKept",
    "OnDiskFirst",
    "Owed",
    "Paced",
    "SharedOnly",
    "bsp_invariants",
]

OFFERED_MAX: Final = 1_000
BASE_US: Final = 1_000_000
"""Base interval of every line here."""
COPIES_MAX: Final = 3
"""So many copies within it are too many (bsp 11, clarification 9)."""
DELIVERED: Final = 2

Handlers = dict[type[Any], Handler]


class OnDiskFirst(Invariant):
    """Nothing is acknowledged, offered or sent that a restart could lose."""

    name = "on-disk-first"

    def handlers(self) -> Handlers:
        """Look at all that is said of messages."""
        return {seen.Said: self._on_said}

    def _on_said(self, said: seen.Said, _now: Instant) -> None:
        if said.unstored:
            kind = KINDS[said.record.kind]
            raise self.broken(f"{kind} of {said.party} names {said.unstored[0].hex()[:16]}, which is not on its disk")


class SharedOnly(Invariant):
    """A peer learns nothing of a group that is not shared with it: only a REQUEST may name its messages."""

    name = "shared-only"

    def __init__(self) -> None:
        self._shared: set[tuple[str, str, bytes]] = set()
        self._groups: dict[bytes, bytes] = {}

    def handlers(self) -> Handlers:
        """Look at who shares what, and at what is said."""
        return {seen.Made: self._on_made, seen.Shared: self._on_shared, seen.Said: self._on_said}

    def _on_made(self, made: seen.Made, _now: Instant) -> None:
        self._groups[made.message_id] = made.group_id

    def _on_shared(self, shared: seen.Shared, _now: Instant) -> None:
        key = (shared.party, shared.peer, shared.group_id)
        (self._shared.add if shared.is_shared else self._shared.discard)(key)

    def _on_said(self, said: seen.Said, _now: Instant) -> None:
        if said.record.kind == REQUEST:
            return
        for message_id in said.record.ids:
            group_id = self._groups.get(message_id)
            if group_id is None:
                raise self.broken(f"{said.party} names {message_id.hex()[:16]} to {said.peer}, which nobody ever made")
            if (said.party, said.peer, group_id) not in self._shared:
                raise self.broken(
                    f"{said.party} names {message_id.hex()[:16]} to {said.peer}, who is not to know of it"
                )


class AskedFor(Invariant):
    """A device requests what its peer has offered since it asked last, and acknowledges what it was given."""

    name = "asked-for"

    def __init__(self) -> None:
        self._offered: dict[tuple[str, str], dict[bytes, None]] = {}
        self._received: dict[tuple[str, str], Counter[bytes]] = {}

    def handlers(self) -> Handlers:
        """Look at both directions."""
        return {seen.Began: self._on_began, seen.Heard: self._on_heard, seen.Said: self._on_said}

    def _on_began(self, began: seen.Began, _now: Instant) -> None:
        for key in [key for key in self._offered if key[0] == began.party]:
            del self._offered[key]
        # What was said of an acknowledgement just before a crash may not have reached the disk: it may come again.
        for (party, _peer), received in self._received.items():
            if party == began.party:
                for message_id in received:
                    received[message_id] = max(1, received[message_id])

    def _on_heard(self, heard: seen.Heard, _now: Instant) -> None:
        key = (heard.party, heard.peer)
        if heard.record.kind == OFFER:
            offered = self._offered.setdefault(key, {})
            for message_id in heard.record.ids:
                offered[message_id] = None
        if heard.record.kind in {OFFER, MESSAGE}:
            self._received.setdefault(key, Counter()).update(set(heard.record.ids))

    def _on_said(self, said: seen.Said, _now: Instant) -> None:
        key = (said.party, said.peer)
        if said.record.kind == REQUEST:
            offered = self._offered.get(key, {})
            for message_id in said.record.ids:
                if message_id not in offered:
                    raise self.broken(
                        f"{said.party} requests {message_id.hex()[:16]}, which {said.peer} does not offer"
                    )
                del offered[message_id]
        elif said.record.kind == ACK:
            received = self._received.get(key, Counter())
            for message_id in said.record.ids:
                received[message_id] -= 1
                if received[message_id] < 0:
                    raise self.broken(f"{said.party} acknowledges {message_id.hex()[:16]} to {said.peer} without cause")


class ModeKept(Invariant):
    """Interactive devices send what was requested since they last offered or sent it; batch devices offer nothing."""

    name = "mode-kept"

    def __init__(self) -> None:
        self._requested: set[tuple[str, str, bytes]] = set()

    def handlers(self) -> Handlers:
        """Look at requests and at what follows them."""
        return {seen.Heard: self._on_heard, seen.Said: self._on_said}

    def _on_heard(self, heard: seen.Heard, _now: Instant) -> None:
        if heard.record.kind == REQUEST:
            self._requested.update((heard.party, heard.peer, message_id) for message_id in heard.record.ids)

    def _on_said(self, said: seen.Said, _now: Instant) -> None:
        if said.record.kind not in {OFFER, MESSAGE}:
            return
        if said.mode == "batch" and said.record.kind == OFFER:
            raise self.broken(f"{said.party} offers in batch mode")
        for message_id in said.record.ids:
            key = (said.party, said.peer, message_id)
            if said.mode == "interactive" and said.record.kind == MESSAGE and key not in self._requested:
                raise self.broken(f"{said.party} sends {message_id.hex()[:16]}, which {said.peer} has not requested")
            self._requested.discard(key)


class Paced(Invariant):
    """Whatever a peer asks for, it is sent a message at most twice within the base interval of a connection."""

    name = "paced"

    def __init__(self) -> None:
        self._copies: dict[tuple[str, str], dict[bytes, list[Instant]]] = {}

    def handlers(self) -> Handlers:
        """Look at copies; a new connection begins anew, and so does a group that is shared anew."""
        return {seen.LineUp: self._on_line, seen.Shared: self._on_line, seen.Said: self._on_said}

    def _on_line(self, line: seen.LineUp | seen.Shared, _now: Instant) -> None:
        self._copies.pop((line.party, line.peer), None)

    def _on_said(self, said: seen.Said, now: Instant) -> None:
        if said.record.kind != MESSAGE:
            return
        message_id = said.record.ids[0]
        copies = self._copies.setdefault((said.party, said.peer), {}).setdefault(message_id, [])
        copies.append(now)
        del copies[:-COPIES_MAX]
        if len(copies) == COPIES_MAX and copies[-1] - copies[0] < BASE_US:
            raise self.broken(
                f"{said.party} sends {message_id.hex()[:16]} to {said.peer} {COPIES_MAX} times in a second"
            )


class Faithful(Invariant):
    """What is delivered, or sent on, is what somebody made, byte for byte."""

    name = "faithful"

    def __init__(self) -> None:
        self._bodies: dict[bytes, bytes] = {}

    def handlers(self) -> Handlers:
        """Look at what is made, told and sent."""
        return {seen.Made: self._on_made, seen.Told: self._on_told, seen.Said: self._on_said}

    def _on_made(self, made: seen.Made, _now: Instant) -> None:
        self._bodies[made.message_id] = made.body

    def _on_told(self, told: seen.Told, _now: Instant) -> None:
        if told.body is not None and told.body != self._bodies.get(told.message_id):
            raise self.broken(f"{told.party} was told of {told.message_id.hex()[:16]} with another body")

    def _on_said(self, said: seen.Said, _now: Instant) -> None:
        record = said.record
        if record.kind == MESSAGE and record.body != self._bodies.get(record.ids[0]):
            raise self.broken(f"{said.party} sends {record.ids[0].hex()[:16]}, which nobody has made")


class CausalOrder(Invariant):
    """An application is told of a message once in the life of its store, after what it depends on, in lasting order."""

    name = "causal-order"

    def __init__(self) -> None:
        self._dependencies: dict[bytes, tuple[bytes, ...] | None] = {}
        self._orders: dict[tuple[str, bytes], dict[bytes, int]] = {}
        self._shown: dict[str, dict[bytes, seen.State]] = {}

    def handlers(self) -> Handlers:
        """Look at what is made, at deliveries, and at what devices show when they start."""
        return {seen.Made: self._on_made, seen.Told: self._on_told, seen.Began: self._on_began}

    def _on_made(self, made: seen.Made, _now: Instant) -> None:
        self._dependencies[made.message_id] = dependencies_of(made.body) if made.has_dependencies else ()

    def _on_told(self, told: seen.Told, _now: Instant) -> None:
        orders = self._orders.setdefault((told.party, told.group_id), {})
        short = told.message_id.hex()[:16]
        if told.message_id in orders:
            raise self.broken(f"{told.party} was told of {short} twice")
        if told.order <= max(orders.values(), default=0):
            raise self.broken(f"{told.party} was told of {short} as number {told.order}, after a later one")
        dependencies = self._dependencies.get(told.message_id)
        if dependencies is None:
            raise self.broken(f"{told.party} was told of {short}, which no client takes")
        missing = [each for each in dependencies if each not in orders and not self._is_silent(told, each)]
        if missing:
            raise self.broken(f"{told.party} was told of {short} before {missing[0].hex()[:16]}")
        orders[told.message_id] = told.order

    def _is_silent(self, told: seen.Told, dependency: bytes) -> bool:
        """Return whether a restart came between disk and application, so that it was never told of a delivery."""
        shown = self._shown.get(told.party, {}).get(dependency)
        return shown is not None and shown.state == DELIVERED and shown.order < told.order

    def _on_began(self, began: seen.Began, _now: Instant) -> None:
        self._shown[began.party] = began.states
        for (party, _group), orders in self._orders.items():
            if party != began.party:
                continue
            for message_id, order in orders.items():
                state = began.states.get(message_id)
                if state is None or state.state != DELIVERED or state.order != order:
                    raise self.broken(f"{party} forgot over a restart that {message_id.hex()[:16]} was number {order}")


class Bounded(Invariant):
    """Nothing that a peer can make grow passes its limit."""

    name = "bounded"

    def __init__(self) -> None:
        self._wanted: dict[tuple[str, str], int] = {}

    def handlers(self) -> Handlers:
        """Look at requests and sizes."""
        return {seen.Heard: self._on_heard, seen.Said: self._on_said, seen.Sized: self._on_sized}

    def _on_sized(self, sized: seen.Sized, _now: Instant) -> None:
        sizes = sized.sizes
        if sizes["offered"] > OFFERED_MAX * sizes["peers"] or sizes["pending"] > sizes["messages"]:
            raise self.broken(f"{sized.party} holds too much: {sizes}")

    def _on_heard(self, heard: seen.Heard, _now: Instant) -> None:
        self._wanted[heard.party, heard.peer] = 0

    def _on_said(self, said: seen.Said, _now: Instant) -> None:
        if said.record.kind != REQUEST:
            return
        key = (said.party, said.peer)
        self._wanted[key] = self._wanted.get(key, 0) + len(said.record.ids)
        if self._wanted[key] > OFFERED_MAX:
            raise self.broken(f"{said.party} remembered {self._wanted[key]} offers of {said.peer}")


class Agreed(Invariant):
    """Members of a group that have had the time were delivered the same messages; whoever got another got it alone.

    What is pending or invalid is not handed on, so only the peers of a hostile author have it.
    """

    name = "agreed"

    def handlers(self) -> Handlers:
        """Look at what members have."""
        return {seen.Stood: self._on_stood}

    def _on_stood(self, stood: seen.Stood, _now: Instant) -> None:
        delivered = {
            name: {each for each, state in states.items() if state.state == DELIVERED}
            for name, states in stood.sets.items()
        }
        first_name, first = next(iter(delivered.items()))
        for name, other in delivered.items():
            if differing := sorted(first ^ other):
                raise self.broken(
                    f"{first_name} and {name} differ in {len(differing)} messages, as in {differing[0].hex()[:16]}: "
                    f"{stood.sets[first_name].get(differing[0])} and {stood.sets[name].get(differing[0])}"
                )


class Owed(Invariant):
    """What is due happens."""

    name = "owed"

    def handlers(self) -> Handlers:
        """Look at complaints."""
        return {seen.LeftHanging: self._on_hanging}

    def _on_hanging(self, hanging: seen.LeftHanging, _now: Instant) -> None:
        raise self.broken(hanging.what)


def bsp_invariants() -> list[Invariant]:
    """Return one checker of each law."""
    return [
        OnDiskFirst(),
        SharedOnly(),
        AskedFor(),
        ModeKept(),
        Paced(),
        Faithful(),
        CausalOrder(),
        Bounded(),
        Agreed(),
        Owed(),
    ]
