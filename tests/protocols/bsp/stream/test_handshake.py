"""Laws of protocols.bsp.handshake."""

import hashlib

import pytest

from tests.protocols.bsp.build_streams import (
    CERTIFICATE,
    CLIENT_NONCE,
    FRIEND,
    OTHER_CERTIFICATE,
    SERVER_NONCE,
    STRANGER,
    US,
    changed,
    hello_of,
    proof_of,
    verdict_of,
)
from waystation.crypto.signing import verify
from waystation.protocols.bsp.refusals import MalformedError, Refusal
from waystation.protocols.bsp.stream import handshake
from waystation.protocols.bsp.stream.handshake import Acceptor, Dialler, Hello, Proof, Role, Verdict, transcript

PREFIX = bytes.fromhex("4253504801000000")


def acceptor(certificate=CERTIFICATE):
    return Acceptor(US, SERVER_NONCE, certificate)


def dialler(expected=US, certificate=CERTIFICATE, client=FRIEND):
    return Dialler(client, CLIENT_NONCE, expected.public, certificate)


def answered(proof, server=US):
    client = dialler()
    client.answer(Hello(SERVER_NONCE, server.public))
    return client.check_verdict(handshake.decode_verdict(proof))


def test_hello_is_prefix_nonce_and_key():
    """The server's first message has 72 bytes in the order of the text."""
    hello = acceptor().hello()

    assert hello == PREFIX + SERVER_NONCE + US.public
    assert len(hello) == 72


def test_proof_is_prefix_nonce_key_and_signature():
    """The client's message has 136 bytes in the order of the text."""
    proof = dialler().answer(Hello(SERVER_NONCE, US.public))

    assert proof[:72] == PREFIX + CLIENT_NONCE + FRIEND.public
    assert len(proof) == 136


def test_verdict_is_signature_and_status():
    """The server's last message has 65 bytes, the status last."""
    proof = handshake.decode_proof(proof_of(FRIEND, acceptor().hello()))

    verdict = acceptor().verdict(proof, Refusal.BUSY)

    assert (len(verdict), verdict[64]) == (65, 2)


@pytest.mark.parametrize("role", list(Role))
def test_transcript_is_blake2b_over_parts_behind_their_lengths(role):
    """Eight parts less one, each behind four bytes of length, hashed to 32 bytes made for 32."""
    parts = [b"waystation/bsp/auth/1", role.value, b"s" * 32, b"c" * 32, US.public, FRIEND.public, CERTIFICATE]
    joined = b"".join(len(part).to_bytes(4, "big") + part for part in parts)

    digest = transcript(role, b"s" * 32, b"c" * 32, US.public, FRIEND.public, CERTIFICATE)

    assert digest == hashlib.blake2b(joined, digest_size=32).digest()
    assert role.value == role.name.lower().encode()


def test_both_sides_accept_each_other():
    """A client and a server that see the same certificate end with status 0 and no refusal."""
    server, client = acceptor(), dialler()

    proof = handshake.decode_proof(client.answer(handshake.decode_hello(server.hello())))
    verdict = handshake.decode_verdict(server.verdict(proof, None))

    assert server.proves(proof)
    assert verdict.status == 0
    assert client.check_verdict(verdict) is None


def test_signatures_are_over_the_transcript():
    """Each side signs what its role signs, so any implementation of the text can check it."""
    server, client = acceptor(), dialler()
    proof = handshake.decode_proof(client.answer(handshake.decode_hello(server.hello())))
    verdict = handshake.decode_verdict(server.verdict(proof, None))
    sides = (SERVER_NONCE, CLIENT_NONCE, US.public, FRIEND.public, CERTIFICATE)

    assert verify(FRIEND.public, transcript(Role.CLIENT, *sides), proof.signature)
    assert verify(US.public, transcript(Role.SERVER, *sides), verdict.signature)


@pytest.mark.parametrize("at", range(136))
def test_every_byte_of_a_proof_matters(at):
    """A proof with one byte changed is no proof, or no message at all."""
    bent = changed(proof_of(FRIEND, acceptor().hello()), at)

    if at < len(PREFIX):
        with pytest.raises(MalformedError) as caught:
            handshake.decode_proof(bent)
        assert caught.value.refusal is Refusal.HANDSHAKE
    else:
        assert not acceptor().proves(handshake.decode_proof(bent))


