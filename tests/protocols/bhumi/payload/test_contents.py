import json
import random
from pathlib import Path

import pytest

from waystation.core.ids import decode_id52
from waystation.protocols.bhumi.payload.contents import (
    NO_PREIMAGE,
    URL_BYTES_MAX,
    Command,
    CommandAnswer,
    ContentType,
    DeviceMessage,
    HandshakeComplete,
    HandshakeInit,
    MalformedPayloadError,
    MessageResponse,
    ResponseStatus,
    decode_command,
    decode_command_answer,
    decode_payload,
    encode_command,
    encode_command_answer,
    encode_payload,
    split_command_answer,
)

DOCUMENT = json.loads(Path("tests/vectors/bhumi.json").read_text())
VECTORS = {entry["name"]: bytes.fromhex(entry["hex"]) for entry in DOCUMENT["deterministic"]}
URL = "relay.example:443"
PAYLOADS = {
    "dev HANDSHAKE_INIT": HandshakeInit(decode_id52(DOCUMENT["facts"]["id52 B"]), bytes([0x11]) * 32, URL),
    "dev HANDSHAKE_COMPLETE ok": HandshakeComplete(ResponseStatus.OK, bytes([0x12]) * 32, URL),
    "dev HANDSHAKE_COMPLETE rejected": HandshakeComplete(ResponseStatus.REFUSED),
    "dev MESSAGE": DeviceMessage(ContentType.TEXT, b"hi", URL),
    "dev MESSAGE_RESPONSE": MessageResponse(0, bytes([0x13]) * 32, b"ok", URL),
}
PREIMAGE = bytes(range(200, 232))


@pytest.mark.parametrize("name", PAYLOADS)
def test_vector(name):
    """Each structure is byte for byte the vector's, in both directions."""
    assert encode_payload(PAYLOADS[name]) == VECTORS[name]
    assert decode_payload(VECTORS[name]) == PAYLOADS[name]


def test_every_vector_has_a_test():
    """No device vector is left out."""
    assert {name for name in VECTORS if name.startswith("dev ")} == set(PAYLOADS)


@pytest.mark.parametrize("name", PAYLOADS)
def test_cut_anywhere_is_malformed(name):
    """A structure cut at any byte is malformed."""
    for length in range(len(VECTORS[name])):
        with pytest.raises(MalformedPayloadError):
            decode_payload(VECTORS[name][:length])


@pytest.mark.parametrize("name", PAYLOADS)
def test_bytes_behind_are_malformed(name):
    """A byte behind the end is malformed."""
    with pytest.raises(MalformedPayloadError, match="behind the end"):
        decode_payload(VECTORS[name] + b"\0")


@pytest.mark.parametrize(("name", "at", "width"), [
    ("dev HANDSHAKE_INIT", 65, 2),
    ("dev HANDSHAKE_COMPLETE ok", 34, 2),
    ("dev MESSAGE", 2, 2),
    ("dev MESSAGE", 21, 4),
    ("dev MESSAGE_RESPONSE", 34, 2),
    ("dev MESSAGE_RESPONSE", 53, 4),
])  # fmt: skip
@pytest.mark.parametrize("delta", [-1, 1])
def test_lying_length_is_malformed(name, at, width, delta):
    """A length field that says one more or one less is malformed."""
    data = VECTORS[name]
    said = int.from_bytes(data[at : at + width], "big")
    lie = data[:at] + (said + delta).to_bytes(width, "big") + data[at + width :]

    with pytest.raises(MalformedPayloadError):
        decode_payload(lie)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x03" + bytes(40),
        b"\xff",
        bytes([0x02, 2]) + bytes(34),
        bytes([0x10, 3]) + bytes(6),
        bytes([0x10, 0, 0, 1, 0xFF]) + bytes(4),
        bytes([0x10, 0, 0, 0, 0, 0, 0, 1, 0xFF]),
        bytes([0x10, 2, 0, 0, 0, 0, 0, 1, 0xFF]),
    ],
    ids=["empty", "type 3", "type 255", "status 2", "content type 3", "url", "text", "command"],
)
def test_nonsense_is_malformed(data):
    """Unknown types and members, and text that is no UTF-8, are malformed."""
    with pytest.raises(MalformedPayloadError):
        decode_payload(data)


def test_binary_content_may_be_anything():
    """Binary content is not checked for UTF-8."""
    message = DeviceMessage(ContentType.BINARY, b"\xff\0")

    assert decode_payload(encode_payload(message)) == message


