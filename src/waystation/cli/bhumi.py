"""``waystation bhumi``: listen and send as a Bhumi participant.

Results go to stdout (with --json one object a line), everything else to stderr.
"""

import asyncio
import base64
import io
import json
import os
import random
import re
import shlex
import shutil
import signal
import ssl
import sys
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, Final

import segno
import typer
import typer.core

from waystation.cli.output import EXIT_FAILURE, EXIT_INTERRUPTED, JsonOption, print_json
from waystation.cli.trust import CaOption, InsecureOption, ca_or_local
from waystation.core.errors import LocalError
from waystation.core.ids import encode_id52
from waystation.protocols.bhumi.payloads import MalformedPayloadError, decode_command, encode_command
from waystation.sdk.bhumi import (
    BhumiState,
    Command,
    ContentType,
    Device,
    DeviceEvent,
    Dialect,
    Disconnected,
    Handled,
    Invite,
    Listening,
    Patience,
    PeerJoined,
    Reply,
    Request,
    Sender,
    decode_invite,
    encode_invite,
)
from waystation.transport.dial import RelayUrl
from waystation.transport.tls import client_context

__all__ = ["app"]

_DEFAULT_RELAY: Final = "tls://127.0.0.1:8443"  # design.md, Outside face
_DEFAULT_HOME: Final = Path("bhumi-me")
_DASHED_TOKEN: Final = re.compile(r"-[A-Za-z0-9_-]{85}")  # one token in 64 begins like an option
_CANCEL_AGAIN_S: Final = 0.4  # a cancellation that met another event is lost; asyncio.wait_for of 3.11 does that
_HARD_END_S: Final = 0.9  # a signal ends the program within a second

app = typer.Typer(
    rich_markup_mode=None, no_args_is_help=True, add_completion=False, help="Listen and send as a Bhumi device."
)

RelayOption = Annotated[
    list[str] | None,
    typer.Option("--relay", help=f"tls://host:port or tcp://host:port; may repeat. Default {_DEFAULT_RELAY}."),
]
HomeOption = Annotated[Path, typer.Option("--home", help="Folder of this identity, its key and its peers.")]
ListenDialectOption = Annotated[
    Dialect,
    typer.Option("--e2e", help="bhumi-v1 takes suites too, suite-1 or suite-2 only itself; none: the original node's."),
]
AcceptDialectOption = Annotated[
    Dialect | None,
    typer.Option(
        "--e2e",
        help="bhumi-v1, the default; suite-1 or suite-2 for small devices; none for the original node. Remembered.",
    ),
]
SendDialectOption = Annotated[
    Dialect | None, typer.Option("--e2e", help="As for accept; what the peer was accepted with unless given.")
]
AliasOption = Annotated[str, typer.Option("--alias", help="How to call the peer from now on.")]
WaitOption = Annotated[float, typer.Option("--wait", min=0, help="Seconds to wait for a peer that is offline.")]


class _AcceptCommand(typer.core.TyperCommand):
    """Takes a token that begins with a dash for what it is."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put such a token behind "--", where nothing is an option."""
        tokens = [each for each in args if _DASHED_TOKEN.fullmatch(each)]
        if tokens and "--" not in args:
            args = [each for each in args if each not in tokens] + ["--", *tokens]
        return super().parse_args(ctx, args)


