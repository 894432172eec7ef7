"""Creates almost valid fuzz inputs: valid frames that are reordered, truncated, spliced or changed in single fields."""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Final

INTERESTING: Final = (0, 1, 0x3F, 0x40, 0x7F, 0x80, 0xFE, 0xFF)


def frame(frame_type: int, payload: bytes) -> bytes:
    """Return a frame whose header tells the truth."""
    return frame_type.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload


def mutate_bytes(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    """Return ``data`` after one to four careless changes."""
    for _ in range(rng.randrange(1, 5)):
        data = rng.choice(_CHANGES)(rng, data, corpus)
    return data


def mutate_frames(rng: random.Random, frames: list[bytes], corpus: Sequence[bytes]) -> list[bytes]:
    """Return whole frames reordered, dropped, doubled, replaced or mutated inside; some inputs stay as they are."""
    frames = list(frames)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        at = rng.randrange(len(frames)) if frames else 0
        what = rng.randrange(7)
        if what == 0 or not frames:
            frames.insert(at, rng.choice(corpus))
        elif what == 1:
            del frames[at]
        elif what == 2:
            frames.insert(at, frames[at])
        elif what == 3:
            rng.shuffle(frames)
        elif what == 4:
            frames[at] = frame(rng.choice((*range(10), 0x3F, 0x40, 0x41, 0x4C, 0xFFFF)), frames[at][6:])
        elif what == 5:
            frames[at] = frame(int.from_bytes(frames[at][:2], "big"), mutate_bytes(rng, frames[at][6:], corpus))
        else:
            frames[at] = mutate_bytes(rng, frames[at], corpus)
    return frames


def cut(rng: random.Random, data: bytes) -> Iterator[bytes]:
    """Yield ``data`` in pieces: often whole, sometimes in few, sometimes byte by byte."""
    style = rng.randrange(4)
    if style == 0:
        yield data
    elif style == 1:
        yield from (data[at : at + 1] for at in range(len(data)))
    else:
        while data:
            size = rng.randrange(1, 40 if style == 2 else 400)
            yield data[:size]
            data = data[size:]


def flip_or_cut(rng: random.Random, data: bytes) -> bytes:
    """Return ``data`` with one bit changed, or without its end."""
    at = rng.randrange(len(data))
    return data[:at] if rng.random() < 0.2 else flip(rng, data, at)


def flip(rng: random.Random, data: bytes, at: int) -> bytes:
    """Return ``data`` with one bit of a byte changed."""
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _flip(rng: random.Random, data: bytes, _corpus: Sequence[bytes]) -> bytes:
    return flip(rng, data, rng.randrange(len(data))) if data else data


def _set(rng: random.Random, data: bytes, _corpus: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + bytes([rng.choice(INTERESTING)]) + data[at + 1 :]


def _lie(rng: random.Random, data: bytes, _corpus: Sequence[bytes]) -> bytes:
    """Change a number of two or four bytes by one, to zero, or to its largest."""
    size = rng.choice((2, 4))
    if len(data) < size:
        return data
    at = rng.randrange(len(data) - size + 1)
    value = int.from_bytes(data[at : at + size], "big")
    end = 1 << 8 * size
    lie = rng.choice((0, value - 1, value + 1, end - 1, 4_097, 65_537)) % end
    return data[:at] + lie.to_bytes(size, "big") + data[at + size :]


def _truncate(rng: random.Random, data: bytes, _corpus: Sequence[bytes]) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _insert(rng: random.Random, data: bytes, _corpus: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.randrange(1, 9)) + data[at:]


def _splice(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    other = rng.choice(corpus)
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


_CHANGES: Final[tuple[Callable[[random.Random, bytes, Sequence[bytes]], bytes], ...]] = (
    _flip,
    _set,
    _lie,
    _lie,
    _truncate,
    _insert,
    _splice,
)
