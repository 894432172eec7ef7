"""``waystation strata``: publishes and reads packets, and manages relays and keys.

Results are printed to stdout (with --json one object a line), everything else to stderr.
"""

import contextlib
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from waystation.cli.local_node import local_url
from waystation.cli.loop import run as run_loop
from waystation.cli.options import CaOption, InsecureOption, JsonOption, ca_or_local, count_option, home_option
from waystation.cli.output import EXIT_FAILURE, print_json
from waystation.cli.strata.input import TIME_HELP, parse_authors, parse_content, parse_since, parse_until
from waystation.cli.strata.keys import KeyAction, act_on_key, unfinished_note
from waystation.cli.strata.packets import export_packets, import_packets
from waystation.cli.strata.relays import RelayAction, act_on_relay, add_listed
from waystation.cli.strata.show import ConnectionNews, show_delivery
from waystation.core.errors import LocalError, WaystationError
from waystation.rules.relay_choice import Notice
from waystation.rules.relay_state import State
from waystation.sdk.strata import (
    SCORES_FILE,
    Connected,
    Disconnected,
    Filters,
    Identity,
    ManyRelays,
    Profile,
    RelayScores,
    draw_qr,
    load_identity,
    notice_once,
    packet_id_text,
    parse_packet_id,
    parse_relay,
    parse_relay_json,
)
from waystation.sdk.strata.bootstrap import load_document, load_gatekeepers
from waystation.sdk.strata.key_change import KeyChange, finish_change
from waystation.sdk.strata.keys import KEY_FILE, open_identity
from waystation.transport.http_get import TlsContext
from waystation.transport.tls import client_context

__all__ = ["app"]

_DEFAULT_HOME: Final = Path("strata-me")
_DEFAULT_RELAY: Final = "ws://127.0.0.1:8080/strata"  # the default of docs/configuration.md

app = typer.Typer(
    rich_markup_mode=None, no_args_is_help=True, add_completion=False, help="Publish and read Strata packets."
)

RelayOption = Annotated[
    list[str] | None,
    typer.Option(
        "--relay",
        help="wss://host/strata, https://host or strata://relay?…; may repeat. Default: the relays known, "
        "else the node of this folder.",
    ),
]
HomeOption = Annotated[Path, home_option("its key and its relays")]
ProfileOption = Annotated[Profile, typer.Option("--privacy", help="shielded and hardened are experimental.")]


@app.command()
def publish(
    text: Annotated[str | None, typer.Argument(help="Text of a POST; - reads it from stdin.")] = None,
    content: Annotated[str | None, typer.Option("--content", help="The whole content as JSON, with its type.")] = None,
    reply_to: Annotated[str | None, typer.Option("--reply-to", help="Packet id that this answers.")] = None,
    expires: Annotated[int | None, typer.Option("--expires", min=1, help="Seconds until it is served no more.")] = None,
    relay: RelayOption = None,
    home: HomeOption = _DEFAULT_HOME,
    ca: CaOption = None,
    insecure: InsecureOption = False,
    privacy: ProfileOption = Profile.STANDARD,
    as_json: JsonOption = False,
) -> None:
    """Sign something and publish it; a key is made at first use.

    Example: waystation strata publish "hello, world" --relay wss://relay.example/strata
    """
    body = parse_content(text, content, reply_to)
    _show_notice(home)
    identity = open_identity(home)
    if note := unfinished_note(home):
        typer.echo(f"note: {note}", err=True)
    now_s = int(time.time())
    packet = identity.packet(body, timestamp=now_s, expires_at=None if expires is None else now_s + expires)

    async def work(many: ManyRelays) -> None:
        report = (await many.send(packet)).check()
        receipts = [
            {"relay": each.relay, "duplicate": each.duplicate, "latency_ms": round(each.latency_ms, 3)}
            | ({"provenance_downgrade": each.downgrade} if each.downgrade else {})
            for each in report.receipts
        ]
        failures = {url: str(error) for url, error in report.failures.items()}
        notices = [notice.value for notice in report.notices]
        if as_json:
            print_json(
                {
                    "packet_id": packet_id_text(packet.packet_id),
                    "author_id": identity.did,
                    "receipts": receipts,
                    "failures": failures,
                    "notices": notices,
                }
            )
            return
        typer.echo(packet_id_text(packet.packet_id))
        for each in receipts:
            typer.echo(f"stored by {each['relay']} in {each['latency_ms']} ms", err=True)
        for trouble in (*failures.values(), *(each.value for each in report.notices)):
            typer.echo(f"waystation: {trouble}", err=True)
        is_trial = all(each.standing.state is State.PROBATION for each in many.entries)
        if is_trial and not relay and len(many.entries) > 1:
            typer.echo(f"note: {Notice.ONLY_PROBATION.value}", err=True)

    _run(home, relay, ca, work, insecure=insecure, privacy=privacy)


