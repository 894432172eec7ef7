"""``waystation bhumi``: listen, pair and send as a Bhumi participant.

Results are printed to stdout (with --json one object a line), everything else to stderr.
"""

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import typer.core

from waystation.cli.bhumi import pending
from waystation.cli.bhumi.listen import Listener, handler_of
from waystation.cli.bhumi.pairing import DEFAULT_HOME, AliasOption, HomeOption, check_existing, register
from waystation.cli.bhumi.relays import Wishes, show_relays
from waystation.cli.bhumi.show import print_reply, with_hint
from waystation.cli.bhumi.ways import (
    DialsPrivateOption,
    FindOption,
    HiddenOption,
    RelayOption,
    Ways,
    look_around,
    open_ways,
)
from waystation.cli.loop import run as run_loop
from waystation.cli.options import (
    CaOption,
    InsecureOption,
    JsonOption,
    TextArgument,
    ca_or_local,
    count_option,
)
from waystation.cli.output import EXIT_FAILURE, print_json
from waystation.cli.program import own_program
from waystation.core.errors import LocalError
from waystation.core.ids import encode_id52
from waystation.protocols.bhumi.payload.contents import MalformedPayloadError, decode_command, encode_command
from waystation.sdk.bhumi import (
    BhumiState,
    Command,
    ContentType,
    Device,
    Dialect,
    decode_invite,
)
from waystation.sdk.bhumi.connection import CONNECT_TIMEOUT_S
from waystation.sdk.bhumi.pairing.inviting import check_end, learn_authority
from waystation.transport.tls import client_context

__all__ = ["app"]

_LEGACY: Final = (
    "this token has no secret: a relay that carries it can pair in your place, and in bhumi-v1 write requests in your "
    "name; ask for one that begins with bhumi:"
)
_DASHED_TOKEN: Final = re.compile(r"-[A-Za-z0-9_-]{85}")  # one token in 64 begins like an option

app = typer.Typer(
    rich_markup_mode=None, no_args_is_help=True, add_completion=False, help="Listen and send as a Bhumi device."
)

ListenDialectOption = Annotated[
    Dialect,
    typer.Option(
        "--e2e",
        help="Concerns legacy peers: bhumi-v1 takes suite-1 and suite-2 too, those only themselves; none: the "
        "original's. suite-3 takes no legacy peer.",
    ),
]
AcceptDialectOption = Annotated[
    Dialect | None,
    typer.Option(
        "--e2e",
        help="What the token says unless given. For a token without a secret: bhumi-v1, suite-1, suite-2, or none.",
    ),
]
SendDialectOption = Annotated[
    Dialect | None, typer.Option("--e2e", help="As for accept; what the peer was accepted with unless given.")
]
WaitOption = Annotated[float, typer.Option("--wait", min=0, help="Seconds to wait for a peer that is offline.")]


class _AcceptCommand(typer.core.TyperCommand):
    """Takes a token that begins with a dash for what it is."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put such a token behind "--", where nothing is an option."""
        tokens = [each for each in args if _DASHED_TOKEN.fullmatch(each)]
        if tokens and "--" not in args:
            args = [each for each in args if each not in tokens] + ["--", *tokens]
        return super().parse_args(ctx, args)


register(app)
pending.register(app)


