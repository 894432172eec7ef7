"""Look-ups: remembers which node a client is connected to, and manages the searches for unknown clients.

``routing`` begins a search and passes the answers in. A search asks every linked node once; frames for its target are
queued meanwhile. It ends at the first node that shows the client's presence, when all nodes have denied, or at the time
limit. Any other claim waits until all nodes of ours have answered: that of a node which keeps the client's mail, that
of a node which was lately wrong, and the bare word of a node. The bare word counts for nothing where it comes from an
unnamed node, or where the client is known as one that signs its presence. Each answer counts only on the connection
that was asked.

This module sends nothing; ``routing`` sends the questions.

Spec: specs/merk.md 5 ("Ours' lookup"), 8, 10.7; MERK-LOOKUP, MERK-PRESENCE.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from waystation.core.instant import Instant, after_ms
from waystation.core.limits import surplus
from waystation.core.settings import InForce
from waystation.protocols.merk.limits import MerkLimits
from waystation.protocols.merk.messages import Presence, PresenceKind
from waystation.protocols.merk.session import Sending, Session, State

__all__ = ["Absent", "Location", "Lookup", "Lookups", "Proof"]

LOOKUP_MS: Final = 5_000  # specs/merk.md 5
ANSWER_MS: Final = 60_000  # how late an answer may be and still be no offence; a slow node is not a lying one
FOUND_MS: Final = 60_000  # spec 5
RENEW_MS: Final = 2 * LOOKUP_MS  # MERK-RENEW: a search that begins so long before a place ends is over before it
ABSENT_MS: Final = 2_000  # spec 5
MAILBOX_MS: Final = 2_000  # spec 5: as absence, because the client may come back anywhere (MERK-MAILPLACE)
DISTRUST_MS: Final = 60_000  # ours: how long the word of a node that was wrong about a client counts for less


class Proof(IntEnum):
    """What stands behind the claim that a node has a client; more counts before less."""

    NONE = 0
    MAILBOX = 1
    CONNECTED = 2


class Location:
    """The node that has a client, or its mailbox."""

    __slots__ = ("delivers", "is_asked_again", "issued_ms", "node", "proof", "until")

    def __init__(self, node: Session, until: Instant, presence: Presence | None = None) -> None:
        """Note a node's claim, with the presence that proves it."""
        self.node = node
        self.until = until
        self.proof = _proof_of(presence)
        self.issued_ms = presence.issued_ms if presence is not None else 0
        """When the client signed it, Unix milliseconds; 0 without proof."""
        self.delivers = False
        """Whether the node has said of a frame that it reached the client."""
        self.is_asked_again = False
        """Whether a search has begun while it counts."""


class Absent(NamedTuple):
    """No node has the client."""

    until: Instant


class Lookup:
    """One search."""

    __slots__ = (
        "asked_count",
        "askers",
        "began",
        "claim",
        "found_count",
        "node",
        "open",
        "owner",
        "queue",
        "queue_bytes",
        "target",
    )

    def __init__(self, target: bytes, owner: Session | None, now: Instant) -> None:
        """Begin a search for ``target`` on behalf of ``owner``."""
        self.target = target
        self.owner = owner
        self.began = now
        self.queue: list[Sending] = []
        self.queue_bytes = 0
        self.open: dict[Session, None] = {}
        """Nodes that were asked and have not answered."""
        self.claim: Location | None = None
        """The best claim so far that does not end the search."""
        self.node: Session | None = None
        """The node that has the client, once the search has ended well."""
        self.askers: list[Session] = []
        """Original relays that wait for the answer."""
        self.asked_count = 0
        self.found_count = 0

    @property
    def ends_at(self) -> Instant:
        """When it is over."""
        return after_ms(self.began, LOOKUP_MS)


