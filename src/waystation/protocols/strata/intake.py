"""The way of a packet from a frame to a durable row, the same for PUBLISH, replication and import.

``offer`` does everything that is cheap and returns a verdict or nothing; what passed waits for its signature.
``checks`` hands out the waiting signatures as one ``Verify``, ``answered`` goes on with the answers in the order of
arrival, and ``rows`` hands out what was accepted as one ``Commit``; ``committed`` returns the verdicts that may be
told now. The first failure answers, in the order of specs/strata.md 6. At most two checks are under way, so that
packets gather behind them into batches exactly when the node is busy.

A packet that is on its way to the disk counts as known: its copies wait for the same commit and are duplicates then.

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
from waystation.protocols.strata.authors import KEY_EVENT_TYPES, Authors
from waystation.protocols.strata.canonical import canonicalise
from waystation.protocols.strata.clients import ClientKeys
from waystation.protocols.strata.keyring import Keyring, candidates, judge_signer, read_key_event
from waystation.protocols.strata.packet import Packet, mark_of, read_packet
from waystation.protocols.strata.policy import Policy, Throttle, never_waits
from waystation.protocols.strata.provenance import Downgrade, judge
from waystation.protocols.strata.refusals import Code, Refusal, RefusedError
from waystation.protocols.strata.settings import StrataSettings
from waystation.protocols.strata.trust import EDGE_TYPES, TrustBudget, is_strong

__all__ = ["Candidate", "Intake", "Verdict"]

CHECKS_UNDER_WAY_MAX: Final = 2
CHECKS_PER_VERIFY_MAX: Final = 128
KEY_EVENT_BYTES_MAX: Final = 8_192
"""Ours. Key events are kept for ever and all of an author's are read together; an honest one has 1 KiB."""
FOLDED_ABOVE_BYTES: Final = 16_384  # most packets are smaller and keep their objects while they wait
FUTURE_S: Final = 300  # RFC-0002 3.3; not the skew of keys
WITNESS_EARLIER_S: Final = 300  # D17: how much earlier than its timestamp a packet may have been seen