@app.command()
def listen(
    relay: RelayOption = None,
    home: HomeOption = _DEFAULT_HOME,
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
    count: Annotated[int, typer.Option("--count", min=0, help="End after so many requests; 0 never ends.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Stay connected to a relay, print what peers ask, and answer.

    Example: waystation bhumi listen --relay tls://localhost:8443 --echo
    """
    if echo and execute is not None:
        raise LocalError("--echo and --exec exclude each other")
    handler = _echo if echo else _ok if execute is None else _Execute(execute).answer
    relays = _relays(relay)
    state = BhumiState(home)
    listener = _Listener(state, count, as_json=as_json)
    device = Device(
        state,
        relays,
        handler,
        tls=_tls(relays, ca, insecure=insecure),
        dialect=e2e,
        original_relay=original_relay,
        on_event=listener.show,
    )
    _run(state, listener.run(device))


@app.command()
def invite(
    relay: RelayOption = None,
    home: HomeOption = _DEFAULT_HOME,
    ca: Annotated[Path | None, typer.Option("--ca", help="PEM file that the other side needs, too.")] = None,
    alias: AliasOption = "",
    qr: Annotated[bool, typer.Option("--qr", help="Show the token as a QR code, too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a token that lets one person pair with this identity, once.

    Works while ``listen`` runs. Hand the token over by a way that others cannot read.

    Example: waystation bhumi invite --alias bob
    """
    relays = _relays(relay)
    state = BhumiState(home)
    try:
        token = encode_invite(Invite(state.identity, state.add_invite(alias, random.SystemRandom())))
        id52 = encode_id52(state.identity)
    finally:
        state.close()
    line = shlex.join([*_program(), "bhumi", "accept", token, "--relay", relays[0], *_ca_words(ca)])
    if as_json:
        print_json({"token": token, "id52": id52, "alias": alias, "accept": line})
        return
    typer.echo(token)
    typer.echo(f"\nThis identity is {id52}. The other side runs:\n\n  {line}\n", err=True)
    if qr:
        drawn = io.StringIO()
        segno.make(token, error="m").terminal(drawn, compact=True)
        typer.echo(drawn.getvalue(), err=True)


@app.command(cls=_AcceptCommand)
def accept(
    token: Annotated[str, typer.Argument(help="The 86 characters that the other side made with `invite`.")],
    relay: RelayOption = None,
    home: HomeOption = _DEFAULT_HOME,
    ca: CaOption = None,
    insecure: InsecureOption = False,
    alias: AliasOption = "",
    e2e: AcceptDialectOption = None,
    wait: WaitOption = 0.0,
    as_json: JsonOption = False,
) -> None:
    """Pair with whoever made a token; the other side must be listening.

    Example: waystation bhumi accept TOKEN --alias alice
    """
    preimage = decode_invite(token).preimage
    relays = _relays(relay)
    state = BhumiState(home)

    async def pair() -> None:
        tls = _tls(relays, ca, insecure=insecure)
        known = state.inviter_of(preimage) is not None
        async with Sender(state, relays, tls=tls, dialect=e2e, patience=Patience(wait_s=wait)) as sender:
            peer = await sender.accept(token, alias=alias)
        id52 = encode_id52(peer.identity)
        if as_json:
            status = "known" if known else "ok"
            print_json({"status": status, "peer": id52, "alias": peer.alias, "rights": peer.rights})
            return
        typer.echo(f"{'already paired' if known else 'paired'} with {peer.name} ({id52})")
        words = [*_program(), "bhumi", "send", peer.alias or id52, "hello", "--relay", relays[0], "--home", str(home)]
        typer.echo(f"\nNow: {shlex.join([*words, *_ca_words(ca)])}", err=True)

    _run(state, pair())


@app.command()
def send(
    peer: Annotated[str, typer.Argument(help="Alias or id52.")],
    text: Annotated[str | None, typer.Argument(help="What to say; - reads it from stdin.")] = None,
    relay: RelayOption = None,
    home: HomeOption = _DEFAULT_HOME,
    ca: CaOption = None,
    insecure: InsecureOption = False,
    file: Annotated[Path | None, typer.Option("--file", help="Send the bytes of this file.")] = None,
    command: Annotated[
        str | None, typer.Option("--command", help='Send a command: a name, or JSON such as {"cmd":"led","args":1}.')
    ] = None,
    e2e: SendDialectOption = None,
    wait: WaitOption = 0.0,
    as_json: JsonOption = False,
) -> None:
    """Ask a peer and print its answer.

    Example: waystation bhumi send alice "how are you?" --wait 30
    """
    content, content_type = _content(text, file, command)
    relays = _relays(relay)
    state = _existing(home)

    async def ask() -> None:
        tls = _tls(relays, ca, insecure=insecure)
        async with Sender(state, relays, tls=tls, dialect=e2e, patience=Patience(wait_s=wait)) as sender:
            reply = await sender.send(peer, content, content_type)
        _print_reply(peer, reply, as_json=as_json)
        if reply.status:
            raise typer.Exit(EXIT_FAILURE)

    _run(state, ask())


@app.command()
def peers(home: HomeOption = _DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """List whom this identity can talk to.

    Example: waystation bhumi peers --json
    """
    state = _existing(home)
    try:
        known = state.peers()
    finally:
        state.close()
    for peer in known:
        id52 = encode_id52(peer.identity)
        if as_json:
            counts = {"rights": peer.rights, "issued": peer.issued}
            print_json({"peer": id52, "alias": peer.alias, "url": peer.url, "e2e": peer.dialect.value, **counts})
        else:
            counted = f"{peer.rights} to send, {peer.issued} given out"
            typer.echo(f"{peer.alias or '-':<16} {id52}  {peer.dialect.value:<8}  {counted}  {peer.url}")
    if not known and not as_json:
        typer.echo(f"no peers yet: `{shlex.join(_program())} bhumi invite` makes a token for somebody", err=True)


class _Listener:
    """Shows a device's events and ends it after enough requests, or on SIGTERM or SIGINT."""

    def __init__(self, state: BhumiState, count: int, *, as_json: bool) -> None:
        self._id52 = encode_id52(state.identity)
        self._count = count
        self._handled_count = 0
        self._as_json = as_json
        self._enough = asyncio.Event()
        self._interrupted = False

    async def run(self, device: Device) -> None:
        """Run the device until it fails, enough was handled, or a signal comes; raises KeyboardInterrupt on SIGINT."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        running = asyncio.create_task(device.run())
        enough = asyncio.create_task(self._enough.wait())
        await asyncio.wait([running, enough], return_when=asyncio.FIRST_COMPLETED)
        enough.cancel()
        while not running.done():
            running.cancel()
            await asyncio.wait([running], timeout=_CANCEL_AGAIN_S)
        if self._interrupted:
            raise KeyboardInterrupt
        if not running.cancelled():
            running.result()

    def _stop(self, number: int) -> None:
        self._interrupted = number == signal.SIGINT
        # A name lookup runs in a thread that cannot be cancelled, and the loop would wait for it.
        hard_end = threading.Timer(_HARD_END_S, os._exit, (EXIT_INTERRUPTED if self._interrupted else 0,))
        hard_end.daemon = True
        hard_end.start()
        self._enough.set()

    def show(self, event: DeviceEvent) -> None:
        """Print one event."""
        document = self._document(event)
        if self._as_json:
            print_json(document)
            sys.stdout.flush()
        elif isinstance(event, Handled):
            typer.echo(_visible(f"{event.request.alias}: {event.request.text}"))
        else:
            typer.echo(_visible(_SENTENCES[document["event"]].format(**document)), err=True)
        if isinstance(event, Handled):
            self._handled_count += 1
            if self._handled_count == self._count:
                self._enough.set()

    def _document(self, event: DeviceEvent) -> dict[str, Any]:
        match event:
            case Listening():
                return {
                    "event": "listening",
                    "relay": event.relay,
                    "id52": self._id52,
                    "confirmed": event.confirmed,
                }
            case Disconnected():
                retry_s = round(event.retry_s, 1)
                return {"event": "disconnected", "relay": event.relay, "reason": event.reason, "retry_s": retry_s}
            case PeerJoined():
                return {"event": "joined", "peer": encode_id52(event.peer), "alias": event.alias}
            case Handled():
                request = event.request
                return {
                    "event": "request",
                    "peer": encode_id52(request.peer),
                    "alias": request.alias,
                    "content_type": request.content_type.name.lower(),
                    "ok": event.ok,
                    **_as_document("content", request.content),
                }
            case _:
                return {"event": "trouble", "reason": event.reason}


_SENTENCES: Final = {
    "listening": "listening on {relay} as {id52}",
    "disconnected": "{reason}; next try in {retry_s} s",
    "joined": "{alias} accepted an invite ({peer})",
    "trouble": "trouble: {reason}",
}


async def _echo(request: Request) -> bytes | str:
    if request.content_type is ContentType.COMMAND:
        return json.dumps({"cmd": request.command().cmd, "args": request.command().args})
    return request.content


async def _ok(_request: Request) -> bytes | str:
    return "ok"


class _Execute:
    """Answers with what a program prints. No shell is involved."""

    def __init__(self, command: str) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise LocalError(f"--exec cannot be split into words: {error}") from error
        if not self._words:
            raise LocalError("--exec names no program")

    async def answer(self, request: Request) -> bytes | str:
        """Run the program; its failure is the peer's error."""
        environment = os.environ | {
            "BHUMI_PEER": encode_id52(request.peer),
            "BHUMI_ALIAS": request.alias,
            "BHUMI_CONTENT_TYPE": request.content_type.name.lower(),
        }
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*self._words, stdin=pipe, stdout=pipe, env=environment)
        try:
            printed, _ = await process.communicate(request.content)
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode:
            raise RuntimeError(f"{self._words[0]} ended with exit code {process.returncode}")
        return printed


def _program() -> list[str]:
    """Return the words that start this program, as far as they can be told from how it was called."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py" and called.parent.name == "waystation":
        return [sys.executable, "-m", "waystation"]
    if called.name != "waystation" or len(called.parts) == 1:
        return ["waystation"]
    found = shutil.which("waystation")
    return ["waystation"] if found is not None and Path(found).absolute() == called.absolute() else [sys.argv[0]]


def _ca_words(ca: Path | None) -> list[str]:
    return [] if ca is None else ["--ca", str(ca)]


def _existing(home: Path) -> BhumiState:
    """Open the folder of an identity that is there already; raises LocalError when it is not."""
    if not (home / "node.key").exists():
        program = shlex.join(_program())
        raise LocalError(f"there is no identity in {home}; `{program} bhumi listen`, invite and accept make one")
    return BhumiState(home)


def _relays(given: list[str] | None) -> list[str]:
    """Return the relays in their full spelling; raises LocalError."""
    return [str(RelayUrl.parse(text)) for text in given or [_DEFAULT_RELAY]]


def _tls(relays: list[str], ca: Path | None, *, insecure: bool) -> ssl.SSLContext | None:
    if not any(relay.startswith("tls://") for relay in relays):
        return None
    return client_context(ca_or_local(ca), verify=not insecure)


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


def _print_reply(peer: str, reply: Reply, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "status": "refused" if reply.status else "ok",
                "peer": peer,
                **_as_document("reply", reply.content),
                "latency_ms": round(reply.latency_s * 1_000, 3),
                "tries": reply.tries_count,
            }
        )
        return
    shown = _visible(reply.text).encode() if sys.stdout.isatty() else reply.content
    typer.echo(shown, nl=not shown.endswith(b"\n"))
    if reply.status:
        typer.echo(f"waystation: {peer} could not handle the request", err=True)


def _visible(text: str) -> str:
    """Return text in which a peer's control characters are shown instead of steering the terminal."""
    shown = (each if each.isprintable() or each in "\n\t" else repr(each)[1:-1] for each in text)
    return "".join(shown)


def _as_document(name: str, content: bytes) -> dict[str, str]:
    """Return content for JSON: as text, or in base64 when it is no UTF-8."""
    try:
        return {name: content.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode("ascii")}


def _run(state: BhumiState, work: Coroutine[Any, Any, None]) -> None:
    try:
        asyncio.run(work)
    finally:
        state.close()
