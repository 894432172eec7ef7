"""The vectors of specs/strata.md, as far as packets, provenance, hashes and DIDs answer for them.

Freshness and the windows of keys are judged elsewhere; here their packets must be whole and signed by the key named.
"""

import base64
from dataclasses import dataclass

import pytest

from tests.protocols.strata.build import ALICE_RECOVERY, NOW, context_of, packet_of, text_of, vector, vectors
from waystation.core.dids import encode_did, key_of_did
from waystation.crypto.hashing import blake3_256
from waystation.crypto.signing import KeyPair, verify, verify_any
from waystation.protocols.strata.canonical import canonicalise, document_hash, parse
from waystation.protocols.strata.packet import make_packet, packet_id_text, read_packet, sign_body
from waystation.protocols.strata.provenance import assess
from waystation.protocols.strata.refusals import RefusedError

ELSEWHERE = {"future", "recovery_key_not_allowed"}
"""Details of refusals that need a clock or the history of a key."""

SCHEMA_ERRORS = {"packet_id", "version", "provenance_header_required", "media_hash", "canonical_size"}


@dataclass
class Context:
    """The context of a vector."""

    entry: dict

    def client_keys(self, client_id):
        """Return the client's keys that are valid at the vector's time."""
        known = context_of(self.entry)["client_keys"].get(client_id, [])
        inside = (key for key in known if key["valid_from"] - self.skew <= self.now <= key["valid_until"] + self.skew)
        return tuple(bytes.fromhex(key["pub"]) for key in inside)

    @property
    def roots(self):
        """Return the trusted roots: no vector names any."""
        assert context_of(self.entry)["roots"] == []
        return {}

    @property
    def now(self):
        """Return the vector's time."""
        return self.entry["now"]

    @property
    def skew(self):
        """Return the tolerance."""
        return context_of(self.entry)["clock_skew_seconds"]

    def author_keys(self, author_id):
        """Return the author's keys, windows aside."""
        listed = context_of(self.entry)["static_keys"].get(author_id, [])
        own = key_of_did(author_id)
        return [bytes.fromhex(key["pub"]) for key in listed] or [own]


def verdict(entry):
    """Return what our part of the pipeline answers to a vector, in the vectors' words."""
    context = Context(entry)
    try:
        packet = read_packet(parse(text_of(entry["packet"])), context_of(entry)["max_bytes"])
        if not packet.id_matches:
            return {"result": "ERROR", "code": "invalid_signature", "detail": "packet_id_mismatch"}
        if verify_any(context.author_keys(packet.author_id), packet.preimage, packet.signature) < 0:
            return {"result": "ERROR", "code": "invalid_signature", "detail": "bad_signature"}
        downgrade = assess(packet, context)
    except RefusedError as error:
        refusal = error.refusal
        return {"result": "ERROR", "code": refusal.code.value, "detail": refusal.detail, **dict(refusal.extra)}
    answer = {"result": "OK", "status": "ACCEPTED"}
    return answer if downgrade is None else answer | {"downgrade": downgrade.wire()}


@pytest.mark.parametrize("name", vectors("packet"))
def test_verdict(name):
    """Each packet gets the answer of its vector, or is in order where another part refuses it."""
    entry = vector(name)
    expected = entry["expect"]
    if expected.get("detail") in ELSEWHERE:
        expected = {"result": "OK", "status": "ACCEPTED"}

    assert verdict(entry) == expected


@pytest.mark.parametrize("name", vectors("packet"))
def test_bytes(name):
    """Preimage, id and canonical length are those of the vector."""
    entry = vector(name)
    bare = {key: value for key, value in entry["packet"].items() if key not in {"packet_id", "signature"}}
    preimage = canonicalise(bare)

    assert len(preimage) == entry["preimage_len"]
    assert preimage.decode() == entry.get("preimage_utf8", preimage.decode())
    assert packet_id_text(blake3_256(preimage)) == entry["recomputed_packet_id"]
    assert len(canonicalise(entry["packet"])) == entry["canonical_full_len"]
    if entry["expect"].get("detail") not in SCHEMA_ERRORS:
        assert packet_of(entry["packet"]).preimage == preimage


def test_other_spelling_of_the_numbers():
    """The wire variant of ok-numbers is the same packet."""
    entry = vector("ok-numbers")

    assert read_packet(parse(entry["raw_wire_variant"].encode()), 262_144) == packet_of(entry["packet"])


@pytest.mark.parametrize("name", vectors("raw_packet"))
def test_raw_text(name):
    """Texts that are no I-JSON are refused with the detail of the vector."""
    entry = vector(name)
    with pytest.raises(RefusedError) as caught:
        read_packet(parse(base64.b64decode(entry["raw_base64"])), 262_144)
    refusal = caught.value.refusal

    assert (refusal.code.value, refusal.detail) == (entry["expect"]["code"], entry["expect"]["detail"])


def test_recovery_key_signed_its_packet():
    """err-recovery-key is refused for its key alone: the signature is good."""
    packet = packet_of(vector("err-recovery-key")["packet"])

    assert verify(ALICE_RECOVERY.public, packet.preimage, packet.signature)


def test_did_form():
    """Seed, key and both spellings of the DID belong together."""
    entry = vector("did-form")
    public = KeyPair.from_seed(bytes.fromhex(entry["seed_hex"])).public

    assert public.hex() == entry["public_key_hex"]
    assert encode_did(public) == entry["expect"]["did"]
    assert key_of_did(entry["expect"]["also_accepted_for_same_key"]) == public


def test_document_hash():
    """A document is named by z and the multihash of its canonical form."""
    entry = vector("did-doc-hash")

    assert document_hash(entry["document"]) == entry["expect"]["did_doc_hash"]


def test_worked_example():
    """The example of specs/strata.md 4 has the id printed there, and signing it gives the vector."""
    entry = vector("ok-ascii")
    alice = KeyPair.from_seed(bytes(range(32)))
    made = make_packet(alice, entry["packet"]["content"], timestamp=NOW - 10)

    assert packet_id_text(made.packet_id) == "0x94fd09c4d792d728fde5b1be06af9a6b75fcb3bddc0f8f23a4b33cd07aade4d5"
    assert made.body == entry["packet"]


@pytest.mark.parametrize(
    "name", ["ok-unicode", "ok-numbers", "ok-trust-edge", "ok-expiry-nonce", "downgrade-unknown-enum"]
)
def test_signing_gives_the_vector(name):
    """Ed25519 is deterministic, so our signer makes the very packet of the vector."""
    entry = vector(name)

    assert sign_body(KeyPair.from_seed(bytes(range(32))), entry["packet"]).body == entry["packet"]
