"""The tap sees what a relay is given and says, in its order, and changes nothing."""

import random

from tests.sim.build_bhumi_open import NOW_S, pair
from waystation.core.effects import Close, Peer, Send
from waystation.core.instant import Instant
from waystation.crypto.signing import sign
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.extension_messages import Gossip, Where
from waystation.protocols.bhumi.extension_wire import encode_extension, encode_record
from waystation.protocols.bhumi.messages import Feature, FrameType
from waystation.protocols.bhumi.relay import BhumiRelay
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.protocols.bhumi.signed_records import sign_presence
from waystation.sim import bhumi_open_observations as seen
from waystation.sim import bhumi_open_records as records
from waystation.sim.bhumi_open_tap import Tap

OWN, DEVICE, OTHER = pair(1), pair(2), pair(3)
HERE, THERE = Peer(1), Peer(2)
OPTIONS = wire.encode(messages.Options(Feature.PRESENCE))


class Listened:
    """A relay with a tap, and everything that was seen."""

    def __init__(self, *, is_honest=True):
        self.seen = []
        settings = BhumiSettings(peers=["tcp://peer.sim:1"], advertise="tcp://own.sim:1")
        relay = BhumiRelay(settings, random.Random(1), key_pair=OWN)
        relay.set_wall(Instant(0), NOW_S * 1_000_000)
        self.tap = Tap(relay, 0, NOW_S * 1_000_000, self.seen.append, lambda _where: is_honest)
        self.nonces = {}
        self.at(0)

    def at(self, seconds):
        self.now = Instant(seconds * 1_000_000)

    def turn(self):
        """Carry the relay's effects out, as far as this test cares: remember the nonces of its greetings."""
        for effect in self.tap.take():
            if isinstance(effect, Send) and effect.data[:2] == b"\x00\x01":
                self.nonces[effect.peer] = wire.decode_hello(effect.data[6:]).relay_nonce

    def come(self, peer, *frames, as_who=None):
        """Let somebody connect, say who they are, and send frames, each in a turn of its own."""
        self.tap.connect(peer, self.now, "10.1.0.1")
        self.turn()
        if as_who is not None:
            signature = sign(as_who, wire.signed_bytes(self.nonces[peer], as_who.public))
            frames = (OPTIONS, wire.encode(messages.IAm(as_who.public, signature)), *frames)
        for frame in frames:
            self.tap.receive(peer, frame, self.now)
            self.turn()

    def kinds(self, kind):
        return [each for each in self.seen if isinstance(each, kind)]


def presence_of(key_pair, at=0):
    """Return a presence at our relay."""
    return sign_presence(key_pair, OWN.public, NOW_S + at, 600)


def test_device_that_asserts_itself_is_sure_to_be_believed():
    """Its record is taken from its owner, whole, by the relay's clock."""
    listened = Listened()
    listened.at(7)
    listened.come(HERE, encode_extension(presence_of(DEVICE)), as_who=DEVICE)
    (took,) = listened.kinds(seen.Took)

    assert took.slip == records.read_presence(encode_record(presence_of(DEVICE)))
    assert (took.node, took.peer, took.wall_s) == (0, HERE, NOW_S + 7)
    assert (took.is_gossip, took.is_owner, took.is_sure) == (False, True, True)


def test_foreign_word_and_enemies_are_not_sure():
    """A record of somebody else, and any record of an enemy, may be dropped."""
    frames = (encode_extension(presence_of(OTHER)), encode_extension(Gossip((presence_of(OTHER),))))
    honest, enemy = Listened(), Listened(is_honest=False)
    for listened in (honest, enemy):
        listened.come(HERE, *frames, as_who=DEVICE)

    assert [(took.is_gossip, took.is_owner, took.is_sure) for took in honest.kinds(seen.Took)] == [
        (False, False, False),
        (True, False, True),
    ]
    assert not any(took.is_sure for took in enemy.kinds(seen.Took))


def test_nothing_is_taken_before_options():
    """Without the feature these frames are none."""
    listened = Listened()
    listened.come(HERE, encode_extension(presence_of(DEVICE)), encode_extension(Where(DEVICE.public)))

    assert not listened.kinds(seen.Took)
    assert not listened.kinds(seen.Questioned)


