"""Builds and checks the signed frames of MERK's handshakes: challenges, answers, HELLO and AUTH.

``handshake`` calls them: keys and challenges go in, frames or a refusal come out. Clients sign our challenge. Nodes
exchange HELLO and prove their keys over both nonces, so a proof is valid for one connection only. These functions do
not change the session; ``handshake`` does.

Spec: specs/merk.md 2, 5, 7, 10.1; MERK-HANDSHAKE.
"""

import random
from typing import Final

from waystation.crypto.signing import KeyPair, sign, verify
from waystation.protocols.merk import wire
from waystation.protocols.merk.messages import (
    CHALLENGE_BYTES,
    CONFIRMATION,
    NONCE_BYTES,
    ZERO_KEY,
    ZERO_SIGNATURE,
    Auth,
    Feature,
    Frame,
    Hello,
    MessageType,
    Role,
)
from waystation.protocols.merk.session import Session

__all__ = [
    "FEATURES",
    "answer_frame",
    "auth_frame",
    "challenge_frame",
    "confirm_frame",
    "hello_frame",
    "is_answer",
    "is_challenge",
    "is_confirmation",
    "is_proof",
    "new_challenge",
]

FEATURES: Final = (
    Feature.DELIVERY_NOTICES | Feature.KEY_DIRECTORY | Feature.HEADER_SIGNATURES | Feature.MESH | Feature.PRESENCE
)
_HIGH_BIT: Final = 0x80  # no challenge of ours can be read as signed content of a type (specs/merk.md 8)
_CONTENT_TYPES: Final = (1, 2, 3, 0x10)  # MERK-HANDSHAKE


def new_challenge(rng: random.Random) -> bytes:
    """Return 32 fresh bytes of which the first is 0x80 or more."""
    challenge = rng.randbytes(CHALLENGE_BYTES)
    # No content type has the high bit, so a signed challenge is never signed content.
    return bytes((challenge[0] | _HIGH_BIT,)) + challenge[1:]


def challenge_frame(challenge: bytes) -> bytes:
    """Return the frame that asks for a signature."""
    return wire.encode_frame(MessageType.HANDSHAKE, challenge)


def answer_frame(challenge: bytes, key_pair: KeyPair) -> bytes:
    """Return our answer to somebody else's challenge."""
    signature = sign(key_pair, challenge)
    return wire.encode_frame(MessageType.HANDSHAKE, challenge, sender=key_pair.public, signature=signature)


def confirm_frame(node_key: bytes) -> bytes:
    """Return the frame that ends the handshake."""
    return wire.encode_frame(MessageType.HANDSHAKE, CONFIRMATION, sender=node_key)


def is_challenge(frame: Frame) -> bool:
    """Return whether a frame is a challenge that may be signed."""
    return (
        frame.kind == MessageType.HANDSHAKE
        and len(frame.payload) == CHALLENGE_BYTES
        and frame.signature == ZERO_SIGNATURE
        # Spec 2 and 8: what we sign must not be readable as content of ours.
        and frame.payload[0] not in _CONTENT_TYPES
    )


def is_answer(frame: Frame, challenge: bytes) -> bool:
    """Return whether a frame answers our challenge; the signature is checked last."""
    return (
        frame.kind == MessageType.HANDSHAKE
        and frame.payload == challenge
        and frame.sender != ZERO_KEY
        # The dearest check comes last.
        and verify(frame.sender, challenge, frame.signature)
    )


def is_confirmation(frame: Frame) -> bool:
    """Return whether a frame ends a handshake."""
    return (
        frame.kind == MessageType.HANDSHAKE
        and frame.payload == CONFIRMATION
        and frame.signature == ZERO_SIGNATURE
        and frame.sender != ZERO_KEY
    )


def hello_frame(
    session: Session, node_key: bytes, address: str, rng: random.Random, features: Feature = FEATURES
) -> bytes:
    """Return our HELLO on a connection, with a nonce that the session remembers."""
    session.nonce = rng.randbytes(NONCE_BYTES)
    return wire.encode_info_frame(Hello(features, Role.NODE, node_key, session.nonce, address), node_key)


def auth_frame(session: Session, key_pair: KeyPair) -> bytes:
    """Return our proof to the other side, whose HELLO has come."""
    hello = session.hello
    assert hello is not None
    assert session.nonce
    message = wire.auth_message(key_pair.public, hello.key, session.nonce, hello.nonce, Role.NODE, hello.role)
    return wire.encode_info_frame(Auth(sign(key_pair, message)), key_pair.public)


def is_proof(session: Session, node_key: bytes, auth: Auth) -> bool:
    """Return whether the other side's proof holds for its HELLO and ours."""
    hello = session.hello
    if hello is None or not session.nonce:
        return False
    message = wire.auth_message(hello.key, node_key, hello.nonce, session.nonce, hello.role, Role.NODE)
    return verify(hello.key, message, auth.signature)
