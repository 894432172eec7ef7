"""How a newcomer gets into a chat with one pasted line: by a key that everybody can make who knows the chat's secret.

BSP connects devices that know each other's keys, and who holds the invitation is not known yet. So the chat has a door:
a second group of every member, shared with a key that is derived from the chat's client identifier. A newcomer becomes
that key's device for a moment, in a folder of its own, and leaves a message with its own key there. The member who gets
it takes the newcomer into its table of peers and shares the chat. Nothing but messages of BSP is needed, and nobody
without the line gets in.
"""

import asyncio
import hashlib
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from waystation.cli.bsp_chat_format import NICK_CHARS_MAX
from waystation.core.errors import HostError, LocalError
from waystation.sdk.bsp import (
    BspHome,
    BspPeer,
    Delivered,
    Group,
    KeyPair,
    PeerDown,
    PeerHolds,
    PeerUnreachable,
    PublicKey,
)
from waystation.sdk.bsp_invite import Invitation

__all__ = ["Door", "Newcomer", "introduce"]

DOOR_NAME: Final = "invitation"
INTRODUCE_S: Final = 30.0
_LABEL: Final = b"waystation chat door 1"
_KEY_BYTES: Final = 32
_HOPELESS: Final = {
    "wrong_peer": "somebody with another key answers there",
    "refused_by_peer": "who answers there does not know this chat",
}


class Newcomer(NamedTuple):
    """Somebody who came by the door."""

    key: PublicKey
    nick: str


class Door:
    """A member's side."""

    def __init__(self, peer: BspPeer, chat: Group) -> None:
        """Prepare the door of ``chat``; ``open`` opens it."""
        self._peer = peer
        self._chat = chat
        self._group = _door_group(peer.home, chat)

    @property
    def key(self) -> PublicKey:
        """Whose device a newcomer is for a moment."""
        return _door_key(self._chat).public

    async def open(self) -> None:
        """Let in whoever knows the chat's secret, from now on and after restarts.

        Raises:
            HostError: The disk says no.
        """
        await self._peer.join(self._group, DOOR_NAME)
        await self._peer.meet(self.key, DOOR_NAME)
        await self._peer.share(self._group, self.key)
        for message in self._peer.messages(self._group):
            await self._let_in(message.body)

    async def hear(self, event: Delivered) -> Newcomer | None:
        """Take a message that was delivered; return who was let in by it, if anybody."""
        if event.group_id != self._group.group_id:
            return None
        return await self._let_in(self._peer.message(self._group, event.message_id).body)

    async def _let_in(self, body: bytes | None) -> Newcomer | None:
        if body is None or len(body) < _KEY_BYTES or len(body) > _KEY_BYTES + 4 * NICK_CHARS_MAX:
            return None
        key, nick = PublicKey(body[:_KEY_BYTES]), body[_KEY_BYTES:].decode(errors="replace")
        known = {peer.key for peer in self._peer.home.peers()}
        if key in known or key == self._peer.key:
            return None
        await self._peer.meet(key, nick if nick.isprintable() else "")
        await self._peer.share(self._chat, key)
        return Newcomer(key, nick)


async def introduce(invitation: Invitation, key: PublicKey, nick: str, *, timeout_s: float | None = None) -> None:
    """Tell the member at the address of an invitation who we are; returns once it knows.

    Args:
        invitation: As it was pasted.
        key: Ours.
        nick: What we call ourselves.
        timeout_s: How long the member may take; None means 30 s.

    Raises:
        HostError: Nobody who knows this chat answered there in time; the sentence says who did, if anybody.
        LocalError: The address is none.
    """
    patience_s = INTRODUCE_S if timeout_s is None else timeout_s
    host = invitation.url.key
    assert host is not None
    with tempfile.TemporaryDirectory(prefix="waystation-chat-") as folder:
        place = Path(folder) / "door"
        place.mkdir(mode=0o700)
        (place / "bsp.key").touch(mode=0o600)
        (place / "bsp.key").write_text(_door_key(invitation.group).seed.hex())
        async with BspPeer(place) as peer:
            group = _door_group(peer.home, invitation.group)
            await peer.join(group)
            await peer.meet(host)
            await peer.share(group, host)
            news = peer.news()
            await peer.add(group, key + nick.encode())
            peer.connect(host, invitation.url.place)
            try:
                async with asyncio.timeout(patience_s):
                    async for event in news:
                        if isinstance(event, PeerHolds):
                            return
                        if (reason := _why_not(event)) is not None:
                            raise HostError(f"nobody let us in at {invitation.url.place}: {reason}")
            except TimeoutError as error:
                raise HostError(
                    f"nobody let us in at {invitation.url.place} within {patience_s:g} s;"
                    " does the chat run there, with --listen?"
                ) from error


def _why_not(event: object) -> str | None:
    """Return why waiting would not help, if it would not; another newcomer may take our place for a moment."""
    if isinstance(event, PeerUnreachable):
        return event.reason
    return _HOPELESS.get(event.reason) if isinstance(event, PeerDown) else None


def _door_key(chat: Group) -> KeyPair:
    if len(chat.client_id) < _KEY_BYTES:
        raise LocalError("this chat's client identifier is too short for a secret")
    return KeyPair.from_seed(hashlib.blake2b(_LABEL + chat.client_id, digest_size=_KEY_BYTES).digest())


def _door_group(home: BspHome, chat: Group) -> Group:
    return home.profile.group(_door_key(chat).public, _LABEL, "opaque")
