"""Commands of ``waystation bsp`` that exchange messages with peers: ``sync``, ``listen``, ``export``, ``import``.

The first two connect (``sdk.bsp``); the other two write and read sealed files that people carry. The result of each is
printed as counts of messages.
"""

import asyncio
import contextlib
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from waystation.cli.bsp.carriers import (
    CARRIED_QUIET_S,
    AuthorityOption,
    LprpOption,
    MerkOption,
    attach_carriers,
)
from waystation.cli.bsp.options import HomeOption, ModeOption, listen_address, names_of, peer_of, run
from waystation.cli.bsp.place import DEFAULT_HOME, open_home
from waystation.cli.bsp.relays import RelayOption, introduced, local_relay, relays_of
from waystation.cli.bsp.show import (
    content_of,
    describe_export,
    describe_import,
    short,
    show_event,
    show_export,
    show_import,
)
from waystation.cli.bsp.sync import Syncing
from waystation.cli.options import JsonOption, count_option
from waystation.cli.output import EXIT_FAILURE, print_json, visible
from waystation.cli.progress import ProgressLines
from waystation.core.errors import LocalError, RemoteError
from waystation.protocols.bsp.bundle import BUNDLE_BYTES_USUAL
from waystation.sdk.bsp import BspPeer, Delivered, ExportResult, ImportResult, Mode, PublicKey

__all__ = ["export_file", "import_files", "listen", "sync"]

_KIB: Final = 1_024

OwnerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--owner", help="Be the mailbox of this device, a key: keep the groups that it has us keep. May repeat."
    ),
]


