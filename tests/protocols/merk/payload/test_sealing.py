"""Laws of protocols.merk.sealing."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocols.merk.build import (
    ALICE,
    BOB,
    CAROL,
    EPHEMERAL_SECRET,
    ID,
    NONCE,
    SMALL_ORDER_POINTS,
    VECTORS,
    any_content,
    as_original_sends,
    changed,
    malleable,
    outcome_of,
    signed_anew,
    vector,
)
from waystation.core.errors import LocalError
from waystation.crypto.aead_gcm import seal_gcm
from waystation.crypto.agreement import WeakKeyError
from waystation.crypto.signing import sign
from waystation.protocols.merk.messages import ZERO_KEY, ZERO_SIGNATURE, Frame, MessageType
from waystation.protocols.merk.payload.contents import Extended, File, Json, Raw, Text, is_signable
from waystation.protocols.merk.payload.sealing import (
    Auth,
    Mode,
    auth_of_signed,
    data_frame,
    decrypt_package,
    encrypted_frame,
    open_frame,
    signed_frame,
)
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.wire import decode_frame, encode_frame, frame_hash, header_message

TO_BOB = BOB.signing.public
SECRET = Text("secret")
DETERMINISTIC = VECTORS["encrypted_deterministic"]
SIGNED = {
    "SIGNED text": Text("signed text"),
    "SIGNED JSON": Json('{"k":1}'),
    "SIGNED FILE": File("a.bin", b"\x01\x02\x03\x04"),
}
ENCRYPTED = {
    "ENCRYPTED text": Text("secret text"),
    "ENCRYPTED JSON": Json('{"k":2}'),
    "ENCRYPTED FILE": File("a.bin", b"\x01\x02\x03\x04"),
}
PLAIN = {"DATA 68 B": b"hello-from-alice-" * 4, "DATA short": b"short"}


def sealed(content=SECRET, *, sender=ALICE, to=BOB, secret=EPHEMERAL_SECRET):
    """Return an encrypted frame with the key and nonce of the vectors."""
    return encrypted_frame(
        sender.signing, to.signing.public, to.agreement_public, content, ephemeral_secret=secret, nonce=NONCE
    )


def refusal_of(frame, keys=BOB):
    """Return why a frame is refused."""
    refusal = outcome_of(open_frame, frame, keys)
    assert isinstance(refusal, Refusal)
    return refusal


def signed_by_hand(said, *, header_signature=False):
    """Return a SIGNED_DATA frame from Alice to Bob around any bytes, as anybody can make it."""
    payload = TO_BOB + sign(ALICE.signing, said) + said
    frame = encode_frame(MessageType.SIGNED_DATA, payload, sender=ALICE.signing.public)
    if not header_signature:
        return frame
    return signed_anew(frame, sign(ALICE.signing, header_message(frame[:56], payload)))


def package_frame(package):
    """Return an ENCRYPTED_DATA frame from Alice to Bob around any package, with a valid signature."""
    payload = TO_BOB + package
    signature = sign(ALICE.signing, payload)
    return encode_frame(MessageType.ENCRYPTED_DATA, payload, sender=ALICE.signing.public, signature=signature)


# The vectors


@pytest.mark.parametrize("name", PLAIN)
def test_data_vector_is_built_and_opened(name):
    """The original's DATA comes out byte for byte, and proves nothing."""
    frame = vector(name)
    opened = open_frame(frame, BOB)

    assert data_frame(ALICE.signing, TO_BOB, PLAIN[name], header_signature=False) == frame
    assert (opened.sender, opened.mode, opened.auth) == (ALICE.signing.public, Mode.PLAIN, Auth.NONE)
    assert opened.content == Raw(PLAIN[name])


@pytest.mark.parametrize("name", SIGNED)
def test_signed_vector_is_built_and_opened(name):
    """The original's SIGNED_DATA comes out byte for byte, and proves its author only."""
    frame = vector(name)
    opened = open_frame(frame, BOB)

    assert signed_frame(ALICE.signing, TO_BOB, SIGNED[name], header_signature=False) == frame
    assert (opened.sender, opened.mode, opened.auth) == (ALICE.signing.public, Mode.SIGNED, Auth.LEGACY)
    assert opened.content == SIGNED[name]


@pytest.mark.parametrize("name", ENCRYPTED)
def test_encrypted_vector_is_opened(name):
    """The original's ENCRYPTED_DATA opens; its signature leaves out the recipient, and that is told."""
    opened = open_frame(vector(name), BOB)

    assert (opened.sender, opened.mode, opened.auth) == (ALICE.signing.public, Mode.ENCRYPTED, Auth.LEGACY)
    assert opened.content == ENCRYPTED[name]