@app.command()
def listen(
    relay: RelayOption = None,
    home: HomeOption = DEFAULT_HOME,
    ca: CaOption = None,
    insecure: InsecureOption = False,
    echo: Annotated[bool, typer.Option("--echo", help="Answer with what was asked.")] = False,
    execute: Annotated[
        str | None, typer.Option("--exec", help="Answer with what this command prints; the content is its stdin.")
    ] = None,
    e2e: ListenDialectOption = Dialect.E2E,
    original_relay: Annotated[
        bool, typer.Option("--original-relay", help="The relay is the original one, not waystation.")
    ] = False,
    count: Annotated[int, count_option("requests")] = 0,
    find: FindOption = False,
    hidden: HiddenOption = False,
    as_json: JsonOption = False,
) -> None:
    """Stay connected to a relay, print what peers ask, and answer.

    With --find the relay is chosen among those that are known, and another one when it fails; now and then another is
    tried, when the relay asks for it, and only this identity learns how good it is.

    Example: waystation bhumi listen --relay tls://localhost:8443 --echo
    """
    handler = handler_of(echo, execute)
    with open_ways(home, relay, ca, insecure=insecure, find=find) as ways:
        state = BhumiState(home)
        listener = Listener(state, count, as_json=as_json, hidden=hidden)
        device = Device(
            state,
            ways.relays,
            handler,
            book=ways.book,
            quality=ways.quality,
            findable=not hidden,
            tls=ways.tls,
            dialect=e2e,
            original_relay=original_relay,
            on_event=listener.show,
        )

        async def stay() -> None:
            await look_around(ways)
            await listener.run(device)

        _run(state, stay())


@app.command(cls=_AcceptCommand)
def accept(
    token: Annotated[str, typer.Argument(help="What the other side made with `invite`.")],
    relay: RelayOption = None,
    home: HomeOption = DEFAULT_HOME,
    ca: CaOption = None,
    insecure: InsecureOption = False,
    alias: AliasOption = "",
    e2e: AcceptDialectOption = None,
    wait: WaitOption = 0.0,
    find: FindOption = False,
    dials_private: DialsPrivateOption = False,
    as_json: JsonOption = False,
) -> None:
    """Pair with whoever made a token; the other side must be listening.

    The token names relays and their authority; --relay, --ca and --insecure win.

    Example: waystation bhumi accept TOKEN --alias alice
    """
    given = decode_invite(token)
    check_end(given)
    if given.is_legacy:
        typer.echo(f"waystation: {_LEGACY}", err=True)

    async def pair(state: BhumiState, ways: Ways) -> None:
        await look_around(ways)
        known = state.inviter_of(given.preimage) is not None
        async with ways.sender(state, e2e, wait_s=wait, dials_private=dials_private) as sender:
            peer = await sender.accept(token, alias=alias)
        ways.keep_for(state, peer.identity, insecure=insecure)
        id52 = encode_id52(peer.identity)
        if as_json:
            status = "known" if known else "ok"
            facts = {"rights": peer.rights, "legacy": peer.is_legacy}
            print_json({"status": status, "peer": id52, "alias": peer.alias, **facts})
            return
        typer.echo(f"{'already paired' if known else 'paired'} with {peer.name} ({id52})")
        way = ["--find"] if find and not relay else []
        words = [*own_program(), "bhumi", "send", peer.alias or id52, "hello", *way, "--home", str(home)]
        typer.echo(f"\nNow: {shlex.join(words)}", err=True)

    if e2e is not None and e2e.is_legacy and not given.is_legacy:
        typer.echo(f"waystation: {e2e.value} is weaker than what the invitation is for, which is used", err=True)
        e2e = None
    with contextlib.closing(BhumiState(home)) as state:
        named = relay or list(given.relays)
        if ca is None and not insecure:
            run_loop(learn_authority(state, replace(given, relays=tuple(named)), CONNECT_TIMEOUT_S))
        with open_ways(home, named, ca, insecure=insecure, find=find, state=state) as ways:
            run_loop(pair(state, ways))


