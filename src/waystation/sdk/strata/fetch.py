"""Fetches one packet by its id over HTTP, and checks it like a packet from a subscription.

``RelayClient`` and ``ManyRelays`` call it.

Spec: RFC-0004 4; specs/strata.md 16.
"""

from typing import Any, Final

from waystation.core.errors import LocalError
from waystation.protocols.strata.canonical import MESSAGE_DEPTH_MAX, parse
from waystation.protocols.strata.client.events import PublishRefused
from waystation.protocols.strata.client.inspection import Fault, Inspected, KeysOf, inspect_packet
from waystation.protocols.strata.client.wire import integer_in
from waystation.protocols.strata.packet import PACKET_ID_BYTES, packet_id_text, parse_packet_id
from waystation.protocols.strata.refusals import RefusedError
from waystation.sdk.errors import RelayLiedError, RequestRefusedError
from waystation.transport.http_get import TlsContext, http_get

__all__ = ["Fetched", "as_packet_id", "check_fetched", "fetch_packet", "refusal_of"]

Fetched = dict[str, Any]
"""The JSON object of a relay's answer; its ``received_at`` is an integer."""

_ABSENT: Final = (404, 410)
_OK: Final = 200


def as_packet_id(wanted: bytes | str) -> bytes:
    """Return a packet id given as 32 bytes or as ``0x`` and 64 lower-case hexadecimal digits.

    Raises:
        LocalError: It is neither.
    """
    packet_id = parse_packet_id(wanted) if isinstance(wanted, str) else wanted
    if not isinstance(packet_id, bytes) or len(packet_id) != PACKET_ID_BYTES:
        raise LocalError("a packet id is 32 bytes, or as text 0x and 64 lower-case hexadecimal digits")
    return packet_id


async def fetch_packet(http_base: str, packet_id: bytes, *, tls: TlsContext | None, timeout_s: float) -> Fetched | None:
    """Return what a relay answers, not checked yet; None when it does not have the packet (any more).

    Raises:
        HostError: The relay cannot be reached.
        RequestRefusedError: It answers with another status; the code is ``http_`` and the status.
        RelayLiedError: It answers with something else.
    """
    url = f"{http_base}/strata/packets/{packet_id_text(packet_id)}"
    status, raw = await http_get(url, context=tls, timeout_s=timeout_s)
    if status in _ABSENT:
        return None
    if status != _OK:
        raise RequestRefusedError(http_base, f"http_{status}", "")
    try:
        body = parse(raw, MESSAGE_DEPTH_MAX)
    except RefusedError as error:
        raise RelayLiedError(f"{url} answers with no JSON: {error.refusal.detail}") from error
    if not isinstance(body, dict) or integer_in(body, "received_at") is None:
        raise RelayLiedError(f"{url} answers with no packet")
    return body


def check_fetched(fetched: Fetched, packet_id: bytes, wall_s: int, keys_of: KeysOf | None) -> Inspected | Fault:
    """Judge what was fetched: its id, its signature, its life, and that it is what was asked for."""
    inspected = inspect_packet(fetched, None, fetched["received_at"], wall_s, keys_of)
    if not isinstance(inspected, Fault) and inspected.packet.packet_id != packet_id:
        return Fault("packet_id", "another packet than was asked for", packet_id)
    return inspected


def refusal_of(relay: str, refused: PublishRefused) -> RequestRefusedError:
    """Return what to raise for a packet that the relay at this address refused, with the size that it takes."""
    _, _, code, detail, reason, retry_after_s, max_bytes = refused
    sentence = reason if max_bytes is None else f"{reason.rstrip('.')}; it takes at most {max_bytes} bytes"
    return RequestRefusedError(relay, code, detail, retry_after_s, sentence)
