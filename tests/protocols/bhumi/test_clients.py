import itertools
import json
import random
from pathlib import Path

import pytest

from waystation.core.effects import Close, Peer, Send
from waystation.core.instant import Instant, after_ms
from waystation.crypto.signing import KeyPair, verify
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.client_base import HELLO_TIMEOUT_MS, Greeted, Unsent, commit_of
from waystation.protocols.bhumi.device_client import (
    CONFIRM_MS,
    DELIVERIES_MAX,
    KEEPALIVE_MS,
    SILENCE_MS,
    Delivered,
    DeviceClient,
    Registered,
)
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.sender_client import RESULT_TIMEOUT_MS, Answered, Lost, SenderClient

VECTORS = {
    entry["name"]: bytes.fromhex(entry["hex"])
    for kind in ("deterministic", "spec_letter_only")
    for entry in json.loads(Path("tests/vectors/bhumi.json").read_text())[kind]
}
KEY_PAIR = KeyPair.from_seed(bytes([0xA1]) * 32)
RELAY = Peer(7)
START = Instant(5_000_000)
P0, P1 = bytes([0x10]) * 32, bytes([0x11]) * 32
KEEPALIVE = VECTORS["KEEPALIVE"]
HELLO = VECTORS["HELLO"]
OPTIONS_YES = wire.encode(messages.Options(messages.Feature.DELIVER_WITH_PREIMAGE))
OPTIONS_NO = wire.encode(messages.Options(messages.Feature(0)))
DELIVER_PLAIN = VECTORS["DELIVER seed layout (no preimage), msg_id 7, 'request'"]
DELIVER_FULL = VECTORS["DELIVER upstream layout"]


def connected(machine):
    """Return the machine, connected at START."""
    machine.connect(RELAY, START)
    return machine


def device(**options):
    return connected(DeviceClient(KEY_PAIR, **options))


def open_device(**options):
    """Return a device that has introduced itself."""
    machine = device(**options)
    machine.receive(RELAY, HELLO, START)
    machine.take()
    machine.take_events()
    return machine


def open_sender():
    """Return a sender that may send."""
    machine = connected(SenderClient())
    machine.receive(RELAY, HELLO, START)
    machine.take_events()
    return machine


def sent(machine):
    """Return what the machine wants on the wire, as one run of bytes."""
    return b"".join(effect.data for effect in machine.take() if isinstance(effect, Send))


def test_introduction_is_the_vector():
    """HELLO is answered by OPTIONS, then the I_AM of the vectors, then KEEPALIVE, in this order."""
    response = messages.RecentResponse(bytes([0x13]) * 32, b"carried")
    machine = device(commits=[commit_of(P0), commit_of(P1)], responses=[response])

    machine.receive(RELAY, HELLO, START)

    assert sent(machine) == OPTIONS_YES + VECTORS["I_AM 2 commits 1 response"] + KEEPALIVE
    assert machine.take_events() == [Greeted(65_536)]


def test_options_can_be_left_out():
    """A device told not to ask begins with I_AM."""
    machine = device(ask_preimage=False)

    machine.receive(RELAY, HELLO, START)

    assert sent(machine) == VECTORS["I_AM 0 0"] + KEEPALIVE


def test_signature_covers_nonce_and_identity():
    """The signature is one over the nonce's four bytes and the identity."""
    machine = device()

    machine.receive(RELAY, HELLO, START)

    introduction = next(e.data for e in machine.take() if e.data[1] == messages.FrameType.I_AM)
    assert verify(KEY_PAIR.public, bytes([1, 2, 3, 4]) + KEY_PAIR.public, introduction[38:102])


@pytest.mark.parametrize("version", [0, 2, 255])
def test_other_version_closes(version):
    """A relay of another protocol version is left at once, with nothing sent."""
    machine = device()

    machine.receive(RELAY, wire.encode(messages.Hello(1, 100, version)), START)

    assert machine.take() == [Close(RELAY, Refusal.BAD_VERSION)]


def test_echo_confirms_registration():
    """The first KEEPALIVE that comes back says that the I_AM was taken; a second one says nothing new."""
    machine = open_device()

    machine.receive(RELAY, OPTIONS_YES + KEEPALIVE + KEEPALIVE, START)

    assert machine.take_events() == [Registered(confirmed=True, with_preimage=True)]


def test_silence_confirms_in_the_end():
    """A relay that never echoes counts as content after a second, and its silence is not held against it."""
    machine = open_device()

    machine.wake(after_ms(START, CONFIRM_MS))
    machine.wake(after_ms(START, 10 * SILENCE_MS))

    assert machine.take_events() == [Registered(confirmed=False, with_preimage=False)]
    assert not [effect for effect in machine.take() if isinstance(effect, Close)]


