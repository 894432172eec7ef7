"""Keys, documents and key events for the tests of authors."""

from typing import Any

from waystation.core.dids import encode_did, encode_key_multibase
from waystation.crypto.hashing import sha256
from waystation.protocols.strata.keys.keyring import KeyEvent, Keyring, Method, RecoveryPolicy, read_key_event

NAMED = "did:strata:zero_cool"
SKEW = 300
DAY = 86_400
T0 = 1_767_225_600
"""2026-01-01; nothing in these tests is older unless it says so."""


def key(name: str) -> bytes:
    """Return 32 bytes that stand for a public key; nothing here verifies signatures."""
    return sha256(name.encode())


OWN = encode_did(key("own"))
"""A DID that is the key ``own``."""


def packet_id(number: int) -> bytes:
    """Return the id of the event with this number."""
    return sha256(b"event %d" % number)


def change(event: str, fragment: str, did: str = OWN, **fields: Any) -> dict[str, Any]:
    """Return the content of a KEY_EVENT that its reader takes; ``key`` and ``replaces`` are short names."""
    content: dict[str, Any] = {"type": "KEY_EVENT", "event": event, "key_id": f"{did}#{fragment}"}
    if event in {"ADD", "ROTATE"}:
        content |= {"public_key_multibase": encode_key_multibase(key(fields.pop("key", fragment))), "valid_from": T0}
    if "replaces" in fields:
        content["replaces"] = f"{did}#{fields.pop('replaces')}"
    content |= fields
    read_key_event(content, did)
    return content


def approval(number: int) -> dict[str, Any]:
    """Return the content of a RECOVERY_APPROVAL of the event with this number."""
    content = {"type": "RECOVERY_APPROVAL", "target_event": "0x" + packet_id(number).hex(), "approved_at": T0}
    read_key_event(content, OWN)
    return content


def event(number: int, received_at: int, signer: str, content: dict[str, Any]) -> KeyEvent:
    """Return a stored event; its number is its ``seq`` and names its packet."""
    return KeyEvent(packet_id(number), received_at, number, key(signer), content)


def ring_with_recovery(count: int = 1, threshold: int = 1, key_ids: tuple[str, ...] = ()) -> Keyring:
    """Return a ring of the key ``own`` (#keys-1) and recovery keys ``r1``, ``r2`` and so on."""
    recovery = [Method(f"{OWN}#r{each}", key(f"r{each}"), 0, recovery=True) for each in range(1, count + 1)]
    policy = RecoveryPolicy(threshold, tuple(f"{OWN}#{each}" for each in key_ids))
    return Keyring(OWN, (Method(f"{OWN}#keys-1", key("own"), 0), *recovery), policy)


def verification_method(name: str, did: str = NAMED, **fields: Any) -> dict[str, Any]:
    """Return one method of a document."""
    return {
        "id": f"{did}#{name}",
        "type": "Ed25519VerificationKey2020",
        "controller": did,
        "public_key_hex": "0x" + key(name).hex(),
        "valid_from": 0,
        **fields,
    }


def document(*names: str, did: str = NAMED, **fields: Any) -> dict[str, Any]:
    """Return a document with a method for each name."""
    methods = [verification_method(name, did) for name in names or ("one",)]
    return {"id": did, "verification_method": methods, "created_at": T0, "prev_did_doc_hash": None, **fields}
