"""Reads and makes packets, the signed units of Strata.

Relay intake and clients read with it, authors make packets with it. ``read_packet`` checks size, then schema, then
bindings, in the order of the refusals. It computes the bytes that id and signature must cover. The caller verifies both
later, after the policy checks. Unknown members are kept, because the hash covers them. Spec: RFC-0002 3, 4;
specs/strata.md 3, 5, 6.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, cast

from waystation.core.dids import encode_did, is_did
from waystation.core.errors import LocalError
from waystation.crypto.hashing import blake3_256
from waystation.crypto.signing import SIGNATURE_BYTES, KeyPair, sign
from waystation.protocols.strata.canonical import canonicalise, canonicalise_parsed, canonicalise_plain, normalise
from waystation.protocols.strata.refusals import Code, Refusal, RefusedError

__all__ = [
    "EDITS_MAX",
    "PACKET_BYTES_CEILING",
    "PACKET_ID_BYTES",
    "Packet",
    "encode_signature",
    "make_packet",
    "mark_of",
    "packet_id_text",
    "parse_packet_id",
    "parse_signature",
    "read_packet",
    "sign_body",
    "type_of",
]

PACKET_ID_BYTES: Final = 32
PACKET_BYTES_CEILING: Final = 1_048_576  # specs/strata.md 5.1
EDITS_MAX: Final = 64
"""Entries of an edit history; each may cost a signature check."""

_VERSION: Final = 1
_TYPE_CHARS_MAX: Final = 64
_NONCE_CHARS_MAX: Final = 128
_HASH_CHARS: Final = 2 + 2 * PACKET_ID_BYTES
_SIGNATURE_CHARS: Final = 2 + 2 * SIGNATURE_BYTES
_Body = dict[str, Any]


class Packet(NamedTuple):
    """One packet whose size and schema are right; build it with ``read_packet`` or ``make_packet``."""

    packet_id: bytes
    """32 bytes, its claim."""
    computed_id: bytes
    """32 bytes, its required id: BLAKE3 of ``preimage``."""
    author_id: str
    """A DID; the key may need a resolver."""
    content_type: str
    """1 to 64 characters."""
    timestamp: int
    """Author's clock, Unix seconds, at least 0."""
    expires_at: int | None
    """Unix seconds; None lives for ever."""
    signature: bytes
    """64 bytes over ``preimage``, not checked yet."""
    preimage: bytes
    """The bytes that id and signature cover: the canonical form without ``packet_id`` and ``signature``."""
    canonical: bytes
    """Canonical bytes of the whole packet, signature in lower case: what is stored and served."""
    body: _Body
    """The packet as a JSON object with plain numbers; never to be changed."""
    media_hashes: tuple[str, ...]
    """``media_hash`` of each entry of ``content.media``, 0x and 64 digits."""
    has_provenance: bool
    """Whether it has a provenance header."""

    @property
    def id_matches(self) -> bool:
        """Return whether the packet has the id that its content demands."""
        return self.packet_id == self.computed_id


_make: Final = cast("Callable[[tuple[object, ...]], Packet]", partial(tuple.__new__, Packet))
"""Build a ``Packet`` from one tuple: the class's own constructor costs a microsecond more."""


def read_packet(body: object, bytes_max: int) -> Packet:
    """Return the packet that a parsed JSON object is.

    Args:
        body: What ``canonical.parse`` returned for it; it is not changed.
        bytes_max: Largest canonical form that is taken.

    Raises:
        RefusedError: packet_too_large with ``max_bytes``; invalid_schema with the name of the field, ``binding``, or
            ``provenance_header_required``.
    """
    if not isinstance(body, dict):
        raise _malformed("packet")
    signature_text = body.get("signature")
    if type(signature_text) is str and signature_text != (lower := signature_text.lower()):
        # Spec 3: read in either case, served in lower case (D4).
        body = {**body, "signature": lower if signature_text.startswith("0x") else signature_text}
    canonical, plain = canonicalise_parsed(body)
    # Spec 5.1: counted is the canonical form of the whole packet; more is packet_too_large with max_bytes.
    if len(canonical) > bytes_max:
        raise RefusedError(Refusal(Code.PACKET_TOO_LARGE, "canonical_size", extra=(("max_bytes", bytes_max),)))
    assert isinstance(plain, dict)
    return _check_packet(plain, canonical, _write_parsed if plain is body else canonicalise_plain)


