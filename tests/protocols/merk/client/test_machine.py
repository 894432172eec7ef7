"""Laws of merk.client: every frame in every state, hostile relays, original ones, outcomes, keys, and time."""

import pytest

from tests.protocols.merk.build import (
    ALICE,
    BOB,
    CAROL,
    NODE,
    as_original_relays,
    as_original_sends,
    changed,
    signed_anew,
    vector,
)
from tests.protocols.merk.build_client import (
    CHALLENGE,
    FEATURES,
    PEER,
    Pair,
    encrypted_for_alice,
    original_pair,
    ready_pair,
    text_for_alice,
    text_for_bob,
)
from waystation.core.effects import Send
from waystation.crypto.signing import verify
from waystation.protocols.merk import messages, wire
from waystation.protocols.merk.client import machine as client
from waystation.protocols.merk.client.events import (
    Ended,
    FrameOutcome,
    KeyFound,
    KeyNotFound,
    MessageArrived,
    Ready,
    ServerAdded,
    ServersListed,
)
from waystation.protocols.merk.client.machine import (
    HELLO_ANSWER_MS,
    KEY_ANSWER_MS,
    KEY_QUERIES_MAX,
    NOTICE_MS,
    SERVERS_MAX,
)
from waystation.protocols.merk.client.seen_messages import SEEN_MS, SIGNED_MS, SeenMessages
from waystation.protocols.merk.messages import DeliveryCode, Feature, MessageType, Role
from waystation.protocols.merk.payload.contents import Raw, Text
from waystation.protocols.merk.payload.sealing import Auth, Mode, data_frame, signed_frame
from waystation.protocols.merk.refusals import Refusal

DATA = data_frame(BOB.signing, ALICE.signing.public, b"x", header_signature=True)

# The handshake


def test_challenge_is_answered_with_a_signature_of_it():
    """The answer repeats the challenge, names our key and signs exactly these 32 bytes."""
    pair = Pair()
    pair.challenge()
    (answer,) = pair.sent

    assert (answer.kind, answer.payload, answer.sender) == (MessageType.HANDSHAKE, CHALLENGE, ALICE.signing.public)
    assert verify(ALICE.signing.public, CHALLENGE, answer.signature)


def test_answer_is_what_the_original_client_says():
    """The vectors' challenge gets, byte for byte, the vectors' answer."""
    pair = Pair()
    pair.machine.receive(PEER, vector("challenge"), pair.now)
    sends = [effect.data for effect in pair.machine.take() if isinstance(effect, Send)]

    assert sends == [vector("answer")]


def test_relay_that_proves_its_key():
    """After the confirmation we say HELLO as a client; HELLO and AUTH of the relay make it ready and authenticated."""
    pair = Pair()
    pair.challenge()
    pair.confirm()
    (hello,) = pair.infos()
    before = list(pair.events)
    pair.hello()
    events = pair.auth()

    assert (hello.role, hello.key, hello.address) == (Role.CLIENT, ALICE.signing.public, "")
    assert before == []
    assert events == [Ready(NODE.public, True, int(FEATURES))]
    assert pair.machine.deadline() is None


def test_original_relay_is_known_by_its_silence():
    """Without HELLO for two seconds the relay counts as an original one, and the client is ready all the same."""
    pair = Pair()
    pair.challenge()
    pair.confirm()
    early = pair.pass_ms(HELLO_ANSWER_MS - 1)
    late = pair.pass_ms(1)

    assert early == []
    assert late == [Ready(NODE.public, False, 0)]


def test_late_proof_is_taken():
    """A relay behind a slow network may prove itself after its time; that is told as a second Ready."""
    pair = original_pair()
    pair.hello()
    events = pair.auth()

    assert events == [Ready(NODE.public, True, int(FEATURES))]
    assert pair.machine.authenticated


def test_without_extensions_nothing_is_said_but_the_answer():
    """With extensions off the client is ready with the confirmation."""
    pair = Pair(extensions=False)
    pair.challenge()
    events = pair.confirm()

    assert events == [Ready(NODE.public, False, 0)]
    assert len(pair.sent) == 1


# Messages


def test_message_is_taken():
    """A frame for us that verifies is told with sender, mode, proof and content."""
    pair = ready_pair()
    frame = text_for_alice()
    (event,) = pair.say(frame)

    assert isinstance(event, MessageArrived)
    assert (event.opened.sender, event.opened.mode, event.opened.auth) == (BOB.signing.public, Mode.SIGNED, Auth.BOUND)
    assert (event.opened.content, event.frame_bytes) == (Text("hi"), len(frame))


