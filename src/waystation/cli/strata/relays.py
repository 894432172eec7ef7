"""``waystation strata relays``: shows and changes what this client knows of relays: score, state, pinned or not.

``commands`` passes the action and the path of the table (``sdk.relay_scores``). Only ``probe`` connects.
"""

import asyncio
import dataclasses
import time
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final

import typer
from rich.console import Console
from rich.table import Table

from waystation.cli.loop import run as run_loop
from waystation.cli.output import EXIT_FAILURE, print_json
from waystation.core.errors import HostError, LocalError, RemoteError
from waystation.protocols.strata.client.bootstrap import RelayEntry as Listed
from waystation.protocols.strata.client.watch import RelayWatch
from waystation.protocols.strata.relay_uri import parse_relay
from waystation.rules.relay_score import explain
from waystation.rules.relay_state import State
from waystation.rules.relay_window import observations
from waystation.sdk.relay_scores import RelayEntry, RelayScores
from waystation.sdk.strata.relay import RelayClient
from waystation.transport.http_get import TlsContext

__all__ = ["RelayAction", "act_on_relay", "add_listed"]


class RelayAction(Enum):
    """What can be done with a relay."""

    LIST = "list"
    ADD = "add"
    PIN = "pin"
    UNPIN = "unpin"
    FORGET = "forget"
    PROBE = "probe"


_NEED_KNOWN: Final = (RelayAction.UNPIN, RelayAction.FORGET)
_PROBE_WAIT_S: Final = 20.0  # connecting, the keys and the packets may each take ten


def act_on_relay(action: RelayAction, relay: str | None, path: Path, tls: TlsContext, *, as_json: bool) -> None:
    """Carry an action out and print what the table says then; a table that is not there is made for a relay to keep.

    Raises:
        LocalError: No relay is named, or it is not known.
        HostError: The table cannot be used.
        typer.Exit: Code 1, after a relay that was probed did not answer.
    """
    if action is RelayAction.LIST:
        _list(path, as_json=as_json)
        return
    if relay is None:
        raise LocalError(f"`relays {action.value}` needs a relay: a URI, or its address")
    parsed = parse_relay(relay)
    if action in _NEED_KNOWN and not path.exists():
        raise _unknown(parsed.ws)
    scores = RelayScores(path)
    try:
        if scores.load(parsed.ws) is None:
            for warning in parsed.warnings:
                typer.echo(f"waystation: {warning}", err=True)
        entry, answered = _act(action, parsed.ws, scores, tls)
    finally:
        scores.close()
    if entry is not None:
        _print_all([entry], as_json=as_json)
    elif as_json:
        print_json({"url": parsed.ws, "known": False})
    else:
        typer.echo(f"{parsed.ws} is forgotten", err=True)
    if not answered:
        raise typer.Exit(EXIT_FAILURE)


def add_listed(listed: Sequence[Listed], path: Path) -> None:
    """Add the relays of a checked Bootstrap Document to the table, each with the DID that it must bear.

    A relay whose DID is known already keeps it; one with another name will be refused when it is met.

    Raises:
        HostError: The table cannot be used.
    """
    scores = RelayScores(path)
    try:
        for each in listed:
            entry = scores.load(each.url) or RelayEntry.new(each.url, int(time.time()))
            scores.save(dataclasses.replace(entry, relay_id=entry.relay_id or each.relay_id or None))
    finally:
        scores.close()


def _list(path: Path, *, as_json: bool) -> None:
    if not path.exists():
        _print_all([], as_json=as_json)
        return
    scores = RelayScores(path)
    try:
        _print_all(scores.list(), as_json=as_json)
    finally:
        scores.close()


def _act(action: RelayAction, url: str, scores: RelayScores, tls: TlsContext) -> tuple[RelayEntry | None, bool]:
    """Return the entry as it is then, and False when the relay was asked and did not answer."""
    known = scores.load(url)
    if action is RelayAction.ADD:
        if known is None:
            scores.save(RelayEntry.new(url, int(time.time())))
        return scores.load(url), True
    if action is RelayAction.PIN:
        return scores.pin(url), True
    if action is RelayAction.PROBE:
        entry, answered = run_loop(_probe(known or RelayEntry.new(url, int(time.time())), tls))
        if known is not None or answered:
            scores.save(entry)
        return entry, answered
    if known is None:
        raise _unknown(url)
    if action is RelayAction.UNPIN:
        return scores.pin(url, pinned=False), True
    scores.forget(url)
    return None, True


def _unknown(url: str) -> LocalError:
    return LocalError(f"{url} is not known; `waystation strata relays` lists those that are")


async def _probe(entry: RelayEntry, tls: TlsContext) -> tuple[RelayEntry, bool]:
    """Connect once and judge the relay by it; return whether it answered, too."""
    watch = RelayWatch(entry, time.time, lambda _url, _change: None)
    watch.want()
    answered = False
    try:
        async with (
            asyncio.timeout(_PROBE_WAIT_S),
            RelayClient(entry.url, server_id=entry.relay_id, tls=tls, on_event=watch.note) as client,
            client.subscribe(limit=1, follow=False) as found,
        ):
            _ = [each async for each in found]
            answered = True  # an empty relay is a good one
    except RemoteError as error:
        answered = True
        typer.echo(f"waystation: {error}", err=True)
    except HostError as error:
        typer.echo(f"waystation: {error}", err=True)
    except TimeoutError:
        typer.echo(f"waystation: {entry.url} did not answer within {_PROBE_WAIT_S:g} s", err=True)
    watch.evaluate()
    return watch.entry, answered


def _document(entry: RelayEntry) -> dict[str, Any]:
    now_s = int(time.time())
    parts = explain(observations(entry.window, now_s))
    return {
        "url": entry.url,
        "relay_id": entry.relay_id,
        "score": round(parts.score, 4),
        "state": entry.standing.state.value,
        "pinned": entry.standing.pinned,
        "flagged": None if entry.standing.flagged is None else entry.standing.flagged.value,
        "banned_until": entry.standing.banned_until_s if entry.standing.state is State.BLACKLISTED else None,
        "why": _why(entry, now_s),
    }


def _why(entry: RelayEntry, now_s: int) -> str:
    """Return the informative parts of the score, in words."""
    seen = observations(entry.window, now_s)
    if not seen.ok and not seen.fail:
        return "never tried"
    words = [f"{seen.ok} of {seen.ok + seen.fail} connects"]
    if seen.latency_ms is not None:
        words.append(f"{seen.latency_ms:.0f} ms")
    if seen.found or seen.missing:
        words.append(f"{seen.found} of {seen.found + seen.missing} probes")
    if entry.window.violations_s:
        words.append(f"{len(entry.window.violations_s)} violations")
    words += [word for word, holds in (("limited", seen.limited), ("recent error", seen.recent_error)) if holds]
    return ", ".join(words)


def _print_all(entries: list[RelayEntry], *, as_json: bool) -> None:
    if as_json:
        for entry in entries:
            print_json(_document(entry))
        return
    if not entries:
        typer.echo("no relays yet: `waystation strata relays add wss://host/strata`", err=True)
        return
    table = Table(box=None, pad_edge=False)
    for column in ("relay", "score", "state", "why"):
        table.add_column(column, overflow="fold")
    for entry in entries:
        shown = _document(entry)
        marks = [mark for mark in ("pinned" if shown["pinned"] else "", shown["flagged"] or "") if mark]
        marked = f" ({', '.join(marks)})" if marks else ""
        state = f"{shown['state']}{marked}"
        table.add_row(entry.url, f"{shown['score']:.2f}", state, shown["why"])
    Console(highlight=False, markup=False).print(table)
