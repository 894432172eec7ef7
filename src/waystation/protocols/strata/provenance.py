"""Checks where media claim to come from (provenance): a claim is accepted, downgraded to UNKNOWN, or refused.

The relay's intake and the client's ``inspection`` call ``assess`` with a packet. The order is that of RFC-0002 11.5.
Unknown claims, and missing or wrong client attestations, downgrade every claim. Then AI_MODEL and HARDWARE claims need
a proof; a wrong proof is refused. Last, a broken edit history downgrades. A packet is always stored as signed;
``mutated`` makes the form that the mode ``mutate`` serves.

Spec: specs/strata.md 9, 9.1, 9.2 (D10 to D14).
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from waystation.core.dids import is_did
from waystation.crypto.hashing import blake3_256, sha256
from waystation.crypto.issuers import verify_with_key
from waystation.crypto.signing import KeyPair, sign, verify_any
from waystation.protocols.strata.canonical import canonicalise
from waystation.protocols.strata.keys.certificate import Leaf, check_chain
from waystation.protocols.strata.packet import Packet, encode_signature, packet_id_text, parse_signature
from waystation.protocols.strata.refusals import Code, Refusal, RefusedError

__all__ = ["UNKNOWN", "Downgrade", "Lookup", "assess", "mutated", "restored", "sign_client_attestation"]

UNKNOWN: Final = "UNKNOWN"
"""The origin type that claims nothing."""

CLIENT_KEYS_MAX: Final = 16

_HARDWARE: Final = "HARDWARE_SECURE_ENCLAVE"
_AI_MODEL: Final = "AI_MODEL"
_SOFTWARE: Final = "SOFTWARE"
_PROVABLE: Final = frozenset({_HARDWARE, _AI_MODEL, _SOFTWARE})
_UNATTESTED: Final = frozenset({"client_signature", "platform_attestation"})  # a signature cannot cover itself: D13
_REMOVED: Final = frozenset(
    {"client_attestation", "device_id", "device_signature", "issuer_chain", "attestation_evidence"}
)
_Body = dict[str, Any]


class Lookup(Protocol):
    """The roots, time and client keys that a check needs."""

    roots: Mapping[str, bytes]
    """Public key of each trusted root by name: 32 bytes, or an uncompressed point of 65 or 97."""
    now: int
    """Unix seconds."""
    skew: int
    """Seconds of tolerance around the validity of certificates."""

    def client_keys(self, client_id: str) -> tuple[bytes, ...]:
        """Return the keys of a client application that are valid now; empty when it is unknown."""


class Downgrade(NamedTuple):
    """A claim without proof; the packet is accepted with origin UNKNOWN."""

    claimed: str
    reason: str
    """In lower_snake_case."""

    def wire(self) -> dict[str, str]:
        """Return the field ``provenance_downgrade`` of OK and EVENT."""
        return {"claimed": self.claimed, "origin_type": UNKNOWN, "reason": self.reason}


def assess(packet: Packet, lookup: Lookup) -> Downgrade | None:
    """Return the downgrade of a packet, or None when its claim holds or there is none.

    Raises:
        RefusedError: missing_proof, invalid_issuer_chain, invalid_provenance or invalid_attestation.
    """
    if not packet.has_provenance:
        return None
    header = packet.body["provenance_header"]
    claimed = header["origin_type"]
    # Spec 9, item 1: no header, or UNKNOWN: nothing to prove.
    if claimed == UNKNOWN:
        return None
    if claimed not in _PROVABLE:
        # Spec 9, item 1: a word other than the four: downgrade unknown_origin_type.
        return Downgrade(claimed, "unknown_origin_type")
    # Spec 9, item 2: without a client attestation that holds: a downgrade, whatever was claimed (D11).
    if fault := _attestation_fault(packet.body, lookup):
        return Downgrade(claimed, fault)
    # Spec 9, item 3: SOFTWARE stands.
    if claimed == _SOFTWARE:
        return None
    # Spec 9, items 4 and 5: a missing or wrong proof of AI_MODEL or HARDWARE is a refusal.
    leaf = _prove_hardware(header, lookup) if claimed == _HARDWARE else _prove_model(header, lookup)
    signer = leaf.public_key if claimed == _HARDWARE else None
    # Spec 9, item 6: a broken edit history: downgrade broken_edit_chain.
    if not _is_edit_chain_whole(header, packet.media_hashes, signer):
        return Downgrade(claimed, "broken_edit_chain")
    return None


def mutated(body: _Body, downgrade: Downgrade) -> tuple[bytes, _Body]:
    """Return how the mode ``mutate`` serves a downgraded packet, and the header that ``restored`` puts back.

    Returns:
        Canonical bytes of the packet without claim and proofs, id and signature as signed; and the signed header.
    """
    header = body["provenance_header"]
    assert header["origin_type"] == downgrade.claimed
    # Spec 9.1: in ``mutate`` the origin is UNKNOWN and the proofs are gone; id and signature stay as signed.
    shown = {name: value for name, value in header.items() if name not in _REMOVED} | {"origin_type": UNKNOWN}
    return canonicalise(body | {"provenance_header": shown}), header


def restored(body: _Body, original_header: _Body) -> _Body:
    """Return the packet as signed from one served in the mode ``mutate``; the caller checks the id after it."""
    return body | {"provenance_header": original_header}


def sign_client_attestation(
    body: _Body,
    client_id: str,
    client_version: str,
    client_key_pair: KeyPair,
    platform_attestation: Mapping[str, Any] | None = None,
) -> _Body:
    """Return a body whose provenance header carries the attestation of the application that made it.

    Args:
        body: A packet with a provenance header; the author signs it afterwards, and nothing else may change between.
        client_id: DID of the application.
        client_version: A semantic version.
        client_key_pair: The application's key.
        platform_attestation: format, payload and nonce; not covered by the signature.
    """
    named = {"client_id": client_id, "client_version": client_version}
    # Spec 9.2: the client signs before the author does, and its signature leaves itself out (D13).
    bare = _with_attestation(body, named)
    proofs: _Body = {"client_signature": encode_signature(sign(client_key_pair, _client_digest(bare)))}
    if platform_attestation is not None:
        proofs["platform_attestation"] = dict(platform_attestation)
    return _with_attestation(body, named | proofs)


def _with_attestation(body: _Body, attestation: _Body) -> _Body:
    return body | {"provenance_header": body["provenance_header"] | {"client_attestation": attestation}}


def _client_digest(body: _Body) -> bytes:
    """Return the 32 bytes that a client signs. Spec: specs/strata.md 9.2 (D13)."""
    header = body["provenance_header"]
    attestation = {name: value for name, value in header["client_attestation"].items() if name not in _UNATTESTED}
    covered = _with_attestation(body, attestation)
    # Spec 9.2: P is the canonical packet without packet_id and signature.
    covered = {name: value for name, value in covered.items() if name not in {"packet_id", "signature"}}
    genesis = header.get("genesis_media_hash") or ""
    # Spec 9.2: SHA-256 of P, then origin_type, then genesis_media_hash, nothing when null.
    return sha256(canonicalise(covered) + header["origin_type"].encode() + genesis.encode())


def _attestation_fault(body: _Body, lookup: Lookup) -> str:
    """Return why the client attestation does not support the claim, or an empty text when it does."""
    attestation = body["provenance_header"].get("client_attestation")
    if attestation is None:
        return "missing_client_attestation"
    if not isinstance(attestation, dict):
        return "invalid_client_attestation"
    client_id = attestation.get("client_id")
    if not isinstance(client_id, str) or not is_did(client_id):  # no lookup, and no memory, for a text that is no DID
        return "unknown_client"
    keys = lookup.client_keys(client_id)[:CLIENT_KEYS_MAX]
    # Spec 9, item 2: an unknown client is a downgrade, and so is a wrong signature.
    if not keys:
        return "unknown_client"
    signature = parse_signature(attestation.get("client_signature"))
    if signature is None or verify_any(keys, _client_digest(body), signature) < 0:
        return "invalid_client_attestation"
    return ""


def _prove_model(header: _Body, lookup: Lookup) -> Leaf:
    leaf = _vouched(header, lookup)
    _check_proof(header, "issuer_signature", leaf, {"subject": leaf.subject})
    return leaf


def _prove_hardware(header: _Body, lookup: Lookup) -> Leaf:
    device_id = header.get("device_id")
    # Spec 9, item 5: device_id, device_signature or chain absent: missing_proof.
    if not isinstance(device_id, str) or not device_id:
        raise _refused(Code.MISSING_PROOF, "device_id")
    if header.get("device_signature") is None:
        raise _refused(Code.MISSING_PROOF, "device_signature")
    leaf = _vouched(header, lookup)
    # Spec 9, item 5: the leaf's subject must be device_id.
    if leaf.subject != device_id:
        raise _refused(Code.INVALID_ISSUER_CHAIN, "device_not_bound")
    _check_proof(header, "device_signature", leaf, {"device_id": device_id})
    # No format of evidence has a verifier here yet, so whatever is offered is unproved.
    if header.get("attestation_evidence") is not None:
        raise _refused(Code.INVALID_ATTESTATION, "unsupported_format")
    return leaf


def _vouched(header: _Body, lookup: Lookup) -> Leaf:
    chain = header.get("issuer_chain")
    # Spec 9, items 4 and 5: an absent chain is missing_proof, a wrong one invalid_issuer_chain.
    if chain is None or chain == []:
        raise _refused(Code.MISSING_PROOF, "issuer_chain")
    return check_chain(chain, lookup.roots, lookup.now, lookup.skew)


def _check_proof(header: _Body, name: str, leaf: Leaf, bound: dict[str, str]) -> None:
    """Check the leaf's signature in field ``name`` over claim, genesis and what is ``bound``."""
    # Spec 9, items 4 and 5: the leaf signs the canonical claim, genesis hash and its own name.
    claim = {"genesis_media_hash": header.get("genesis_media_hash"), "origin_type": header["origin_type"]}
    signature = parse_signature(header.get(name))
    if signature is None or not verify_with_key(leaf.public_key, canonicalise(claim | bound), signature):
        raise _refused(Code.INVALID_PROVENANCE, name)


def _is_edit_chain_whole(header: _Body, media_hashes: tuple[str, ...], signer: bytes | None) -> bool:
    """Return whether each edit follows the one before and the last leads to media of the packet.

    Args:
        header: The provenance header.
        media_hashes: What the packet shows.
        signer: Key that must have signed each entry; None asks for no signatures.
    """
    expected = result = header.get("genesis_media_hash")
    for edit in header.get("edit_history") or ():
        # Spec 9, item 6: the first prev_edit_hash is the genesis hash, each later one the hash of the entry before.
        if edit.get("prev_edit_hash") != expected:
            return False
        bare = canonicalise({name: value for name, value in edit.items() if name != "signature"})
        # Spec 9, item 6: for hardware the device signs each entry without its signature.
        if signer is not None:
            signature = parse_signature(edit.get("signature"))
            if signature is None or not verify_with_key(signer, bare, signature):
                return False
        expected = packet_id_text(blake3_256(bare))
        result = edit.get("resulting_media_hash")
    # Spec 9, item 6: the last resulting_media_hash is in content.media.
    return result in media_hashes


def _refused(code: Code, detail: str) -> RefusedError:
    return RefusedError(Refusal(code, detail))
