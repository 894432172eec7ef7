"""Reads DID Documents, which list an author's keys, and orders the versions of one DID.

``directory`` calls it with JSON values. Versions form a chain by ``prev_did_doc_hash``; the newest lists the keys. A
document is unsigned. It counts if the operator placed it or a trusted source named its hash. For a DID that is a key,
the first version must also list that key. ``directory`` checks this.

Times are whole Unix seconds. Spec: RFC-0001 3; specs/strata.md 4 (D5), 24 (7).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from waystation.core.dids import decode_key_multibase, is_did
from waystation.core.errors import LocalError
from waystation.core.ids import decode_key_hex
from waystation.protocols.strata.canonical import canonicalise, document_hash
from waystation.protocols.strata.keys.keyring import Keyring, Method, RecoveryPolicy, read_key_id, whole_seconds
from waystation.protocols.strata.refusals import Code, Refusal, RefusedError

__all__ = [
    "DOCUMENTS_MAX",
    "DOCUMENT_BYTES_MAX",
    "METHODS_MAX",
    "DidDocument",
    "chain_of",
    "head_of",
    "read_document",
    "rooted_in",
]

DOCUMENT_BYTES_MAX: Final = 65_536
"""Canonical bytes of a document, ours: 64 methods take a third of it."""
METHODS_MAX: Final = 64
"""Methods of a document, ours: four times the keys that are tried per packet."""
DOCUMENTS_MAX: Final = 32
"""Versions kept per DID, ours."""

_KEY_TYPE: Final = "Ed25519VerificationKey2020"
_SIGNING: Final = (None, "", "signing")
_RECOVERY: Final = "recovery"
_matches_hash: Final = re.compile(r"z[1-9A-HJ-NP-Za-km-z]{46,47}").fullmatch  # 34 bytes that begin 1e20, in base58


@dataclass(frozen=True, slots=True)
class DidDocument:
    """One version of a document, checked."""

    did: str
    document_hash: str
    """``z`` and base58 of the multihash; its name."""
    methods: tuple[Method, ...]
    """Newest first, one or more."""
    policy: RecoveryPolicy
    previous_hash: str | None
    """None for the first version."""
    created_at: int | None

    def ring(self) -> Keyring:
        """Return the keyring that this version describes, before any key event."""
        return Keyring(self.did, self.methods, self.policy)


def read_document(value: object) -> DidDocument:
    """Check a JSON value and return the document it is; unknown fields are ignored.

    Methods of another type or with an unknown usage are left out, since they sign no packets here.

    Raises:
        RefusedError: ``invalid_schema``; the detail is the field, ``binding`` for a key of another DID, ``too_large``,
            or what ``canonicalise`` says.
    """
    if not isinstance(value, dict):
        raise _refused("document")
    did = value.get("id")
    if not isinstance(did, str) or not is_did(did):
        raise _refused("id")
    # Spec 4: at most 64 KiB.
    if len(canonicalise(value)) > DOCUMENT_BYTES_MAX:
        raise _refused("too_large")
    for name in ("authentication", "assertion"):
        if not isinstance(value.get(name, []), list):
            raise _refused(name)
    return DidDocument(
        did=did,
        document_hash=document_hash(value),
        methods=_read_methods(value.get("verification_method"), did),
        policy=_read_policy(value.get("recovery_policy"), did),
        previous_hash=_read_previous(value.get("prev_did_doc_hash")),
        created_at=_read_time(value, "created_at"),
    )


def _read_methods(value: object, did: str) -> tuple[Method, ...]:
    # Spec 4: verification_method has 1 to 64 entries.
    if not isinstance(value, list) or not 0 < len(value) <= METHODS_MAX:
        raise _refused("verification_method")
    read = [_read_method(each, did) for each in value]
    key_ids = [key_id for key_id, _ in read]
    methods = [method for _, method in read if method is not None]
    # Two methods with one id would leave open which one an event means.
    if len(dict.fromkeys(key_ids)) < len(key_ids) or not methods:
        raise _refused("verification_method")
    methods.reverse()
    return tuple(sorted(methods, key=lambda method: -method.valid_from))


def _read_method(value: object, did: str) -> tuple[str, Method | None]:
    """Return the id of a method, and the method when it is one we can use."""
    if not isinstance(value, dict):
        raise _refused("verification_method")
    key_id = read_key_id(value.get("id"), did, "verification_method")
    if not isinstance(value.get("type"), str):
        raise _refused("verification_method")
    valid_from = _read_time(value, "valid_from")
    # Spec 4: valid_from is required.
    if valid_from is None:
        raise _refused("valid_from")
    # Spec 4.1: valid_until absent or 0 is open.
    valid_until = _read_time(value, "valid_until") or None
    if valid_until is not None and valid_until < valid_from:
        raise _refused("valid_until")
    usage = value.get("usage")
    if not isinstance(usage, str | None):
        raise _refused("usage")
    # Spec 4: usage is absent, signing or recovery; other methods sign no packets here.
    if value["type"] != _KEY_TYPE or (usage not in _SIGNING and usage != _RECOVERY):
        return key_id, None
    revoked_at = _read_time(value, "revoked_at")
    return key_id, Method(key_id, _read_public(value), valid_from, valid_until, revoked_at, usage == _RECOVERY)


def _read_public(value: Mapping[str, Any]) -> bytes:
    """Return the key, which both spellings must agree on when both are there."""
    found: list[bytes] = []
    digits, multibase = value.get("public_key_hex"), value.get("public_key_multibase")
    if digits is not None:
        if not isinstance(digits, str):
            raise _refused("public_key_hex")
        try:
            found.append(decode_key_hex(digits.removeprefix("0x")))
        except LocalError as error:
            raise _refused("public_key_hex") from error
    if multibase is not None:
        public = decode_key_multibase(multibase) if isinstance(multibase, str) else None
        if public is None:
            raise _refused("public_key_multibase")
        found.append(public)
    # Spec 4: public_key_hex and/or public_key_multibase; two that differ are no key.
    if not found or found[0] != found[-1]:
        raise _refused("public_key_multibase")
    return found[0]


def _read_policy(value: object, did: str) -> RecoveryPolicy:
    if value is None:
        return RecoveryPolicy()
    if not isinstance(value, dict):
        raise _refused("recovery_policy")
    # Spec 4: recovery_policy is {threshold, key_ids}; a threshold of 0 would need no key at all.
    threshold, key_ids = whole_seconds(value.get("threshold")), value.get("key_ids") or []
    if not threshold or not isinstance(key_ids, list) or len(key_ids) > METHODS_MAX:
        raise _refused("recovery_policy")
    return RecoveryPolicy(threshold, tuple(read_key_id(each, did, "recovery_policy") for each in key_ids))


def _read_previous(value: object) -> str | None:
    if value is not None and (not isinstance(value, str) or not _matches_hash(value)):
        raise _refused("prev_did_doc_hash")
    return value


def _read_time(value: Mapping[str, Any], name: str) -> int | None:
    seconds = whole_seconds(value.get(name))
    if seconds is None and value.get(name) is not None:
        raise _refused(name)
    return seconds


def _refused(detail: str) -> RefusedError:
    return RefusedError(Refusal(Code.INVALID_SCHEMA, detail))


def chain_of(documents: Sequence[DidDocument]) -> tuple[DidDocument, ...]:
    """Return the versions of one DID, oldest first, or nothing when they do not form one chain.

    No chain: two versions with one predecessor, two without a link between them, or a time that goes backwards. The
    oldest may name a predecessor that we have not got.
    """
    by_hash = {document.document_hash: document for document in documents}
    roots = [document for document in by_hash.values() if document.previous_hash not in by_hash]
    successors = {document.previous_hash: document for document in by_hash.values()}
    # Spec 4: two heads are did_conflict, so versions without one chain have no head.
    if len(roots) != 1 or len(successors) != len(by_hash):
        return ()
    chain = roots
    while (successor := successors.get(chain[-1].document_hash)) is not None:
        if successor.created_at is not None and successor.created_at < (chain[-1].created_at or 0):
            return ()
        chain.append(successor)
    return tuple(chain)


def head_of(documents: Sequence[DidDocument]) -> DidDocument | None:
    """Return the newest version, or None when there is none or more than one."""
    chain = chain_of(documents)
    return chain[-1] if chain else None


def rooted_in(documents: Sequence[DidDocument], public: bytes) -> tuple[DidDocument, ...]:
    """Return the versions that descend from a first one that lists ``public``; the others are to be ignored."""
    kept: dict[str, DidDocument] = {}
    ahead = [
        document
        for document in documents
        # Spec 4: its first version must list the key that the DID certifies.
        if document.previous_hash is None and any(method.public == public for method in document.methods)
    ]
    while ahead:
        document = ahead.pop()
        kept[document.document_hash] = document
        ahead += [each for each in documents if each.previous_hash == document.document_hash]
    return tuple(kept.values())
