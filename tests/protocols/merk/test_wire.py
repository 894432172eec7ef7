"""Laws of protocols.merk.wire: frames and what is signed."""

import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocols.merk.build import (
    ADVERT,
    ALICE,
    BOB,
    FRAMES,
    INFOS,
    KEY,
    NODE,
    OTHER_NODE,
    VECTORS,
    changed,
    infos,
    key_bytes,
    malleable,
    outcome_of,
    signature_bytes,
    vector,
)
from waystation.core.errors import LocalError
from waystation.crypto.signing import sign, verify
from waystation.protocols.merk import messages, wire
from waystation.protocols.merk.messages import (
    CONFIRMATION,
    HEADER_BYTES,
    ZERO_KEY,
    ZERO_SIGNATURE,
    Forward,
    KeyAdvert,
    MessageType,
    PresenceKind,
    RequestServers,
)
from waystation.protocols.merk.refusals import MalformedError, Refusal

NAMES = [name for name, _ in FRAMES]
DATA = vector("DATA 68 B")


def refusal_of(data):
    """Return why a frame is refused, the same by both ways of reading one."""
    with pytest.raises(MalformedError) as whole:
        wire.decode_frame(data)
    with pytest.raises(MalformedError) as head:
        wire.read_head(data)
    assert whole.value.refusal is head.value.refusal
    return whole.value.refusal


def encoded_again(data):
    """Return a frame after it was decoded and encoded."""
    frame = wire.decode_frame(data)
    return wire.encode_frame(frame.kind, frame.payload, sender=frame.sender, signature=frame.signature)


# The vectors


@pytest.mark.parametrize(("name", "data"), FRAMES, ids=NAMES)
def test_vector_decodes_and_encodes_to_itself(name, data):
    """Each frame of the original client and of a relay before it survives a round trip byte for byte."""
    assert encoded_again(data) == data


@pytest.mark.parametrize("name", ["frame_sig_over_whole_payload", "frame_sig_over_package_only_as_original_sender"])
def test_deterministic_vector_decodes_and_encodes_to_itself(name):
    """So do the encrypted frames with known keys."""
    data = bytes.fromhex(VECTORS["encrypted_deterministic"][name])

    assert encoded_again(data) == data


@pytest.mark.parametrize(("name", "data"), FRAMES, ids=NAMES)
def test_vector_cut_anywhere_is_refused(name, data):
    """A frame is whole with its last byte and not one earlier: SHORT inside the header, BAD_LENGTH behind it."""
    refusals = [refusal_of(data[:count]) for count in range(len(data))]

    assert refusals == [Refusal.SHORT] * HEADER_BYTES + [Refusal.BAD_LENGTH] * (len(data) - HEADER_BYTES)


@pytest.mark.parametrize("name", ["alice", "bob"])
def test_handshake_is_rebuilt(name):
    """A challenge has neither sender nor signature, its answer is its payload signed, the confirm is one byte."""
    client = {"alice": ALICE, "bob": BOB}[name].signing
    frames = {entry["name"]: bytes.fromhex(entry["hex"]) for entry in VECTORS["verbatim_relay"] if entry["who"] == name}
    payload = wire.decode_frame(frames["challenge"]).payload
    relay_key = wire.decode_frame(frames["confirm"]).sender

    assert wire.encode_frame(MessageType.HANDSHAKE, payload) == frames["challenge"]
    assert (
        wire.encode_frame(MessageType.HANDSHAKE, payload, sender=client.public, signature=sign(client, payload))
        == frames["answer"]
    )
    assert wire.encode_frame(MessageType.HANDSHAKE, CONFIRMATION, sender=relay_key) == frames["confirm"]


def test_request_servers_is_rebuilt():
    """The original client's question for servers is a NODE_INFO of one byte, with its key and no signature."""
    data = vector("REQUEST_SERVERS")

    assert wire.encode_info_frame(RequestServers(), ALICE.signing.public) == data
    assert wire.decode_info_frame(data) == RequestServers()


# The header


def test_fields_stand_where_the_digest_says():
    """Specs/merk.md 1 gives every field its offset, and reserved bytes are sent as zero."""
    data = wire.encode_frame(5, b"pay", sender=b"k" * 32, signature=b"s" * 64)

    assert data[:8].hex() == "5801050000000003"
    assert data[8:24] == bytes(16)
    assert data[24:56] == b"k" * 32
    assert data[56:120] == b"s" * 64
    assert data[120:] == b"pay"


