"""Laws of protocols.strata.packet."""

from copy import deepcopy

import nacl.signing
import pytest
import rfc8785
from blake3 import blake3

from tests.protocols.strata.build import (
    ALICE,
    ALICE_KEY_2,
    BOB,
    BYTES_MAX,
    MEDIA_HASH,
    NOW,
    claim,
    did,
    packet,
    packet_of,
    photo,
    post,
    refused,
    sign_bytes,
    signed,
    text_of,
    unsigned,
)
from waystation.core.errors import LocalError
from waystation.crypto.signing import verify
from waystation.protocols.strata.canonical import parse
from waystation.protocols.strata.packet import (
    encode_signature,
    make_packet,
    mark_of,
    packet_id_text,
    parse_packet_id,
    parse_signature,
    read_packet,
    sign_body,
)
from waystation.protocols.strata.refusals import Code, RefusedError

SCHEMA = Code.INVALID_SCHEMA
ME = did(ALICE)
OTHER = did(BOB)
ID = "0x" + "ab" * 32
UPPER = "0x" + "AB" * 32
SPACED = "0x" + "ab" * 20 + " " * 24


def test_fields_are_read():
    """Everything a relay asks of a packet stands in its fields."""
    body = signed(photo(claim("UNKNOWN"), expires_at=NOW + 5, nonce="n", x_future={"a": [None, 1.5]}))
    read = packet_of(body)

    assert read.packet_id == read.computed_id == bytes.fromhex(body["packet_id"][2:])
    assert read.id_matches
    assert (read.author_id, read.content_type, read.timestamp, read.expires_at) == (ME, "POST", NOW - 10, NOW + 5)
    assert read.media_hashes == (MEDIA_HASH,)
    assert read.has_provenance
    assert read.body == body
    assert read.canonical == rfc8785.dumps(body)
    assert verify(ALICE.public, read.preimage, read.signature)


def test_preimage_leaves_out_id_and_signature_at_the_top_alone():
    """Members of these names elsewhere are covered."""
    inner = {"packet_id": ID, "signature": "mine"}
    body = signed(unsigned({"type": "POST", **inner}, x=inner))

    assert packet_of(body).preimage == rfc8785.dumps(unsigned({"type": "POST", **inner}, x=inner))


def test_null_is_kept():
    """Absent and null are two packets."""
    assert post(expires_at=None).packet_id != post().packet_id
    assert post(expires_at=None).expires_at is None


def test_spelling_on_the_wire_does_not_matter():
    """Numbers, spaces, escapes and order of the wire text leave packet and id as they are."""
    body = signed(unsigned({"type": "POST", "n": [100, 0.5, 0], "text": "\u00e9"}))
    text = text_of(body).replace(b"100", b"1.00E+2").replace(b"0.5", b"5e-1").replace(b", 0]", b",-0.0 ]")
    other = text.replace("\u00e9".encode(), b"\\u00e9").replace(b'"version": 1', b'"version":1.0')

    assert read_packet(parse(other), BYTES_MAX) == packet_of(body)
    assert type(read_packet(parse(other), BYTES_MAX).body["version"]) is int


def test_a_changed_packet_has_another_id():
    """The claimed id is kept beside the computed one; nobody is refused here for it."""
    body = signed(unsigned()) | {"timestamp": NOW}
    read = packet_of(body)

    assert not read.id_matches
    assert read.packet_id == parse_packet_id(body["packet_id"])
    assert read.computed_id == blake3(read.preimage).digest()


def test_signature_is_kept_in_lower_case():
    """Either case is read, lower case is stored and served, and the packet is the same."""
    body = signed(unsigned())
    upper = body | {"signature": "0x" + body["signature"][2:].upper()}

    assert packet_of(upper) == packet_of(body)
    assert body["signature"].encode() in packet_of(upper).canonical


