"""Identities and handshakes that the tests of BSP's streams and bundles talk about."""

import hashlib

from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.bsp.stream import handshake
from waystation.protocols.bsp.stream.handshake import Hello, Proof, Role, Verdict, transcript

US, FRIEND, STRANGER = (
    KeyPair.from_seed(hashlib.sha256(name).digest()) for name in (b"bsp us", b"bsp friend", b"bsp stranger")
)
CERTIFICATE = hashlib.sha256(b"the server's certificate").digest()
OTHER_CERTIFICATE = hashlib.sha256(b"the certificate of somebody between").digest()
SERVER_NONCE, CLIENT_NONCE = b"s" * 32, b"c" * 32


def proof_of(client, hello, *, certificate=CERTIFICATE, nonce=CLIENT_NONCE):
    """Return the 136 bytes with which a client answers the 72 bytes of a hello, made by hand."""
    said = handshake.decode_hello(hello)
    signed = transcript(Role.CLIENT, said.nonce, nonce, said.key, client.public, certificate)
    return handshake.encode_proof(Proof(nonce, client.public, sign(client, signed)))


def hello_of(server, *, nonce=SERVER_NONCE):
    """Return the 72 bytes of a server's hello."""
    return handshake.encode_hello(Hello(nonce, server.public))


def verdict_of(server, proof, status=0, *, certificate=CERTIFICATE, nonce=SERVER_NONCE):
    """Return the 65 bytes with which a server answers the 136 bytes of a proof, made by hand."""
    said = handshake.decode_proof(proof)
    signed = transcript(Role.SERVER, nonce, said.nonce, server.public, said.key, certificate)
    return handshake.encode_verdict(Verdict(sign(server, signed), status))


def changed(data, at, mask=1):
    """Return a copy with one byte changed."""
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]
