"""Makes signed and encrypted frames from contents, and opens such frames.

The client machine and the SDK call it; relays never do, they see only headers. There are three modes: DATA proves
nothing, SIGNED_DATA proves its author, ENCRYPTED_DATA is also hidden from relays. Each opened content has an ``Auth``,
which states what its signature proves. Signed frames of the reference implementation do not cover the recipient, so
they can be redirected; its handshake signs 32 bytes that a server chose. Our frames of all modes have a header
signature that covers the recipient.

Encryption: X25519 with a fresh key, AES-256-GCM under SHA-256 of the shared secret, tag last. There are two forms
(MERK-BOUND). The bound form has ``merk-bound/1``, the sender's and the recipient's key as associated data and an
``Extended`` content, so that nobody can pass a ciphertext off as his own or aim it at another identity, and time and
id are proved. The legacy form, of the reference implementation, has no associated data; it proves neither.

Spec: specs/merk.md 3, 7, 8; seed "Message Types".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from waystation.core.errors import LocalError
from waystation.crypto.aead_gcm import GCM_NONCE_BYTES, GCM_TAG_BYTES, open_gcm, seal_gcm
from waystation.crypto.agreement import WeakKeyError, agree, public_of_secret
from waystation.crypto.hashing import sha256
from waystation.crypto.signing import KeyPair, sign, verify
from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.messages import (
    CHALLENGE_BYTES,
    KEY_BYTES,
    MESSAGE_ID_BYTES,
    SIGNATURE_BYTES,
    ZERO_SIGNATURE,
    Frame,
    MessageType,
)
from waystation.protocols.merk.payload.contents import (
    Content,
    Extended,
    Raw,
    decode_content,
    decode_signed_content,
    encode_content,
    encode_signed_content,
)
from waystation.protocols.merk.refusals import MalformedError, Refusal
from waystation.protocols.merk.wire import (
    SIGNED_HEADER_BYTES,
    decode_frame,
    encode_frame,
    encode_header,
    frame_hash,
    header_message,
)

__all__ = [
    "Auth",
    "Mode",
    "Opened",
    "auth_of_signed",
    "bound_context",
    "data_frame",
    "decrypt_package",
    "encrypted_frame",
    "message_id_of",
    "open_frame",
    "signed_frame",
]


class Auth(Enum):
    """What is proved about a content."""

    BOUND = "bound"
    """The sender wrote this, in this mode, to us."""
    LEGACY = "legacy"
    """Signed: the sender wrote this, perhaps to somebody else. Encrypted: the sender passed this on, perhaps unread."""
    AMBIGUOUS = "ambiguous"
    """The sender signed these 32 bytes, perhaps as an answer to a server's challenge."""
    NONE = "none"
    """Nothing; the relays say who wrote it."""


class Mode(Enum):
    """How a content travelled."""

    PLAIN = "plain"
    SIGNED = "signed"
    ENCRYPTED = "encrypted"


@dataclass(frozen=True, slots=True)
class Opened:
    """A content that has arrived, and what is known about it."""

    sender: bytes
    """32-byte key."""
    mode: Mode
    auth: Auth
    content: Content
    frame_hash: bytes
    """16 bytes; names the frame in DELIVERY."""
    fingerprint: tuple[bytes, bytes]
    """Sender and SHA-256 of the payload: the same for the same message, whatever became of its header."""
    message_id: bytes
    """16 bytes, the same for sender and recipient: of an ``Extended`` its id, else the hash of the payload behind the
    target, which stays the same whatever becomes of the header (``message_id_of``)."""


def data_frame(sender: KeyPair, target: bytes, content: bytes, *, header_signature: bool) -> bytes:
    """Return a DATA frame: bytes without a type, in clear.

    Args:
        sender: Who says it.
        target: 32-byte key of the recipient.
        content: Any bytes.
        header_signature: Whether to prove who says it; clients of the original do not look.
    """
    assert len(target) == KEY_BYTES
    payload = target + content
    return _with_header_signature(sender, MessageType.DATA, payload, signed=header_signature)


def signed_frame(sender: KeyPair, target: bytes, content: Content, *, header_signature: bool = True) -> bytes:
    """Return a SIGNED_DATA frame: a content in clear with its author's signature.

    Args:
        sender: Who says it.
        target: 32-byte key of the recipient.
        content: What is said.
        header_signature: Whether to sign recipient and type too; clients of the original do not look.

    Raises:
        LocalError: As ``encode_signed_content``, and for 32 bytes without a header signature: ours to send never.
    """
    assert len(target) == KEY_BYTES
    said = encode_signed_content(content)
    # Spec 3, ambiguous: 32 signed bytes may be the answer to a challenge.
    if len(said) == CHALLENGE_BYTES and not header_signature:
        raise LocalError("32 signed bytes look like the answer to a challenge; they need a header signature")
    payload = b"".join((target, sign(sender, said), said))
    return _with_header_signature(sender, MessageType.SIGNED_DATA, payload, signed=header_signature)


