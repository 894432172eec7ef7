"""Formats the output of ``waystation bsp``: short identifiers in text, full ones in JSON, controls escaped.

The modules of ``cli/bsp`` and the chat pass what the SDK returns.
"""

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import typer

from waystation.cli.bsp.place import Row
from waystation.cli.output import visible
from waystation.core.ids import encode_id52
from waystation.protocols.bsp.invite import format_group
from waystation.sdk.bsp import (
    BundleRefused,
    CarrierTrouble,
    ExportResult,
    FormatFailed,
    Group,
    GroupLeftOut,
    GroupStatus,
    HomeGroup,
    HomePeer,
    ImportResult,
    InvalidMessageError,
    OrderRefused,
    PeerDown,
    PeerStatus,
    PeerUnreachable,
    PeerUp,
    Status,
    StoreFailed,
    StoreRecovered,
    deps_v1_content,
)

__all__ = [
    "content_of",
    "describe_export",
    "describe_group",
    "describe_import",
    "describe_peer",
    "describe_row",
    "describe_status",
    "say_running",
    "short",
    "show_event",
    "show_export",
    "show_import",
    "show_rows",
    "show_status",
]

_SHORT_DIGITS: Final = 8
_LATEST_MS: Final = 253_402_300_799_000  # the last second of the year 9999
_TEXT_CHARS_MAX: Final = 60
_WHY_DOWN: Final = {
    "unknown_peer": "it is not in our table of peers; `waystation bsp peers add` puts it there",
    "refused_by_peer": "it does not know us, where `waystation bsp peers add` wants our key (`waystation bsp id`), or"
    " does not admit us (not on its list, or banned)",
    "wrong_peer": "somebody with another key answers there",
    "bad_signature": "its proof is false; somebody may sit between us",
    "busy": "it has no room for one more connection",
    "replaced": "a newer connection took its place",
}


def short(identifier: bytes) -> str:
    """Return the first digits of an identifier, enough to distinguish a few."""
    return identifier.hex()[:_SHORT_DIGITS]


def content_of(body: bytes | None, format_name: str) -> bytes | None:
    """Return what people want to see of a body: not what it depends on."""
    if body is None or format_name == "opaque":
        return body
    with contextlib.suppress(InvalidMessageError):
        return deps_v1_content(body)
    return body


# Groups and peers


def describe_group(entry: HomeGroup, shared_with: Sequence[bytes] = ()) -> dict[str, Any]:
    """Return what there is to know of a group of a device; ``join`` is what others need to become members."""
    group = entry.group
    return {
        "id": group.group_id.hex(),
        "name": entry.name,
        "format": group.format,
        "client_id": group.client_id.hex(),
        "descriptor": group.descriptor.hex(),
        "join": format_group(group),
        "shared_with": [key.hex() for key in shared_with],
    }


def describe_peer(entry: HomePeer) -> dict[str, Any]:
    """Return what there is to know of a peer of a device."""
    return {"key": entry.key.hex(), "id52": encode_id52(entry.key), "name": entry.name, "url": entry.url}


# Messages


def describe_row(row: Row, body: bytes | None = None, *, with_body: bool = False) -> dict[str, Any]:
    """Return a message as ``list --json`` prints it."""
    fields: dict[str, Any] = {
        "id": row.message_id.hex(),
        "state": row.state,
        "delivery_order": row.order or None,
        "body_present": row.body_present,
        "timestamp": row.timestamp,
        "size_bytes": row.size_bytes,
    }
    if with_body:
        fields["dependencies"] = [each.hex() for each in row.dependencies]
        fields["body_hex"] = body.hex() if body is not None else None
    return fields


def show_rows(rows: Sequence[Row], bodies: Mapping[bytes, bytes | None]) -> None:
    """Print messages for people, a line each."""
    if not rows:
        typer.echo("no messages yet", err=True)
    for row in rows:
        number = str(row.order) if row.order else "-"
        body = "" if row.body_present or row.state == "invalid" else "  (deleted)"
        text = _text(bodies[row.message_id]) if row.message_id in bodies else ""
        line = f"{number:>6}  {short(row.message_id)}  {row.state:<9}  {_when(row.timestamp)}  {row.size_bytes:>6} B"
        typer.echo(f"{line}{body}{text}")


def _text(body: bytes | None) -> str:
    if body is None:
        return ""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = body.hex()
    cut = text if len(text) <= _TEXT_CHARS_MAX else text[:_TEXT_CHARS_MAX] + "…"
    return "  " + visible(cut, kept="")


def _when(timestamp_ms: int) -> str:
    if timestamp_ms > _LATEST_MS:
        return f"{timestamp_ms:>19}"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(timestamp_ms / 1_000))


# Files


def describe_export(result: ExportResult) -> dict[str, Any]:
    """Return what was exported."""
    return {**result._asdict(), "path": str(result.path) if result.path else None, "peer": result.peer.hex()}


def describe_import(result: ImportResult, path: str) -> dict[str, Any]:
    """Return what was imported."""
    return {"path": path, **result._asdict(), "sender": result.sender.hex()}