def test_question_and_answer_are_seen():
    """What was asked, and the records of the answer in their order, with what was agreed on."""
    listened = Listened()
    listened.come(HERE, encode_extension(presence_of(DEVICE)), as_who=DEVICE)
    listened.come(THERE, OPTIONS, encode_extension(Where(DEVICE.public)))
    (answer,) = listened.kinds(seen.Answered)
    said = [each for each in listened.kinds(seen.Said) if each.kind == FrameType.WHERE_RESULT]

    assert listened.kinds(seen.Questioned) == [seen.Questioned(0, THERE, DEVICE.public)]
    assert [slip.data for slip in answer.slips] == [encode_record(presence_of(DEVICE))]
    assert said == [seen.Said(0, THERE, FrameType.WHERE_RESULT, int(Feature.PRESENCE), True)]


def test_gossip_to_who_asks_for_a_sample_is_no_news():
    """Only what is passed on unasked is."""
    listened = Listened()
    listened.come(THERE, encode_extension(Gossip()), as_who=OTHER)
    listened.come(HERE, encode_extension(presence_of(DEVICE)), as_who=DEVICE)
    told = [gave for gave in listened.kinds(seen.Gave) if gave.slip.kind == records.PRESENCE]
    listened.at(40)
    listened.tap.wake(listened.now)
    listened.turn()
    listened.seen.clear()
    listened.tap.receive(THERE, encode_extension(Gossip()), listened.now)
    listened.turn()
    sampled = [gave for gave in listened.kinds(seen.Gave) if gave.slip.kind == records.PRESENCE]

    assert [(gave.peer, gave.is_news) for gave in told] == [(THERE, True)]
    assert [(gave.peer, gave.is_news) for gave in sampled] == [(THERE, False)]


def test_clock_of_what_is_given_is_that_of_the_turns_beginning():
    """An answer is judged by the instant at which the relay made it, not by the one at which it leaves."""
    listened = Listened()
    listened.come(HERE, encode_extension(presence_of(DEVICE)), as_who=DEVICE)
    listened.come(THERE, OPTIONS)
    listened.at(5)
    listened.tap.receive(THERE, encode_extension(Where(DEVICE.public)), listened.now)
    listened.at(9)
    listened.tap.drained(THERE, listened.now)
    listened.turn()

    assert [answer.wall_s for answer in listened.kinds(seen.Answered)] == [NOW_S + 5]


def test_connection_that_the_relay_dials_is_agreed_on_the_other_way_round():
    """There our relay asks by OPTIONS, and the other side accepts."""
    listened = Listened()
    listened.tap.wake(listened.now)
    listened.turn()
    listened.tap.connect_upstream(HERE, "tcp://peer.sim:1", listened.now)
    listened.tap.receive(HERE, wire.encode(messages.Hello(7, 65_536)), listened.now)
    listened.turn()
    listened.tap.receive(HERE, OPTIONS, listened.now)
    listened.turn()
    said = [(each.kind, each.features) for each in listened.kinds(seen.Said)]

    assert said == [(records.OPTIONS, 0), (records.GOSSIP, int(Feature.PRESENCE))]


def test_ends_are_seen_once():
    """Whoever ends a connection, it is over once."""
    listened = Listened()
    listened.come(HERE)
    listened.come(THERE, b"\x00\x01\x00\x00\x00\x00")
    listened.tap.disconnect(HERE, listened.now)
    listened.tap.disconnect(HERE, listened.now)

    assert listened.kinds(seen.Parted) == [seen.Parted(0, THERE), seen.Parted(0, HERE)]


def test_tap_changes_nothing():
    """Effects, deadline and sizes are the relay's own."""
    listened = Listened()
    listened.come(HERE, encode_extension(presence_of(DEVICE)), as_who=DEVICE)
    tap, relay = listened.tap, listened.tap.relay

    assert tap.sizes() == relay.sizes()
    assert tap.deadline() == relay.deadline()
    assert tap.settled()


def test_commands_reach_the_relay():
    """Who shuts the tap shuts the relay."""
    listened = Listened()
    listened.come(HERE)
    listened.tap.retire()
    listened.tap.shut(listened.now)
    closed = [effect.peer for effect in listened.tap.take() if isinstance(effect, Close)]

    assert closed == [HERE]
    assert listened.tap.sizes()["connections"] == 0