def test_deterministic_vector_is_built():
    """With the key, nonce and secret of the vectors the whole frame comes out byte for byte, in both scopes."""
    frame = sealed()

    assert frame.hex() == DETERMINISTIC["frame_sig_over_whole_payload"]
    assert (
        as_original_sends(frame, ALICE.signing).hex()
        == (DETERMINISTIC["frame_sig_over_package_only_as_original_sender"])
    )


@pytest.mark.parametrize("name", ["frame_sig_over_whole_payload", "frame_sig_over_package_only_as_original_sender"])
def test_legacy_form_is_legacy_whatever_its_signature_covers(name):
    """Nothing inside the legacy form names its author, so the outer signature is anybody's: both open as legacy."""
    opened = open_frame(bytes.fromhex(DETERMINISTIC[name]), BOB)

    assert (opened.mode, opened.auth, opened.content) == (Mode.ENCRYPTED, Auth.LEGACY, Text("secret"))


def test_package_of_the_vectors_is_decrypted():
    """Ephemeral key, nonce and ciphertext of the vectors give their plaintext."""
    package = bytes.fromhex(DETERMINISTIC["eph_pub"] + DETERMINISTIC["nonce"] + DETERMINISTIC["ciphertext_and_tag"])

    assert decrypt_package(package, ALICE.signing.public, BOB) == (bytes.fromhex(DETERMINISTIC["plaintext"]), False)
    assert decrypt_package(package, ALICE.signing.public, ALICE) is None


# Ours


@given(any_content)
@settings(max_examples=25)
def test_any_content_arrives(content):
    """Signed or encrypted, ours arrives as it was said, by whom it was said; encrypted it is bound with an id."""
    if isinstance(content, Raw) and not is_signable(content.data):
        content = Extended(0, ID, content)
    for frame, mode in (
        (signed_frame(ALICE.signing, TO_BOB, content), Mode.SIGNED),
        (sealed(content), Mode.ENCRYPTED),
    ):
        opened = open_frame(frame, BOB)
        auth = Auth.BOUND if mode is Mode.SIGNED or isinstance(content, Extended) else Auth.LEGACY
        assert (opened.sender, opened.mode, opened.auth) == (ALICE.signing.public, mode, auth)
        assert opened.content == content


@given(st.binary(max_size=100))
@settings(max_examples=25)
def test_any_bytes_arrive_in_data(data):
    """DATA carries bytes without a type, with proof or without."""
    for header_signature, auth in ((True, Auth.BOUND), (False, Auth.NONE)):
        opened = open_frame(data_frame(ALICE.signing, TO_BOB, data, header_signature=header_signature), BOB)
        assert (opened.mode, opened.auth, opened.content) == (Mode.PLAIN, auth, Raw(data))


def test_opened_names_its_frame():
    """The hash is that of the whole frame as it arrived, the fingerprint does not depend on the header."""
    bound = signed_frame(ALICE.signing, TO_BOB, Text("x"))
    bare = signed_frame(ALICE.signing, TO_BOB, Text("x"), header_signature=False)
    first, second = open_frame(bound, BOB), open_frame(bare, BOB)

    assert (first.frame_hash, second.frame_hash) == (frame_hash(bound), frame_hash(bare))
    assert first.fingerprint == second.fingerprint
    assert first.fingerprint == (ALICE.signing.public, hashlib.sha256(bound[120:]).digest())


@pytest.mark.parametrize(
    "frame",
    [
        vector("DATA short"),
        vector("SIGNED text"),
        vector("ENCRYPTED text"),
        signed_frame(ALICE.signing, TO_BOB, Raw(b"")),
    ],
)
def test_decoded_frame_opens_as_its_bytes_do(frame):
    """Who has decoded a frame already gets the same of it."""
    assert open_frame(decode_frame(frame), BOB) == open_frame(frame, BOB)


def test_header_signature_covers_reserved_bytes_as_they_came():
    """A relay passes reserved bytes on, so a later client may use them and sign them."""
    payload = TO_BOB + b"x"
    frame = bytearray(encode_frame(MessageType.DATA, payload, sender=ALICE.signing.public))
    frame[8] = 7
    signature = sign(ALICE.signing, header_message(bytes(frame[:56]), payload))

    assert open_frame(signed_anew(bytes(frame), signature), BOB).auth is Auth.BOUND
    assert refusal_of(changed(signed_anew(bytes(frame), signature), 8)) is Refusal.BAD_SIGNATURE


def test_two_secrets_make_two_ciphertexts():
    """The same text under another ephemeral key has nothing in common with the first."""
    first, second = sealed(), sealed(secret=b"\x0f" * 32)

    assert decode_frame(first).payload[32:64] != decode_frame(second).payload[32:64]
    assert first[-23:] != second[-23:]
    assert open_frame(second, BOB).content == Text("secret")