def test_argument_is_not_changed():
    """Reading leaves the parsed object alone, in either way of writing."""
    for content in ({"type": "POST"}, {"type": "POST", "x": 1.0}):
        body = signed(unsigned(content))
        value = parse(text_of(body | {"signature": "0x" + body["signature"][2:].upper()}))
        before = deepcopy({name: field for name, field in value.items() if name != "content"})
        read_packet(value, BYTES_MAX)

        assert {name: field for name, field in value.items() if name != "content"} == before


def without(name):
    """Return a change that removes a field."""
    return lambda body: body.pop(name)


def having(name, value):
    """Return a change that sets a field."""
    return lambda body: body.__setitem__(name, value)


def content(name, value):
    """Return a change that sets a field of the content."""
    return lambda body: body["content"].__setitem__(name, value)


def medium(**fields):
    """Return a change that adds a picture with these fields and a header."""

    def change(body):
        body["content"]["media"] = [{"media_hash": MEDIA_HASH} | fields]
        body["provenance_header"] = claim("UNKNOWN")

    return change


BROKEN = {
    "packet_id": [
        without("packet_id"),
        *(having("packet_id", bad) for bad in (None, 5, "", ID[2:], UPPER, SPACED, ID + "00")),
    ],
    "version": [without("version"), *(having("version", bad) for bad in (0, 2, 1.5, "1", True, None, [1]))],
    "timestamp": [without("timestamp"), *(having("timestamp", bad) for bad in (-1, 1.5, "1", True, None, 10**16))],
    "author_id": [
        without("author_id"),
        *(having("author_id", bad) for bad in ("alice", "did:strata:", 5, None, ME + " ")),
    ],
    "content": [without("content"), *(having("content", bad) for bad in ("text", [], None, 5))],
    "type": [content("type", bad) for bad in ("", None, 5, "T" * 65, ["POST"])],
    "signature": [
        without("signature"),
        *(
            having("signature", bad)
            for bad in (None, 5, "", "ab" * 64, "0x" + "a" * 127, "0x" + "ab" * 65, "0X" + "ab" * 64)
        ),
        *(having("signature", bad) for bad in ("0x" + "g" * 128, "0x" + "ab" * 60 + " " * 8, "0x" + "\u0661" * 128)),
    ],
    "expires_at": [having("expires_at", bad) for bad in ("1", 1.5, True, [])],
    "nonce": [having("nonce", bad) for bad in (5, "n" * 129, [])],
    "attestations": [having("attestations", bad) for bad in ({}, "a", 1)],
    "consensus_metrics": [having("consensus_metrics", bad) for bad in ([], "a", 1)],
    "provenance_header": [having("provenance_header", bad) for bad in ([], "UNKNOWN", 1)],
    "provenance_header_required": [content("media", [{"media_hash": MEDIA_HASH}])],
    "origin_type": [having("provenance_header", claim(bad)) for bad in (None, "", 5, "T" * 65)],
    "genesis_media_hash": [having("provenance_header", claim("SOFTWARE", bad)) for bad in ("", "ipfs://x", 5, "0xAB")],
    "edit_history": [
        having("provenance_header", claim("SOFTWARE", edit_history=bad)) for bad in ({}, [1], ["x"], [{}] * 65, "x")
    ],
    "media": [content("media", bad) for bad in ({}, "x", 5, ["x"], [None])],
    "media_hash": [medium(media_hash=bad) for bad in (None, "ipfs://QmHash", 5, UPPER, MEDIA_HASH[:-1])],
    "media_type": [medium(media_type=bad) for bad in (5, [])],
    "size_bytes": [medium(size_bytes=bad) for bad in (-1, 1.5, "7", True)],
    "media_uris": [medium(media_uris=bad) for bad in ("x", [5], {}, [None])],
}


@pytest.mark.parametrize(
    ("detail", "change"),
    [pytest.param(name, bad, id=f"{name}-{n}") for name in BROKEN for n, bad in enumerate(BROKEN[name])],
)
def test_each_row_of_the_schema(detail, change):
    """One wrong field is refused with the field's name."""
    body = signed(unsigned())
    change(body)

    with refused(SCHEMA, detail):
        packet_of(body)


