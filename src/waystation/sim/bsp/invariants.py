"""Invariants of BSP group synchronisation, one checker class each.

``BspNetwork`` passes each observation to them. Checkers see only observations: records on connections, reports to
applications, visible message states, and whether a record's data is in the store. They never inspect a device. Spec:
bsp 2 to 4, 10.
"""

from collections import Counter
from typing import Final

from waystation.core.instant import Instant
from waystation.sim.bsp import observations as seen
from waystation.sim.bsp.records import ACK, KINDS, MESSAGE, OFFER, REQUEST, dependencies_of
from waystation.sim.invariants import Invariant, Liveness
from waystation.sim.observations import DiskLost, Sized

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
"""Base interval of every connection here."""
COPIES_MAX: Final = 3
"""So many copies within it are too many (bsp 11, clarification 9)."""
DELIVERED: Final = 2
ID_BYTES: Final = 32
OF_MESSAGES: Final = ("bsp_messages", "bsp_states")
"""Tables whose keys end with the identifier of a message."""


class _ExceptLostMessages(Invariant):
    """Knows which messages a disk has lost: their rows are damaged, or changed since the copy that was restored."""

    def __init__(self) -> None:
        self._lost: dict[int | str, set[bytes]] = {}

    def _on_disk_lost(self, lost: DiskLost, _now: Instant) -> None:
        ids = {row.key[-ID_BYTES:] for row in lost.lost if row.table in OF_MESSAGES}
        self._lost.setdefault(lost.node, set()).update(ids)

    def has_lost(self, host: str, message_id: bytes) -> bool:
        """Return whether the disk of a host ever lost this message."""
        return message_id in self._lost.get(host, ())


class OnDiskFirst(_ExceptLostMessages):
    """Nothing is acknowledged, offered or sent that a restart could lose."""

    name = "on-disk-first"

    def _on_sent(self, sent: seen.Sent, _now: Instant) -> None:
        unstored = [each for each in sent.unstored if not self.has_lost(sent.host, each)]
        if unstored:
            kind = KINDS[sent.record.kind]
            raise self.broken(f"{kind} of {sent.host} names {unstored[0].hex()[:16]}, which is not on its disk")


class SharedOnly(Invariant):
    """A peer learns nothing of a group that is not shared with it: only a REQUEST may name its messages."""

    name = "shared-only"

    def __init__(self) -> None:
        self._shared: set[tuple[str, str, bytes]] = set()
        self._groups: dict[bytes, bytes] = {}

    def _on_made(self, made: seen.Made, _now: Instant) -> None:
        self._groups[made.message_id] = made.group_id

    def _on_shared(self, shared: seen.Shared, _now: Instant) -> None:
        key = (shared.host, shared.peer, shared.group_id)
        (self._shared.add if shared.is_shared else self._shared.discard)(key)

    def _on_sent(self, sent: seen.Sent, _now: Instant) -> None:
        if sent.record.kind == REQUEST:
            return
        for message_id in sent.record.ids:
            group_id = self._groups.get(message_id)
            if group_id is None:
                raise self.broken(f"{sent.host} names {message_id.hex()[:16]} to {sent.peer}, which nobody ever made")
            if (sent.host, sent.peer, group_id) not in self._shared:
                raise self.broken(f"{sent.host} names {message_id.hex()[:16]} to {sent.peer}, who is not to know of it")


class AskedFor(Invariant):
    """A device requests what its peer has offered since it asked last, and acknowledges what it was given."""

    name = "asked-for"

    def __init__(self) -> None:
        self._offered: dict[tuple[str, str], dict[bytes, None]] = {}
        self._received: dict[tuple[str, str], Counter[bytes]] = {}

    def _on_started(self, started: seen.Started, _now: Instant) -> None:
        for key in [key for key in self._offered if key[0] == started.host]:
            del self._offered[key]
        # What was sent of an acknowledgement just before a crash may not have reached the disk: it may come again.
        for (host, _peer), received in self._received.items():
            if host == started.host:
                for message_id in received:
                    received[message_id] = max(1, received[message_id])

    def _on_received(self, received: seen.Received, _now: Instant) -> None:
        key = (received.host, received.peer)
        if received.record.kind == OFFER:
            offered = self._offered.setdefault(key, {})
            for message_id in received.record.ids:
                offered[message_id] = None
        if received.record.kind in {OFFER, MESSAGE}:
            self._received.setdefault(key, Counter()).update(set(received.record.ids))

    def _on_sent(self, sent: seen.Sent, _now: Instant) -> None:
        key = (sent.host, sent.peer)
        if sent.record.kind == REQUEST:
            offered = self._offered.get(key, {})
            for message_id in sent.record.ids:
                if message_id not in offered:
                    raise self.broken(f"{sent.host} requests {message_id.hex()[:16]}, which {sent.peer} does not offer")
                del offered[message_id]
        elif sent.record.kind == ACK:
            received = self._received.get(key, Counter())
            for message_id in sent.record.ids:
                received[message_id] -= 1
                if received[message_id] < 0:
                    raise self.broken(f"{sent.host} acknowledges {message_id.hex()[:16]} to {sent.peer} without cause")


