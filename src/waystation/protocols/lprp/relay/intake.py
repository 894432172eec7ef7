"""Checks datagrams before their signature is verified, in the order of cost.

The relay passes every datagram; a ``SignatureCheck`` or a refusal comes out. A signature check costs thirty times all
these checks together, and anyone can send bytes that fail it. So checks are rationed: failed ones per prefix, all of
them per prefix and second, and by a queue. In the queue most room is reserved for sources whose packets were accepted
before (LPRP-RATION). Spec: lprp 4, stages 1 to 5.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from waystation.core.effects import Address, Datagram, SignatureCheck
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.core.settings import InForce
from waystation.crypto.small_order import is_small_order
from waystation.protocols.lprp.limits import LprpLimits
from waystation.protocols.lprp.messages import Command, Packet
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.relay.challenges import Challenge, Challenges
from waystation.protocols.lprp.relay.mailbox import QueuedPacket
from waystation.protocols.lprp.relay.sources import Source
from waystation.protocols.lprp.relay.tenants import Tenant, Tenants
from waystation.protocols.lprp.whitelist import is_comparison, read_update
from waystation.protocols.lprp.wire import Codec, delivered_by, signed_part

__all__ = ["Arrival", "Intake"]

_OF_TENANTS: Final = (Command.HEARTBEAT, Command.DELIVERED, Command.UPDATE_WHITELIST, Command.CLEAR_WHITELIST)
_CHANGES_STATE: Final = (Command.ASK_LEASE, Command.UPDATE_WHITELIST, Command.CLEAR_WHITELIST)


class Arrival(NamedTuple):
    """A packet that is worth a signature check."""

    packet: Packet
    actor: PublicKey
    """The key whose signature it must have."""
    address: Address
    """Where its answer goes: the source's address as it came with this packet (NODE-PKTINFO)."""
    source: Source
    doubted: bool = False
    """Whether neither its source nor the packet that it names vouches for it."""

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
        limits: InForce[LprpLimits],
        admits: Callable[[PublicKey], bool],
        is_unlimited: Callable[[PublicKey], bool] = lambda _identity: False,
        *,
        rate_limits: bool,
    ) -> None:
        """Read the tables of one host.

        Args:
            codec: Reads packets.
            host: The node's key.
            tenants: The leases.
            challenges: The open challenges.
            limits: How many checks may wait.
            admits: Whether an identity may use the host.
            is_unlimited: Whether the rate does not bind an identity.
            rate_limits: Whether signature checks per prefix have a rate.
        """
        self._codec = codec
        self._host = host
        self._tenants = tenants
        self._challenges = challenges
        self._limits = limits
        self._rate_limits = rate_limits
        self._admits = admits
        self._is_unlimited = is_unlimited
        self.doubted_count = 0
        """Doubted packets under way, all prefixes together."""

    def consider(self, datagram: Datagram, source: Source, wall_ms: int) -> Arrival | Refusal:
        """Return a packet of good form with its signer, or why it needs no signature check."""
        data, address = datagram
        packet = self._codec.read(data)
        actor = packet.sender
        if packet.command is not Command.RELAY and packet.recipient != self._host:
            # Spec 4.2: all but 102 name this host as recipient; an 802 is taken the other way round too (LPRP-D16).
            if packet.command is not Command.DELIVERED or packet.sender != self._host:
                return Refusal.WRONG_HOST
            actor = delivered_by(packet, self._host)
        # Spec 4.2: the signer's key is not of small order.
        if is_small_order(actor):
            return Refusal.SMALL_ORDER_KEY
        # Spec 4.2: except for a 104, which is answered with 404, the signer is not banned.
        if packet.command is not Command.ASK_LEASE and not self._admits(actor):
            return Refusal.IDENTITY_BANNED
        tenant = self._tenants.find(actor, wall_ms)
        arrival = Arrival(packet, actor, address, source)
        refusal = self.stale(arrival, tenant)
        if refusal is not None:
            return refusal
        return arrival if source.trusted or self._is_vouched(packet, tenant) else arrival._replace(doubted=True)

    def stale(self, arrival: Arrival, tenant: Tenant | None) -> Refusal | None:
        """Return why the tables leave nothing to do for a packet, whatever its signature; called again after the check.

        Called before it this saves the check of packets that would end in silence anyway (LPRP-EARLY).

        Args:
            arrival: The packet.
            tenant: The lease of the actor's key, if any.
        """
        packet, actor, _, source, _ = arrival
        # Spec 4.3: a 102 needs neither a lease nor a time that is newer.
        if packet.command is Command.RELAY:
            return None
        return self._stale_of_visitor(packet, actor) if tenant is None else _stale_of_tenant(packet, tenant, source)

    def _stale_of_visitor(self, packet: Packet, actor: PublicKey) -> Refusal | None:
        if packet.command in _OF_TENANTS:  # LPRP-LEASED
            # Spec 4.3: 100, 802, 108 and 808 come from a tenant.
            return Refusal.NOT_A_TENANT
        if packet.command is Command.WORK:
            # Spec 4.3: a 101 of a visitor answers a challenge that was made for it.
            challenge = self._challenges.find(packet.reference)
            if challenge is None or challenge.worker != actor:
                return Refusal.UNKNOWN_CHALLENGE
        return None

    def _is_vouched(self, packet: Packet, tenant: Tenant | None) -> bool:
        """Return whether a packet names one that only its signer has received, and count that.

        An adversary that forges packets of an honest address cannot read its mail and cannot do so (LPRP-VOUCHED).
        """
        named: Challenge | QueuedPacket | None = None
        if packet.command is Command.WORK:
            named = self._challenges.find(packet.reference)
        elif packet.command is Command.DELIVERED and tenant is not None:
            named = tenant.mailbox.find(packet.reference)
        if named is None or named.vouches >= self._limits.now.vouches_per_packet:
            return False
        named.vouches += 1
        return True

    def ration(self, arrival: Arrival, waiting: int, now: Instant) -> Refusal | None:
        """Return why this source gets no signature check now, or count it as under way: ``settle`` ends that.

        Args:
            arrival: The packet.
            waiting: How many packets wait for their check or for the disk already.
            now: Monotonic time.
        """
        prefix, doubted, limits = arrival.source.prefix, arrival.doubted, self._limits.now
        # Spec 7: 4,096 signature checks waiting, 1,024 of them of one network.
        if waiting >= limits.checks_waiting or prefix.checking_count >= limits.checks_waiting_per_network:
            return Refusal.VERIFY_BACKLOG
        # Spec 7: 512 for sources of which nothing was accepted.
        if doubted and self.doubted_count >= limits.checks_waiting_untrusted:
            return Refusal.VERIFY_BACKLOG
        if doubted:
            # Spec 7: 256 bad signatures of a network at once, 100 a second; each doubted packet under way may be one.
            prefix.failures.refill(now)
            if prefix.failures.left <= prefix.doubted_count:
                return Refusal.VERIFY_FAILURES
        # Spec 7: 4,000 checks a second and network.
        # NODE-ACCESS: anybody can write an exempt key into a packet, so it needs a trusted source; being vouched for by
        # another packet is not enough.
        exempt = not self._rate_limits or (arrival.source.trusted and self._is_unlimited(arrival.actor))
        if not exempt and not prefix.checks.take(now):
            return Refusal.VERIFY_RATE
        prefix.checking_count += 1
        if doubted:
            prefix.doubted_count += 1
            self.doubted_count += 1
        return None

    def settle(self, arrival: Arrival, now: Instant, *, holds: bool) -> None:
        """Take the result of a signature check: a forged packet costs its source."""
        source = arrival.source
        source.prefix.checking_count -= 1
        if arrival.doubted:
            source.prefix.doubted_count -= 1
            self.doubted_count -= 1
        if not holds:
            # Spec 7: bad signatures are counted by network.
            source.note_forged()
            source.prefix.failures.take(now)


def _stale_of_tenant(packet: Packet, tenant: Tenant, source: Source) -> Refusal | None:
    command, time_ms = packet.command, packet.time_ms
    # Spec 4.3: a 100 is newer than all before it.
    if command is Command.HEARTBEAT and time_ms <= tenant.last_ts:
        elsewhere = tenant.source is not None and tenant.source.address != source.address
        return Refusal.REBIND_CONFLICT if time_ms == tenant.last_ts and elsewhere else Refusal.NOT_NEWER
    # Spec 4.3: an 802 is newer, or it names a packet in the queue.
    if command is Command.DELIVERED and time_ms <= tenant.last_ts and packet.reference not in tenant.mailbox:
        return Refusal.UNKNOWN_RELAY
    # Spec 4.3: 104, 108 and 808 of a tenant are newer than the last accepted of these, unless the 108 only compares.
    if command in _CHANGES_STATE and time_ms <= tenant.state_ts:
        compares = command is Command.UPDATE_WHITELIST and is_comparison(read_update(packet.payload))
        return None if compares else Refusal.NOT_NEWER
    return None
