"""Laws of protocols.strata.provenance; the numbers are those of the list in specs/strata.md 9."""

import hashlib
import json
from dataclasses import dataclass, field

import pytest
import rfc8785
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from tests.protocols.strata.build import (
    ALICE,
    BOB,
    CLIENT,
    EDITED_HASH,
    MEDIA_HASH,
    NOW,
    certified,
    claim,
    client_attested,
    did,
    edits,
    jcs_hash,
    key,
    packet_of,
    photo,
    post,
    refused,
    sign_bytes,
    sign_value,
    signed,
    unsigned,
)
from tests.protocols.strata.keys.test_certificate import issue
from waystation.protocols.strata.packet import sign_body
from waystation.protocols.strata.provenance import (
    Downgrade,
    assess,
    mutated,
    restored,
    sign_client_attestation,
)
from waystation.protocols.strata.refusals import Code

ROOT, MAKER, LEAF = key(1), key(2), key(3)
HARDWARE, MODEL, SOFTWARE = "HARDWARE_SECURE_ENCLAVE", "AI_MODEL", "SOFTWARE"
DEVICE_ID = "did:device:d"
CHAIN = [certified(DEVICE_ID, "did:maker:m", LEAF, MAKER), certified("did:maker:m", "did:root:r", MAKER, ROOT)]


@dataclass
class Known:
    """What the relay of these tests knows."""

    clients: dict = field(default_factory=lambda: {did(CLIENT): (CLIENT.public,)})
    roots: dict = field(default_factory=lambda: {"did:root:r": ROOT.public})
    now: int = NOW
    skew: int = 300

    def client_keys(self, client_id):
        """Return the keys of a client."""
        return self.clients.get(client_id, ())


def judged(body, known=None):
    """Return the judgement of a body once the author has signed it."""
    return assess(packet_of(signed(body)), known or Known())


def attested(header, **fields):
    """Return the judgement of a picture with this header, attested by a known client."""
    return judged(client_attested(photo(header), **fields))


def device(genesis=MEDIA_HASH, **fields):
    """Return the header of a device that proves itself."""
    proof = {"device_id": DEVICE_ID, "genesis_media_hash": genesis, "origin_type": HARDWARE}
    proved = {"device_id": DEVICE_ID, "device_signature": sign_value(LEAF, proof), "issuer_chain": CHAIN}
    return claim(HARDWARE, genesis) | proved | fields


def model(genesis=MEDIA_HASH, **fields):
    """Return the header of a model that proves itself."""
    proof = {"genesis_media_hash": genesis, "origin_type": MODEL, "subject": DEVICE_ID}
    return claim(MODEL, genesis) | {"issuer_chain": CHAIN, "issuer_signature": sign_value(LEAF, proof)} | fields


def lacking(header, name):
    """Return the header without a field."""
    return {key: value for key, value in header.items() if key != name}


def test_1_no_header_is_accepted():
    """A packet that claims nothing has nothing to prove."""
    assert assess(post(), Known()) is None


def test_1_unknown_is_accepted():
    """UNKNOWN claims nothing either, whatever stands beside it."""
    assert judged(photo(claim("UNKNOWN", client_attestation="x", issuer_chain="x"))) is None


def test_1_unknown_value_is_downgraded():
    """A value of a later version is no error: it is not believed."""
    assert attested(claim("QUANTUM")) == Downgrade("QUANTUM", "unknown_origin_type")


@pytest.mark.parametrize("header", [claim(SOFTWARE), device(), model(), claim(HARDWARE), claim(MODEL)])
def test_2_missing_client_attestation_is_downgraded(header):
    """Whatever is claimed, and proved: without a client attestation it is not believed, and not refused."""
    assert judged(photo(header)) == Downgrade(header["origin_type"], "missing_client_attestation")
    assert judged(photo(header | {"client_attestation": None})).reason == "missing_client_attestation"


@pytest.mark.parametrize("header", [claim(SOFTWARE), device(), model(), claim(HARDWARE)])
def test_3_unknown_client_is_downgraded(header):
    """A client without a key supports nothing."""
    assert attested(header, client_id="did:strata:stranger") == Downgrade(header["origin_type"], "unknown_client")


@pytest.mark.parametrize("client_id", [None, 5, ["x"]])
def test_3_client_without_a_name_is_unknown(client_id):
    """A name that is no text belongs to nobody."""
    assert attested(claim(SOFTWARE), client_id=client_id).reason == "unknown_client"


