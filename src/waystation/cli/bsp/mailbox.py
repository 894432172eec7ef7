"""``waystation bsp mailbox``: makes a node keep groups for members that are never online together.

The commands are BSP messages to that node, carried out by ``protocols.bsp.mailbox`` there; each waits for the answer up
to ``--timeout``.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from waystation.cli.bsp.options import GroupOption, HomeOption, peer_of, run
from waystation.cli.bsp.place import DEFAULT_HOME
from waystation.cli.bsp.relays import meet_local_relay
from waystation.cli.options import JsonOption
from waystation.cli.output import print_json, print_result
from waystation.core.errors import LocalError
from waystation.protocols.bsp.mailbox.commands import AnswerStatus, HostedRow
from waystation.sdk.bsp import BspPeer
from waystation.sdk.bsp.mailbox import MailboxOwner, MailboxState

__all__ = ["app"]

_DAY_MS: Final = 86_400_000
_MIB: Final = 1_048_576
_Result = TypeVar("_Result")

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
    help="Have a node keep groups for members who are never online together; it must have our key in bsp.owners. A"
    " device is a mailbox by bsp listen --owner OUR-KEY.",
)

MailboxOption = Annotated[
    str | None,
    typer.Option(
        "--mailbox",
        help="Peer that is the mailbox: its name here, or the first digits of its key. Default: the node of this"
        " folder, which is a peer from then on.",
    ),
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=0.1, help="Seconds to wait for its answer; the command is kept after that.")
]
MemberOption = Annotated[
    list[str] | None, typer.Option("--member", help="Peer whom the group is kept for besides us; may repeat.")
]


@app.command()
def host(
    group: GroupOption,
    mailbox: MailboxOption = None,
    member: MemberOption = None,
    keep_days: Annotated[
        int,
        typer.Option("--keep-days", min=0, max=365, help="How long a message waits for who does not come; 0 is 14."),
    ] = 0,
    home: HomeOption = DEFAULT_HOME,
    timeout: TimeoutOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Have a group kept, or change for whom and how long; without --member for those with whom we share it.

    Every member meets the mailbox too (bsp peers add), and shares the group with it (bsp share). It sees sizes, times,
    members and, unless the application encrypts them, bodies.

    Example: waystation bsp mailbox host --group talk --mailbox node --member bob
    """
    named = _mailbox(home, mailbox)

    async def work(owner: MailboxOwner, peer: BspPeer) -> AnswerStatus:
        members = member if member is not None else _audience(peer, group, peer.peer(named))
        return await owner.host(group, members, keep_ms=keep_days * _DAY_MS)

    status = _run(home, named, timeout, work)
    is_served = status is AnswerStatus.SERVED
    said = "somebody else has it hosted there, and we are served" if is_served else "hosted"
    print_result({"status": status.name.lower()}, said, as_json=as_json)


@app.command()
def members(
    group: GroupOption,
    mailbox: MailboxOption = None,
    add: Annotated[list[str] | None, typer.Option("--add", help="Peer to serve from now on; may repeat.")] = None,
    remove: Annotated[list[str] | None, typer.Option("--remove", help="Peer to serve no more; may repeat.")] = None,
    home: HomeOption = DEFAULT_HOME,
    timeout: TimeoutOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Change for whom a group is kept; who is new gets what is still there.

    Example: waystation bsp mailbox members --group talk --mailbox node --add carol --remove bob
    """
    if not add and not remove:
        raise LocalError("say whom to --add or --remove")

    async def work(owner: MailboxOwner, _peer: BspPeer) -> None:
        await owner.members(group, add or (), remove or ())

    _run(home, _mailbox(home, mailbox), timeout, work)
    _say_done(as_json=as_json)


@app.command()
def drop(
    group: GroupOption,
    mailbox: MailboxOption = None,
    home: HomeOption = DEFAULT_HOME,
    timeout: TimeoutOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Have a group forgotten there, with all messages that wait; here it stays.

    Example: waystation bsp mailbox drop --group talk --mailbox node
    """

    async def work(owner: MailboxOwner, _peer: BspPeer) -> None:
        await owner.drop(group)

    _run(home, _mailbox(home, mailbox), timeout, work)
    _say_done(as_json=as_json)


@app.command()
def status(
    mailbox: MailboxOption = None,
    home: HomeOption = DEFAULT_HOME,
    timeout: TimeoutOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Show what is kept for us, and how much of our quota that takes.

    Example: waystation bsp mailbox status

    Example: waystation bsp mailbox status --mailbox node
    """

    async def work(owner: MailboxOwner, peer: BspPeer) -> tuple[MailboxState, dict[bytes, str]]:
        names = {entry.group.group_id: entry.name for entry in peer.home.groups()}
        return await owner.status(), names

    state, names = _run(home, _mailbox(home, mailbox), timeout, work)
    rows = [_described(row, names) for row in state.groups]
    if as_json:
        print_json({"allows": state.allows._asdict(), "uses": state.uses._asdict(), "groups": rows})
        return
    allows, uses = state.allows, state.uses
    typer.echo(
        f"{uses.groups} of {allows.groups} groups, {uses.live_bytes / _MIB:.1f} of {allows.live_bytes // _MIB} MiB,"
        f" {uses.live_messages} of {allows.live_messages} messages, {uses.tombstones} of {allows.tombstones} remembered"
    )
    for row in rows:
        typer.echo(
            f"{row['name'] or row['group'][:8]}: {row['live_messages']} messages wait ({row['live_bytes']} bytes, the"
            f" oldest {row['oldest_s']} s), {row['members']} members, kept for {row['keep_ms'] / _DAY_MS:g} days"
        )


def _described(row: HostedRow, names: dict[bytes, str]) -> dict[str, Any]:
    fields = row._asdict()
    group_id = fields.pop("group_id")
    return {"group": group_id.hex(), "name": names.get(group_id, ""), **fields}


def _audience(peer: BspPeer, group: str, mailbox: bytes) -> list[bytes]:
    group_id = peer.group(group).group_id
    shared = next(each.audience for each in peer.status().groups if each.group.group_id == group_id)
    return [key for key in shared if key != mailbox]


def _say_done(*, as_json: bool) -> None:
    print_result({"status": "done"}, "done", as_json=as_json)


def _mailbox(home: Path, named: str | None) -> bytes | str:
    """Return the mailbox that was named, or the node of this folder, which the device knows from then on.

    Raises:
        LocalError: None was named, and no node of this folder runs that speaks BSP.
    """
    mailbox = named if named is not None else meet_local_relay(home)
    if mailbox is None:
        raise LocalError(
            "which mailbox? name a peer with --mailbox, or run this in the folder of a node that speaks BSP"
        )
    return mailbox


def _run(
    home: Path,
    mailbox: bytes | str,
    timeout_s: float,
    work: Callable[[MailboxOwner, BspPeer], Awaitable[_Result]],
) -> _Result:
    """Do a command's work with the device of a home, which dials the mailbox."""

    async def main() -> _Result:
        async with peer_of(home, dials=True) as peer:
            return await work(MailboxOwner(peer, mailbox, timeout_s=timeout_s), peer)

    return run(main())
