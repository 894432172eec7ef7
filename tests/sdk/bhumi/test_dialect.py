import random

import pytest

from waystation.core.errors import LocalError
from waystation.crypto.agreement import WeakKeyError
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.payload.contents import (
    ContentType,
    DeviceMessage,
    HandshakeComplete,
    HandshakeInit,
    MalformedPayloadError,
    MessageResponse,
    ResponseStatus,
)
from waystation.protocols.bhumi.payload.envelope import hint_of
from waystation.protocols.bhumi.payload.pairing import root_with
from waystation.protocols.bhumi.payload.suites import SharedSecrets, suite_hint_of
from waystation.sdk.bhumi import dialect as dialect_module
from waystation.sdk.bhumi.dialect import (
    Dialect,
    command_content,
    command_result,
    dialect_of,
    read_answer,
    read_request,
    write_answer,
    write_request,
)
from waystation.sdk.errors import AnswerError

ALICE = KeyPair.from_seed(bytes([0xA1]) * 32)
BOB = KeyPair.from_seed(bytes([0xB2]) * 32)
PREIMAGE, NEXT = bytes([0x10]) * 32, bytes([0x13]) * 32
EVE = KeyPair.from_seed(bytes([0xE5]) * 32)
SUITES = [Dialect.SUITE_1, Dialect.SUITE_2]
SEALED = [Dialect.E2E, *SUITES]
PAIRED = [Dialect.SUITE_3, Dialect.SUITE_4]
SECRET = bytes([0x5E]) * 32
ALICES, BOBS = SharedSecrets(ALICE), SharedSecrets(BOB)
ROOT = root_with(ALICES, BOB.public, SECRET)
RNG = random.Random(1)
INIT = HandshakeInit(BOB.public, NEXT, "tls://bob:1")
COMMAND = DeviceMessage(ContentType.COMMAND, b'{"cmd":"led","args":{}}')


@pytest.mark.parametrize("dialect", SEALED)
@pytest.mark.parametrize("request_", [INIT, COMMAND, DeviceMessage(ContentType.BINARY, b"\xff", "tls://bob:1")])
def test_sealed_request(dialect, request_):
    """An encrypted request opens for its recipient, for nobody else, and shows nothing."""
    data = write_request(dialect, BOBS, ALICE.public, PREIMAGE, request_, RNG)
    peer = None if request_ is INIT else BOB.public

    assert dialect_of(PREIMAGE, data) is dialect
    assert read_request(dialect, ALICES, peer, PREIMAGE, data) == request_
    assert read_request(dialect, SharedSecrets(EVE), peer, PREIMAGE, data) is None
    assert BOB.public not in data


@pytest.mark.parametrize("dialect", SUITES)
def test_suite_request_proves_its_sender(dialect):
    """In a suite, whoever was given the preimage opens as such, nobody else does, and a handshake needs an invite."""
    data = write_request(dialect, BOBS, ALICE.public, PREIMAGE, COMMAND, RNG)
    stranger = write_request(dialect, SharedSecrets(EVE), ALICE.public, PREIMAGE, COMMAND, RNG)
    init = write_request(dialect, BOBS, ALICE.public, PREIMAGE, INIT, RNG)

    assert read_request(dialect, ALICES, BOB.public, PREIMAGE, data) == COMMAND
    assert read_request(dialect, ALICES, EVE.public, PREIMAGE, data) is None
    assert read_request(dialect, ALICES, None, PREIMAGE, data) is None
    assert read_request(dialect, ALICES, BOB.public, PREIMAGE, stranger) is None
    assert read_request(dialect, ALICES, BOB.public, PREIMAGE, init) is None
    assert read_request(dialect, ALICES, bytes(32), PREIMAGE, data) is None


@pytest.mark.parametrize("dialect", SEALED)
@pytest.mark.parametrize("spoken", SEALED)
def test_request_in_another_dialect_makes_no_sense(dialect, spoken):
    """What is read in one dialect was written in it."""
    data = write_request(spoken, BOBS, ALICE.public, PREIMAGE, COMMAND, RNG)

    assert (read_request(dialect, ALICES, BOB.public, PREIMAGE, data) == COMMAND) is (dialect is spoken)


@pytest.mark.parametrize(
    ("data", "dialect"),
    [
        (b"", Dialect.NONE),
        (COMMAND.content, Dialect.NONE),
        (hint_of(PREIMAGE), Dialect.E2E),
        (hint_of(NEXT), Dialect.NONE),
        (suite_hint_of(PREIMAGE) + b"\x01", Dialect.SUITE_1),
        (suite_hint_of(PREIMAGE) + b"\x82", Dialect.SUITE_2),
        (suite_hint_of(NEXT) + b"\x01", Dialect.NONE),
        (suite_hint_of(PREIMAGE), None),
        (suite_hint_of(PREIMAGE) + b"\0", None),
        (suite_hint_of(PREIMAGE) + b"\x83", Dialect.SUITE_3),
        (suite_hint_of(PREIMAGE) + b"\x04", Dialect.SUITE_4),
        (suite_hint_of(PREIMAGE) + b"\x85", None),
    ],
)
def test_first_bytes_tell_the_dialect(data, dialect):
    """The hint tells the envelope, the byte behind it the suite; the handshake's bit does not matter."""
    assert dialect_of(PREIMAGE, data) is dialect


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