def test_message_before_the_proof_is_taken():
    """The relay may deliver right behind the confirmation; what a message proves does not rest on the relay."""
    pair = Pair()
    pair.challenge()
    pair.confirm()
    pair.say(text_for_alice())

    assert pair.arrived() == [Text("hi")]


@pytest.mark.parametrize(
    ("frame", "refusal"),
    [
        (text_for_alice(target=CAROL), Refusal.NOT_FOR_US),
        (changed(text_for_alice(), -1), Refusal.BAD_SIGNATURE),
        (signed_anew(text_for_alice(), b"s" * 64), Refusal.BAD_SIGNATURE),
        (wire.encode_frame(MessageType.DATA, bytes(31)), Refusal.NO_TARGET),
        (wire.encode_frame(9, bytes(40)), Refusal.UNKNOWN_TYPE),
        (wire.encode_frame(MessageType.NODE_INFO, b"\x82\x00"), Refusal.MALFORMED_INFO),
    ],
)
def test_bad_message_is_dropped_and_the_connection_stays(frame, refusal):
    """Others may send us anything; the relay is not to blame for it."""
    pair = ready_pair()
    pair.say(frame)

    assert pair.dropped() == [refusal]
    assert pair.closes == []


def test_unknown_node_info_is_ignored():
    """A subtype that nobody knows yet is no error."""
    pair = ready_pair()
    events = pair.say(wire.encode_frame(MessageType.NODE_INFO, b"\x99later"))

    assert (events, pair.closes) == ([], [])


@pytest.mark.parametrize(("make", "kept_ms"), [(text_for_alice, SIGNED_MS), (encrypted_for_alice, SEEN_MS)])
def test_replayed_message_is_dropped(make, kept_ms):
    """The same signed bytes count once in ten minutes, the same encrypted ones in 14 days."""
    pair, frame = ready_pair(), make()
    pair.say(frame)
    pair.say(frame)
    pair.pass_ms(kept_ms - 1)
    pair.say(frame)

    assert len(pair.arrived()) == 1
    assert pair.dropped() == [Refusal.DUPLICATE] * 2


def test_replay_without_its_header_signature_is_a_replay():
    """A relay that strips the header signature and delivers again gains nothing."""
    pair, frame = ready_pair(), text_for_alice()
    pair.say(frame)
    pair.say(signed_anew(frame, bytes(64)))

    assert pair.dropped() == [Refusal.DUPLICATE]


def test_replay_over_a_later_connection_is_dropped():
    """The memory belongs to the identity, not to one connection."""
    seen = SeenMessages()
    first, second = ready_pair(seen=seen), ready_pair(seen=seen)
    first.say(text_for_alice())
    second.say(text_for_alice())

    assert (len(first.arrived()), second.dropped()) == (1, [Refusal.DUPLICATE])


def test_same_plain_bytes_may_come_twice():
    """DATA has nothing that makes two equal ones one."""
    pair = ready_pair()
    pair.say(DATA)
    pair.say(DATA)

    assert pair.arrived() == [Raw(b"x"), Raw(b"x")]


def test_bad_message_is_not_remembered():
    """A forged copy that comes first does not keep the true message out."""
    pair, frame = ready_pair(), text_for_alice()
    pair.say(signed_anew(frame, b"s" * 64))
    pair.say(frame)

    assert pair.arrived() == [Text("hi")]


def test_original_senders_are_understood():
    """A frame signed without its recipient is told as legacy."""
    pair = ready_pair()
    (event,) = pair.say(as_original_sends(encrypted_for_alice(), BOB.signing))

    assert (event.opened.auth, event.opened.content) == (Auth.LEGACY, Text("hi"))


def test_salvage_only_when_asked_and_only_behind_an_original_relay():
    """What an original relay has cut is opened by who opted in; a relay of ours has no excuse for it."""
    mangled = as_original_relays(signed_frame(BOB.signing, ALICE.signing.public, Text("hi"), header_signature=False))
    willing, unwilling, proved = original_pair(salvage=True), original_pair(), ready_pair(salvage=True)
    for pair in (willing, unwilling, proved):
        pair.say(mangled)

    assert willing.arrived() == [Text("hi")]
    assert willing.events[0].opened.auth is Auth.LEGACY
    assert (unwilling.dropped(), proved.dropped()) == ([Refusal.NOT_FOR_US], [Refusal.NOT_FOR_US])


# Outcomes


