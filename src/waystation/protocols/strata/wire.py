"""Decodes the messages of clients, and encodes the relay's messages, as JSON text frames.

The relay decodes and encodes with it, and the client reads the same messages. Decoding takes a parsed object and
returns a message or raises a refusal. Unknown fields are ignored; null equals absent. Encoding inserts a packet's
canonical bytes into the EVENT of each subscriber, so a packet is encoded only once.
Spec: RFC-0004 3; specs/strata.md 10 to 13.
"""

import re
from typing import Any, Final

import orjson

from waystation.core.dids import is_did
from waystation.protocols.strata.canonical import normalise
from waystation.protocols.strata.messages import Auth, Filters, Message, Publish, Subscribe, Unsubscribe
from waystation.protocols.strata.packet import packet_id_text, parse_packet_id
from waystation.protocols.strata.refusals import Code, Refusal, RefusedError

__all__ = [
    "AUTHORS_MAX",
    "IDS_MAX",
    "LIMIT_DEFAULT",
    "LIMIT_MAX",
    "TYPES_MAX",
    "client_msg_id_of",
    "demand_small",
    "encode_auth_ok",
    "encode_challenge",
    "encode_end_of_history",
    "encode_error",
    "encode_ok",
    "encode_subscription_tail",
    "read_message",
    "splice_event",
    "subscription_id_of",
]

AUTHORS_MAX: Final = 1_000  # specs/strata.md 13
TYPES_MAX: Final = 100
IDS_MAX: Final = 500
LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 500
ID_CHARS_MAX: Final = 128
CHALLENGE_CHARS_MAX: Final = 172
CAPABILITIES_MAX: Final = 32
FILTER_CHARS_MAX: Final = 256  # longer than any DID or content type, so that a filter stays small
CURSOR_CHARS_MAX: Final = 512
_FILTERS: Final = frozenset({"authors", "types", "ids", "since", "until", "limit", "cursor", "order"})
_MARKS: Final = (b",", b":", b"{", b"}", b"[", b"]")
_ENVELOPE_MARKS_MAX: Final = 4_096  # of a message around its packet, such as a filter of 1 000 authors
_SIGNATURE: Final = re.compile(r"0x[0-9a-fA-F]{128}")
_REASONS: Final = {
    Code.INVALID_SIGNATURE: "Signature verification failed",
    Code.INVALID_SCHEMA: "Message or packet is malformed",
    Code.PACKET_TOO_LARGE: "Packet exceeds the maximum size",
    Code.RATE_LIMITED: "Too many requests",
    Code.BLOCKED_AUTHOR: "This relay does not take packets of this author",
    Code.UNAUTHENTICATED: "Authentication is missing or was not accepted",
    Code.INTERNAL_ERROR: "The relay failed; try again",
    Code.INVALID_PROVENANCE: "Proof of the claimed origin failed",
    Code.MISSING_PROOF: "The claimed origin comes without its proof",
    Code.INVALID_ISSUER_CHAIN: "The issuer chain does not lead to a trusted root",
    Code.INVALID_ATTESTATION: "Platform attestation failed",
    Code.INVALID_CURSOR: "The cursor does not belong here; subscribe with since instead",
    Code.KEY_EXPIRED: "The key has expired",
    Code.KEY_REVOKED: "The key was revoked",
    Code.KEY_NOT_YET_VALID: "The key is not valid yet",
    Code.INVALID_TIMESTAMP: "The packet is outside the accepted time",
    Code.BLOCKED_CONTENT: "This relay does not take this packet or its media",
    Code.TOO_MANY_SUBSCRIPTIONS: "This connection has too many subscriptions",
    Code.UNSUPPORTED_PROFILE: "This relay does not offer this replication profile",
}


def demand_small(data: bytes, packet_bytes_max: int) -> None:
    """Refuse a frame that is surely too large for its packet before it becomes objects, which are many times its size.

    These characters occur in the canonical form as often as in any other spelling, or more often where it was escaped.

    Raises:
        RefusedError: ``packet_too_large``.
    """
    # Spec 14: a frame that surely holds too large a packet is refused unparsed.
    if len(data) > packet_bytes_max and sum(map(data.count, _MARKS)) > packet_bytes_max + _ENVELOPE_MARKS_MAX:
        raise RefusedError(Refusal(Code.PACKET_TOO_LARGE, "frame", extra=(("max_bytes", packet_bytes_max),)))


def read_message(body: object) -> Message:
    """Return the message that a parsed frame is.

    Raises:
        RefusedError: ``invalid_schema`` with the name of the field, or ``unknown_message_type``.
    """
    if not isinstance(body, dict):
        raise _malformed("not_an_object")
    kind = body.get("type")
    if kind == "PUBLISH":
        return _read_publish(body)
    if kind == "SUBSCRIBE":
        return _read_subscribe(body)
    if kind == "UNSUBSCRIBE":
        # Spec 10: UNSUBSCRIBE has no answer, so its client_msg_id is ignored.
        return Unsubscribe(_text(body, "subscription_id", ID_CHARS_MAX))
    if kind == "AUTH":
        return _read_auth(body)
    # Spec 10: an unknown ``type`` is refused, and the connection stays open.
    raise _malformed("unknown_message_type" if isinstance(kind, str) else "type")


