"""Relays and devices of Bhumi in the open with one mistake each, for the tests of the simulator's laws."""

from dataclasses import replace

from waystation.core.effects import Dial, Send, SendMany
from waystation.crypto.hashing import sha256
from waystation.protocols.bhumi import extension_wire, wire
from waystation.protocols.bhumi.deliveries import Deliveries
from waystation.protocols.bhumi.device_client import DeviceClient
from waystation.protocols.bhumi.extension_messages import IAmOk, Presence, WhereResult
from waystation.protocols.bhumi.gossip import Gossip
from waystation.protocols.bhumi.links import Links
from waystation.protocols.bhumi.messages import Feature, Keepalive
from waystation.protocols.bhumi.neighbours import Neighbours
from waystation.protocols.bhumi.records import Records
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.relay import BhumiRelay
from waystation.protocols.bhumi.relay_guide import RelayGuide
from waystation.protocols.bhumi.signed_records import expires_at_s, sign_presence, untimely
from waystation.protocols.bhumi.whereabouts import Standing, Whereabouts
from waystation.sim.bhumi_open_device import OpenDevice


class _Parts(BhumiRelay):
    """Has parts of classes with a mistake."""

    records_kind, presences_kind, neighbours_kind = Records, Whereabouts, Neighbours
    gossip_kind, links_kind, guide_kind = Gossip, Links, RelayGuide

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        records, neighbourhood = self._records, self._neighbourhood
        records.__class__ = self.records_kind
        records.presences.__class__ = self.presences_kind
        records.neighbours.__class__ = self.neighbours_kind
        neighbourhood.gossip.__class__ = self.gossip_kind
        neighbourhood._links.__class__ = self.links_kind

    def _add_gossip(self, records, key_pair):
        neighbourhood = super()._add_gossip(records, key_pair)
        guide = self.guide_kind(self._connections, records, self._rng, neighbourhood.told)
        for kind, handler in ((0x44, guide.on_presence), (0x45, guide.on_where)):
            self._handlers[kind] = self._if_agreed(Feature.PRESENCE, handler)
        return neighbourhood


class _Timeless(Whereabouts):
    def _live(self, identity, now_s):
        return super()._live(identity, now_s - 60)


class ServesExpired(_Parts):
    """Gives presences away for a minute too long."""

    presences_kind = _Timeless


class _NoClock(Records):
    def take(self, tagged, allowance, now, *, is_hearsay):
        record = extension_wire.decode_tagged(tagged)
        if isinstance(record, Presence) and untimely(record, self.now_s(now)) is Refusal.RECORD_FROM_FUTURE:
            self.presences.keep(tagged, self.now_s(now))
            return record
        return super().take(tagged, allowance, now, is_hearsay=is_hearsay)


class BelievesInTomorrow(_Parts):
    """Takes presences of the future."""

    records_kind = _NoClock


class _Gullible(Records):
    def take(self, tagged, allowance, now, *, is_hearsay):
        verdict = super().take(tagged, allowance, now, is_hearsay=is_hearsay)
        record = extension_wire.decode_tagged(tagged)
        if verdict is Refusal.RECORD_SIGNATURE and isinstance(record, Presence):
            self.presences.keep(tagged, self.now_s(now))
            return record
        return verdict


class SkipsSignatures(_Parts):
    """Believes what nobody has signed."""

    records_kind = _Gullible


class _Generous(Records):
    def take(self, tagged, allowance, now, *, is_hearsay):
        verdict = super().take(tagged, allowance, now, is_hearsay=is_hearsay)
        if isinstance(verdict, Presence):
            longer = replace(verdict, ttl_s=min(verdict.ttl_s + 60, 600), issued_at_s=verdict.issued_at_s + 1)
            self.presences.keep(extension_wire.encode_tagged(longer), self.now_s(now))
        return verdict


class ProlongsPresences(_Parts):
    """Lets presences last longer than their owner said."""

    records_kind = _Generous


class MintsPresences(BhumiRelay):
    """Says itself that a device is here as soon as it is."""

    def __init__(self, *args, key_pair, **options):
        super().__init__(*args, key_pair=key_pair, **options)
        registration = self._handlers[0x02].__self__

        def mint(session, now):
            now_s = self._records.now_s(now)
            own = sign_presence(key_pair, key_pair.public, now_s, 600)
            minted = replace(own, identity=session.identity)
            self._records.presences.keep(extension_wire.encode_tagged(minted), now_s)

        registration.on_identified.append(mint)


class _Credulous(RelayGuide):
    def _on_record(self, session, record, now):
        tagged = extension_wire.encode_tagged(record)
        verdict = self._records.take(tagged, None, now, is_hearsay=False)
        if verdict is not None and not isinstance(verdict, Refusal):
            self._tell(tagged, verdict, now)


class TakesForeignWord(_Parts):
    """Takes a presence from whoever hands it in."""

    guide_kind = _Credulous


class _Backwards(Whereabouts):
    def find(self, identity, now_s):
        return super().find(identity, now_s)[::-1]