@pytest.mark.parametrize(
    ("at", "value", "refusal"),
    [
        (0, 0x59, Refusal.BAD_MAGIC),
        (1, 0, Refusal.BAD_VERSION),
        (1, 2, Refusal.BAD_VERSION),
        (7, 99, Refusal.BAD_LENGTH),
        (7, 101, Refusal.BAD_LENGTH),
        (4, 0xFF, Refusal.BAD_LENGTH),
    ],
)
def test_wrong_header_is_refused(at, value, refusal):
    """Magic, version and the exact length are checked; the first of them that is wrong is told."""
    assert refusal_of(DATA[:at] + bytes([value]) + DATA[at + 1 :]) is refusal


@pytest.mark.parametrize("length", [0, 1, 99, 101, 2**31, 2**32 - 1])
def test_lying_length_is_refused_without_its_bytes(length):
    """A declared length is compared with what is there, never allocated."""
    lying = DATA[:4] + length.to_bytes(4, "big") + DATA[8:]
    tracemalloc.start()

    assert refusal_of(lying) is Refusal.BAD_LENGTH
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


def test_junk_behind_a_frame_is_refused():
    """One frame is one message: what follows it is no second one."""
    assert refusal_of(DATA + b"\0") is Refusal.BAD_LENGTH
    assert refusal_of(DATA + DATA) is Refusal.BAD_LENGTH


def test_reserved_bytes_are_ignored():
    """Whatever stands in the seventeen reserved bytes, the frame is the same."""
    reserved = DATA[:3] + b"\xff" + DATA[4:8] + b"\xff" * 16 + DATA[24:]

    assert wire.decode_frame(reserved) == wire.decode_frame(DATA)
    assert wire.read_head(reserved) == wire.read_head(DATA)


@pytest.mark.parametrize("kind", [0, 6, 0x7F, 255])
def test_unknown_kind_is_kept(kind):
    """What to do with a kind that nobody knows is not the parser's to say."""
    assert wire.decode_frame(wire.encode_frame(kind, b"")).kind == kind


def test_head_is_what_the_frame_says():
    """Reading only the head tells kind and sender of the same frame."""
    assert wire.read_head(DATA) == (MessageType.DATA, ALICE.signing.public)


def test_target_is_the_beginning_of_the_payload():
    """A frame is aimed at the first 32 bytes of its payload, and at nobody when there are fewer."""
    assert wire.target_of(DATA) == BOB.signing.public
    assert wire.target_of(wire.encode_frame(2, b"t" * 32)) == b"t" * 32
    assert wire.target_of(wire.encode_frame(2, b"t" * 31)) is None
    assert wire.target_of(wire.encode_frame(2, b"")) is None


def test_payload_beyond_the_length_field_is_refused():
    """A u32 tells the length, so a longer payload is the caller's mistake."""
    with pytest.raises(LocalError, match="4294967295"):
        wire.encode_header(2, 2**32, ZERO_KEY)


@given(st.integers(0, 255), st.binary(max_size=300), key_bytes, signature_bytes)
def test_any_frame_survives(kind, payload, sender, signature):
    """What is encoded decodes to itself."""
    frame = wire.decode_frame(wire.encode_frame(kind, payload, sender=sender, signature=signature))

    assert frame == messages.Frame(kind, sender, signature, payload)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_refused(data):
    """Nothing but a documented refusal comes of arbitrary bytes."""
    frame = outcome_of(wire.decode_frame, data)

    if isinstance(frame, Refusal):
        assert frame in {Refusal.SHORT, Refusal.BAD_MAGIC, Refusal.BAD_VERSION, Refusal.BAD_LENGTH}
    else:
        assert frame.payload == data[HEADER_BYTES:]


def test_large_frame_is_checked_without_a_copy():
    """Sixteen mebibytes are checked by their head alone, and taken apart with one copy of the payload."""
    size = 16 * 1024 * 1024
    data = wire.encode_frame(2, bytes(size))
    tracemalloc.start()

    wire.read_head(data)
    assert tracemalloc.get_traced_memory()[1] < 10_000
    frame = wire.decode_frame(data)
    assert tracemalloc.get_traced_memory()[1] < size + 100_000
    tracemalloc.stop()
    assert len(frame.payload) == size


