"""Laws of protocols.bhumi.relay_link: our end of a connection to another relay."""

import pytest

from tests.protocols.bhumi.build_open import RELAY_KEYS, SECOND, presence
from waystation.core.effects import Close, Peer, Send
from waystation.core.instant import Instant
from waystation.crypto.signing import verify
from waystation.protocols.bhumi import extension_wire, messages, wire
from waystation.protocols.bhumi.extension_messages import BindChallenge, Gossip, IAmOk
from waystation.protocols.bhumi.messages import Feature, FrameType
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.relay.dialled_link import GossipReceived, Linked, RelayLink
from waystation.protocols.bhumi.signed_records import binding_bytes
from waystation.protocols.bhumi.wire import FRAME_HEADER_BYTES

OURS, THEIRS = RELAY_KEYS[0], RELAY_KEYS[1]
CHALLENGE = BindChallenge(THEIRS.public, b"c" * 32)
HELLO = messages.Hello(7, 65_536)
BOTH = messages.Options(Feature.PRESENCE | Feature.BINDING)
NOW = Instant(5 * SECOND)


class Rig:
    """A link, the other side's end, and a clock."""

    def __init__(self, verdict=None):
        self.now = NOW
        self.asked = []
        self.link = RelayLink(OURS, "tls://b.example:1", lambda *asked: self.asked.append(asked) or verdict)
        self.link.connect(Peer(3), self.now)

    def hear(self, *said, cut=None):
        """Let the other side say messages; return what the link says, and what has happened."""
        known = (messages.Hello, messages.Options, messages.Keepalive, messages.Deliver)
        data = b"".join(
            wire.encode(one) if isinstance(one, known) else extension_wire.encode_extension(one) for one in said
        )
        for start in range(0, len(data), cut or len(data)):
            self.link.receive(Peer(3), data[start : start + (cut or len(data))], self.now)
        return self.said(), self.link.take_events()

    def said(self):
        """Return the frames of the link by type, and how it closed."""
        frames = []
        for effect in self.link.take():
            if isinstance(effect, Close):
                frames.append(effect.reason)
            else:
                assert isinstance(effect, Send)
                frames.append((int.from_bytes(effect.data[:2], "big"), effect.data[FRAME_HEADER_BYTES:]))
        return frames

    def at(self, milliseconds):
        """Wake the link so long after its beginning; return what it says."""
        self.now = Instant(NOW + milliseconds * 1_000)
        self.link.wake(self.now)
        return self.said()


@pytest.mark.parametrize("cut", [None, 1, 7])
def test_link_stands_once_the_other_side_has_said_who_it_is(cut):
    """OPTIONS, then I_AM without commits and the proof, in any chunking."""
    rig = Rig()
    (options,), _ = rig.hear(HELLO, cut=cut)
    (i_am, proof), events = rig.hear(BOTH, CHALLENGE, cut=cut)
    identity = wire.decode_i_am(i_am[1])
    signature = extension_wire.decode_bind_proof(proof[1]).signature

    assert wire.decode_options(options[1]).features == Feature.PRESENCE | Feature.BINDING
    assert (identity.identity, identity.commits, identity.responses) == (OURS.public, (), ())
    assert verify(OURS.public, wire.signed_bytes(7, OURS.public), identity.signature)
    assert verify(OURS.public, binding_bytes(CHALLENGE, OURS.public), signature)
    assert events == [Linked(THEIRS.public)]
    assert [(name, challenge.relay_id) for name, challenge in rig.asked] == [("tls://b.example:1", THEIRS.public)]


def test_relay_without_binding_is_linked_under_no_name():
    """Another implementation need not say who it is."""
    rig = Rig()
    rig.hear(HELLO)
    said, events = rig.hear(messages.Options(Feature.PRESENCE))

    assert [kind for kind, _ in said] == [FrameType.I_AM]
    assert events == [Linked(None)]


def test_gossip_comes_through_unread():
    """Once the link stands; what comes before is ignored."""
    rig = Rig()
    record = Gossip((presence(RELAY_KEYS[5], 0),))
    _, early = rig.hear(HELLO, record)
    _, events = rig.hear(BOTH, CHALLENGE, IAmOk(0, 0), record, messages.Keepalive())

    assert early == []
    assert [type(event) for event in events] == [Linked, GossipReceived]
    assert extension_wire.decode_gossip(events[1].payload) == record


