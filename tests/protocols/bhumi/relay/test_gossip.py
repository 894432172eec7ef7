"""Laws of protocols.bhumi.gossip: rounds, fan-out, samples; what comes of it among relays is in test_neighbourhood."""

import random

import pytest

from tests.protocols.bhumi.build import KEYS, limits_of
from tests.protocols.bhumi.build_open import RELAY_KEYS, SECOND, WALL_S, address_of, advert, presence
from waystation.core.effects import Peer, Send
from waystation.core.instant import Instant
from waystation.protocols.bhumi.extension_wire import (
    decode_tagged,
    encode_gossip,
    encode_tagged,
    split_gossip,
)
from waystation.protocols.bhumi.refusals import MalformedError
from waystation.protocols.bhumi.relay.gossip import (
    CONTACTS_ENOUGH,
    FANOUT,
    ROUND_JITTER_MS,
    ROUND_MS,
    SAMPLE_RECORDS,
    Gossip,
)
from waystation.protocols.bhumi.relay.records import Records
from waystation.protocols.bhumi.wire import FRAME_HEADER_BYTES

NOW = Instant(50 * SECOND)
ASK = encode_gossip([])


class Wire:
    """The connection below a contact."""

    def __init__(self, number):
        self.peer = Peer(number)
        self.waiting_since = None


class Rig:
    """Gossip with so many contacts, and what it has sent to each."""

    def __init__(self, contacts=0, *, seed=1, advertise="", **limits):
        self.outbox = []
        self.now = NOW
        self.records = Records(RELAY_KEYS[11], advertise, limits_of(), takes_private=False)
        self.records.set_wall(NOW, WALL_S * SECOND)
        self.gossip = Gossip(self.records, random.Random(seed), self.outbox, limits_of(**limits))
        self.contacts = [self.add(number) for number in range(contacts)]
        self.outbox.clear()

    def add(self, number):
        """Join a contact."""
        wire = Wire(number)
        contact = self.gossip.make_contact(wire, None, "", self.now)
        self.gossip.join(wire, contact, self.now)
        return contact

    def learn(self, record, source=None):
        """Let a contact, or a device of ours, tell a record."""
        tagged = encode_tagged(record)
        if source is not None:
            assert self.gossip.receive(source, encode_gossip([tagged])[FRAME_HEADER_BYTES:], self.now)
        else:
            assert self.records.take(tagged, None, self.now, by_gossip=False) == record
            self.gossip.spread(tagged, None)

    def sent(self):
        """Return what was sent since the last call: the frames by contact."""
        self.gossip.flush()
        frames = {}
        for effect in self.outbox:
            assert isinstance(effect, Send)
            frames.setdefault(effect.peer, []).append(effect.data)
        self.outbox.clear()
        return frames

    def told(self):
        """As ``sent``: the records by contact, those who were told none left out."""
        found = {}
        for peer, frames in self.sent().items():
            tagged = [one for frame in frames for one in split_gossip(frame[FRAME_HEADER_BYTES:])]
            if tagged:
                found[peer] = [decode_tagged(one) for one in tagged]
        return found

    def next_round(self):
        """Let the next round begin."""
        self.now = self.gossip.deadline()
        self.gossip.wake(self.now)


def test_news_goes_to_three():
    """Once, at the end of the turn, and to nobody else in this round."""
    rig = Rig(10)
    rig.learn(presence(KEYS[0], 0))
    told = rig.told()

    assert list(told.values()) == [[presence(KEYS[0], 0)]] * FANOUT
    assert rig.told() == {}


def test_news_does_not_go_back_to_its_source():
    """The one who told us has it."""
    rig = Rig(3)
    rig.learn(presence(KEYS[0], 0), rig.contacts[1])

    assert sorted(rig.told()) == [0, 2]


def test_news_of_one_turn_leaves_together():
    """In one frame a contact."""
    rig = Rig(2)
    for device in KEYS:
        rig.learn(presence(device, 0))
    sent = rig.sent()

    assert [len(frames) for frames in sent.values()] == [1, 1]
    assert len(split_gossip(sent[0][0][FRAME_HEADER_BYTES:])) == len(KEYS)


def test_frames_stay_below_their_limit():
    """Many records leave in as many frames as they need, none lost."""
    rig = Rig(1)
    tagged = [b"\x44" + number.to_bytes(140, "big") for number in range(1_000)]
    for one in tagged:
        rig.gossip.spread(one, None)
    frames = rig.sent()[0]

    assert [one for frame in frames for one in split_gossip(frame[FRAME_HEADER_BYTES:])] == tagged
    assert len(frames) == 3
    assert all(len(frame) <= FRAME_HEADER_BYTES + 65_536 for frame in frames)


def test_next_round_tells_what_came_in_the_last():
    """To those who are drawn then; after that it is told no more."""
    rig = Rig(9)
    rig.learn(presence(KEYS[0], 0))
    first = set(rig.told())
    rig.next_round()
    second = set(rig.told())
    rig.next_round()

    assert len(first) == len(second) == FANOUT
    assert rig.told() == {}


