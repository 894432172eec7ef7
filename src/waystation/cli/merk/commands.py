"""``waystation merk``: sends and receives messages over a mesh of relays, encrypted to the recipient.

Results are printed to stdout (with --json one object a line), everything else to stderr.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from waystation.cli.local_node import local_url
from waystation.cli.loop import run as run_loop
from waystation.cli.merk.keys import KeyAction, ServerAction, act_on_keys, act_on_servers
from waystation.cli.merk.mailboxes import MailboxAction, act_on_mailbox, describe
from waystation.cli.merk.show import ConnectionNews, file_bars, show_message, show_servers
from waystation.cli.options import (
    CaOption,
    InsecureOption,
    JsonOption,
    RecipientArgument,
    TextArgument,
    ca_or_local,
    count_option,
    home_option,
)
from waystation.cli.output import EXIT_FAILURE, print_json, visible
from waystation.cli.signals import until_signal
from waystation.core.errors import HostError, LocalError
from waystation.core.ids import PublicKey
from waystation.sdk.merk import (
    SERVERS_FILE,
    Connected,
    Json,
    KeyDiffersError,
    MerkClient,
    Message,
    Mode,
    Outcome,
    ReceivedFile,
    SentMessage,
    Servers,
    open_keys,
)
from waystation.sdk.merk import open as open_merk
from waystation.transport.http_get import TlsContext
from waystation.transport.tls import client_context

__all__ = ["app"]

_DEFAULT_HOME: Final = Path("merk-me")
_DEFAULT_RELAY: Final = "ws://127.0.0.1:8080/merk"  # the default of docs/configuration.md
_EXPORTED: Final = (
    "whoever has this is you and reads what is sent to you; `waystation merk keys import -` takes it back"
)

_MAY_BE_READ: Final = (Outcome.ACCEPTED, Outcome.STORED, Outcome.UNKNOWN, Outcome.LOOKUP_TIMEOUT)

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
    help="Send and receive encrypted messages over MERK relays.",
)

RelayOption = Annotated[
    list[str] | None,
    typer.Option(
        "--relay",
        help="ws:// or wss:// address; may repeat. Default: the servers of the list, else the node of this folder.",
    ),
]
HomeOption = Annotated[Path, home_option("its key, recipients and servers")]


@app.command()
def listen(
    relay: RelayOption = None,
    home: HomeOption = _DEFAULT_HOME,
    ca: CaOption = None,
    insecure: InsecureOption = False,
    save: Annotated[Path | None, typer.Option("--save", help="Folder for files that arrive.")] = None,
    count: Annotated[int, count_option("messages")] = 0,
    salvage: Annotated[
        bool, typer.Option("--salvage", help="Make the best of what an original relay has mutilated; proves little.")
    ] = False,
    mailbox: Annotated[
        bool, typer.Option("--mailbox", help="Have the relay keep messages while nobody listens, and print those.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Stay connected and print messages with how well each is proved: bound, legacy, ambiguous or none.

    A key is made at first use; its public half on stderr is what others send to. A relay that is out of reach is tried
    again for ever, then the next one of the list.

    Example: waystation merk listen --relay wss://relay.example/merk --save inbox
    """
    with file_bars(shown=not as_json) as bars:
        news = ConnectionNews(bars, public_key=open_keys(home).signing.public, waits=True)

        async def main() -> None:
            async with open_merk(
                home,
                _urls(relay, home),
                only=bool(relay),
                tls=_tls(ca, insecure=insecure),
                salvage=salvage,
                keep_trying=True,
                mailbox=mailbox,
                on_event=_remembering(relay, home, news.show),
            ) as merk:
                await until_signal(_print_messages(merk, save, count, as_json=as_json))

        run_loop(main())


