"""Issues challenges (demands for proof of work) and checks their solutions, which command 101 brings.

The relay passes each ``Demand`` of the other commands and each 101. With enough work the command that demanded it is
carried out by ``lease``, ``relay`` or ``whitelist``. The signature of a challenge lets the host check that it was its
own. Spec: lprp 4 (101), 6 (LPRP-D6, LPRP-D7, LPRP-D18), 8.
"""

from collections.abc import Callable
from typing import Final

from waystation.core.facts import Fact, WorkJudged
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.core.settings import InForce
from waystation.crypto.signing import KeyPair
from waystation.protocols.lprp.limits import LprpLimits
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS, REFERENCE_BYTES, Kind, Packet
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.relay.answers import Answers
from waystation.protocols.lprp.relay.challenges import Challenge, Challenges, is_expired
from waystation.protocols.lprp.relay.commands.lease import Leasing
from waystation.protocols.lprp.relay.commands.relay import Relaying
from waystation.protocols.lprp.relay.commands.whitelist import Listing
from waystation.protocols.lprp.relay.difficulty import Difficulty
from waystation.protocols.lprp.relay.intake import Arrival
from waystation.protocols.lprp.relay.replies import Demand, Reply, Verdict, refuse
from waystation.protocols.lprp.relay.sources import Source
from waystation.protocols.lprp.relay.tenants import Tenants
from waystation.protocols.lprp.settings import BITS_MAX, LprpSettings
from waystation.protocols.lprp.wire import Codec
from waystation.protocols.lprp.work import is_enough

__all__ = ["MADE_MAX", "Working"]

MADE_MAX: Final = 1_024  # a millisecond brings a dozen; after so many the next millisecond is used


