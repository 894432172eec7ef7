"""Laws of protocols.bhumi.device_client."""

import pytest

from tests.protocols.bhumi.clients import (
    DELIVER_FULL,
    DELIVER_PLAIN,
    HELLO,
    KEEPALIVE,
    KEY_PAIR,
    OPTIONS_NO,
    OPTIONS_YES,
    P0,
    P1,
    RELAY,
    START,
    VECTORS,
    device,
    open_device,
    sent,
)
from waystation.core.effects import Close
from waystation.core.instant import Instant, after_ms
from waystation.crypto.signing import verify
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.client.base import Greeted, Unsent, commit_of
from waystation.protocols.bhumi.client.device import (
    CONFIRM_MS,
    DELIVERIES_MAX,
    Delivered,
    Registered,
)
from waystation.protocols.bhumi.client.keepalive import KEEPALIVE_MS, SILENCE_MS
from waystation.protocols.bhumi.refusals import Refusal


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
    """A device asks a silent relay after 20 seconds, and its deadline is never later than that."""
    machine = open_device()
    machine.receive(RELAY, KEEPALIVE, START)
    due = after_ms(START, 20_000)

    assert machine.deadline() == due
    machine.wake(Instant(due - 1))
    assert sent(machine) == b""
    machine.wake(due)
    assert sent(machine) == KEEPALIVE
    assert machine.deadline() == after_ms(START, SILENCE_MS - 1_000)


def test_relay_that_talks_gets_keepalive_all_the_same():
    """BHUMI-L: whatever comes from the relay, it gets KEEPALIVE every 45 seconds, and no more often then."""
    machine = open_device()
    asked = []
    for at_ms in range(0, 100_000, 5_000):
        machine.receive(RELAY, OPTIONS_YES if at_ms else KEEPALIVE, after_ms(START, at_ms))
        machine.wake(after_ms(START, at_ms))
        asked += [at_ms] * sent(machine).count(KEEPALIVE)

    assert asked == [45_000, 90_000]


def test_relay_that_never_echoes_is_not_asked_more_often():
    """The original relay logs each KEEPALIVE as unknown: it gets one every 45 seconds."""
    machine = open_device()
    machine.wake(after_ms(START, CONFIRM_MS))

    assert machine.deadline() == after_ms(START, KEEPALIVE_MS)


def test_silence_after_echo_is_death():
    """NODE-SILENCE: a relay that echoed once and then says nothing is given up within 30 s, not a moment before."""
    machine = open_device()
    machine.receive(RELAY, KEEPALIVE, START)
    dead_at = after_ms(START, SILENCE_MS - 1_000)

    machine.wake(Instant(dead_at - 1))
    before = [effect for effect in machine.take() if isinstance(effect, Close)]
    machine.wake(dead_at)

    assert before == []
    assert machine.take() == [Close(RELAY, Refusal.IDLE_TIMEOUT)]
    assert machine.deadline() is None


def test_too_many_deliveries_close():
    """A relay that delivers without waiting for any answer is left before memory grows."""
    machine = open_device()
    frames = [wire.encode_deliver(number, b"", None) for number in range(DELIVERIES_MAX + 1)]

    machine.receive(RELAY, b"".join(frames), START)

    assert machine.take() == [Close(RELAY, Refusal.RECIPIENT_QUEUE_FULL)]
    assert len([e for e in machine.take_events() if isinstance(e, Delivered)]) == DELIVERIES_MAX
