"""Laws of frames and payloads: what a relay or a peer may lie about, in both interpreters."""

import hashlib
import json
import random
import struct

import pytest

from tests.micropython.build import INTERPRETERS, on_board
from waystation.core.ids import PublicKey
from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.bhumi import extension_messages, extension_wire, messages, wire
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.payload.contents import (
    ContentType,
    DeviceMessage,
    HandshakeComplete,
    HandshakeInit,
    MessageResponse,
    ResponseStatus,
    encode_payload,
)

pytestmark = pytest.mark.parametrize("interpreter", INTERPRETERS)

ROOM = 100
HELLO = wire.encode(messages.Hello(7, 65_536))
DELIVER = wire.encode(messages.Deliver(5, b"payload", bytes(range(32))))
KEEPALIVE = wire.encode(messages.Keepalive())
OPTIONS = wire.encode(messages.Options(messages.Feature.DELIVER_WITH_PREIMAGE))
I_AM_OK = struct.pack(">HIHH", FrameType.I_AM_OK, 4, 16, 1)
UNKNOWN = struct.pack(">HI", 0x55, 3) + b"abc"
ALL = HELLO + OPTIONS + I_AM_OK + UNKNOWN + DELIVER + KEEPALIVE


def framed(kind, payload):
    return struct.pack(">HI", kind, len(payload)) + payload


def read(stream, chunk=10_000, room=ROOM):
    return ("remote", "read_frames", room, stream, chunk)


def test_any_chunking_gives_the_same_frames(interpreter, tmp_path):
    """Frames arrive whole whether bytes come one by one or all at once; an unknown extension is passed over."""
    expected = [
        [FrameType.HELLO, 9, HELLO[6:]],
        [FrameType.OPTIONS, 6, OPTIONS[6:]],
        [FrameType.I_AM_OK, 4, I_AM_OK[6:]],
        [FrameType.DELIVER, len(DELIVER) - 6, DELIVER[6:]],
        [FrameType.KEEPALIVE, 0, b""],
        None,
    ]

    assert (
        on_board(interpreter, tmp_path, [read(ALL, chunk) for chunk in (1, 2, 3, 5, 7, 64, 10_000)]) == [expected] * 7
    )


def test_truncation_at_every_byte(interpreter, tmp_path):
    """A stream that ends anywhere gives the frames that are whole and nothing else."""
    ends = [0]
    for each in (HELLO, OPTIONS, I_AM_OK, UNKNOWN, DELIVER, KEEPALIVE):
        ends.append(ends[-1] + len(each))

    found = on_board(interpreter, tmp_path, [read(ALL[:end]) for end in range(len(ALL))])

    for end, frames in enumerate(found):
        whole = [at for at in ends[1:] if at <= end and at != ends[4]]
        assert frames[-1] is None and len(frames) == len(whole) + 1


def test_lies_about_lengths(interpreter, tmp_path):
    """Every fixed size that is another one, a type out of order or unknown, and a length out of range are malformed."""
    lies = [framed(FrameType.HELLO, HELLO[6:] + b"x"), framed(FrameType.HELLO, HELLO[6:-1])]
    lies += [DELIVER, KEEPALIVE, b"HTTP/1.1 400 Bad Request\r\n"]
    lies += [HELLO + HELLO, HELLO + framed(FrameType.KEEPALIVE, b"x"), HELLO + framed(FrameType.OPTIONS, bytes(5))]
    lies += [
        HELLO + framed(FrameType.I_AM_OK, bytes(5)),
        HELLO + framed(0x3F, b""),
        HELLO + framed(FrameType.SEND, b""),
    ]
    lies += [HELLO + struct.pack(">HI", 0x55, 65_537), HELLO + struct.pack(">HI", FrameType.DELIVER, 1_048_617)]

    found = on_board(interpreter, tmp_path, [read(lie) for lie in lies])

    assert [frames[-1] for frames in found] == ["malformed"] * len(lies)


def test_large_delivery_keeps_its_beginning(interpreter, tmp_path):
    """Of a DELIVER that does not fit only the first 77 bytes come, and what is behind it is read as usual."""
    large = wire.encode(messages.Deliver(5, bytes(1_000), bytes(range(32))))

    found = on_board(interpreter, tmp_path, [read(HELLO + large + KEEPALIVE, chunk) for chunk in (1, 77, 10_000)])

    assert found == [[[FrameType.HELLO, 9, HELLO[6:]], [FrameType.DELIVER, 1_040, large[6:83]], [6, 0, b""], None]] * 3