class Lookups:
    """All searches and what they have found."""

    def __init__(self, limits: InForce[MerkLimits], is_able: Callable[[bytes], bool] = lambda _target: False) -> None:
        """Start knowing nothing; ``is_able`` says of a client whether it is known to sign its presence."""
        self._limits = limits
        self._is_able = is_able
        self._lookups: dict[bytes, Lookup] = {}
        """By target, the oldest first."""
        self._places: OrderedDict[bytes, Location | Absent] = OrderedDict()
        self.queued_bytes = 0
        """Bytes of the frames that wait for searches."""

    def __len__(self) -> int:
        """Return how many searches are under way."""
        return len(self._lookups)

    @property
    def places_count(self) -> int:
        """How many clients' places, or absences, are remembered."""
        return len(self._places)

    def place(self, target: bytes, now: Instant) -> Location | Absent | None:
        """Return what is known about a client, None when nothing is."""
        place = self._places.get(target)
        if place is None:
            return None
        # Spec 5: a location is known for 60 s, and no longer than its node is linked.
        if place.until <= now or (isinstance(place, Location) and place.node.state is State.CLOSED):
            del self._places[target]
            return None
        return place

    def is_to_be_renewed(self, target: bytes, place: Location, now: Instant) -> bool:
        """Return whether a client whose place counts must be searched for again, as frames for it come near its end."""
        # MERK-RENEW: once for each place. What a mailbox takes is bounded by its shares, not by the search.
        is_near_end = place.until <= after_ms(now, RENEW_MS)
        is_wanted = is_near_end and not place.is_asked_again and place.proof is not Proof.MAILBOX
        return is_wanted and target not in self._lookups

    def running(self, target: bytes) -> Lookup | None:
        """Return the search for a client, None when there is none."""
        return self._lookups.get(target)

    def begin(self, target: bytes, owner: Session | None, nodes: Iterable[Session], now: Instant) -> Lookup | None:
        """Begin a search and return it, its ``open`` nodes to be asked; None when there is no room for another.

        Args:
            target: Whom to look for.
            owner: Client on whose account it goes; None for our own.
            nodes: Linked nodes.
            now: Monotonic time.
        """
        limits = self._limits.now
        # Spec 8: searches at once are bounded, in all and of one client.
        if len(self._lookups) >= limits.lookups:
            return None
        if owner is not None and owner.searches >= limits.lookups_per_client:
            return None
        # Spec 5: frames for the target wait until this ends.
        lookup = self._lookups[target] = Lookup(target, owner, now)
        if owner is not None:
            owner.searches += 1
        for node in nodes:
            # A node that answers nothing is asked no more until old questions expire.
            if len(node.asked) < limits.questions_per_node:
                node.asked[target] = after_ms(now, ANSWER_MS)
                lookup.open[node] = None
        lookup.asked_count = len(lookup.open)
        return lookup

    def queue(self, lookup: Lookup, sending: Sending) -> bool:
        """Let a frame wait for a search; False when there is no room."""
        size = len(sending.frame)
        limits = self._limits.now
        too_many = len(lookup.queue) >= limits.lookup_frames
        # Spec 5: 64 frames and 256 KiB, or one larger frame.
        full = lookup.queue and (too_many or lookup.queue_bytes + size > limits.lookup_bytes)
        if full or self.queued_bytes + size > limits.lookup_bytes_all:
            return False
        lookup.queue.append(sending)
        lookup.queue_bytes += size
        self.queued_bytes += size
        return True

    def was_asked(self, node: Session, target: bytes, now: Instant) -> bool:
        """Return whether the node may still answer about a client, and take note of its answer."""
        # Spec 4: an answer counts from the node that was asked, once, and in time.
        until = node.asked.pop(target, None)
        return until is not None and now <= until

    def found(self, target: bytes, node: Session, now: Instant, presence: Presence | None = None) -> Lookup | None:
        """Note that a node has a client; return the search that ends with it, if there is one.

        Args:
            target: The client.
            node: Who says so.
            now: Monotonic time.
            presence: The client's own word, its signature checked; None for the node's bare word.
        """
        # MERK-PRESENCE: what a client signs cannot be had without it, so the bare word of a node does not count.
        if presence is None and (node.is_unnamed or self._is_able(target)):
            return self.absent(target, node, now)
        claim = Location(node, after_ms(now, _kept_ms(_proof_of(presence))), presence)
        lookup = self._lookups.get(target)
        if lookup is None:
            place = self.place(target, now)
            if not isinstance(place, Location) or self._displaces(claim, place, target, now):
                self._remember(target, claim)
            return None
        lookup.found_count += 1
        lookup.open.pop(node, None)
        # Spec 5: the first node that shows the client's presence ends the search.
        if claim.proof is Proof.CONNECTED and self._is_trusted(node, target, now):
            return self._end_found(lookup, claim, now)
        # Any other claim waits: a better one may still come.
        if lookup.claim is None or _order(claim) > _order(lookup.claim):
            lookup.claim = claim
        return self._settle(lookup, now)

    def delivers(self, node: Session, target: bytes) -> None:
        """A node says that a frame has reached a client."""
        place = self._places.get(target)
        if isinstance(place, Location) and place.node is node:
            place.delivers = True

    def _displaces(self, claim: Location, place: Location, target: bytes, now: Instant) -> bool:
        """Return whether a later claim takes the place of a known one."""
        if claim.proof is Proof.NONE:
            # Spec 5: a bare word displaces nothing that is proved or delivers, and an original's no node of ours.
            weaker = place.node.state is State.PEER and claim.node.state is not State.PEER
            return not (place.proof or place.delivers or weaker)
        if not self._is_trusted(claim.node, target, now):
            return False
        return (claim.proof, claim.issued_ms) > (place.proof, place.issued_ms)

    def absent(self, target: bytes, node: Session, now: Instant) -> Lookup | None:
        """Note that a node has not got a client; return the search when it ends with that."""
        lookup = self._lookups.get(target)
        if lookup is None or node not in lookup.open:
            return None
        # Spec 5: "no" needs the word of all.
        del lookup.open[node]
        return self._settle(lookup, now)

    def expired(self, now: Instant) -> list[Lookup]:
        """End and return the searches whose time is up; one with a claim ends well."""
        over = []
        # Spec 5: "no" needs the word of all, or 5 s.
        for lookup in self._lookups.values():
            # Searches are in the order of their end.
            if lookup.ends_at > now:
                break
            over.append(lookup)
        for lookup in over:
            if lookup.claim is not None:
                self._end_found(lookup, lookup.claim, now)
            else:
                self._end(lookup)
        return over

    def end_absent(self, lookup: Lookup, now: Instant) -> None:
        """Give up a search that has nobody to ask."""
        self._end(lookup)
        # MERK-RENEW: only the word of its own node ends a place before its time (``moved``).
        if isinstance(self.place(lookup.target, now), Location):
            return
        # Spec 5: absence is remembered for 2 s, so that a sender cannot have all nodes asked for every frame.
        self._remember(lookup.target, Absent(after_ms(now, ABSENT_MS)))

    def here(self, target: bytes) -> Lookup | None:
        """A client has come to us: forget what was known; return the search that ends with it, if there is one."""
        self._places.pop(target, None)
        lookup = self._lookups.get(target)
        if lookup is not None:
            self._end(lookup)
        return lookup

    def moved(self, target: bytes, node: Session) -> None:
        """Forget that a client is at a node."""
        place = self._places.get(target)
        if isinstance(place, Location) and place.node is node:
            del self._places[target]

    def distrust(self, node: Session, target: bytes, now: Instant) -> None:
        """A node was wrong about a client: believe it less for a while."""
        self.moved(target, node)
        # Bounded; the oldest distrust is forgotten first.
        for _ in range(surplus(len(node.distrusted) + 1, self._limits.now.distrusted_per_node)):
            del node.distrusted[next(iter(node.distrusted))]
        node.distrusted[target] = after_ms(now, DISTRUST_MS)

    def lost(self, node: Session, now: Instant) -> list[Lookup]:
        """A node's connection is over; return the searches that end because nobody else is to answer."""
        over = []
        for lookup in list(self._lookups.values()):
            was_open = lookup.open.pop(node, lookup) is None
            if lookup.claim is not None and lookup.claim.node is node:
                lookup.claim = None
            if was_open and (ended := self._settle(lookup, now)) is not None:
                over.append(ended)
        return over

    def deadline(self) -> Instant | None:
        """Return when a search is over."""
        oldest = next(iter(self._lookups.values()), None)
        return oldest.ends_at if oldest is not None else None

    def sweep(self, nodes: Iterable[Session], now: Instant) -> None:
        """Forget what is out of date: places, questions nobody will answer, and old distrust."""
        for target in [target for target, place in self._places.items() if place.until <= now]:
            del self._places[target]
        for node in nodes:
            for expiring in (node.asked, node.distrusted):
                for target in [target for target, until in expiring.items() if until <= now]:
                    del expiring[target]

    def _is_trusted(self, node: Session, target: bytes, now: Instant) -> bool:
        """Return whether a node of ours was not wrong about a client lately."""
        return node.state is State.PEER and node.distrusted.get(target, now) <= now

    def _settle(self, lookup: Lookup, now: Instant) -> Lookup | None:
        """End a search if nobody can still change how it ends."""
        if lookup.claim is not None:
            # While a node of ours may still show a presence, the claim waits.
            if any(self._is_trusted(node, lookup.target, now) for node in lookup.open):
                return None
            return self._end_found(lookup, lookup.claim, now)
        if lookup.open:
            return None
        self.end_absent(lookup, now)
        return lookup

    def _end_found(self, lookup: Lookup, claim: Location, now: Instant) -> Lookup:
        lookup.node = claim.node
        self._end(lookup)
        claim.until = after_ms(now, _kept_ms(claim.proof))
        place = self.place(lookup.target, now)
        if not isinstance(place, Location):
            self._remember(lookup.target, claim)
        # MERK-RENEW: a place that still counts gives way as it does to any later claim.
        elif place.node is claim.node or self._displaces(claim, place, lookup.target, now):
            claim.delivers = place.delivers and place.node is claim.node
            self._remember(lookup.target, claim)
        return lookup

    def _remember(self, target: bytes, place: Location | Absent) -> None:
        self._places.pop(target, None)
        # Spec 8: a bounded number of locations.
        for _ in range(surplus(len(self._places) + 1, self._limits.now.places)):
            self._places.popitem(last=False)
        self._places[target] = place

    def _end(self, lookup: Lookup) -> None:
        del self._lookups[lookup.target]
        self.queued_bytes -= lookup.queue_bytes
        if lookup.owner is not None:
            lookup.owner.searches -= 1


def _proof_of(presence: Presence | None) -> Proof:
    if presence is None:
        return Proof.NONE
    return Proof.CONNECTED if presence.kind is PresenceKind.CONNECTED else Proof.MAILBOX


def _kept_ms(proof: Proof) -> int:
    """Return how long a place counts: spec 5, a mailbox for 2 s only."""
    return MAILBOX_MS if proof is Proof.MAILBOX else FOUND_MS


def _order(claim: Location) -> tuple[Proof, bool, int]:
    """Return what decides between two claims of one search: the proof, who is behind it, and when it was signed."""
    return claim.proof, claim.node.state is State.PEER, claim.issued_ms
