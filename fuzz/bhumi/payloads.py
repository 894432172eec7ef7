"""Fuzz targets: decoders of Bhumi payloads (contents, commands, envelopes, invites), sent by a permitted peer."""

import random
from collections.abc import Callable
from typing import Final

from fuzz.corpus import KEYS, PREIMAGES
from fuzz.mutate import mutate_bytes
from fuzz.target import expect
from waystation.core.errors import LocalError
from waystation.protocols.bhumi.payload import contents, envelope, invite
from waystation.protocols.bhumi.payload.contents import MalformedPayloadError

_URL: Final = "relay.example:443"
_PAYLOADS: Final = tuple(
    contents.encode_payload(payload)
    for payload in (
        contents.HandshakeInit(KEYS[0].public, PREIMAGES[0], _URL),
        contents.HandshakeComplete(contents.ResponseStatus(0), PREIMAGES[1], _URL),
        contents.DeviceMessage(contents.ContentType(0), "hé".encode(), _URL),
        contents.MessageResponse(0, PREIMAGES[2], b"ok", _URL),
    )
)
_COMMANDS: Final = (
    contents.encode_command(contents.Command("led", {"on": True, "n": [1, 2.5, None]})),
    contents.encode_command_answer(contents.CommandAnswer(ok=True, data={"a": "b"})),
    contents.encode_command_answer(contents.CommandAnswer(ok=False, error="no")) + PREIMAGES[3],
    b'{"ok":true,"data":' + b"[" * 40 + b"]" * 40 + b"}",
    b'{"cmd":"x","args":NaN}',
)
_CORPUS: Final = _PAYLOADS + _COMMANDS
_DECODERS: Final[tuple[Callable[[bytes], object], ...]] = (
    contents.decode_payload,
    contents.decode_command,
    contents.decode_command_answer,
    contents.split_command_answer,
)


class PayloadTarget:
    """The first byte chooses the decoder; the rest is what it gets."""

    name = "payloads"

    def make(self, rng: random.Random) -> bytes:
        """Return a payload, mostly for the right decoder, mostly mutated."""
        data = rng.choice(_CORPUS)
        if rng.random() < 0.9:
            data = mutate_bytes(rng, data, _CORPUS)
        return bytes([rng.randrange(256)]) + data

    def run(self, data: bytes) -> str:
        """Decode; what decodes as a payload must encode to the same bytes."""
        which, body = (data[0] if data else 0) % len(_DECODERS), data[1:]
        try:
            decoded = _DECODERS[which](body)
        except MalformedPayloadError:
            return f"malformed:{_DECODERS[which].__name__}"
        if which == 0:
            expect(contents.encode_payload(decoded) == body, "decoded, but not to what was sent")  # type: ignore[arg-type]
        return f"accepted:{_DECODERS[which].__name__}"


def _sealed() -> bytes:
    rng = random.Random(1)
    return envelope.seal(KEYS[0].public, PREIMAGES[0], b"plaintext", rng)


class EnvelopeTarget:
    """Whatever is opened is opened to the plaintext or to nothing."""

    name = "envelope"
    _good: Final = _sealed()

    def make(self, rng: random.Random) -> bytes:
        """Return an envelope, mostly mutated, and sometimes one with a weak key."""
        if rng.random() < 0.1:
            return self._good
        if rng.random() < 0.1:
            return self._good[:8] + bytes([rng.randrange(2)]) + bytes(31) + self._good[40:]
        return mutate_bytes(rng, self._good, (self._good, bytes(80)))

    def run(self, data: bytes) -> str:
        """Open; nothing but the sealed plaintext may come out, and the hint is the only part left unprotected."""
        opened = envelope.open_envelope(KEYS[0], data)
        if opened is None:
            return "closed"
        expect(opened == b"plaintext", "a forged envelope opened")
        expect(len(data) == len(self._good), "an envelope of another length opened")
        return "opened"


class InviteTarget:
    """A token that a user copied, perhaps not whole."""

    name = "invite"
    _good: Final = invite.encode_invite(invite.Invite(KEYS[0].public, PREIMAGES[0])).encode()

    def make(self, rng: random.Random) -> bytes:
        """Return a token, mostly mutated, mostly of the right length."""
        if rng.random() < 0.1:
            return self._good
        data = mutate_bytes(rng, self._good, (self._good, b"====", b"+/" * 43))
        return data[: len(self._good)].ljust(len(self._good), b"A") if rng.random() < 0.7 else data

    def run(self, data: bytes) -> str:
        """Decode; one invite has one token."""
        text = data.decode("latin-1")
        try:
            decoded = invite.decode_invite(text)
        except LocalError:
            return "refused"
        expect(invite.encode_invite(decoded) == text, "two tokens for one invite")
        return "accepted"
