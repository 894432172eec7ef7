"""Laws of protocols.bhumi.sender_client."""

from tests.protocols.bhumi.clients import KEY_PAIR, P0, RELAY, START, VECTORS, connected, open_sender, sent
from waystation.core.effects import Close
from waystation.core.instant import Instant, after_ms
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.client.base import Unsent
from waystation.protocols.bhumi.client.sender import RESULT_TIMEOUT_MS, Answered, Lost, SenderClient
from waystation.protocols.bhumi.refusals import Refusal


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
