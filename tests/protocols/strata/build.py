"""Identities, packets and chains of Strata for tests.

``signed`` and ``certified`` build with the foreign libraries alone, so that they are an oracle for our code and can
build what our code refuses. ``post`` and ``packet_of`` go through ``read_packet``.
"""

import base64
import hashlib
import json
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import nacl.signing
import pytest
import rfc8785
from blake3 import blake3

from waystation.core.dids import encode_did
from waystation.core.settings import InForce
from waystation.crypto.signing import KeyPair
from waystation.protocols.strata.canonical import parse
from waystation.protocols.strata.limits import StrataLimits
from waystation.protocols.strata.packet import Packet, read_packet
from waystation.protocols.strata.refusals import Code, RefusedError

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "strata.json").read_text())
NOW = VECTORS["reference_now"]
BYTES_MAX = VECTORS["default_context"]["max_bytes"]
PEOPLE = {name: KeyPair.from_seed(bytes.fromhex(key["seed_hex"])) for name, key in VECTORS["keys_test_only"].items()}
ALICE, BOB, RELAY, CLIENT = (PEOPLE[name] for name in ("alice", "bob", "relay", "client"))
ALICE_KEY_2, ALICE_RECOVERY = PEOPLE["alice_key2"], PEOPLE["alice_recovery"]
MEDIA_HASH = "0x" + blake3(b"a photo").hexdigest()
EDITED_HASH = "0x" + blake3(b"an edited photo").hexdigest()


def in_force(**limits: int) -> InForce[StrataLimits]:
    """Return the limits that parts of a relay hold to: the defaults but for what is named."""
    return InForce(StrataLimits(**limits))


def did(key: KeyPair) -> str:
    """Return the self-certifying DID of a key."""
    return encode_did(key.public)


def key(number: int) -> KeyPair:
    """Return the key pair called ``number``, none of the named people's."""
    return KeyPair.from_seed(hashlib.sha256(b"strata %d" % number).digest())


def vector(name: str) -> dict[str, Any]:
    """Return the vector called ``name``, its text written out where the file holds a recipe."""
    entry = deepcopy(next(entry for entry in VECTORS["vectors"] if entry["id"] == name))
    if "recipe" in entry:
        entry["packet"]["content"]["text"] = "a" * entry["recipe"]["text_len"]
    return entry


def vectors(kind: str) -> list[str]:
    """Return the names of all vectors of a kind."""
    return [entry["id"] for entry in VECTORS["vectors"] if entry["kind"] == kind]


def context_of(entry: dict[str, Any]) -> dict[str, Any]:
    """Return what a relay knows when it judges a vector."""
    return VECTORS["default_context"] | entry.get("context_override", {})


def jcs_hash(value: object) -> str:
    """Return 0x and the BLAKE3 of the canonical form."""
    return "0x" + blake3(rfc8785.dumps(value)).hexdigest()


def sign_value(key_pair: KeyPair, value: object) -> str:
    """Return the signature text over the canonical form of a value."""
    return sign_bytes(key_pair, rfc8785.dumps(value))


def sign_bytes(key_pair: KeyPair, message: bytes) -> str:
    """Return the signature text over a message."""
    return "0x" + nacl.signing.SigningKey(key_pair.seed).sign(message).signature.hex()


def unsigned(content: dict[str, Any] | None = None, key_pair: KeyPair = ALICE, **fields: Any) -> dict[str, Any]:
    """Return a body without id and signature; ``fields`` add to it or replace what it has."""
    body = {
        "version": 1,
        "timestamp": NOW - 10,
        "author_id": did(key_pair),
        "content": content if content is not None else {"type": "POST", "text": "hello"},
    }
    return body | fields


def signed(body: dict[str, Any], key_pair: KeyPair = ALICE) -> dict[str, Any]:
    """Return the body with id and signature, whether or not its schema is right."""
    bare = {name: value for name, value in body.items() if name not in {"packet_id", "signature"}}
    preimage = rfc8785.dumps(bare)
    identity = {"packet_id": "0x" + blake3(preimage).hexdigest(), "signature": sign_bytes(key_pair, preimage)}
    return bare | identity


