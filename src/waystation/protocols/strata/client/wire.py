"""The client's wire format: encodes the messages that it sends, and reads single fields of a relay's messages.

The client machine and its parts call it. A reader returns None for a field that is absent, null, of another type or too
long, so a bad field is only ignored.
Spec: RFC-0004 3; specs/strata.md 10.
"""

from typing import Any, Final

import orjson

from waystation.protocols.strata.canonical import normalise
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.packet import encode_signature, packet_id_text, parse_packet_id
from waystation.protocols.strata.refusals import RefusedError

__all__ = [
    "downgrade_of",
    "encode_auth",
    "encode_publish",
    "encode_subscribe",
    "encode_unsubscribe",
    "hash_in",
    "integer_in",
    "text_in",
    "texts_in",
]

_TEXT_CHARS_MAX: Final = 1_024
_LIST_MAX: Final = 32
_DOWNGRADE_FIELDS: Final = ("claimed", "origin_type", "reason")
CURSOR_MAX: Final = 4_096  # ours; foreign relays may make longer cursors than waystation


def encode_auth(
    author_id: str, challenge: str, signature: bytes, capabilities: tuple[str, ...], client_msg_id: str
) -> bytes:
    """Return AUTH."""
    return orjson.dumps(
        {
            "type": "AUTH",
            "author_id": author_id,
            "challenge": challenge,
            "signature": encode_signature(signature),
            "capabilities": list(capabilities),
            "client_msg_id": client_msg_id,
        }
    )


def encode_publish(canonical: bytes, client_msg_id: str) -> bytes:
    """Return PUBLISH around the canonical bytes of a packet."""
    # The signed bytes are spliced in as they are: writing them again could change them.
    return b'{"type":"PUBLISH","client_msg_id":%b,"packet":%b}' % (orjson.dumps(client_msg_id), canonical)


def encode_subscribe(
    subscription_id: str, filters: Filters, limit: int, cursor: str | None, profile: str | None, client_msg_id: str
) -> bytes:
    """Return SUBSCRIBE that asks for EOSE; filters that restrict nothing are left out."""
    # Spec 10: filters beside ``filters`` are ignored by the relay, so limit and order go inside.
    chosen: dict[str, Any] = {"limit": limit, "order": "desc" if filters.descending else "asc"}
    if filters.authors:
        chosen["authors"] = list(filters.authors)
    if filters.types:
        chosen["types"] = list(filters.types)
    if filters.ids:
        chosen["ids"] = list(map(packet_id_text, filters.ids))
    optional = {"since": filters.since, "until": filters.until, "cursor": cursor}
    chosen |= {name: value for name, value in optional.items() if value is not None}
    body: dict[str, Any] = {"type": "SUBSCRIBE", "subscription_id": subscription_id, "filters": chosen}
    if profile is not None:
        body["replication_profile"] = profile
    return orjson.dumps(body | {"want_eose": True, "client_msg_id": client_msg_id})


def encode_unsubscribe(subscription_id: str) -> bytes:
    """Return UNSUBSCRIBE."""
    return orjson.dumps({"type": "UNSUBSCRIBE", "subscription_id": subscription_id})


def text_in(body: dict[str, Any], name: str, chars_max: int = _TEXT_CHARS_MAX) -> str | None:
    """Return a text of at most ``chars_max`` characters, or None."""
    value = body.get(name)
    return value if type(value) is str and len(value) <= chars_max else None


def texts_in(body: dict[str, Any], name: str) -> tuple[str, ...]:
    """Return the texts of a list, at most 32; empty when it is no list."""
    value = body.get(name)
    return tuple(each for each in value[:_LIST_MAX] if type(each) is str) if type(value) is list else ()


def integer_in(body: dict[str, Any], name: str) -> int | None:
    """Return an integer from 0 to 2^53-1, in whatever spelling (1.7e9 is one), or None."""
    value = body.get(name)
    # Spec 24.2: an integer by value; a bool is none.
    if value is None or isinstance(value, bool | str | list | dict):
        return None
    try:
        number = normalise(value)
    except RefusedError:
        return None
    return number if isinstance(number, int) and number >= 0 else None


def hash_in(body: dict[str, Any], name: str) -> bytes | None:
    """Return the 32 bytes of a packet id, or None."""
    text = text_in(body, name)
    return None if text is None else parse_packet_id(text)


def downgrade_of(body: dict[str, Any]) -> dict[str, str] | None:
    """Return the three texts of ``provenance_downgrade``, or None when there is none."""
    declared = body.get("provenance_downgrade")
    if not isinstance(declared, dict):
        return None
    return {name: text_in(declared, name) or "" for name in _DOWNGRADE_FIELDS}