@pytest.mark.parametrize(
    ("options", "answer", "deliver", "preimage"),
    [
        ({}, OPTIONS_YES, DELIVER_FULL, P0),
        ({}, OPTIONS_NO, DELIVER_PLAIN, None),
        ({}, b"", DELIVER_PLAIN, None),
        ({"ask_preimage": False}, OPTIONS_YES, DELIVER_PLAIN, None),
        ({"always_preimage": True}, b"", DELIVER_FULL, P0),
        ({"always_preimage": True}, OPTIONS_NO, DELIVER_PLAIN, None),
    ],
)
def test_layout_follows_the_relays_answer(options, answer, deliver, preimage):
    """DELIVER carries the preimage only if the relay accepted the bit, or is known to send it always."""
    machine = open_device(**options)

    machine.receive(RELAY, answer + deliver, START)

    assert Delivered(7, b"request", preimage) in machine.take_events()


def test_answer_is_the_vector_and_leaves_once():
    """An answer is the ACK of the vectors; the same delivery cannot be answered twice."""
    machine = open_device()
    machine.receive(RELAY, DELIVER_PLAIN, START)

    first = machine.answer(7, b"response")
    second = machine.answer(7, b"response")

    assert (first, second) == (None, Unsent.UNKNOWN_DELIVERY)
    assert sent(machine) == VECTORS["ACK"]


def test_answer_refusals():
    """An answer to nothing, one too large, and one after the end say why they did nothing."""
    machine = device()
    early = machine.answer(7, b"")
    machine.receive(RELAY, wire.encode(messages.Hello(1, 4)) + DELIVER_PLAIN, START)
    refusals = [early, machine.answer(8, b""), machine.answer(7, b"12345")]
    machine.disconnect(RELAY, START)

    refusals.append(machine.answer(7, b""))

    assert refusals == [Unsent.NOT_OPEN, Unsent.UNKNOWN_DELIVERY, Unsent.TOO_LARGE, Unsent.NOT_OPEN]


def test_commits_added_later_are_one_update():
    """After HELLO, new commits leave as UPDATE_COMMITS; before it, they are part of the I_AM."""
    wanted = VECTORS["UPDATE_COMMITS"]
    commits = wire.decode_update_commits(wanted[6:]).commits
    early = device()
    early.add_commits([commit_of(P0), commit_of(P1)])
    early.receive(RELAY, HELLO, START)
    machine = open_device()

    machine.add_commits(commits)

    assert sent(machine) == wanted
    assert VECTORS["I_AM 2 commits 0 responses"] in sent(early)


def test_many_commits_are_split():
    """No UPDATE_COMMITS carries more than a relay takes."""
    machine = open_device()

    machine.add_commits(number.to_bytes(32, "big") for number in range(wire.COMMITS_MAX + 1))

    sizes = [len(wire.decode_update_commits(effect.data[6:]).commits) for effect in machine.take()]
    assert sizes == [wire.COMMITS_MAX, 1]


def test_refresh_repeats_the_nonce():
    """A refresh is a second I_AM, signed for the same nonce."""
    machine = open_device()

    machine.replace([commit_of(P0), commit_of(P1)])

    assert sent(machine) == VECTORS["I_AM 2 commits 0 responses"]


def test_carried_responses_stay_within_quota():
    """An I_AM carries at most 256 responses and one mebibyte of them, the first ones first."""
    many = [messages.RecentResponse(bytes([index % 256]) * 32, b"") for index in range(300)]
    large = [messages.RecentResponse(bytes([index]) * 32, bytes(400_000)) for index in range(4)]
    carried = []
    for responses in (many, large):
        machine = open_device()
        machine.replace([], responses)
        carried.append(wire.decode_i_am(sent(machine)[6:]).responses)

    assert carried == [tuple(many[:256]), tuple(large[:2])]


def test_keepalive_comes_on_time():
    """A device says KEEPALIVE every 45 seconds, and its deadline is never later than that."""
    machine = open_device()
    machine.receive(RELAY, KEEPALIVE, START)
    due = after_ms(START, KEEPALIVE_MS)

    assert machine.deadline() == due
    machine.wake(Instant(due - 1))
    assert sent(machine) == b""
    machine.wake(due)
    assert sent(machine) == KEEPALIVE
    assert machine.deadline() == after_ms(START, SILENCE_MS)