def test_deliver(interpreter, tmp_path):
    """Both layouts are read; a length inside that lies, and a frame cut anywhere, is malformed."""
    with_preimage = DELIVER[6:]
    seed = struct.pack(">II", 5, 7) + b"payload"
    lies = [with_preimage[:36] + struct.pack(">I", size) + with_preimage[40:] for size in (0, 6, 8, 2**32 - 1)]
    cut = [with_preimage[:end] for end in range(len(with_preimage))]
    calls = [("frames", "deliver_of", with_preimage, len(with_preimage), True)]
    calls += [("frames", "deliver_of", seed, len(seed), False)]
    calls += [("frames", "deliver_of", with_preimage[:40], 1_000, True)]
    calls += [("frames", "deliver_of", each, len(each), True) for each in (*lies, *cut)]

    found = on_board(interpreter, tmp_path, calls)

    assert found[:2] == [[5, bytes(range(32)), b"payload"], [5, None, b"payload"]]
    assert found[2:] == ["MalformedError"] * (len(found) - 2)


def test_hello_options_and_ok(interpreter, tmp_path):
    """Another version and every other size are malformed."""
    hello, options, ok = HELLO[6:], OPTIONS[6:], I_AM_OK[6:]
    calls = [("frames", "hello_of", hello), ("frames", "options_of", options), ("frames", "i_am_ok_of", ok)]
    bad = [("frames", "hello_of", b"\x02" + hello[1:])]
    bad += [("frames", "hello_of", hello[:end]) for end in range(9)]
    bad += [("frames", "options_of", (options + b"x")[:end]) for end in (0, 5, 7)]
    bad += [("frames", "i_am_ok_of", (ok + b"x")[:end]) for end in (0, 3, 5)]

    found = on_board(interpreter, tmp_path, [*calls, *bad])

    assert found == [[struct.pack(">I", 7), 65_536], 1, [16, 1], *["MalformedError"] * len(bad)]


def test_what_a_device_sends(interpreter, tmp_path):
    """Each frame that leaves is, byte for byte, what the relay's own codec writes."""
    pair = KeyPair.from_seed(bytes([3]) * 32)
    preimage, preimages = bytes([9]) * 32, [bytes([each]) * 32 for each in range(70)]
    commits = [hashlib.sha256(each).digest() for each in preimages]
    signature = sign(pair, wire.signed_bytes(7, pair.public))
    carried = messages.RecentResponse(preimage, b"answer")
    calls = [
        ("frames", "i_am", pair.public, signature, len(preimages), preimages, [[preimage, b"answer"]]),
        ("frames", "ack", 77, b"opaque"),
        ("frames", "update_commits", commits),
        ("extensions", "revoke_commits", commits),
        ("frames", "send", pair.public, preimage, b"opaque"),
        ("frames", "options", 33),
        ("frames", "frame", 6),
        ("frames", "commit_of", preimage),
    ]

    assert on_board(interpreter, tmp_path, calls) == [
        wire.encode(messages.IAm(pair.public, signature, tuple(commits), (carried,))),
        wire.encode(messages.Ack(77, b"opaque")),
        wire.encode(messages.UpdateCommits(tuple(commits))),
        extension_wire.encode_extension(extension_messages.RevokeCommits(tuple(commits))),
        wire.encode(messages.Send(pair.public, preimage, b"opaque")),
        wire.encode(messages.Options(messages.Feature(33))),
        KEEPALIVE,
        hashlib.sha256(preimage).digest(),
    ]


def test_requests(interpreter, tmp_path):
    """Both requests are read; cut anywhere, with something behind, or with no text where it must be, they are None."""
    sender, back = bytes([1]) * 32, bytes([2]) * 32
    init = encode_payload(HandshakeInit(PublicKey(sender), back, "tcp://x:1"))
    message = encode_payload(DeviceMessage(ContentType.TEXT, "grüß".encode(), "tcp://x:1"))
    binary = encode_payload(DeviceMessage(ContentType.BINARY, b"\xff"))
    bad = [each[:end] for each in (init, message, binary) for end in range(len(each))]
    bad += [each + b"x" for each in (init, message, binary)]
    bad += [message[:-1] + b"\xff", b"\x10\x03" + message[2:], b"\x77" + message[1:], init[:-1] + b"\xff"]
    bad += [encode_payload(HandshakeComplete(ResponseStatus.OK, back, "x"))]

    found = on_board(
        interpreter, tmp_path, [("payloads", "request_of", each) for each in (init, message, binary, *bad)]
    )

    assert found[:3] == [["init", sender, back, "tcp://x:1"], ["message", 0, "grüß".encode()], ["message", 1, b"\xff"]]
    assert found[3:] == [None] * len(bad)


