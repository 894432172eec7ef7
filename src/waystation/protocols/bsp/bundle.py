"""A bundle: records encrypted for one peer and signed, for transport as a file or through any relay.

The SDK's carriers and files (``sdk.bsp.bundles``) seal and open it.

::

    header      "BSPF" 01 | sender 32 | recipient 32 | number 8 | fresh X25519 key 32       109 bytes
    chunks      ciphertext 0..16384 | tag 16, all but the last of full length               at least one
    signature   64

Keys of sender and recipient are Ed25519; the sender assigns the big-endian number. Chunks are ChaCha20-Poly1305 under
HKDF-SHA256(X25519(fresh secret, recipient key as X25519), salt = header, info = "waystation/bsp/file/1"). A nonce is 01
for the last chunk and 00 for any other, then the chunk's index as 11 bytes, big-endian. So chunks can be neither
reordered nor omitted. The sender signs the BLAKE2b-256 digest of three parts, each after its length as four bytes,
big-endian: the label "waystation/bsp/file/1", the header, and the BLAKE2b-256 of all chunks.

Duplicate, late and lost bundles are harmless, because records are idempotent. There is no forward secrecy if the
recipient's key leaks.

A reader checks in the order of cost: size and form, recipient, sender, signature, encryption, records.
Spec: bsp 5, "bsp file"; BSP-FILE, BSP-ONETIME.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from waystation.core.errors import LocalError
from waystation.core.ids import KEY_BYTES, PublicKey
from waystation.crypto.aead_chacha import CHACHA_TAG_BYTES, open_chacha, seal_chacha
from waystation.crypto.agreement import (
    SECRET_BYTES,
    WeakKeyError,
    agree,
    agreement_public_of,
    agreement_secret_of,
    public_of_secret,
)
from waystation.crypto.hashing import blake2b_256, hkdf_sha256
from waystation.crypto.signing import SIGNATURE_BYTES, KeyPair, sign, verify
from waystation.protocols.bsp.messages import Record
from waystation.protocols.bsp.profile import Profile
from waystation.protocols.bsp.refusals import MalformedError, Refusal
from waystation.protocols.bsp.wire import read_all

__all__ = [
    "BUNDLE_BYTES_MAX",
    "BUNDLE_BYTES_USUAL",
    "BUNDLE_HEADER_BYTES",
    "CHUNK_BYTES",
    "NUMBER_MAX",
    "Bundle",
    "bundle_overhead",
    "bundle_room",
    "open_bundle",
    "seal_bundle",
]

BUNDLE_BYTES_MAX: Final = 4_194_304
"""Largest bundle that is read."""
BUNDLE_BYTES_USUAL: Final = 1_048_576
"""Largest bundle that is written unless the caller asks for more."""
CHUNK_BYTES: Final = 16_384
NUMBER_MAX: Final = (1 << 64) - 1
_PREFIX: Final = b"BSPF\x01"
_NUMBER_BYTES: Final = 8
BUNDLE_HEADER_BYTES: Final = len(_PREFIX) + 2 * KEY_BYTES + _NUMBER_BYTES + KEY_BYTES
_LABEL: Final = b"waystation/bsp/file/1"
_SEALED_BYTES: Final = CHUNK_BYTES + CHACHA_TAG_BYTES
_LEAST_BYTES: Final = BUNDLE_HEADER_BYTES + CHACHA_TAG_BYTES + SIGNATURE_BYTES
_INDEX_BYTES: Final = 11


class Bundle(NamedTuple):
    """A bundle that was opened: its sender, number and records."""

    sender: PublicKey
    # The number orders files for an operator; the protocol attaches no meaning to it.
    number: int
    """The sender's count: 1, 2, 3... It shows an operator which file is missing."""
    records: list[Record]


