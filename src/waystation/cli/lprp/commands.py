"""``waystation lprp``: stores messages at a host for offline recipients, and fetches those for this identity.

Results are printed to stdout (with --json one object a line), everything else to stderr.
"""

import asyncio
import contextlib
import dataclasses
import os
import secrets
import sys
from collections import deque
from collections.abc import Coroutine, Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from waystation.cli.local_node import local_key, local_url
from waystation.cli.loop import run as run_loop
from waystation.cli.lprp.show import (
    HostNews,
    describe_lease,
    show_interrupted,
    show_lease,
    show_message,
    show_sent,
)
from waystation.cli.lprp.whitelist import WhitelistAction, change_whitelist, describe_whitelist, show_whitelist
from waystation.cli.options import JsonOption, RecipientArgument, TextArgument, count_option, home_option
from waystation.cli.output import EXIT_FAILURE, print_result
from waystation.cli.progress import ProgressLines
from waystation.cli.signals import until_signal
from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey, encode_id52
from waystation.sdk.errors import HomeBusyError
from waystation.sdk.lprp import (
    KEY_FILE,
    MESSAGE_BYTES_MAX,
    MESSAGE_ID_BYTES,
    HostUrl,
    LprpSender,
    LprpState,
    LprpTenant,
    Outcome,
    SendProgress,
    Sent,
)
from waystation.transport.dial import DATAGRAM_SCHEMES, DEFAULT_UDP_PORT, RelayUrl

__all__ = ["app", "find_host"]

_DEFAULT_HOME: Final = Path("lprp-me")
_SILENT_S: Final = 10.0
_Result = TypeVar("_Result")

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
    help="Leave messages at an LPRP host, and get those left for you.",
)

HostOption = Annotated[
    str | None,
    typer.Option(
        "--host",
        help="lprp://KEY@host:port, KEY as id52 or hexadecimal, with ?lease_ms=… and &byte_order=… where its operator"
        " says so. Default: the one that answered last with this home, else a node of this folder.",
    ),
]
HomeOption = Annotated[Path, home_option("its leases and its messages")]
OrderOption = Annotated[
    str | None,
    typer.Option("--byte-order", help="As the host has it: big or little. Default: what its address says, else big."),
]


class LeaseAction(Enum):
    """What to do about the lease."""

    GET = "get"
    RENEW = "renew"
    SHOW = "show"