def show_export(result: ExportResult, name: str) -> None:
    """Print what was exported, for people."""
    if result.path is None:
        typer.echo(f"nothing is due for {name}; no file was written")
        typer.echo("note: what is in an earlier file goes into another one after a day, or with --again", err=True)
        return
    size = f"{result.size_bytes:,} bytes"
    typer.echo(f"{result.path}: {_count(result.messages_count, 'message')} and {_acks(result.acks_count)}, {size}")
    if not result.complete:
        typer.echo(f"there is more for {name}: export another file", err=True)


def show_import(result: ImportResult, path: str, name: str) -> None:
    """Print what was imported, for people."""
    messages = f"{_count(result.messages_count, 'message')}, {result.new_count} new"
    refused = (
        f", {result.refused_count} not taken (its group is not shared with {name})" if result.refused_count else ""
    )
    typer.echo(f"{path}: from {name}: {messages}{refused}, {_acks(result.acks_count)}")


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _acks(count: int) -> str:
    return _count(count, "acknowledgement")


# How it stands


def describe_status(status: Status, *, is_running: bool = False) -> dict[str, Any]:
    """Return how a device stands; beside a program that runs with it nobody else knows its links."""
    return {
        "running": is_running,
        "key": status.key.hex(),
        "id52": encode_id52(status.key),
        "groups": [_describe_group_status(group) for group in status.groups],
        "left_out": [{"id": each.group_id.hex(), "name": each.name, "reason": each.reason} for each in status.left_out],
        "peers": [_describe_peer_status(peer) for peer in status.peers],
    }


def _describe_group_status(status: GroupStatus) -> dict[str, Any]:
    group: Group = status.group
    return {
        "id": group.group_id.hex(),
        "name": status.name,
        "format": group.format,
        "delivered": status.delivered_count,
        "pending": status.pending_count,
        "invalid": status.invalid_count,
        "bodies": status.bodies_count,
        "bodies_bytes": status.bodies_bytes,
        "shared_with": {key.hex(): visibility.value for key, visibility in status.audience.items()},
    }


def _describe_peer_status(status: PeerStatus) -> dict[str, Any]:
    return {
        "key": status.key.hex(),
        "name": status.name,
        "url": status.url,
        "link": status.link,
        "owed": status.owed_count,
    }


def show_status(status: Status, *, is_running: bool = False) -> None:
    """Print how a device stands, for people; see ``describe_status``."""
    typer.echo(f"key    {status.key.hex()}")
    for group in status.groups:
        counts = (
            f"{group.delivered_count:,} delivered, {group.pending_count:,} pending, {group.invalid_count:,} invalid"
        )
        shared = f"shared with {len(group.audience)}"
        typer.echo(f"group  {short(group.group.group_id)}  {visible(group.name):<12}  {counts}; {shared}")
    for left_out in status.left_out:
        typer.echo(f"group  {short(left_out.group_id)}  {visible(left_out.name):<12}  left out: {left_out.reason}")
    for peer in status.peers:
        link = f"; connected ({peer.link})" if peer.link else "" if is_running else "; not connected"
        owed = f"lacks {_count(peer.owed_count, 'message')} of ours" if peer.owed_count else "has all of ours"
        typer.echo(f"peer   {short(peer.key)}  {visible(peer.name):<12}  {owed}{link}  {peer.url}")
    if is_running:
        say_running()


def say_running() -> None:
    """Say that what is shown was read beside the program that works with it."""
    _say("note: another program works with this; who is connected, and what is under way, it alone knows")


def show_event(event: object, names: Mapping[bytes, str]) -> None:
    """Say on stderr what happened to a connection, in a sentence; of other events nothing."""
    if isinstance(event, PeerUp):
        _say(f"connected with {_name(event.key, names)} ({event.kind})")
    elif isinstance(event, PeerDown) and event.reason != "unreachable":
        why = _WHY_DOWN.get(event.reason, event.reason.replace("_", " "))
        _say(f"no connection with {_name(event.key, names)}: {why}")
    elif isinstance(event, StoreFailed):
        _say(f"this disk refuses, and nobody gets an acknowledgement: {event.reason}")
    elif isinstance(event, StoreRecovered):
        _say(f"this disk takes writes again, after {event.seconds:.0f} s")
    elif isinstance(event, PeerUnreachable | CarrierTrouble):
        _say(f"{_name(event.peer, names)}: {event.reason}")
    elif isinstance(event, BundleRefused):
        _say(f"something came by {event.kind} that is refused: {event.refusal.value.replace('_', ' ')}")
    elif isinstance(event, GroupLeftOut):
        _say(f"the group {event.name or short(event.group_id)} is left out: {event.reason}")
    elif isinstance(event, FormatFailed):
        _say(f"messages of format {event.format} count as invalid by mistake: {event.reason}")
    elif isinstance(event, OrderRefused):
        _say(f"something that was left for this home was impossible: {event.reason}")


def _name(key: bytes, names: Mapping[bytes, str]) -> str:
    return names.get(key) or short(key)


def _say(text: str) -> None:
    typer.echo(visible(text), err=True)
