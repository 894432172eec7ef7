"""Decodes frames that a reference relay has altered, as far as possible.

The client machine calls it where the user enabled that. The reference relay removes the recipient from every frame,
changes its type to DATA and erases the header's signature. A SIGNED_DATA can still be verified, and an ENCRYPTED_DATA
decrypted, but the sender is lost. Only clients behind such a relay enable this.

Spec: specs/merk.md 0.2, 3 "Salvage mode".
"""

from waystation.crypto.hashing import sha256
from waystation.crypto.signing import verify
from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.messages import KEY_BYTES, SIGNATURE_BYTES, ZERO_SIGNATURE, Frame, MessageType
from waystation.protocols.merk.payload.contents import Content, Raw, decode_content, decode_signed_content
from waystation.protocols.merk.payload.sealing import (
    Auth,
    Mode,
    Opened,
    auth_of_signed,
    decrypt_package,
    message_id_of,
    open_frame,
)
from waystation.protocols.merk.wire import decode_frame, encode_frame, frame_hash

__all__ = ["is_altered", "open_recovered"]


def is_altered(frame: Frame, keys: Keys) -> bool:
    """Return whether a relay of the original may have cut this frame: unsigned DATA that is not aimed at us."""
    return (
        frame.kind == MessageType.DATA
        and frame.signature == ZERO_SIGNATURE
        and frame.payload[:KEY_BYTES] != keys.signing.public
    )


def open_recovered(frame: bytes | Frame, keys: Keys) -> Opened:
    """Return the content of a frame as ``open_frame`` does, also of one that an original relay has altered.

    Args:
        frame: As it arrived.
        keys: The recipient's.

    Raises:
        MalformedError: As ``open_frame``; an altered frame is only refused with BAD_CONTENT.
    """
    arrived = decode_frame(frame) if isinstance(frame, bytes) else frame
    if not is_altered(arrived, keys):
        return open_frame(frame, keys)
    data = frame if isinstance(frame, bytes) else encode_frame(frame.kind, frame.payload, sender=frame.sender)
    mode, auth, content = _recover(arrived, keys)
    # What the relay cut is the target: all that is left is what an id is made of.
    message_id = message_id_of(content, arrived.payload)
    fingerprint = arrived.sender, sha256(arrived.payload)
    return Opened(arrived.sender, mode, auth, content, frame_hash(data), fingerprint, message_id)


def _recover(frame: Frame, keys: Keys) -> tuple[Mode, Auth, Content]:
    signature, said = frame.payload[:SIGNATURE_BYTES], frame.payload[SIGNATURE_BYTES:]
    if verify(frame.sender, said, signature):
        return Mode.SIGNED, auth_of_signed(said), decode_signed_content(said)
    opened = decrypt_package(frame.payload, frame.sender, keys)
    if opened is not None:
        # The relay erased the signature, so the sender is what the relay says.
        return Mode.ENCRYPTED, Auth.NONE, decode_content(opened[0])
    return Mode.PLAIN, Auth.NONE, Raw(frame.payload)
