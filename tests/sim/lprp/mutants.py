"""Hosts and clients of LPRP with one mistake each, for the tests of the simulator's laws."""

from dataclasses import replace

from waystation.core.effects import Commit, SendTo
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.protocols.lprp.client.events import RelayFinished, RequestOutcome, WhitelistAgreed
from waystation.protocols.lprp.client.machine import LprpClient
from waystation.protocols.lprp.messages import Command
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.relay.challenges import Challenges
from waystation.protocols.lprp.relay.machine import LprpRelay
from waystation.protocols.lprp.relay.replies import Reply
from waystation.protocols.lprp.relay.tenants import Tenant, Tenants

WORKED_FOR = ("relay", "lease", "whitelist")
_RELAY = (0x102).to_bytes(8, "big")


def _with(change):
    """Return a relay with other settings than its own."""

    class Mutant(LprpRelay):
        def __init__(self, settings, *args, **options):
            super().__init__(replace(settings, **change(settings)), *args, **options)

    return Mutant


def _after_restart(change):
    """Return a relay that changes what it reads back from its store of a tenant."""

    class Mutant(LprpRelay):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            for tenant in self._tenants:
                for name, value in change(tenant).items():
                    setattr(tenant, name, value)

    return Mutant


def _with_friends(friends_of):
    """Return a relay that sees another whitelist than the recipient's while it judges a packet."""

    class Mutant(LprpRelay):
        def _obey(self, arrival, tenant, now, wall_ms):
            packet = arrival.packet
            recipient = self._tenants.find(packet.recipient, wall_ms)
            if packet.command is not Command.RELAY or recipient is None:
                return super()._obey(arrival, tenant, now, wall_ms)
            before, recipient.whitelist = recipient.whitelist, friends_of(recipient, packet)
            verdict = super()._obey(arrival, tenant, now, wall_ms)
            recipient.whitelist = before
            return verdict

    return Mutant


RebindsOnRelay = _with(lambda _settings: {"rebind_on_relay": True})
"""Takes the address of a relayed packet for its sender's, as the text says."""

AsksForTooLittle = _with(lambda _settings: dict.fromkeys((f"pow_base_bits_{each}" for each in WORKED_FOR), 0))
"""Takes any work."""

RefusesGoodWork = _with(
    lambda settings: {f"pow_base_bits_{each}": settings.pow_base_bits_relay + 2 for each in ("relay", "lease")}
)
"""Wants two bits more than it should."""

ForgetsTimes = _after_restart(lambda _tenant: {"last_ts": 0, "state_ts": 0})
"""Does not know after a restart what it has received."""

ForgetsWhitelists = _after_restart(lambda _tenant: {"whitelist": frozenset()})
"""Does not keep whitelists."""

ForgetsMail = _after_restart(lambda tenant: {"mailbox": type(tenant.mailbox)()})
"""Does not keep mail."""

ShortensLeases = _after_restart(lambda tenant: {"lease_at_ms": tenant.lease_at_ms - 60_000})
"""Lets leases go back."""

ProlongsLeases = _after_restart(lambda tenant: {"lease_at_ms": tenant.lease_at_ms + 60_000})
"""Lets leases begin anew."""

LetsStrangersIn = _with_friends(lambda recipient, packet: recipient.whitelist | {packet.sender})
"""Takes every sender for a friend."""

LetsNobodyIn = _with_friends(lambda _recipient, _packet: frozenset())
"""Demands work of friends, too."""


class MovesByOldPackets(LprpRelay):
    """Notes contact whatever the time of a packet is."""

    def _note_contact(self, arrival, tenant, now):
        tenant.last_ts = min(tenant.last_ts, arrival.packet.time_ms - 1)
        super()._note_contact(arrival, tenant, now)

    def _admit(self, datagram, source, now, wall_ms):
        tenant = self._tenants.find(datagram[0][72:104], wall_ms)
        if tenant is not None:
            tenant.last_ts = 0
        self._answers.forget(datagram[0])
        return super()._admit(datagram, source, now, wall_ms)


class StaysBehind(LprpRelay):
    """Never notes that a tenant has moved."""

    def _note_contact(self, arrival, tenant, now):
        before = tenant.source, tenant.address
        super()._note_contact(arrival, tenant, now)
        if before[0] is not None:
            tenant.source, tenant.address = before


class PromisesEarly(LprpRelay):
    """Says 202 while the packet is on its way to the disk."""

    def take(self):
        effects = super().take()
        for commit in [effect for effect in effects if isinstance(effect, Commit)]:
            super().committed(commit.ticket, Instant(0))
            effects += self.take()
        return effects

    def committed(self, ticket, now):
        """Ignore what is known already."""


class LosesLetters(LprpRelay):
    """Accepts every fifth packet and does not queue it."""

    accepted = 0

    def _obey(self, arrival, tenant, now, wall_ms):
        verdict = super()._obey(arrival, tenant, now, wall_ms)
        if isinstance(verdict, Reply) and verdict.command is Command.RELAY_ACCEPTED:
            self.accepted += 1
            recipient = self._tenants.find(verdict.about.recipient, wall_ms)
            if self.accepted % 5 == 0 and verdict.about.signature in recipient.mailbox:
                recipient.mailbox.remove(verdict.about.signature)
        return verdict


class IgnoresConfirmations(LprpRelay):
    """Keeps one in eight of the packets that were delivered."""

    def _obey(self, arrival, tenant, now, wall_ms):
        if arrival.packet.command is Command.DELIVERED and arrival.packet.reference[0] < 32:
            return None
        return super()._obey(arrival, tenant, now, wall_ms)


