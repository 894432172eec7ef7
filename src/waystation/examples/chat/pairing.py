"""Pairing: a newcomer joins a chat with one pasted line, through a key derived from the chat's secret.

BSP connects only devices that know each other's keys, and the newcomer's key is unknown. So every chat has a second
group, shared with a key derived from the chat's client identifier. The newcomer acts as that key's device for a moment,
in a folder of its own, and posts a message with its real key. The member that receives it adds the newcomer as a peer
and shares the chat. Only ordinary BSP messages are used, and a device without the line cannot join.
"""

import asyncio
import hashlib
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from waystation.core.errors import HostError, LocalError
from waystation.examples.chat.format import NICK_CHARS_MAX
from waystation.protocols.bsp.invite import Invitation
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

__all__ = ["InvitationPeer", "Newcomer", "introduce"]

INVITATION_NAME: Final = "invitation"
INTRODUCE_S: Final = 30.0
_LABEL: Final = b"waystation chat door 1"
_KEY_BYTES: Final = 32
_HOPELESS: Final = {
    "wrong_peer": "somebody with another key answers there",
    "refused_by_peer": "who answers there does not know this chat",
}


class Newcomer(NamedTuple):
    """A device that came with the invitation."""

    key: PublicKey
    nick: str


class InvitationPeer:
    """A member's side."""

    def __init__(self, peer: BspPeer, chat: Group) -> None:
        """Prepare the shared peer of ``chat``; ``open`` adds it."""
        self._peer = peer
        self._chat = chat
        self._group = _invitation_group(peer.home, chat)

    @property
    def key(self) -> PublicKey:
        """Whose device a newcomer is for a moment."""
        return _invitation_key(self._chat).public

    async def open(self) -> None:
        """Let in whoever knows the chat's secret, from now on and after restarts.

        Raises:
            HostError: The disk says no.
        """
        await self._peer.join(self._group, INVITATION_NAME)
        await self._peer.meet(self.key, INVITATION_NAME)
        await self._peer.share(self._group, self.key)
        for message in self._peer.history(self._group):
            await self._let_in(message.body)

    async def receive(self, event: Delivered) -> Newcomer | None:
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
    """Send our key to the member at the address of an invitation; returns once it has it.

    Args:
        invitation: As it was pasted.
        key: Ours.
        nick: What we call ourselves.
        timeout_s: How long the member may take; None means 30 s.

    Raises:
        HostError: Nobody who knows this chat answered there in time; the sentence says who did, if anybody.
        LocalError: The address is none.
    """
    wait_s = INTRODUCE_S if timeout_s is None else timeout_s
    host = invitation.url.key
    assert host is not None
    with tempfile.TemporaryDirectory(prefix="waystation-chat-") as folder:
        place = Path(folder) / "invitation"
        place.mkdir(mode=0o700)
        (place / "bsp.key").touch(mode=0o600)
        (place / "bsp.key").write_text(_invitation_key(invitation.group).seed.hex())
        async with BspPeer(place) as peer:
            group = _invitation_group(peer.home, invitation.group)
            await peer.join(group)
            await peer.meet(host)
            await peer.share(group, host)
            news = peer.news()
            await peer.send(group, key + nick.encode())
            peer.connect(host, invitation.url.place)
            try:
                async with asyncio.timeout(wait_s):
                    async for event in news:
                        if isinstance(event, PeerHolds):
                            return
                        if (reason := _why_not(event)) is not None:
                            raise HostError(f"nobody let us in at {invitation.url.place}: {reason}")
            except TimeoutError as error:
                raise HostError(
                    f"nobody let us in at {invitation.url.place} within {wait_s:g} s;"
                    " does the chat run there, with --listen?"
                ) from error


def _why_not(event: object) -> str | None:
    """Return why waiting would not help, if it would not; another newcomer may take our place for a moment."""
    if isinstance(event, PeerUnreachable):
        return event.reason
    return _HOPELESS.get(event.reason) if isinstance(event, PeerDown) else None


def _invitation_key(chat: Group) -> KeyPair:
    if len(chat.client_id) < _KEY_BYTES:
        raise LocalError("this chat's client identifier is too short for a secret")
    return KeyPair.from_seed(hashlib.blake2b(_LABEL + chat.client_id, digest_size=_KEY_BYTES).digest())


def _invitation_group(home: BspHome, chat: Group) -> Group:
    return home.profile.group(_invitation_key(chat).public, _LABEL, "opaque")
