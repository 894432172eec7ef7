"""A simple model of all connections in a simulated MERK mesh, which computes the frames that must be delivered.

Nodes and clients report each connection to it; the invariants ask which frames are owed. The model does not inspect
relays. A presence is one connection, of a client to a node or between two nodes. It records when the connection was
made, last disturbed, and closed. Every query scans all presences.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.sim.net.link import Stream
from waystation.sim.schedule import Schedule

__all__ = ["CACHED_US", "PINGS_US", "Presence", "Presences"]

GRACE_US: Final = 3 * MICROSECONDS_PER_SECOND  # until the other side of an undisturbed connection knows that it ended
CACHED_US: Final = 75 * MICROSECONDS_PER_SECOND  # a location is kept for 60 s (specs/merk.md 5)
PINGS_US: Final = 40 * MICROSECONDS_PER_SECOND  # a WebSocket that answers no ping ends (specs/merk.md 8)
KEPT_US: Final = 2 * CACHED_US


class Presence:
    """One connection."""

    def __init__(
        self,
        node: int,
        other: bytes | int,
        stream: Stream,
        schedule: Schedule,
        *,
        is_honest: bool,
        is_thief: bool = False,
    ) -> None:
        """Note a connection that is being made.

        Args:
            node: The node, or the one that dials of two.
            other: Key of the client, or number of the other node.
            stream: The connection itself.
            schedule: The clock.
            is_honest: Whether both its ends keep to the protocol.
            is_thief: Whether one end says that it has clients that it has not.
        """
        self.node = node
        self.other = other
        self._stream = stream
        self._schedule = schedule
        self.up_at: Instant | None = None
        """When it was ready for use, None before."""
        self.undisturbed_since = schedule.now
        """Nothing has disturbed it since."""
        self._over_at: Instant | None = None
        self.is_honest = is_honest
        self.is_thief = is_thief

    @property
    def is_open(self) -> bool:
        """Whether it stands on both sides."""
        stream = self._stream
        return stream.client.is_open and stream.node.is_open and self._over_at is None and not stream.is_cut

    def up(self, now: Instant) -> None:
        """The connection is ready for use."""
        self.up_at = now

    def disturb(self, until: Instant) -> None:
        """Something holds it up until then."""
        self.undisturbed_since = max(self.undisturbed_since, until)

    def hold_up(self, duration_us: int) -> None:
        """Let nothing arrive for a while."""
        self.disturb(Instant(self._schedule.now + duration_us))
        self._stream.stall(duration_us)

    def lose(self, break_off: Callable[[], None] | None = None) -> None:
        """Let nothing pass any more, until both sides find out by an unanswered ping; ``break_off`` ends it then."""
        until = Instant(self._schedule.now + PINGS_US)
        self.disturb(until)
        self._stream.cut()
        self._schedule.at(until, break_off or self._stream.break_off)

    def over(self, at: Instant) -> None:
        """It ends: one side knows it at ``at``, the other soon after that."""
        if self._over_at is None:
            self._over_at = at

    def existed(self, since: Instant) -> bool:
        """Return whether some node may have believed in it at ``since`` or later."""
        return self._over_at is None or max(self._over_at, self.undisturbed_since) + GRACE_US > since

    def was_up(self, since: Instant) -> bool:
        """Return whether it became ready since then; one that ended before that may have proved nothing."""
        up_at, over_at = self.up_at, self._over_at
        return up_at is not None and since <= up_at <= self._schedule.now and (over_at is None or up_at <= over_at)

    def stood(self, since: Instant) -> bool:
        """Return whether it was ready at ``since``, stands now, and nothing happened to it in between."""
        return (
            self.is_honest
            and self.is_open
            and self.up_at is not None
            and max(self.up_at, self.undisturbed_since) <= since
        )


class Presences:
    """All connections of one world."""

    def __init__(self, schedule: Schedule) -> None:
        """Begin with none."""
        self._schedule = schedule
        self._clients: dict[bytes, list[Presence]] = {}
        self._links: dict[tuple[int, int], list[Presence]] = {}

    def add_client(self, key: bytes, node: int, stream: Stream, *, is_honest: bool = True) -> Presence:
        """Note a connection of the client ``key``."""
        presence = Presence(node, key, stream, self._schedule, is_honest=is_honest)
        self._clients[key] = [*self._recent(self._clients.get(key, ())), presence]
        return presence

    def add_link(
        self, node: int, other: int, stream: Stream, *, is_honest: bool = True, is_thief: bool = False
    ) -> Presence:
        """Note a connection that ``node`` dials; it counts as ready at once, as the margins of questions are long."""
        presence = Presence(node, other, stream, self._schedule, is_honest=is_honest, is_thief=is_thief)
        presence.up(self._schedule.now)
        pair = _pair(node, other)
        self._links[pair] = [*self._recent(self._links.get(pair, ())), presence]
        return presence

    def node_down(self, node: int) -> None:
        """A node is gone: all its connections end with it."""
        clients = (presence for presences in self._clients.values() for presence in presences if presence.node == node)
        for presence in (*self._links_of(node), *clients):
            presence.over(self._schedule.now)

    def is_known(self, key: bytes) -> bool:
        """Return whether a client with this key was ever here."""
        return key in self._clients

    def proved_at(self, key: bytes, node: int, since: Instant) -> bool:
        """Return whether a client with extensions has been ready at a node since then, so that the node knows it."""
        return any(presence.was_up(since) for presence in self._clients.get(key, ()) if presence.node == node)

    def was_at(self, key: bytes, node: int) -> bool:
        """Return whether a client was connected to a node in the last minutes."""
        return any(presence.node == node for presence in self._clients.get(key, ()))

    def owes(
        self, node: int, target: bytes, since: Instant, crosses: Callable[[int], bool] = lambda _other: True
    ) -> bool:
        """Return whether a frame that ``node`` had between ``since`` and now must have reached ``target``.

        The target has been in the same places all the time, one of them is here or linked with here, and no half-dead
        connection, of it, to a node where it was, or to one that says it has everybody, can have swallowed the frame.
        ``crosses`` says whether a node must take it.
        """
        present = list(self._of(target, since))
        if not present or not all(presence.stood(since) for presence in present):
            return False
        # Of several places a node knows one, and it may be one that does not take the frame.
        linked = {presence.node for presence in present if self.is_linked(node, presence.node, since)}
        if not linked or not all(map(crosses, linked)):
            return False
        if any(
            presence.is_thief and presence.existed(since) and not presence.is_open for presence in self._links_of(node)
        ):
            return False
        cached = self._of(target, Instant(since - CACHED_US))
        return all(self._is_clear(node, presence.node, since) for presence in cached if presence.node != node)

    def is_shaky(self, target: bytes, since: Instant) -> bool:
        """Return whether a connection of ``target`` that may have been here since then was disturbed or has ended."""
        return any(not presence.stood(max(presence.up_at or since, since)) for presence in self._of(target, since))

    def is_silence_likely(self, node: int, since: Instant) -> bool:
        """Return whether a link of ``node`` that existed since then is new, disturbed, over, or with a hostile node."""
        return any(presence.existed(since) and not presence.stood(since) for presence in self._links_of(node))

    def is_linked(self, one: int, other: int, since: Instant) -> bool:
        """Return whether two nodes are the same, or all connections between them have stood, and there is one."""
        if one == other:
            return True
        links = self._between(one, other, since)
        return bool(links) and all(presence.stood(since) for presence in links)

    def _recent(self, presences: Sequence[Presence]) -> list[Presence]:
        """Leave out what no question will ask for any more."""
        horizon = Instant(self._schedule.now - KEPT_US)
        return [presence for presence in presences if presence.existed(horizon)]

    def _of(self, key: bytes, since: Instant) -> Iterator[Presence]:
        return (presence for presence in self._clients.get(key, ()) if presence.existed(since))

    def _links_of(self, node: int) -> list[Presence]:
        return [presence for pair, presences in self._links.items() if node in pair for presence in presences]

    def _between(self, one: int, other: int, since: Instant) -> list[Presence]:
        return [presence for presence in self._links.get(_pair(one, other), ()) if presence.existed(since)]

    def _is_clear(self, one: int, other: int, since: Instant) -> bool:
        """Return whether nothing between two nodes can swallow a frame: they are linked well, or not at all."""
        return all(presence.stood(since) for presence in self._between(one, other, since))


def _pair(one: int, other: int) -> tuple[int, int]:
    return min(one, other), max(one, other)