NONSENSE = [b"", b"\x01", b"\x02" + bytes(35), b"nonsense", b"[]", bytes(200)]


@pytest.mark.parametrize("dialect", [*SEALED, *PAIRED])
@pytest.mark.parametrize("data", NONSENSE)
def test_nonsense_does_not_open(dialect, data):
    """What was not sealed for us is None, whatever it is, from a peer and with an invite."""
    assert read_request(dialect, ALICES, BOB.public, PREIMAGE, data, root=ROOT) is None
    assert read_request(dialect, ALICES, None, PREIMAGE, data, secret=SECRET) is None


@pytest.mark.parametrize("data", NONSENSE)
def test_plain_nonsense_is_malformed(data):
    """What is plaintext can always be read, and makes no sense."""
    with pytest.raises(MalformedPayloadError):
        read_request(Dialect.NONE, ALICES, BOB.public, PREIMAGE, data)


@pytest.mark.parametrize("dialect", [Dialect.E2E, *SUITES, *PAIRED])
def test_sealed_nonsense_is_malformed(dialect, monkeypatch):
    """What its peer has sealed, and is no request, is told from what somebody else has made up."""
    monkeypatch.setattr(dialect_module, "encode_payload", lambda _: b"nonsense")
    data = write_request(dialect, BOBS, ALICE.public, PREIMAGE, COMMAND, RNG, root=ROOT)

    with pytest.raises(MalformedPayloadError):
        read_request(dialect, ALICES, BOB.public, PREIMAGE, data, root=ROOT)


@pytest.mark.parametrize("dialect", PAIRED)
def test_paired_request(dialect):
    """Only who has the root of the two, or the secret of the invite, can write or read a request."""
    data = write_request(dialect, BOBS, ALICE.public, PREIMAGE, COMMAND, RNG, root=ROOT)
    init = write_request(dialect, BOBS, ALICE.public, PREIMAGE, INIT, RNG, secret=SECRET)

    assert dialect_of(PREIMAGE, data) is dialect_of(PREIMAGE, init) is dialect
    assert read_request(dialect, ALICES, BOB.public, PREIMAGE, data, root=ROOT) == COMMAND
    assert read_request(dialect, ALICES, None, PREIMAGE, init, secret=SECRET) == INIT
    for wrong in ({}, {"root": bytes(32)}, {"secret": SECRET}):
        assert read_request(dialect, ALICES, BOB.public, PREIMAGE, data, **wrong) is None
    for wrong in ({}, {"secret": bytes(32)}, {"root": ROOT}):
        assert read_request(dialect, ALICES, None, PREIMAGE, init, **wrong) is None
    assert read_request(dialect, ALICES, BOB.public, PREIMAGE, init, root=ROOT) is None
    assert read_request(dialect, ALICES, None, PREIMAGE, data, secret=SECRET) is None


@pytest.mark.parametrize("dialect", PAIRED)
def test_paired_answer_belongs_to_one_request(dialect):
    """The answer to one request is none to another with the same preimage, and none without the root."""
    first, second = (write_request(dialect, BOBS, ALICE.public, PREIMAGE, COMMAND, RNG, root=ROOT) for _ in range(2))
    answer = MessageResponse(0, NEXT, b"done")
    data = write_answer(dialect, ALICES, BOB.public, PREIMAGE, answer, RNG, root=ROOT, request=first)

    assert read_answer(dialect, BOBS, ALICE.public, PREIMAGE, data, root=ROOT, request=first) == answer
    for wrong in ({"root": ROOT, "request": second}, {"root": ROOT}, {"request": first}, {"root": bytes(32)}):
        with pytest.raises(AnswerError, match="identity and request"):
            read_answer(dialect, BOBS, ALICE.public, PREIMAGE, data, **wrong)


def test_dialects_have_an_order():
    """None is below bhumi-v1, that below the suites, and those below the paired ones, which alone are not legacy."""
    order = sorted(Dialect, key=lambda dialect: dialect.strength)

    assert [each.value for each in order] == ["none", "bhumi-v1", "suite-1", "suite-2", "suite-3", "suite-4"]
    assert (Dialect.SUITE_1.strength, Dialect.SUITE_3.strength) == (Dialect.SUITE_2.strength, Dialect.SUITE_4.strength)
    assert [each for each in Dialect if not each.is_legacy] == PAIRED


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
    asked = {
        "root": ROOT,
        "request": write_request(Dialect.SUITE_3, BOBS, ALICE.public, PREIMAGE, COMMAND, RNG, root=ROOT),
    }
    data = write_answer(dialect, ALICES, BOB.public, PREIMAGE, answer, RNG, **asked)

    assert read_answer(dialect, BOBS, ALICE.public, PREIMAGE, data, **asked) == answer


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