def test_outcome_of_each_frame_is_told_by_its_hash():
    """Notices may come in any order; each frame gets its own."""
    pair = ready_pair()
    frames = [text_for_bob(number=number) for number in range(3)]
    hashes = [pair.machine.send_frame(frame, pair.now) for frame in frames]
    events = pair.notice(frames[2], 1) + pair.notice(frames[0]) + pair.notice(frames[1], 5)

    assert hashes == [wire.frame_hash(frame) for frame in frames]
    assert events == [
        FrameOutcome(hashes[2], DeliveryCode.UNKNOWN_TARGET),
        FrameOutcome(hashes[0], DeliveryCode.DELIVERED),
        FrameOutcome(hashes[1], DeliveryCode.RATE),
    ]


def test_equal_frames_have_an_outcome_each():
    """The same bytes sent twice are two frames, told in the order of sending."""
    pair, frame = ready_pair(), text_for_bob()
    for _ in range(2):
        pair.machine.send_frame(frame, pair.now)
    codes = [event.code for event in pair.notice(frame) + pair.notice(frame, 2)]
    pair.notice(frame)

    assert codes == [DeliveryCode.DELIVERED, DeliveryCode.QUEUE_FULL]
    assert pair.dropped() == [Refusal.UNASKED_ANSWER]


def test_notice_about_a_frame_that_was_not_sent_is_dropped():
    """A relay cannot invent outcomes."""
    pair = ready_pair()
    pair.notice(text_for_bob())

    assert pair.dropped() == [Refusal.UNASKED_ANSWER]


def test_unknown_code_is_no_outcome():
    """A number of a later version says nothing to us."""
    pair, frame = ready_pair(), text_for_bob()
    pair.machine.send_frame(frame, pair.now)
    (event,) = pair.notice(frame, 77)

    assert event == FrameOutcome(wire.frame_hash(frame), None)


def test_original_relay_tells_no_outcome():
    """The frame leaves our buffers, and that nobody will say more is known then, and not before."""
    pair, frame = original_pair(), text_for_bob()
    hashed = pair.machine.send_frame(frame, pair.now)
    before = pair.collect()
    pair.machine.drained(PEER, pair.now)

    assert before == []
    assert pair.collect() == [FrameOutcome(hashed, None)]
    assert pair.sent[-1] == wire.decode_frame(frame)


def test_frame_before_ready_is_not_sent():
    """Until the handshake is over nothing leaves, and that is told."""
    pair = Pair()
    hashed = pair.machine.send_frame(text_for_bob(), pair.now)

    assert pair.collect() == [FrameOutcome(hashed, None, sent=False)]
    assert pair.sent == []


def test_frames_without_outcome_are_bounded(monkeypatch):
    """Beyond the limit a frame is not sent; an outcome makes room again."""
    monkeypatch.setattr(client, "UNTOLD_MAX", 2)
    pair = ready_pair()
    frames = [text_for_bob(number=number) for number in range(4)]
    for frame in frames[:3]:
        pair.machine.send_frame(frame, pair.now)
    refused = pair.collect()
    pair.notice(frames[0])
    pair.machine.send_frame(frames[3], pair.now)

    assert refused == [FrameOutcome(wire.frame_hash(frames[2]), None, sent=False)]
    assert pair.collect() == []


def test_silence_about_a_frame_ends_once_it_has_left():
    """A relay has its time from when the frame left our buffers, however long that took."""
    pair, frame = ready_pair(), text_for_bob()
    pair.machine.send_frame(frame, pair.now)
    long = pair.pass_ms(10 * NOTICE_MS)
    pair.machine.drained(PEER, pair.now)
    early = pair.pass_ms(NOTICE_MS - 1)
    due = pair.machine.deadline()
    late = pair.pass_ms(1)

    assert (long, early) == ([], [])
    assert due == pair.now
    assert late == [FrameOutcome(wire.frame_hash(frame), None)]


def test_end_of_the_connection_is_the_outcome_of_what_flies():
    """Frames under way, and keys asked for, get their answer with the end."""
    pair, frame = ready_pair(), text_for_bob()
    pair.machine.send_frame(frame, pair.now)
    pair.machine.ask_key(BOB.signing.public, pair.now)
    pair.machine.disconnect(PEER, pair.now)

    assert pair.collect() == [
        FrameOutcome(wire.frame_hash(frame), None),
        KeyNotFound(BOB.signing.public),
        Ended(None),
    ]


# Keys and servers


def test_key_is_asked_once_and_told():
    """Two questions for one key are one; the advert is told when its signature holds."""
    pair = ready_pair()
    advert = wire.make_advert(BOB.signing, BOB.agreement_public, 5)
    for _ in range(2):
        pair.machine.ask_key(BOB.signing.public, pair.now)
    pair.collect()
    events = pair.tell(advert)

    assert pair.infos().count(messages.KeyQuery(BOB.signing.public)) == 1
    assert events == [KeyFound(advert)]