def test_relay_that_does_not_gossip_is_closed():
    """By its answer, or by none within ten seconds."""
    rig, silent = Rig(), Rig()
    rig.hear(HELLO), silent.hear(HELLO)

    assert rig.hear(messages.Options(Feature.DELIVER_WITH_PREIMAGE))[0] == [Refusal.NO_GOSSIP]
    assert silent.at(9_999) == []
    assert silent.at(10_000) == [Refusal.NO_GOSSIP]


def test_relay_that_offers_binding_must_challenge():
    """A link that waits for it for ever would hold a place."""
    rig = Rig()
    rig.hear(HELLO, BOTH)

    assert rig.at(10_000) == [Refusal.NO_GOSSIP]


@pytest.mark.parametrize("refusal", [Refusal.OWN_KEY, Refusal.DOUBLE_LINK])
def test_judge_may_refuse_before_anything_is_signed(refusal):
    """An I_AM would replace the link that stands."""
    rig = Rig(refusal)
    rig.hear(HELLO)

    assert rig.hear(BOTH, CHALLENGE) == ([refusal], [])


def test_second_challenge_and_second_answer_are_ignored():
    """A relay signs one proof for a connection, and is judged once."""
    rig = Rig()
    rig.hear(HELLO, BOTH, CHALLENGE)

    assert rig.hear(CHALLENGE, messages.Options(Feature(0)), CHALLENGE) == ([], [])
    assert len(rig.asked) == 1


def test_challenge_before_the_answer_is_ignored():
    """The answer to OPTIONS precedes everything (BHUMI-C8)."""
    rig = Rig()
    rig.hear(HELLO)

    assert rig.hear(CHALLENGE) == ([], [])


def test_frames_of_other_roles_close():
    """Nobody delivers anything to a relay."""
    rig = Rig()
    rig.hear(HELLO, BOTH, CHALLENGE)

    assert rig.hear(messages.Deliver(1, b"x"))[0] == [Refusal.WRONG_DIRECTION]


def test_one_end_only_whatever_follows():
    """What stands behind the frame that closes is not looked at."""
    rig = Rig(Refusal.DOUBLE_LINK)
    rig.hear(HELLO)
    said, events = rig.hear(BOTH, CHALLENGE, messages.Deliver(1, b"x"), HELLO)

    assert (said, events) == ([Refusal.DOUBLE_LINK], [])
    assert rig.link.deadline() is None


def test_link_keeps_itself_alive_and_notices_silence():
    """NODE-SILENCE: KEEPALIVE after 20 s without a byte; 29 s without one close."""
    rig = Rig()
    rig.hear(HELLO, BOTH, CHALLENGE)
    assert [kind for kind, _ in rig.at(20_000)] == [FrameType.KEEPALIVE]
    rig.hear(messages.Keepalive())
    assert [kind for kind, _ in rig.at(40_000)] == [FrameType.KEEPALIVE]

    assert rig.at(48_999) == []
    assert rig.at(49_000) == [Refusal.IDLE_TIMEOUT]


def test_other_side_that_takes_nothing_is_cut():
    """Ten seconds without progress; progress begins them anew, and what has left ends them."""
    rig = Rig()
    rig.hear(HELLO, BOTH, CHALLENGE)
    rig.link.congested(Peer(3), NOW)
    assert rig.link.deadline() == Instant(NOW + 10 * SECOND)
    rig.link.congested(Peer(3), Instant(NOW + 9 * SECOND))
    assert rig.at(18_999) == []
    rig.link.drained(Peer(3), rig.now)
    rig.hear(messages.Keepalive())
    assert rig.at(30_000) == []
    rig.link.congested(Peer(3), rig.now)

    assert rig.at(40_000)[-1:] == [Refusal.WRITE_TIMEOUT]


def test_relay_that_says_nothing_at_all_is_closed():
    """HELLO comes within ten seconds."""
    assert Rig().at(10_000) == [Refusal.FRAME_TIMEOUT]


def test_shut_closes_once():
    """From our side, for a reason of ours."""
    rig = Rig()
    rig.hear(HELLO)
    rig.link.shut(Refusal.SHUTDOWN)
    rig.link.shut(Refusal.SHUTDOWN)

    assert rig.said() == [Refusal.SHUTDOWN]
