"""``waystation bhumi pending``: the requests without an outcome: lists them, asks for their outcomes, cancels some."""

import contextlib
import time
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from waystation.cli.bhumi.pairing import DEFAULT_HOME, HomeOption, check_existing
from waystation.cli.bhumi.show import as_document, span_text
from waystation.cli.bhumi.ways import RelayOption, open_ways
from waystation.cli.loop import run as run_loop
from waystation.cli.options import CaOption, InsecureOption, JsonOption
from waystation.cli.output import print_json, visible
from waystation.core.errors import LocalError
from waystation.core.ids import encode_id52
from waystation.crypto.hashing import sha256
from waystation.sdk.bhumi import BhumiState, Pending, PendingKind, Recovered
from waystation.sdk.bhumi.sending.owner import is_alive
from waystation.sdk.errors import UnknownPeerError

__all__ = ["register"]

_NAME_CHARS: Final = 8
_KINDS: Final = {
    PendingKind.HANDSHAKE: "accepts an invite",
    PendingKind.MESSAGE: "request",
    PendingKind.SPARES: "asks for permissions",
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(pending)


def pending(
    ask: Annotated[bool, typer.Option("--ask", help="Ask for their outcomes now, and print what is known.")] = False,
    cancel: Annotated[
        list[str] | None,
        typer.Option("--cancel", help="Ask no more for this one, or for all of this peer; may repeat."),
    ] = None,
    relay: RelayOption = None,
    home: HomeOption = DEFAULT_HOME,
    ca: CaOption = None,
    insecure: InsecureOption = False,
    as_json: JsonOption = False,
) -> None:
    """List the requests that have no outcome yet, ask for their outcomes, or cancel some.

    Each may have been handled by its peer, once. Later sends to the peer ask on for its outcome by themselves. One that
    is cancelled is not asked for any more: what has arrived is not taken back, and its permission is lost.

    Example: waystation bhumi pending --ask
    """
    check_existing(home)
    if ask and cancel:
        raise LocalError("--ask and --cancel exclude each other")
    with contextlib.closing(BhumiState(home)) as state:
        if cancel:
            _cancel(state, cancel, as_json=as_json)
        elif ask:
            peers = dict.fromkeys(each.peer for each in state.pending())
            named = relay or list(dict.fromkeys(url for peer in peers for url in state.relays_of(peer)))
            with open_ways(home, named, ca, insecure=insecure, find=False, state=state) as ways:

                async def recover() -> list[Recovered]:
                    async with ways.sender(state, None, wait_s=0.0, dials_private=False) as sender:
                        return await sender.recover()

                _print_outcomes(state, run_loop(recover()), as_json=as_json)
        else:
            _print_all(state, as_json=as_json)


def _print_all(state: BhumiState, *, as_json: bool) -> None:
    waiting = state.pending()
    for each in waiting:
        document = _document(state, each)
        if as_json:
            print_json(document)
            continue
        age_s = int(time.time() - each.created)
        working = "; a program works on it" if document["working"] else ""
        alias = visible(document["alias"])
        typer.echo(f"{alias:<16} {document['request']}  {_KINDS[each.kind]}, {span_text(age_s)} ago{working}")
    if not waiting and not as_json:
        typer.echo("every request has an outcome", err=True)


def _print_outcomes(state: BhumiState, outcomes: Sequence[Recovered], *, as_json: bool) -> None:
    for each in outcomes:
        content = {} if each.reply is None else as_document("reply", each.reply.content)
        if as_json:
            outcome = None if each.reply is None else each.reply.outcome.value
            facts = {"peer": encode_id52(each.peer), "alias": _name(state, each.peer), "kind": each.kind.value}
            print_json({**facts, "outcome": outcome, "note": each.note, **content})
        else:
            shown = f": {content['reply']}" if "reply" in content else ""
            typer.echo(visible(f"{_name(state, each.peer)}: the {each.kind.value} {each.note}{shown}"))
    if not outcomes and not as_json:
        typer.echo("every request has an outcome", err=True)


def _cancel(state: BhumiState, names: Sequence[str], *, as_json: bool) -> None:
    for each in _named(state, names):
        if is_alive(state.home, each.owner):
            raise LocalError(f"a program that runs works on {_request_name(each)}; end it first")
        document = _document(state, each)
        state.cancel(each.preimage)
        if as_json:
            print_json({**document, "cancelled": True})
        else:
            typer.echo(visible(f"cancelled {document['request']} to {document['alias']}: it may have been handled"))


def _named(state: BhumiState, names: Sequence[str]) -> list[Pending]:
    """Return the requests that names of requests, aliases and id52 stand for; raises LocalError for one of nothing."""
    found: dict[bytes, Pending] = {}
    for name in names:
        peer = None
        with contextlib.suppress(UnknownPeerError):
            peer = state.find_peer(name).identity
        some = [each for each in state.pending() if each.peer == peer or name in (_request_name(each), each.alias)]
        if not some:
            raise LocalError(f"no request is called {name!r}, and none waits for a peer of that name")
        found |= {each.preimage: each for each in some}
    return list(found.values())


def _document(state: BhumiState, each: Pending) -> dict[str, Any]:
    return {
        "request": _request_name(each),
        "peer": encode_id52(each.peer),
        "alias": _name(state, each.peer) if not each.alias else each.alias,
        "kind": each.kind.value,
        "created": int(each.created),
        "working": is_alive(state.home, each.owner),
    }


def _name(state: BhumiState, peer: bytes) -> str:
    known = state.peer(peer)
    return encode_id52(peer)[:_NAME_CHARS] if known is None else known.name


def _request_name(each: Pending) -> str:
    return sha256(each.preimage).hex()[:_NAME_CHARS]
