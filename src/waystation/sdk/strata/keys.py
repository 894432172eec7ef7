"""The identity of a Strata author: its key file, and the signed packets that add, rotate, revoke or recover keys.

The key file is one JSON object with mode 0600: the DID, the seed of the current signing key, and its key id. The DID
stays the same after a rotation; the file then has the new seed. A lost file means a lost DID, unless a recovery key was
added before.
Spec: RFC-0001; specs/strata.md 4.1, 9.2.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from waystation.core.dids import encode_did, encode_key_multibase, is_did
from waystation.core.errors import HostError, LocalError
from waystation.core.ids import decode_key_hex
from waystation.crypto.signing import SEED_BYTES, KeyPair
from waystation.protocols.strata.packet import Packet, make_packet, packet_id_text, sign_body
from waystation.protocols.strata.provenance import sign_client_attestation
from waystation.sdk.private_file import read_private, write_private

__all__ = [
    "KEY_FILE",
    "Identity",
    "add_key",
    "approve_recovery",
    "create_identity",
    "export_identity",
    "import_identity",
    "load_identity",
    "make_did_document",
    "revoke_key",
    "rotate_key",
    "save_identity",
    "sign_attested",
]

KEY_FILE: Final = "strata.key"
_FIRST_KEY: Final = "keys-1"
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
            LocalError: ``content`` is no mapping with a ``type``, or relays would refuse the packet.
        """
        if not isinstance(content, Mapping):
            raise LocalError('content is a mapping such as {"type": "POST", "text": "hello"}')
        return make_packet(self.key_pair, content, timestamp=timestamp, author_id=self.did, **fields)


def create_identity(home: Path) -> Identity:
    """Make a new identity in a folder, which is made if absent.

    Raises:
        LocalError: There is one already.
        HostError: The file cannot be written.
    """
    identity = Identity.of(KeyPair.from_seed(secrets.token_bytes(SEED_BYTES)))
    save_identity(home, identity, replace=False)
    return identity


def export_identity(identity: Identity) -> str:
    """Return all that makes an identity as one secret line: DID, key id and seed, with blanks between."""
    return f"{identity.did} {identity.key_id} {identity.key_pair.seed.hex()}"


def import_identity(home: Path, text: str) -> Identity:
    """Take over an identity that was exported.

    Args:
        home: Folder, made if absent.
        text: The line of ``export_identity``; or a JSON object with ``did``, ``key_id`` and ``seed``; or a seed of 64
            hexadecimal digits alone, which is the identity that this key certifies by itself: after a rotation that
            is another one.

    Raises:
        LocalError: The text is none of these, and is not repeated because it may be a secret; or there is an identity
            already.
        HostError: The file cannot be written.
    """
    identity = _parse_identity(text.strip())
    save_identity(home, identity, replace=False)
    return identity


def load_identity(home: Path) -> Identity:
    """Return the identity kept in a folder.

    Raises:
        LocalError: There is none.
        HostError: The file cannot be read, holds no key, or others may read it.
    """
    path = home / KEY_FILE
    text = read_private(path, secret=True)
    if text is None:
        raise LocalError(f"there is no identity in {home}; `waystation strata keys create` makes one")
    try:
        return _identity_of(json.loads(text))
    except (ValueError, RecursionError, LocalError) as error:
        raise HostError(f"{path} does not hold a Strata key") from error


def save_identity(home: Path, identity: Identity, *, replace: bool = True) -> Path:
    """Write the key file, whole or not at all, mode 0600, and return its path.

    Raises:
        LocalError: One is there and ``replace`` is false.
        HostError: The file cannot be written.
    """
    path = home / KEY_FILE
    body = dict(zip(_EXPORTED, export_identity(identity).split(), strict=True))
    try:
        write_private(path, json.dumps(body, indent=1) + "\n", replace=replace)
    except LocalError as error:
        raise LocalError(f"there is an identity in {home} already; it is not overwritten") from error
    return path


# What is signed about keys


def add_key(identity: Identity, public: bytes, fragment: str, now_s: int) -> Packet:
    """Return the KEY_EVENT that adds a 32-byte key as ``<did>#fragment`` from now on."""
    return _key_event(identity, "ADD", f"{identity.did}#{fragment}", now_s, **_new_key(public, now_s))


def rotate_key(identity: Identity, fresh: KeyPair, fragment: str, now_s: int) -> tuple[Packet, Identity]:
    """Return the KEY_EVENT that replaces the key in use, and the identity to save once a relay has taken it."""
    renewed = Identity(identity.did, fresh, f"{identity.did}#{fragment}")
    fields = _new_key(fresh.public, now_s) | {"replaces": identity.key_id}
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
        shape = {"id": key_id, "type": "Ed25519VerificationKey2020", "controller": identity.did}
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
        "prev_did_doc_hash": None,
    }
    if recovery:
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
    whole = {"version": 1, **body, "author_id": identity.did}
    attested = sign_client_attestation(whole, client_id, client_version, client_key_pair, platform_attestation)
    return sign_body(identity.key_pair, attested)


def _key_event(identity: Identity, event: str, key_id: str, now_s: int, **fields: Any) -> Packet:
    return identity.packet({"type": "KEY_EVENT", "event": event, "key_id": key_id, **fields}, timestamp=now_s)


def _new_key(public: bytes, now_s: int) -> dict[str, Any]:
    return {"public_key_multibase": encode_key_multibase(public), "valid_from": now_s, "valid_until": 0}


def _parse_identity(text: str) -> Identity:
    words = text.split()
    if len(words) == len(_EXPORTED):
        return _identity_of(dict(zip(_EXPORTED, words, strict=True)))
    try:
        if text.startswith("{"):
            return _identity_of(json.loads(text))
        return Identity.of(KeyPair.from_seed(decode_key_hex(text)))
    except (ValueError, LocalError):  # whose sentences repeat what was given
        raise LocalError(
            "that is no exported identity: expected the line of `waystation strata keys export`, "
            "or a seed of 64 hexadecimal digits"
        ) from None


def _identity_of(body: Any) -> Identity:
    """Return the identity that DID, key id and seed make; raises LocalError, which repeats none of them."""
    try:
        did, key_id, seed = body["did"], body["key_id"], decode_key_hex(body["seed"])
        usable = is_did(did) and key_id.startswith(f"{did}#")
    except (KeyError, TypeError, AttributeError, LocalError):
        usable = False
    if not usable:
        raise LocalError("an identity is a DID, the id of a key of that DID, and a seed of 64 hexadecimal digits")
    return Identity(did, KeyPair.from_seed(seed), key_id)