class Working:
    """Makes challenges and checks their answers."""

    def __init__(
        self,
        settings: LprpSettings,
        key_pair: KeyPair,
        codec: Codec,
        tables: tuple[Tenants, Challenges, Answers],
        does: tuple[Relaying, Leasing, Listing],
        note: Callable[[Fact], None],
        limits: InForce[LprpLimits],
        extra_bits: Callable[[PublicKey, Instant], int] = lambda _identity, _now: 0,
    ) -> None:
        """Work on the tables of one host.

        Args:
            settings: How much work there is to do.
            key_pair: Signs challenges.
            codec: Writes them.
            tables: Leases, challenges, and stored answers.
            does: The commands that work is done for.
            note: Takes facts.
            limits: How often too little work is answered.
            extra_bits: How much harder work is made for an identity.
        """
        self._key_pair = key_pair
        self._codec = codec
        self._difficulty = Difficulty(settings)
        self._tenants, self._challenges, self._answers = tables
        self._relaying, self._leasing, self._listing = does
        self._note = note
        self._limits = limits
        self._extra_bits = extra_bits
        self._made_ms = 0
        self._made: set[bytes] = set()
        """Signatures of the challenges of this very millisecond, pushed out ones too; at most ``MADE_MAX``."""

    def demand(self, demand: Demand, source: Source, now: Instant, wall_ms: int) -> bytes:
        """Make the 602, 604 or 608; from now on the packet it is about gets the same bytes whenever it comes again."""
        about, prefix = demand.about, source.prefix
        # Spec 8: the bits are fixed when the challenge is made.
        bits = self._difficulty.bits(demand.kind, occupancy=demand.occupancy, issued=prefix.issued(now), now=now)
        bits = min(bits + self._extra_bits(about.sender, now), BITS_MAX)
        sealed = self._seal(demand, wall_ms)
        is_new = sealed.signature not in self._made
        self._made.add(sealed.signature)
        challenge = Challenge(
            packet=sealed.data,
            signature=sealed.signature,
            kind=demand.kind,
            worker=about.sender,
            address=source.address if is_new else None,
            prefix=prefix.key,
            asked=about,
            recipient=demand.recipient,
            bits=bits,
            made_at=now,
        )
        # A demand whose challenge is gone must not be repeated: its work would be lost.
        for pushed_out in self._challenges.add(challenge, now):
            self._answers.forget(pushed_out.asked.data)
        self._answers.keep(about.data, sealed.data, now)
        return sealed.data

    def _seal(self, demand: Demand, wall_ms: int) -> Packet:
        """Make the packet, with a time that never goes back: signatures are deterministic.

        A worker whose challenge was evicted could else have the same bytes made again for another address
        (LPRP-PROOF).
        """
        made_ms = max(wall_ms, self._made_ms + (len(self._made) >= MADE_MAX))
        if made_ms - wall_ms > CLOCK_WINDOW_MS // 2:
            made_ms = wall_ms  # the clock was set back so far that no client would accept our packets
        if made_ms != self._made_ms:
            self._made_ms = made_ms
            self._made.clear()
        about = demand.about
        return self._codec.seal(self._key_pair, about.sender, demand.kind.demand, about.signature, made_ms)

    def worked(self, arrival: Arrival, now: Instant, wall_ms: int) -> Verdict:
        """Check a 101, and carry out the command that its work was for."""
        packet, source = arrival.packet, arrival.source
        challenge = self._challenges.find(packet.reference)
        if challenge is None or challenge.worker != arrival.actor:
            # Spec 4: unknown challenge, or one of another key: nothing.
            return Refusal.UNKNOWN_CHALLENGE
        if challenge.address == source.address:
            if challenge.tried_at is None:
                # LPRP-ISSUED: counted at the first 101: spoofed addresses must not make a network's work dearer.
                source.prefix.issue(now)
            challenge.tried_at = now
            source.prove(arrival.actor)  # only a reader of that address knows the challenge (LPRP-D18)
        # Spec 4: too few bits: 401, 32 times.
        if not is_enough(challenge.packet, packet.payload[REFERENCE_BYTES:], challenge.bits):
            self._note_work(challenge, Refusal.TOO_FEW_BITS.value, now)
            if challenge.may_refuse(self._limits.now.work_refusals_per_challenge):
                return refuse(Refusal.TOO_FEW_BITS, packet)
            self._close(challenge)
            return Refusal.TOO_FEW_BITS
        self._close(challenge)
        # Spec 4: older than 2^19 ms: 401.
        if is_expired(challenge, now):
            self._note_work(challenge, Refusal.CHALLENGE_EXPIRED.value, now)
            return refuse(Refusal.CHALLENGE_EXPIRED, packet)
        self._note_work(challenge, "accepted", now)
        # Spec 4: else the challenge is over and what it was for is done.
        verdict = self._take_up(challenge, wall_ms)
        if isinstance(verdict, Reply) and verdict.refusal is None:
            self._difficulty.accepted(challenge.kind, now)
        return verdict

    def _take_up(self, challenge: Challenge, wall_ms: int) -> Verdict:
        """Carry out the command that the work was for."""
        asked = challenge.asked
        if challenge.kind is Kind.RELAY:
            return self._relaying.worked(asked, wall_ms)
        if challenge.kind is Kind.LEASE:
            return self._leasing.worked(asked, wall_ms)
        tenant = self._tenants.find(asked.sender, wall_ms)
        return self._listing.apply(tenant, asked, wall_ms) if tenant is not None else refuse(Refusal.OVERTAKEN, asked)

    def _close(self, challenge: Challenge) -> None:
        """Forget a challenge and its stored demand: the packet that asked is handled anew if it comes again."""
        self._challenges.remove(challenge.signature)
        self._answers.forget(challenge.asked.data)

    def _note_work(self, challenge: Challenge, verdict: str, now: Instant) -> None:
        waited_us = now - challenge.made_at
        self._note(WorkJudged("lprp", challenge.worker, challenge.kind.value, verdict, challenge.bits, waited_us))
