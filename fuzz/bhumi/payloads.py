"""Fuzz targets: decoders of Bhumi payloads (contents, commands, envelopes, pairings, invites) of a permitted peer."""

import random
from collections.abc import Callable
from typing import Final

from fuzz.corpus import KEYS, PREIMAGES
from fuzz.mutate import mutate_bytes
from fuzz.target import expect
from waystation.core.errors import LocalError
from waystation.protocols.bhumi.payload import contents, envelope, invite, pairing
from waystation.protocols.bhumi.payload.contents import MalformedPayloadError
from waystation.protocols.bhumi.payload.suites import SharedSecrets

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


_OWN: Final = SharedSecrets(KEYS[0])
_SECRET: Final = bytes(range(32))
_INIT: Final = contents.HandshakeInit(KEYS[1].public, PREIMAGES[1], _URL)


class PairingTarget:
    """First requests with an invite, in suites 3 and 4: only who has its secret, and proves its identity, is paired."""

    name = "pairing"
    _good: Final = tuple(
        pairing.seal_pairing(
            suite, SharedSecrets(KEYS[1]), KEYS[0].public, _SECRET, PREIMAGES[0], _INIT, random.Random(suite)
        )
        for suite in pairing.PairedSuite
    )

    def make(self, rng: random.Random) -> bytes:
        """Return a first request, mostly mutated."""
        data = rng.choice(self._good)
        return data if rng.random() < 0.1 else mutate_bytes(rng, data, self._good)

    def run(self, data: bytes) -> str:
        """Open in both suites; nobody but the true sender is ever paired, and by no other bytes."""
        found = [pairing.open_pairing(suite, _OWN, _SECRET, PREIMAGES[0], data) for suite in pairing.PairedSuite]
        paired = [each for each in found if each is not None]
        expect(bool(paired) == (data in self._good), "other bytes pair, or the true ones do not")
        expect(all(each.init == _INIT for each in paired), "somebody else was paired")
        return "paired" if paired else "closed"


class InviteTarget:
    """A token that a user copied, perhaps not whole."""

    name = "invite"
    _good: Final = tuple(
        invite.encode_invite(each).encode()
        for each in (
            invite.Invite(KEYS[0].public, PREIMAGES[0]),
            invite.Invite(
                *(KEYS[0].public, PREIMAGES[0], _SECRET, pairing.PairedSuite.CHACHA, 1, bytes(32), (f"tls://{_URL}",))
            ),
        )
    )

    def make(self, rng: random.Random) -> bytes:
        """Return a token of either version, mostly mutated, mostly of the right length."""
        good = rng.choice(self._good)
        if rng.random() < 0.1:
            return good
        data = mutate_bytes(rng, good, (*self._good, b"====", b"+/" * 43, b"bhumi:"))
        return data[: len(good)].ljust(len(good), b"A") if rng.random() < 0.7 else data

    def run(self, data: bytes) -> str:
        """Decode; one invite has one token."""
        text = data.decode("latin-1")
        try:
            decoded = invite.decode_invite(text)
        except LocalError:
            return "refused"
        expect(invite.encode_invite(decoded) == text, "two tokens for one invite")
        return "accepted"
