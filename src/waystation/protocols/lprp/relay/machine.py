"""The LPRP host: it grants leases, queues mail for tenants and delivers it, over UDP without connections.

``server.lprp.host`` runs it. A datagram passes the cheap checks, then gets a stored answer or waits for its signature
check in a batch. Only verified packets change state. All changes of one event-loop iteration form one commit, one
commit at a time. An answer is sent after the commit that it depends on. While the store refuses, the host keeps what it
has and is silent (LPRP-REFUSED).
Spec: lprp 4 to 8.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final

from waystation.core.commits import Commits
from waystation.core.effects import Address, Datagram, Effect, Verify, make_send_to
from waystation.core.facts import Fact
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.core.records import Store
from waystation.core.settings import InForce
from waystation.crypto.signing import KeyPair
from waystation.protocols.lprp.limits import DEFAULT_LIMITS, LprpLimits
from waystation.protocols.lprp.messages import HEADER_BYTES, REPLY_BYTES, SENDER, SIGNATURE_BYTES, Command
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.relay.answers import Answers, Seen
from waystation.protocols.lprp.relay.challenges import Challenges, is_expired
from waystation.protocols.lprp.relay.commands.lease import Leasing
from waystation.protocols.lprp.relay.commands.relay import Relaying
from waystation.protocols.lprp.relay.commands.whitelist import Listing
from waystation.protocols.lprp.relay.commands.work import Working
from waystation.protocols.lprp.relay.delivery import Delivery
from waystation.protocols.lprp.relay.intake import Arrival, Intake
from waystation.protocols.lprp.relay.ledger import Ledger
from waystation.protocols.lprp.relay.promises import Promise, repeats_of
from waystation.protocols.lprp.relay.refused import RefusedCounts
from waystation.protocols.lprp.relay.replies import Demand, Reply, Verdict
from waystation.protocols.lprp.relay.sources import Source, Sources
from waystation.protocols.lprp.relay.tenants import State, Tenant, Tenants, charge
from waystation.protocols.lprp.settings import LprpSettings
from waystation.protocols.lprp.wire import Codec

__all__ = ["LprpRelay"]

_AHEAD_MS: Final = 1_000
_REFUSES: Final = (Command.WORK_REFUSED, Command.RELAY_REFUSED, Command.LEASE_REFUSED)
_PROMISES: Final = (Command.HEARTBEAT_ANSWER, Command.RELAY_ACCEPTED, Command.LEASE_GRANTED, Command.WHITELIST_DONE)


class LprpRelay:
    """One host for any number of tenants, visitors and senders."""

    def __init__(
        self,
        settings: LprpSettings,
        key_pair: KeyPair,
        store: Store,
        *,
        limits: LprpLimits = DEFAULT_LIMITS,
        rate_limits: bool = True,
        admits: Callable[[PublicKey], bool] = lambda _identity: True,
        is_unlimited: Callable[[PublicKey], bool] = lambda _identity: False,
        extra_bits: Callable[[PublicKey, Instant], int] = lambda _identity, _now: 0,
    ) -> None:
        """Load the committed state; call ``set_wall`` before any input.

        Args:
            settings: The operator's settings.
            key_pair: The node's identity.
            store: Keeps leases and mail.
            limits: What peers may have and do; ``use_limits`` replaces them.
            rate_limits: Whether signature checks have a rate; the limits of the protocol always hold.
            admits: Called with every identity that sends or gets mail.
            is_unlimited: Whose packets need no token of the rate of signature checks, once their source is trusted.
            extra_bits: Returns how much harder work is for an identity.

        Raises:
            HostError: The store's rows are damaged.
        """
        self._settings = settings
        self._admits = admits
        self._key_pair = key_pair
        self._codec = Codec(settings.byte_order)
        self._limits = InForce(limits)
        self._sources = Sources(self._limits)
        self._tenants = Tenants(settings.lease_ms, settings.tenants_max)
        self._ledger = Ledger(store)
        self._seen = Seen(self._limits)
        self._answers = Answers(self._limits)
        self._challenges = Challenges(self._limits)
        self._delivery = Delivery(settings.retry_ms, settings.retries, self._send)
        self._intake = Intake(
            self._codec,
            key_pair.public,
            self._tenants,
            self._challenges,
            self._limits,
            admits,
            is_unlimited,
            rate_limits=rate_limits,
        )
        is_open = settings.leases == "open"
        self._leasing = Leasing(
            self._tenants, self._ledger, self._delivery, is_open=is_open, admits=admits, note=self._note
        )
        self._relaying = Relaying(self._tenants, self._ledger, self._seen, self._limits, admits=admits, note=self._note)
        self._listing = Listing(self._ledger, self._limits)
        tables = (self._tenants, self._challenges, self._answers)
        parts = (self._relaying, self._leasing, self._listing)
        self._working = Working(settings, key_pair, self._codec, tables, parts, self._note, self._limits, extra_bits)
        self._ledger.load(self._tenants)
        self._relaying.loaded()
        self._effects: list[Effect] = []
        self._refused = RefusedCounts()
        self._gathered: list[Arrival] = []
        self._asked: dict[int, list[Arrival]] = {}
        self._under_way: set[bytes] = set()
        """Packets between their arrival and their answer; a copy that arrives meanwhile changes nothing."""
        self._to_pump: dict[int, Tenant] = {}
        self._promises: list[Promise] = []
        self._committing: list[Promise] = []
        """The answers that wait for the commit under way, or for one that was refused."""
        self._commits = Commits()
        self._tickets = 0
        self._wall_offset_us = 0
        self._retiring = False

    def use_limits(self, limits: LprpLimits) -> None:
        """Hold peers to these limits from now on; rations of networks begin anew."""
        self._limits.now = limits

    def set_wall(self, now: Instant, wall_us: int) -> None:
        """Tie the monotonic clock to the wall clock: ``now`` is ``wall_us`` (microseconds UTC)."""
        self._wall_offset_us = wall_us - now
        self._ledger.begin_damaged(self._tenants, self._wall_ms(now))

    # Inputs

    def receive_datagrams(self, datagrams: Sequence[Datagram], now: Instant) -> None:
        """Take datagrams; the form check is here because a flood is mostly junk."""
        if self._retiring:
            return
        wall_ms = self._wall_ms(now)
        self._answers.expire(now)
        for datagram in datagrams:
            data, address = datagram
            # Spec 4.1: form and clock, before anything is looked up.
            refusal = self._codec.screen(data, wall_ms)
            if refusal is not None:
                self._refused.note(refusal)
                continue
            source = self._sources.receive(address, len(data), now)
            refusal = self._admit(datagram, source, now, wall_ms)
            if refusal is not None:
                self._refused.note_datagram(refusal, source.prefix.key)

    def verified(self, ticket: int, answers: Sequence[int], now: Instant) -> None:
        """Take the results of signature checks: carry out valid packets, then send the mail that may leave."""
        arrivals = self._asked.pop(ticket)
        wall_ms = self._wall_ms(now)
        for arrival, answer in zip(arrivals, answers, strict=True):
            self._intake.settle(arrival, now, holds=answer >= 0)
            if answer >= 0:
                self._handle(arrival, now, wall_ms)
            else:
                self._under_way.discard(arrival.packet.data)
                self._refused.note(Refusal.BAD_SIGNATURE)
        self._pump(now)

    def committed(self, ticket: int, now: Instant) -> None:
        """Take the report of a commit: send the answers that waited for it."""
        self._commits.committed(ticket)
        promises, self._committing = self._committing, []
        for promise in promises:
            self._keep_promise(promise, now)

    def not_committed(self, ticket: int, now: Instant) -> None:
        """Take the report that the store refused: nothing is answered, and all of it is asked for again."""
        # LPRP-REFUSED: what is in memory stays, as if the commit were still under way; nothing was said of it.
        self._commits.not_committed(ticket, now)

    def wake(self, now: Instant) -> None:
        """End leases, send mail again, and drop old challenges."""
        for tenant in self._leasing.end(self._wall_ms(now), now):
            self._relaying.drop(tenant)
        self._delivery.wake(now)
        self._challenges.expire(now)
        self._commits.wake(now)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due."""
        end_ms = self._tenants.next_end_ms()
        end_at = self._at_wall(end_ms) if end_ms is not None else None
        forgetting = self._tenants.next_forgetting()
        forget_at = max(self._at_wall(forgetting[0]), forgetting[1]) if forgetting is not None else None
        times = (end_at, forget_at, self._delivery.deadline(), self._challenges.next_expiry(), self._commits.again_at)
        return min((at for at in times if at is not None), default=None)

    def take(self) -> list[Effect]:
        """Return and forget the effects; those for verifier and store come last."""
        if self._gathered:
            self._tickets += 1
            self._asked[self._tickets], self._gathered = self._gathered, []
            checks = tuple([arrival.check() for arrival in self._asked[self._tickets]])
            self._effects.append(Verify(self._tickets, checks))
        must_commit = self._promises or self._ledger.is_dirty or self._commits.is_refused
        if must_commit and self._commits.may_begin:  # LPRP-COMMIT: one at a time
            self._tickets += 1
            self._committing += self._promises
            self._promises = []
            self._effects.append(self._commits.begin(self._ledger.changes(), self._tickets))
        effects, self._effects = self._effects + self._refused.take(), []
        return effects

    # Operation by the node

    def retire(self) -> None:
        """Take no more datagrams; received packets are finished (LPRP-RETIRE)."""
        self._retiring = True

    def settled(self) -> bool:
        """Return whether every received packet has its answer."""
        waits = self._gathered or self._asked or self._promises or self._ledger.is_dirty
        return not waits and self._commits.is_settled

    def shut(self, now: Instant) -> None:
        """Do nothing: there is no connection to close, and mail waits on disk."""

    def expel(self, identity: PublicKey, now: Instant) -> None:
        """Send nothing more to a tenant; ``admits`` is called for each of its packets."""
        tenant = self._tenants.find(identity, self._wall_ms(now))
        if tenant is not None:
            tenant.lose_address()
            self._delivery.stop(tenant)

    def review(self, now: Instant) -> None:
        """Send nothing more to tenants that are not admitted any more."""
        for tenant in self._tenants:
            if not self._admits(tenant.key):
                self.expel(tenant.key, now)

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
            "doubted": self._intake.doubted_count,
            **self._sources.sizes(),
        }

    def info(self) -> dict[str, Any]:
        """Return the public facts that clients need before their first packet."""
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
        """Return the operator's view of at most ``count_max`` tenants, oldest lease first."""
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

    def _admit(self, datagram: Datagram, source: Source, now: Instant, wall_ms: int) -> Refusal | None:
        """Queue a packet for its signature check, or repeat its stored answer; return why neither happened."""
        data, address = datagram
        if data in self._under_way:  # LPRP-COPY
            return Refusal.DUPLICATE
        answer = self._answers.find(data)
        # Spec 4.4: a packet that was answered before gets the same bytes again and does nothing else.
        if answer is not None and self._still_holds(answer, source, now):
            return self._repeat(answer, self._tenants.find(data[SENDER], wall_ms), source, address)
        arrival = self._intake.consider(datagram, source, wall_ms)
        if isinstance(arrival, Refusal):
            return self._beat_again(datagram, source, wall_ms) if arrival is Refusal.NOT_NEWER else arrival
        # Spec 4.5: before its signature is checked, its network must have checks left.
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

    def _beat_again(self, datagram: Datagram, source: Source, wall_ms: int) -> Refusal | None:
        """Answer the last accepted heartbeat of a tenant again (LPRP-C3)."""
        data, address = datagram
        tenant = self._tenants.find(data[SENDER], wall_ms)
        if tenant is None or tenant.heartbeat is None or tenant.heartbeat[0] != data:
            return Refusal.NOT_NEWER
        return self._repeat(tenant.heartbeat[1], tenant, source, address)

    def _repeat(self, answer: bytes, tenant: Tenant | None, source: Source, address: Address) -> Refusal | None:
        if not charge(tenant, source, len(answer)):
            return Refusal.NO_CREDIT
        self._send(address, answer)
        return None

    # After the signature check

    def _handle(self, arrival: Arrival, now: Instant, wall_ms: int) -> None:
        """Note contact, carry out the command, and send or promise its answer."""
        packet, actor, address, source, _ = arrival
        tenant = self._tenants.find(actor, wall_ms)
        verdict: Verdict | None = self._intake.stale(
            arrival, tenant
        )  # an earlier packet of this turn may have done that
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
                paid = self._pay(tenant, source, len(challenge))
                self._promises.append(Promise(packet.data, (), challenge, address if paid else None))
                promised = True
            else:
                self._refused.note(self._repeat(challenge, tenant, source, address))
        elif verdict is None:
            source.note_accepted()
        else:
            self._refused.note(verdict)
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
        """Update a tenant's address, if this packet may move it (LPRP-D13)."""
        packet, actor, address, source, _ = arrival
        if packet.command is Command.ASK_LEASE and not self._admits(actor):
            return  # everything else of a banned identity was dropped before
        # Spec 4.6: a packet for this host with a time greater than the last one's moves the address.
        if packet.command is not Command.RELAY or self._settings.rebind_on_relay:
            if tenant.update_contact(packet, source, address, now):
                self._note_time(tenant, packet.command)
                self._pump_later(tenant)
            elif packet.time_ms == tenant.last_ts and tenant.source is not None and tenant.source is not source:
                self._refused.note(Refusal.REBIND_CONFLICT)
        # Spec 4.6: a 102 does so only from the address on file.
        elif tenant.source is not None and tenant.source.address == source.address and packet.time_ms > tenant.last_ts:
            tenant.source, tenant.address = source, address
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
        """Return whether an answer must wait: changes of a tenant's packets are not on disk yet."""
        return tenant is not None and (self._ledger.is_dirty or not self._commits.is_settled)

    def _reply(self, reply: Reply, arrival: Arrival, tenant: Tenant | None, now: Instant, wall_ms: int) -> bool:
        """Sign an answer and send it, or promise it for after the commit; return whether it was promised."""
        packet, actor, address, source, _ = arrival
        command = reply.command
        self._refused.note_reply(reply.refusal, reply.about)
        # Spec 7: 10 each of 401, 402 and 404 per second and network; beyond, silence.
        if command in _REFUSES and not source.prefix.take_refusal(command, now):
            self._refused.note_silence(command, source.prefix.key)
            return False
        if command in _PROMISES:
            source.note_accepted()
        beats = command is Command.HEARTBEAT_ANSWER
        paid = self._pay(tenant, source, HEADER_BYTES if beats else REPLY_BYTES)
        judged_again = command is Command.RELAY_REFUSED and reply.about is packet  # LPRP-C4
        if judged_again and not paid:
            return False
        # Spec 3: the answer to work has the reference of the packet that asked, not of the 101.
        reference = b"" if beats else reply.about.signature
        answer = self._codec.seal(self._key_pair, actor, command, reference, wall_ms).data
        promise = Promise(packet.data, repeats_of(reply, packet), answer, address if paid else None)
        if beats:
            promise.heartbeat_of = tenant
        # Spec 4: 200, 202, 204 and 208 leave when what they promise is on the disk.
        late = command in _PROMISES or self._waits_for_disk(tenant)
        if late:
            self._promises.append(promise)
        else:
            self._keep_promise(promise, now)
        return late

    def _pay(self, tenant: Tenant | None, source: Source, size: int) -> bool:
        paid = charge(tenant, source, size)
        if not paid:
            self._refused.note(Refusal.NO_CREDIT)
        return paid

    def _keep_promise(self, promise: Promise, now: Instant) -> None:
        self._under_way.discard(promise.packet)
        for packet in promise.packets:
            self._answers.keep(packet, promise.answer, now)
        if promise.heartbeat_of is not None:
            promise.heartbeat_of.heartbeat = (promise.packet, promise.answer)
        if promise.address is not None:
            self._send(promise.address, promise.answer)

    # Helpers

    def _pump_later(self, tenant: Tenant | None) -> None:
        """Send a tenant's mail at the end of this turn: an 802 counts before anything is sent."""
        if tenant is not None:
            self._to_pump[tenant.number] = tenant

    def _pump(self, now: Instant) -> None:
        """Send the mail of all tenants that this turn concerns, ahead of any commit (LPRP-MAIL)."""
        to_pump, self._to_pump = self._to_pump, {}
        for tenant in to_pump.values():
            self._delivery.pump(tenant, now)

    def _send(self, address: Address, data: bytes) -> None:
        self._effects.append(make_send_to((data, address)))

    def _note(self, fact: Fact) -> None:
        self._effects.append(fact)

    def _at_wall(self, wall_ms: int) -> Instant:
        return Instant(wall_ms * MICROSECONDS_PER_MS - self._wall_offset_us)

    def _wall_ms(self, now: Instant) -> int:
        return (now + self._wall_offset_us) // MICROSECONDS_PER_MS


def _shown(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
