"""The identity of a Strata author, as text too, and the signed packets that add, rotate, revoke or recover its keys.

The SDK and commands sign with it. An identity is a DID, the seed of its current signing key, and that key's id. The DID
stays the same after a rotation.
Spec: RFC-0001; specs/strata.md 4.1, 9.2.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from waystation.core.dids import encode_did, encode_key_multibase, is_did
from waystation.core.errors import LocalError
from waystation.core.ids import decode_key_hex
from waystation.crypto.signing import KeyPair
from waystation.protocols.strata.packet import Packet, make_packet, packet_id_text, sign_body
from waystation.protocols.strata.provenance import sign_client_attestation

__all__ = [
    "Identity",
    "add_key",
    "approve_recovery",
    "export_identity",
    "format_identity",
    "key_fragment",
    "make_did_document",
    "parse_exported",
    "parse_identity",
    "revoke_key",
    "rotate_key",
    "sign_attested",
]

_FIRST_KEY: Final = "keys-1"
_FIELDS: Final = ("expires_at", "nonce", "provenance_header", "extra")
_EXPORTED: Final = ("did", "key_id", "seed")


@dataclass(frozen=True, slots=True)
class Identity:
    """Who signs, and with what."""

    did: str
    key_pair: KeyPair
    key_id: str
    """``<did>#<fragment>`` of the key."""

    @classmethod
    def of(cls, key_pair: KeyPair) -> "Identity":
        """Return the identity that a key certifies by itself."""
        did = encode_did(key_pair.public)
        return cls(did, key_pair, f"{did}#{_FIRST_KEY}")

    def packet(self, content: Mapping[str, Any], *, timestamp: int, **fields: Any) -> Packet:
        """Return a signed packet of this author; ``fields`` are those of ``make_packet``.

        Raises:
            LocalError: ``content`` is no mapping with a ``type``, there is no such field, or relays would refuse the
                packet.
        """
        unknown = fields.keys() - _FIELDS
        if unknown:
            raise LocalError(f"a packet has {', '.join(_FIELDS)}, and no {', '.join(sorted(unknown))}")
        if not isinstance(content, Mapping):
            raise LocalError('content is a mapping such as {"type": "POST", "text": "hello"}')
        return make_packet(self.key_pair, content, timestamp=timestamp, author_id=self.did, **fields)


# As text, which is secret


def export_identity(identity: Identity) -> str:
    """Return all that makes an identity as one secret line: DID, key id and seed, with blanks between."""
    return f"{identity.did} {identity.key_id} {identity.key_pair.seed.hex()}"


def parse_exported(text: str) -> Identity:
    """Return the identity that was exported.

    Args:
        text: The line of ``export_identity``; or that of ``format_identity``; or a seed of 64 hexadecimal digits alone,
            which is the identity that this key certifies by itself: after a rotation that is another one.

    Raises:
        LocalError: The text is none of these, and is not repeated because it may be a secret.
    """
    words = text.split()
    if len(words) == len(_EXPORTED):
        # The line carries DID and key id because after a rotation the seed no longer gives either.
        return _identity_of(dict(zip(_EXPORTED, words, strict=True)))
    try:
        # A key file begins with a brace, which no DID and no seed does.
        if text.startswith("{"):
            return parse_identity(text)
        return Identity.of(KeyPair.from_seed(decode_key_hex(text)))
    except (ValueError, LocalError):  # whose sentences repeat what was given
        raise LocalError(
            "that is no exported identity: expected the line of `waystation strata keys export`, "
            "or a seed of 64 hexadecimal digits"
        ) from None


def format_identity(identity: Identity) -> str:
    """Return an identity as a key file has it: a JSON object with ``did``, ``key_id`` and ``seed``."""
    return json.dumps(dict(zip(_EXPORTED, export_identity(identity).split(), strict=True)), indent=1)


def parse_identity(text: str) -> Identity:
    """Return the identity in a key file.

    Raises:
        LocalError: It is none.
        ValueError: It is no JSON.
    """
    return _identity_of(json.loads(text))


# What is signed about keys


def add_key(identity: Identity, public: bytes, fragment: str, now_s: int) -> Packet:
    """Return the KEY_EVENT that adds a 32-byte key as ``<did>#fragment`` from now on."""
    return _key_event(identity, "ADD", f"{identity.did}#{fragment}", now_s, **_new_key(public, now_s))


def key_fragment(public: bytes) -> str:
    """Return what the key id of a further key of 32 bytes has behind ``#``."""
    return f"keys-{public.hex()[:16]}"


def rotate_key(identity: Identity, fresh: KeyPair, fragment: str, now_s: int) -> tuple[Packet, Identity]:
    """Return the KEY_EVENT that replaces the key in use, and the identity to save once a relay has taken it."""
    # RFC-0001: the DID stays, only key and key id change.
    renewed = Identity(identity.did, fresh, f"{identity.did}#{fragment}")
    # Spec 4.1: ROTATE must name the key that ends where the new one begins.
    fields = _new_key(fresh.public, now_s) | {"replaces": identity.key_id}
    # Signed by the old key: the new one is valid only once this event is received.
    return _key_event(identity, "ROTATE", renewed.key_id, now_s, **fields), renewed