@pytest.mark.parametrize(
    "change",
    [
        having("timestamp", 0),
        having("timestamp", 1.7e9),
        having("author_id", "did:ngo:helpers"),
        content("type", "T" * 64),
        content("type", "x.unknown.v1"),
        having("nonce", "n" * 128),
        having("nonce", None),
        having("expires_at", None),
        having("attestations", [{"any": "thing"}]),
        having("consensus_metrics", {"any": "thing"}),
        having("provenance_header", None),
        having("provenance_header", claim("SOFTWARE", None, edit_history=[{}] * 64)),
        having("provenance_header", {"origin_type": "UNKNOWN"}),
        content("media", []),
        content("media", None),
        content("text", {"not": "text"}),
        content("thread_ref", 5),
        medium(media_type=None, size_bytes=0, media_uris=["ipfs://x"], width=5),
    ],
)
def test_what_the_schema_leaves_open(change):
    """Borders of each row are inside it, optional fields may be null, and content is opaque."""
    body = unsigned()
    change(body)

    assert packet_of(signed(body)).id_matches


@pytest.mark.parametrize("value", [None, [], "x", 5, True])
def test_what_is_no_object_is_no_packet(value):
    """A packet is a JSON object."""
    with refused(SCHEMA, "packet"):
        read_packet(value, BYTES_MAX)


def test_size_answers_before_schema():
    """A packet that is too large is told so, with the limit, even when its schema is wrong as well."""
    body = signed(unsigned({"type": "POST", "text": "a" * 600})) | {"version": 2}
    size = len(rfc8785.dumps(body))

    with refused(Code.PACKET_TOO_LARGE, "canonical_size") as caught:
        packet_of(body, size - 1)
    assert caught.value.refusal.extra == (("max_bytes", size - 1),)
    with refused(SCHEMA, "version"):
        packet_of(body, size)


def test_size_is_that_of_the_canonical_form():
    """Spaces and escapes of the wire text do not count."""
    body = signed(unsigned({"type": "POST", "text": "\u00e9" * 100}))
    wide = text_of(body).replace("\u00e9".encode(), b"\\u00e9").replace(b":", b" :  ", 1)

    assert read_packet(parse(wide), len(rfc8785.dumps(body))).id_matches


def test_number_without_a_form_is_refused():
    """A number that cannot be hashed faithfully refuses the packet, wherever it stands."""
    text = text_of(signed(unsigned({"type": "POST", "n": 0}))).replace(b'"n": 0', b'"n": 9007199254740993')

    with refused(SCHEMA, "not_ijson"):
        read_packet(parse(text), BYTES_MAX)


def test_truncation_at_every_byte_is_refused():
    """No beginning of a packet's text leads to a packet."""
    text = text_of(signed(unsigned({"type": "POST", "text": "\u00e9\U0001f600", "n": 1.5})))
    for end in range(len(text)):
        with pytest.raises(RefusedError):
            read_packet(parse(text[:end]), BYTES_MAX)