class AnswersBackwards(_Parts):
    """Names the place that a device left longest ago first."""

    presences_kind = _Backwards


class _Stubborn(Whereabouts):
    def standing(self, tagged, now_s):
        held = [each[33:65] for each in self._live(tagged[1:33], now_s)]
        return Standing.KNOWN if tagged[33:65] in held else super().standing(tagged, now_s)


class KeepsTheFirst(_Parts):
    """Never takes a second word about the same place."""

    presences_kind = _Stubborn


class _Curt(Whereabouts):
    def find(self, identity, now_s):
        return super().find(identity, now_s)[-1:]


class AnswersTheOldest(_Parts):
    """Gives one hint, and that is the oldest."""

    presences_kind = _Curt


class _Roomy(Whereabouts):
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


class KeepsEveryPlace(_Parts):
    """Remembers of a device more than eight places."""

    presences_kind = _Roomy
    guide_kind = _RoomyGuide


class AnswersFloods(_Parts):
    """Answers everything that it is asked."""

    guide_kind = _RoomyGuide


class _Twice(RelayGuide):
    def on_where(self, session, payload, now):
        super().on_where(session, payload, now)
        if payload[0] % 4 == 0:
            super().on_where(session, payload, now)


class AnswersTwice(_Parts):
    """Gives some answers a second time."""

    guide_kind = _Twice


class _Silent(RelayGuide):
    def on_where(self, session, payload, now):
        if payload[0] % 4:
            super().on_where(session, payload, now)


class AnswersSome(_Parts):
    """Leaves questions without an answer."""

    guide_kind = _Silent


class _Distracted(RelayGuide):
    def on_where(self, session, payload, now):
        last, self.last = getattr(self, "last", payload), payload
        super().on_where(session, last, now)


class AnswersTheLastOne(_Parts):
    """Answers the question before."""

    guide_kind = _Distracted


class _Chatty(Gossip):
    def spread(self, tagged, source):
        super().spread(tagged, None)


class EchoesGossip(_Parts):
    """Sends records back where they came from."""

    gossip_kind = _Chatty


class SpeaksUnasked(BhumiRelay):
    """Confirms every I_AM, whether anybody understands that or not."""

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
    """Leaves the last byte of every answer out, and says so in its length."""

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


class _Unguarded(Links):
    def _dial(self, place):
        return Dial(place.address, place.address, False)


class DialsUnguarded(_Parts):
    """Follows a name that it has learnt wherever it leads."""

    links_kind = _Unguarded


class _Hoarder(Whereabouts):
    def sweep(self, now_s):
        """Keep everything."""

    def next_end_s(self):
        return None


class KeepsPresences(_Parts):
    """Never forgets a presence, though it does not give it away."""

    presences_kind = _Hoarder


class _Loyal(Gossip):
    def leave(self, carrier):
        """Keep them all."""


class KeepsContacts(_Parts):
    """Never forgets a contact."""

    gossip_kind = _Loyal


class _Mute(Gossip):
    def spread(self, tagged, source):
        """Tell nobody."""


class NeverGossips(_Parts):
    """Keeps what it knows to itself until somebody asks."""

    gossip_kind = _Mute


class _Bookish(Gossip):
    def _give_sample(self, contact, now):
        """Give none."""

    def spread(self, tagged, source):
        """Tell nobody."""


class KeepsToItself(_Parts):
    """Tells other relays nothing at all."""

    gossip_kind = _Bookish


class _Repeats(Deliveries):
    def _deliver(self, binding, slot, preimage, payload, now):
        super()._deliver(binding, slot, preimage, payload, now)
        self._outbox.append(self._outbox[-1])


class RepeatsRequests(BhumiRelay):
    """Delivers everything twice."""

    deliveries_class = _Repeats


_DELIVERED = set()
"""Preimages that ``TrustsSenders`` has delivered, at all relays: none of them is delivered twice."""


class _TrustsOnce(Deliveries):
    def on_send(self, session, payload, now):
        message = wire.decode_send(payload)
        binding = self._bindings.get(message.recipient)
        if binding is not None and message.preimage not in _DELIVERED:
            binding.commits.add(sha256(message.preimage))
        super().on_send(session, payload, now)

    def _deliver(self, binding, slot, preimage, payload, now):
        _DELIVERED.add(preimage)
        super()._deliver(binding, slot, preimage, payload, now)


class TrustsSenders(BhumiRelay):
    """Takes every preimage that is new for a good one."""

    deliveries_class = _TrustsOnce


class _Loses(Deliveries):
    def _settle(self, slot, frame, now):
        if frame[-1] % 4:
            super()._settle(slot, frame, now)


class LosesResults(BhumiRelay):
    """Keeps some answers to itself."""

    deliveries_class = _Loses


class AsksAgain(OpenDevice):
    """Asks its application about every delivery."""

    asks_once = False


class ForgetsToAssert(DeviceClient):
    """Says nothing of every second move."""

    def assert_presence(self, presence):
        if presence.issued_at_s % 2:
            return super().assert_presence(presence)
        self._send(Keepalive())
        return None