def bundle_overhead(records_bytes: int) -> int:
    """Return how many bytes a bundle has besides its ``records_bytes`` bytes of records."""
    chunks_count = max(1, -(-records_bytes // CHUNK_BYTES))
    return BUNDLE_HEADER_BYTES + chunks_count * CHACHA_TAG_BYTES + SIGNATURE_BYTES


def bundle_room(bundle_bytes: int) -> int:
    """Return how many bytes of records fit into a bundle of ``bundle_bytes``; negative when not even none do."""
    room = bundle_bytes - BUNDLE_HEADER_BYTES - SIGNATURE_BYTES
    whole_count, rest = divmod(room, _SEALED_BYTES)
    if whole_count > 0 and rest <= CHACHA_TAG_BYTES:
        return whole_count * CHUNK_BYTES
    return whole_count * CHUNK_BYTES + rest - CHACHA_TAG_BYTES


def seal_bundle(
    records: Sequence[bytes], key_pair: KeyPair, recipient: PublicKey, number: int, ephemeral_secret: bytes
) -> bytes:
    """Return a bundle.

    Args:
        records: Encoded, in their order; may be empty.
        key_pair: Our identity.
        recipient: Key of the one reader.
        number: 0 to ``NUMBER_MAX``; any will do, one that grows helps operators.
        ephemeral_secret: 32 random bytes, used for this one bundle and then forgotten.

    Raises:
        LocalError: The bundle would be larger than any device reads.
        WeakKeyError: The recipient's key cannot be used for key agreement.
    """
    assert len(ephemeral_secret) == SECRET_BYTES
    assert 0 <= number <= NUMBER_MAX
    plaintext = b"".join(records)
    size = len(plaintext) + bundle_overhead(len(plaintext))
    if size > BUNDLE_BYTES_MAX:
        raise LocalError(f"a bundle of {size} bytes; at most {BUNDLE_BYTES_MAX} are read")
    # Spec 5: a fresh X25519 key for each file, so that the sender keeps no secret that opens it later.
    fresh = public_of_secret(ephemeral_secret)
    header = _PREFIX + key_pair.public + recipient + number.to_bytes(_NUMBER_BYTES, "big") + fresh
    # Spec 5: the recipient's Ed25519 key, turned to X25519; the whole header is the salt, so it cannot be exchanged.
    key = _derive(agree(ephemeral_secret, agreement_public_of(recipient)), header)
    chunks = [seal_chacha(key, nonce, chunk) for nonce, chunk in _cut(plaintext, CHUNK_BYTES)]
    sealed = b"".join(chunks)
    # Spec 5: the signature covers header and chunks; it is what makes the sender known.
    return header + sealed + sign(key_pair, _signed(header, sealed))


def open_bundle(data: bytes, key_pair: KeyPair, profile: Profile, knows: Callable[[PublicKey], bool]) -> Bundle:
    """Return a bundle that is sealed for us.

    Args:
        data: All of it, and nothing else.
        key_pair: Our identity.
        profile: The form of its records.
        knows: Whether a sender is in our table of peers.

    Raises:
        MalformedError: FILE_TOO_LARGE, FILE_FORM, FILE_NOT_FOR_US, FILE_SENDER, FILE_SIGNATURE, FILE_SEAL, or what is
            wrong with its records.
    """
    # Spec 5: size and form, recipient, sender, signature, seal, records, in this order: the cheap checks come first.
    sender, recipient, number = _look_at(data)
    if recipient != key_pair.public:
        raise MalformedError(Refusal.FILE_NOT_FOR_US, f"sealed for {recipient.hex()}")
    if not knows(sender):
        raise MalformedError(Refusal.FILE_SENDER, f"{sender.hex()} is no peer of ours")
    header, sealed = data[:BUNDLE_HEADER_BYTES], data[BUNDLE_HEADER_BYTES:-SIGNATURE_BYTES]
    # Spec 5: the signature is checked before a byte is opened.
    if not verify(sender, _signed(header, sealed), data[-SIGNATURE_BYTES:]):
        raise MalformedError(Refusal.FILE_SIGNATURE, f"not signed by {sender.hex()}")
    return Bundle(sender, number, read_all(profile, _unseal(header, sealed, key_pair)))


def _look_at(data: bytes) -> tuple[PublicKey, PublicKey, int]:
    """Return sender, recipient and number of what has the form of a bundle."""
    # Spec 9: a file or datagram above 4 MiB is not read.
    if len(data) > BUNDLE_BYTES_MAX:
        raise MalformedError(Refusal.FILE_TOO_LARGE, f"{len(data)} bytes; at most {BUNDLE_BYTES_MAX} are read")
    # Spec 5: at least one chunk, which may be empty.
    if len(data) < _LEAST_BYTES or data[: len(_PREFIX)] != _PREFIX:
        raise MalformedError(Refusal.FILE_FORM, f"{len(data)} bytes that are no bundle of version 1")
    chunks_bytes = len(data) - BUNDLE_HEADER_BYTES - SIGNATURE_BYTES
    last_bytes = chunks_bytes % _SEALED_BYTES
    least = CHACHA_TAG_BYTES if chunks_bytes < _SEALED_BYTES else CHACHA_TAG_BYTES + 1  # only a sole chunk may be empty
    if 0 < last_bytes < least:
        raise MalformedError(Refusal.FILE_FORM, f"a last chunk of {last_bytes} bytes")
    keys = data[len(_PREFIX) : len(_PREFIX) + 2 * KEY_BYTES]
    number = data[len(_PREFIX) + 2 * KEY_BYTES : BUNDLE_HEADER_BYTES - KEY_BYTES]
    return PublicKey(keys[:KEY_BYTES]), PublicKey(keys[KEY_BYTES:]), int.from_bytes(number, "big")


def _unseal(header: bytes, sealed: bytes, key_pair: KeyPair) -> bytes:
    try:
        secret = agree(agreement_secret_of(key_pair), header[-KEY_BYTES:])
    # A key of low order gives a secret that everyone knows: the seal proves nothing.
    except WeakKeyError as error:
        raise MalformedError(Refusal.FILE_SEAL, str(error)) from error
    key = _derive(secret, header)
    plaintext: list[bytes] = []
    for nonce, chunk in _cut(sealed, _SEALED_BYTES):
        opened = open_chacha(key, nonce, chunk)
        # BSP-FILE: index and last-chunk mark are in the nonce, so a moved, missing or cut chunk fails here.
        if opened is None:
            raise MalformedError(Refusal.FILE_SEAL, f"chunk {len(plaintext)} was not sealed like this")
        plaintext.append(opened)
    return b"".join(plaintext)


def _derive(secret: bytes, header: bytes) -> bytes:
    return hkdf_sha256(secret, salt=header, info=_LABEL)


def _signed(header: bytes, sealed: bytes) -> bytes:
    # Spec 5: label, header and the hash of all chunks, each after its length.
    parts = (_LABEL, header, blake2b_256(sealed))
    return blake2b_256(b"".join(len(part).to_bytes(4, "big") + part for part in parts))


def _cut(data: bytes, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield nonce and bytes of each chunk; nothing makes one chunk without bytes."""
    last = max(0, len(data) - 1) // size
    for index in range(last + 1):
        # Spec 5: 01 for the last chunk, 00 for any other, then the index as 11 bytes.
        nonce = bytes([index == last]) + index.to_bytes(_INDEX_BYTES, "big")
        yield nonce, data[index * size : (index + 1) * size]