def client_msg_id_of(body: object) -> str | None:
    """Return the ``client_msg_id`` to echo, even when the rest of the message is refused."""
    return _echo(body, "client_msg_id")


def subscription_id_of(body: object) -> str | None:
    """Return the subscription id of a refused SUBSCRIBE, if it has one."""
    return _echo(body, "subscription_id") if isinstance(body, dict) and body.get("type") == "SUBSCRIBE" else None


def encode_ok(
    packet_id: bytes,
    client_msg_id: str | None,
    *,
    duplicate: bool = False,
    duplicate_of: bytes | None = None,
    downgrade: bytes = b"",
) -> bytes:
    """Return OK for an accepted packet; ``downgrade`` is the canonical JSON of its provenance downgrade."""
    parts = [b'{"type":"OK","packet_id":"', packet_id_text(packet_id).encode(), b'","status":"ACCEPTED"']
    if client_msg_id is not None:
        parts += (b',"client_msg_id":', orjson.dumps(client_msg_id))
    # Spec 6.7, 6.10, 6.11: a known packet, attestation or metric is OK with duplicate (D19).
    if duplicate:
        parts.append(b',"duplicate":true')
    # Spec 6.11: the packet that had this attestation or metric first.
    if duplicate_of is not None:
        parts += (b',"duplicate_of":"', packet_id_text(duplicate_of).encode(), b'"')
    if downgrade:
        parts += (b',"provenance_downgrade":', downgrade)
    parts.append(b"}")
    return b"".join(parts)


def encode_error(
    refusal: Refusal,
    *,
    client_msg_id: str | None = None,
    subscription_id: str | None = None,
    packet_id: bytes | None = None,
) -> bytes:
    """Return ERROR for a refusal."""
    body: dict[str, Any] = {
        "type": "ERROR",
        "code": refusal.code.value,
        "reason": refusal.reason or _REASONS[refusal.code],
    }
    if refusal.detail:
        body["detail"] = refusal.detail
    body.update(refusal.extra)
    if client_msg_id is not None:
        body["client_msg_id"] = client_msg_id
    # Spec 24.13: every ERROR that a SUBSCRIBE causes carries its subscription_id.
    if subscription_id is not None:
        body["subscription_id"] = subscription_id
    # Spec 11: packet_id is there when the packet's schema could be read.
    if packet_id is not None:
        body["packet_id"] = packet_id_text(packet_id)
    return orjson.dumps(body)


def encode_challenge(challenge: str, server_id: str, expires_at: int) -> bytes:
    """Return AUTH_CHALLENGE; ``expires_at`` in Unix seconds."""
    return orjson.dumps(
        {"type": "AUTH_CHALLENGE", "challenge": challenge, "server_id": server_id, "expires_at": expires_at}
    )


def encode_auth_ok(author_id: str, capabilities: tuple[str, ...], client_msg_id: str | None) -> bytes:
    """Return AUTH_OK with the granted capabilities."""
    body: dict[str, Any] = {"type": "AUTH_OK", "author_id": author_id, "capabilities": list(capabilities)}
    if client_msg_id is not None:
        body["client_msg_id"] = client_msg_id
    return orjson.dumps(body)


def encode_end_of_history(subscription_id: str, cursor: str, *, has_more: bool) -> bytes:
    """Return EOSE, which only clients that asked for it get."""
    return orjson.dumps({"type": "EOSE", "subscription_id": subscription_id, "cursor": cursor, "has_more": has_more})


def encode_subscription_tail(subscription_id: str) -> bytes:
    """Return the end of every EVENT of a subscription, from after ``received_at``'s number."""
    return b',"subscription_id":' + orjson.dumps(subscription_id) + b',"type":"EVENT"}'


def splice_event(packet: bytes, received_at: int, cursor: bytes, downgrade: bytes, tail: bytes) -> bytes:
    """Return EVENT around a packet that is JSON already.

    Args:
        packet: The packet's JSON.
        received_at: Unix seconds.
        cursor: Text of the cursor, empty to leave it out; base64url needs no escaping.
        downgrade: Canonical JSON of ``provenance_downgrade``, empty for none.
        tail: From ``encode_subscription_tail``.
    """
    if downgrade:
        tail = b',"provenance_downgrade":%b%b' % (downgrade, tail)
    # A join, because it takes half as long as a format, and every EVENT of history passes this line.
    time = b"%d" % received_at
    if cursor:
        return b"".join((b'{"cursor":"', cursor, b'","packet":', packet, b',"received_at":', time, tail))
    return b"".join((b'{"packet":', packet, b',"received_at":', time, tail))


# Fields


def _read_publish(body: dict[str, Any]) -> Publish:
    packet = body.get("packet")
    client_msg_id = _optional_text(body, "client_msg_id", ID_CHARS_MAX)
    if not isinstance(packet, dict):
        raise _malformed("packet")
    return Publish(packet, client_msg_id)


