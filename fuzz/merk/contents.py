"""Fuzz target: MERK message contents and signed or encrypted frames, also as the reference relay alters them."""

import hashlib
import json
import random
from collections.abc import Callable
from typing import Final

from fuzz.mutate import mutate_bytes
from fuzz.target import expect
from waystation.crypto.signing import sign
from waystation.protocols.merk import wire
from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.messages import MessageType
from waystation.protocols.merk.payload import contents, sealing
from waystation.protocols.merk.payload.contents import Content, Extended, FilePart, Raw
from waystation.protocols.merk.payload.recovery import open_recovered
from waystation.protocols.merk.payload.sealing import Auth, Opened
from waystation.protocols.merk.refusals import MalformedError, Refusal

_ALICE, _BOB = (
    Keys.from_seeds(hashlib.sha256(b"fuzz signs %d" % number).digest(), hashlib.sha256(b"agrees %d" % number).digest())
    for number in range(2)
)
_TO_BOB: Final = _BOB.signing.public
_ID: Final = b"i" * 16
_CONTENTS: Final[tuple[Content, ...]] = (
    Raw(b"raw"),
    contents.Text("t\u00e9xt"),
    contents.Json('{"a":[1,null,"x"]}'),
    contents.File("name.bin", b"data"),
    Extended(1_700_000_000_000, _ID, contents.Text("x")),
    Extended(0, _ID, FilePart(_ID, b"d" * 32, 1, 3, 4_096, "n", b"part")),
)
_CORPUS: Final = tuple(contents.encode_content(content) for content in _CONTENTS)


def _encrypted(content: Content) -> bytes:
    return sealing.encrypted_frame(
        _ALICE.signing, _TO_BOB, _BOB.agreement_public, content, ephemeral_secret=b"e" * 32, nonce=b"n" * 12
    )


def _encrypted_by_original(content: Content) -> bytes:
    frame = _encrypted(content)
    return frame[:56] + sign(_ALICE.signing, frame[152:]) + frame[120:]


_FRAMES: Final = (
    sealing.data_frame(_ALICE.signing, _TO_BOB, b"data", header_signature=True),
    sealing.data_frame(_ALICE.signing, _TO_BOB, b"data", header_signature=False),
    *(sealing.signed_frame(_ALICE.signing, _TO_BOB, content) for content in _CONTENTS),
    *(sealing.signed_frame(_ALICE.signing, _TO_BOB, content, header_signature=False) for content in _CONTENTS[:3]),
    *map(_encrypted, _CONTENTS),
    *map(_encrypted_by_original, _CONTENTS[:3]),
)
_MANGLED: Final = tuple(
    wire.encode_frame(MessageType.DATA, frame[152:], sender=_ALICE.signing.public) for frame in _FRAMES
)
_SENT: Final = frozenset((frame[2], frame[152:]) for frame in _FRAMES)
"""What Alice has sent to Bob, by kind and payload after the target."""
_REFUSALS: Final = frozenset(
    {
        Refusal.SHORT,
        Refusal.BAD_MAGIC,
        Refusal.BAD_VERSION,
        Refusal.BAD_LENGTH,
        Refusal.UNKNOWN_TYPE,
        Refusal.NO_TARGET,
        Refusal.NOT_FOR_US,
        Refusal.BAD_SIGNATURE,
        Refusal.CANNOT_DECRYPT,
        Refusal.BAD_CONTENT,
    }
)


class MerkContentsTarget:
    """The first byte of an input chooses what the rest is: a content, a signed one, a frame, or a frame to salvage."""

    name = "merk_contents"

    def make(self, rng: random.Random) -> bytes:
        """Return a mutated content most of the time, else a mutated frame."""
        if rng.random() < 0.7:
            return bytes([rng.randrange(2)]) + mutate_bytes(rng, rng.choice(_CORPUS), _CORPUS)
        frame = rng.choice(_FRAMES + _MANGLED)
        if rng.random() < 0.8:
            at = rng.choice((24, 56, 120, 152, 200))
            frame = frame[:at] + mutate_bytes(rng, frame[at:], _FRAMES)
            length = max(len(frame) - 120, 0)
            frame = frame[:4] + length.to_bytes(4, "big") + frame[8:]
        return bytes([2 + rng.randrange(2)]) + frame

    def run(self, data: bytes) -> str:
        """Feed the one parser; a refusal must be one of those that are documented for it."""
        which = (data[0] if data else 0) % len(_RUNS)
        try:
            return f"{which}:{_RUNS[which](data[1:])}"
        except MalformedError as error:
            expect(error.refusal is Refusal.BAD_CONTENT if which < 2 else error.refusal in _REFUSALS, "another refusal")
            return f"{which}:{error.refusal.value}"


def _run_content(data: bytes) -> str:
    """A content has one spelling, and means the same signed, encrypted or bare."""
    content = contents.decode_content(data)
    expect(contents.encode_content(content) == data, "decoded, but not to what was sent")
    if isinstance(content, contents.Json):
        expect(content.value() == json.loads(content.text), "another value")
    return type(content).__name__


def _run_signed_content(data: bytes) -> str:
    """What is signed is either these bytes, raw, or a typed content with these bytes."""
    content = contents.decode_signed_content(data)
    if not isinstance(content, Raw):
        expect(contents.encode_signed_content(content) == data, "signed, but not what was sent")
    else:
        expect(content.data == data, "raw bytes that changed")
    if isinstance(content, Raw) and contents.is_signable(data):
        expect(data[:1] not in (b"\x01", b"\x02", b"\x03", b"\x10"), "signed bytes with two meanings")
    return type(content).__name__


def _run_frame(data: bytes) -> str:
    """Nothing but what Alice sent to Bob is ever reported as hers, and bound to him."""
    return _check(data, sealing.open_frame(data, _BOB))


def _run_salvage(data: bytes) -> str:
    """Whatever an original relay leaves, nothing of it is bound."""
    return _check(data, open_recovered(data, _BOB))


def _check(data: bytes, opened: Opened) -> str:
    if opened.auth is Auth.BOUND:
        expect(opened.sender == _ALICE.signing.public, "bound to a key that never sent")
        expect((data[2], data[152:]) in _SENT, "bound, but never sent")
        expect(data[120:152] == _TO_BOB, "bound to another key")
    if opened.auth in {Auth.LEGACY, Auth.AMBIGUOUS}:
        expect(opened.sender == _ALICE.signing.public, "proved by a key that never sent")
    expect(opened.frame_hash == hashlib.sha256(data).digest()[:16], "the name of another frame")
    expect(opened.fingerprint == (opened.sender, hashlib.sha256(data[120:]).digest()), "another fingerprint")
    return f"{opened.mode.value} {opened.auth.value}"


_RUNS: Final[tuple[Callable[[bytes], str], ...]] = (_run_content, _run_signed_content, _run_frame, _run_salvage)