def encrypted_frame(
    sender: KeyPair,
    target: bytes,
    recipient_agreement: bytes,
    content: Content,
    *,
    ephemeral_secret: bytes,
    nonce: bytes,
) -> bytes:
    """Return an ENCRYPTED_DATA frame: a content that only the recipient can read, signed as a whole.

    Args:
        sender: Who says it.
        target: 32-byte key of the recipient.
        recipient_agreement: The recipient's X25519 key, 32 bytes.
        content: What is said; an ``Extended`` goes in the bound form, any other in the legacy form.
        ephemeral_secret: 32 fresh random bytes, never used before.
        nonce: 12 fresh random bytes.

    Raises:
        LocalError: As ``encode_content``.
        WeakKeyError: The recipient's X25519 key has small order, so that anybody could read the content.
    """
    assert len(target) == KEY_BYTES
    # Spec 3: AES-256-GCM under SHA-256 of the shared secret; MERK-BOUND: ours name both sides as associated data.
    key = sha256(agree(ephemeral_secret, recipient_agreement))
    associated = bound_context(sender.public, target) if isinstance(content, Extended) else b""
    sealed = seal_gcm(key, nonce, encode_content(content), associated)
    payload = b"".join((target, public_of_secret(ephemeral_secret), nonce, sealed))
    return encode_frame(MessageType.ENCRYPTED_DATA, payload, sender=sender.public, signature=sign(sender, payload))


def open_frame(frame: bytes | Frame, keys: Keys) -> Opened:
    """Return the content of a frame that was sent to us.

    Args:
        frame: As it arrived; of a ``Frame`` the reserved header bytes are taken to be zero.
        keys: The recipient's.

    Raises:
        MalformedError: What ``decode_frame`` refuses; UNKNOWN_TYPE, NO_TARGET, NOT_FOR_US, BAD_SIGNATURE,
            CANNOT_DECRYPT or BAD_CONTENT.
    """
    data = frame if isinstance(frame, bytes) else _again(frame)
    arrived = decode_frame(data) if isinstance(frame, bytes) else frame
    opener = _OPENERS.get(arrived.kind)
    if opener is None:
        raise MalformedError(Refusal.UNKNOWN_TYPE, f"type {arrived.kind} carries no content")
    # Spec 3: a frame for another key is dropped before anything is verified.
    _check_target(arrived.payload, keys)
    mode, auth, content = opener(data[:SIGNED_HEADER_BYTES], arrived, keys)
    fingerprint = arrived.sender, sha256(arrived.payload)
    message_id = message_id_of(content, arrived.payload[KEY_BYTES:])
    return Opened(arrived.sender, mode, auth, content, frame_hash(data), fingerprint, message_id)


def message_id_of(content: Content, untargeted: bytes) -> bytes:
    """Return the 16 bytes that name a message on both sides; ``untargeted`` is its payload behind the target.

    Spec: specs/merk.md 3 (MERK-IDS).
    """
    return content.message_id if isinstance(content, Extended) else sha256(untargeted)[:MESSAGE_ID_BYTES]


def bound_context(sender: bytes, target: bytes) -> bytes:
    """Return the 76 bytes of associated data of the bound form; both keys have 32 bytes."""
    return b"".join((_BOUND_CONTEXT, sender, target))


def decrypt_package(package: bytes, sender: bytes, keys: Keys) -> tuple[bytes, bool] | None:
    """Return the plaintext of ``ephemeral key[32] | nonce[12] | ciphertext and tag``, None when it is not for us.

    Args:
        package: Of that layout.
        sender: 32-byte key of who is said to have sent it.
        keys: The recipient's.

    Returns:
        The plaintext, and whether it names ``sender`` and us in the bound form.
    """
    if len(package) < _PACKAGE_BYTES_MIN:
        return None
    try:
        # Spec 3: an all-zero secret is refused.
        shared = agree(keys.agreement_secret, package[:KEY_BYTES])
    except WeakKeyError:
        return None
    key, nonce, sealed = sha256(shared), package[KEY_BYTES:_SEALED_AT], package[_SEALED_AT:]
    bound = open_gcm(key, nonce, sealed, bound_context(sender, keys.signing.public))
    if bound is not None:
        return bound, True
    legacy = open_gcm(key, nonce, sealed)
    return (legacy, False) if legacy is not None else None