def text_of(body: object) -> bytes:
    """Return a wire text of a value, in the spelling of a library that knows nothing of JCS."""
    return json.dumps(body, ensure_ascii=False).encode()


def packet_of(body: dict[str, Any], bytes_max: int = BYTES_MAX) -> Packet:
    """Return the packet that a body is once it has been on the wire."""
    return read_packet(parse(text_of(body)), bytes_max)


def post(text: str = "hello", key_pair: KeyPair = ALICE, **fields: Any) -> Packet:
    """Return a signed POST; ``fields`` are top-level ones."""
    return packet_of(signed(unsigned({"type": "POST", "text": text}, key_pair, **fields), key_pair))


def packet(content: dict[str, Any], key_pair: KeyPair = ALICE, **fields: Any) -> Packet:
    """Return a signed packet with any content."""
    return packet_of(signed(unsigned(content, key_pair, **fields), key_pair))


@contextmanager
def refused(code: Code, detail: str):
    """Expect a refusal with this code and detail, and yield what pytest knows about it."""
    with pytest.raises(RefusedError) as caught:
        yield caught
    assert (caught.value.refusal.code, caught.value.refusal.detail) == (code, detail)


def photo(header: dict[str, Any] | None, media_hash: str = MEDIA_HASH, **fields: Any) -> dict[str, Any]:
    """Return an unsigned body with one picture and a provenance header."""
    content = {"type": "POST", "media": [{"media_hash": media_hash, "media_type": "image/jpeg", "size_bytes": 7}]}
    given = {} if header is None else {"provenance_header": header}
    return unsigned(content, **given, **fields)


def claim(origin_type: str, genesis: str | None = MEDIA_HASH, **fields: Any) -> dict[str, Any]:
    """Return a provenance header without any proof."""
    return {"origin_type": origin_type, "genesis_media_hash": genesis, "edit_history": []} | fields


def client_attested(body: dict[str, Any], key_pair: KeyPair = CLIENT, **fields: Any) -> dict[str, Any]:
    """Return the body with a client attestation, built by the letter of specs/strata.md 9.2."""
    header = body["provenance_header"]
    attestation = {"client_id": did(CLIENT), "client_version": "1.0.0"} | fields
    covered = rfc8785.dumps(body | {"provenance_header": header | {"client_attestation": attestation}})
    genesis = header["genesis_media_hash"] or ""
    digest = hashlib.sha256(covered + header["origin_type"].encode() + genesis.encode()).digest()
    attestation["client_signature"] = sign_bytes(key_pair, digest)
    return body | {"provenance_header": header | {"client_attestation": attestation}}


def certified(subject: str, issuer: str, subject_key: KeyPair, issuer_key: KeyPair, **fields: Any) -> dict[str, Any]:
    """Return an entry of an issuer chain with a strata-cert-v1 certificate; ``fields`` replace those it signs."""
    certificate = {
        "format": "strata-cert-v1",
        "subject": subject,
        "issuer": issuer,
        "subject_public_key": "0x" + subject_key.public.hex(),
        "valid_from": NOW - 1_000,
        "valid_until": NOW + 1_000,
    } | fields
    certificate["signature"] = sign_value(issuer_key, certificate)
    return entry(subject, issuer, rfc8785.dumps(certificate))


def entry(subject: str, issuer: str, certificate: bytes) -> dict[str, Any]:
    """Return an entry of an issuer chain around the bytes of a certificate."""
    text = base64.urlsafe_b64encode(certificate).decode().rstrip("=")
    return {"subject": subject, "issuer": issuer, "certificate": text}


def edits(*hashes: str, key_pair: KeyPair, genesis: str = MEDIA_HASH) -> list[dict[str, Any]]:
    """Return an unbroken edit history that leads over ``hashes``, each entry signed."""
    history: list[dict[str, Any]] = []
    previous = genesis
    for number, media_hash in enumerate(hashes):
        edit = {
            "action": "crop",
            "timestamp": NOW - 500 + number,
            "prev_edit_hash": previous,
            "resulting_media_hash": media_hash,
        }
        previous = jcs_hash(edit)
        history.append(edit | {"signature": sign_value(key_pair, edit)})
    return history
