"""Where media come from, as far as it can be proved: accept, downgrade to UNKNOWN, or refuse.

The order is RFC-0002 11.5: unknown claims and missing or wrong client attestations downgrade, whatever was claimed;
only then do AI_MODEL and HARDWARE have to prove themselves, and a wrong proof is refused. A broken edit history comes
last and downgrades. A packet is stored as signed in every case; ``mutated`` is how the mode ``mutate`` shows it.
Spec: specs/strata.md 9, 9.1, 9.2 (D10 to D14).
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from waystation.core.dids import is_did
from waystation.crypto.hashing import blake3_256, sha256
from waystation.crypto.issuers import verify_with_key
from waystation.crypto.signing import KeyPair, sign, verify_any
from waystation.protocols.strata.canonical import canonicalise
from waystation.protocols.strata.certificate import Leaf, check_chain
from waystation.protocols.strata.packet import Packet, encode_signature, packet_id_text, parse_signature
from waystation.protocols.strata.refusals import Code, Refusal, RefusedError

__all__ = ["UNKNOWN", "Downgrade", "Lookup", "judge", "mutated", "restored", "sign_client_attestation"]

UNKNOWN: Final = "UNKNOWN"
"""The origin type that claims nothing."""

CLIENT_KEYS_MAX: Final = 16

_HARDWARE: Final = "HARDWARE_SECURE_ENCLAVE"
_AI_MODEL: Final = "AI_MODEL"
_SOFTWARE: Final = "SOFTWARE"
_PROVABLE: Final = frozenset({_HARDWARE, _AI_MODEL, _SOFTWARE})
_UNATTESTED: Final = frozenset({"client_signature", "platform_attestation"})  # what cannot cover itself: D13
_REMOVED: Final = frozenset(
    {"client_attestation", "device_id", "device_signature", "issuer_chain", "attestation_evidence"}
)
_Body = dict[str, Any]


class Lookup(Protocol):
    """What a relay knows when it judges."""

    roots: Mapping[str, bytes]
    """Public key of each trusted root by name: 32 bytes, or an uncompressed point of 65 or 97."""
    now: int
    """Unix seconds."""
    skew: int
    """Seconds of tolerance around the validity of certificates."""

    def client_keys(self, client_id: str) -> tuple[bytes, ...]:
        """Return the keys of a client application that are valid now; empty when it is unknown."""


class Downgrade(NamedTuple):
    """A claim that is not believed; the packet is accepted with origin UNKNOWN."""

    claimed: str
    reason: str
    """In lower_snake_case."""

    def wire(self) -> dict[str, str]:
        """Return the field ``provenance_downgrade`` of OK and EVENT."""
        return {"claimed": self.claimed, "origin_type": UNKNOWN, "reason": self.reason}


def judge(packet: Packet, lookup: Lookup) -> Downgrade | None:
    """Return the downgrade of a packet, or None when its claim stands or there is none.

    Raises:
        RefusedError: missing_proof, invalid_issuer_chain, invalid_provenance or invalid_attestation.
    """
    if not packet.has_provenance:
        return None
    header = packet.body["provenance_header"]
    claimed = header["origin_type"]
    if claimed == UNKNOWN:
        return None
    if claimed not in _PROVABLE:
        return Downgrade(claimed, "unknown_origin_type")
    if fault := _attestation_fault(packet.body, lookup):
        return Downgrade(claimed, fault)
    if claimed == _SOFTWARE:
        return None
    leaf = _prove_hardware(header, lookup) if claimed == _HARDWARE else _prove_model(header, lookup)
    signer = leaf.public_key if claimed == _HARDWARE else None
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
    shown = {name: value for name, value in header.items() if name not in _REMOVED} | {"origin_type": UNKNOWN}
    return canonicalise(body | {"provenance_header": shown}), header


def restored(body: _Body, original_header: _Body) -> _Body:
    """Return the packet as signed from one served in the mode ``mutate``; whoever restores checks the id after it."""
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
    covered = {name: value for name, value in covered.items() if name not in {"packet_id", "signature"}}
    genesis = header.get("genesis_media_hash") or ""
    return sha256(canonicalise(covered) + header["origin_type"].encode() + genesis.encode())


def _attestation_fault(body: _Body, lookup: Lookup) -> str:
    """Return why the client attestation does not support the claim, or an empty text when it does."""
    attestation = body["provenance_header"].get("client_attestation")
    if attestation is None:
        return "missing_client_attestation"
    if not isinstance(attestation, dict):
        return "invalid_client_attestation"
    client_id = attestation.get("client_id")
    if not isinstance(client_id, str) or not is_did(client_id):  # nobody looks up, or remembers, what is no name
        return "unknown_client"
    keys = lookup.client_keys(client_id)[:CLIENT_KEYS_MAX]
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
    if not isinstance(device_id, str) or not device_id:
        raise _refused(Code.MISSING_PROOF, "device_id")
    if header.get("device_signature") is None:
        raise _refused(Code.MISSING_PROOF, "device_signature")
    leaf = _vouched(header, lookup)
    if leaf.subject != device_id:
        raise _refused(Code.INVALID_ISSUER_CHAIN, "device_not_bound")
    _check_proof(header, "device_signature", leaf, {"device_id": device_id})
    # No format of evidence has a verifier here yet, so whatever is offered is unproved.
    if header.get("attestation_evidence") is not None:
        raise _refused(Code.INVALID_ATTESTATION, "unsupported_format")
    return leaf


def _vouched(header: _Body, lookup: Lookup) -> Leaf:
    chain = header.get("issuer_chain")
    if chain is None or chain == []:
        raise _refused(Code.MISSING_PROOF, "issuer_chain")
    return check_chain(chain, lookup.roots, lookup.now, lookup.skew)


def _check_proof(header: _Body, name: str, leaf: Leaf, bound: dict[str, str]) -> None:
    """Check the leaf's signature in field ``name`` over claim, genesis and what is ``bound``."""
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
        if edit.get("prev_edit_hash") != expected:
            return False
        bare = canonicalise({name: value for name, value in edit.items() if name != "signature"})
        if signer is not None:
            signature = parse_signature(edit.get("signature"))
            if signature is None or not verify_with_key(signer, bare, signature):
                return False
        expected = packet_id_text(blake3_256(bare))
        result = edit.get("resulting_media_hash")
    return result in media_hashes


def _refused(code: Code, detail: str) -> RefusedError:
    return RefusedError(Refusal(code, detail))
