"""Laws of protocols.bhumi.wire."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocols.bhumi.build import ALICE, VECTORS, commit, preimage, raw, vector
from waystation.crypto.signing import verify
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.messages import Feature, FrameType, RecentResponse
from waystation.protocols.bhumi.refusals import MalformedError, Refusal
from waystation.protocols.bhumi.wire import FrameBuffer

MAX_PAYLOAD = 1_024
RELAY_LIMITS = wire.relay_frame_limits(MAX_PAYLOAD)
CLIENT_LIMITS = wire.client_frame_limits(MAX_PAYLOAD)
FRAMES = [
    (entry["name"], bytes.fromhex(entry["hex"]))
    for entry in VECTORS["deterministic"] + VECTORS["spec_letter_only"]
    if not entry["name"].startswith("dev ")
]
NAMES = [name for name, _ in FRAMES]


def decode(name, frame):
    """Decode one whole frame the way its name says."""
    payload = frame[wire.FRAME_HEADER_BYTES :]
    kind = FrameType(int.from_bytes(frame[:2], "big"))
    if kind == FrameType.DELIVER:
        return wire.decode_deliver(payload, with_preimage="upstream" in name)
    if kind == FrameType.KEEPALIVE:
        return messages.Keepalive()
    decoders = {
        FrameType.HELLO: wire.decode_hello,
        FrameType.I_AM: wire.decode_i_am,
        FrameType.SEND: wire.decode_send,
        FrameType.ACK: wire.decode_ack,
        FrameType.SEND_RESULT: wire.decode_send_result,
        FrameType.UPDATE_COMMITS: wire.decode_update_commits,
        FrameType.OPTIONS: wire.decode_options,
    }
    return decoders[kind](payload)


def limits_for(frame):
    """Return the limits of the side that takes this frame."""
    return RELAY_LIMITS if int.from_bytes(frame[:2], "big") in RELAY_LIMITS else CLIENT_LIMITS


def refusal_of(decoder, payload, **options):
    """Return why a decoder refuses ``payload``."""
    with pytest.raises(MalformedError) as caught:
        decoder(payload, **options)
    return caught.value.refusal


# The vectors


@pytest.mark.parametrize(("name", "frame"), FRAMES, ids=NAMES)
def test_vector_decodes_and_encodes_to_itself(name, frame):
    """Each frame of the upstream crate survives a round trip byte for byte."""
    assert wire.encode(decode(name, frame)) == frame


@pytest.mark.parametrize(("name", "frame"), FRAMES, ids=NAMES)
def test_vector_arrives_byte_by_byte(name, frame):
    """A frame is whole with its last byte and not one earlier."""
    buffer = FrameBuffer(limits_for(frame))
    for byte in frame[:-1]:
        buffer.feed(bytes([byte]))
        assert buffer.next_frame() is None
    buffer.feed(frame[-1:])

    assert buffer.next_frame() == (int.from_bytes(frame[:2], "big"), frame[6:])
    assert buffer.waiting == 0


@pytest.mark.parametrize(("name", "frame"), FRAMES, ids=NAMES)
def test_vector_cut_short_is_never_accepted(name, frame):
    """A payload that ends early is refused at every length, and by nothing but MalformedError."""
    if name == "KEEPALIVE":
        return
    for size in range(len(frame) - wire.FRAME_HEADER_BYTES):
        with pytest.raises(MalformedError):
            decode(name, frame[: wire.FRAME_HEADER_BYTES + size])


@pytest.mark.parametrize(("name", "frame"), FRAMES, ids=NAMES)
def test_vector_with_trailing_bytes_is_refused(name, frame):
    """Nothing may follow the structure inside a frame."""
    if name == "KEEPALIVE":
        return
    for extra in (b"\x00", b"\xff" * 36):
        with pytest.raises(MalformedError) as caught:
            decode(name, frame + extra)
        assert caught.value.refusal in {Refusal.TRAILING_BYTES, Refusal.INNER_LENGTH}


def test_vector_i_am_holds_what_its_name_says():
    """Fields sit at the offsets of the digest, and the signature is over nonce and identity."""
    message = wire.decode_i_am(vector("I_AM 2 commits 1 response")[6:])

    assert message.identity.hex().startswith("bc7cbcb5")
    assert message.commits == (
        bytes.fromhex("baa501b37267c06d8d20f316622f90a3e343e9e730771f2ce2e314b794e31853"),
        bytes.fromhex("02d449a31fbb267c8f352e9968a79e3e5fc95c1bbeaa502fd6454ebde5a4bedc"),
    )
    assert message.responses == (RecentResponse(b"\x13" * 32, b"carried"),)
    assert verify(message.identity, wire.signed_bytes(0x01020304, message.identity), message.signature)


def test_vector_deliver_layouts_differ_by_the_preimage_alone():
    """BHUMI-2: upstream puts 32 bytes between number and length."""
    seed = wire.decode_deliver(
        vector("DELIVER seed layout (no preimage), msg_id 7, 'request'")[6:], with_preimage=False
    )
    upstream = wire.decode_deliver(vector("DELIVER upstream layout")[6:], with_preimage=True)

    assert (seed.message_id, seed.payload, seed.preimage) == (7, b"request", None)
    assert (upstream.message_id, upstream.payload, upstream.preimage) == (7, b"request", b"\x10" * 32)


def test_vector_hello_fields():
    """Version, nonce and limit stand in this order."""
    assert wire.decode_hello(vector("HELLO")[6:]) == messages.Hello(0x01020304, 65_536, 1)


# Lengths and counts that lie


LENGTHS = [
    ("SEND", 64, 4),
    ("ACK", 4, 4),
    ("SEND_RESULT ok", 1, 4),
    ("DELIVER upstream layout", 36, 4),
    ("DELIVER seed layout (no preimage), msg_id 7, 'request'", 4, 4),
    ("I_AM 2 commits 1 response", 96, 2),
    ("I_AM 2 commits 1 response", 98 + 64, 2),
    ("I_AM 2 commits 1 response", 98 + 64 + 2 + 32, 4),
    ("I_AM 0 0", 96, 2),
    ("I_AM 0 0", 98, 2),
    ("UPDATE_COMMITS", 0, 2),
]


@pytest.mark.parametrize(("name", "offset", "size"), LENGTHS)
def test_inner_length_that_lies_is_refused(name, offset, size):
    """Each inner length and count must agree with the frame: 0, one less, one more, and the largest are refused."""
    frame = vector(name)
    at = wire.FRAME_HEADER_BYTES + offset
    honest = int.from_bytes(frame[at : at + size], "big")
    for lie in {0, honest - 1, honest + 1, 256**size - 1} - {honest, -1}:
        forged = frame[:at] + lie.to_bytes(size, "big") + frame[at + size :]
        with pytest.raises(MalformedError) as caught:
            decode(name, forged)
        assert caught.value.refusal in {
            Refusal.INNER_LENGTH,
            Refusal.TRUNCATED,
            Refusal.TRAILING_BYTES,
            Refusal.TOO_MANY_COMMITS,
        }


@pytest.mark.parametrize("decoder", [wire.decode_i_am, wire.decode_update_commits])
def test_more_commits_than_allowed_are_refused_by_their_count(decoder):
    """A count of 4 097 closes before a single commit is looked at (BHUMI-C2 and BHUMI-C4)."""
    head = bytes(96) if decoder is wire.decode_i_am else b""

    assert refusal_of(decoder, head + (4_097).to_bytes(2, "big")) is Refusal.TOO_MANY_COMMITS
    assert refusal_of(decoder, head + (4_096).to_bytes(2, "big")) is Refusal.TRUNCATED


def test_as_many_commits_as_allowed_are_taken():
    """The limit itself is inside, and fits the frame limit."""
    update = messages.UpdateCommits(tuple(commit(number) for number in range(4_096)))
    frame = wire.encode(update)

    assert len(frame) - 6 <= RELAY_LIMITS[FrameType.UPDATE_COMMITS]
    assert wire.decode_update_commits(frame[6:]) == update


def test_response_count_is_checked_before_anything_is_built():
    """65 535 promised responses without a byte behind them are refused at once."""
    assert refusal_of(wire.decode_i_am, bytes(98) + b"\xff\xff") is Refusal.TRUNCATED


@pytest.mark.parametrize("size", [0, 5, 7])
def test_options_have_exactly_six_bytes(size):
    """A fixed structure has one size."""
    assert refusal_of(wire.decode_options, bytes(size)) in {Refusal.TRUNCATED, Refusal.TRAILING_BYTES}


def test_options_keep_bits_without_a_meaning():
    """What a peer offers beyond our knowledge is for the relay to mask, not for the parser to refuse."""
    assert wire.decode_options(b"\x00\x02\xff\xff\xff\xff") == messages.Options(Feature(0xFFFFFFFF), 2)


# Limits of frames


def test_relay_frame_limits_are_those_of_the_digest():
    """Section 1 (payload + 68 and + 8) and BHUMI-C2 (I_AM) fix the largest frames."""
    assert wire.relay_frame_limits(65_536) == {
        2: 98 + 4_096 * 32 + 2 + 1_048_576 + 256 * 36,
        3: 65_536 + 68,
        5: 65_536 + 8,
        6: 0,
        8: 2 + 4_096 * 32,
        0x40: 6,
    }


@pytest.mark.parametrize("frame_type", sorted(RELAY_LIMITS))
def test_largest_length_passes_and_one_more_does_not(frame_type):
    """A header above its limit is refused before any byte of the body."""
    limit = RELAY_LIMITS[frame_type]
    at_limit, above = FrameBuffer(RELAY_LIMITS), FrameBuffer(RELAY_LIMITS)
    at_limit.feed(raw(frame_type, b"", limit))
    above.feed(raw(frame_type, b"", limit + 1))

    assert at_limit.next_frame() == ((frame_type, b"") if limit == 0 else None)
    assert refusal_of(lambda _: above.next_frame(), b"") is Refusal.OVERSIZE


@pytest.mark.parametrize("frame_type", [0x01, 0x04, 0x07])
def test_frame_of_the_other_direction_is_refused_by_its_header(frame_type):
    """A client may not say what only a relay says (BHUMI-24)."""
    buffer = FrameBuffer(RELAY_LIMITS)
    buffer.feed(raw(frame_type, b"", 5))

    assert refusal_of(lambda _: buffer.next_frame(), b"") is Refusal.WRONG_DIRECTION


@pytest.mark.parametrize("frame_type", [0x02, 0x03, 0x05, 0x08])
def test_client_refuses_what_only_clients_say(frame_type):
    """The rule holds in both directions."""
    buffer = FrameBuffer(CLIENT_LIMITS)
    buffer.feed(raw(frame_type, b"", 0))

    assert refusal_of(lambda _: buffer.next_frame(), b"") is Refusal.WRONG_DIRECTION


@pytest.mark.parametrize("frame_type", [0x00, 0x09, 0x0A, 0x3F])
@pytest.mark.parametrize("limits", [RELAY_LIMITS, CLIENT_LIMITS])
def test_unknown_core_type_is_refused_by_its_header(frame_type, limits):
    """Below 0x40 there is no room for the unknown (BHUMI-24)."""
    buffer = FrameBuffer(limits)
    buffer.feed(raw(frame_type))

    assert refusal_of(lambda _: buffer.next_frame(), b"") is Refusal.UNKNOWN_TYPE


@pytest.mark.parametrize("frame_type", [0x41, 0x44, 0x5F, 0x60, 0x100, 0xFFFF])
def test_unknown_extension_passes_up_to_its_limit(frame_type):
    """From 0x40 on the unknown is a frame like others, up to 64 KiB (BHUMI-C4)."""
    small, large = FrameBuffer(RELAY_LIMITS), FrameBuffer(RELAY_LIMITS)
    small.feed(raw(frame_type, b"x" * 65_536))
    large.feed(raw(frame_type, b"", 65_537))

    assert small.next_frame() == (frame_type, b"x" * 65_536)
    assert refusal_of(lambda _: large.next_frame(), b"") is Refusal.OVERSIZE


# Round trips

_keys = st.binary(min_size=32, max_size=32)
_payloads = st.binary(max_size=80)
_u32 = st.integers(0, 2**32 - 1)
_responses = st.builds(RecentResponse, _keys, _payloads)
_messages = st.one_of(
    st.builds(messages.Hello, _u32, _u32, st.integers(0, 255)),
    st.builds(
        messages.IAm,
        _keys,
        st.binary(min_size=64, max_size=64),
        st.lists(_keys, max_size=4).map(tuple),
        st.lists(_responses, max_size=4).map(tuple),
    ),
    st.builds(messages.Send, _keys, _keys, _payloads),
    st.builds(messages.Deliver, _u32, _payloads, st.none() | _keys),
    st.builds(messages.Ack, _u32, _payloads),
    st.builds(messages.Keepalive),
    st.builds(messages.SendResult, st.integers(0, 255), _payloads),
    st.builds(messages.UpdateCommits, st.lists(_keys, max_size=4).map(tuple)),
    st.builds(messages.Options, _u32.map(Feature), st.integers(0, 65_535)),
)


@given(_messages)
def test_any_message_survives_a_round_trip(message):
    """Whatever can be said is understood as it was meant, and the header tells its length."""
    frame = wire.encode(message)
    layout = "upstream" if getattr(message, "preimage", None) else "seed"

    assert int.from_bytes(frame[2:6], "big") == len(frame) - 6
    assert decode(layout, frame) == message


@given(st.sampled_from([name for name in NAMES if name != "KEEPALIVE"]), st.binary(max_size=200))
def test_any_payload_is_decoded_or_malformed(name, payload):
    """No bytes lead a decoder anywhere but to a message or to MalformedError."""
    frame = vector(name)[:6] + payload
    try:
        message = decode(name, frame)
    except MalformedError:
        return

    assert wire.encode(message)[6:] == payload


def test_signed_bytes_are_nonce_and_identity():
    """36 bytes: the nonce big-endian, then the key (BHUMI-4)."""
    assert wire.signed_bytes(0x0A0B0C0D, ALICE.public) == b"\x0a\x0b\x0c\x0d" + ALICE.public


def test_hot_path_encoders_equal_the_message_encoders():
    """The relay's shortcuts write the same bytes as the messages."""
    secret = preimage(1)

    assert wire.encode_deliver(9, b"x", None) == wire.encode(messages.Deliver(9, b"x"))
    assert wire.encode_deliver(9, b"x", secret) == wire.encode(messages.Deliver(9, b"x", secret))
    assert wire.encode_send_result(0, b"x") == wire.encode(messages.SendResult(0, b"x"))
