"""Laws of protocols.bhumi.wire: cutting a stream into frames."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocols.bhumi.build import VECTORS, raw
from waystation.protocols.bhumi import wire
from waystation.protocols.bhumi.refusals import MalformedError
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


MAX_PAYLOAD = 1_024
RELAY_LIMITS = wire.relay_frame_limits(MAX_PAYLOAD)


# Streams


def dumb_frames(stream):
    """Cut a stream the plainest way; the reason stands last when it ends in a refusal."""
    found = []
    while len(stream) >= 6:
        kind, size = int.from_bytes(stream[:2], "big"), int.from_bytes(stream[2:6], "big")
        if kind not in RELAY_LIMITS and kind < 0x40:
            return [*found, "refused"]
        if size > RELAY_LIMITS.get(kind, 65_536):
            return [*found, "refused"]
        if len(stream) < 6 + size:
            break
        found.append((kind, stream[6 : 6 + size]))
        stream = stream[6 + size :]
    return found


def buffered_frames(chunks, limits=RELAY_LIMITS):
    """Cut a stream with a FrameBuffer."""
    buffer, found = FrameBuffer(limits), []
    try:
        for chunk in chunks:
            buffer.feed(chunk)
            while (frame := buffer.next_frame()) is not None:
                found.append(frame)
    except MalformedError:
        found.append("refused")
    return found


def cut(stream, sizes):
    """Yield ``stream`` in pieces of the given sizes, the rest last."""
    for size in sizes:
        yield stream[:size]
        stream = stream[size:]
    yield stream


_types = st.sampled_from([3, 5, 6, 8, 0x40, 0x41, 0x4C, 4, 9])
_frames = st.builds(raw, _types, st.binary(max_size=40))


@given(st.lists(_frames | st.just(raw(6)), max_size=8).map(b"".join), st.lists(st.integers(0, 30), max_size=40))
@settings(max_examples=100)
def test_any_chunking_cuts_the_same_frames(stream, sizes):
    """A FrameBuffer finds what a loop over the whole stream finds, however the stream arrives."""
    assert buffered_frames(cut(stream, sizes)) == dumb_frames(stream)


@given(st.binary(max_size=60), st.lists(st.integers(0, 9), max_size=20))
def test_any_bytes_are_frames_or_a_refusal(stream, sizes):
    """Noise never leads a FrameBuffer anywhere else."""
    assert buffered_frames(cut(stream, sizes)) == dumb_frames(stream)


@given(st.lists(st.integers(0, 90), max_size=20))
def test_waiting_bytes_count_what_no_frame_has_taken(sizes):
    """Between inputs the buffer holds exactly the beginning of the next frame."""
    stream = raw(3, b"a" * 70) + raw(6) + raw(5, b"b" * 20)
    buffer, fed, taken = FrameBuffer(RELAY_LIMITS), 0, 0
    for chunk in cut(stream, sizes):
        buffer.feed(chunk)
        fed += len(chunk)
        while (frame := buffer.next_frame()) is not None:
            taken += 6 + len(frame[1])
        assert buffer.waiting == fed - taken


def test_frames_not_taken_stay_while_more_is_fed():
    """A connection that is held loses nothing, and its order stands."""
    buffer = FrameBuffer(RELAY_LIMITS)
    buffer.feed(raw(5, b"one") + raw(5, b"two") + raw(5, b"three")[:4])
    first = buffer.next_frame()
    buffer.feed(raw(5, b"three")[4:] + raw(6))
    rest = [buffer.next_frame() for _ in range(4)]

    assert [first, *rest] == [(5, b"one"), (5, b"two"), (5, b"three"), (6, b""), None]


class CountingArray(bytearray):
    """A bytearray that counts the bytes appended to it and copied out of it."""

    copied = 0

    def __iadd__(self, other):
        CountingArray.copied += len(other)
        return super().__iadd__(other)

    def __bytes__(self):
        CountingArray.copied += len(self)
        return bytes(memoryview(self))


def test_a_big_frame_byte_by_byte_costs_linear_copies():
    """64 KiB in single bytes are copied twice at most, where a naive buffer copies gigabytes."""
    buffer = FrameBuffer(wire.relay_frame_limits(65_536))
    buffer._partial = CountingArray()
    CountingArray.copied = 0
    frame = raw(3, random.Random(7).randbytes(65_536))
    for at in range(len(frame)):
        buffer.feed(frame[at : at + 1])
        found = buffer.next_frame()

    assert found == (3, frame[6:])
    # Once in, once out, and the header's first sight of itself.
    assert len(frame) <= CountingArray.copied <= 2 * len(frame) + 4 * 6


def test_memory_follows_the_bytes_and_not_the_declared_length():
    """A header that promises a megabyte reserves nothing (BHUMI-A10)."""
    buffer = FrameBuffer(wire.relay_frame_limits(65_536))
    buffer.feed(raw(2, b"abc", 1_000_000))

    assert buffer.next_frame() is None
    assert buffer.waiting == 9
    assert buffer._partial.__sizeof__() < 200
