"""Relays that gossip and devices, with one mistake each, for the tests of the simulator's invariants."""

from dataclasses import replace

from tests.sim.bhumi.core_mutants import with_deliveries
from waystation.core.effects import Dial, Send, SendMany
from waystation.crypto.hashing import sha256
from waystation.protocols.bhumi import extension_wire, wire
from waystation.protocols.bhumi.client.device import DeviceClient
from waystation.protocols.bhumi.extension_messages import IAmOk, Presence, WhereResult
from waystation.protocols.bhumi.messages import Feature, Keepalive
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.relay.deliveries import Deliveries
from waystation.protocols.bhumi.relay.gossip import Gossip
from waystation.protocols.bhumi.relay.guide import RelayGuide
from waystation.protocols.bhumi.relay.links import Links
from waystation.protocols.bhumi.relay.machine import BhumiRelay
from waystation.protocols.bhumi.relay.presences import PresenceTable, Standing
from waystation.protocols.bhumi.relay.records import Records
from waystation.protocols.bhumi.signed_records import expires_at_s, sign_presence, untimely
from waystation.sim.bhumi.device import Device


class _WithParts(BhumiRelay):
    """Has parts of classes with a mistake."""

    mistaken: tuple[type, ...]

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        records, peering = self._records, self._peering
        for part in (records, records.presences, peering.gossip, peering._links):
            part.__class__ = self._kind_of(type(part))

    def _add_gossip(self, records, key_pair):
        peering = super()._add_gossip(records, key_pair)
        guide = self._kind_of(RelayGuide)(self._connections, records, self._rng, peering.on_new_record)
        for kind, handler in ((0x44, guide.on_presence), (0x45, guide.on_where)):
            self._handlers[kind] = self._if_agreed(Feature.PRESENCE, handler)
        return peering

    def _kind_of(self, right: type) -> type:
        return next((each for each in self.mistaken if issubclass(each, right)), right)


def _in_relay(*parts: type) -> type[BhumiRelay]:
    """Return a relay with these parts in the place of the right ones, named after the first of them."""
    return type(parts[0].__name__, (_WithParts,), {"mistaken": parts})


@_in_relay
class ServesExpired(PresenceTable):
    """Gives presences away for a minute too long."""

    def _live(self, identity, now_s):
        return super()._live(identity, now_s - 60)


@_in_relay
class BelievesInTomorrow(Records):
    """Takes presences of the future."""

    def take(self, tagged, allowance, now, *, by_gossip):
        record = extension_wire.decode_tagged(tagged)
        if isinstance(record, Presence) and untimely(record, self.now_s(now)) is Refusal.RECORD_FROM_FUTURE:
            self.presences.keep(tagged, self.now_s(now))
            return record
        return super().take(tagged, allowance, now, by_gossip=by_gossip)


@_in_relay
class SkipsSignatures(Records):
    """Takes records without a valid signature."""

    def take(self, tagged, allowance, now, *, by_gossip):
        verdict = super().take(tagged, allowance, now, by_gossip=by_gossip)
        record = extension_wire.decode_tagged(tagged)
        if verdict is Refusal.RECORD_SIGNATURE and isinstance(record, Presence):
            self.presences.keep(tagged, self.now_s(now))
            return record
        return verdict


@_in_relay
class ProlongsPresences(Records):
    """Lets presences last longer than their owner signed."""

    def take(self, tagged, allowance, now, *, by_gossip):
        verdict = super().take(tagged, allowance, now, by_gossip=by_gossip)
        if isinstance(verdict, Presence):
            longer = replace(verdict, ttl_s=min(verdict.ttl_s + 60, 600), issued_at_s=verdict.issued_at_s + 1)
            self.presences.keep(extension_wire.encode_tagged(longer), self.now_s(now))
        return verdict


class MintsPresences(BhumiRelay):
    """Signs a presence of each device that logs in."""

    def __init__(self, *args, key_pair, **options):
        super().__init__(*args, key_pair=key_pair, **options)
        registration = self._handlers[0x02].__self__

        def mint(session, now):
            now_s = self._records.now_s(now)
            own = sign_presence(key_pair, key_pair.public, now_s, 600)
            minted = replace(own, identity=session.identity)
            self._records.presences.keep(extension_wire.encode_tagged(minted), now_s)

        registration.on_identified.append(mint)


@_in_relay
class TakesForeignWord(RelayGuide):
    """Takes a presence from every connection that hands it in."""

    def _on_record(self, session, record, now):
        tagged = extension_wire.encode_tagged(record)
        verdict = self._records.take(tagged, None, now, by_gossip=False)
        if verdict is not None and not isinstance(verdict, Refusal):
            self._on_new(tagged, verdict, now)


@_in_relay
class AnswersBackwards(PresenceTable):
    """Names the relay that a device left longest ago first."""

    def find(self, identity, now_s):
        return super().find(identity, now_s)[::-1]


@_in_relay
class KeepsTheFirst(PresenceTable):
    """Never takes a second presence at the same relay."""

    def standing(self, tagged, now_s):
        held = [each[33:65] for each in self._live(tagged[1:33], now_s)]
        return Standing.KNOWN if tagged[33:65] in held else super().standing(tagged, now_s)


@_in_relay
class AnswersTheOldest(PresenceTable):
    """Gives one hint, and that is the oldest."""

    def find(self, identity, now_s):
        return super().find(identity, now_s)[-1:]


