"""Laws of protocols.bhumi.guide_client: one question at a time, and an answer only to what was asked."""

import pytest

from tests.protocols.bhumi.build import ALICE, BOB
from waystation.core.effects import Close, Peer, Send
from waystation.core.instant import Instant, after_ms
from waystation.protocols.bhumi import extension_wire, messages, signed_records, wire
from waystation.protocols.bhumi.client.base import Greeted, Unsent
from waystation.protocols.bhumi.client.guide import ANSWER_TIMEOUT_MS, Found, GuideClient, NoGuide, RelaysListed
from waystation.protocols.bhumi.extension_messages import Relays, WhereEntry, WhereResult
from waystation.protocols.bhumi.messages import Feature, Hello, Options
from waystation.protocols.bhumi.refusals import Refusal

START = Instant(1_000)
PEER = Peer(3)
PRESENCE = signed_records.sign_presence(ALICE, BOB.public, 5, 300)
FOUND = WhereResult(ALICE.public, (WhereEntry(PRESENCE, "tls://b:1"),))
AD = signed_records.sign_advert(BOB, "tls://b:1", 5, 300)


def guide(*frames):
    """Return a client that has heard HELLO and ``frames``."""
    machine = GuideClient()
    machine.connect(PEER, START)
    machine.receive(PEER, wire.encode(Hello(1, 65_536)) + b"".join(frames), START)
    return machine


def asked(machine):
    """Return the frames that have left, and what closed the connection."""
    effects = machine.take()
    sent = b"".join(effect.data for effect in effects if isinstance(effect, Send))
    return sent, [effect.reason for effect in effects if isinstance(effect, Close)]


READY = wire.encode(Options(Feature.PRESENCE))


def test_asks_where_and_which():
    """OPTIONS first, then a question, then the next one; the relay's answers are handed on as they are."""
    machine = guide(READY)
    first = machine.where(ALICE.public, START)
    machine.receive(PEER, extension_wire.encode_extension(FOUND), START)
    second = machine.relays(START)
    machine.receive(PEER, extension_wire.encode_extension(Relays((AD,))), START)

    assert (first, second) == (None, None)
    assert machine.take_events() == [Greeted(65_536), Found(ALICE.public, FOUND.entries), RelaysListed((AD,))]
    assert asked(machine) == (
        READY + wire._frame(messages.FrameType.WHERE, ALICE.public) + b"\x00\x48\x00\x00\x00\x00",
        [],
    )


def test_one_question_at_a_time():
    """Answers have no numbers, so that a second question has to wait."""
    machine = guide(READY)

    assert [machine.where(ALICE.public, START), machine.relays(START)] == [None, Unsent.WINDOW_FULL]


def test_no_question_before_options():
    """The relay has to say first that it knows the extension."""
    assert guide().relays(START) is Unsent.NOT_OPEN


@pytest.mark.parametrize("frame", [extension_wire.encode_extension(FOUND), extension_wire.encode_extension(Relays())])
def test_answers_to_nobody_are_nothing(frame):
    """What was not asked for is not believed."""
    machine = guide(READY, frame)
    machine.take_events()
    machine.where(BOB.public, START)
    machine.receive(PEER, frame, START)

    assert machine.take_events() == []


@pytest.mark.parametrize("answer", [b"", wire.encode(Options(Feature(0)))])
def test_the_original_relay_is_no_guide(answer):
    """Silence about OPTIONS, or a no, ends in an event and not in a broken connection."""
    machine = guide(answer)
    machine.wake(after_ms(START, ANSWER_TIMEOUT_MS))

    machine.receive(PEER, READY, START)

    assert machine.take_events() == [NoGuide()]
    assert machine.is_open
    assert machine.deadline() is None


def test_a_relay_that_does_not_answer():
    """The connection ends, and with it the question."""
    machine = guide(READY)
    machine.relays(START)
    machine.wake(after_ms(START, ANSWER_TIMEOUT_MS - 1))
    before = asked(machine)[1]
    machine.wake(after_ms(START, ANSWER_TIMEOUT_MS))

    assert (before, asked(machine)[1], machine.deadline()) == ([], [Refusal.IDLE_TIMEOUT], None)


def test_a_malformed_answer_closes():
    """As every malformed frame does."""
    machine = guide(READY, wire._frame(messages.FrameType.RELAYS, b"\xff\xff"))

    assert asked(machine)[1] == [Refusal.TRUNCATED]
