"""The three handshake messages that open a connection of bsp+tls and bsp+wss, and their signatures.

``session`` encodes, decodes and checks them.

::

    server  "BSPH" 01 000000 | nonce 32 | server key 32                  72 bytes
    client  "BSPH" 01 000000 | nonce 32 | client key 32 | signature 64  136 bytes
    server  signature 64 | status 1                                      65 bytes

Both sides sign the 32-byte BLAKE2b digest of seven parts, each after its length as four bytes, big-endian: the label,
the signer's role, both nonces, both keys, and the SHA-256 of the TLS server's certificate. A man in the middle with
another certificate therefore has no signature that either side accepts.

Spec: bsp 5, 11.8.
"""

from enum import Enum
from typing import Final, NamedTuple

from waystation.core.ids import KEY_BYTES, PublicKey
from waystation.crypto.hashing import blake2b_256
from waystation.crypto.signing import SIGNATURE_BYTES, KeyPair, sign, verify
from waystation.protocols.bsp.refusals import MalformedError, Refusal

__all__ = [
    "ACCEPTED",
    "CERTIFICATE_HASH_BYTES",
    "HELLO_BYTES",
    "NONCE_BYTES",
    "PREFIX",
    "PROOF_BYTES",
    "VERDICT_BYTES",
    "Acceptor",
    "Dialler",
    "Hello",
    "Proof",
    "Role",
    "Verdict",
    "decode_hello",
    "decode_proof",
    "decode_verdict",
    "encode_hello",
    "encode_proof",
    "encode_verdict",
    "may_begin",
    "transcript",
]

# Spec 5: "BSPH" 01 000000; another version closes the connection.
PREFIX: Final = b"BSPH\x01\x00\x00\x00"
NONCE_BYTES: Final = 32
CERTIFICATE_HASH_BYTES: Final = 32
HELLO_BYTES: Final = len(PREFIX) + NONCE_BYTES + KEY_BYTES
PROOF_BYTES: Final = HELLO_BYTES + SIGNATURE_BYTES
VERDICT_BYTES: Final = SIGNATURE_BYTES + 1
ACCEPTED: Final = 0
"""Status of a verdict after which records follow; the others are those of ``Refusal.status``."""
_LABEL: Final = b"waystation/bsp/auth/1"


class Role(Enum):
    """The role of a signer; it is part of the signed bytes, so that no proof can be reflected."""

    CLIENT = b"client"
    SERVER = b"server"


class Hello(NamedTuple):
    """The first message: the server claims a key."""

    nonce: bytes
    """32 bytes."""
    key: PublicKey


class Proof(NamedTuple):
    """The second message: the client claims a key and proves it."""

    nonce: bytes
    """32 bytes."""
    key: PublicKey
    signature: bytes
    """64 bytes."""


class Verdict(NamedTuple):
    """The third message: the server proves its key and accepts or rejects the client."""

    signature: bytes
    """64 bytes."""
    status: int
    """0 accepted, 1 unknown key, 2 busy."""


def may_begin(data: bytes) -> bool:
    """Return whether ``data``, however short, may be the beginning of a hello or a proof."""
    return data[: len(PREFIX)] == PREFIX[: len(data)]


def encode_hello(hello: Hello) -> bytes:
    """Return the 72 bytes of a hello."""
    assert len(hello.nonce) == NONCE_BYTES
    assert len(hello.key) == KEY_BYTES
    return PREFIX + hello.nonce + hello.key


def decode_hello(data: bytes) -> Hello:
    """Return the hello of 72 bytes.

    Raises:
        MalformedError: Another length or prefix (HANDSHAKE).
    """
    _check(data, HELLO_BYTES)
    return Hello(data[_NONCE], PublicKey(data[_KEY]))


def encode_proof(proof: Proof) -> bytes:
    """Return the 136 bytes of a proof."""
    assert len(proof.signature) == SIGNATURE_BYTES
    return encode_hello(Hello(proof.nonce, proof.key)) + proof.signature


def decode_proof(data: bytes) -> Proof:
    """Return the proof of 136 bytes; the signature is not checked.

    Raises:
        MalformedError: Another length or prefix (HANDSHAKE).
    """
    _check(data, PROOF_BYTES)
    return Proof(data[_NONCE], PublicKey(data[_KEY]), data[HELLO_BYTES:])


def encode_verdict(verdict: Verdict) -> bytes:
    """Return the 65 bytes of a verdict."""
    assert len(verdict.signature) == SIGNATURE_BYTES
    return verdict.signature + bytes([verdict.status])


def decode_verdict(data: bytes) -> Verdict:
    """Return the verdict of 65 bytes; the signature is not checked.

    Raises:
        MalformedError: Another length (HANDSHAKE).
    """
    # Spec 5: signature 64, status 1.
    if len(data) != VERDICT_BYTES:
        raise MalformedError(Refusal.HANDSHAKE, f"a verdict of {len(data)} bytes")
    return Verdict(data[:SIGNATURE_BYTES], data[SIGNATURE_BYTES])