@pytest.mark.parametrize("header", [claim(SOFTWARE), device(), model(), claim(MODEL)])
def test_3_bad_client_signature_is_downgraded(header):
    """A signature by another key supports nothing, and is never a rejection."""
    body = client_attested(photo(header), BOB)

    assert judged(body) == Downgrade(header["origin_type"], "invalid_client_attestation")


@pytest.mark.parametrize("attestation", ["x", [], 5, {"client_id": did(CLIENT)}])
@pytest.mark.parametrize("signature", [None, 5, "0x", "0x" + "00" * 64])
def test_3_malformed_client_attestation_is_downgraded(attestation, signature):
    """An attestation that cannot be read is a wrong one."""
    given = attestation | {"client_signature": signature} if isinstance(attestation, dict) else attestation

    assert judged(photo(claim(SOFTWARE, client_attestation=given))).reason == "invalid_client_attestation"


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body | {"timestamp": NOW},
        lambda body: body | {"x_future": 1},
        lambda body: body | {"content": body["content"] | {"text": "other"}},
        lambda body: body | {"provenance_header": body["provenance_header"] | {"genesis_media_hash": EDITED_HASH}},
        lambda body: (
            body
            | {
                "provenance_header": body["provenance_header"]
                | {"client_attestation": body["provenance_header"]["client_attestation"] | {"client_version": "2.0.0"}}
            }
        ),
    ],
)
def test_3_client_signature_covers_the_packet(change):
    """Whatever changes after the client signed makes its attestation worthless."""
    body = client_attested(photo(claim(SOFTWARE)))

    assert judged(body) is None
    assert judged(change(body)).reason == "invalid_client_attestation"


def test_3_any_key_of_the_client_counts():
    """A client may have several keys; sixteen are tried."""
    body = client_attested(photo(claim(SOFTWARE)))
    others = tuple(key(number).public for number in range(20, 36))

    assert judged(body, Known({did(CLIENT): (*others[:15], CLIENT.public)})) is None
    assert judged(body, Known({did(CLIENT): (*others, CLIENT.public)})).reason == "invalid_client_attestation"


@pytest.mark.parametrize("genesis", [MEDIA_HASH, None])
def test_4_software_is_accepted(genesis):
    """An attested SOFTWARE claim stands, with or without a genesis."""
    assert attested(claim(SOFTWARE, genesis)) is None


def test_4_platform_attestation_does_not_matter():
    """It stands outside the client's signature and only colours trust."""
    body = client_attested(photo(claim(SOFTWARE)))
    body["provenance_header"]["client_attestation"]["platform_attestation"] = {"format": "none", "payload": "x"}

    assert judged(body) is None


def test_4_broken_edits_do_not_matter_to_software():
    """Only proved origins need a whole history."""
    assert attested(claim(SOFTWARE, edit_history=[{"action": "crop"}])) is None


def test_5_model_is_accepted():
    """A chain to a root and the leaf's signature prove a model."""
    assert attested(model()) is None
    assert attested(model(None, edit_history=edits(MEDIA_HASH, key_pair=LEAF, genesis=None))) is None


@pytest.mark.parametrize("chain", [None, []])
def test_5_model_without_chain(chain):
    """The proof of a model is its issuer chain."""
    with refused(Code.MISSING_PROOF, "issuer_chain"):
        attested(model(issuer_chain=chain))


def test_5_model_with_a_broken_chain():
    """What is wrong with a chain is told."""
    with refused(Code.INVALID_ISSUER_CHAIN, "unknown_root"):
        attested(model(issuer_chain=CHAIN[:1]))
    with refused(Code.INVALID_ISSUER_CHAIN, "malformed_chain"):
        attested(model(issuer_chain="x"))
    with refused(Code.INVALID_ISSUER_CHAIN, "certificate_not_valid"):
        judged(client_attested(photo(model())), Known(now=NOW + 1_301))


def test_5_no_roots_no_models():
    """A relay without roots believes no chain."""
    with refused(Code.INVALID_ISSUER_CHAIN, "unknown_root"):
        judged(client_attested(photo(model())), Known(roots={}))


@pytest.mark.parametrize(
    "signature", [None, "x", sign_value(LEAF, {"other": 1}), model(EDITED_HASH)["issuer_signature"]]
)
def test_5_model_with_a_wrong_signature(signature):
    """The leaf signs claim, genesis and its own name."""
    with refused(Code.INVALID_PROVENANCE, "issuer_signature"):
        attested(model(issuer_signature=signature))


