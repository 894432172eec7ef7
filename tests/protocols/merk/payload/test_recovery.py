"""Laws of protocols.merk.salvage."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocols.merk.build import (
    ALICE,
    BOB,
    CAROL,
    EPHEMERAL_SECRET,
    FRAMES,
    NONCE,
    any_content,
    as_original_relays,
    changed,
    frame_of,
    outcome_of,
    vector,
)
from waystation.crypto.signing import sign
from waystation.protocols.merk.messages import MessageType
from waystation.protocols.merk.payload.contents import File, Json, Raw, Text
from waystation.protocols.merk.payload.recovery import is_altered, open_recovered
from waystation.protocols.merk.payload.sealing import Auth, Mode, data_frame, encrypted_frame, open_frame
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.wire import decode_frame, encode_frame, frame_hash

FROM_ALICE = ALICE.signing.public
MANGLED = [
    ("DATA 68 B", Mode.PLAIN, Auth.NONE, Raw(b"hello-from-alice-" * 4)),
    ("DATA short", Mode.PLAIN, Auth.NONE, Raw(b"short")),
    ("SIGNED text", Mode.SIGNED, Auth.LEGACY, Text("signed text")),
    ("SIGNED JSON", Mode.SIGNED, Auth.LEGACY, Json('{"k":1}')),
    ("SIGNED FILE", Mode.SIGNED, Auth.LEGACY, File("a.bin", b"\x01\x02\x03\x04")),
    ("ENCRYPTED text", Mode.ENCRYPTED, Auth.NONE, Text("secret text")),
    ("ENCRYPTED JSON", Mode.ENCRYPTED, Auth.NONE, Json('{"k":2}')),
    ("ENCRYPTED FILE", Mode.ENCRYPTED, Auth.NONE, File("a.bin", b"\x01\x02\x03\x04")),
]


def cut(payload):
    """Return a frame from Alice as the original relay delivers it."""
    return encode_frame(MessageType.DATA, payload, sender=FROM_ALICE)


@pytest.mark.parametrize(("name", "mode", "auth", "content"), MANGLED, ids=[row[0] for row in MANGLED])
def test_mangled_vector_is_opened(name, mode, auth, content):
    """Every content that the original relay mangles is found again, with no more trust than is left of it."""
    opened = open_recovered(as_original_relays(vector(name)), BOB)

    assert (opened.sender, opened.mode, opened.auth, opened.content) == (FROM_ALICE, mode, auth, content)


@pytest.mark.parametrize("data", [data for _, data in FRAMES if data[2] in {2, 4, 5}])
def test_whole_frame_is_opened_as_ever(data):
    """Behind a relay that forwards verbatim, salvage changes nothing."""
    assert open_recovered(data, BOB) == open_frame(data, BOB)
    assert open_recovered(decode_frame(data), BOB) == open_frame(data, BOB)


@given(any_content)
@settings(max_examples=25)
def test_mangled_encryption_is_decrypted_without_trust(content):
    """Whatever was encrypted for us opens; who sent it nobody can prove any more."""
    frame = encrypted_frame(
        ALICE.signing,
        BOB.signing.public,
        BOB.agreement_public,
        content,
        ephemeral_secret=EPHEMERAL_SECRET,
        nonce=NONCE,
    )
    opened = open_recovered(as_original_relays(frame), BOB)

    assert (opened.mode, opened.auth, opened.content) == (Mode.ENCRYPTED, Auth.NONE, content)


@given(st.binary(max_size=200))
def test_anything_else_is_raw(payload):
    """What is neither signed nor encrypted for us is what it is."""
    opened = open_recovered(cut(payload), BOB)

    assert (opened.mode, opened.auth, opened.content) == (Mode.PLAIN, Auth.NONE, Raw(payload))


@pytest.mark.parametrize("name", ["SIGNED text", "ENCRYPTED text"])
def test_changed_or_cut_content_is_only_raw(name):
    """Nothing is salvaged by halves: one byte less or one bit other, and it is bytes without proof."""
    payload = decode_frame(as_original_relays(vector(name))).payload
    bent = [payload[:count] for count in range(len(payload))] + [changed(payload, at) for at in range(len(payload))]

    assert all(open_recovered(cut(part), BOB).content == Raw(part) for part in bent)


def test_signature_of_another_is_only_raw():
    """A signed content in another's name is no proof of either."""
    said = b"\x01in your name"
    payload = sign(CAROL.signing, said) + said

    assert open_recovered(cut(payload), BOB).content == Raw(payload)


def test_signed_32_bytes_are_ambiguous_here_too():
    """An answer to a challenge may arrive through the original relay as well."""
    said = b"\x01" + b"x" * 31

    assert open_recovered(cut(sign(ALICE.signing, said) + said), BOB).auth is Auth.AMBIGUOUS


def test_encryption_for_another_is_only_raw():
    """We do not read what is not ours."""
    mangled = as_original_relays(vector("ENCRYPTED text"))

    assert open_recovered(mangled, CAROL).content == Raw(decode_frame(mangled).payload)


def test_bad_content_behind_a_signature_is_refused():
    """What was proved to be said and makes no sense is refused, not shown as something else."""
    said = b"\x02{"

    assert outcome_of(open_recovered, cut(sign(ALICE.signing, said) + said), BOB) is Refusal.BAD_CONTENT


@pytest.mark.parametrize("kind", [MessageType.SIGNED_DATA, MessageType.ENCRYPTED_DATA])
def test_only_data_is_salvaged(kind):
    """The original relay makes everything DATA; another kind that is not for us is refused."""
    assert outcome_of(open_recovered, encode_frame(kind, b"x" * 200, sender=FROM_ALICE), BOB) is Refusal.NOT_FOR_US


def test_signed_header_is_not_salvaged():
    """The original relay erases header signatures, so a frame that has one was not mangled and is for somebody else."""
    frame = data_frame(ALICE.signing, CAROL.signing.public, b"x", header_signature=True)

    assert outcome_of(open_recovered, frame, BOB) is Refusal.NOT_FOR_US
    assert not is_altered(decode_frame(frame), BOB)


def test_mangled_is_what_is_not_aimed_at_us():
    """The own key in front is the mark of a frame that came whole."""
    assert not is_altered(frame_of(payload=BOB.signing.public + b"x"), BOB)
    assert is_altered(frame_of(payload=BOB.signing.public[:31]), BOB)
    assert is_altered(frame_of(), BOB)


def test_salvaged_names_its_frame():
    """Hash and fingerprint are those of what arrived, whether bytes or a frame were given."""
    mangled = as_original_relays(vector("SIGNED text"))
    opened = open_recovered(mangled, BOB)

    assert opened == open_recovered(decode_frame(mangled), BOB)
    assert opened.frame_hash == frame_hash(mangled)
    assert opened.fingerprint == (FROM_ALICE, hashlib.sha256(mangled[120:]).digest())


def test_frame_that_is_none_is_refused():
    """Salvage is for frames."""
    assert outcome_of(open_recovered, b"x" * 200, BOB) is Refusal.BAD_MAGIC
