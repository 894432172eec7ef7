"""Runs one chat: sends typed lines, prints received messages, and carries out commands.

``waystation bsp chat`` starts it with options already read. Lines of stdin go in, messages go to stdout. A line that
begins with ``/`` is a command, such as ``/help``.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import typer

from waystation.cli.bsp.options import listen_address, names_of
from waystation.cli.bsp.show import describe_export, describe_import, short, show_event, show_export, show_import
from waystation.cli.bsp.sync import Syncing
from waystation.cli.output import print_json, visible
from waystation.core.errors import HostError, LocalError, WaystationError
from waystation.examples.chat.format import NICK_CHARS_MAX
from waystation.examples.chat.pairing import INVITATION_NAME, InvitationPeer, Newcomer
from waystation.examples.chat.room import Room, Said
from waystation.examples.chat.stdin import lines_of
from waystation.protocols.bsp.invite import Invitation, format_group, format_invitation
from waystation.sdk.bsp import BspPeer, Delivered, Group, PeerDown, PeerUnreachable, PeerUp, PublicKey

__all__ = ["FAREWELL_S", "Talk"]

FAREWELL_S: Final = 10.0
"""How long those who are connected may take to get what they lack when we leave."""
_SHOWN_AT_FIRST: Final = 20
_HELP: Final = """\
/export PATH [PEER]  write what PEER lacks into a file, to be carried
/again PATH [PEER]   the same, with what earlier files had: one was lost
/import PATH         read a file that somebody wrote for us
/peers               who is known, and how many messages each lacks
/allow KEY [NAME]    let somebody in who has no invitation, such as by files only
/quit                leave; what was said goes out when we come back"""


class Talk:
    """A chat on one device and one terminal."""

    def __init__(self, peer: BspPeer, entered: tuple[str, Group], nick: str, *, as_json: bool) -> None:
        """Prepare.

        Args:
            peer: The device, open.
            entered: What the chat is called here, and its group.
            nick: What we are called.
            as_json: Whether everything is shown as lines of JSON.
        """
        self._peer = peer
        self._name, self._group = entered
        self._nick = nick
        self._as_json = as_json
        self._invitation_peer = InvitationPeer(peer, self._group)
        self._room: Room | None = None
        self._news: AsyncGenerator[Any, None] | None = None
        self._unreachable: dict[bytes, str] = {}
        """What was said last of those who are dialled in vain."""
        self._shown_count = 0

    async def open(
        self, invitation: Invitation | None, peers: list[tuple[PublicKey, str]], *, listen_at: str | None, after: int
    ) -> None:
        """Enter the chat, let others in, and show what was said.

        Args:
            invitation: By which we came.
            peers: Keys and addresses of others to share the chat with; an address may be "".
            listen_at: host:port to listen at.
            after: Show only messages behind this order.

        Raises:
            LocalError: An address is none.
            HostError: The port cannot be had, or the disk says no.
        """
        peer = self._peer
        await peer.join(self._group, self._name)
        if invitation is not None:
            assert invitation.url.key is not None
            peers = [*peers, (invitation.url.key, invitation.url.place)]
        for key, place in peers:
            await peer.meet(key, self._name_for(key, invitation), url=place or None)
            await peer.share(self._group, key)
        await self._invitation_peer.open()
        url = await peer.listen(*listen_address(listen_at)) if listen_at is not None else None
        # Nothing is awaited from here on, so that what is delivered is either history or news.
        self._room, self._news = Room(peer, self._group, self._nick), peer.news()
        name = "" if self._nick == short(peer.key) else self._nick
        self._greet(format_invitation(url, self._group, name) if url is not None else None)
        history = self._room.history(after)
        for said in history if self._as_json else history[-_SHOWN_AT_FIRST:]:
            self._show(said)
        for each in peer.status().peers:
            if each.link is not None:
                self._show_event(PeerUp(each.key, each.link))

    def _name_for(self, key: PublicKey, invitation: Invitation | None) -> str | None:
        """Return what the one who invited us calls itself, where that differs from the others here."""
        if invitation is None or key != invitation.url.key or not _is_name(invitation.name):
            return None
        taken = any(each.name == invitation.name or (each.key == key and each.name) for each in self._peer.home.peers())
        return None if taken else invitation.name

    async def run(self, count: int, *, stays: bool) -> bool:
        """Talk until stdin ends, somebody says /quit, or ``count`` messages were shown; return whether they were.

        Args:
            count: 0 for no end.
            stays: Whether the end of stdin is no end.

        Raises:
            HostError: The disk says no.
        """
        if count and self._shown_count >= count:
            return True
        dialled = {entry.key for entry in self._peer.home.peers() if entry.url}
        loop = asyncio.get_running_loop()
        async with Syncing(self._peer, dialled, on_event=lambda _: None) as syncing:
            receiving, typing = loop.create_task(self._receive(count)), loop.create_task(self._type())
            try:
                await asyncio.wait({receiving, typing}, return_when=asyncio.FIRST_COMPLETED)
                if receiving.done() or (stays and not typing.result()):
                    await receiving
                else:
                    typing.result()  # or what the disk said
                    if dialled or syncing.came:
                        await self._say_farewell(syncing)
            finally:
                for task in (receiving, typing):
                    task.cancel()
                await asyncio.gather(receiving, typing, return_exceptions=True)
        return self._shown_count >= count

    async def _say_farewell(self, syncing: Syncing) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await syncing.until_quiet()

    # What comes

    async def _receive(self, count: int) -> None:
        assert self._news is not None
        assert self._room is not None
        async for event in self._news:
            if isinstance(event, Delivered):
                said = self._room.receive(event)
                if said is not None:
                    self._show(said)
                newcomer = await self._invitation_peer.receive(event)
                if newcomer is not None:
                    self._admit_newcomer(newcomer)
            else:
                self._show_event(event)
            if count and self._shown_count >= count:
                return

    def _show(self, said: Said) -> None:
        self._shown_count += 1
        if self._as_json:
            print_json(
                {
                    "event": "message",
                    "order": said.order,
                    "id": said.message_id.hex(),
                    "timestamp": said.timestamp,
                    "nick": said.line.nick,
                    "text": said.line.text,
                    "answers": [each.hex() for each in said.answers],
                }
            )
            return
        at = time.strftime("%H:%M", time.localtime(min(said.timestamp, 253_402_300_799_000) / 1_000))
        text = said.line.text.replace("\n", "\n      ")  # a second line looks like nobody else's first
        typer.echo(visible(f"{at} {said.line.nick}: {text}"))

    def _greet(self, line: str | None) -> None:
        if self._as_json:
            ids = {"key": self._peer.key.hex(), "group": self._group.group_id.hex(), "join": format_group(self._group)}
            print_json({"event": "ready", **ids, "invitation": line})
            return
        typer.echo(f"{visible(self._name)}: you are {visible(self._nick)}; /help lists commands", err=True)
        if line is not None:
            typer.echo(f"others come in with: waystation bsp chat '{line}' --nick NAME --home FOLDER", err=True)

    def _admit_newcomer(self, newcomer: Newcomer) -> None:
        if self._as_json:
            print_json({"event": "newcomer", "key": newcomer.key.hex(), "nick": newcomer.nick})
        else:
            typer.echo(visible(f"* {newcomer.nick} is let in"), err=True)

    def _show_event(self, event: object) -> None:
        if isinstance(event, PeerUp | PeerDown) and event.key == self._invitation_peer.key:
            return
        if isinstance(event, PeerUnreachable):
            if self._unreachable.get(event.peer) == event.reason:
                return  # it is dialled again and again
            self._unreachable[event.peer] = event.reason
        elif isinstance(event, PeerUp):
            self._unreachable.pop(event.key, None)
        if not self._as_json:
            show_event(event, names_of(self._peer.home))
        elif isinstance(event, PeerUp | PeerDown):
            print_json({"event": "peer_up" if isinstance(event, PeerUp) else "peer_down", "key": event.key.hex()})

    # What is typed

    async def _type(self) -> bool:
        """Take lines until there are no more; return whether that was by /quit."""
        async with contextlib.aclosing(lines_of(sys.stdin.fileno())) as lines:
            async for line in lines:
                if line.strip() == "/quit":
                    return True
                try:
                    await self._do(line)
                except HostError as error:
                    if self._peer.failure is not None:
                        raise
                    self._complain(error)
                except WaystationError as error:
                    self._complain(error)
        return False

    def _complain(self, error: WaystationError) -> None:
        if self._as_json:
            print_json({"event": "error", "error": str(error), "kind": type(error).__name__})
        else:
            typer.echo(visible(f"* {error}"), err=True)

    async def _do(self, line: str) -> None:
        assert self._room is not None
        if not line.startswith("/"):
            if line.strip():
                await self._room.say(line)
            return
        command, *words = line.split()
        commands = {
            "/export": self._export,
            "/again": self._export_again,
            "/import": self._import,
            "/allow": self._allow,
            "/peers": self._list,
        }
        if command not in commands:
            known = command == "/help"
            typer.echo(_HELP if known else visible(f"* there is no {command}; there are\n{_HELP}"), err=True)
            return
        await commands[command](words)

    async def _export_again(self, words: list[str]) -> None:
        await self._export(words, again=True)

    async def _export(self, words: list[str], *, again: bool = False) -> None:
        if not 1 <= len(words) <= 2:
            raise LocalError("/again PATH [PEER]" if again else "/export PATH [PEER]")
        reader = words[1] if len(words) > 1 else self._sole_peer()
        result = await self._peer.export_file(reader, words[0], again=again)
        name = names_of(self._peer.home).get(result.peer) or short(result.peer)
        if self._as_json:
            print_json({"event": "exported", **describe_export(result)})
        else:
            show_export(result, visible(name))

    async def _import(self, words: list[str]) -> None:
        if len(words) != 1:
            raise LocalError("/import PATH")
        result = await self._peer.import_file(Path(words[0]))
        if self._as_json:
            print_json({"event": "imported", **describe_import(result, words[0])})
        else:
            show_import(
                result, words[0], visible(names_of(self._peer.home).get(result.sender, "")) or short(result.sender)
            )

    async def _allow(self, words: list[str]) -> None:
        if not 1 <= len(words) <= 2:
            raise LocalError("/allow KEY [NAME]")
        key = await self._peer.meet(words[0], words[1] if len(words) > 1 else None)
        await self._peer.share(self._group, key)
        self._admit_newcomer(Newcomer(key, words[1] if len(words) > 1 else short(key)))

    async def _list(self, words: list[str]) -> None:
        del words
        for peer in self._peer.status().peers:
            if peer.name == INVITATION_NAME:
                continue
            if self._as_json:
                fields = {"key": peer.key.hex(), "name": peer.name, "link": peer.link, "owed": peer.owed_count}
                print_json({"event": "peer", **fields})
            else:
                where = f"connected ({peer.link})" if peer.link else "not connected"
                typer.echo(visible(f"* {peer.name or short(peer.key)}: {where}, lacks {peer.owed_count}"), err=True)

    def _sole_peer(self) -> bytes:
        others = [entry.key for entry in self._peer.home.peers() if entry.name != INVITATION_NAME]
        if len(others) != 1:
            raise LocalError("say for whom: /export PATH PEER")
        return others[0]


def _is_name(text: str) -> bool:
    return 0 < len(text) <= NICK_CHARS_MAX and text.isprintable()
