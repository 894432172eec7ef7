"""Laws of the bound form of encryption: what tests/vectors/merk_bound.json says, made here a second time by hand."""

import hashlib
import json
import struct
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.protocols.merk.build import ALICE, BOB, CAROL, EPHEMERAL_SECRET, NONCE, outcome_of
from waystation.core.errors import LocalError
from waystation.crypto.aead_gcm import open_gcm
from waystation.crypto.agreement import agree
from waystation.crypto.hashing import sha256
from waystation.crypto.signing import sign
from waystation.protocols.merk.payload.contents import Extended, Receipt, Text, decode_content, encode_content
from waystation.protocols.merk.payload.sealing import Auth, Mode, decrypt_package, encrypted_frame, open_frame
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.wire import decode_frame, encode_frame

VECTORS = json.loads((Path(__file__).parents[3] / "vectors" / "merk_bound.json").read_text())
FRAMES = {each["name"]: each for each in VECTORS["frames"]}
TIME_MS, ID = VECTORS["time_ms"], bytes(range(16))
KEYS = {"alice": ALICE, "bob": BOB, "carol": CAROL}


def sealed(content, *, sender=ALICE, to=BOB):
    """Return an encrypted frame with the ephemeral key and nonce of the vectors."""
    return encrypted_frame(
        sender.signing,
        to.signing.public,
        to.agreement_public,
        content,
        ephemeral_secret=EPHEMERAL_SECRET,
        nonce=NONCE,
    )


def frame_by_hand(plaintext, associated):
    """Return an encrypted frame from Alice to Bob, made with ``cryptography`` alone."""
    ephemeral = X25519PrivateKey.from_private_bytes(EPHEMERAL_SECRET)
    bob = X25519PrivateKey.from_private_bytes(BOB.agreement_secret).public_key()
    key = hashlib.sha256(ephemeral.exchange(bob)).digest()
    package = ephemeral.public_key().public_bytes_raw() + NONCE + AESGCM(key).encrypt(NONCE, plaintext, associated)
    payload = BOB.signing.public + package
    signature = Ed25519PrivateKey.from_private_bytes(ALICE.signing.seed).sign(payload)
    return struct.pack(">BBBxI16x32s64s", 0x58, 1, 5, len(payload), ALICE.signing.public, signature) + payload


@pytest.mark.parametrize("name", KEYS)
def test_identities_of_the_vectors_are_those_of_the_tests(name):
    """Whoever reads the vectors alone knows every key."""
    keys, written = KEYS[name], VECTORS["keys"][name]

    assert [keys.signing.seed.hex(), keys.signing.public.hex()] == [written["ed_seed"], written["ed_pub"]]
    assert [keys.agreement_secret.hex(), keys.agreement_public.hex()] == [written["x_priv"], written["x_pub"]]


@pytest.mark.parametrize("name", FRAMES)
def test_vector_opens_as_written(name):
    """Every frame of the vectors is opened, or refused, as they say."""
    opens = FRAMES[name]["opens"]
    outcome = outcome_of(open_frame, bytes.fromhex(FRAMES[name]["hex"]), BOB)
    if "refusal" in opens:
        assert outcome is Refusal(opens["refusal"])
        return

    assert (outcome.mode, outcome.auth) == (Mode.ENCRYPTED, Auth(opens["auth"]))
    assert outcome.message_id.hex() == opens["message_id"]
    assert outcome.content == decode_content(bytes.fromhex(opens["plaintext"]))


@pytest.mark.parametrize("name", [name for name in FRAMES if FRAMES[name]["opens"].get("auth") == "bound"])
def test_bound_frame_is_the_one_made_by_hand(name):
    """The associated data are ``merk-bound/1``, sender and target; no byte is added to the wire."""
    plaintext = bytes.fromhex(FRAMES[name]["opens"]["plaintext"])
    associated = b"merk-bound/1" + ALICE.signing.public + BOB.signing.public
    frame = sealed(decode_content(plaintext))

    assert VECTORS["associated_alice_bob"] == associated.hex()
    assert frame.hex() == frame_by_hand(plaintext, associated).hex() == FRAMES[name]["hex"]
    assert len(frame) == 120 + 32 + 32 + 12 + len(plaintext) + 16


def test_content_without_an_id_goes_in_the_legacy_form():
    """What clients of the original read has no associated data and is never called bound."""
    frame = sealed(Text("secret"))

    assert frame == frame_by_hand(b"\x01secret", b"")
    assert open_frame(frame, BOB).auth is Auth.LEGACY


def test_nobody_can_pass_a_bound_message_off_as_his_own():
    """Carol's own signature around Alice's ciphertext opens for nobody: not even as a legacy message of Carol."""
    frame = sealed(Extended(TIME_MS, ID, Text("PIN of the safe: 4711")))
    payload = decode_frame(frame).payload
    signature = Ed25519PrivateKey.from_private_bytes(CAROL.signing.seed).sign(payload)
    stolen = frame[:24] + CAROL.signing.public + signature + payload

    assert open_frame(frame, BOB).auth is Auth.BOUND
    assert outcome_of(open_frame, stolen, BOB) is Refusal.CANNOT_DECRYPT


def test_thief_of_a_home_reads_what_was_recorded_for_it_and_not_what_it_sent():
    """Bob's keys open whatever was encrypted to Bob; the secrets of what he sent are gone since he sent it."""
    content = Extended(TIME_MS, ID, Text("PIN of the safe: 4711"))
    to_bob, from_bob = sealed(content), sealed(content, sender=BOB, to=ALICE)
    package = decode_frame(from_bob).payload[32:]
    associated = b"merk-bound/1" + BOB.signing.public + ALICE.signing.public
    reachable = [agree(BOB.agreement_secret, other) for other in (package[:32], ALICE.agreement_public)]

    assert open_frame(to_bob, BOB).content == content
    assert decrypt_package(package, BOB.signing.public, BOB) is None
    assert [open_gcm(sha256(each), package[32:44], package[44:], associated) for each in reachable] == [None, None]


def test_thief_of_a_home_signs_in_no_other_name():
    """Who has Bob's keys can encrypt to Bob as if from Alice; what Alice has not signed Bob refuses all the same."""
    payload = decode_frame(sealed(Extended(TIME_MS, ID, Text("send the money")))).payload
    forged = encode_frame(5, payload, sender=ALICE.signing.public, signature=sign(BOB.signing, payload))

    assert outcome_of(open_frame, forged, BOB) is Refusal.BAD_SIGNATURE


def test_bound_message_has_one_id_on_both_sides():
    """The id that the sender put inside is the id that the recipient shows."""
    assert open_frame(sealed(Extended(TIME_MS, ID, Text("x"))), BOB).message_id == ID


@pytest.mark.parametrize("count", [0, 65])
def test_receipt_of_no_or_too_many_messages_is_not_made(count):
    """A receipt names 1 to 64 messages."""
    with pytest.raises(LocalError, match="1 to 64"):
        encode_content(Extended(TIME_MS, ID, Receipt((b"i" * 16,) * count)))