def auth_of_signed(said: bytes) -> Auth:
    """Return what a content's own signature proves when nothing else is signed. Spec: specs/merk.md 8."""
    return Auth.AMBIGUOUS if len(said) == CHALLENGE_BYTES else Auth.LEGACY


def _with_header_signature(sender: KeyPair, kind: MessageType, payload: bytes, *, signed: bool) -> bytes:
    # Spec 7: the header signature covers `merk-frame/1`, the first 56 bytes and the payload.
    header56 = encode_header(kind, len(payload), sender.public)
    signature = sign(sender, header_message(header56, payload)) if signed else ZERO_SIGNATURE
    return b"".join((header56, signature, payload))


def _again(frame: Frame) -> bytes:
    return encode_frame(frame.kind, frame.payload, sender=frame.sender, signature=frame.signature)


def _check_target(payload: bytes, keys: Keys) -> None:
    target = payload[:KEY_BYTES]
    if len(target) < KEY_BYTES:
        raise MalformedError(Refusal.NO_TARGET, f"payload of {len(payload)} bytes")
    if target != keys.signing.public:
        raise MalformedError(Refusal.NOT_FOR_US, f"for {target.hex()}")


def _open_data(header56: bytes, frame: Frame, _keys: Keys) -> tuple[Mode, Auth, Content]:
    auth = Auth.BOUND if _is_header_signed(header56, frame) else Auth.NONE
    return Mode.PLAIN, auth, Raw(frame.payload[KEY_BYTES:])


def _open_signed(header56: bytes, frame: Frame, _keys: Keys) -> tuple[Mode, Auth, Content]:
    signature, said = frame.payload[KEY_BYTES:_SAID_AT], frame.payload[_SAID_AT:]
    is_bound = _is_header_signed(header56, frame)
    # Spec 3: the content's own signature must hold, whatever the header proves.
    if not verify(frame.sender, said, signature):
        raise MalformedError(Refusal.BAD_SIGNATURE, "of the content")
    return Mode.SIGNED, Auth.BOUND if is_bound else auth_of_signed(said), decode_signed_content(said)


def _open_encrypted(_header56: bytes, frame: Frame, keys: Keys) -> tuple[Mode, Auth, Content]:
    package = frame.payload[KEY_BYTES:]
    if len(package) < _PACKAGE_BYTES_MIN:
        raise MalformedError(Refusal.CANNOT_DECRYPT, f"{len(package)} bytes, at least {_PACKAGE_BYTES_MIN}")
    # Spec 3: ours sign the whole payload with its target, an original all but the target.
    covers_target = verify(frame.sender, frame.payload, frame.signature)
    if not covers_target and not verify(frame.sender, package, frame.signature):
        raise MalformedError(Refusal.BAD_SIGNATURE, "of the encrypted payload")
    opened = decrypt_package(package, frame.sender, keys)
    if opened is None:
        raise MalformedError(Refusal.CANNOT_DECRYPT, "wrong key, sender or recipient, or changed on its way")
    plaintext, is_bound = opened
    content = decode_content(plaintext)
    if not is_bound:
        return Mode.ENCRYPTED, Auth.LEGACY, content
    # MERK-BOUND: nobody of ours makes the bound form otherwise.
    if not covers_target:
        raise MalformedError(Refusal.BAD_SIGNATURE, "a bound message is signed with its target")
    if not isinstance(content, Extended):
        raise MalformedError(Refusal.BAD_CONTENT, "a bound message has a time and an id")
    return Mode.ENCRYPTED, Auth.BOUND, content


def _is_header_signed(header56: bytes, frame: Frame) -> bool:
    """Return whether the header carries a signature; a wrong one is refused rather than overlooked."""
    if frame.signature == ZERO_SIGNATURE:
        return False
    if not verify(frame.sender, header_message(header56, frame.payload), frame.signature):
        raise MalformedError(Refusal.BAD_SIGNATURE, "of the header")
    return True


_BOUND_CONTEXT: Final = b"merk-bound/1"  # MERK-BOUND
_SAID_AT: Final = KEY_BYTES + SIGNATURE_BYTES
_SEALED_AT: Final = KEY_BYTES + GCM_NONCE_BYTES
_PACKAGE_BYTES_MIN: Final = _SEALED_AT + 1 + GCM_TAG_BYTES  # a type byte at least: specs/merk.md 3
_OPENERS: Final[Mapping[int, Callable[[bytes, Frame, Keys], tuple[Mode, Auth, Content]]]] = {
    MessageType.DATA: _open_data,
    MessageType.SIGNED_DATA: _open_signed,
    MessageType.ENCRYPTED_DATA: _open_encrypted,
}