def test_rounds_draw_anew():
    """Over some rounds everybody is drawn."""
    rig = Rig(12)
    met = set()
    for number in range(40):
        rig.next_round()
        rig.learn(presence(KEYS[number % len(KEYS)], 0, (rig.now - NOW) // SECOND))
        met |= set(rig.told())

    assert met == set(range(12))


def test_round_lasts_thirty_seconds_more_or_less():
    """Ten per cent either way, not always the same."""
    rig, lengths = Rig(1), set()
    for _ in range(30):
        before = rig.now
        rig.next_round()
        lengths.add((rig.now - before) // 1_000)

    assert min(lengths) >= ROUND_MS - ROUND_JITTER_MS
    assert max(lengths) <= ROUND_MS + ROUND_JITTER_MS
    assert len(lengths) > 20


def test_what_has_ended_or_was_overtaken_is_not_told_in_the_next_round():
    """A record is worth passing on only while it stands."""
    rig = Rig(1)
    rig.learn(presence(KEYS[0], 0, 0, 5))
    rig.learn(presence(KEYS[1], 0, 0))
    rig.told()
    rig.learn(presence(KEYS[1], 0, 1))
    rig.told()
    rig.next_round()

    assert rig.told() == {0: [presence(KEYS[1], 0, 1)]}


def test_new_contact_is_asked_for_what_it_knows():
    """At once."""
    rig = Rig()
    rig.add(5)

    assert rig.sent() == {5: [ASK]}


def test_relay_with_few_contacts_asks_one_in_each_round():
    """And one with enough asks nobody."""
    few, enough = Rig(CONTACTS_ENOUGH - 1), Rig(CONTACTS_ENOUGH)
    few.next_round()
    enough.next_round()

    assert list(few.sent().values()) == [[ASK]]
    assert enough.sent() == {}


def test_question_is_answered_once_a_round():
    """With at most 400 records, drawn at random."""
    rig = Rig(9, advertise=address_of(11))
    for device in KEYS:
        rig.learn(presence(device, 0))
    rig.told()
    for _ in range(3):
        rig.gossip.receive(rig.contacts[8], b"\x00\x00", rig.now)
    told = rig.told()
    assert {type(record).__name__ for record in told[8]} == {"RelayAd", "Presence"}
    assert len(told[8]) == len(KEYS) + 1 <= SAMPLE_RECORDS
    rig.next_round()
    rig.told()
    rig.gossip.receive(rig.contacts[8], b"\x00\x00", rig.now)

    assert 8 in rig.told()


def test_own_advert_is_told_when_it_is_made_anew():
    """Every quarter of an hour, not every round."""
    rig, times = Rig(9, advertise=address_of(11)), []
    while rig.now < NOW + 3_600 * SECOND:
        rig.next_round()
        if rig.told():
            times.append((rig.now - NOW) // SECOND)

    assert len([time for time, before in zip(times, [-99, *times], strict=False) if time - before > 60]) in (4, 5)


def test_contact_that_leaves_makes_room_for_another():
    """In the same round, so that news still goes to three."""
    rig = Rig(5)
    rig.gossip.leave(rig.contacts[0].carrier)
    rig.gossip.leave(rig.contacts[0].carrier)
    rig.learn(presence(KEYS[0], 0))

    assert len(rig.told()) == FANOUT


def test_connections_of_one_host_share_their_allowance():
    """Neither more of them nor new ones buy more checks of signatures (BHUMI-FLOOD)."""
    rig = Rig(records_burst=3)

    def told_by(host, first):
        contact = rig.gossip.make_contact(Wire(first), None, "", rig.now, host=host)
        rig.gossip.join(contact.carrier, contact, rig.now)
        frame = encode_gossip([encode_tagged(presence(KEYS[number], 0)) for number in (first, first + 1)])
        rig.gossip.receive(contact, frame[FRAME_HEADER_BYTES:], rig.now)
        rig.gossip.leave(contact.carrier)
        return contact.records_in

    assert [told_by("192.0.2.1", 0), told_by("192.0.2.1", 2), told_by("192.0.2.1", 4)] == [2, 1, 0]
    assert [told_by("192.0.2.2", 6), told_by("", 8), told_by("", 10)] == [2, 2, 2]


def test_without_contacts_nothing_is_kept_or_planned():
    """A relay that stands alone rings no bell."""
    rig = Rig(1)
    rig.gossip.leave(rig.contacts[0].carrier)
    rig.next_round()
    rig.learn(presence(KEYS[0], 0))

    assert rig.gossip.deadline() is None
    assert rig.sent() == {}


def test_stalled_contact_is_skipped():
    """Until its bytes have left."""
    rig = Rig(1)
    rig.contacts[0].carrier.waiting_since = rig.now
    rig.learn(presence(KEYS[0], 0))
    assert rig.told() == {}
    rig.contacts[0].carrier.waiting_since = None
    rig.learn(presence(KEYS[1], 0))

    assert rig.told() == {0: [presence(KEYS[1], 0)]}


def test_malformed_frame_is_refused_after_what_came_before_it_was_counted():
    """Records before the bad one are kept: they are signed."""
    rig = Rig(1)
    bad = encode_tagged(advert(1)).replace(b"tls:", b"ftp:")
    frame = encode_gossip([encode_tagged(presence(KEYS[0], 0)), bad])
    with pytest.raises(MalformedError):
        rig.gossip.receive(rig.contacts[0], frame[FRAME_HEADER_BYTES:], rig.now)

    assert len(rig.records.presences) == 1
    assert rig.contacts[0].records_in == 1