@app.command()
def subscribe(
    author: Annotated[list[str] | None, typer.Option("--author", help="DID of an author; may repeat.")] = None,
    kind: Annotated[list[str] | None, typer.Option("--type", help="Content type such as POST; may repeat.")] = None,
    since: Annotated[str | None, typer.Option("--since", help=f"Least timestamp, {TIME_HELP}")] = None,
    until: Annotated[str | None, typer.Option("--until", help=f"Greatest timestamp, {TIME_HELP}")] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=0, max=500, help="At most so many stored packets; default all.")
    ] = None,
    newest_first: Annotated[bool, typer.Option("--newest-first", help="Stored packets in descending order.")] = False,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Go on with new packets.")] = True,
    count: Annotated[int, count_option("packets")] = 0,
    resume: Annotated[
        str | None, typer.Option("--resume", help="Go on where the last run with this name and these filters was.")
    ] = None,
    relay: RelayOption = None,
    home: HomeOption = _DEFAULT_HOME,
    ca: CaOption = None,
    insecure: InsecureOption = False,
    privacy: ProfileOption = Profile.STANDARD,
    as_json: JsonOption = False,
) -> None:
    """Print stored packets, then new ones as they come; every packet is verified here.

    A relay that is out of reach is tried again for ever, unless --no-follow is given; then the exit code is 1 when
    a packet could not be verified.

    Example: waystation strata subscribe --type POST --relay wss://relay.example/strata
    """
    kinds = tuple(sorted(set(kind or ())))
    filters = Filters(parse_authors(author), kinds, parse_since(since), parse_until(until), newest_first)
    _show_notice(home)

    async def work(many: ManyRelays) -> None:
        _show_fallback(many)
        deliveries = many.messages(filters, limit=limit, follow=follow, count=count, resume=resume, keep_trying=follow)
        async with contextlib.aclosing(deliveries):  # also when whoever reads our output has left
            async for delivery in deliveries:
                show_delivery(delivery, as_json=as_json)
        if not follow and many.left_out:
            typer.echo(f"waystation: {many.left_out} packets could not be verified and are left out", err=True)
            raise typer.Exit(EXIT_FAILURE)

    news = ConnectionNews().show if follow else None
    _run(home, relay, ca, work, insecure=insecure, privacy=privacy, on_connection=news)


@app.command()
def get(
    packet_id: Annotated[str, typer.Argument(help="0x and 64 hexadecimal digits.")],
    relay: RelayOption = None,
    home: HomeOption = _DEFAULT_HOME,
    ca: CaOption = None,
    insecure: InsecureOption = False,
    privacy: ProfileOption = Profile.STANDARD,
    as_json: JsonOption = False,
) -> None:
    """Fetch one packet by its id and verify it; exit code 1 when no relay has it.

    Example: waystation strata get 0x94fd09c4d792d728fde5b1be06af9a6b75fcb3bddc0f8f23a4b33cd07aade4d5
    """
    wanted = parse_packet_id(packet_id)
    if wanted is None:
        raise LocalError("a packet id is 0x and 64 lower-case hexadecimal digits")
    _show_notice(home)

    async def work(many: ManyRelays) -> None:
        _show_fallback(many)
        found = await many.get(wanted)
        if found is None:
            if as_json:
                print_json({"packet_id": packet_id, "found": False})
            else:
                typer.echo("waystation: no relay has it", err=True)
            raise typer.Exit(EXIT_FAILURE)
        show_delivery(found, as_json=as_json)

    _run(home, relay, ca, work, insecure=insecure, privacy=privacy)