def test_forged_advert_is_dropped_and_the_question_stays():
    """A relay cannot give out its own key for another's."""
    pair = ready_pair()
    pair.machine.ask_key(BOB.signing.public, pair.now)
    genuine = wire.make_advert(BOB.signing, BOB.agreement_public, 5)
    forged = messages.KeyAdvert(BOB.signing.public, CAROL.agreement_public, 5, genuine.signature)
    pair.tell(forged)
    events = pair.tell(genuine)

    assert pair.dropped() == [Refusal.BAD_ADVERT]
    assert events == [KeyFound(genuine)]


def test_advert_that_nobody_asked_for_is_dropped():
    """The directory speaks when it is asked."""
    pair = ready_pair()
    pair.tell(wire.make_advert(BOB.signing, BOB.agreement_public, 5))
    pair.tell(messages.KeyUnknown(BOB.signing.public))

    assert pair.dropped() == [Refusal.UNASKED_ANSWER, Refusal.UNASKED_ANSWER]


def test_unknown_key_and_silence_are_told():
    """A question ends with the relay's no, or with its time."""
    pair = ready_pair()
    pair.machine.ask_key(BOB.signing.public, pair.now)
    no = pair.tell(messages.KeyUnknown(BOB.signing.public))
    pair.machine.ask_key(CAROL.signing.public, pair.now)
    early = pair.pass_ms(KEY_ANSWER_MS - 1)
    late = pair.pass_ms(1)

    assert (no, early) == ([KeyNotFound(BOB.signing.public)], [])
    assert late == [KeyNotFound(CAROL.signing.public)]


def test_original_relay_has_no_directory():
    """Nothing is asked of it, nothing told to it, and the answer is there at once."""
    pair = original_pair()
    count = len(pair.sent)
    pair.machine.ask_key(BOB.signing.public, pair.now)
    pair.machine.advertise(pair.now, 5)

    assert pair.collect() == [KeyNotFound(BOB.signing.public)]
    assert len(pair.sent) == count


def test_questions_are_bounded():
    """Beyond the limit a question is answered with no, at once."""
    pair = ready_pair()
    for number in range(KEY_QUERIES_MAX + 1):
        pair.machine.ask_key(number.to_bytes(32, "big"), pair.now)

    assert pair.collect() == [KeyNotFound(KEY_QUERIES_MAX.to_bytes(32, "big"))]


def test_own_key_is_advertised():
    """What we publish is our agreement key, signed by us, of the time given."""
    pair = ready_pair()
    pair.machine.advertise(pair.now, 1_700_000_000_123)
    pair.collect()
    advert = pair.infos()[-1]

    assert (advert.key, advert.agreement_key) == (ALICE.signing.public, ALICE.agreement_public)
    assert advert.time_ms == 1_700_000_000_123
    assert wire.is_advert_valid(advert)


def test_servers_are_taken_only_as_an_answer_and_bounded():
    """A list is taken once per question, and not beyond what anybody keeps."""
    pair = ready_pair()
    many = messages.Servers(tuple(messages.ServerEntry(b"k" * 32, f"ws://host{number}") for number in range(100)))
    pair.tell(many)
    pair.machine.ask_servers(pair.now)
    (told,) = pair.tell(many)
    pair.tell(many)

    assert isinstance(told, ServersListed)
    assert told.entries == many.entries[:SERVERS_MAX]
    assert pair.dropped() == [Refusal.UNASKED_ANSWER, Refusal.UNASKED_ANSWER]


def test_added_server_is_told():
    """A relay may name one more."""
    assert ready_pair().tell(messages.AddServer("ws://a")) == [ServerAdded("ws://a")]


def test_features_of_the_relay_decide():
    """Without delivery notices in its HELLO a relay is not waited for."""
    pair = Pair()
    pair.challenge()
    pair.confirm()
    pair.hello(features=Feature.KEY_DIRECTORY)
    pair.auth()
    pair.machine.send_frame(text_for_bob(), pair.now)
    pair.machine.drained(PEER, pair.now)

    assert pair.collect() == [FrameOutcome(wire.frame_hash(text_for_bob()), None)]


def test_one_seed_one_trace():
    """The same seed and inputs give the same bytes."""
    assert ready_pair().sent == ready_pair().sent


def test_frames_of_the_machine_ask_for_a_receipt_only_for_content():
    """Only content needs to know when it has left."""
    pair = ready_pair()
    pair.machine.ask_servers(pair.now)
    pair.machine.send_frame(text_for_bob(), pair.now)

    assert [effect.receipt for effect in pair.machine.take()] == [False, True]
