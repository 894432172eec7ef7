"""Formats the output of ``waystation merk``: messages, files and connections.

The commands pass what the SDK returns. Keys are printed in full, so that they can be pasted. Terminal control
characters in messages are escaped.
"""

import base64
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import typer
from rich.progress import BarColumn, DownloadColumn, TransferSpeedColumn

from waystation.cli.output import print_json, visible
from waystation.cli.progress import ProgressLines
from waystation.core.ids import encode_id52
from waystation.sdk.merk import (
    Auth,
    Connected,
    Disconnected,
    FileFailed,
    FileProgress,
    Json,
    Message,
    MessageDropped,
    ReceivedFile,
    ServersLearnt,
    Text,
)

__all__ = ["ConnectionNews", "describe_message", "file_bars", "show_message", "show_servers"]

_LATEST_S: Final = 253_402_300_799  # the last second of the year 9999
_AUTH_NOTES: Final = {
    Auth.BOUND: "",
    Auth.LEGACY: "a form of the original: perhaps written for, or by, somebody else",
    Auth.AMBIGUOUS: "32 signed bytes: perhaps an answer to a server's challenge, and no message",
    Auth.NONE: "nothing proves who sent this",
}


def file_bars(*, shown: bool) -> ProgressLines:
    """Return bars for files under way; ``show`` of one takes its key, name, bytes done and bytes in all."""
    return ProgressLines(BarColumn(), DownloadColumn(), TransferSpeedColumn(), shown=shown)


class ConnectionNews:
    """Prints on stderr what a client reports: relays reached and lost, messages dropped, files under way."""

    def __init__(self, bars: ProgressLines, *, public_key: bytes, waits: bool) -> None:
        """Begin.

        Args:
            bars: For files that arrive.
            public_key: Who we are.
            waits: Whether failures to connect are followed by another try that somebody waits for.
        """
        self._bars = bars
        self._key = public_key
        self._waits = waits
        self._missed: set[str] = set()

    def show(self, event: object) -> None:
        """Take an event of ``MerkClient``."""
        if isinstance(event, Connected):
            self._missed.clear()
            if self._waits:
                proved = "" if event.authenticated else ", which proves nothing about itself (an original relay?)"
                typer.echo(visible(f"listening as {self._key.hex()} at {event.relay}{proved}"), err=True)
        elif isinstance(event, Disconnected):
            if self._waits and event.relay not in self._missed:
                self._missed.add(event.relay)
                typer.echo(visible(f"waystation: {event.reason}; trying again"), err=True)
        elif isinstance(event, MessageDropped):
            sender = "" if event.sender is None else f" that says it is from {event.sender.hex()}"
            typer.echo(f"waystation: dropped a message{sender}: {event.refusal.value}", err=True)
        elif isinstance(event, ServersLearnt):
            typer.echo(visible(f"waystation: {event.relay} named {', '.join(event.addresses)}"), err=True)
        else:
            self._show_file(event)

    def _show_file(self, event: object) -> None:
        if isinstance(event, FileProgress):
            key, name = (event.sender, event.transfer_id), visible(event.name)
            self._bars.show(key, name, event.received_bytes, event.total_bytes)
        elif isinstance(event, FileFailed):
            self._bars.end((event.sender, event.transfer_id))
            typer.echo(visible(f"waystation: dropped the file {event.name!r}: {event.reason}"), err=True)


def describe_message(message: Message, saved: Path | None) -> dict[str, Any]:
    """Return a message for JSON; ``saved`` is where its file is now."""
    document: dict[str, Any] = {
        "sender": message.sender.hex(),
        "sender_id52": encode_id52(message.sender),
        "mode": message.mode.value,
        "auth": message.auth.value,
        "sent_at_ms": message.time_ms,
        "message_id": message.message_id.hex(),
        "late": message.late,
        "relay": message.relay,
    }
    return document | _describe_content(message, saved)


def show_message(message: Message, saved: Path | None, *, as_json: bool) -> None:
    """Print one message: when, how protected and how well proved, and its sender; below, what it says."""
    if as_json:
        print_json(describe_message(message, saved))
        sys.stdout.flush()
        return
    sent_s = time.time() if message.time_ms is None else min(message.time_ms // 1_000, _LATEST_S)
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(sent_s))
    shown_id = message.id.hex()
    typer.echo(f"{when}  {message.mode.value}, {message.auth.value}  {message.sender.hex()}  id {shown_id}")
    notes = [_AUTH_NOTES[message.auth]] if _AUTH_NOTES[message.auth] else []
    notes += ["sent long ago or by a wrong clock; it may be a replay"] if message.late else []
    for note in notes:
        typer.echo(f"  ({note})")
    typer.echo(visible(f"  {_summary(message, saved)}"))
    sys.stdout.flush()


def show_servers(listed: Sequence[Mapping[str, Any]]) -> None:
    """Print the list of relays under a heading; the selected one has an asterisk.

    Args:
        listed: What ``merk_keys.describe_server`` returns of each.
    """
    width = max(len("address"), *(len(visible(each["address"])) for each in listed))
    typer.echo(f"  from  {'address':<{width}}  key that it has proved")
    for each in listed:
        mark = "*" if each["selected"] else " "
        proved = each["key"] or "not proved yet"
        typer.echo(f"{mark} {each['origin']}  {visible(each['address']):<{width}}  {proved}")


def _describe_content(message: Message, saved: Path | None) -> dict[str, Any]:
    content = message.content
    if isinstance(content, Text):
        return {"kind": "text", "text": content.text}
    if isinstance(content, Json):
        return _describe_json(content)
    if isinstance(content, ReceivedFile):
        file: dict[str, Any] = {"kind": "file", "name": content.name, "bytes": content.size_bytes}
        return file | {"saved": str(saved) if saved is not None else None}
    document = {"kind": "raw", "data_base64": base64.b64encode(content.data).decode("ascii")}
    return document if message.text is None else document | {"text": message.text}


def _describe_json(content: Json) -> dict[str, Any]:
    """Return a value, or its text where it has a number that only its sender's JSON can write, such as 1e999."""
    value = content.value()
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return {"kind": "json", "json": None, "text": content.text}
    return {"kind": "json", "json": value}


def _summary(message: Message, saved: Path | None) -> str:
    content = message.content
    if isinstance(content, ReceivedFile):
        where = "not kept; listen with --save" if saved is None else f"saved as {saved}"
        return f"file {content.name!r}, {content.size_bytes} bytes, {where}"
    if message.text is not None:
        return message.text.replace("\n", "\n  ")
    assert not isinstance(content, Text | Json)
    return f"{len(content.data)} bytes: {content.data[:64].hex()}{'…' if len(content.data) > 64 else ''}"
