"""The intake: validates packets of PUBLISH, replication and import, and turns accepted ones into durable rows.

The relay drives it for all three ways in. ``offer`` does the cheap checks and returns a verdict, or None for a packet
that must wait for its signature. ``checks`` returns the waiting signatures as one ``Verify``; ``answered`` takes the
answers in order of arrival. ``rows`` returns accepted packets as one ``Commit``; ``committed`` or ``not_committed``
then returns their verdicts. The first failed check decides, in the order of specs/strata.md 6. At most two ``Verify``
are in flight, so batches grow when the node is busy.

A packet that waits for its commit counts as known: its copies wait for the same commit and are then duplicates.

Spec: RFC-0004 2, 3.2, 6, 8; specs/strata.md 6, 7; decisions STRATA-INTAKE, STRATA-WITNESS.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import orjson

from waystation.core.effects import Commit, SignatureCheck, Verify
from waystation.core.instant import Instant
from waystation.core.packets import LowerWitness, PacketReader, PacketRow, PutPacket
from waystation.core.records import Change
from waystation.core.settings import InForce
from waystation.protocols.strata.canonical import canonicalise
from waystation.protocols.strata.keys.keyring import Keyring, candidates, check_signer, read_key_event
from waystation.protocols.strata.limits import StrataLimits
from waystation.protocols.strata.packet import Packet, mark_of, read_packet
from waystation.protocols.strata.provenance import Downgrade, assess
from waystation.protocols.strata.refusals import NOT_STORED, Code, Refusal, RefusedError
from waystation.protocols.strata.relay.authors import KEY_EVENT_TYPES, Authors, Room
from waystation.protocols.strata.relay.policy import Policy, Throttle, never_waits
from waystation.protocols.strata.relay.software_keys import ClientKeys
from waystation.protocols.strata.relay.trust import EDGE_TYPES, TrustBudget, is_strong
from waystation.protocols.strata.settings import StrataSettings

__all__ = ["Candidate", "Intake", "Verdict"]

CHECKS_UNDER_WAY_MAX: Final = 2
CHECKS_PER_VERIFY_MAX: Final = 128
FOLDED_ABOVE_BYTES: Final = 16_384  # most packets are smaller and keep their objects while they wait
FUTURE_S: Final = 300  # RFC-0002 3.3; not the skew of keys
_MIB: Final = 1_048_576
WITNESS_EARLIER_S: Final = 300  # D17: how much earlier than its timestamp a packet may have been seen


class Verdict(NamedTuple):
    """The outcome of a candidate."""

    refusal: Refusal | None = None
    duplicate: bool = False
    duplicate_of: bytes | None = None
    row: PacketRow | None = None
    """The stored packet when it is new, else None."""


class Candidate:
    """A packet under way."""

    __slots__ = (
        "arrived",
        "body",
        "client_msg_id",
        "downgrade",
        "is_slow",
        "origin",
        "packet",
        "publisher",
        "ring",
        "signer",
        "size_bytes",
        "source",
        "witness",
    )

    def __init__(
        self,
        body: object,
        origin: object,
        arrived: Instant,
        size_bytes: int,
        *,
        client_msg_id: str | None = None,
        source: str = "",
        witness: int | None = None,
    ) -> None:
        """Describe the origin of a packet.

        Args:
            body: The packet as parsed.
            origin: The receiver of the verdict; returned untouched.
            arrived: When its frame came.
            size_bytes: Bytes of the frame, which count against its connection until the verdict.
            client_msg_id: To be echoed.
            source: DID of the relay that delivered it; empty for a client.
            witness: ``received_at`` as that relay claims it; None for a client.
        """
        self.body = body
        self.origin = origin
        self.arrived = arrived
        self.size_bytes = size_bytes
        self.client_msg_id = client_msg_id
        self.publisher: str | None = None
        """DID that the client has proved; None for an anonymous one, and for a relay."""
        self.source = source
        self.witness = witness
        self.packet: Packet | None = None
        self.is_slow = False
        """Whether its canonical form could not be written the fast way."""
        self.ring: Keyring | None = None
        self.signer = b""
        self.downgrade: Downgrade | None = None

    def fold(self) -> None:
        """Drop the objects of a large packet, which may be thirty times its bytes; ``unfold`` restores them."""
        self.body = None
        packet = self.packet
        if packet is not None and len(packet.canonical) > FOLDED_ABOVE_BYTES:
            header = {"origin_type": packet.body["provenance_header"]["origin_type"]} if packet.has_provenance else None
            self.packet = packet._replace(body={"content": {}, "provenance_header": header})

    def unfold(self) -> None:
        """Make the body of a large packet whole again."""
        packet = self.packet
        if packet is not None and len(packet.canonical) > FOLDED_ABOVE_BYTES:
            self.packet = packet._replace(body=orjson.loads(packet.canonical))


class Intake:
    """Checks packets and makes rows of the good ones."""

    def __init__(
        self,
        settings: StrataSettings,
        packets: PacketReader,
        authors: Authors,
        roots: Mapping[str, bytes],
        limits: InForce[StrataLimits],
        throttle: Throttle | None = None,
    ) -> None:
        """Start with nothing under way.

        Args:
            settings: Limits and switches.
            packets: The stored packets.
            authors: The keys of authors.
            roots: Public keys that end provenance chains, by their name.
            limits: What one author may have.
            throttle: Whether an author has to wait; None for no author.
        """
        self._settings = settings
        self._packets = packets
        self._authors = authors
        self._clients = ClientKeys(packets, authors, roots, settings.clock_skew_s, limits)
        self._trust = TrustBudget(packets, limits)
        self._limits = limits
        self._throttle = throttle if throttle is not None else Throttle(never_waits)
        self.policy = Policy(settings.blocked_authors, settings.blocked_packets, settings.blocked_media)
        self._unchecked: deque[Candidate] = deque()
        self._checking: dict[int, list[Candidate]] = {}
        self._accepted: list[tuple[Candidate, PacketRow | Verdict]] = []
        self._changes: list[Change] = []
        self._committing: dict[int, list[tuple[Candidate, PacketRow | Verdict]]] = {}
        self._pending_ids: set[bytes] = set()
        self._pending_marks: dict[bytes, bytes] = {}
        self._next_seq = packets.newest_seq() + 1
        self._next_ticket = 1

    def __len__(self) -> int:
        """Return how many packets are under way."""
        # Packets in a commit count too: a relay that retires waits until the disk has answered for them.
        under_way = sum(len(batch) for batch in self._checking.values())
        return len(self._unchecked) + under_way + len(self._accepted) + sum(map(len, self._committing.values()))

    def sizes(self) -> dict[str, int]:
        """Return how many packets are under way, and how many authors and programs are known in memory."""
        return {
            "packets_under_way": len(self),
            "key_rings": self._authors.directory.rings_count,
            "trust_authors": len(self._trust),
            "client_manifests": len(self._clients),
        }

    # Steps

    def offer(self, candidate: Candidate, wall_s: int) -> Verdict | None:
        """Do the checks before the signature; None means that the verdict will come.

        Args:
            candidate: The packet.
            wall_s: Unix seconds now.
        """
        try:
            # Spec 6.3, 6.4: canonical size, then schema and bindings.
            packet = candidate.packet = read_packet(candidate.body, self._settings.max_packet_bytes)
            candidate.is_slow = packet.body is not candidate.body
            # Spec 4.1: a key event has a shape of its own, and its key_id is one of the author's.
            if packet.content_type in KEY_EVENT_TYPES:
                _demand_short(packet, self._limits.now.key_event_bytes)
                read_key_event(packet.body["content"], packet.author_id)
        except RefusedError as error:
            return Verdict(error.refusal)
        # Spec 6.5: block lists.
        refusal = self.policy.refuses(packet)
        # Spec 6.6: the id is the hash, else packet_id_mismatch (D21).
        if refusal is None and not packet.id_matches:
            refusal = Refusal(Code.INVALID_SIGNATURE, "packet_id_mismatch")
        if refusal is not None:
            return Verdict(refusal)
        # Spec 6.7: known with the same signature: OK, duplicate, before any signature is checked.
        stored = self._packets.packet(packet.packet_id)
        if stored is not None and stored.canonical == packet.canonical:
            return self._again(candidate, stored, wall_s)
        # Spec 6.8: time.
        refusal = self._refuse_time(packet, candidate, wall_s)
        if refusal is not None:
            return Verdict(refusal)
        # Spec 6.9: key, signature, window.
        candidate.ring = self._authors.ring(packet.author_id, wall_s, packet.packet_id)
        if candidate.ring is None:
            return Verdict(Refusal(Code.INVALID_SIGNATURE, "unresolved_author"))
        if not candidates(candidate.ring):  # a DID in conflict: no key may sign for it
            skew = self._settings.clock_skew_s
            return Verdict(check_signer(candidate.ring, None, packet.content_type, wall_s, skew))
        candidate.fold()
        self._unchecked.append(candidate)
        return None

    def checks(self) -> Verify | None:
        """Return the next signatures to check, or None when there are none or enough are under way."""
        if not self._unchecked or len(self._checking) >= CHECKS_UNDER_WAY_MAX:
            return None
        # In the order of arrival, so that a KEY_EVENT is decided before the packets after it in the batch.
        batch = [self._unchecked.popleft() for _ in range(min(len(self._unchecked), CHECKS_PER_VERIFY_MAX))]
        ticket = self.new_ticket()
        self._checking[ticket] = batch
        return Verify(ticket, tuple([_check_of(candidate) for candidate in batch]))

    def answered(self, ticket: int, answers: Sequence[int], wall_s: int) -> list[tuple[Candidate, Verdict]]:
        """Go on with checked packets; return those that are decided without a commit."""
        decided: list[tuple[Candidate, Verdict]] = []
        batch = self._checking.pop(ticket)
        for index, (candidate, answer) in enumerate(zip(batch, answers, strict=True), 1):
            candidate.unfold()
            try:
                verdict = self._decide(candidate, answer, wall_s)
            except RefusedError as error:
                verdict = Verdict(error.refusal)
            except Exception:  # a bug of ours costs this packet, whose verdict leaves with the next commit
                self._accepted += [*decided, (candidate, Verdict(Refusal(Code.INTERNAL_ERROR)))]
                # The rest of the batch is checked again: none of it is lost by our bug.
                self._unchecked.extendleft(reversed(batch[index:]))
                raise
            candidate.fold()
            if verdict is not None:
                decided.append((candidate, verdict))
        return decided

    def rows(self) -> Commit | None:
        """Return everything accepted since the last call as one group, or None when there is nothing."""
        if not self._accepted and not self._changes:
            return None
        ticket = self.new_ticket()
        self._committing[ticket], self._accepted = self._accepted, []
        changes, self._changes = self._changes, []
        return Commit(ticket, tuple(changes))

    def committed(self, ticket: int) -> list[tuple[Candidate, Verdict]]:
        """Return the verdicts of committed packets, in the order of acceptance."""
        verdicts = []
        for candidate, row in self._committing.pop(ticket):
            if isinstance(row, Verdict):
                verdicts.append((candidate, row))
                continue
            # From here on the store itself answers for a copy (spec 6.7).
            self._pending_ids.remove(row.packet_id)
            if row.mark:
                del self._pending_marks[row.mark]
            # The store holds the key event or the manifest now: the copies in memory may go.
            self._authors.committed(row.packet_id)
            self._clients.committed(row)
            verdicts.append((candidate, Verdict(row=row)))
        return verdicts

    def not_committed(self, ticket: int) -> list[tuple[Candidate, Verdict]]:
        """Forget the packets of a commit that the store refused, and those accepted since; return their verdicts.

        A packet accepted since may repeat one of them, or be signed by a key that one of them added. A copy of a packet
        whose commit has no answer yet is not refused, it waits for that one (NODE-HUNG).
        """
        refused, self._accepted = self._committing.pop(ticket) + self._accepted, []
        self._changes = []
        hanging = self._under_way_ids()
        verdicts = []
        for candidate, row in refused:
            if isinstance(row, Verdict) and candidate.witness is None and _first_of(candidate, row) in hanging:
                self._accepted.append((candidate, row))
                continue
            if isinstance(row, PacketRow):
                # Numbers are not used twice: one that is missing is as if its packet had been dropped.
                self._pending_ids.discard(row.packet_id)
                self._pending_marks.pop(row.mark, None)
                self._authors.not_committed(row)
                self._trust.forget(row.author_id)
            # Spec 11: our trouble, not the publisher's: the same packet may be published again (STRATA-REFUSED).
            verdict = row if isinstance(row, Verdict) and row.refusal is not None else Verdict(NOT_STORED)
            verdicts.append((candidate, verdict))
        return verdicts

    def _under_way_ids(self) -> set[bytes]:
        """Return the ids of packets whose commit has no answer yet."""
        rows = (row for group in self._committing.values() for _, row in group)
        return {row.packet_id for row in rows if isinstance(row, PacketRow)}

    # Checks

    def _refuse_time(self, packet: Packet, candidate: Candidate, wall_s: int) -> Refusal | None:
        # Spec 7: max_age_s for a client, max_backfill_s between relays and on import.
        age_max = self._settings.max_age_s if candidate.witness is None else self._settings.max_backfill_s
        detail = ""
        # Spec 7: > now + 300 is future, < now - max_age_s too_old, expires_at <= now expired; equality passes.
        if packet.timestamp > wall_s + FUTURE_S:
            detail = "future"
        elif packet.timestamp < wall_s - age_max:
            detail = "too_old"
        elif packet.expires_at is not None and packet.expires_at <= wall_s:
            detail = "expired"
        return Refusal(Code.INVALID_TIMESTAMP, detail, extra=(("server_time", wall_s),)) if detail else None

    def _decide(self, candidate: Candidate, answer: int, wall_s: int) -> Verdict | None:
        packet, ring = candidate.packet, candidate.ring
        assert packet is not None
        assert ring is not None
        received_at = self._received_at(candidate, wall_s)
        signer = candidates(ring)[answer] if answer >= 0 else None
        current = self._authors.ring(packet.author_id, wall_s, packet.packet_id)
        if current is not ring:  # a key event was applied while the signature was being checked
            signer = self._authors.signer(current, packet.preimage, packet.signature)
        # Spec 4.1: the receive time must lie in the window of the key.
        refusal = (
            check_signer(current, signer, packet.content_type, received_at, self._settings.clock_skew_s)
            if current is not None
            else Refusal(Code.INVALID_SIGNATURE, "unresolved_author")
        )
        if refusal is not None:
            return Verdict(refusal)
        assert signer is not None
        candidate.signer = signer
        # Spec 6.10, 6.11: known with another good signature, or the same attestation or metric: OK, duplicate.
        mark = mark_of(packet)
        pending = self._repeats_pending(packet, mark)
        if pending is not None:
            if candidate.witness is not None:
                self._changes.append(LowerWitness(packet.packet_id, received_at))
            self._accepted.append((candidate, pending))  # answered together with the first
            return None
        stored = self._packets.packet(packet.packet_id)
        if stored is not None:
            return self._again(candidate, stored, wall_s)
        verdict = self._repeated(packet, mark) or self._throttled(candidate, packet)
        return verdict or self._accept(candidate, packet, mark, received_at, wall_s)

    def _throttled(self, candidate: Candidate, packet: Packet) -> Verdict | None:
        """Return the verdict on a client's packet whose author has to wait; the publisher was checked before.

        Checked once the signature holds: else anyone could use up an author's allowance.
        """
        if candidate.source or packet.author_id == candidate.publisher:
            return None
        refusal = self._throttle.refuses(packet.author_id, candidate.arrived)
        return Verdict(refusal) if refusal is not None else None

    def _repeats_pending(self, packet: Packet, mark: bytes) -> Verdict | None:
        """Return the verdict on a packet, or on an attestation, whose first copy is on its way to the disk."""
        if packet.packet_id in self._pending_ids:
            return Verdict(duplicate=True)
        # Spec 7: an attestation or a metric is unique by its author and its parts, whatever packet carries it.
        first = self._pending_marks.get(mark)
        return Verdict(duplicate=True, duplicate_of=first) if first is not None else None

    def _repeated(self, packet: Packet, mark: bytes) -> Verdict | None:
        """Return the verdict on a packet that was dropped, or on an attestation that is stored."""
        # Spec 7: an id is remembered after its packet was dropped; to publish it again is always safe (D19, D24).
        if self._packets.known(packet.packet_id):
            return Verdict(duplicate=True)
        first = self._packets.marked(mark) if mark else None
        return Verdict(duplicate=True, duplicate_of=first) if first is not None else None

    def _accept(
        self, candidate: Candidate, packet: Packet, mark: bytes, received_at: int, wall_s: int
    ) -> Verdict | None:
        if packet.has_provenance:
            # Spec 6.12: provenance: a downgrade or a code of section 9.
            candidate.downgrade = assess(packet, self._clients.at(received_at))
        content = packet.body["content"]
        budgeted = packet.content_type in EDGE_TYPES and self._settings.trust_edge_budget
        # Spec 8: edges with strength above 0.5 have a budget of their own.
        strong = budgeted and is_strong(content)
        if budgeted:
            # Spec 6.13: trust edges.
            refusal = self._trust.refuses(packet.author_id, strong=strong, received_at=received_at)
            if refusal is not None:
                return Verdict(refusal)
        is_key_event = packet.content_type in KEY_EVENT_TYPES
        if is_key_event:
            # Spec 4.1: 256 key events per author, and a space that all of them share.
            room = Room(self._limits.now.key_events_unpublished, self._settings.key_events_mib * _MIB)
            is_replica = candidate.witness is not None
            refusal = self._authors.why_no_room(packet, candidate.signer, wall_s, room, is_replica=is_replica)
            if refusal is not None:
                return Verdict(refusal)
        # Only what is accepted spends: a refused edge costs its author nothing.
        if budgeted:
            self._trust.spend(packet.author_id, strong=strong, received_at=received_at)
        # Spec 6.14: durable commit, then OK, then EVENTs.
        row = self._row(candidate, packet, mark, received_at, wall_s)
        self._pending_ids.add(row.packet_id)
        if row.mark:
            self._pending_marks[row.mark] = row.packet_id
        self._changes.append(PutPacket(row))
        if is_key_event:
            self._changes.append(self._authors.note(row, candidate.signer, content))
        self._accepted.append((candidate, row))
        return None

    def _row(self, candidate: Candidate, packet: Packet, mark: bytes, received_at: int, wall_s: int) -> PacketRow:
        downgrade = candidate.downgrade
        row = PacketRow(
            self._next_seq,
            received_at,
            received_at,
            wall_s,
            packet.packet_id,
            packet.author_id,
            packet.content_type,
            packet.timestamp,
            packet.expires_at,
            packet.canonical,
            canonicalise(downgrade.wire()) if downgrade is not None else b"",
            candidate.source,
            mark,
            packet.content_type in KEY_EVENT_TYPES,
        )
        # D27: the number of the commit breaks ties of received_at.
        self._next_seq += 1
        return row

    def _received_at(self, candidate: Candidate, wall_s: int) -> int:
        """Return when the packet counts as received: our clock, or an earlier witness that can be believed (D17)."""
        witness, packet = candidate.witness, candidate.packet
        assert packet is not None
        # Spec 15: a witness counts if it is not later than our clock, not earlier than timestamp - 300 and not too old.
        if witness is None or witness > wall_s:
            return wall_s
        earliest = max(packet.timestamp - WITNESS_EARLIER_S, wall_s - self._settings.max_backfill_s)
        return witness if witness >= earliest else wall_s

    def _again(self, candidate: Candidate, stored: PacketRow, wall_s: int) -> Verdict | None:
        """Return the verdict on a stored packet; a replica seen earlier elsewhere lowers its receipt time first."""
        received_at = self._received_at(candidate, wall_s)
        # Spec 15: the earliest credible witness is served, the place in history stays (D28).
        if candidate.witness is not None and received_at < stored.received_at:
            self._changes.append(LowerWitness(stored.packet_id, received_at))
            # The upstream's cursor must not pass a time that the store may refuse (STRATA-REFUSED).
            self._accepted.append((candidate, Verdict(duplicate=True)))
            return None
        return Verdict(duplicate=True)

    def new_ticket(self) -> int:
        """Return a number for a ``Commit`` or ``Verify`` of this relay."""
        self._next_ticket += 1
        return self._next_ticket


def _first_of(candidate: Candidate, verdict: Verdict) -> bytes | None:
    """Return the id of the packet that a candidate repeats, if it repeats one."""
    if not verdict.duplicate or candidate.packet is None:
        return None
    return verdict.duplicate_of or candidate.packet.packet_id


def _demand_short(packet: Packet, bytes_max: int) -> None:
    # Spec 4.1: a KEY_EVENT packet has at most 8 KiB. They are kept for ever and all of an author's are read together.
    if len(packet.canonical) > bytes_max:
        extra = (("max_bytes", bytes_max),)
        raise RefusedError(Refusal(Code.PACKET_TOO_LARGE, "key_event", extra=extra))


def _check_of(candidate: Candidate) -> SignatureCheck:
    assert candidate.packet is not None
    assert candidate.ring is not None
    return SignatureCheck(candidates(candidate.ring), candidate.packet.preimage, candidate.packet.signature)