def test_long_url_is_malformed():
    """A URL over the limit is refused although its bytes are there; one at the limit is taken."""
    at_limit = DeviceMessage(ContentType.TEXT, b"", "u" * URL_BYTES_MAX)
    over = bytes([0x10, 0]) + (URL_BYTES_MAX + 1).to_bytes(2, "big") + b"u" * (URL_BYTES_MAX + 1) + bytes(4)

    assert decode_payload(encode_payload(at_limit)) == at_limit
    with pytest.raises(MalformedPayloadError, match="URL"):
        decode_payload(over)


def test_garbage_raises_nothing_else():
    """Any bytes are a payload or malformed."""
    rng = random.Random(3)
    for _ in range(2_000):
        data = bytearray(rng.choice(list(VECTORS.values())))
        data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            payload = decode_payload(bytes(data))
        except MalformedPayloadError:
            continue
        assert encode_payload(payload) == bytes(data)


def test_command_is_compact_json():
    """A command is what the original node writes: compact JSON, cmd before args."""
    data = encode_command(Command("led", {"on": True, "name": "grün"}))

    assert data == '{"cmd":"led","args":{"on":true,"name":"grün"}}'.encode()
    assert decode_command(data) == Command("led", {"on": True, "name": "grün"})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"led",
        b"[]",
        b"{}",
        b'{"cmd":1}',
        b'{"cmd":"x","args":NaN}',
        b'{"cmd":"\xff"}',
        b"[" * 100_000,
        b"9" * 5_000,
    ],
)
def test_other_json_is_no_command(data):
    """Whatever is not an object with a text under "cmd" is malformed, however deep or long it is."""
    with pytest.raises(MalformedPayloadError):
        decode_command(data)


@pytest.mark.parametrize(
    ("answer", "data"),
    [
        (CommandAnswer(ok=True, data={"t": 21.5}), b'{"ok":true,"data":{"t":21.5}}'),
        (CommandAnswer(ok=True), b'{"ok":true,"data":null}'),
        (CommandAnswer(ok=False, error="no"), b'{"ok":false,"error":"no"}'),
    ],
)
def test_command_answer(answer, data):
    """An answer carries data when ok and an error otherwise."""
    assert encode_command_answer(answer) == data
    assert decode_command_answer(data) == answer


@pytest.mark.parametrize("data", [b"", b"1", b'{"ok":1}', b'{"data":1}'])
def test_other_json_is_no_answer(data):
    """Whatever is not an object with true or false under "ok" is malformed."""
    with pytest.raises(MalformedPayloadError):
        decode_command_answer(data)


@pytest.mark.parametrize("preimage", [PREIMAGE, b" " * 31 + b"x", b'{"ok":true}'.rjust(32), b"}" * 32])
def test_preimage_is_split_off(preimage):
    """The last 32 bytes are the preimage when the whole is no JSON, whatever they look like."""
    answer = b'{"ok":true,"data":1}'

    assert split_command_answer(answer + preimage) == (answer, preimage)


def test_whole_json_has_no_preimage():
    """An answer that is JSON as a whole gives no preimage, even when it is longer than one."""
    answer = b'{"ok":false,"error":"unauthorised, and this is longer than 32 bytes"}'

    assert split_command_answer(answer) == (answer, None)


@pytest.mark.parametrize("data", [b"", PREIMAGE, b'{"ok":true}' + PREIMAGE[:31], b"nonsense" + PREIMAGE])
def test_neither_reading_is_malformed(data):
    """Bytes that are an answer in neither reading are malformed."""
    with pytest.raises(MalformedPayloadError):
        split_command_answer(data)


def test_secrets_are_not_shown():
    """Preimages do not appear in what logs and tracebacks print."""
    shown = repr(
        [
            HandshakeInit(bytes(32), PREIMAGE),
            MessageResponse(0, PREIMAGE),
            HandshakeComplete(ResponseStatus.OK, PREIMAGE),
        ]
    )

    assert repr(PREIMAGE) not in shown
    assert not any(NO_PREIMAGE)


@pytest.mark.parametrize(
    "text", [b'{"cmd":"a","args":1e999}', b'{"cmd":"a","args":"\\ud800"}', b'{"cmd":"a","args":NaN}']
)
def test_command_that_cannot_be_said_again_is_refused(text):
    """Infinity and half a surrogate pair are in no JSON that we could write."""
    with pytest.raises(MalformedPayloadError):
        decode_command(text)