class _Roomy(PresenceTable):
    def keep(self, tagged, now_s):
        held = self._live(tagged[1:33], now_s)
        kept = tuple(each for each in held if each[33:65] != tagged[33:65])
        self._put(tagged[1:33], (*kept, tagged))
        self._note_end(tagged[1:33], expires_at_s(extension_wire.decode_tagged(tagged)))

    def standing(self, tagged, now_s):
        held = self._live(tagged[1:33], now_s)
        is_there = any(each[33:65] == tagged[33:65] for each in held)
        return super().standing(tagged, now_s) if is_there else Standing.NEW


class _RoomyGuide(RelayGuide):
    def on_where(self, session, payload, now):
        identity = extension_wire.decode_where(payload).identity
        found = self._records.presences.find(identity, self._records.now_s(now))
        entries = [extension_wire.decode_presence(record) for record in found]
        hints = tuple(extension_wire.WhereEntry(presence, "") for presence in entries)
        self._reply(session, WhereResult(identity, hints))


KeepsEveryPlace = _in_relay(_Roomy, _RoomyGuide)
"""Remembers of a device more than eight places."""


AnswersFloods = _in_relay(_RoomyGuide)
"""Answers everything that it is asked."""


@_in_relay
class AnswersTwice(RelayGuide):
    """Gives some answers a second time."""

    def on_where(self, session, payload, now):
        super().on_where(session, payload, now)
        if payload[0] % 4 == 0:
            super().on_where(session, payload, now)


@_in_relay
class AnswersSome(RelayGuide):
    """Leaves questions without an answer."""

    def on_where(self, session, payload, now):
        if payload[0] % 4:
            super().on_where(session, payload, now)


@_in_relay
class AnswersTheLastOne(RelayGuide):
    """Answers the question before."""

    def on_where(self, session, payload, now):
        last, self.last = getattr(self, "last", payload), payload
        super().on_where(session, last, now)


@_in_relay
class EchoesGossip(Gossip):
    """Sends records back where they came from."""

    def spread(self, tagged, source):
        super().spread(tagged, None)


class SpeaksUnasked(BhumiRelay):
    """Confirms every I_AM, whether the client asked for that or not."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._handlers[0x02].__self__.on_identified.append(
            lambda session, _now: self._connections.reply(session, extension_wire.encode_extension(IAmOk(0, 0)))
        )


class ServesStrangers(BhumiRelay):
    """Answers WHERE on connections that have agreed on nothing."""

    def _on_unknown(self, session, payload, now):
        if len(payload) == 32:
            self._connections.reply(session, extension_wire.encode_extension(WhereResult(payload)))
        super()._on_unknown(session, payload, now)


class TellsNonsense(BhumiRelay):
    """Leaves the last byte of every answer out, and adapts the length."""

    def take(self):
        return [self._cut(effect) for effect in super().take()]

    def _cut(self, effect):
        if isinstance(effect, Send) and effect.data[:2] == b"\x00\x46":
            size = int.from_bytes(effect.data[2:6], "big") - 1
            return effect._replace(data=effect.data[:2] + size.to_bytes(4, "big") + effect.data[6 : 6 + size])
        assert not isinstance(effect, SendMany)
        return effect


class TellsPrivatePlaces(BhumiRelay):
    """Keeps adverts that lead inside, and hands them on."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._records._takes_private = True


@_in_relay
class DialsUnguarded(Links):
    """Follows a name that it has learnt wherever it leads."""

    def _dial(self, place):
        return Dial(place.address, place.address, False)


@_in_relay
class KeepsPresences(PresenceTable):
    """Never forgets a presence, though it does not give it away."""

    def sweep(self, now_s):
        """Keep everything."""

    def next_end_s(self):
        return None


@_in_relay
class KeepsContacts(Gossip):
    """Never forgets a contact."""

    def leave(self, carrier):
        """Keep them all."""


@_in_relay
class NeverGossips(Gossip):
    """Passes nothing on until a relay asks."""

    def spread(self, tagged, source):
        """Send nothing."""


@_in_relay
class KeepsToItself(Gossip):
    """Sends other relays nothing at all."""

    def _give_sample(self, contact, now):
        """Give none."""

    def spread(self, tagged, source):
        """Send nothing."""


@with_deliveries
class RepeatsRequests(Deliveries):
    """Delivers everything twice."""

    def _deliver(self, *details):
        super()._deliver(*details)
        self._outbox.append(self._outbox[-1])


_DELIVERED = set()
"""Preimages that ``TrustsSenders`` has delivered, at all relays: none of them is delivered twice."""


@with_deliveries
class TrustsSenders(Deliveries):
    """Takes every preimage that is new for a good one."""

    def on_send(self, session, payload, now):
        message = wire.decode_send(payload)
        binding = self._bindings.get(message.recipient)
        if binding is not None and message.preimage not in _DELIVERED:
            binding.commits.add(sha256(message.preimage))
        super().on_send(session, payload, now)

    def _deliver(self, binding, slot, preimage, commit, payload, now):
        _DELIVERED.add(preimage)
        super()._deliver(binding, slot, preimage, commit, payload, now)


@with_deliveries
class LosesResults(Deliveries):
    """Keeps some answers to itself."""

    def _settle(self, slot, frame, now):
        if frame[-1] % 4:
            super()._settle(slot, frame, now)


class AsksAgain(Device):
    """Asks its application about every delivery."""

    asks_once = False


class ForgetsToAssert(DeviceClient):
    """Asserts nothing after every second move."""

    def assert_presence(self, presence):
        if presence.issued_at_s % 2:
            return super().assert_presence(presence)
        self._send(Keepalive())
        return None
