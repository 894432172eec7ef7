"""What a datagram must pass before its signature is worth looking at, in the order of what each check costs.

A signature check costs thirty times what all of this does, and anyone can send bytes that fail it. So checks are
rationed: few that fail per prefix, so many in all per prefix and second, and a queue in which sources whose packets
were accepted before keep most of the room (LPRP-RATION). Spec: lprp 4, stages 1 to 5.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from waystation.core.effects import SignatureCheck
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.crypto.small_order import is_small_order
from waystation.protocols.lprp.challenges import Challenge, Challenges
from waystation.protocols.lprp.mailbox import Letter
from waystation.protocols.lprp.messages import Command, Packet
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.sources import Source
from waystation.protocols.lprp.tenants import Tenant, Tenants
from waystation.protocols.lprp.whitelist import is_comparison, read_update
from waystation.protocols.lprp.wire import Codec, delivered_by, signed_part

__all__ = ["BACKLOG_MAX", "PREFIX_BACKLOG_MAX", "UNTRUSTED_BACKLOG_MAX", "VOUCHES_MAX", "Arrival", "Intake"]

BACKLOG_MAX: Final = 4_096  # packets that wait for their signature check: 2 MiB, a quarter of a second of one core
UNTRUSTED_BACKLOG_MAX: Final = 512  # so that no tenant waits for more than 30 ms of strangers' checks
PREFIX_BACKLOG_MAX: Final = BACKLOG_MAX // 4  # so that no network fills it
VOUCHES_MAX: Final = 8  # LPRP-VOUCHED: packets that one challenge or letter speaks for, forged ones too

_OF_TENANTS: Final = (Command.HEARTBEAT, Command.DELIVERED, Command.UPDATE_WHITELIST, Command.CLEAR_WHITELIST)
_CHANGES_STATE: Final = (Command.ASK_LEASE, Command.UPDATE_WHITELIST, Command.CLEAR_WHITELIST)


class Arrival(NamedTuple):
    """A packet that is worth a signature check."""

    packet: Packet
    actor: PublicKey
    """Whose signature it must have."""
    source: Source
    doubted: bool = False
    """Whether neither its source nor what it names speaks for it."""

    def check(self) -> SignatureCheck:
        """Return the question whether the actor signed it."""
        return SignatureCheck((self.actor,), signed_part(self.packet.data), self.packet.signature)


class Intake:
    """Stages 2 to 5 of the receive path, without the stored answers: those come before (LPRP-EARLY)."""

    def __init__(
        self,
        codec: Codec,
        host: PublicKey,
        tenants: Tenants,
        challenges: Challenges,
        *,
        rate_limits: bool,
        admits: Callable[[PublicKey], bool],
    ) -> None:
        """Read the tables that others keep.

        Args:
            codec: Reads packets.
            host: The node's key.
            tenants: Who holds a lease.
            challenges: What work was demanded.
            rate_limits: Whether signature checks per prefix have a rate.
            admits: Whether an identity may speak at all.
        """
        self._codec = codec
        self._host = host
        self._tenants = tenants
        self._challenges = challenges
        self._rate_limits = rate_limits
        self._admits = admits
        self._doubted_count = 0
        """Doubted packets under way, all prefixes together."""

    def consider(self, data: bytes, source: Source, wall_ms: int) -> Arrival | Refusal:
        """Return a packet of good form with who must have signed it, or why nobody needs to look at it."""
        packet = self._codec.read(data)
        actor = packet.sender
        if packet.command is not Command.RELAY and packet.recipient != self._host:
            if packet.command is not Command.DELIVERED or packet.sender != self._host:
                return Refusal.WRONG_HOST
            actor = delivered_by(packet, self._host)
        if is_small_order(actor):
            return Refusal.SMALL_ORDER_KEY
        if packet.command is not Command.ASK_LEASE and not self._admits(actor):
            return Refusal.IDENTITY_BANNED
        tenant = self._tenants.find(actor, wall_ms)
        arrival = Arrival(packet, actor, source)
        refusal = self.stale(arrival, tenant)
        if refusal is not None:
            return refusal
        return arrival if source.trusted or self._is_vouched(packet, tenant) else arrival._replace(doubted=True)

    def stale(self, arrival: Arrival, tenant: Tenant | None) -> Refusal | None:
        """Return why the tables leave nothing to do for a packet, whoever signed it; asked again after the check.

        Before it this saves the check of what would end in silence anyway (LPRP-EARLY).

        Args:
            arrival: The packet.
            tenant: Who holds a lease with the actor's key.
        """
        packet, actor, source, _ = arrival
        if packet.command is Command.RELAY:
            return None
        return self._stale_of_stranger(packet, actor) if tenant is None else _stale_of_tenant(packet, tenant, source)

    def _stale_of_stranger(self, packet: Packet, actor: PublicKey) -> Refusal | None:
        if packet.command in _OF_TENANTS:  # LPRP-LEASED
            return Refusal.NOT_A_TENANT
        if packet.command is Command.WORK:
            challenge = self._challenges.find(packet.reference)
            if challenge is None or challenge.worker != actor:
                return Refusal.UNKNOWN_CHALLENGE
        return None

    def _is_vouched(self, packet: Packet, tenant: Tenant | None) -> bool:
        """Return whether a packet names what only its signer has been sent, and count that, for some name their own.

        Whoever forges in the name of an honest address without reading its mail cannot do so (LPRP-VOUCHED).
        """
        named: Challenge | Letter | None = None
        if packet.command is Command.WORK:
            named = self._challenges.find(packet.reference)
        elif packet.command is Command.DELIVERED and tenant is not None:
            named = tenant.mailbox.find(packet.reference)
        if named is None or named.vouches >= VOUCHES_MAX:
            return False
        named.vouches += 1
        return True

    def ration(self, arrival: Arrival, waiting: int, now: Instant) -> Refusal | None:
        """Return why this source gets no signature check now, or count it as under way: ``settle`` ends that.

        Args:
            arrival: What came.
            waiting: How many packets wait for their check or for the disk already.
            now: Monotonic time.
        """
        prefix, doubted = arrival.source.prefix, arrival.doubted
        if waiting >= BACKLOG_MAX or prefix.checking_count >= PREFIX_BACKLOG_MAX:
            return Refusal.VERIFY_BACKLOG
        if doubted and self._doubted_count >= UNTRUSTED_BACKLOG_MAX:
            return Refusal.VERIFY_BACKLOG
        if doubted:
            prefix.failures.refill(now)
            if prefix.failures.left <= prefix.doubted_count:
                return Refusal.VERIFY_FAILURES
        if self._rate_limits and not prefix.checks.take(now):
            return Refusal.VERIFY_RATE
        prefix.checking_count += 1
        if doubted:
            prefix.doubted_count += 1
            self._doubted_count += 1
        return None

    def settle(self, arrival: Arrival, now: Instant, *, holds: bool) -> None:
        """The signature of an arrival was checked: what it did to the name of its source."""
        source = arrival.source
        source.prefix.checking_count -= 1
        if arrival.doubted:
            source.prefix.doubted_count -= 1
            self._doubted_count -= 1
        if not holds:
            source.note_forged()
            source.prefix.failures.take(now)


def _stale_of_tenant(packet: Packet, tenant: Tenant, source: Source) -> Refusal | None:
    command, time_ms = packet.command, packet.time_ms
    if command is Command.HEARTBEAT and time_ms <= tenant.last_ts:
        elsewhere = tenant.source is not None and tenant.source.address != source.address
        return Refusal.REBIND_CONFLICT if time_ms == tenant.last_ts and elsewhere else Refusal.NOT_NEWER
    if command is Command.DELIVERED and time_ms <= tenant.last_ts and packet.reference not in tenant.mailbox:
        return Refusal.UNKNOWN_RELAY
    if command in _CHANGES_STATE and time_ms <= tenant.state_ts:
        compares = command is Command.UPDATE_WHITELIST and is_comparison(read_update(packet.payload))
        return None if compares else Refusal.NOT_NEWER
    return None