BOUND = [
    ({"type": "KEY_EVENT", "key_id": ME + "#keys-2"}, "key_id", OTHER + "#keys-2"),
    ({"type": "KEY_EVENT", "key_id": ME + "#keys-2"}, "key_id", None),
    ({"type": "RECOVERY_APPROVAL", "key_id": ME + "#r"}, "key_id", OTHER + "#r"),
    ({"type": "CLIENT_MANIFEST", "client_id": ME}, "client_id", OTHER),
    ({"type": "CLIENT_MANIFEST", "client_id": ME}, "client_id", None),
    ({"type": "RELAY_DESCRIPTOR", "relay_id": ME}, "relay_id", OTHER),
    ({"type": "CONFIG", "config_type": "REPLICATION_POLICY_V1", "relay_id": ME}, "relay_id", OTHER),
    ({"type": "CONFIG", "scope": "BOOTSTRAP_SNAPSHOT", "source_id": ME}, "source_id", OTHER),
    ({"type": "CONFIG", "config_type": "X", "scope": "BOOTSTRAP_SNAPSHOT", "source_id": ME}, "source_id", OTHER),
    ({"type": "CONFIG", "config_type": "SERVICE_CONFIG", "provider_id": ME}, "provider_id", None),
    ({"type": "CONSENSUS_METRIC", "source_id": ME}, "source_id", OTHER),
    ({"type": "CONSENSUS_METRIC"}, "source_id", 7),
    ({"type": "TRUST_EDGE", "from": ME, "strength": 0.8}, "from", OTHER),
    ({"type": "TRUST_EDGE", "from": ME, "strength": 1}, "strength", 1.0001),
    ({"type": "TRUST_EDGE", "from": ME, "strength": 0}, "strength", -0.1),
    ({"type": "TRUST_EDGE", "from": ME, "strength": 0.5}, "strength", None),
    ({"type": "TRUST_EDGE", "from": ME, "strength": 0.5}, "strength", "0.5"),
    ({"type": "TRUST_EDGE", "from": ME, "strength": 0.5}, "strength", True),
    ({"type": "TRUST_REVOCATION", "from": ME}, "from", OTHER),
    ({"type": "TRUST_REVOCATION", "from": ME}, "strength", 2),
]


@pytest.mark.parametrize(("right", "field", "wrong"), BOUND)
def test_bindings(right, field, wrong):
    """What the relay itself uses must be said by the identity it is about."""
    assert packet(right).id_matches
    with refused(SCHEMA, "binding"):
        packet(right | {field: wrong})


@pytest.mark.parametrize(
    "content",
    [
        {"type": "CONFIG", "relay_id": OTHER},
        {"type": "CONFIG", "config_type": "OTHER", "relay_id": OTHER},
        {"type": "CONFIG", "config_type": ["REPLICATION_POLICY_V1"], "relay_id": OTHER},
        {"type": "RECOVERY_APPROVAL", "target_event": ID},
        {"type": "SOCIAL_EDGE", "from": OTHER, "strength": 7},
    ],
)
def test_other_content_is_opaque(content):
    """What the relay does not use it does not judge."""
    assert packet(content).id_matches


def test_made_packets_are_what_the_foreign_libraries_make():
    """The signer agrees byte for byte with another implementation, floats and strange keys included."""
    content = {"type": "POST", "x": [1.0, 0.1, 1e21], "\ufb33": 1, "\U0001f600": 2}
    made = make_packet(
        ALICE,
        content,
        timestamp=NOW,
        expires_at=NOW + 9,
        nonce="n",
        provenance_header=claim("UNKNOWN"),
        extra={"z": None},
    )
    body = unsigned(content, timestamp=NOW, expires_at=NOW + 9, nonce="n", provenance_header=claim("UNKNOWN"), z=None)

    assert made.canonical == rfc8785.dumps(signed(body))
    assert made == read_packet(parse(made.canonical), BYTES_MAX)
    nacl.signing.VerifyKey(ALICE.public).verify(made.preimage, made.signature)


def test_another_author_may_be_named():
    """A key that a document or key event lists signs for a DID that does not show it."""
    made = make_packet(ALICE_KEY_2, {"type": "POST"}, timestamp=NOW, author_id=ME)

    assert made.author_id == ME
    assert verify(ALICE_KEY_2.public, made.preimage, made.signature)


def test_signing_again_replaces_id_and_signature():
    """Id and signature of a body are never covered."""
    once = sign_body(ALICE, unsigned())

    assert sign_body(ALICE, once.body) == once
    assert sign_body(BOB, once.body).packet_id == once.packet_id