def _read_subscribe(body: dict[str, Any]) -> Subscribe:
    filters = body.get("filters")
    # Spec 13: absent, null and [] mean any.
    if filters is None:
        filters = {}
    if not isinstance(filters, dict):
        raise _malformed("filters")
    # STRATA-IDS: whoever says strict learns of a filter that this relay does not know; else it is ignored (spec 1).
    unknown = [name for name in filters if name not in _FILTERS and filters[name] is not None]
    if unknown and body.get("strict") is True:
        reason = f"This relay knows no filter {unknown[0][:ID_CHARS_MAX]!r}"
        raise RefusedError(Refusal(Code.INVALID_SCHEMA, "unknown_filter", reason))
    limit = _optional_integer(filters, "limit")
    # Spec 24.2: a negative limit is invalid_schema.
    if limit is not None and limit < 0:
        raise _malformed("limit")
    return Subscribe(
        subscription_id=_text(body, "subscription_id", ID_CHARS_MAX),
        filters=Filters(
            authors=_texts(filters, "authors", AUTHORS_MAX),
            types=_texts(filters, "types", TYPES_MAX),
            since=_optional_integer(filters, "since"),
            until=_optional_integer(filters, "until"),
            # Spec 10: an order other than desc is asc.
            descending=filters.get("order") == "desc",
            ids=_packet_ids(filters),
        ),
        # Spec 13: 100 when absent, 500 at most; more is capped.
        limit=LIMIT_DEFAULT if limit is None else min(limit, LIMIT_MAX),
        cursor=_cursor(filters),
        replication_profile=_optional_text(body, "replication_profile", ID_CHARS_MAX),
        # Spec 10: want_eose that is not true is ignored.
        want_eose=body.get("want_eose") is True,
        client_msg_id=_optional_text(body, "client_msg_id", ID_CHARS_MAX),
    )


def _read_auth(body: dict[str, Any]) -> Auth:
    author_id = _text(body, "author_id", 256)
    if not is_did(author_id):
        raise _malformed("author_id")
    signature = _text(body, "signature", 130)
    # Spec 3: 0x and 128 hex digits, read in either case.
    if not _SIGNATURE.fullmatch(signature):
        raise _malformed("signature")
    capabilities = body.get("capabilities")
    if capabilities is not None:
        # Spec 10: a list of texts, at most 32; unknown ones are ignored, not refused.
        capabilities = _texts(body, "capabilities", CAPABILITIES_MAX)
    return Auth(
        author_id=author_id,
        challenge=_text(body, "challenge", CHALLENGE_CHARS_MAX),
        signature=bytes.fromhex(signature[2:]),
        capabilities=capabilities,
        client_msg_id=_optional_text(body, "client_msg_id", ID_CHARS_MAX),
    )


def _text(body: dict[str, Any], name: str, chars_max: int) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not 1 <= len(value) <= chars_max:
        raise _malformed(name)
    return value


def _optional_text(body: dict[str, Any], name: str, chars_max: int) -> str | None:
    value = body.get(name)
    # Spec 1: in messages null is the same as absent.
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > chars_max:
        raise _malformed(name)
    return value


def _cursor(filters: dict[str, Any]) -> str | None:
    value = filters.get("cursor")
    if value is None:
        return None
    if not isinstance(value, str):
        raise _malformed("cursor")
    # Spec 13: a cursor has at most 512 characters.
    if len(value) > CURSOR_CHARS_MAX:
        raise RefusedError(Refusal(Code.INVALID_CURSOR, "too_long"))
    return value


def _texts(body: dict[str, Any], name: str, count_max: int) -> tuple[str, ...]:
    value = body.get(name)
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > count_max:
        raise _malformed(name)
    if not all(isinstance(entry, str) and len(entry) <= FILTER_CHARS_MAX for entry in value):
        raise _malformed(name)
    # Spec 24.4: lists are sets.
    return tuple(sorted(set(value)))


def _packet_ids(filters: dict[str, Any]) -> tuple[bytes, ...]:
    found = [parse_packet_id(text) for text in _texts(filters, "ids", IDS_MAX)]
    known = tuple(each for each in found if each is not None)
    # Spec 3: a packet_id is 0x and 64 lower-case hex digits.
    if len(known) < len(found):
        raise _malformed("ids")
    return known


def _optional_integer(body: dict[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool | str | list | dict):
        raise _malformed(name)
    try:
        number = normalise(value)  # 1.7e9 is the integer it looks like (clarification 2)
    except RefusedError as error:
        raise _malformed(name) from error
    if not isinstance(number, int):
        raise _malformed(name)
    return number


def _echo(body: object, name: str) -> str | None:
    value = body.get(name) if isinstance(body, dict) else None
    return value if isinstance(value, str) and len(value) <= ID_CHARS_MAX else None


def _malformed(detail: str) -> RefusedError:
    return RefusedError(Refusal(Code.INVALID_SCHEMA, detail))