def test_silence_after_echo_is_death():
    """A relay that echoed once and then says nothing for 90 seconds is given up, not a moment before."""
    machine = open_device()
    machine.receive(RELAY, KEEPALIVE, START)
    dead_at = after_ms(START, SILENCE_MS)

    machine.wake(Instant(dead_at - 1))
    before = [effect for effect in machine.take() if isinstance(effect, Close)]
    machine.wake(dead_at)

    assert before == []
    assert machine.take() == [Close(RELAY, Refusal.IDLE_TIMEOUT)]
    assert machine.deadline() is None


@pytest.mark.parametrize("make", [device, lambda: connected(SenderClient())])
def test_no_hello_is_death(make):
    """Without HELLO the connection is given up after ten seconds."""
    machine = make()

    assert machine.deadline() == after_ms(START, HELLO_TIMEOUT_MS)
    machine.wake(after_ms(START, HELLO_TIMEOUT_MS))

    assert machine.take() == [Close(RELAY, Refusal.FRAME_TIMEOUT)]


def test_send_is_the_vector():
    """A request is the SEND of the vectors, and nothing that tells who sends leaves."""
    machine = open_sender()

    token = machine.send(KEY_PAIR.public, P0, b"request", START)

    assert token == 1
    assert sent(machine) == VECTORS["SEND"]


def test_results_belong_to_the_oldest():
    """Outcomes are given to requests in the order in which these were sent."""
    machine = open_sender()
    tokens = [machine.send(KEY_PAIR.public, P0, b"", START) for _ in range(3)]

    machine.receive(RELAY, VECTORS["SEND_RESULT ok"] + VECTORS["SEND_RESULT status 3"], START)
    machine.disconnect(RELAY, START)

    assert machine.take_events() == [
        Answered(tokens[0], 0, b"response"),
        Answered(tokens[1], 3, b""),
        Lost(tokens[2]),
    ]


def test_window_is_sixteen():
    """The seventeenth request without a result is refused, and goes after the first result."""
    machine = open_sender()
    tokens = [machine.send(KEY_PAIR.public, P0, b"", START) for _ in range(17)]

    machine.receive(RELAY, VECTORS["SEND_RESULT status 1"], START)
    again = machine.send(KEY_PAIR.public, P0, b"", START)

    assert tokens == [*range(1, 17), Unsent.WINDOW_FULL]
    assert again == 17


def test_send_refusals():
    """A request before HELLO, after the end, or larger than the relay takes leaves nothing."""
    machine = connected(SenderClient())
    early = machine.send(KEY_PAIR.public, P0, b"", START)
    machine.receive(RELAY, wire.encode(messages.Hello(1, 4)), START)
    large = machine.send(KEY_PAIR.public, P0, b"12345", START)
    machine.disconnect(RELAY, START)

    late = machine.send(KEY_PAIR.public, P0, b"", START)

    assert (early, large, late) == (Unsent.NOT_OPEN, Unsent.TOO_LARGE, Unsent.NOT_OPEN)
    assert machine.take() == []


def test_unanswered_request_ends_the_connection():
    """When the oldest request has no result in time the connection is dead, and each request is lost once."""
    machine = open_sender()
    tokens = [machine.send(KEY_PAIR.public, P0, b"", START) for _ in range(2)]
    machine.take()
    due = after_ms(START, RESULT_TIMEOUT_MS)

    assert machine.deadline() == due
    machine.wake(Instant(due - 1))
    assert machine.take() == []
    machine.wake(due)

    assert machine.take() == [Close(RELAY, Refusal.IDLE_TIMEOUT)]
    assert machine.take_events() == [Lost(token) for token in tokens]


def test_result_without_request_closes():
    """A result that nobody waits for is a broken relay."""
    machine = open_sender()

    machine.receive(RELAY, VECTORS["SEND_RESULT ok"], START)

    assert machine.take() == [Close(RELAY, Refusal.WRONG_DIRECTION)]


def test_too_many_deliveries_close():
    """A relay that delivers without waiting for any answer is left before memory grows."""
    machine = open_device()
    frames = [wire.encode_deliver(number, b"", None) for number in range(DELIVERIES_MAX + 1)]

    machine.receive(RELAY, b"".join(frames), START)

    assert machine.take() == [Close(RELAY, Refusal.RECIPIENT_QUEUE_FULL)]
    assert len([e for e in machine.take_events() if isinstance(e, Delivered)]) == DELIVERIES_MAX


