import random

import pytest

from waystation.core.errors import LocalError
from waystation.crypto.agreement import WeakKeyError
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.payloads import (
    ContentType,
    DeviceMessage,
    HandshakeComplete,
    HandshakeInit,
    MessageResponse,
    ResponseStatus,
)
from waystation.protocols.bhumi.suites import SharedSecrets
from waystation.sdk.bhumi_dialect import (
    Dialect,
    command_content,
    command_result,
    read_answer,
    read_request,
    write_answer,
    write_request,
)
from waystation.sdk.errors import AnswerError

ALICE = KeyPair.from_seed(bytes([0xA1]) * 32)
BOB = KeyPair.from_seed(bytes([0xB2]) * 32)
PREIMAGE, NEXT = bytes([0x10]) * 32, bytes([0x13]) * 32
ALICES, BOBS = SharedSecrets(ALICE), SharedSecrets(BOB)
RNG = random.Random(1)
INIT = HandshakeInit(BOB.public, NEXT, "tls://bob:1")
COMMAND = DeviceMessage(ContentType.COMMAND, b'{"cmd":"led","args":{}}')


@pytest.mark.parametrize("request_", [INIT, COMMAND, DeviceMessage(ContentType.BINARY, b"\xff", "tls://bob:1")])
def test_sealed_request(request_):
    """An encrypted request opens for its recipient, for nobody else, and shows nothing."""
    data = write_request(Dialect.E2E, BOBS, ALICE.public, PREIMAGE, request_, RNG)

    assert read_request(Dialect.E2E, ALICES, BOB.public, PREIMAGE, data) == request_
    assert read_request(Dialect.E2E, BOBS, ALICE.public, PREIMAGE, data) is None
    assert BOB.public not in data


@pytest.mark.parametrize(
    ("request_", "data"),
    [
        (INIT, b"\x01" + BOB.public + NEXT + b"\0\x0btls://bob:1"),
        (COMMAND, COMMAND.content),
        (DeviceMessage(ContentType.TEXT, b"led"), COMMAND.content),
    ],
)
def test_plain_request(request_, data):
    """Without encryption a handshake is binary, and everything else is a JSON command."""
    written = write_request(Dialect.NONE, BOBS, ALICE.public, PREIMAGE, request_, RNG)

    assert written == data
    assert read_request(Dialect.NONE, ALICES, BOB.public, PREIMAGE, written) == (INIT if request_ is INIT else COMMAND)


def test_plain_binary_is_refused():
    """The original node has no words for binary content."""
    with pytest.raises(LocalError, match="not binary"):
        write_request(Dialect.NONE, BOBS, ALICE.public, PREIMAGE, DeviceMessage(ContentType.BINARY, b"x"), RNG)


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("data", [b"", b"\x01", b"\x02" + bytes(35), b"nonsense", b"[]", bytes(200)])
def test_nonsense_is_no_request(dialect, data):
    """What is no request is None, whatever it is."""
    assert read_request(dialect, ALICES, BOB.public, PREIMAGE, data) is None


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize(
    "answer",
    [
        HandshakeComplete(ResponseStatus.OK, NEXT, "tls://a:1"),
        HandshakeComplete(ResponseStatus.REFUSED),
        MessageResponse(0, NEXT, b'{"ok":true,"data":1}'),
        MessageResponse(1, NEXT, b'{"ok":false,"error":"no"}'),
        MessageResponse(1, bytes(32), b'{"ok":false,"error":"unauthorised"}'),
    ],
)
def test_answer_round_trip(dialect, answer):
    """Every answer that both dialects can say is read as it was written."""
    data = write_answer(dialect, ALICES, BOB.public, PREIMAGE, answer, RNG)

    assert read_answer(dialect, BOBS, ALICE.public, PREIMAGE, data) == answer


def test_plain_answer_bytes():
    """The original node's answer is JSON with the raw preimage behind it, or JSON alone."""
    content = b'{"ok":true,"data":1}'

    with_next = write_answer(Dialect.NONE, ALICES, BOB.public, PREIMAGE, MessageResponse(0, NEXT, content), RNG)
    without = write_answer(Dialect.NONE, ALICES, BOB.public, PREIMAGE, MessageResponse(0, bytes(32), content), RNG)

    assert (with_next, without) == (content + NEXT, content)


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("data", [b"", b"nonsense", b"\x02\0", bytes(200)])
def test_unreadable_answer(dialect, data):
    """What is no answer raises the one error for it."""
    with pytest.raises(AnswerError):
        read_answer(dialect, BOBS, ALICE.public, PREIMAGE, data)


def test_a_request_is_no_answer():
    """A request that comes back as an answer is refused."""
    data = write_request(Dialect.E2E, ALICES, BOB.public, PREIMAGE, COMMAND, RNG)

    with pytest.raises(AnswerError, match="is a request"):
        read_answer(Dialect.E2E, BOBS, ALICE.public, PREIMAGE, data)


def test_weak_recipient():
    """A key that cannot be sealed to is refused on both ways."""
    with pytest.raises(WeakKeyError):
        write_answer(Dialect.E2E, BOBS, bytes(32), PREIMAGE, MessageResponse(0, NEXT), RNG)
    with pytest.raises(WeakKeyError):
        write_request(Dialect.E2E, BOBS, bytes(32), PREIMAGE, COMMAND, RNG)


@pytest.mark.parametrize(
    ("given", "content"),
    [
        ("21.5", b'{"ok":true,"data":21.5}'),
        ('{"t": 1}', b'{"ok":true,"data":{"t":1}}'),
        ("on", b'{"ok":true,"data":"on"}'),
        (b"on", b'{"ok":true,"data":"on"}'),
        (b"\xff", '{"ok":true,"data":"\ufffd"}'.encode()),
        ("", b'{"ok":true,"data":""}'),
        ("NaN", b'{"ok":true,"data":"NaN"}'),
    ],
)
def test_command_content(given, content):
    """A handler's JSON goes in as JSON, anything else as a string."""
    assert command_content(given) == content


def test_command_result():
    """A command's data is returned; its error, and nonsense, are raised."""
    assert command_result(b'{"ok":true,"data":[1]}') == [1]
    with pytest.raises(AnswerError, match="no bulb"):
        command_result(b'{"ok":false,"error":"no bulb"}')
    with pytest.raises(AnswerError, match="no sense"):
        command_result(b"nonsense")


def test_answer_to_another_request_is_refused():
    """An answer that carries another request's hint is none."""
    data = write_answer(Dialect.E2E, ALICES, BOB.public, NEXT, MessageResponse(0, PREIMAGE), RNG)

    with pytest.raises(AnswerError, match="another request"):
        read_answer(Dialect.E2E, BOBS, ALICE.public, PREIMAGE, data)
