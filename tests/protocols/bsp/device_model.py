"""A device that is obviously right: flags per message and peer in a dictionary, and rules that scan all of them.

It is the oracle for ``waystation.protocols.bsp.device.sync`` in modes interactive and batch (auto chooses between these
that no rule prescribes). Its tables are those of bsp 2 and 3, line by line; its graphs are ``GraphModel``. What is on
disk is a set of identifiers: nothing is said about a message before it is there.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.protocols.bsp.graph_model import GraphModel, Told
from waystation.protocols.bsp.device.links import CAP_FACTOR, LinkTerms, Mode, Visibility

US_PER_MS = 1_000


@dataclass
class Flags:
    """What seed 4.1 stores of one message and one peer, and what the last copy was."""

    hold: bool = False
    ack: bool = False
    request: bool = False
    count: int = 0
    next_at: int = 0
    base_us: int = 0
    way: "Way | None" = None
    message_at: int | None = None

    def forget_copies(self):
        """Be as if nothing had gone out or been asked for."""
        self.request, self.count, self.next_at, self.base_us, self.way, self.message_at = False, 0, 0, 0, None, None


@dataclass(eq=False)
class Way:
    """One way to a peer."""

    terms: LinkTerms
    is_up: bool = True

    @property
    def base_us(self):
        """Its base interval."""
        return self.terms.base_ms * US_PER_MS

    def interval_us(self, count):
        """Return the interval after copy number ``count`` + 1."""
        cap_ms = self.terms.base_ms * CAP_FACTOR if self.terms.cap_ms is None else self.terms.cap_ms
        return min(cap_ms * US_PER_MS, self.base_us * 2**count)


@dataclass
class Known:
    """A message that the device knows."""

    group_id: bytes
    told: Told
    body: bytes
    body_present: bool = True
    on_disk: bool = False


class Said(NamedTuple):
    """What is written at one opportunity."""

    acks: list[bytes]
    requests: list[bytes]
    bodies: list[bytes]
    offers: list[bytes]


@dataclass
class DeviceModel:
    """All that one device knows."""

    mode: Mode
    graphs: dict[bytes, GraphModel] = field(default_factory=dict)
    known: dict[bytes, Known] = field(default_factory=dict)
    visibility: dict[tuple[bytes, bytes], Visibility] = field(default_factory=dict)
    """By peer and group; absent is invisible."""
    offered: dict[bytes, list[bytes]] = field(default_factory=dict)
    flags: dict[tuple[bytes, bytes], Flags] = field(default_factory=dict)
    """By peer and message."""
    ways: dict[bytes, list[Way]] = field(default_factory=dict)

    # Questions

    def of(self, peer, message_id):
        """Return the flags of a message and a peer."""
        return self.flags.setdefault((peer, message_id), Flags())

    def sees(self, peer, message_id):
        """Say whether a message is known, of a group that is shared with a peer in whatever way."""
        known = self.known.get(message_id)
        return known is not None and (peer, known.group_id) in self.visibility

    def is_shared(self, peer, message_id):
        """Say whether a message is synchronised with a peer."""
        known = self.known.get(message_id)
        return (
            known is not None
            and self.visibility.get((peer, known.group_id)) is Visibility.SHARED
            and message_id in self.graphs[known.group_id].shared()
        )

    def is_candidate(self, peer, message_id):
        """Say whether a message may still have to go out to a peer."""
        flags = self.of(peer, message_id)
        wanted = flags.request or not flags.hold
        return wanted and self.is_shared(peer, message_id) and self.known[message_id].body_present

    def due(self, peer, now):
        """Return what is due for a peer (bsp 3)."""
        mode = self.spoken_over(peer).terms.mode or self.mode
        ready = [one for one in self._by_age() if self.is_candidate(peer, one) and self.known[one].on_disk]
        ready = [one for one in ready if self.of(peer, one).next_at <= now]
        bodies = [one for one in ready if mode is Mode.BATCH or self.of(peer, one).request]
        return Said(
            [one for one in self.known if self.of(peer, one).ack and self.known[one].on_disk],
            list(self.offered[peer]),
            bodies,
            [one for one in ready if one not in bodies],
        )

    def next_at(self, peer):
        """Return the earliest time at which a message may go out to a peer, or None."""
        times = [self.of(peer, one).next_at for one in self.known if self.is_candidate(peer, one)]
        return min(times, default=None)

    # What happens

    def share_group(self, peer, group_id, visibility):
        """A group becomes shared with a peer, or no longer."""
        before = self.visibility.pop((peer, group_id), Visibility.INVISIBLE)
        mine = [one for one, known in self.known.items() if known.group_id == group_id]
        if visibility is Visibility.INVISIBLE:
            for one in mine:
                self.flags.pop((peer, one), None)
            return
        self.visibility[peer, group_id] = visibility
        if visibility is before:
            return
        for one in mine:
            self.of(peer, one).forget_copies()
            if self.is_shared(peer, one):
                self._becomes_shared(peer, one)

    def take_message(self, known, *, from_peer=None, share=True):
        """A message comes, of our own or from a peer with whom its group is shared."""
        message_id, graph = known.told.message_id, self.graphs[known.group_id]
        if message_id in self.known:
            if from_peer is not None:
                self._received(from_peer, message_id)
            return
        self.known[message_id] = known
        for peer in list(self.offered):
            is_offered = message_id in self.offered[peer] and from_peer is not None
            if self.sees(peer, message_id) and (peer == from_peer or is_offered):
                self._credit(peer, message_id)
        before = graph.shared()
        delivered, invalid = graph.tell(known.told)
        for one in invalid:
            self.known[one].body_present = False
        graph.roots_shared.update(one for one in delivered if share or one != message_id)
        self._spread(known.group_id, before)

    def share_message(self, message_id):
        """The application shares a delivered message."""
        graph = self.graphs[self.known[message_id].group_id]
        before = graph.shared()
        graph.share(message_id)
        self._spread(self.known[message_id].group_id, before)

    def delete(self, message_id):
        """The application removes a body; who offers it is told that we know it (bsp 4)."""
        self.known[message_id].body_present = False
        for peer in self.offered:
            if message_id in self.offered[peer] and self.sees(peer, message_id):
                self._credit(peer, message_id)

    def hear_offer(self, peer, ids):
        """A peer offers messages."""
        for one in ids:
            if self.sees(peer, one):
                self._received(peer, one)
            elif one not in self.offered[peer]:
                self.offered[peer].append(one)

    def hear_ack(self, peer, ids):
        """A peer holds messages."""
        for one in ids:
            if self.is_shared(peer, one):
                flags = self.of(peer, one)
                flags.hold, flags.request = True, False

    def hear_request(self, peer, ids, now):
        """A peer asks for messages; a base interval is that of the last copy's way or of the newest, if shorter."""
        for one in ids:
            if self.is_shared(peer, one) and self.known[one].body_present:
                flags = self.of(peer, one)
                flags.request = True
                base_us = min([flags.base_us, *([self.spoken_over(peer).base_us] if self.ways[peer] else [])])
                if flags.message_at is None or now - flags.message_at >= base_us:
                    flags.count, flags.next_at = 0, now

    def wrote(self, peer, said, now):
        """Records have left for a peer over its newest way."""
        way = self.spoken_over(peer)
        for one in said.acks:
            self.of(peer, one).ack = False
        self.offered[peer] = [one for one in self.offered[peer] if one not in said.requests]
        for one in (*said.bodies, *said.offers):
            flags = self.of(peer, one)
            flags.request = False
            flags.next_at = now + way.interval_us(flags.count)
            flags.count += 1
            flags.way, flags.base_us = way, way.base_us
            if one in said.bodies:
                flags.message_at = now

    def spoken_over(self, peer):
        """Return the newest way on which word gets through at once, else the newest of those that store."""
        live = [way for way in self.ways[peer] if not way.terms.outlives]
        return (live or self.ways[peer])[-1]

    def way_up(self, peer, way, now):
        """A way to a peer stands."""
        self.ways[peer].append(way)
        if self.spoken_over(peer) is way:
            self._revive(peer, now)

    def way_down(self, peer, way, now):
        """A way to a peer is gone."""
        way.is_up = False
        self.ways[peer].remove(way)
        if self.ways[peer]:
            self._revive(peer, now)

    def leave(self, group_id):
        """The device is no member of a group any more, and begins anew when it joins again."""
        self.graphs[group_id] = GraphModel()
        mine = {one for one, known in self.known.items() if known.group_id == group_id}
        self.known = {one: known for one, known in self.known.items() if one not in mine}
        self.flags = {key: flags for key, flags in self.flags.items() if key[1] not in mine}
        self.visibility = {key: how for key, how in self.visibility.items() if key[1] != group_id}

    def restart(self):
        """Everything was on disk; what only memory knew is gone."""
        for peer in self.offered:
            self.offered[peer], self.ways[peer] = [], []
        for flags in self.flags.values():
            flags.forget_copies()

    # Consequences

    def _by_age(self):
        return sorted(self.known, key=lambda one: (self.known[one].told.timestamp, one))

    def _received(self, peer, message_id):
        flags = self.of(peer, message_id)
        flags.hold, flags.ack, flags.request = True, True, False

    def _credit(self, peer, message_id):
        self.offered[peer] = [one for one in self.offered[peer] if one != message_id]
        self._received(peer, message_id)

    def _becomes_shared(self, peer, message_id):
        if message_id in self.offered[peer]:
            self._credit(peer, message_id)

    def _spread(self, group_id, before):
        for one in self.graphs[group_id].shared() - before:
            for peer in self.offered:
                if self.is_shared(peer, one):
                    self._becomes_shared(peer, one)

    def _revive(self, peer, now):
        newest = self.spoken_over(peer)
        for one in self.known:
            flags = self.of(peer, one)
            if flags.way is not None and self.is_candidate(peer, one):
                is_lost = not flags.way.is_up and not flags.way.terms.outlives
                if is_lost:
                    flags.message_at = None
                if is_lost or newest.base_us < flags.base_us:
                    flags.next_at = now