def test_6_device_is_accepted():
    """A chain that binds the device to a root, and the device's signature, prove hardware."""
    assert attested(device()) is None


def test_6_device_with_p256_and_x509():
    """A secure element with an ECDSA key is a device too."""
    enclave = ec.derive_private_key(12, ec.SECP256R1())
    root = ec.derive_private_key(11, ec.SECP256R1())
    proof = rfc8785.dumps({"device_id": DEVICE_ID, "genesis_media_hash": MEDIA_HASH, "origin_type": HARDWARE})
    r, s = decode_dss_signature(enclave.sign(proof, ec.ECDSA(hashes.SHA256())))
    chain = [issue(DEVICE_ID, "did:root:r", enclave.public_key(), root, authority=False)]
    header = device(device_signature=f"0x{r:064x}{s:064x}", issuer_chain=chain)
    numbers = root.public_key().public_numbers()
    known = Known(roots={"did:root:r": b"\x04" + numbers.x.to_bytes(32, "big") + numbers.y.to_bytes(32, "big")})

    assert judged(client_attested(photo(header)), known) is None


@pytest.mark.parametrize("name", ["device_id", "device_signature", "issuer_chain"])
def test_6_device_without_proof(name):
    """Each part of the proof is asked for by name."""
    with refused(Code.MISSING_PROOF, name):
        attested(lacking(device(), name))
    with refused(Code.MISSING_PROOF, name):
        attested(device(**{name: None}))


def test_6_chain_of_another_device():
    """The chain must be the device's own."""
    with refused(Code.INVALID_ISSUER_CHAIN, "device_not_bound"):
        attested(device(device_id="did:device:other"))


def test_6_chain_that_does_not_hold():
    """A device's chain is judged as a model's."""
    with refused(Code.INVALID_ISSUER_CHAIN, "bad_certificate_signature"):
        judged(client_attested(photo(device())), Known(roots={"did:root:r": key(9).public}))


@pytest.mark.parametrize("signature", [5, "x", sign_value(LEAF, {"other": 1}), device(EDITED_HASH)["device_signature"]])
def test_6_wrong_device_signature(signature):
    """The device signs its name, the claim and the genesis."""
    with refused(Code.INVALID_PROVENANCE, "device_signature"):
        attested(device(device_signature=signature))


@pytest.mark.parametrize("evidence", [{"format": "android-key-attestation", "payload": "x"}, {}, "x"])
def test_6_evidence_nobody_can_check(evidence):
    """Evidence of a format without a verifier is no evidence."""
    with refused(Code.INVALID_ATTESTATION, "unsupported_format"):
        attested(device(attestation_evidence=evidence))


def edited(header_of, history, media_hash=EDITED_HASH):
    """Return the judgement of a picture whose history leads from the genesis to ``media_hash``."""
    return judged(client_attested(photo(header_of(edit_history=history), media_hash)))


OTHER_HASH = "0x" + "cd" * 32


@pytest.mark.parametrize("header_of", [device, model])
def test_7_whole_history_is_accepted(header_of):
    """Each edit names the one before, and the last leads to the picture."""
    assert edited(header_of, edits(EDITED_HASH, key_pair=LEAF)) is None
    assert edited(header_of, edits(OTHER_HASH, OTHER_HASH, EDITED_HASH, key_pair=LEAF)) is None


@pytest.mark.parametrize("header_of", [device, model])
@pytest.mark.parametrize(
    "history",
    [
        [],
        edits(OTHER_HASH, key_pair=LEAF),
        edits(EDITED_HASH, key_pair=LEAF, genesis=OTHER_HASH),
        edits(OTHER_HASH, EDITED_HASH, key_pair=LEAF)[1:],
        edits(OTHER_HASH, OTHER_HASH, EDITED_HASH, key_pair=LEAF)[::2],
        edits(OTHER_HASH, EDITED_HASH, key_pair=LEAF)[::-1],
        [{}],
    ],
)
def test_7_broken_history_is_downgraded(header_of, history):
    """A gap, another order, another beginning or another end is not believed."""
    assert edited(header_of, history).reason == "broken_edit_chain"