def revoke_key(
    identity: Identity, key_id: str, now_s: int, *, revoked_at: int | None = None, reason: str = ""
) -> Packet:
    """Return the KEY_EVENT that revokes a key of this DID, as of now or of an earlier time."""
    fields = {"reason": reason} if reason else {}
    return _key_event(
        identity, "REVOKE", key_id, now_s, revoked_at=now_s if revoked_at is None else revoked_at, **fields
    )


def approve_recovery(recovery: Identity, target_event: bytes, now_s: int, *, note: str = "") -> Packet:
    """Return the RECOVERY_APPROVAL by which a recovery key agrees to a pending KEY_EVENT.

    Args:
        recovery: The DID to recover, with the recovery key as its key.
        target_event: Packet id of the KEY_EVENT, 32 bytes.
        now_s: Unix seconds.
        note: For people.
    """
    # Spec 4.1: the delay counts from when relays received the event, whatever stands in ``approved_at``.
    content = {"type": "RECOVERY_APPROVAL", "target_event": packet_id_text(target_event)}
    return recovery.packet(content | {"approved_at": now_s, "note": note}, timestamp=now_s)


def make_did_document(
    identity: Identity, recovery_keys: Sequence[bytes], now_s: int, *, threshold: int = 1
) -> dict[str, Any]:
    """Return the first DID Document of an identity, which names its recovery keys.

    Recovery keys stand in documents, not in key events. A document has no signature: relays take it by its hash
    (``canonical.document_hash``), which the operator or bootstrap data vouch for.

    Args:
        identity: Its own key is the signing key.
        recovery_keys: Public keys of 32 bytes.
        now_s: Unix seconds.
        threshold: How many recovery keys must agree.

    Raises:
        LocalError: There are fewer recovery keys than ``threshold``, or it is less than 1.
    """
    if not 1 <= threshold <= max(len(recovery_keys), 1):
        raise LocalError(f"a threshold of {threshold} needs as many recovery keys")

    def method(key_id: str, public: bytes, **fields: str) -> dict[str, Any]:
        # Spec 4: the members that a verification method must have; the type is the only one.
        shape = {"id": key_id, "type": "Ed25519VerificationKey2020", "controller": identity.did}
        # Spec 4: ``valid_from`` is required; 0 because the DID has had this key from the start.
        return shape | {"public_key_multibase": encode_key_multibase(public), "valid_from": 0, **fields}

    recovery = [
        method(f"{identity.did}#recovery-{number}", public, usage="recovery")
        for number, public in enumerate(recovery_keys, 1)
    ]
    document: dict[str, Any] = {
        "id": identity.did,
        "verification_method": [method(identity.key_id, identity.key_pair.public), *recovery],
        "authentication": [identity.key_id],
        "assertion": [identity.key_id],
        "created_at": now_s,
        # Spec 4: null in the first version.
        "prev_did_doc_hash": None,
    }
    if recovery:
        # Spec 4.1: recovery keys sign key events and approvals only, and need a threshold to act.
        document["recovery_policy"] = {"threshold": threshold, "key_ids": [method["id"] for method in recovery]}
    return document


def sign_attested(
    identity: Identity,
    body: Mapping[str, Any],
    *,
    client_id: str,
    client_version: str,
    client_key_pair: KeyPair,
    platform_attestation: Mapping[str, Any] | None = None,
) -> Packet:
    """Return a packet whose provenance header the application vouches for, signed by the author over everything.

    Args:
        identity: The author.
        body: ``version``, ``timestamp``, ``content`` and ``provenance_header``; ``author_id`` is set here.
        client_id: DID of the application.
        client_version: A semantic version.
        client_key_pair: The application's key.
        platform_attestation: What the platform says of the application.

    Raises:
        LocalError: There is no provenance header, or relays would refuse the packet.
    """
    if not isinstance(body.get("provenance_header"), dict):
        raise LocalError("only a packet with a provenance header can be attested")
    # The attestation covers the author, so it is set before the application signs.
    whole = {"version": 1, **body, "author_id": identity.did}
    attested = sign_client_attestation(whole, client_id, client_version, client_key_pair, platform_attestation)
    # The author signs last, over the application's signature too.
    return sign_body(identity.key_pair, attested)


def _key_event(identity: Identity, event: str, key_id: str, now_s: int, **fields: Any) -> Packet:
    return identity.packet({"type": "KEY_EVENT", "event": event, "key_id": key_id, **fields}, timestamp=now_s)


def _new_key(public: bytes, now_s: int) -> dict[str, Any]:
    # Spec 4.1: ``valid_until`` 0 leaves the end open.
    return {"public_key_multibase": encode_key_multibase(public), "valid_from": now_s, "valid_until": 0}


def _identity_of(body: Any) -> Identity:
    """Return the identity that DID, key id and seed make; raises LocalError, which repeats none of them."""
    try:
        did, key_id, seed = body["did"], body["key_id"], decode_key_hex(body["seed"])
        # Spec 4.1: a key id is the DID and a fragment; anything else could sign for another author.
        usable = is_did(did) and key_id.startswith(f"{did}#")
    except (KeyError, TypeError, AttributeError, LocalError):
        usable = False
    if not usable:
        raise LocalError("an identity is a DID, the id of a key of that DID, and a seed of 64 hexadecimal digits")
    return Identity(did, KeyPair.from_seed(seed), key_id)