@app.command()
def send(
    target: RecipientArgument,
    text: TextArgument = None,
    content: Annotated[str | None, typer.Option("--content", help="Send this JSON.")] = None,
    file: Annotated[Path | None, typer.Option("--file", help="Send this file.")] = None,
    mode: Annotated[
        Mode,
        typer.Option("--mode", help="encrypted: only the recipient reads it; signed: everybody may; plain: tests."),
    ] = Mode.ENCRYPTED,
    key: Annotated[
        str | None, typer.Option("--key", help="Agreement key of the recipient, for clients that publish none.")
    ] = None,
    accept_new_key: Annotated[
        bool,
        typer.Option(
            "--accept-new-key",
            help="Take the key that the recipient has published, although another is pinned or given.",
        ),
    ] = False,
    wait_read: Annotated[
        float,
        typer.Option(
            "--wait-read",
            metavar="SECONDS",
            help="Wait so long for the recipient's program to take it; exit code 1 when it has not.",
        ),
    ] = 0.0,
    relay: RelayOption = None,
    home: HomeOption = _DEFAULT_HOME,
    ca: CaOption = None,
    insecure: InsecureOption = False,
    as_json: JsonOption = False,
) -> None:
    """Send one message and say what became of it; exit code 0 only when it was accepted or stored.

    Accepted: the recipient's relay has handed it to the recipient's connection. Stored: the recipient's mailbox keeps
    it. Read: the recipient's program has taken it, and its client has signed that. The recipient's agreement key is
    found in the key directory and pinned.

    Example: waystation merk send 8a1f…64 digits… "hello" --relay wss://relay.example/merk

    Example: waystation merk send 8a1f…64 digits… --file holiday.jpg --wait-read 10
    """
    recipient = PublicKey.parse(target)
    _check_one_content(text, content, file)
    value = None if content is None else _parse(content)
    said = sys.stdin.read() if text == "-" else text or ""
    with file_bars(shown=not as_json) as bars:
        news = ConnectionNews(bars, public_key=open_keys(home).signing.public, waits=False)

        async def work(merk: MerkClient) -> _Result:
            sent = await say_once_or_again(merk)
            is_read = wait_read > 0 and sent.outcome in _MAY_BE_READ and await sent.read(wait_read)
            return _Result(sent, is_read)

        async def say_once_or_again(merk: MerkClient) -> SentMessage:
            if accept_new_key:
                await merk.agreement_key_of(recipient)
                merk.accept_key(recipient)
            try:
                return await say(merk, key)
            except KeyDiffersError:
                if not accept_new_key:
                    raise
                merk.accept_key(recipient)
                return await say(merk, None)

        async def say(merk: MerkClient, agreement_key: str | None) -> SentMessage:
            if file is not None:
                return await merk.send(
                    recipient,
                    file,
                    mode=mode,
                    agreement_key=agreement_key,
                    on_progress=lambda done, total: bars.show(file, visible(file.name), done, total),
                )
            message = said if content is None else Json.of(value)
            return await merk.send(recipient, message, mode=mode, agreement_key=agreement_key)

        result, at = _run(home, relay, ca, work, insecure=insecure, on_event=news.show)
    _show_outcome(result, recipient, mode, at, as_json=as_json)
    if not result.sent.ok or (wait_read > 0 and not result.is_read):
        raise typer.Exit(EXIT_FAILURE)


