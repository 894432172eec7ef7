"""``waystation bsp chat``: a group chat, as an example of an application on BSP.

Each message depends on those that its author had seen, and is shown after them. Messages written offline arrive over
the next connection, through a node, or in a file.
"""

import asyncio
import contextlib
import random
from typing import Annotated, Final

import typer

from waystation.cli.bsp.carriers import AuthorityOption, LprpOption, MerkOption, attach_carriers
from waystation.cli.bsp.options import HomeOption, run
from waystation.cli.bsp.peers import read_peer
from waystation.cli.bsp.place import DEFAULT_HOME, open_home
from waystation.cli.bsp.show import short
from waystation.cli.options import JsonOption
from waystation.cli.output import EXIT_FAILURE
from waystation.core.errors import LocalError
from waystation.examples.chat.format import CHAT, FORMATS_KNOWN, Line, write_line
from waystation.examples.chat.pairing import introduce
from waystation.examples.chat.talk import Talk
from waystation.protocols.bsp.invite import Invitation, parse_invitation
from waystation.sdk.bsp import ID_BYTES, BspHome, BspPeer, Group

__all__ = ["chat"]

CHAT_NAME: Final = "chat"
_NICK: Final = "chat nick"


InvitationArgument = Annotated[
    str | None, typer.Argument(help="bsp+tls://KEY@host:port#chat_v1:… as somebody's `chat --listen` printed it.")
]
NickOption = Annotated[
    str | None,
    typer.Option("--nick", help="What you are called; default: as before, at first the first digits of your key."),
]
ListenOption = Annotated[
    str | None, typer.Option("--listen", help="Let others in at host:port; a port alone is loopback's, 0 a free one.")
]
PeersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--peer", help="Share the chat with this key, or bsp+tls://KEY@host:port such as a node's; may repeat."
    ),
]
ChatOption = Annotated[
    str | None, typer.Option("--group", help="Which chat, if this home has several; a new name begins one.")
]


def chat(
    invitation: InvitationArgument = None,
    nick: NickOption = None,
    listen: ListenOption = None,
    peers: PeersOption = None,
    group: ChatOption = None,
    after: Annotated[int, typer.Option("--after", min=0, help="With --json: only messages behind this order.")] = 0,
    count: Annotated[int, typer.Option("--count", min=0, help="End after so many messages; 0 never.")] = 0,
    timeout: Annotated[float, typer.Option("--timeout", min=0, help="End after so many seconds; 0 never.")] = 0.0,
    stay: Annotated[bool, typer.Option("--stay", help="Stay behind the end of stdin.")] = False,
    merk: MerkOption = None,
    lprp: LprpOption = None,
    authority: AuthorityOption = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Chat with everybody who has the chat's invitation; each line of stdin is a message, /help lists commands.

    With --json messages and events are printed as JSON lines, for scripts. At the end of stdin, those who are connected
    get what they lack, then the program ends.

    Example: waystation bsp chat --nick alice --home alice --listen 7500

    Example: waystation bsp chat 'bsp+tls://KEY@127.0.0.1:7500#chat_v1:…' --nick bob --home bob

    Example: echo "back in an hour" | waystation bsp chat --home bob --json
    """
    with open_home(home) as opened:
        invited = parse_invitation(invitation, opened.profile) if invitation is not None else None
        chosen = nick if nick is not None else opened.note(_NICK) or short(opened.key)
        write_line(Line(chosen, "hello"), [])  # a nickname that nobody could use is refused before anything is made
        if invited is not None and _is_new(opened, invited):
            typer.echo(f"asking to be let in at {invited.url.place}…", err=True)
            run(introduce(invited, opened.key, chosen, timeout_s=timeout or None))
        named = [read_peer(each) for each in peers or []]
        entered = _enter(opened, invited, group)
        if chosen != short(opened.key):
            opened.commit([opened.put_note(_NICK, chosen)])

    async def work() -> bool:
        async with BspPeer(home, formats=FORMATS_KNOWN) as peer:
            talk = Talk(peer, entered, chosen, as_json=as_json)
            await talk.open(invited, named, listen_at=listen, after=after)
            await attach_carriers(peer, merk, lprp, authority)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout or None):
                    return await talk.run(count, stays=stay)
            return count == 0

    if not run(work(), ended_exit_code=0):
        raise typer.Exit(EXIT_FAILURE)


def _is_new(home: BspHome, invitation: Invitation) -> bool:
    joined = any(entry.group == invitation.group for entry in home.groups())
    return not joined or all(peer.key != invitation.url.key for peer in home.peers())


def _enter(home: BspHome, invitation: Invitation | None, name: str | None) -> tuple[str, Group]:
    """Return the chat that is meant, and its name here; a new one where there is none."""
    chats = [entry for entry in home.groups() if entry.group.format == CHAT]
    if invitation is not None:
        if invitation.group.format != CHAT:
            raise LocalError(f"this invites to a group of format {invitation.group.format}, not to a chat")
        known = next((entry.name for entry in chats if entry.group == invitation.group), None)
        return known or name or CHAT_NAME, invitation.group
    if name is not None:
        chats = [entry for entry in chats if entry.name == name or entry.group.group_id.hex() == name]
    if len(chats) > 1:
        raise LocalError(f"there are several chats here, say which with --group: {', '.join(e.name for e in chats)}")
    if chats:
        return chats[0].name, chats[0].group
    return name or CHAT_NAME, home.profile.group(random.SystemRandom().randbytes(ID_BYTES), b"", CHAT)