# Refused


@pytest.mark.parametrize("kind", [MessageType.HANDSHAKE, MessageType.NODE_INFO, 0, 6, 255])
def test_frame_without_content_is_refused(kind):
    """Only three kinds carry contents."""
    assert refusal_of(encode_frame(kind, TO_BOB)) is Refusal.UNKNOWN_TYPE


def test_frame_that_is_none_is_refused():
    """What no frame is does not open."""
    assert refusal_of(b"x" * 200) is Refusal.BAD_MAGIC
    assert refusal_of(sealed()[:-1]) is Refusal.BAD_LENGTH


@pytest.mark.parametrize("kind", [MessageType.DATA, MessageType.SIGNED_DATA, MessageType.ENCRYPTED_DATA])
def test_payload_cut_anywhere_is_refused(kind):
    """A payload without a whole target, signature or package is refused in that order; DATA only shrinks."""
    whole = {
        MessageType.DATA: vector("DATA 68 B"),
        MessageType.SIGNED_DATA: vector("SIGNED text"),
        MessageType.ENCRYPTED_DATA: sealed(),
    }[kind]
    frame = decode_frame(whole)
    for count in range(len(frame.payload)):
        outcome = outcome_of(open_frame, Frame(kind, frame.sender, frame.signature, frame.payload[:count]), BOB)
        if count < 32:
            assert outcome is Refusal.NO_TARGET
        elif kind == MessageType.DATA:
            assert outcome.content == Raw(frame.payload[32:count])
        elif kind == MessageType.ENCRYPTED_DATA and count < 93:
            assert outcome is Refusal.CANNOT_DECRYPT
        else:
            assert outcome is Refusal.BAD_SIGNATURE


@pytest.mark.parametrize("frame", [vector("DATA short"), vector("SIGNED text"), vector("ENCRYPTED text"), sealed()])
def test_frame_for_somebody_else_is_refused(frame):
    """A relay that hands us what is aimed at another gets no answer out of us."""
    assert refusal_of(frame, CAROL) is Refusal.NOT_FOR_US


def test_frame_aimed_anew_is_refused_or_told():
    """Who re-aims a signed content at Carol fails where the recipient is bound, and is told of where it is not."""
    for frame in (signed_frame(ALICE.signing, TO_BOB, Text("x")), sealed()):
        again = frame[:120] + CAROL.signing.public + frame[152:]
        assert refusal_of(again, CAROL) is Refusal.BAD_SIGNATURE
    bare = vector("SIGNED text")
    assert open_frame(bare[:120] + CAROL.signing.public + bare[152:], CAROL).auth is Auth.LEGACY


BENT = {
    "data": data_frame(ALICE.signing, TO_BOB, b"x" * 20, header_signature=True),
    "signed": signed_frame(ALICE.signing, TO_BOB, Text("x" * 20)),
    "encrypted": sealed(Text("x" * 20)),
}


@pytest.mark.parametrize("name", BENT)
def test_every_byte_of_a_bound_frame_is_covered(name):
    """No byte of ours may change on its way: not of the header, the signatures or the content."""
    frame = BENT[name]
    free = set(range(8, 24)) | {3} if name == "encrypted" else set()
    outcomes = {at: outcome_of(open_frame, changed(frame, at), BOB) for at in range(len(frame))}

    assert {at for at, outcome in outcomes.items() if not isinstance(outcome, Refusal)} == free


@pytest.mark.parametrize("name", BENT)
def test_other_sender_is_refused(name):
    """A frame of Alice in Carol's name, or in nobody's, is Carol's as little as Alice's."""
    for sender in (CAROL.signing.public, ZERO_KEY):
        assert refusal_of(BENT[name][:24] + sender + BENT[name][56:]) is Refusal.BAD_SIGNATURE


@pytest.mark.parametrize("name", BENT)
def test_malleable_header_signature_is_refused(name):
    """S plus the group order is the same signature to lax verifiers, and none to us."""
    frame = BENT[name]

    assert refusal_of(signed_anew(frame, malleable(frame[56:120]))) is Refusal.BAD_SIGNATURE


def test_malleable_content_signature_is_refused():
    """So it is inside SIGNED_DATA."""
    frame = vector("SIGNED text")

    assert refusal_of(frame[:152] + malleable(frame[152:216]) + frame[216:]) is Refusal.BAD_SIGNATURE