@app.command()
def send(
    peer: Annotated[str, typer.Argument(help="Alias or id52.")],
    text: TextArgument = None,
    relay: RelayOption = None,
    home: HomeOption = DEFAULT_HOME,
    ca: CaOption = None,
    insecure: InsecureOption = False,
    file: Annotated[Path | None, typer.Option("--file", help="Send the bytes of this file.")] = None,
    command: Annotated[
        str | None, typer.Option("--command", help='Send a command: a name, or JSON such as {"cmd":"led","args":1}.')
    ] = None,
    e2e: SendDialectOption = None,
    wait: WaitOption = 0.0,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=0.1, help="Seconds in all; default: 60 for an outcome, plus --wait."),
    ] = None,
    repeatable: Annotated[
        bool,
        typer.Option("--repeatable", help="The peer may handle this twice: use another permission where one fails."),
    ] = False,
    find: FindOption = False,
    dials_private: DialsPrivateOption = False,
    as_json: JsonOption = False,
) -> None:
    """Ask a peer and print its answer.

    A peer that is not where it was is looked for by asking the relays. The peer handles a request once or never: one
    without an outcome is kept, and asked for again by later sends. Several of these commands may run at once.

    Example: waystation bhumi send alice "how are you?" --wait 30
    """
    content, content_type = _content(text, file, command)
    check_existing(home)

    async def ask(state: BhumiState, ways: Ways) -> None:
        await look_around(ways)
        async with ways.sender(state, e2e, wait_s=wait, dials_private=dials_private) as sender:
            reply = await sender.send(peer, content, content_type, repeatable=repeatable, timeout_s=timeout)
            if reply.failure is not None:
                raise with_hint(reply, home)
            print_reply(peer, reply, as_json=as_json)
        if reply.status:
            raise typer.Exit(EXIT_FAILURE)

    with contextlib.closing(BhumiState(home)) as state:
        named = relay or state.relays_of(state.find_peer(peer).identity)
        with open_ways(home, named, ca, insecure=insecure, find=find, state=state) as ways:
            run_loop(ask(state, ways))


@app.command()
def relays(
    add: Annotated[
        list[str] | None, typer.Option("--add", help="Keep this relay, tls://host:port; may repeat.")
    ] = None,
    remove: Annotated[list[str] | None, typer.Option("--remove", help="Forget this relay; may repeat.")] = None,
    lan: Annotated[
        float, typer.Option("--lan", metavar="SECONDS", min=0, max=60, help="First look on the local network so long.")
    ] = 0.0,
    refresh: Annotated[bool, typer.Option("--refresh", help="First ask up to three of them for others.")] = False,
    private: Annotated[
        bool, typer.Option("--dials-private", help="Believe relays that say they are at a private address, too.")
    ] = False,
    home: HomeOption = DEFAULT_HOME,
    ca: CaOption = None,
    insecure: InsecureOption = False,
    as_json: JsonOption = False,
) -> None:
    """List the relays this identity knows: from where, how good each was so far, and for how long.

    Relays of the local network come first, and are trusted no more than others. Scores are for this identity only.

    Example: waystation bhumi relays --add tls://relay.example:8443 --refresh
    """
    tls = client_context(ca_or_local(ca), verify=not insecure) if refresh else None
    wishes = Wishes(add or (), remove or (), lan, refresh, private)
    show_relays(home, wishes, tls, as_json=as_json)


def _content(text: str | None, file: Path | None, command: str | None) -> tuple[bytes, ContentType]:
    """Return what to send and how it is to be read."""
    count = sum(given is not None for given in (text, file, command))
    if count > 1:
        raise LocalError("only one content can be sent at a time: a text, --file or --command")
    if count == 0:
        raise LocalError("say what to send: a text, - for stdin, --file or --command")
    if command is not None:
        return _command_content(command), ContentType.COMMAND
    if file is not None:
        try:
            return file.read_bytes(), ContentType.BINARY
        except OSError as error:
            raise LocalError(f"cannot read {file}: {error.strerror}") from error
    raw = sys.stdin.buffer.read() if text == "-" else os.fsencode(text or "")
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw, ContentType.BINARY
    return raw, ContentType.TEXT


def _command_content(text: str) -> bytes:
    """Return a command's JSON; a bare word is a command without arguments."""
    if not text.lstrip().startswith("{"):
        return encode_command(Command(text, {}))
    try:
        return encode_command(decode_command(text.encode()))
    except MalformedPayloadError as error:
        raise LocalError(f"--command: {error}") from error


def _run(state: BhumiState, work: Coroutine[Any, Any, None]) -> None:
    try:
        run_loop(work)
    finally:
        state.close()