FRAMES = {
    "HELLO": HELLO,
    "I_AM": VECTORS["I_AM 0 0"],
    "SEND": VECTORS["SEND"],
    "DELIVER": DELIVER_PLAIN,
    "ACK": VECTORS["ACK"],
    "KEEPALIVE": KEEPALIVE,
    "SEND_RESULT": VECTORS["SEND_RESULT ok"],
    "UPDATE_COMMITS": VECTORS["UPDATE_COMMITS"],
    "OPTIONS": OPTIONS_YES,
    "extension": bytes.fromhex("005f00000001ff"),
    "unknown": bytes.fromhex("003f00000000"),
}
LEGAL = {
    "device waiting": {"HELLO", "extension"},
    "sender waiting": {"HELLO", "extension"},
    "device open": {"DELIVER", "KEEPALIVE", "OPTIONS", "extension"},
    "sender open": {"SEND_RESULT", "KEEPALIVE", "OPTIONS", "extension"},
    "closed": set(FRAMES),
}


def in_state(name):
    """Return a machine in a state of the table above."""
    if name == "closed":
        machine = open_device()
        machine.disconnect(RELAY, START)
        return machine
    machine = {
        "device waiting": device,
        "sender waiting": lambda: connected(SenderClient()),
        "device open": open_device,
        "sender open": open_sender,
    }[name]()
    if name == "sender open":
        machine.send(KEY_PAIR.public, P0, b"", START)
        machine.take()
    return machine


@pytest.mark.parametrize(("state", "frame"), list(itertools.product(LEGAL, FRAMES)))
def test_every_state_and_message(state, frame):
    """A message that is not legal in a state closes with a refusal; a legal one does not; a closed one is deaf."""
    machine = in_state(state)

    machine.receive(RELAY, FRAMES[frame], START)

    closes = [effect for effect in machine.take() if isinstance(effect, Close)]
    assert bool(closes) == (frame not in LEGAL[state])
    assert all(isinstance(close.reason, Refusal) for close in closes)
    if state == "closed":
        assert machine.take_events() == []


CONVERSATION = (
    HELLO + OPTIONS_YES + KEEPALIVE + DELIVER_FULL + bytes.fromhex("0050000000020102") + KEEPALIVE + DELIVER_FULL
)


@pytest.mark.parametrize("seed", range(20))
def test_any_chunking_tells_the_same(seed):
    """However the bytes are cut, effects and events are the same."""
    whole, pieces = device(), device()
    rng = random.Random(seed)
    whole.receive(RELAY, CONVERSATION, START)
    at = 0
    while at < len(CONVERSATION):
        size = rng.choice([1, 1, 2, 7, 30])
        pieces.receive(RELAY, CONVERSATION[at : at + size], START)
        at += size

    assert pieces.take() == whole.take()
    assert pieces.take_events() == whole.take_events()


def test_a_frame_cut_short_says_nothing():
    """At every length short of its end, DELIVER tells nothing and does not close."""
    for length in range(len(DELIVER_FULL)):
        machine = open_device(always_preimage=True)

        machine.receive(RELAY, DELIVER_FULL[:length], START)

        assert (machine.take(), machine.take_events()) == ([], [])


@pytest.mark.parametrize("delta", [-1, 1, 1_000_000])
def test_inner_length_lies_close(delta):
    """An inner length that disagrees with its frame closes."""
    machine = open_device()
    lie = DELIVER_PLAIN[:10] + (7 + delta).to_bytes(4, "big") + DELIVER_PLAIN[14:]

    machine.receive(RELAY, lie, START)

    assert machine.take() == [Close(RELAY, Refusal.INNER_LENGTH)]


@pytest.mark.parametrize("make", [device, lambda: connected(SenderClient())])
def test_garbage_never_raises(make):
    """Random and bit-flipped bytes end in nothing or in a close with a refusal, and never in an exception."""
    rng = random.Random(4)
    for _ in range(400):
        machine = make()
        data = bytearray(CONVERSATION)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        machine.receive(RELAY, bytes(data), START)
        machine.receive(RELAY, rng.randbytes(20), START)

        assert all(isinstance(e, Send) or isinstance(e.reason, Refusal) for e in machine.take())


def test_another_peer_is_ignored():
    """A machine knows one connection; what is said of another one changes nothing."""
    machine = device()

    machine.receive(Peer(8), HELLO, START)
    machine.disconnect(Peer(8), START)

    assert not machine.is_open
    assert machine.deadline() == after_ms(START, HELLO_TIMEOUT_MS)
    assert machine.take() == []


def test_congestion_changes_nothing():
    """What a client sends is bounded by its windows, so waiting bytes are no event for it."""
    machine = open_device()

    machine.congested(RELAY, START)
    machine.drained(RELAY, START)

    assert (machine.take(), machine.take_events()) == ([], [])