class TrustsEverybody(LprpRelay):
    """Sends a tenant's address whatever there is, proved or not."""

    def _admit(self, datagram, source, now, wall_ms):
        source.prove(PublicKey(datagram[0][72:104]))
        return super()._admit(datagram, source, now, wall_ms)


class BelievesAnyProof(LprpRelay):
    """Takes an address that anybody proved for everybody's."""

    def _admit(self, datagram, source, now, wall_ms):
        if source.proved_by is not None:
            source.prove(PublicKey(datagram[0][72:104]))
        return super()._admit(datagram, source, now, wall_ms)


class BelievesRepeats(LprpRelay):
    """Lets a challenge prove an address though it went to another as well."""

    def _still_holds(self, answer, source, now):
        return True


class GivesCredit(LprpRelay):
    """Answers strangers whatever they have sent."""

    def _admit(self, datagram, source, now, wall_ms):
        source.prefix.credit += 1_000
        source.bytes_in += 1_000
        return super()._admit(datagram, source, now, wall_ms)


class SendsToTheSilent(LprpRelay):
    """Sends mail to addresses that were not received from for long."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._tenants.__class__ = _NeverStale


class _NeverStale(Tenants):
    def _new(self, key, lease_at_ms):
        tenant = super()._new(key, lease_at_ms)
        tenant.__class__ = _AlwaysReachable
        return tenant


class _AlwaysReachable(Tenant):
    __slots__ = ()

    def is_reachable(self, now):
        return self.source is not None


class UpdatesForFree(LprpRelay):
    """Never asks for work for a whitelist."""

    def _obey(self, arrival, tenant, now, wall_ms):
        if tenant is not None and arrival.packet.command is Command.UPDATE_WHITELIST:
            tenant.whitelist_at_ms = 0
        return super()._obey(arrival, tenant, now, wall_ms)


class LosesToggles(LprpRelay):
    """Says that an update is done and forgets its greatest key."""

    def _obey(self, arrival, tenant, now, wall_ms):
        verdict = super()._obey(arrival, tenant, now, wall_ms)
        if arrival.packet.command is Command.UPDATE_WHITELIST and tenant.whitelist:
            tenant.whitelist -= {max(tenant.whitelist)}
        return verdict


class AnswersTwice(LprpRelay):
    """Says everything once more."""

    def take(self):
        return [each for effect in super().take() for each in [effect] * (1 + isinstance(effect, SendTo))]


class AnswersElsewhere(LprpRelay):
    """Sends a repeated answer to whoever asked first."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.first = {}

    def receive_datagrams(self, datagrams, now):
        super().receive_datagrams([(data, self.first.setdefault(data, address)) for data, address in datagrams], now)


class AltersMail(LprpRelay):
    """Signs mail itself."""

    def take(self):
        return [
            effect._replace(data=effect.data[:-1] + bytes([effect.data[-1] ^ 1]))
            if isinstance(effect, SendTo) and effect.data[136:144] == _RELAY
            else effect
            for effect in super().take()
        ]


class RefusesFriends(LprpRelay):
    """Refuses every tenth packet for no reason."""

    asked = 0

    def _obey(self, arrival, tenant, now, wall_ms):
        if arrival.packet.command is Command.RELAY:
            self.asked += 1
            if self.asked % 10 == 0:
                return Reply(Command.RELAY_REFUSED, arrival.packet)
        return super()._obey(arrival, tenant, now, wall_ms)


class KeepsChallenges(LprpRelay):
    """Never forgets a challenge that nobody answered."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._challenges.__class__ = _Hoard


class _Hoard(Challenges):
    __slots__ = ()

    def expire(self, now):
        return []

    def next_expiry(self):
        return None


class TellsAgain(LprpClient):
    """Forgets what the application has confirmed."""

    def confirm(self, signature, now):
        super().confirm(signature, now)
        self._inbox._seen.__init__()


class TakesAnything(LprpClient):
    """Takes every signature for good."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        judge = self._inbox._refusal_of

        def trust(packet, now):
            refusal = judge(packet, now)
            return None if refusal is Refusal.BAD_SIGNATURE else refusal

        self._inbox._refusal_of = trust


class ReadsForeignMail(LprpClient):
    """Takes what is for somebody else."""

    def _form_refusal(self, packet):
        return None if packet.command is Command.RELAY else super()._form_refusal(packet)


class BelievesAnybody(LprpClient):
    """Does not look at who signed an answer."""

    def _answer_refusal(self, packet, now):
        return self._requests.expects(packet) if packet.command is not Command.HEARTBEAT_ANSWER else None


class TakesSilenceForSuccess(LprpClient):
    """Reports a packet as accepted that nobody answered."""

    def take_events(self):
        return [
            event._replace(outcome=RequestOutcome.ACCEPTED)
            if isinstance(event, RelayFinished) and event.outcome is RequestOutcome.UNANSWERED
            else event
            for event in super().take_events()
        ]


class TellsOutcomesTwice(LprpClient):
    """Says everything about a packet twice."""

    def take_events(self):
        return [each for event in super().take_events() for each in [event] * (1 + isinstance(event, RelayFinished))]


class HopesForTheBest(LprpClient):
    """Takes its whitelist for agreed the moment it wants it."""

    def want_whitelist(self, keys, now):
        super().want_whitelist(keys, now)
        self._context.emit(WhitelistAgreed(frozenset(keys)))


class ConfirmsTooSoon(LprpClient):
    """Tells the host that it has a packet before the application has it."""

    def receive(self, peer, data, now):
        super().receive(peer, data, now)
        for signature in self._inbox._unconfirmed:
            self._inbox._answer(signature, now)


class NeverAsksAgain(LprpClient):
    """Sends everything once."""

    def wake(self, now):
        self._tenancy.wake(now)

    def deadline(self):
        return self._tenancy.deadline()