class Verdict(NamedTuple):
    """What became of a candidate."""

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
        """Describe where a packet came from.

        Args:
            body: The packet as parsed.
            origin: Whoever gets the verdict; handed back untouched.
            arrived: When its frame came.
            size_bytes: Bytes of the frame, which count against its connection until the verdict.
            client_msg_id: To be echoed.
            source: DID of the relay that delivered it; empty for a client.
            witness: ``received_at`` as that relay tells it; None for a client.
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
        """Let go of the objects of a large packet, which may be thirty times its bytes; ``unfold`` brings them back."""
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
    """Judges packets and makes rows of the good ones."""

    def __init__(
        self,
        settings: StrataSettings,
        packets: PacketReader,
        authors: Authors,
        roots: Mapping[str, bytes],
        throttle: Throttle | None = None,
    ) -> None:
        """Start with nothing under way.

        Args:
            settings: Limits and switches.
            packets: What is stored.
            authors: Who may sign for whom.
            roots: Public keys that end provenance chains, by their name.
            throttle: Whether an author has to wait; None for nobody.
        """
        self._settings = settings
        self._packets = packets
        self._authors = authors
        self._clients = ClientKeys(packets, authors, roots, settings.clock_skew_s)
        self._trust = TrustBudget(packets)
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
        under_way = sum(len(batch) for batch in self._checking.values())
        return len(self._unchecked) + under_way + len(self._accepted) + sum(map(len, self._committing.values()))

    # Steps

    def offer(self, candidate: Candidate, wall_s: int) -> Verdict | None:
        """Judge what needs no signature check; None means that the verdict will come.

        Args:
            candidate: The packet.
            wall_s: Unix seconds now.
        """
        try:
            packet = candidate.packet = read_packet(candidate.body, self._settings.max_packet_bytes)
            candidate.is_slow = packet.body is not candidate.body
            if packet.content_type in KEY_EVENT_TYPES:
                _demand_short(packet)
                read_key_event(packet.body["content"], packet.author_id)
        except RefusedError as error:
            return Verdict(error.refusal)
        refusal = self.policy.refuses(packet)
        if refusal is None and not packet.id_matches:
            refusal = Refusal(Code.INVALID_SIGNATURE, "packet_id_mismatch")
        if refusal is not None:
            return Verdict(refusal)
        stored = self._packets.packet(packet.packet_id)
        if stored is not None and stored.canonical == packet.canonical:
            return self._again(candidate, stored, wall_s)
        refusal = self._refuse_time(packet, candidate, wall_s)
        if refusal is not None:
            return Verdict(refusal)
        candidate.ring = self._authors.ring(packet.author_id, wall_s)
        if candidate.ring is None:
            return Verdict(Refusal(Code.INVALID_SIGNATURE, "unresolved_author"))
        if not candidates(candidate.ring):  # a DID in conflict: nobody may sign for it
            skew = self._settings.clock_skew_s
            return Verdict(judge_signer(candidate.ring, None, packet.content_type, wall_s, skew))
        candidate.fold()
        self._unchecked.append(candidate)
        return None

    def checks(self) -> Verify | None:
        """Return the next signatures to check, or None when there are none or enough are under way."""
        if not self._unchecked or len(self._checking) >= CHECKS_UNDER_WAY_MAX:
            return None
        batch = [self._unchecked.popleft() for _ in range(min(len(self._unchecked), CHECKS_PER_VERIFY_MAX))]
        ticket = self._ticket()
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
            except Exception:  # a bug of ours costs this packet, which is told with the next commit
                self._accepted += [*decided, (candidate, Verdict(Refusal(Code.INTERNAL_ERROR)))]
                self._unchecked.extendleft(reversed(batch[index:]))
                raise
            candidate.fold()
            if verdict is not None:
                decided.append((candidate, verdict))
        return decided

    def rows(self, also: Sequence[Change] = ()) -> Commit | None:
        """Return everything accepted since the last call as one group, or None when there is nothing.

        Args:
            also: Changes that belong to the same group, behind the packets.
        """
        if not self._accepted and not self._changes and not also:
            return None
        ticket = self._ticket()
        self._committing[ticket], self._accepted = self._accepted, []
        changes, self._changes = self._changes, []
        return Commit(ticket, (*changes, *also))

    def committed(self, ticket: int) -> list[tuple[Candidate, Verdict]]:
        """Return the verdicts that the disk has made true, in the order of acceptance."""
        told = []
        for candidate, row in self._committing.pop(ticket):
            if isinstance(row, Verdict):
                told.append((candidate, row))
                continue
            self._pending_ids.remove(row.packet_id)
            if row.mark:
                del self._pending_marks[row.mark]
            self._authors.committed(row.packet_id)
            self._clients.committed(row)
            told.append((candidate, Verdict(row=row)))
        return told

    # Judging

    def _refuse_time(self, packet: Packet, candidate: Candidate, wall_s: int) -> Refusal | None:
        age_max = self._settings.max_age_s if candidate.witness is None else self._settings.max_backfill_s
        detail = ""
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
        current = self._authors.ring(packet.author_id, wall_s)
        if current is not ring:  # a key event was applied while the signature was being checked
            signer = self._authors.signer(current, packet.preimage, packet.signature)
        refusal = (
            judge_signer(current, signer, packet.content_type, received_at, self._settings.clock_skew_s)
            if current is not None
            else Refusal(Code.INVALID_SIGNATURE, "unresolved_author")
        )
        if refusal is not None:
            return Verdict(refusal)
        assert signer is not None
        candidate.signer = signer
        mark = mark_of(packet)
        pending = self._repeats_pending(packet, mark)
        if pending is not None:
            if candidate.witness is not None:
                self._changes.append(LowerWitness(packet.packet_id, received_at))
            self._accepted.append((candidate, pending))  # told together with the first
            return None
        verdict = self._repeated(candidate, packet, mark, wall_s) or self._throttled(candidate, packet)
        return verdict or self._accept(candidate, packet, mark, received_at, wall_s)

    def _throttled(self, candidate: Candidate, packet: Packet) -> Verdict | None:
        """Return the verdict on a client's packet whose author has to wait; the publisher was asked about before.

        Asked once the signature holds: else anyone could use up what an author has left.
        """
        if candidate.source or packet.author_id == candidate.publisher:
            return None
        refusal = self._throttle.refuses(packet.author_id, candidate.arrived)
        return Verdict(refusal) if refusal is not None else None

    def _repeats_pending(self, packet: Packet, mark: bytes) -> Verdict | None:
        """Return the verdict on a packet, or on an attestation, whose first copy is on its way to the disk."""
        if packet.packet_id in self._pending_ids:
            return Verdict(duplicate=True)
        first = self._pending_marks.get(mark)
        return Verdict(duplicate=True, duplicate_of=first) if first is not None else None

    def _repeated(self, candidate: Candidate, packet: Packet, mark: bytes, wall_s: int) -> Verdict | None:
        """Return the verdict on a packet, or on an attestation, that is stored."""
        if self._packets.known(packet.packet_id):
            stored = self._packets.packet(packet.packet_id)
            return self._again(candidate, stored, wall_s) if stored is not None else Verdict(duplicate=True)
        first = self._packets.marked(mark) if mark else None
        return Verdict(duplicate=True, duplicate_of=first) if first is not None else None

    def _accept(
        self, candidate: Candidate, packet: Packet, mark: bytes, received_at: int, wall_s: int
    ) -> Verdict | None:
        if packet.has_provenance:
            candidate.downgrade = judge(packet, self._clients.at(received_at))
        content = packet.body["content"]
        budgeted = packet.content_type in EDGE_TYPES and self._settings.trust_edge_budget
        strong = budgeted and is_strong(content)
        if budgeted:
            refusal = self._trust.refuses(packet.author_id, strong=strong, received_at=received_at)
            if refusal is not None:
                return Verdict(refusal)
        is_key_event = packet.content_type in KEY_EVENT_TYPES
        if is_key_event and not self._authors.has_room(packet.author_id, candidate.signer, wall_s):
            return Verdict(Refusal(Code.INVALID_SCHEMA, "key_events_max"))
        if budgeted:
            self._trust.spend(packet.author_id, strong=strong, received_at=received_at)
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
        self._next_seq += 1
        return row

    def _received_at(self, candidate: Candidate, wall_s: int) -> int:
        """Return when the packet counts as received: our clock, or an earlier witness that can be believed (D17)."""
        witness, packet = candidate.witness, candidate.packet
        assert packet is not None
        if witness is None or witness > wall_s:
            return wall_s
        earliest = max(packet.timestamp - WITNESS_EARLIER_S, wall_s - self._settings.max_backfill_s)
        return witness if witness >= earliest else wall_s

    def _again(self, candidate: Candidate, stored: PacketRow, wall_s: int) -> Verdict:
        """Return the verdict on a stored packet; an earlier witness lowers what we tell about it."""
        received_at = self._received_at(candidate, wall_s)
        if candidate.witness is not None and received_at < stored.received_at:
            self._changes.append(LowerWitness(stored.packet_id, received_at))
        return Verdict(duplicate=True)

    def _ticket(self) -> int:
        self._next_ticket += 1
        return self._next_ticket


def _demand_short(packet: Packet) -> None:
    if len(packet.canonical) > KEY_EVENT_BYTES_MAX:
        extra = (("max_bytes", KEY_EVENT_BYTES_MAX),)
        raise RefusedError(Refusal(Code.PACKET_TOO_LARGE, "key_event", extra=extra))


def _check_of(candidate: Candidate) -> SignatureCheck:
    assert candidate.packet is not None
    assert candidate.ring is not None
    return SignatureCheck(candidates(candidate.ring), candidate.packet.preimage, candidate.packet.signature)