def type_of(body: object) -> str:
    """Return the content type that a parsed value claims, "" when it is no packet; nothing is checked."""
    content = body.get("content") if isinstance(body, dict) else None
    kind = content.get("type") if isinstance(content, dict) else None
    return kind if isinstance(kind, str) else ""


def make_packet(
    key_pair: KeyPair,
    content: Mapping[str, Any],
    *,
    timestamp: int,
    author_id: str | None = None,
    expires_at: int | None = None,
    nonce: str | None = None,
    provenance_header: Mapping[str, Any] | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Packet:
    """Return a signed packet; fields that are None are left out.

    Args:
        key_pair: Signs; its self-certifying DID is the author unless ``author_id`` says another.
        content: At least ``type``.
        timestamp: Unix seconds.
        author_id: A DID whose key this is.
        expires_at: Unix seconds.
        nonce: At most 128 characters.
        provenance_header: Needed when ``content.media`` has entries.
        extra: Further top-level fields, hashed and kept by everyone.

    Raises:
        LocalError: A relay would refuse the packet for its schema or for more than 1 MiB.
    """
    optional = {"expires_at": expires_at, "nonce": nonce, "provenance_header": provenance_header}
    body = {
        "version": _VERSION,
        "timestamp": timestamp,
        "author_id": author_id if author_id is not None else encode_did(key_pair.public),
        "content": dict(content),
        **{name: value for name, value in optional.items() if value is not None},
        **(extra or {}),
    }
    return sign_body(key_pair, body)


def sign_body(key_pair: KeyPair, body: Mapping[str, Any]) -> Packet:
    """Return the packet that a body becomes with id and signature; those it has are replaced.

    Raises:
        LocalError: As for ``make_packet``.
    """
    try:
        # Spec 3: the preimage lacks packet_id and signature, so those the caller passed are left out first.
        signed = normalise({name: value for name, value in body.items() if name not in {"packet_id", "signature"}})
        assert isinstance(signed, dict)
        preimage = canonicalise_plain(signed)
        signed["packet_id"] = packet_id_text(blake3_256(preimage))
        signed["signature"] = encode_signature(sign(key_pair, preimage))
        canonical = canonicalise_plain(signed)
        # Spec 5.1: never above 1 048 576 bytes.
        if len(canonical) > PACKET_BYTES_CEILING:
            raise LocalError(f"packet of {len(canonical)} bytes, at most {PACKET_BYTES_CEILING}")
        return _check_packet(signed, canonical, canonicalise_plain)
    except RefusedError as error:
        raise LocalError(f"relays would refuse this packet: {error}") from error


def packet_id_text(id: bytes) -> str:  # noqa: A002 - the word for it
    """Return 0x and 64 lower-case digits."""
    return "0x" + id.hex()


def parse_packet_id(text: str) -> bytes | None:
    """Return the 32 bytes of a packet id or media hash, or None; upper case and prefixes are refused."""
    if len(text) != _HASH_CHARS or not text.startswith("0x"):
        return None
    digits = text[2:]
    try:
        raw = bytes.fromhex(digits)
    except ValueError:
        return None
    # Spec 3: 0x and 64 lower-case digits; anything else is refused.
    return raw if raw.hex() == digits else None


def encode_signature(signature: bytes) -> str:
    """Return 0x and 128 lower-case digits."""
    return "0x" + signature.hex()


def parse_signature(text: object) -> bytes | None:
    """Return the 64 bytes of a signature in either case, or None for anything else. Spec: D4."""
    if type(text) is not str or len(text) != _SIGNATURE_CHARS or not text.startswith("0x"):
        return None
    digits = text[2:]
    try:
        raw = bytes.fromhex(digits)
    except ValueError:
        return None
    return raw if len(raw) == SIGNATURE_BYTES else None


def mark_of(packet: Packet) -> bytes:
    """Return 32 bytes that identify a part which several packets may repeat, or b"" for a packet without such a part.

    ATTESTATION: author, attestation_id, target_packet. CONSENSUS_METRIC: author, target_packet, observed_at.
    Spec: specs/strata.md 7.
    """
    content = packet.body["content"]
    target = content.get("target_packet")
    if packet.content_type == "ATTESTATION":
        attestation = content.get("attestation")
        # Spec 7: ATTESTATION is unique by author, attestation_id and target_packet.
        part = attestation.get("attestation_id") if isinstance(attestation, dict) else None
        usable = isinstance(part, str) and part != ""
    elif packet.content_type == "CONSENSUS_METRIC":
        # Spec 7: CONSENSUS_METRIC by author, target_packet and observed_at.
        part = content.get("observed_at")
        usable = type(part) is int
    else:
        return b""
    if not usable or not isinstance(target, str) or not target:
        return b""
    # The type is part of it, so that an attestation never repeats a metric.
    return blake3_256(canonicalise([packet.content_type, packet.author_id, target, part]))


def _write_parsed(value: object) -> bytes:
    return canonicalise_parsed(value)[0]


def _check_packet(body: _Body, canonical: bytes, write: Callable[[object], bytes]) -> Packet:
    """Check the schema and compute the id of a body with plain numbers."""
    # Spec 5: version is 1.
    if type(version := body.get("version")) is not int or version != _VERSION:
        raise _malformed("version")
    # Spec 3: a packet_id is 0x and 64 lower-case hex digits; whether it is the hash comes later (spec 6.6).
    if (packet_id := _hash_of(body.get("packet_id"))) is None:
        raise _malformed("packet_id")
    # Spec 5: an integer, 0 or more; the author's clock.
    if type(timestamp := body.get("timestamp")) is not int or timestamp < 0:
        raise _malformed("timestamp")
    # Spec 4: a DID matches did:[a-z0-9]+:… and is compared as text (D7).
    if type(author_id := body.get("author_id")) is not str or not is_did(author_id):
        raise _malformed("author_id")
    if type(content := body.get("content")) is not dict:
        raise _malformed("content")
    # Spec 5: content holds ``type``, a text of 1 to 64 characters.
    if type(content_type := content.get("type")) is not str or not 0 < len(content_type) <= _TYPE_CHARS_MAX:
        raise _malformed("type")
    # Spec 3: a signature is 0x and 128 hex digits.
    if (signature := parse_signature(body.get("signature"))) is None:
        raise _malformed("signature")
    _check_optional(body)
    media_hashes = _check_media(content["media"]) if "media" in content else ()
    has_provenance = _has_header(body)
    # Spec 5: provenance_header is required when content.media has entries.
    if media_hashes and not has_provenance:
        raise _malformed("provenance_header_required")
    # D8: relays look into the content only where they use it themselves.
    if content_type in _BOUND:
        _check_binding(content_type, content, author_id)
    # Spec 3: the preimage is the canonical packet without packet_id and signature; unknown members stay in it.
    covered = body.copy()
    del covered["packet_id"], covered["signature"]
    preimage = write(covered)
    return _make(
        (
            packet_id,
            blake3_256(preimage),
            author_id,
            content_type,
            timestamp,
            body.get("expires_at"),
            signature,
            preimage,
            canonical,
            body,
            media_hashes,
            has_provenance,
        )
    )


def _check_optional(body: _Body) -> None:
    """Check the optional fields; null is the same as absent to us, though not to the hash."""
    # Spec 5: an optional integer; null lives on.
    if (expires_at := body.get("expires_at")) is not None and type(expires_at) is not int:
        raise _malformed("expires_at")
    # Spec 5: at most 128 characters.
    if (nonce := body.get("nonce")) is not None and (type(nonce) is not str or len(nonce) > _NONCE_CHARS_MAX):
        raise _malformed("nonce")
    # D9: hashed as they are, then ignored.
    if (attestations := body.get("attestations")) is not None and type(attestations) is not list:
        raise _malformed("attestations")
    if (metrics := body.get("consensus_metrics")) is not None and type(metrics) is not dict:
        raise _malformed("consensus_metrics")


def _check_media(media: object) -> tuple[str, ...]:
    if media is None:
        return ()
    if type(media) is not list:
        raise _malformed("media")
    return tuple(_check_medium(medium) for medium in media)


def _check_medium(medium: object) -> str:
    """Return the hash of one entry of ``content.media``."""
    # Spec 5: media_hash is required, the other members are optional.
    if type(medium) is not dict:
        raise _malformed("media")
    media_hash = medium.get("media_hash")
    if _hash_of(media_hash) is None:
        raise _malformed("media_hash")
    # Spec 5: media_type is a text, size_bytes an integer, media_uris a list of texts.
    if (media_type := medium.get("media_type")) is not None and type(media_type) is not str:
        raise _malformed("media_type")
    if (size := medium.get("size_bytes")) is not None and (type(size) is not int or size < 0):
        raise _malformed("size_bytes")
    if (uris := medium.get("media_uris")) is not None and (
        type(uris) is not list or not all(type(uri) is str for uri in uris)
    ):
        raise _malformed("media_uris")
    return str(media_hash)


def _has_header(body: _Body) -> bool:
    """Check the parts of a provenance header that every later step needs; its proofs are checked later."""
    if (header := body.get("provenance_header")) is None:
        return False
    if type(header) is not dict:
        raise _malformed("provenance_header")
    # Spec 9: origin_type is required; an unknown word is downgraded later, not refused.
    if type(origin_type := header.get("origin_type")) is not str or not 0 < len(origin_type) <= _TYPE_CHARS_MAX:
        raise _malformed("origin_type")
    # Spec 9: genesis_media_hash is a hash or null.
    if (genesis := header.get("genesis_media_hash")) is not None and _hash_of(genesis) is None:
        raise _malformed("genesis_media_hash")
    # Spec 9: edit_history is a list of at most 64 objects.
    if (edits := header.get("edit_history")) is not None and (
        type(edits) is not list or len(edits) > EDITS_MAX or not all(type(edit) is dict for edit in edits)
    ):
        raise _malformed("edit_history")
    return True


def _check_binding(content_type: str, content: _Body, author_id: str) -> None:
    """Check that a claim about an identity is signed by that identity. Spec: D8."""
    rule = _BOUND[content_type]
    # Spec 5: CONFIG is bound by its config_type or scope.
    if isinstance(rule, Mapping):
        kinds = [kind for kind in (content.get("config_type"), content.get("scope")) if isinstance(kind, str)]
        bound = all(content.get(rule[kind]) == author_id for kind in kinds if kind in rule)
    elif content_type in _KEY_BOUND:
        key_id = content.get(rule)
        # Spec 4.1: key_id of a RECOVERY_APPROVAL is optional.
        optional = content_type == "RECOVERY_APPROVAL" and key_id is None
        bound = optional or (isinstance(key_id, str) and key_id.partition("#")[0] == author_id)
    else:
        # Spec 5: a CONSENSUS_METRIC may leave its source out.
        bound = content.get(rule) == author_id or (content_type == "CONSENSUS_METRIC" and content.get(rule) is None)
    # Spec 5: a TRUST_EDGE needs its strength, a TRUST_REVOCATION may lack it.
    if content_type in _STRENGTH_REQUIRED:
        bound = bound and _is_strength(content.get("strength"), required=_STRENGTH_REQUIRED[content_type])
    if not bound:
        raise _malformed("binding")


def _is_strength(strength: object, *, required: bool) -> bool:
    if strength is None:
        return not required
    # Spec 5: strength 0 to 1, required in an edge.
    return type(strength) in {int, float} and 0 <= strength <= 1  # type: ignore[operator]


def _hash_of(text: object) -> bytes | None:
    return parse_packet_id(text) if type(text) is str else None


def _malformed(detail: str) -> RefusedError:
    return RefusedError(Refusal(Code.INVALID_SCHEMA, detail))


_CONFIGS: Final = {
    "REPLICATION_POLICY_V1": "relay_id",
    "BOOTSTRAP_SNAPSHOT": "source_id",
    "SERVICE_CONFIG": "provider_id",
}
"""Kinds of CONFIG, named by ``config_type`` (RFC-0007) or ``scope`` (bootstrap), and the field that is the author."""
_BOUND: Final[Mapping[str, str | Mapping[str, str]]] = {
    "KEY_EVENT": "key_id",
    "RECOVERY_APPROVAL": "key_id",
    "CLIENT_MANIFEST": "client_id",
    "RELAY_DESCRIPTOR": "relay_id",
    "CONFIG": _CONFIGS,
    "CONSENSUS_METRIC": "source_id",
    "TRUST_EDGE": "from",
    "TRUST_REVOCATION": "from",
}
_KEY_BOUND: Final = frozenset({"KEY_EVENT", "RECOVERY_APPROVAL"})
_STRENGTH_REQUIRED: Final = {"TRUST_EDGE": True, "TRUST_REVOCATION": False}