def test_hash_names_a_frame():
    """The first half of SHA-256 over the whole frame, header and signature with it."""
    assert wire.frame_hash(b"abc").hex() == "ba7816bf8f01cfea414140de5dae2223"
    assert wire.frame_hash(DATA) != wire.frame_hash(changed(DATA, 8))


# NODE_INFO frames


@pytest.mark.parametrize(("info", "written"), INFOS)
def test_info_frame_is_header_and_payload(info, written):
    """A NODE_INFO frame has the sender's key, a zero signature and the payload written by hand."""
    data = wire.encode_info_frame(info, KEY)

    assert wire.decode_frame(data) == messages.Frame(3, KEY, ZERO_SIGNATURE, bytes.fromhex(written))
    assert wire.decode_info_frame(data) == info


@given(infos)
def test_info_frame_survives(info):
    """Frame by frame or payload by payload, the same is said."""
    data = wire.encode_info_frame(info, KEY)

    assert wire.decode_info_frame(data) == wire.decode_info(wire.encode_info(info)) == info


def test_notice_of_many_is_that_of_the_vectors():
    """What two nodes say to each other, byte for byte; cut anywhere it is no such frame."""
    said, _ = VECTORS["between_nodes"]
    data = bytes.fromhex(said["hex"])
    info = messages.Deliveries(said["code"], tuple(map(bytes.fromhex, said["ids"])))

    assert wire.decode_info_frame(data) == info
    assert wire.encode_info_frame(info, bytes.fromhex(VECTORS["clients"]["alice"]["ed_pub"])) == data
    assert {outcome_of(wire.read_head, data[:count]) for count in range(len(data))} <= {
        Refusal.SHORT,
        Refusal.BAD_LENGTH,
    }


def test_run_of_frames_is_that_of_the_vectors():
    """FORWARDS with two frames, byte for byte (MERK-RUNS); its payload cut anywhere is refused."""
    _, said = VECTORS["between_nodes"]
    data, key = bytes.fromhex(said["hex"]), bytes.fromhex(said["origin"])
    frames = zip(map(bytes.fromhex, said["ids"]), map(bytes.fromhex, said["frames"]), strict=True)
    info = messages.ForwardRun(said["hop"], key, tuple(frames))

    assert wire.decode_info_frame(data) == info
    assert wire.encode_info_frame(info, key) == data
    assert {outcome_of(wire.decode_info_frame, data[:size]) for size in range(121, len(data))} == {
        Refusal.MALFORMED_INFO
    }


def test_empty_info_frame_says_nothing():
    """A NODE_INFO without a payload is no error."""
    assert wire.decode_info_frame(wire.encode_frame(3, b"")) is None


def test_forwarded_frame_is_copied_once_each_way():
    """A large frame between nodes costs its size once to wrap and once to unwrap."""
    size = 4 * 1024 * 1024
    forward = Forward(1, b"i" * 16, KEY, bytes(size))
    tracemalloc.start()

    data = wire.encode_info_frame(forward, KEY)
    wrapped = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    again = wire.decode_info_frame(data)
    unwrapped = tracemalloc.get_traced_memory()[1] - size
    tracemalloc.stop()

    assert again == forward
    assert wrapped < size + 100_000
    assert unwrapped < size + 100_000


# What is signed


def test_statements_are_laid_out_as_printed():
    """Each begins with its own name, and no two can have the same bytes (specs/merk.md 7 and 10)."""
    auth = wire.auth_message(b"a" * 32, b"b" * 32, b"c" * 32, b"d" * 32, 1, 0)

    assert auth == b"merk-ext-auth/1" + b"a" * 32 + b"b" * 32 + b"c" * 32 + b"d" * 32 + b"\x01\x00"
    assert wire.advert_message(b"a" * 32, b"x" * 32, 258) == b"merk-keys/1" + b"a" * 32 + b"x" * 32 + bytes(
        (0, 0, 0, 0, 0, 0, 1, 2)
    )
    assert wire.presence_message(1, b"a" * 32, b"n" * 32, 258, 3) == b"merk-presence/1" + b"\x01" + b"a" * 32 + (
        b"n" * 32 + bytes((0, 0, 0, 0, 0, 0, 1, 2)) + bytes((0, 0, 0, 0, 0, 0, 0, 3))
    )
    assert wire.header_message(b"h" * 56, b"payload") == b"merk-frame/1" + b"h" * 56 + b"payload"