def test_zero_key_with_zero_signature_is_refused():
    """The key of small order that authenticates at the original one time in four proves nothing here."""
    for said in (bytes([number]) + b"x" for number in range(16)):
        signed = encode_frame(MessageType.SIGNED_DATA, TO_BOB + ZERO_SIGNATURE + said)
        encrypted = encode_frame(MessageType.ENCRYPTED_DATA, sealed(Text("x"))[120:])
        assert refusal_of(signed) is refusal_of(encrypted) is Refusal.BAD_SIGNATURE


def test_encrypted_frame_without_a_signature_is_refused():
    """Encryption proves no sender."""
    assert refusal_of(signed_anew(sealed(), ZERO_SIGNATURE)) is Refusal.BAD_SIGNATURE


def test_wrong_header_signature_is_not_overlooked():
    """A signature in the header is right or the frame is refused, even when its content has one of its own."""
    signature = sign(ALICE.signing, b"something else")

    for name in ("DATA short", "SIGNED text"):
        assert refusal_of(signed_anew(vector(name), signature)) is Refusal.BAD_SIGNATURE


def test_header_signature_does_not_replace_that_of_the_content():
    """A SIGNED_DATA whose content is not signed is refused, whoever signed its header."""
    payload = TO_BOB + sign(CAROL.signing, b"\x01x") + b"\x01x"
    frame = encode_frame(MessageType.SIGNED_DATA, payload, sender=ALICE.signing.public)
    signature = sign(ALICE.signing, header_message(frame[:56], payload))

    assert refusal_of(signed_anew(frame, signature)) is Refusal.BAD_SIGNATURE


def test_package_for_another_is_refused():
    """A frame aimed at us that we cannot decrypt is refused."""
    package = decode_frame(sealed(to=CAROL)).payload[32:]

    assert refusal_of(package_frame(package)) is Refusal.CANNOT_DECRYPT


@pytest.mark.parametrize("point", SMALL_ORDER_POINTS)
def test_ephemeral_key_of_small_order_is_refused(point):
    """With such a key everybody knows the secret, whoever the recipient is, so nothing opens under it."""
    package = point + NONCE + seal_gcm(hashlib.sha256(bytes(32)).digest(), NONCE, b"\x01known to all")

    assert refusal_of(package_frame(package)) is Refusal.CANNOT_DECRYPT
    assert decrypt_package(package, ALICE.signing.public, BOB) is None


@pytest.mark.parametrize("point", SMALL_ORDER_POINTS)
def test_recipient_key_of_small_order_is_refused(point):
    """Nothing is encrypted to a key with which everybody could read it."""
    with pytest.raises(WeakKeyError):
        encrypted_frame(ALICE.signing, TO_BOB, point, Text("x"), ephemeral_secret=EPHEMERAL_SECRET, nonce=NONCE)


@pytest.mark.parametrize("said", [b"\x01\xff", b"\x02{", b"\x03\xff", b"\x05x"])
def test_bad_content_is_refused_behind_its_signature(said):
    """Signed or encrypted nonsense stays nonsense."""
    package = decode_frame(sealed()).payload[32:76]
    key = bytes.fromhex(DETERMINISTIC["aes_key_sha256"])

    assert refusal_of(package_frame(package + seal_gcm(key, NONCE, said))) is Refusal.BAD_CONTENT
    if said[0] < 4:
        assert refusal_of(signed_by_hand(said)) is Refusal.BAD_CONTENT


# Thirty-two bytes


def test_answer_to_a_challenge_is_told_as_ambiguous():
    """A server that chose its challenge can pass the answer off as a signed text; we say that it may be one."""
    challenge = b"\x01I owe the server ten thousand.."
    opened = open_frame(signed_by_hand(challenge), BOB)

    assert len(challenge) == 32
    assert (opened.auth, opened.content) == (Auth.AMBIGUOUS, Text(challenge[1:].decode()))


def test_header_signature_resolves_the_ambiguity():
    """No server gets a header signature out of a handshake."""
    frame = signed_frame(ALICE.signing, TO_BOB, Text("x" * 31))

    assert frame == signed_by_hand(b"\x01" + b"x" * 31, header_signature=True)
    assert open_frame(frame, BOB).auth is Auth.BOUND


def test_our_own_32_bytes_always_have_a_header_signature():
    """We never send what could be mistaken for an answer to a challenge."""
    with pytest.raises(LocalError, match="challenge"):
        signed_frame(ALICE.signing, TO_BOB, Text("x" * 31), header_signature=False)


@pytest.mark.parametrize(
    ("count", "auth"), [(0, Auth.LEGACY), (31, Auth.LEGACY), (32, Auth.AMBIGUOUS), (33, Auth.LEGACY)]
)
def test_only_32_bytes_are_ambiguous(count, auth):
    """A challenge has just one size."""
    assert auth_of_signed(b"x" * count) is auth
    assert open_frame(signed_by_hand(b"x" * count), BOB).auth is auth