@app.command()
def relays(
    action: Annotated[RelayAction, typer.Argument(help="What to do.")] = RelayAction.LIST,
    relay: Annotated[str | None, typer.Argument(help="A relay URI, or its address.")] = None,
    home: HomeOption = _DEFAULT_HOME,
    ca: CaOption = None,
    insecure: InsecureOption = False,
    as_json: JsonOption = False,
) -> None:
    """List the relays this client knows, with score and state and why; add, pin, unpin, forget or probe one.

    Example: waystation strata relays add "strata://relay?v=1&http=https://relay.example"
    """
    tls = client_context(ca_or_local(ca), verify=not insecure)
    act_on_relay(action, relay, home / SCORES_FILE, tls, as_json=as_json)


@app.command()
def keys(
    action: Annotated[KeyAction, typer.Argument(help="What to do.")] = KeyAction.SHOW,
    value: Annotated[
        list[str] | None,
        typer.Argument(help="import: exported line, - for stdin; add: public key; revoke: key id; approve: packet id."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Revoke even the last key.")] = False,
    relay: RelayOption = None,
    home: HomeOption = _DEFAULT_HOME,
    ca: CaOption = None,
    insecure: InsecureOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show, create, import or export the key of this identity; rotate, add or revoke keys, or approve a recovery.

    What `keys export` prints on stdout is a secret, one line with DID, key id and seed; `keys import -` takes it back.
    A change that no relay has confirmed waits in HOME/next, with the new key: the same command goes on with it.

    Example: waystation strata keys rotate --relay wss://relay.example/strata
    """
    text = sys.stdin.read() if value == ["-"] else " ".join(value) if value else None
    document, change, packet, secret, note = act_on_key(action, text, home, yes=yes)
    if change is not None:
        document["relays"] = _finish(home, change, relay, ca, insecure=insecure)
    elif packet is not None:

        async def work(many: ManyRelays) -> None:
            report = (await many.send(packet, everywhere=True)).check()
            document["relays"] = [receipt.relay for receipt in report.receipts]

        _run(home, relay, ca, work, insecure=insecure)
    if note:
        typer.echo(f"note: {note}", err=True)
    if as_json:
        print_json(document)
        return
    if secret:
        typer.echo(secret)
        return
    for name, shown in document.items():
        typer.echo(f"{name:<10} {shown if isinstance(shown, str) else ', '.join(shown)}")


@app.command()
def uri(
    relay: Annotated[str, typer.Argument(help="A relay URI, or the address of a relay.")],
    label: Annotated[str, typer.Option("--label", help="What to call it; at most 64 characters.")] = "",
    qr: Annotated[bool, typer.Option("--qr", help="Show it as a QR code, too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a relay URI says, or make one of an address; nothing is connected.

    Example: waystation strata uri wss://relay.example/strata --label "The Example" --qr
    """
    parsed = parse_relay(relay)
    if label:
        parsed = parse_relay_json(parsed.to_json() | {"label": label})
    if as_json:
        print_json(parsed.to_json() | {"uri": str(parsed), "warnings": list(parsed.warnings)})
    else:
        typer.echo(str(parsed))
    for warning in parsed.warnings:
        typer.echo(f"waystation: {warning}", err=True)
    if qr:
        typer.echo(draw_qr(parsed), err=True)


@app.command()
def bootstrap(
    document: Annotated[Path, typer.Argument(help="File of a Bootstrap Document.")],
    gatekeepers: Annotated[
        Path, typer.Option("--gatekeepers", help='JSON: {"issuer": {"public_key": hex, "diversity_tags": [...]}}.')
    ],
    add: Annotated[bool, typer.Option("--add", help="Make its relays known to this identity.")] = False,
    home: HomeOption = _DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Check a Bootstrap Document against the gatekeepers you trust, and list its relays; exit code 1 when it fails.

    Example: waystation strata bootstrap document.json --gatekeepers gatekeepers.json --add
    """
    found = load_document(document, load_gatekeepers(gatekeepers))
    if add:
        add_listed(found.relays, home / SCORES_FILE)
    if as_json:
        named = [{"relay_id": each.relay_id, "url": each.url} for each in found.relays]
        print_json(
            {
                "bootstrap_id": found.bootstrap_id,
                "expires_at": found.expires_at,
                "signers": list(found.signers),
                "relays": named,
            }
        )
        return
    typer.echo(f"{found.bootstrap_id}, signed by {len(found.signers)} gatekeepers", err=True)
    for each in found.relays:
        typer.echo(f"{each.url}  {each.relay_id}")


app.command("export")(export_packets)
app.command("import")(import_packets)


def _show_notice(home: Path) -> None:
    notice = notice_once(home)
    if notice is not None:
        typer.echo(f"{notice}\n", err=True)


def _show_fallback(many: ManyRelays) -> None:
    """Say why the privacy profile that was asked for does not hold, if so (RFC-0300)."""
    for notice in many.privacy.notices:
        typer.echo(f"waystation: {notice.value}", err=True)


def _finish(home: Path, change: KeyChange, relays: list[str] | None, ca: Path | None, *, insecure: bool) -> list[str]:
    """Bring a change of keys to relays, and return those that have it."""
    with _relays_of(home, relays, ca, insecure=insecure, also_known=True) as connect:
        try:
            finished = run_loop(finish_change(home, change, connect))
        except WaystationError:
            note = unfinished_note(home)
            if note:
                typer.echo(f"note: {note}", err=True)
            raise
    for url, error in finished.failures.items():
        typer.echo(f"waystation: {url}: {error}", err=True)
    return list(finished.relays)


def _run(
    home: Path,
    relays: list[str] | None,
    ca: Path | None,
    work: Callable[[ManyRelays], Awaitable[None]],
    *,
    insecure: bool,
    privacy: Profile = Profile.STANDARD,
    on_connection: Callable[[str, Connected | Disconnected], None] | None = None,
) -> None:
    """Run ``work(many)`` with the relays named, or those known, or the node of this folder."""
    identity = load_identity(home) if (home / KEY_FILE).exists() else None

    async def main() -> None:
        async with connect(identity) as many:
            await work(many)

    with _relays_of(home, relays, ca, insecure=insecure, privacy=privacy, on_connection=on_connection) as connect:
        run_loop(main())


@contextlib.contextmanager
def _relays_of(
    home: Path,
    relays: list[str] | None,
    ca: Path | None,
    *,
    insecure: bool,
    privacy: Profile = Profile.STANDARD,
    on_connection: Callable[[str, Connected | Disconnected], None] | None = None,
    also_known: bool = False,
) -> Iterator[Callable[[Identity | None], ManyRelays]]:
    """Give what makes a client, with or without an identity; ``also_known`` adds the known relays to those named."""
    urls = [parse_relay(text).ws for text in relays or []]
    tls: TlsContext = client_context(ca_or_local(ca), verify=not insecure)
    with contextlib.closing(RelayScores(home / SCORES_FILE)) as scores:

        def connect(identity: Identity | None) -> ManyRelays:
            known = [entry.url for entry in scores.list()]
            named = list(dict.fromkeys([*urls, *known])) if also_known else urls
            chosen = named or known or [local_url("strata") or _DEFAULT_RELAY]
            return ManyRelays(
                scores, chosen, only=True, identity=identity, tls=tls, profile=privacy, on_connection=on_connection
            )

        yield connect