@app.command()
def keys(
    action: Annotated[KeyAction, typer.Argument(help="What to do.")] = KeyAction.SHOW,
    values: Annotated[
        list[str] | None,
        typer.Argument(help="import: the file, - for stdin; trust: public and agreement key; forget: public key."),
    ] = None,
    home: HomeOption = _DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Show, create, import or export the keys of this identity; list, trust or forget the pinned keys of recipients.

    The file of export and import is that of the original. What `keys export` prints on stdout is a secret.

    Example: waystation merk keys create --home alice

    Example: waystation merk keys import exported.json
    """
    given = values or []
    text = _read(given[0]) if action is KeyAction.IMPORT and given else None
    documents = act_on_keys(action, given, text, home)
    if action is KeyAction.EXPORT:
        typer.echo(f"note: {_EXPORTED}", err=True)
        typer.echo(documents[0]["key_file"])
        return
    for document in documents:
        if as_json:
            print_json(document)
        elif action is KeyAction.RECIPIENTS:
            origin = "by hand" if document["by_hand"] else "first seen"
            typer.echo(f"{document['public_key']}  {document['agreement_key']}  {origin}")
        else:
            for name, shown in document.items():
                typer.echo(f"{name:<14} {shown}")


@app.command()
def mailbox(
    action: Annotated[MailboxAction, typer.Argument(help="What to do.")] = MailboxAction.SHOW,
    relay: RelayOption = None,
    home: HomeOption = _DEFAULT_HOME,
    ca: CaOption = None,
    insecure: InsecureOption = False,
    as_json: JsonOption = False,
) -> None:
    """Open, show or close the mailbox at the relay, which keeps encrypted messages while nobody listens.

    `listen` prints what was kept. Closing deletes it. Exit code 0 unless the relay gives no mailbox.

    Example: waystation merk mailbox open --relay wss://relay.example/merk
    """
    with file_bars(shown=False) as bars:
        news = ConnectionNews(bars, public_key=open_keys(home).signing.public, waits=False)

        async def main() -> dict[str, Any]:
            async with open_merk(
                home,
                _urls(relay, home),
                only=bool(relay),
                tls=_tls(ca, insecure=insecure),
                on_event=_remembering(relay, home, news.show),
            ) as merk:
                return await act_on_mailbox(action, merk)

        document = run_loop(main())
    if as_json:
        print_json(document)
    else:
        typer.echo(describe(document))
    if document["state"] == "refused":
        raise typer.Exit(EXIT_FAILURE)


@app.command()
def servers(
    action: Annotated[ServerAction, typer.Argument(help="What to do.")] = ServerAction.LIST,
    address: Annotated[str | None, typer.Argument(help="ws:// or wss:// address of a relay.")] = None,
    home: HomeOption = _DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """List the relays this identity knows, in the order in which they are tried; add, remove or select one.

    Relays name others; those you added go first. A relay that proved its key is pinned: to take a new key of it, remove
    it and add it again.

    Example: waystation merk servers add wss://relay.example/merk
    """
    listed = act_on_servers(action, address, home)
    if as_json:
        for each in listed:
            print_json(each)
    elif listed:
        show_servers(listed)
    if not listed and not as_json:
        typer.echo(f"no servers yet; without --relay {_DEFAULT_RELAY} is used", err=True)


async def _print_messages(merk: MerkClient, save: Path | None, count: int, *, as_json: bool) -> None:
    printed_count = 0
    async for message in merk.messages():
        show_message(message, await _keep(message, save), as_json=as_json)
        printed_count += 1
        if printed_count == count:
            return


async def _keep(message: Message, save: Path | None) -> Path | None:
    """Save a message's file, or drop it; return where it is."""
    if not isinstance(message.content, ReceivedFile):
        return None
    if save is None:
        message.content.discard()
        return None
    try:
        return await asyncio.to_thread(message.content.save, save)
    except HostError as error:  # the next message may fit again
        typer.echo(visible(f"waystation: {error}"), err=True)
        message.content.discard()
        return None


def _run(
    home: Path,
    relays: list[str] | None,
    ca: Path | None,
    work: Callable[[MerkClient], Awaitable["_Result"]],
    *,
    insecure: bool,
    on_event: Callable[[object], None],
) -> tuple["_Result", str | None]:
    """Do the work with a connected client; return its result and the relay."""

    async def main() -> tuple[_Result, str | None]:
        async with open_merk(
            home,
            _urls(relays, home),
            only=bool(relays),
            tls=_tls(ca, insecure=insecure),
            on_event=_remembering(relays, home, on_event),
        ) as merk:
            result, relay = await work(merk), merk.relay
            if merk.waiting_count:
                typer.echo(f"note: {merk.waiting_count} messages arrived meanwhile and are not shown", err=True)
            return result, relay

    return run_loop(main())


class _Result(NamedTuple):
    """What became of a message."""

    sent: SentMessage
    is_read: bool


def _show_outcome(result: _Result, recipient: bytes, mode: Mode, relay: str | None, *, as_json: bool) -> None:
    sent = result.sent
    outcome = Outcome.READ if result.is_read else sent.outcome
    if as_json:
        document: dict[str, Any] = {
            "outcome": outcome.value,
            "delivered": outcome.ok,
            "message_id": sent.id.hex(),
            "target": recipient.hex(),
            "mode": mode.value,
            "relay": relay,
            "sentence": outcome.sentence if result.is_read else sent.sentence,
            "advice": outcome.advice,
            "retry_safe": outcome.retry_safe,
        }
        print_json(document)
    elif outcome.ok:
        by_whom = "by" if outcome is Outcome.READ else "for"
        typer.echo(f"{outcome.value} {by_whom} {recipient.hex()} ({mode.value}), id {sent.id.hex()}")
    else:
        typer.echo(visible(f"waystation: {sent.sentence}; {outcome.advice}"), err=True)


def _check_one_content(text: str | None, content: str | None, file: Path | None) -> None:
    given = sum(each is not None for each in (text, content, file))
    if given != 1:
        raise LocalError("say what to send: one of a text, - for stdin, --content or --file")
    if file is not None and not file.is_file():
        raise LocalError(f"cannot read {file}: no such file")


def _parse(content: str) -> Any:
    try:
        return json.loads(content)
    except ValueError as error:
        raise LocalError(f"--content is no JSON: {error}") from error


def _read(name: str) -> str:
    if name == "-":
        return sys.stdin.read()
    try:
        return Path(name).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise LocalError(f"cannot read {name}: {error}") from error


def _urls(given: list[str] | None, home: Path) -> list[str]:
    """Return the relays named, or none when the user has added some to the list, or the node of this folder."""
    if given:
        return given
    listed = Servers(home / SERVERS_FILE).in_order()
    return [] if any(server.added for server in listed) else [local_url("merk") or _DEFAULT_RELAY]


def _remembering(given: list[str] | None, home: Path, then: Callable[[object], None]) -> Callable[[object], None]:
    """Return what takes events: a relay of --relay that has taken us is one of the list from then on."""

    def take(event: object) -> None:
        if isinstance(event, Connected) and event.relay in (given or ()):
            servers = Servers(home / SERVERS_FILE)
            known = servers.get(event.relay)
            if known is None or not known.added:
                try:
                    servers.add(event.relay)
                except LocalError as error:  # the list is full
                    typer.echo(f"note: {event.relay} is not remembered: {error}", err=True)
        then(event)

    return take


def _tls(ca: Path | None, *, insecure: bool) -> TlsContext:
    return client_context(ca_or_local(ca), verify=not insecure)