def sync(
    peers: Annotated[list[str] | None, typer.Argument(help="Only these; default: all that have an address.")] = None,
    listen: Annotated[
        str | None, typer.Option("--listen", help="Accept connections too, at host:port; a port alone is loopback's.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, help="Without --follow: give up after so many seconds; 0 never.")
    ] = 60.0,
    mode: ModeOption = Mode.AUTO,
    relay: RelayOption = None,
    merk: MerkOption = None,
    lprp: LprpOption = None,
    authority: AuthorityOption = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Connect with peers, exchange what is missing, and end when nothing more comes; exit code 0 when all is exchanged.

    Example: waystation bsp sync

    Example: waystation bsp sync --relay bsp+tls://8a1f…64 digits…@relay.example:7443

    Example: waystation bsp sync --listen 0.0.0.0:7443 --follow
    """
    with open_home(home, makes=False) as opened:
        names = names_of(opened)
        chosen = [opened.peer(each) for each in peers or []] or [peer for peer in opened.peers() if peer.url]
    wanted = {peer.key: peer.url for peer in chosen if peer.url}
    relays = relays_of(relay or ())
    if not (wanted or relays or listen or merk or lprp):
        relays = local_relay()
        if not relays:
            raise LocalError(
                "nobody to connect with: --relay or `bsp peers add` with bsp+tls://KEY@host:port, or --listen"
            )
    wanted |= relays

    async def work() -> dict[str, Any]:
        async with peer_of(home, mode=mode) as peer:
            quiet_s = CARRIED_QUIET_S if merk or lprp else None
            with ProgressLines(shown=not as_json) as spinner:

                def show(event: object) -> None:
                    show_event(event, names)
                    spinner.show("", f"received {syncing.received_count:,}, confirmed {syncing.confirmed_count:,}")

                async with Syncing(peer, set(wanted), on_event=show, quiet_s=quiet_s) as syncing:
                    if listen is not None:
                        typer.echo(f"listening at {await peer.listen(*listen_address(listen))}", err=True)
                    for key, url in wanted.items():
                        peer.connect(key, url)
                    unreached = await attach_carriers(peer, merk, lprp, authority)
                    in_time = False
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(None if follow else timeout or None):
                            await (syncing.forever() if follow else syncing.until_quiet())
                            in_time = True
                return _result(peer, syncing, set(wanted), unreached(), in_time=in_time)

    with introduced(home, relays) as answered:
        result = run(work(), ended_exit_code=0 if follow else EXIT_FAILURE)
        answered |= {key for key in relays if key.hex() in result["connected"]}
    if as_json:
        print_json(result)
    else:
        typer.echo(f"received {result['received']:,}, confirmed {result['confirmed']:,}")
        _say_what_lacks(result, names, timeout)
    if not result["complete"]:
        raise typer.Exit(EXIT_FAILURE)


def _say_what_lacks(result: dict[str, Any], names: dict[bytes, str], timeout: float) -> None:
    """Say why an exchange is not complete, as far as nothing else has."""
    for kind, reason in result["unreached"].items():
        typer.echo(f"{kind.upper()}: {reason}", err=True)
    if not result["in_time"]:
        typer.echo(f"not done after {timeout:g} s", err=True)
    if not result["complete"]:
        for key, count in result["owed"].items():
            if count:
                name = visible(names.get(bytes.fromhex(key), "")) or key[:8]
                typer.echo(
                    f"{name} is not known to have {count:,} of our messages; `waystation bsp why` says more", err=True
                )


def _result(
    peer: BspPeer, syncing: Syncing, wanted: set[PublicKey], unreached: dict[str, str], *, in_time: bool
) -> dict[str, Any]:
    """Return what became of an exchange."""
    came = [each for each in peer.status().peers if each.key in syncing.came]
    # At an LPRP host answers come another day: what it has taken is as much as there can be.
    lacking = any(each.owed_count for each in came if each.link != "lprp" or each.key in syncing.troubled)
    return {
        "connected": sorted(each.key.hex() for each in came),
        "failed": {key.hex(): reason for key, reason in syncing.failed.items()},
        "unreached": unreached,
        "received": syncing.received_count,
        "confirmed": syncing.confirmed_count,
        "owed": {each.key.hex(): each.owed_count for each in came},
        "in_time": in_time,
        "complete": in_time
        and bool(came)
        and not (syncing.failed or unreached)
        and wanted <= syncing.came
        and not lacking,
    }


def listen(
    at: Annotated[
        str, typer.Argument(help="host:port; a port alone is loopback's, 0 a free one. Default: 127.0.0.1:7443.")
    ] = "127.0.0.1:7443",
    count: Annotated[int, count_option("messages")] = 0,
    timeout: Annotated[float, typer.Option("--timeout", min=0, help="End after so many seconds; 0 never.")] = 0.0,
    owner: OwnerOption = None,
    merk: MerkOption = None,
    lprp: LprpOption = None,
    authority: AuthorityOption = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Stay there for peers: accept and dial connections, and print messages as they are delivered.

    With --owner also keep groups for others until all their members have each message, as a node does: the owner says
    so with bsp mailbox. What is kept is not printed.

    Example: waystation bsp listen 0.0.0.0:7443 --json
    """
    owners = [PublicKey.parse(each) for each in owner or []]
    with open_home(home, makes=False) as opened:
        names = names_of(opened)

    async def work() -> bool:
        async with peer_of(home, dials=True, owners=owners) as peer:
            news = peer.news()
            typer.echo(f"listening at {await peer.listen(*listen_address(at))}", err=True)
            await attach_carriers(peer, merk, lprp, authority)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout or None):
                    return await _print_delivered(peer, news, names, count, as_json=as_json)
            return count == 0

    if not run(work(), ended_exit_code=0):
        raise typer.Exit(EXIT_FAILURE)


async def _print_delivered(peer: BspPeer, news: Any, names: dict[bytes, str], count: int, *, as_json: bool) -> bool:
    printed_count, formats = 0, {entry.group.group_id: entry.group.format for entry in peer.home.groups()}
    async for event in news:
        show_event(event, names)
        if isinstance(event, Delivered):
            if event.group_id not in formats:  # joined beside us, or kept for others
                formats = {entry.group.group_id: entry.group.format for entry in peer.home.groups()}
            if event.group_id not in formats:
                continue
            message = peer.message(event.group_id, event.message_id)
            if as_json:
                body = message.body.hex() if message.body is not None else None
                print_json(
                    {
                        "group": event.group_id.hex(),
                        "id": event.message_id.hex(),
                        "timestamp": event.timestamp,
                        "delivery_order": event.order,
                        "dependencies": [each.hex() for each in message.dependencies],
                        "body_hex": body,
                    }
                )
            else:
                text = visible((content_of(message.body, formats[event.group_id]) or b"").decode(errors="replace"))
                typer.echo(f"{short(event.group_id)}  {event.order:>6}  {short(event.message_id)}  {text}")
            printed_count += 1
            if printed_count == count:
                break
    return True


def export_file(
    peer: Annotated[str, typer.Argument(help="Who shall read it: name, key, or the first digits of one.")],
    path: Annotated[Path, typer.Argument(help="The file to write.")],
    kib: Annotated[
        int, typer.Option("--max-kib", min=64, max=4_096, help="Most KiB of the file; what is left needs another one.")
    ] = BUNDLE_BYTES_USUAL // _KIB,
    again: Annotated[
        bool, typer.Option("--again", help="Put in all that the peer is not known to hold: a file was lost.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file of this name.")] = False,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Write what is due for a peer into a file that only it can read, to be carried by hand.

    What is in a file is not exported again before a day has passed without an acknowledgement.

    Example: waystation bsp export bob to-bob.bsp
    """
    with open_home(home, makes=False) as opened:
        entry = opened.peer(peer)

    async def work() -> ExportResult:
        async with peer_of(home) as device:
            return await device.export_file(entry.key, path, bytes_max=kib * _KIB, again=again, replace=force)

    with ProgressLines(shown=not as_json) as spinner:
        spinner.show("", f"writing {path}")
        result = run(work())
    if as_json:
        print_json(describe_export(result))
    else:
        show_export(result, visible(entry.name) or short(entry.key))


def import_files(
    paths: Annotated[list[Path], typer.Argument(help="Files that peers wrote for us, in any order.")],
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Read files that peers exported for us; reading one twice, or late, changes nothing.

    A file that is damaged, of an unknown peer or for another device is refused as a whole; the others are read.

    Example: waystation bsp import from-bob.bsp
    """
    with open_home(home, makes=False) as opened:
        names = names_of(opened)
    with ProgressLines(shown=not as_json) as spinner:
        results = run(_import(home, paths, spinner))
    refused = False
    for path, result in results:
        if isinstance(result, RemoteError):
            refused = True
            if as_json:
                print_json({"path": str(path), "error": str(result), "kind": type(result).__name__})
            else:
                typer.echo(visible(f"waystation: {path} is refused: {result}"), err=True)
        elif as_json:
            print_json(describe_import(result, str(path)))
        else:
            show_import(result, str(path), visible(names.get(result.sender, "")) or short(result.sender))
    if refused:
        raise typer.Exit(EXIT_FAILURE)


async def _import(
    home: Path, paths: list[Path], spinner: ProgressLines
) -> list[tuple[Path, ImportResult | RemoteError]]:
    results: list[tuple[Path, ImportResult | RemoteError]] = []
    async with peer_of(home) as peer:
        for path in paths:
            spinner.show("", f"reading {path}")
            try:
                results.append((path, await peer.import_file(path)))
            except RemoteError as error:
                results.append((path, error))
    return results