class ModeKept(Invariant):
    """Interactive devices send what was requested since they last offered or sent it; batch devices offer nothing."""

    name = "mode-kept"

    def __init__(self) -> None:
        self._requested: set[tuple[str, str, bytes]] = set()

    def _on_received(self, received: seen.Received, _now: Instant) -> None:
        if received.record.kind == REQUEST:
            self._requested.update((received.host, received.peer, message_id) for message_id in received.record.ids)

    def _on_sent(self, sent: seen.Sent, _now: Instant) -> None:
        if sent.record.kind not in {OFFER, MESSAGE}:
            return
        if sent.mode == "batch" and sent.record.kind == OFFER:
            raise self.broken(f"{sent.host} offers in batch mode")
        for message_id in sent.record.ids:
            key = (sent.host, sent.peer, message_id)
            if sent.mode == "interactive" and sent.record.kind == MESSAGE and key not in self._requested:
                raise self.broken(f"{sent.host} sends {message_id.hex()[:16]}, which {sent.peer} has not requested")
            self._requested.discard(key)


class Paced(Invariant):
    """Whatever a peer asks for, it is sent a message at most twice within the base interval of a connection."""

    name = "paced"

    def __init__(self) -> None:
        self._copies: dict[tuple[str, str], dict[bytes, list[Instant]]] = {}

    def _on_line(self, connection: seen.LineUp | seen.Shared, _now: Instant) -> None:
        self._copies.pop((connection.host, connection.peer), None)

    def _on_sent(self, sent: seen.Sent, now: Instant) -> None:
        if sent.record.kind != MESSAGE:
            return
        message_id = sent.record.ids[0]
        copies = self._copies.setdefault((sent.host, sent.peer), {}).setdefault(message_id, [])
        copies.append(now)
        del copies[:-COPIES_MAX]
        if len(copies) == COPIES_MAX and copies[-1] - copies[0] < BASE_US:
            raise self.broken(
                f"{sent.host} sends {message_id.hex()[:16]} to {sent.peer} {COPIES_MAX} times in a second"
            )


class Faithful(Invariant):
    """What is delivered, or sent on, is what somebody made, byte for byte."""

    name = "faithful"

    def __init__(self) -> None:
        self._bodies: dict[bytes, bytes] = {}

    def _on_made(self, made: seen.Made, _now: Instant) -> None:
        self._bodies[made.message_id] = made.body

    def _on_report(self, report: seen.Reported, _now: Instant) -> None:
        if report.body is not None and report.body != self._bodies.get(report.message_id):
            raise self.broken(f"{report.host} got a report of {report.message_id.hex()[:16]} with another body")

    def _on_sent(self, sent: seen.Sent, _now: Instant) -> None:
        record = sent.record
        if record.kind == MESSAGE and record.body != self._bodies.get(record.ids[0]):
            raise self.broken(f"{sent.host} sends {record.ids[0].hex()[:16]}, which nobody has made")