@pytest.mark.parametrize("at", range(64))
def test_every_byte_of_a_verdicts_signature_matters(at):
    """A status that is not signed by the server is not believed, whatever it says."""
    verdict = verdict_of(US, proof_of(FRIEND, hello_of(US)))

    assert answered(verdict) is None
    assert answered(changed(verdict, at)) is Refusal.BAD_SIGNATURE


@pytest.mark.parametrize(
    ("status", "refusal"),
    [
        (0, None),
        (1, Refusal.REFUSED_BY_PEER),
        (2, Refusal.BUSY),
        (3, Refusal.HANDSHAKE),
        (255, Refusal.HANDSHAKE),
    ],
)
def test_status_of_a_verdict(status, refusal):
    """0 lets records follow, 1 and 2 have a meaning, any other ends the connection."""
    assert answered(verdict_of(US, proof_of(FRIEND, hello_of(US)), status)) is refusal


def test_other_key_than_expected_is_refused_before_we_say_who_we_are():
    """A server with another key never gets a proof."""
    with pytest.raises(MalformedError) as caught:
        dialler().answer(Hello(SERVER_NONCE, STRANGER.public))

    assert caught.value.refusal is Refusal.WRONG_PEER


def test_certificates_swapped_between_are_noticed_by_both():
    """Two TLS ends with certificates of their own give neither side a signature over what it sees."""
    server, client = acceptor(CERTIFICATE), dialler(certificate=OTHER_CERTIFICATE)

    proof = handshake.decode_proof(client.answer(handshake.decode_hello(server.hello())))
    verdict = handshake.decode_verdict(server.verdict(proof, None))

    assert not server.proves(proof)
    assert client.check_verdict(verdict) is Refusal.BAD_SIGNATURE


def test_proof_cannot_be_thrown_back():
    """The server's signature of a handshake is not the client's, nor the other way round."""
    server, client = acceptor(), dialler()
    proof = handshake.decode_proof(client.answer(handshake.decode_hello(server.hello())))
    verdict = handshake.decode_verdict(server.verdict(proof, None))

    assert client.check_verdict(Verdict(proof.signature, 0)) is Refusal.BAD_SIGNATURE
    assert not server.proves(Proof(proof.nonce, US.public, verdict.signature))


def test_replayed_proof_does_not_open_another_connection():
    """A proof belongs to the nonce of one hello."""
    proof = handshake.decode_proof(proof_of(FRIEND, acceptor().hello()))

    assert acceptor().proves(proof)
    assert not Acceptor(US, b"t" * 32, CERTIFICATE).proves(proof)


DECODERS = [
    pytest.param(handshake.decode_hello, hello_of(US), id="hello"),
    pytest.param(handshake.decode_proof, proof_of(FRIEND, hello_of(US)), id="proof"),
    pytest.param(handshake.decode_verdict, verdict_of(US, proof_of(FRIEND, hello_of(US))), id="verdict"),
]


@pytest.mark.parametrize(("decode", "data"), DECODERS)
def test_cut_or_continued_messages_are_malformed(decode, data):
    """Only the exact length is a message."""
    wrong = [data[:size] for size in range(len(data))] + [data + b"\x00"]

    for each in wrong:
        with pytest.raises(MalformedError) as caught:
            decode(each)
        assert caught.value.refusal is Refusal.HANDSHAKE


def test_messages_come_back_as_they_were():
    """What was decoded encodes to the same bytes."""
    hello = hello_of(US)
    proof = proof_of(FRIEND, hello)
    verdict = verdict_of(US, proof, 1)

    assert handshake.encode_hello(handshake.decode_hello(hello)) == hello
    assert handshake.encode_proof(handshake.decode_proof(proof)) == proof
    assert handshake.encode_verdict(handshake.decode_verdict(verdict)) == verdict


@pytest.mark.parametrize("size", range(10))
def test_prefix_is_judged_byte_by_byte(size):
    """Whatever is there may begin a message until a byte shows that it does not."""
    hello = hello_of(US)

    assert handshake.may_begin(hello[:size])
    if 0 < size <= len(PREFIX):
        assert not handshake.may_begin(changed(hello, size - 1)[:size])