def test_answers(interpreter, tmp_path):
    """Answers are, byte for byte, what the codec of the SDK writes; commands are JSON that it reads."""
    preimage = bytes([2]) * 32
    calls = [
        ("payloads", "handshake_answer", preimage, "tls://x:1"),
        ("payloads", "handshake_answer", b"", "no room"),
        ("payloads", "response", False, preimage, "tls://x:1", b"content"),
        ("payloads", "response", True, preimage, "", b""),
        ("payloads", "command_of", b'{"cmd":"led","args":{"on":1}}'),
        ("payloads", "command_of", b'{"cmd":1}'),
        ("payloads", "command_of", b"[" * 2_000),
        ("payloads", "command_of", b"led"),
        ("payloads", "command_answer", "21"),
        ("payloads", "command_answer", "warm"),
        ("payloads", "command_error", "no"),
    ]

    found = on_board(interpreter, tmp_path, calls)

    assert found[:4] == [
        encode_payload(HandshakeComplete(ResponseStatus.OK, preimage, "tls://x:1")),
        encode_payload(HandshakeComplete(ResponseStatus.REFUSED, url="no room")),
        encode_payload(MessageResponse(0, preimage, b"content", "tls://x:1")),
        encode_payload(MessageResponse(1, preimage)),
    ]
    assert found[4] == ["led", {"on": 1}]
    assert set(found[5:8]) <= {"ValueError", "JSONDecodeError"}
    assert [json.loads(each) for each in found[8:]] == [
        {"ok": True, "data": 21},
        {"ok": True, "data": "warm"},
        {"ok": False, "error": "no"},
    ]


def test_what_a_device_asks(interpreter, tmp_path):
    """Its messages are what the SDK's codec writes; answers are read, and whatever is none is None."""
    preimage = bytes([2]) * 32
    answer = encode_payload(MessageResponse(1, preimage, b"content", "tls://x:1"))
    last = encode_payload(MessageResponse(0, bytes(32)))
    bad = [answer[:end] for end in range(len(answer))] + [answer + b"x", b"\x12" + answer[1:]]
    calls = [
        ("payloads", "message", 2, "tls://x:1", b"content"),
        ("payloads", "command_request", "led", [1]),
        ("payloads", "response_of", answer),
        ("payloads", "response_of", last),
        ("payloads", "answer_of", b'{"ok":true,"data":5}'),
        ("payloads", "error_of", b'{"ok":false,"error":"no"}'),
        ("payloads", "error_of", b"out of paper"),
        *[("payloads", "response_of", each) for each in bad],
    ]

    found = on_board(interpreter, tmp_path, calls)

    assert found[0] == encode_payload(DeviceMessage(ContentType.COMMAND, b"content", "tls://x:1"))
    assert json.loads(found[1]) == {"cmd": "led", "args": [1]}
    assert found[2:4] == [[1, preimage, "tls://x:1", b"content"], [0, b"", "", b""]]
    assert found[4:7] == [5, "no", "out of paper"]
    assert found[7:] == [None] * len(bad)


def test_results(interpreter, tmp_path):
    """A SEND_RESULT is read, of a large one the status; one that lies about its length, or is cut, is malformed."""
    result = wire.encode(messages.SendResult(messages.Status.OK, b"answer"))[6:]
    cut = [result[:end] for end in range(len(result))]
    calls = [("frames", "result_of", result, len(result)), ("frames", "result_of", result[:7], len(result))]

    found = on_board(interpreter, tmp_path, calls + [("frames", "result_of", each, len(each)) for each in cut])

    assert found[:2] == [[0, b"answer"], [0, None]]
    assert found[2:] == ["MalformedError"] * len(cut)


def test_chance_never_breaks_the_reader(interpreter, tmp_path):
    """Streams bent at random end malformed or go on; nothing else is ever raised, and nothing hangs."""
    rng = random.Random(7)
    streams = []
    for _ in range(300):
        stream = bytearray(ALL + DELIVER * rng.randrange(4))
        for _ in range(rng.randrange(1, 6)):
            stream[rng.randrange(len(stream))] = rng.randrange(256)
        streams.append(bytes(stream))

    found = on_board(interpreter, tmp_path, [read(stream, rng.randrange(1, 50)) for stream in streams])

    assert {type(each) for each in found} == {list}
    assert {frames[-1] for frames in found} == {"malformed", None}


def test_chance_never_breaks_what_peers_say(interpreter, tmp_path):
    """Plaintexts bent or cut at random are read or are None."""
    rng = random.Random(8)
    texts = []
    for _ in range(300):
        text = bytearray(encode_payload(DeviceMessage(ContentType(rng.randrange(3)), rng.randbytes(rng.randrange(40)))))
        text[rng.randrange(len(text))] = rng.randrange(256)
        texts.append(bytes(text[: rng.randrange(len(text) + 1)]))

    found = on_board(interpreter, tmp_path, [("payloads", "request_of", text) for text in texts])

    assert all(each is None or isinstance(each, list) for each in found)
