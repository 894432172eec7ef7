"""Laws of sending.reading: an answer is what the peer sealed for a request; a former request's answer is known."""

import contextlib
import random

import pytest

from tests.sdk.build import ALICE, PREIMAGE, know_alice
from waystation.protocols.bhumi.payload.contents import ContentType, DeviceMessage, MessageResponse
from waystation.protocols.bhumi.payload.suites import SharedSecrets
from waystation.sdk.bhumi import BhumiState, Dialect, PendingKind
from waystation.sdk.bhumi.dialect import write_answer, write_request
from waystation.sdk.bhumi.sending.outgoing import Outgoing
from waystation.sdk.bhumi.sending.reading import AnswerReader
from waystation.sdk.errors import AnswerError

RNG = random.Random(1)


@pytest.fixture
def reading(tmp_path):
    """Give a reader, what its sender keeps, and the secrets of the participant."""
    with contextlib.closing(BhumiState(tmp_path)) as state:
        know_alice(state, PREIMAGE)
        outgoing, secrets = Outgoing(state, ""), SharedSecrets(state.key_pair)
        yield AnswerReader(outgoing, secrets), outgoing, secrets


def begin(outgoing, secrets, dialect):
    message = DeviceMessage(ContentType.TEXT, b"hi")
    return outgoing.take(
        ALICE.public,
        PendingKind.MESSAGE,
        lambda preimage: write_request(dialect, secrets, ALICE.public, preimage, message, RNG),
    )


def answered(secrets, dialect):
    response = MessageResponse(0, bytes([7]) * 32, b"yes")
    return write_answer(dialect, SharedSecrets(ALICE), secrets.key_pair.public, PREIMAGE, response, RNG)


@pytest.mark.parametrize("dialect", [Dialect.E2E, Dialect.SUITE_1, Dialect.SUITE_2])
def test_answer_is_read_in_the_dialect_of_its_request(reading, dialect):
    """The dialect is that of the request's own bytes."""
    reader, outgoing, secrets = reading
    pending = begin(outgoing, secrets, dialect)

    opened = reader.read(pending, answered(secrets, dialect))

    assert (opened.dialect, opened.answer.content, opened.is_earlier) == (dialect, b"yes", False)


def test_answer_to_a_former_request_is_known(reading):
    """What answers only a request that left before under this permission says that this one was never handled."""
    reader, outgoing, secrets = reading
    outgoing.give_back(begin(outgoing, secrets, Dialect.SUITE_1), was_out=True)
    pending = begin(outgoing, secrets, Dialect.E2E)

    opened = reader.read(pending, answered(secrets, Dialect.SUITE_1))

    assert (opened.is_earlier, opened.answer.content) == (True, b"yes")


@pytest.mark.parametrize("data", [b"", b"nonsense", bytes(200)])
def test_anything_else_is_no_answer(reading, data):
    """Bytes that the peer has not sealed raise, whatever left before."""
    reader, outgoing, secrets = reading
    outgoing.give_back(begin(outgoing, secrets, Dialect.SUITE_2), was_out=True)

    with pytest.raises(AnswerError):
        reader.read(begin(outgoing, secrets, Dialect.E2E), data)