def transcript(
    role: Role,
    server_nonce: bytes,
    client_nonce: bytes,
    server_key: bytes,
    client_key: bytes,
    certificate_sha256: bytes,
) -> bytes:
    """Return the 32 bytes that the holder of ``role`` signs.

    Args:
        role: The role of the signer.
        server_nonce: 32 bytes of the hello.
        client_nonce: 32 bytes of the proof.
        server_key: 32 bytes.
        client_key: 32 bytes.
        certificate_sha256: 32 bytes: the hash of the certificate (DER) that the signer shows or sees.
    """
    # Spec 5: label, role, server nonce, client nonce, server key, client key, certificate hash.
    parts = (_LABEL, role.value, server_nonce, client_nonce, server_key, client_key, certificate_sha256)
    return blake2b_256(b"".join(len(part).to_bytes(4, "big") + part for part in parts))


class Acceptor:
    """The server's side of one handshake."""

    def __init__(self, key_pair: KeyPair, nonce: bytes, certificate_sha256: bytes) -> None:
        """Begin.

        Args:
            key_pair: Our identity.
            nonce: 32 random bytes, used for this handshake only.
            certificate_sha256: 32 bytes: the hash of the certificate that clients see.
        """
        assert len(certificate_sha256) == CERTIFICATE_HASH_BYTES
        self._key_pair = key_pair
        self._nonce = nonce
        self._certificate = certificate_sha256

    def hello(self) -> bytes:
        """Return our first message."""
        return encode_hello(Hello(self._nonce, self._key_pair.public))

    def proves(self, proof: Proof) -> bool:
        """Return whether the client holds the key that it claims, and is connected to us directly."""
        return verify(proof.key, self._signed(Role.CLIENT, proof), proof.signature)

    def verdict(self, proof: Proof, refusal: Refusal | None) -> bytes:
        """Return our last message.

        Args:
            proof: One for which ``proves`` was true.
            refusal: One that has a status, or None for a client that is accepted.
        """
        status = ACCEPTED if refusal is None else refusal.status
        assert status is not None
        return encode_verdict(Verdict(sign(self._key_pair, self._signed(Role.SERVER, proof)), status))

    def _signed(self, role: Role, proof: Proof) -> bytes:
        return transcript(role, self._nonce, proof.nonce, self._key_pair.public, proof.key, self._certificate)


class Dialler:
    """The client's side of one handshake."""

    def __init__(self, key_pair: KeyPair, nonce: bytes, expected: PublicKey, certificate_sha256: bytes) -> None:
        """Begin.

        Args:
            key_pair: Our identity.
            nonce: 32 random bytes, used for this handshake only.
            expected: Key of the server that we dial.
            certificate_sha256: 32 bytes: the hash of the certificate that we saw.
        """
        assert len(certificate_sha256) == CERTIFICATE_HASH_BYTES
        self._key_pair = key_pair
        self._nonce = nonce
        self._expected = expected
        self._certificate = certificate_sha256
        self._server_nonce: bytes | None = None

    def answer(self, hello: Hello) -> bytes:
        """Return our proof.

        Raises:
            MalformedError: Another key than the expected one answers (WRONG_PEER); it does not learn ours.
        """
        # Spec 5: the client closes when another key answers than the one it dialled; it has not shown its own yet.
        if hello.key != self._expected:
            raise MalformedError(Refusal.WRONG_PEER, f"{hello.key.hex()} answers for {self._expected.hex()}")
        self._server_nonce = hello.nonce
        signature = sign(self._key_pair, self._signed(Role.CLIENT))
        return encode_proof(Proof(self._nonce, self._key_pair.public, signature))

    def check_verdict(self, verdict: Verdict) -> Refusal | None:
        """Return why the connection ends, None when records may follow; a status counts only when it is signed.

        Call it after ``answer``.
        """
        # Spec 11.8: a verdict's status counts only if its signature holds.
        if not verify(self._expected, self._signed(Role.SERVER), verdict.signature):
            return Refusal.BAD_SIGNATURE
        # Spec 5: 0 records follow, 1 our key is not in its table, 2 busy; no other status exists.
        return None if verdict.status == ACCEPTED else _REFUSALS.get(verdict.status, Refusal.HANDSHAKE)

    def _signed(self, role: Role) -> bytes:
        assert self._server_nonce is not None
        ours, nonce = self._key_pair.public, self._nonce
        return transcript(role, self._server_nonce, nonce, self._expected, ours, self._certificate)


def _check(data: bytes, size: int) -> None:
    if len(data) != size or not may_begin(data):
        raise MalformedError(Refusal.HANDSHAKE, f"{len(data)} bytes that are no message of a handshake")


_NONCE: Final = slice(len(PREFIX), len(PREFIX) + NONCE_BYTES)
_KEY: Final = slice(len(PREFIX) + NONCE_BYTES, HELLO_BYTES)
_REFUSALS: Final = {Refusal.UNKNOWN_PEER.status: Refusal.REFUSED_BY_PEER, Refusal.BUSY.status: Refusal.BUSY}