@pytest.mark.parametrize(
    "fields",
    [
        {"content": {"type": ""}, "timestamp": NOW},
        {"content": {"type": "POST"}, "timestamp": -1},
        {"content": {"type": "POST"}, "timestamp": NOW, "author_id": "alice"},
        {"content": {"type": "POST", "x": float("nan")}, "timestamp": NOW},
        {"content": {"type": "POST", "x": b"bytes"}, "timestamp": NOW},
        {"content": {"type": "POST", "text": "a" * 1_048_576}, "timestamp": NOW},
        {"content": {"type": "TRUST_EDGE", "from": OTHER, "strength": 1}, "timestamp": NOW},
    ],
)
def test_what_relays_would_refuse_is_not_made(fields):
    """A caller learns at once, and as its own mistake, what no relay would take."""
    with pytest.raises(LocalError):
        make_packet(ALICE, **fields)


def test_packet_id_text_round_trip():
    """0x and 64 lower-case digits, nothing else."""
    assert parse_packet_id(packet_id_text(bytes(range(32)))) == bytes(range(32))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0x",
        ID[2:],
        "0X" + ID[2:],
        UPPER,
        SPACED,
        ID[:-1],
        ID + "0",
        "0x1e20" + ID[2:],
        "0x" + " a" * 32,
        "0x" + "g" * 64,
    ],
)
def test_other_texts_are_no_ids(text):
    """Upper case, multihash prefixes, spaces and other lengths are refused."""
    assert parse_packet_id(text) is None


def test_signature_text_round_trip():
    """Lower case is written, either is read."""
    text = encode_signature(bytes(range(64)))

    assert text == text.lower()
    assert parse_signature(text) == parse_signature("0x" + text[2:].upper()) == bytes(range(64))
    assert parse_signature(text[:-1] + " ") is None
    assert parse_signature(b"0x") is None


def attestation(name="a-1", target=ID, key_pair=ALICE, **fields):
    """Return a standalone ATTESTATION packet."""
    inner = {"attestation_id": name, "target_packet": target}
    return packet({"type": "ATTESTATION", "target_packet": target, "attestation": inner} | fields, key_pair)


def metric(observed_at=NOW, target=ID, key_pair=ALICE):
    """Return a CONSENSUS_METRIC packet."""
    return packet({"type": "CONSENSUS_METRIC", "target_packet": target, "observed_at": observed_at}, key_pair)


def test_repeated_attestation_has_the_same_mark():
    """Author, attestation and target make the mark; the rest of the packet does not."""
    assert mark_of(attestation()) == mark_of(attestation(note="again"))
    assert len(mark_of(attestation())) == 32


def test_repeated_metric_has_the_same_mark():
    """Author, target and time of observation make the mark."""
    assert mark_of(metric()) == mark_of(metric(float(NOW)))


def test_each_part_of_a_mark_counts():
    """Another id, target, author, time or type is another mark."""
    packets = [attestation(), attestation("a-2"), attestation(target="0x" + "cd" * 32), attestation(key_pair=BOB)]
    packets += [metric(), metric(NOW + 1), metric(target="0x" + "cd" * 32), metric(key_pair=BOB)]

    assert len({mark_of(each) for each in packets}) == len(packets)


@pytest.mark.parametrize(
    "content",
    [
        {"type": "POST", "target_packet": ID, "observed_at": 1},
        {"type": "ATTESTATION", "target_packet": ID},
        {"type": "ATTESTATION", "target_packet": ID, "attestation": {"attestation_id": ""}},
        {"type": "ATTESTATION", "target_packet": ID, "attestation": {"attestation_id": 5}},
        {"type": "ATTESTATION", "target_packet": None, "attestation": {"attestation_id": "a"}},
        {"type": "CONSENSUS_METRIC", "target_packet": ID, "observed_at": "now"},
        {"type": "CONSENSUS_METRIC", "observed_at": 1},
    ],
)
def test_packets_without_a_mark(content):
    """Other types, and parts that are not usable, are never merged."""
    assert mark_of(packet(content)) == b""


def test_signature_over_another_text_does_not_verify():
    """Reading judges no signature; whoever asks gets the truth."""
    body = signed(unsigned()) | {"signature": sign_bytes(ALICE, b"other")}
    read = packet_of(body)

    assert read.id_matches
    assert not verify(ALICE.public, read.preimage, read.signature)