@pytest.mark.parametrize(
    ("dialect", "says"),
    [(Dialect.E2E, "is a request"), (Dialect.SUITE_1, "not sealed for"), (Dialect.SUITE_2, "not sealed for")],
)
def test_a_request_is_no_answer(dialect, says):
    """A request that comes back as an answer is refused; a suite's key already belongs to one direction."""
    data = write_request(dialect, ALICES, BOB.public, PREIMAGE, COMMAND, RNG)
    reflected = write_request(dialect, BOBS, ALICE.public, PREIMAGE, COMMAND, RNG)

    with pytest.raises(AnswerError, match=says):
        read_answer(dialect, BOBS, ALICE.public, PREIMAGE, data)
    with pytest.raises(AnswerError, match="not sealed for"):
        read_answer(dialect, BOBS, ALICE.public, PREIMAGE, reflected)


@pytest.mark.parametrize("dialect", SEALED)
def test_weak_recipient(dialect):
    """A key that cannot be sealed to is refused on both ways."""
    with pytest.raises(WeakKeyError):
        write_answer(dialect, BOBS, bytes(32), PREIMAGE, MessageResponse(0, NEXT), RNG)
    for request in (COMMAND, INIT):
        with pytest.raises(WeakKeyError):
            write_request(dialect, BOBS, bytes(32), PREIMAGE, request, RNG)


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
        ("\ud800", b'{"ok":true,"data":"?"}'),
        ({"t": 21.5}, b'{"ok":true,"data":{"t":21.5}}'),
        ([1, None, True], b'{"ok":true,"data":[1,null,true]}'),
        (None, b'{"ok":true,"data":null}'),
        (7, b'{"ok":true,"data":7}'),
    ],
)
def test_command_content(given, content):
    """A handler's JSON goes in as JSON, other text as a string, and all that JSON can say as it is."""
    assert command_content(given) == content


@pytest.mark.parametrize("given", [object(), {1, 2}, float("nan"), {"a": b"bytes"}])
def test_what_json_cannot_say_is_no_command_content(given):
    """What has no words in JSON is named by its type."""
    with pytest.raises(TypeError, match=f"it returned {type(given).__name__}, which is neither text nor JSON"):
        command_content(given)


def test_command_result():
    """A command's data is returned; its error, and nonsense, are raised."""
    assert command_result(b'{"ok":true,"data":[1]}') == [1]
    with pytest.raises(AnswerError, match="no bulb"):
        command_result(b'{"ok":false,"error":"no bulb"}')
    with pytest.raises(AnswerError, match="no sense"):
        command_result(b"nonsense")


@pytest.mark.parametrize(
    ("dialect", "says"),
    [(Dialect.E2E, "another request"), (Dialect.SUITE_1, "identity and request"), (Dialect.SUITE_2, "and request")],
)
def test_answer_to_another_request_is_refused(dialect, says):
    """An answer that carries another request's hint is none, and neither is one whose hint was exchanged."""
    data = write_answer(dialect, ALICES, BOB.public, NEXT, MessageResponse(0, PREIMAGE), RNG)
    renamed = suite_hint_of(PREIMAGE) + data[8:]

    with pytest.raises(AnswerError, match=says):
        read_answer(dialect, BOBS, ALICE.public, PREIMAGE, data)
    with pytest.raises(AnswerError):
        read_answer(dialect, BOBS, ALICE.public, PREIMAGE, renamed)


@pytest.mark.parametrize("dialect", SEALED)
@pytest.mark.parametrize("spoken", SEALED)
def test_answer_is_in_the_dialect_of_its_request(dialect, spoken):
    """An answer in another dialect is refused by name, so nobody can weaken what two have begun."""
    answer = MessageResponse(0, NEXT)
    data = write_answer(spoken, ALICES, BOB.public, PREIMAGE, answer, RNG)

    if dialect is spoken:
        assert read_answer(dialect, BOBS, ALICE.public, PREIMAGE, data) == answer
    else:
        with pytest.raises(AnswerError, match=f"in {spoken.value}, and the request was in {dialect.value}"):
            read_answer(dialect, BOBS, ALICE.public, PREIMAGE, data)


@pytest.mark.parametrize("dialect", SEALED)
def test_answer_in_an_unknown_suite(dialect):
    """A suite that is not known here is refused by its number."""
    with pytest.raises(AnswerError, match="suite 9, which is unknown here"):
        read_answer(dialect, BOBS, ALICE.public, PREIMAGE, suite_hint_of(PREIMAGE) + b"\x09" + bytes(60))
