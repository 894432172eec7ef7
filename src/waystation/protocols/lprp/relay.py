"""The host of LPRP: a machine without connections.

A datagram passes the cheap checks, gets an answer that was given before, or waits for its signature check with the
others of its turn; only then does it touch anything. What it changed is committed together with what its turn brought,
one commit at a time, and the answers that promise it leave behind that. Spec: lprp 4 to 8.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final

from waystation.core.effects import Address, Commit, Datagram, Effect, Verify, make_send_to
from waystation.core.facts import Fact, Refused
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.core.records import Store
from waystation.crypto.signing import KeyPair
from waystation.protocols.lprp.answers import Answers, Seen
from waystation.protocols.lprp.challenges import Challenges, is_expired
from waystation.protocols.lprp.delivery import Delivery
from waystation.protocols.lprp.intake import Arrival, Intake
from waystation.protocols.lprp.leasing import Leasing
from waystation.protocols.lprp.ledger import Ledger
from waystation.protocols.lprp.listing import Listing
from waystation.protocols.lprp.messages import (
    HEADER_BYTES,
    REPLY_BYTES,
    SENDER,
    SIGNATURE_BYTES,
    Command,
)
from waystation.protocols.lprp.promises import Promise, repeats_of
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.relaying import Relaying
from waystation.protocols.lprp.replies import Demand, Reply, Verdict
from waystation.protocols.lprp.settings import LprpSettings
from waystation.protocols.lprp.sources import Source, Sources
from waystation.protocols.lprp.tenants import State, Tenant, Tenants
from waystation.protocols.lprp.wire import Codec
from waystation.protocols.lprp.working import Working

__all__ = ["LprpRelay"]

_AHEAD_MS: Final = 1_000
_REFUSES: Final = (Command.WORK_REFUSED, Command.RELAY_REFUSED, Command.LEASE_REFUSED)
_PROMISES: Final = (
    Command.HEARTBEAT_ANSWER,
    Command.RELAY_ACCEPTED,
    Command.LEASE_GRANTED,
    Command.WHITELIST_DONE,
)


class LprpRelay:
    """One host for any number of tenants, visitors and senders."""

    def __init__(
        self,
        settings: LprpSettings,
        key_pair: KeyPair,
        store: Store,
        *,
        rate_limits: bool = True,
        admits: Callable[[PublicKey], bool] = lambda _identity: True,
        extra_bits: Callable[[PublicKey, Instant], int] = lambda _identity, _now: 0,
    ) -> None:
        """Take up what earlier lives committed; call ``set_wall`` before anything happens.

        Args:
            settings: What the operator chose.
            key_pair: The node's identity.
            store: Keeps leases and mail.
            rate_limits: Whether signature checks have a rate; the limits of the protocol always hold.
            admits: Asked about every identity that speaks or gets mail.
            extra_bits: Asked how much harder work is for an identity.

        Raises:
            HostError: The store's rows are damaged.
        """
        self._settings = settings
        self._admits = admits
        self._key_pair = key_pair
        self._codec = Codec(settings.byte_order)
        self._sources = Sources()
        self._tenants = Tenants(settings.lease_ms, settings.tenants_max)
        self._ledger = Ledger(store)
        self._seen = Seen()
        self._answers = Answers()
        self._challenges = Challenges()
        self._delivery = Delivery(settings.retry_ms, settings.retries, self._send)
        self._intake = Intake(
            self._codec, key_pair.public, self._tenants, self._challenges, rate_limits=rate_limits, admits=admits
        )
        self._leasing = Leasing(
            self._tenants,
            self._ledger,
            self._delivery,
            is_open=settings.leases == "open",
            admits=admits,
            note=self._note,
        )
        self._relaying = Relaying(self._tenants, self._ledger, self._seen, admits=admits, note=self._note)
        self._listing = Listing(self._ledger)
        self._working = Working(
            settings,
            key_pair,
            self._codec,
            (self._tenants, self._challenges, self._answers),
            (self._relaying, self._leasing, self._listing),
            self._note,
            extra_bits,
        )
        self._ledger.load(self._tenants)
        self._relaying.loaded()
        self._effects: list[Effect] = []
        self._refused: dict[Refusal, int] = {}
        self._gathered: list[Arrival] = []
        self._asked: dict[int, list[Arrival]] = {}
        self._under_way: set[bytes] = set()
        """Packets between their arrival and their answer; a copy that comes meanwhile changes nothing."""
        self._to_pump: dict[int, Tenant] = {}
        self._promises: list[Promise] = []
        self._committing: list[Promise] | None = None
        self._tickets = 0
        self._wall_offset_us = 0
        self._retiring = False

    def set_wall(self, now: Instant, wall_us: int) -> None:
        """Tie the monotonic clock to the wall clock: ``now`` is ``wall_us`` (microseconds UTC)."""
        self._wall_offset_us = wall_us - now

    # Inputs

    def receive_datagrams(self, datagrams: Sequence[Datagram], now: Instant) -> None:
        """Datagrams arrived; the form check is here because junk is most of what a flood brings."""
        if self._retiring:
            return
        wall_ms = self._wall_ms(now)
        self._answers.expire(now)
        refused = self._refused
        for data, address in datagrams:
            refusal = self._codec.screen(data, wall_ms)
            if refusal is None:
                refusal = self._admit(data, self._sources.hear(address, len(data), now), now, wall_ms)
            if refusal is not None:
                refused[refusal] = refused.get(refusal, 0) + 1

    def verified(self, ticket: int, answers: Sequence[int], now: Instant) -> None:
        """Signatures were checked: let the packets that hold do what they ask for, then send what mail may leave."""
        arrivals = self._asked.pop(ticket)
        wall_ms = self._wall_ms(now)
        for arrival, answer in zip(arrivals, answers, strict=True):
            self._intake.settle(arrival, now, holds=answer >= 0)
            if answer >= 0:
                self._judge(arrival, now, wall_ms)
            else:
                self._under_way.discard(arrival.packet.data)
                self._count(Refusal.BAD_SIGNATURE)
        self._pump(now)

    def committed(self, ticket: int, now: Instant) -> None:  # noqa: ARG002 - one commit at a time
        """What the promises rest on is on disk: let them go."""
        promises, self._committing = self._committing, None
        assert promises is not None
        for promise in promises:
            self._keep_promise(promise, now)

    def wake(self, now: Instant) -> None:
        """Leases end, mail is sent again, old challenges go."""
        for tenant in self._leasing.end(self._wall_ms(now), now):
            self._relaying.drop(tenant)
        self._delivery.wake(now)
        self._challenges.expire(now)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due."""
        end_ms = self._tenants.next_end_ms()
        end_at = self._at_wall(end_ms) if end_ms is not None else None
        forgetting = self._tenants.next_forgetting()
        forget_at = max(self._at_wall(forgetting[0]), forgetting[1]) if forgetting is not None else None
        times = (end_at, forget_at, self._delivery.deadline(), self._challenges.next_expiry())
        return min((at for at in times if at is not None), default=None)

    def take(self) -> list[Effect]:
        """Return and forget the effects; questions to verifier and store stand last."""
        if self._gathered:
            self._tickets += 1
            self._asked[self._tickets], self._gathered = self._gathered, []
            checks = tuple([arrival.check() for arrival in self._asked[self._tickets]])
            self._effects.append(Verify(self._tickets, checks))
        if self._committing is None and (self._promises or self._ledger.is_dirty):  # LPRP-COMMIT: one at a time
            self._tickets += 1
            self._committing, self._promises = self._promises, []
            self._effects.append(Commit(self._tickets, self._ledger.changes()))
        if self._refused:
            self._effects += [Refused("lprp", None, refusal.value, times) for refusal, times in self._refused.items()]
            self._refused.clear()
        effects, self._effects = self._effects, []
        return effects

    # What the node asks

    def retire(self) -> None:
        """Hear nobody any more; what was heard is finished (LPRP-RETIRE)."""
        self._retiring = True

    def settled(self) -> bool:
        """Return whether everything that was heard has its answer."""
        waits = self._gathered or self._asked or self._promises or self._ledger.is_dirty
        return not waits and self._committing is None

    def shut(self, now: Instant) -> None:
        """Do nothing: there is no connection to close, and mail waits on disk."""

    def expel(self, identity: PublicKey, now: Instant) -> None:
        """Send nothing more to a tenant; whether it may speak is asked each time."""
        tenant = self._tenants.find(identity, self._wall_ms(now))
        if tenant is not None:
            tenant.lose_address()
            self._delivery.stop(tenant)

    def sizes(self) -> dict[str, int]:
        """Return how much of each bounded thing there is."""
        return {
            "tenants": len(self._tenants),
            "leases_kept": self._tenants.kept_count,
            "packets": self._relaying.mail_count,
            "packet_bytes": self._relaying.mail_bytes,
            "bundles": self._ledger.bundles_count,
            "deliveries": len(self._delivery),
            "challenges": len(self._challenges),
            "answers": len(self._answers),
            "seen": len(self._seen),
            "under_way": len(self._under_way),
            **self._sources.sizes(),
        }

    def info(self) -> dict[str, Any]:
        """Return what clients have to know of this host before they speak to it."""
        settings = self._settings
        return {
            "public_key": self._key_pair.public.hex(),
            "byte_order": settings.byte_order,
            "lease_ms": settings.lease_ms,
            "retry_ms": settings.retry_ms,
            "retries": settings.retries,
            "leases": settings.leases,
        }

    def tenants(self, now: Instant, count_max: int = 1_000) -> list[dict[str, Any]]:
        """Return what an operator may know of at most ``count_max`` tenants, oldest lease first."""
        wall_ms = self._wall_ms(now)
        return [self._view(tenant, now, wall_ms) for tenant in islice(self._tenants, count_max)]

    def _view(self, tenant: Tenant, now: Instant, wall_ms: int) -> dict[str, Any]:
        lives = self._tenants.find(tenant.key, wall_ms) is not None
        state = tenant.state(now) if lives else State.EXPIRED
        return {
            "key": tenant.key.hex(),
            "lease_ms_left": max(0, tenant.lease_at_ms + self._settings.lease_ms - wall_ms) if lives else 0,
            "state": state.value,
            "queue": len(tenant.mailbox),
            "whitelist": len(tenant.whitelist),
            "address": _shown(tenant.source.address) if tenant.source is not None else "",
        }

    # Before the signature check

    def _admit(self, data: bytes, source: Source, now: Instant, wall_ms: int) -> Refusal | None:
        """Queue a packet for its signature check, or answer what was answered before; return why nothing came of it."""
        if data in self._under_way:  # LPRP-COPY
            return Refusal.DUPLICATE
        answer = self._answers.find(data)
        if answer is not None and self._still_holds(answer, source, now):
            return self._repeat(answer, self._tenants.find(data[SENDER], wall_ms), source)
        arrival = self._intake.consider(data, source, wall_ms)
        if isinstance(arrival, Refusal):
            return self._beat_again(data, source, wall_ms) if arrival is Refusal.NOT_NEWER else arrival
        refusal = self._intake.ration(arrival, len(self._under_way), now)
        if refusal is not None:
            return refusal
        self._under_way.add(data)
        self._gathered.append(arrival)
        return None

    def _still_holds(self, answer: bytes, source: Source, now: Instant) -> bool:
        """Return whether a stored answer is worth repeating: work for an expired challenge would be lost (LPRP-STALE).

        A challenge that goes to a second address proves none (LPRP-PROOF).
        """
        challenge = self._challenges.find(answer[:SIGNATURE_BYTES])
        if challenge is None:
            return True
        if challenge.address != source.address:
            challenge.address = None
        return not is_expired(challenge, now)

    def _beat_again(self, data: bytes, source: Source, wall_ms: int) -> Refusal | None:
        """Answer the last accepted heartbeat of a tenant again (LPRP-C3)."""
        tenant = self._tenants.find(data[SENDER], wall_ms)
        if tenant is None or tenant.heartbeat is None or tenant.heartbeat[0] != data:
            return Refusal.NOT_NEWER
        return self._repeat(tenant.heartbeat[1], tenant, source)

    def _repeat(self, answer: bytes, tenant: Tenant | None, source: Source) -> Refusal | None:
        if not _charge(tenant, source, len(answer)):
            return Refusal.NO_CREDIT
        self._send(source.address, answer)
        return None

    # Behind it

    def _judge(self, arrival: Arrival, now: Instant, wall_ms: int) -> None:
        """Note contact, obey the command, and see to its answer."""
        packet, actor, source, _ = arrival
        tenant = self._tenants.find(actor, wall_ms)
        verdict: Verdict | None = self._intake.stale(arrival, tenant)  # the one before it may have done that
        if verdict is None:
            if tenant is not None:
                self._note_contact(arrival, tenant, now)
            verdict = self._obey(arrival, tenant, now, wall_ms)
        promised = False
        if isinstance(verdict, Reply):
            if verdict.command is Command.RELAY_ACCEPTED:
                self._pump_later(self._tenants.find(verdict.about.recipient, wall_ms))
            elif verdict.command is Command.LEASE_GRANTED:
                tenant = self._tenants.find(actor, wall_ms)
                assert tenant is not None
                self._note_contact(arrival, tenant, now)  # a newcomer is a tenant only since then
            promised = self._reply(verdict, arrival, tenant, now, wall_ms)
        elif isinstance(verdict, Demand):
            challenge = self._working.demand(verdict, source, now, wall_ms)
            if self._waits_for_disk(tenant):
                address = source.address if self._pay(tenant, source, len(challenge)) else None
                self._promises.append(Promise(packet.data, (), challenge, address))
                promised = True
            else:
                self._count(self._repeat(challenge, tenant, source))
        elif verdict is None:
            source.note_accepted()
        else:
            self._count(verdict)
        if not promised:
            self._under_way.discard(packet.data)

    def _obey(self, arrival: Arrival, tenant: Tenant | None, now: Instant, wall_ms: int) -> Verdict | None:
        packet = arrival.packet
        command = packet.command
        if command is Command.RELAY:
            return self._relaying.asked(packet, wall_ms)
        if command is Command.WORK:
            return self._working.worked(arrival, now, wall_ms)
        if command is Command.ASK_LEASE:
            return self._leasing.asked(packet, wall_ms)
        assert tenant is not None  # stage 3
        if command is Command.DELIVERED:
            self._pump_later(tenant)
            return self._relaying.delivered(tenant, packet, wall_ms)
        if command is Command.UPDATE_WHITELIST:
            return self._listing.asked(tenant, packet, wall_ms)
        if command is Command.CLEAR_WHITELIST:
            return self._listing.cleared(tenant, packet, wall_ms)
        return Reply(Command.HEARTBEAT_ANSWER, packet)

    def _note_contact(self, arrival: Arrival, tenant: Tenant, now: Instant) -> None:
        """Remember where a tenant speaks from, if this packet may say so (LPRP-D13)."""
        packet, actor, source, _ = arrival
        if packet.command is Command.ASK_LEASE and not self._admits(actor):
            return  # everything else of a banned identity was dropped before
        if packet.command is not Command.RELAY or self._settings.rebind_on_relay:
            if tenant.meet(packet, source, now):
                self._note_time(tenant, packet.command)
                self._pump_later(tenant)
            elif packet.time_ms == tenant.last_ts and tenant.source is not None and tenant.source is not source:
                self._count(Refusal.REBIND_CONFLICT)
        elif tenant.source is not None and tenant.source.address == source.address and packet.time_ms > tenant.last_ts:
            tenant.source = source
            tenant.refresh(now)
            self._pump_later(tenant)

    def _note_time(self, tenant: Tenant, command: Command) -> None:
        """Have ``last_ts`` on disk, ahead of its time for an 802: they come by the hundred (LPRP-AHEAD)."""
        if tenant.last_ts <= tenant.kept_ts:
            return
        tenant.kept_ts = tenant.last_ts + (_AHEAD_MS if command is Command.DELIVERED else 0)
        self._ledger.note_tenant(tenant)

    # Answers

    def _waits_for_disk(self, tenant: Tenant | None) -> bool:
        """Return whether an answer must not leave yet: what a tenant did with this packet or before is not on disk."""
        return tenant is not None and (self._committing is not None or self._ledger.is_dirty)

    def _reply(self, reply: Reply, arrival: Arrival, tenant: Tenant | None, now: Instant, wall_ms: int) -> bool:
        """Sign an answer and send it, or promise it for after the commit; return whether it was promised."""
        packet, actor, source, _ = arrival
        command = reply.command
        self._count(reply.refusal)
        if command in _REFUSES and not source.prefix.take_refusal(command, now):
            self._count(Refusal.REFUSAL_RATE)
            return False
        if command in _PROMISES:
            source.note_accepted()
        beats = command is Command.HEARTBEAT_ANSWER
        paid = self._pay(tenant, source, HEADER_BYTES if beats else REPLY_BYTES)
        judged_again = command is Command.RELAY_REFUSED and reply.about is packet  # LPRP-C4
        if judged_again and not paid:
            return False
        reference = b"" if beats else reply.about.signature
        answer = self._codec.seal(self._key_pair, actor, command, reference, wall_ms).data
        promise = Promise(packet.data, repeats_of(reply, packet), answer, source.address if paid else None)
        if beats:
            promise.heartbeat_of = tenant
        late = command in _PROMISES or self._waits_for_disk(tenant)
        if late:
            self._promises.append(promise)
        else:
            self._keep_promise(promise, now)
        return late

    def _pay(self, tenant: Tenant | None, source: Source, size: int) -> bool:
        paid = _charge(tenant, source, size)
        if not paid:
            self._count(Refusal.NO_CREDIT)
        return paid

    def _keep_promise(self, promise: Promise, now: Instant) -> None:
        self._under_way.discard(promise.packet)
        for packet in promise.packets:
            self._answers.keep(packet, promise.answer, now)
        if promise.heartbeat_of is not None:
            promise.heartbeat_of.heartbeat = (promise.packet, promise.answer)
        if promise.address is not None:
            self._send(promise.address, promise.answer)

    # Small things

    def _pump_later(self, tenant: Tenant | None) -> None:
        """Look after this tenant's mail once all of this turn was judged: an 802 counts before anything is sent."""
        if tenant is not None:
            self._to_pump[tenant.number] = tenant

    def _pump(self, now: Instant) -> None:
        """Send the mail of whom this turn heard from, or whom it brought mail for, ahead of any commit (LPRP-MAIL)."""
        to_pump, self._to_pump = self._to_pump, {}
        for tenant in to_pump.values():
            self._delivery.pump(tenant, now)

    def _send(self, address: Address, data: bytes) -> None:
        self._effects.append(make_send_to((data, address)))

    def _note(self, fact: Fact) -> None:
        self._effects.append(fact)

    def _count(self, refusal: Refusal | None) -> None:
        if refusal is not None:
            self._refused[refusal] = self._refused.get(refusal, 0) + 1

    def _at_wall(self, wall_ms: int) -> Instant:
        return Instant(wall_ms * MICROSECONDS_PER_MS - self._wall_offset_us)

    def _wall_ms(self, now: Instant) -> int:
        return (now + self._wall_offset_us) // MICROSECONDS_PER_MS


def _shown(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _charge(tenant: Tenant | None, source: Source, size: int) -> bool:
    """Take ``size`` bytes from what an address has earned, if it has (LPRP-D17, LPRP-D18).

    Args:
        tenant: Who is spoken to, None for strangers.
        source: Where it goes; a tenant is a stranger wherever it was not heard from last.
        size: Bytes of the answer.
    """
    if tenant is not None and tenant.source is source:
        if source.tenant_room(tenant.key) < size:
            return False
        source.sent_to_tenant(size)
        return True
    if not source.may_answer_stranger(size):
        return False
    source.sent_to_stranger(size)
    return True