def test_proof_of_one_side_is_none_of_the_other():
    """Keys, nonces and roles are told apart, so a proof cannot be sent back to who made it."""
    said = wire.auth_message(NODE.public, OTHER_NODE.public, b"1" * 32, b"2" * 32, 1, 0)
    reflected = wire.auth_message(OTHER_NODE.public, NODE.public, b"2" * 32, b"1" * 32, 0, 1)

    assert verify(NODE.public, said, sign(NODE, said))
    assert not verify(NODE.public, reflected, sign(NODE, said))


def test_own_advert_is_valid():
    """What a client says about its own key stands."""
    assert wire.is_advert_valid(ADVERT)
    assert (ADVERT.key, ADVERT.agreement_key) == (ALICE.signing.public, ALICE.agreement_public)


@pytest.mark.parametrize(
    "advert",
    [
        KeyAdvert(BOB.signing.public, ADVERT.agreement_key, ADVERT.time_ms, ADVERT.signature),
        KeyAdvert(ADVERT.key, BOB.agreement_public, ADVERT.time_ms, ADVERT.signature),
        KeyAdvert(ADVERT.key, ADVERT.agreement_key, ADVERT.time_ms + 1, ADVERT.signature),
        KeyAdvert(ADVERT.key, ADVERT.agreement_key, ADVERT.time_ms, malleable(ADVERT.signature)),
        KeyAdvert(ADVERT.key, ADVERT.agreement_key, ADVERT.time_ms, changed(ADVERT.signature, 0)),
        KeyAdvert(ADVERT.key, ADVERT.agreement_key, ADVERT.time_ms, ZERO_SIGNATURE),
        KeyAdvert(ZERO_KEY, ADVERT.agreement_key, 0, ZERO_SIGNATURE),
    ],
    ids=["other key", "other agreement key", "other time", "malleable", "bent", "unsigned", "zero key"],
)
def test_changed_advert_is_not_valid(advert):
    """Nobody else can tie a key to an identity, nor write the same advert in another way."""
    assert not wire.is_advert_valid(advert)


PRESENCE = wire.make_presence(ALICE.signing, PresenceKind.CONNECTED, NODE.public, 1_700_000_000_000, 1_700_000_600_000)


def test_own_presence_is_valid():
    """What a client says about its own place stands."""
    assert wire.is_presence_valid(PRESENCE)
    assert (PRESENCE.client, PRESENCE.node) == (ALICE.signing.public, NODE.public)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": PresenceKind.MAILBOX},
        {"client": BOB.signing.public},
        {"node": OTHER_NODE.public},
        {"issued_ms": PRESENCE.issued_ms + 1},
        {"until_ms": PRESENCE.until_ms + 1},
        {"signature": malleable(PRESENCE.signature)},
        {"signature": changed(PRESENCE.signature, 0)},
        {"signature": ZERO_SIGNATURE},
        {"client": ZERO_KEY, "signature": ZERO_SIGNATURE},
    ],
    ids=["kind", "client", "node", "issued", "until", "malleable", "bent", "unsigned", "zero key"],
)
def test_changed_presence_is_not_valid(change):
    """Nobody else can say where a client is, and a word about one node, time or kind proves no other."""
    assert not wire.is_presence_valid(replace(PRESENCE, **change))


def test_frame_is_signed_by_its_sender_or_not():
    """Header signature of types 2 and 4, the signature of type 5 over its payload, or over all behind the target."""
    payload = BOB.signing.public + bytes(92)
    header56 = wire.encode_header(2, len(payload), ALICE.signing.public)
    signed = header56 + sign(ALICE.signing, wire.header_message(header56, payload)) + payload
    ours, legacy = (
        wire.encode_frame(5, payload, sender=ALICE.signing.public, signature=sign(ALICE.signing, covered))
        for covered in (payload, payload[32:])
    )

    assert all(wire.is_frame_signed(frame) for frame in (signed, ours, legacy))
    assert not any(wire.is_frame_signed(changed(frame, 200)) for frame in (signed, ours, legacy))
    assert not wire.is_frame_signed(changed(signed, 3))
    assert not wire.is_frame_signed(DATA)