@app.command("id")
def show_id(home: HomeOption = _DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """Show the key of an identity, which an operator may put on a list; home and key are made if absent.

    No host is asked.

    Example: waystation lprp id --home ./alice
    """
    with _opened(home) as state:
        document = {"public_key": state.identity.hex(), "id52": encode_id52(state.identity)}
        print_result(document, state.identity.hex(), as_json=as_json)


@app.command()
def lease(
    action: Annotated[LeaseAction, typer.Argument(help="get (the default), renew, or show.")] = LeaseAction.GET,
    host: HostOption = None,
    home: HomeOption = _DEFAULT_HOME,
    byte_order: OrderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Get a lease at a host, by some seconds of work, so that others can leave messages there; renew or show it.

    `listen` does this by itself, and while it runs `renew` cannot: one program at a time is the tenant. `show` asks
    nobody and makes nothing.

    Example: waystation lprp lease --host lprp://KEY@relay.example:4810
    """
    with _opened(home, makes=action is not LeaseAction.SHOW) as state, ProgressLines(shown=not as_json) as lines:
        place = _host(host, byte_order, state)
        key = state.identity

        async def main() -> None:
            news = HostNews(lines, place, public_key=key, listens=False)
            async with LprpTenant(home, place, on_event=news.show) as tenant:
                if action is LeaseAction.RENEW:
                    await tenant.renew()

        if action is not LeaseAction.SHOW:
            try:
                _run(main())
            except HomeBusyError:
                held = state.lease(place.key)
                if action is LeaseAction.RENEW or held is None or held.until_ms <= state.now_ms():
                    raise
                typer.echo(f"note: a program listens with {home}, and keeps this lease", err=True)
        show_lease(describe_lease(state.lease(place.key), place, key), as_json=as_json)


@app.command()
def listen(
    host: HostOption = None,
    home: HomeOption = _DEFAULT_HOME,
    count: Annotated[int, count_option("messages")] = 0,
    timeout: Annotated[
        float,
        typer.Option("--timeout", min=0, help="End after so many seconds, with 1 before --count; 0 never ends."),
    ] = 0.0,
    byte_order: OrderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stay a tenant and print messages as they come, each once, also those that came while nobody listened.

    A key is made at first use; its public half on stderr is what others send to. A host that is out of reach is tried
    again for ever.

    Example: waystation lprp listen --host lprp://KEY@relay.example:4810
    """
    with _opened(home) as state, ProgressLines(shown=not as_json) as lines:
        place = _host(host, byte_order, state)
        news = HostNews(lines, place, public_key=state.identity, listens=True)

        async def main() -> bool:
            silent = asyncio.get_running_loop().call_later(_SILENT_S, news.say_silent)
            try:
                async with LprpTenant(home, place, keep_trying=True, on_event=news.show) as tenant:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(timeout or None):
                            return await _print_messages(tenant, count, as_json=as_json)
                    return count == 0
            finally:
                silent.cancel()
                news.close()

        if not _run(main(), ended_exit_code=0):
            raise typer.Exit(EXIT_FAILURE)


@app.command()
def send(
    recipient: RecipientArgument,
    text: TextArgument = None,
    file: Annotated[Path | None, typer.Option("--file", help="Send what this file holds, up to 64 KiB.")] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="One packet as it is, up to 364 bytes, which everybody on the way reads.")
    ] = False,
    no_work: Annotated[bool, typer.Option("--no-work", help="Do no work, only send what goes without.")] = False,
    message_id: Annotated[
        str | None,
        typer.Option(
            "--id",
            help="Id of an earlier message, to send the same content again without a second arrival. Other content"
            " under an old id never arrives.",
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, help="Give up after so many seconds; 0 means some minutes of silence.")
    ] = 0.0,
    host: HostOption = None,
    home: HomeOption = _DEFAULT_HOME,
    byte_order: OrderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Leave a message at the recipient's host, sealed so that only the recipient reads it; exit code 0 when it is kept.

    Who is not on the recipient's whitelist does some work for each packet. Ctrl-C stops it, and says how to go on.

    Example: waystation lprp send 8a1f…64 digits… "hello" --host lprp://KEY@relay.example:4810

    Example: waystation lprp send 8a1f…64 digits… --file report.txt
    """
    key, content = PublicKey.parse(recipient), _content(text, file)
    if raw and message_id is not None:
        raise LocalError("--id is for sealed messages; a --raw packet is another each time it is sent")
    chosen = None if raw else _message_id(message_id)
    latest: deque[SendProgress] = deque(maxlen=1)
    with _opened(home) as state, ProgressLines(shown=not as_json) as lines:
        place = _host(host, byte_order, state)
        news = HostNews(lines, place, public_key=state.identity, listens=False)

        def note(progress: SendProgress) -> None:
            latest.append(progress)
            news.count(progress)

        async def main() -> Sent:
            async with LprpSender(home, place, works=not no_work, on_event=news.show) as sender:
                sent = await sender.send(
                    key,
                    content,
                    seal=not raw,
                    message_id=chosen,
                    timeout_s=timeout or None,
                    on_progress=note,
                )
                if sent.outcome is Outcome.UNANSWERED and sender.connection.complaints:
                    typer.echo(f"note: the network says that nobody listens at {place.address}", err=True)
                return sent

        try:
            sent = _run(main())
        except (KeyboardInterrupt, typer.Exit):
            show_interrupted(latest[-1] if latest else None, chosen)
            raise
    show_sent(sent, key, place, sealed=not raw, as_json=as_json)
    if not sent.ok:
        raise typer.Exit(EXIT_FAILURE)


@app.command()
def whitelist(
    action: Annotated[
        WhitelistAction, typer.Argument(help="show (the default), add, remove, or clear.")
    ] = WhitelistAction.SHOW,
    keys: Annotated[list[str] | None, typer.Argument(help="add, remove: public keys.")] = None,
    host: HostOption = None,
    home: HomeOption = _DEFAULT_HOME,
    byte_order: OrderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show, add, remove or clear the keys that may write to you without work; returns once the host knows.

    While a program listens with this home, that program updates the host. `show` asks nobody and makes nothing. Anybody
    may still write who works for it: `sender` says whether to read it.

    Example: waystation lprp whitelist add 8a1f…64 digits…
    """
    wanted = [PublicKey.parse(each) for each in keys or []]
    if bool(wanted) != (action in (WhitelistAction.ADD, WhitelistAction.REMOVE)):
        raise LocalError("add and remove take public keys, show and clear take none")
    with _opened(home, makes=action is not WhitelistAction.SHOW) as state, ProgressLines(shown=not as_json) as lines:
        place = _host(host, byte_order, state)
        news = HostNews(lines, place, public_key=state.identity, listens=False)
        if action is not WhitelistAction.SHOW:
            tenant = LprpTenant(home, place, on_event=news.show)
            _run(change_whitelist(state, place, tenant, action, wanted))
        show_whitelist(describe_whitelist(state.whitelist(place.key), place), as_json=as_json)


async def _print_messages(tenant: LprpTenant, count: int, *, as_json: bool) -> bool:
    """Print messages until there were ``count``, then return True."""
    printed_count = 0
    async with contextlib.aclosing(tenant.messages()) as messages:
        async for message in messages:
            show_message(message, tenant.host, as_json=as_json)
            await message.done()
            printed_count += 1
            if printed_count == count:
                break
    return True


@contextlib.contextmanager
def _opened(home: Path, *, makes: bool = True) -> Iterator[LprpState]:
    """Open a home; without ``makes`` only one that is there."""
    if not makes and not (home / KEY_FILE).exists():
        raise LocalError(f"{home} is no home of anybody yet: `id`, `lease get`, `listen` and `send` make one there")
    state = LprpState(home)
    try:
        yield state
    finally:
        state.close()


def _host(given: str | None, byte_order: str | None, state: LprpState) -> HostUrl:
    """Return the host that was named, else the one that answered last, else a node of this folder."""
    found = find_host(given, state)
    if byte_order is None:
        return found
    if byte_order not in ("big", "little"):
        raise LocalError(f"--byte-order is big or little, not {byte_order!r}")
    return dataclasses.replace(found, byte_order=byte_order)


def find_host(given: str | None, state: LprpState) -> HostUrl:
    """Return the host that was named, else the one that answered last, else the node of this folder.

    Raises:
        LocalError: There is none of them.
    """
    if given is not None:
        return HostUrl.parse(given)
    last = state.last_host()
    if last is not None:
        return HostUrl.parse(last)
    key = local_key()
    if key is not None:
        place = RelayUrl.parse(local_url("lprp") or f"udp://127.0.0.1:{DEFAULT_UDP_PORT}", DATAGRAM_SCHEMES)
        return HostUrl(key, place.host, place.port)
    raise LocalError(
        f"name the host once: --host lprp://KEY@host:port (its operator finds KEY with `waystation id`); "
        f"{state.home} has used none yet, and there is no node in this folder"
    )


def _content(text: str | None, file: Path | None) -> bytes:
    if (text is None) == (file is None):
        raise LocalError("say what to send: one of a text, - for stdin, or --file")
    if file is not None:
        try:
            with file.open("rb") as opened:
                data = opened.read(MESSAGE_BYTES_MAX + 1)
        except OSError as error:
            raise LocalError(f"cannot read {file}: {error.strerror}") from error
    else:
        data = sys.stdin.buffer.read(MESSAGE_BYTES_MAX + 1) if text == "-" else os.fsencode(text or "")
    if len(data) > MESSAGE_BYTES_MAX:
        what = file if file is not None else "this"
        raise LocalError(f"{what} is too large: a message has at most {MESSAGE_BYTES_MAX} bytes")
    return data


def _message_id(text: str | None) -> bytes:
    """Return the id that was given, else a new one, which is printed when the command is interrupted."""
    if text is None:
        return secrets.token_bytes(MESSAGE_ID_BYTES)
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise LocalError(f"--id is 32 hexadecimal digits, not {text!r}") from error


def _run(work: Coroutine[Any, Any, _Result], *, ended_exit_code: int = EXIT_FAILURE) -> _Result:
    return run_loop(until_signal(work, ended_exit_code=ended_exit_code))