class CausalOrder(_ExceptLostMessages):
    """A message is reported to an application once in the life of its store, after what it depends on, in order."""

    name = "causal-order"

    def __init__(self) -> None:
        super().__init__()
        self._dependencies: dict[bytes, tuple[bytes, ...] | None] = {}
        self._orders: dict[tuple[str, bytes], dict[bytes, int]] = {}
        self._shown: dict[str, dict[bytes, seen.State]] = {}

    def _on_made(self, made: seen.Made, _now: Instant) -> None:
        self._dependencies[made.message_id] = dependencies_of(made.body) if made.has_dependencies else ()

    def _on_disk_lost(self, lost: DiskLost, now: Instant) -> None:
        super()._on_disk_lost(lost, now)
        for (host, _group), orders in self._orders.items():
            for message_id in [each for each in orders if host == lost.node and self.has_lost(host, each)]:
                del orders[message_id]

    def _on_report(self, report: seen.Reported, _now: Instant) -> None:
        orders = self._orders.setdefault((report.host, report.group_id), {})
        short = report.message_id.hex()[:16]
        if report.message_id in orders:
            raise self.broken(f"{report.host} got a report of {short} twice")
        if report.order <= max(orders.values(), default=0):
            raise self.broken(f"{report.host} got a report of {short} as number {report.order}, after a later one")
        dependencies = self._dependencies.get(report.message_id)
        if dependencies is None:
            raise self.broken(f"{report.host} got a report of {short}, which no client takes")
        missing = [
            each
            for each in dependencies
            if each not in orders and not self._is_silent(report, each) and not self.has_lost(report.host, each)
        ]
        if missing:
            raise self.broken(f"{report.host} got a report of {short} before {missing[0].hex()[:16]}")
        orders[report.message_id] = report.order

    def _is_silent(self, report: seen.Reported, dependency: bytes) -> bool:
        """Return whether a restart came between disk and application, so that a delivery was never reported."""
        shown = self._shown.get(report.host, {}).get(dependency)
        return shown is not None and shown.state == DELIVERED and shown.order < report.order

    def _on_started(self, started: seen.Started, _now: Instant) -> None:
        self._shown[started.host] = started.states
        for (host, _group), orders in self._orders.items():
            if host != started.host:
                continue
            for message_id, order in orders.items():
                state = started.states.get(message_id)
                if state is None or state.state != DELIVERED or state.order != order:
                    raise self.broken(f"{host} forgot over a restart that {message_id.hex()[:16]} was number {order}")


class Bounded(Invariant):
    """Nothing that a peer can make grow passes its limit."""

    name = "bounded"

    def __init__(self) -> None:
        self._wanted: dict[tuple[str, str], int] = {}

    def _on_sized(self, sized: Sized, _now: Instant) -> None:
        sizes = sized.sizes
        if sizes["offered"] > OFFERED_MAX * sizes["peers"] or sizes["pending"] > sizes["messages"]:
            raise self.broken(f"{sized.node} holds too much: {sizes}")

    def _on_received(self, received: seen.Received, _now: Instant) -> None:
        self._wanted[received.host, received.peer] = 0

    def _on_sent(self, sent: seen.Sent, _now: Instant) -> None:
        if sent.record.kind != REQUEST:
            return
        key = (sent.host, sent.peer)
        self._wanted[key] = self._wanted.get(key, 0) + len(sent.record.ids)
        if self._wanted[key] > OFFERED_MAX:
            raise self.broken(f"{sent.host} remembered {self._wanted[key]} offers of {sent.peer}")


class Agreed(_ExceptLostMessages):
    """Members of a group that have had the time were delivered the same messages; whoever got another got it alone.

    What is pending or invalid is not handed on, so only the peers of a hostile author have it. A message that anybody's
    disk lost may be missing, and so may all that depends on it: who has acknowledged it is not offered it again.
    """

    name = "agreed"

    def __init__(self) -> None:
        super().__init__()
        self._dependencies: dict[bytes, tuple[bytes, ...]] = {}
        """In the order in which they were made: none depends on a later one."""

    def _on_made(self, made: seen.Made, _now: Instant) -> None:
        self._dependencies[made.message_id] = (dependencies_of(made.body) or ()) if made.has_dependencies else ()

    def _excused(self) -> set[bytes]:
        """Return what was lost, and all that depends on it."""
        excused = set().union(*self._lost.values())
        for message_id, dependencies in self._dependencies.items() if excused else ():
            if not excused.isdisjoint(dependencies):
                excused.add(message_id)
        return excused

    def _on_compared(self, compared: seen.Compared, _now: Instant) -> None:
        excused = self._excused()
        delivered = {
            name: {each for each, state in states.items() if state.state == DELIVERED and each not in excused}
            for name, states in compared.sets.items()
        }
        first_name, first = next(iter(delivered.items()))
        for name, other in delivered.items():
            if differing := sorted(first ^ other):
                raise self.broken(
                    f"{first_name} and {name} differ in {len(differing)} messages, as in {differing[0].hex()[:16]}: "
                    f"{compared.sets[first_name].get(differing[0])} and {compared.sets[name].get(differing[0])}"
                )


class Owed(Liveness):
    """What is due happens."""

    name = "owed"


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