def test_7_hash_of_an_edit_leaves_out_its_signature():
    """The next edit binds what was done, not who signed."""
    history = edits(OTHER_HASH, EDITED_HASH, key_pair=LEAF)

    assert history[1]["prev_edit_hash"] == jcs_hash(lacking(history[0], "signature"))


def test_7_edits_of_a_device_are_signed():
    """Every edit of HARDWARE bears the device's signature, those of a model need none."""
    unsigned_edit = [lacking(edits(EDITED_HASH, key_pair=LEAF)[0], "signature")]

    assert edited(device, edits(EDITED_HASH, key_pair=BOB)) == Downgrade(HARDWARE, "broken_edit_chain")
    assert edited(device, unsigned_edit) == Downgrade(HARDWARE, "broken_edit_chain")
    assert edited(model, unsigned_edit) is None


def test_7_refusals_come_before_a_broken_history():
    """A wrong proof is refused although the history alone would only downgrade."""
    with refused(Code.INVALID_PROVENANCE, "device_signature"):
        attested(device(edit_history=[{}], device_signature="x"))


def test_first_reason_wins():
    """Of several faults the first of the list is told."""
    assert judged(photo(claim("QUANTUM"))).reason == "unknown_origin_type"
    assert judged(photo(claim(HARDWARE, issuer_chain="x"))).reason == "missing_client_attestation"
    assert attested(device(edit_history=[{}]), client_id="did:x:y").reason == "unknown_client"


def test_downgrade_on_the_wire():
    """OK and EVENT tell claim, effect and reason."""
    assert Downgrade("SOFTWARE", "unknown_client").wire() == {
        "claimed": "SOFTWARE",
        "origin_type": "UNKNOWN",
        "reason": "unknown_client",
    }


def test_mutated_packet_claims_nothing_and_can_be_restored():
    """The mode mutate removes claim and proofs, keeps everything else, and gives back what was signed."""
    read = packet_of(signed(photo(device(attestation_evidence="x", software="kept"))))
    served, header = mutated(read.body, assess(read, Known()))
    shown = packet_of(json.loads(served))

    assert shown.body["provenance_header"] == claim("UNKNOWN") | {"software": "kept"}
    assert (shown.packet_id, shown.signature) == (read.packet_id, read.signature)
    assert not shown.id_matches
    assert packet_of(restored(shown.body, header)) == read


def test_mutating_changes_no_stored_packet():
    """The packet that was judged stays as it was signed."""
    read = packet_of(signed(photo(claim(SOFTWARE))))
    before = rfc8785.dumps(read.body)
    mutated(read.body, assess(read, Known()))

    assert rfc8785.dumps(read.body) == before == read.canonical


@pytest.mark.parametrize("genesis", [MEDIA_HASH, None])
def test_client_attestation_of_the_sdk(genesis):
    """What the SDK signs is what the letter of the document gives, and a relay believes it."""
    body = photo(claim(SOFTWARE, genesis))
    ours = sign_client_attestation(body, did(CLIENT), "1.0.0", CLIENT)

    assert ours == client_attested(body)
    assert assess(sign_body(ALICE, ours), Known()) is None
    assert "client_attestation" not in body["provenance_header"]


def test_platform_attestation_of_the_sdk():
    """It stands beside the signature, uncovered."""
    platform = {"format": "play-integrity", "payload": "p", "nonce": "n"}
    body = sign_client_attestation(photo(claim(SOFTWARE)), did(CLIENT), "1.0.0", CLIENT, platform)
    given = body["provenance_header"]["client_attestation"]

    assert given["platform_attestation"] == platform
    assert (
        lacking(given, "platform_attestation")
        == (client_attested(photo(claim(SOFTWARE)))["provenance_header"]["client_attestation"])
    )
    assert assess(sign_body(ALICE, body), Known()) is None


def test_client_digest_by_hand():
    """The signed bytes are SHA-256 over canonical packet, origin and genesis, without separators."""
    body = unsigned(provenance_header=claim(SOFTWARE, None))
    named = {"client_id": did(CLIENT), "client_version": "1.0.0"}
    covered = body | {"provenance_header": claim(SOFTWARE, None, client_attestation=named)}
    digest = hashlib.sha256(rfc8785.dumps(covered) + b"SOFTWARE").digest()
    ours = sign_client_attestation(body, did(CLIENT), "1.0.0", CLIENT)

    signature = ours["provenance_header"]["client_attestation"]["client_signature"]
    assert signature == sign_bytes(CLIENT, digest)
