"""Laws of how newcomers get into a chat."""

import asyncio

import pytest

from tests.sdk.bsp.build import devices, next_event
from waystation.core.errors import HostError
from waystation.examples.chat import pairing
from waystation.examples.chat.format import CHAT, FORMATS_KNOWN
from waystation.examples.chat.pairing import InvitationPeer, Newcomer, introduce
from waystation.protocols.bsp.invite import Invitation
from waystation.sdk.bsp import BspUrl, Delivered, Visibility

KEY = b"\x05" * 32


async def let_in(door, news, count):
    """Return the next newcomers."""
    found = []
    while len(found) < count:
        event = await next_event(news, lambda event: isinstance(event, Delivered))
        newcomer = await door.receive(event)
        found += [newcomer] if newcomer is not None else []
    return found


def test_who_has_the_invitation_is_let_in(tmp_path):
    """Newcomers with the line become peers that share the chat, each once, and are so behind a restart of the door."""

    async def main():
        async with devices(tmp_path, 1, formats=FORMATS_KNOWN) as (alice,):
            chat = await alice.create_group("chat", format=CHAT)
            door, news = InvitationPeer(alice, chat), alice.news()
            await door.open()
            invitation = Invitation(BspUrl.parse(await alice.listen()), chat)
            letting = asyncio.ensure_future(let_in(door, news, 2))
            await introduce(invitation, KEY, "bob")
            await introduce(invitation, KEY[:-1] + b"\x06", "carol\n")
            newcomers = await letting
            await InvitationPeer(alice, chat).open()
            peers = {peer.key: peer.name for peer in alice.home.peers()}
            return newcomers, peers, alice.status().groups

    newcomers, peers, groups = asyncio.run(main())
    (chat,) = [entry for entry in groups if entry.name == "chat"]

    assert newcomers == [Newcomer(KEY, "bob"), Newcomer(KEY[:-1] + b"\x06", "carol\n")]
    assert peers[KEY] == "bob"
    assert chat.audience == dict.fromkeys([KEY, KEY[:-1] + b"\x06"], Visibility.SHARED)


def test_who_knows_another_secret_is_not(tmp_path, monkeypatch):
    """An invitation to another chat opens no door here."""
    monkeypatch.setattr(pairing, "INTRODUCE_S", 0.5)

    async def main():
        async with devices(tmp_path, 1, formats=FORMATS_KNOWN) as (alice,):
            chat = await alice.create_group("chat", format=CHAT)
            other = await alice.create_group("other", format=CHAT)
            await InvitationPeer(alice, chat).open()
            url = BspUrl.parse(await alice.listen())
            with pytest.raises(HostError, match="nobody let us in"):
                await introduce(Invitation(url, other), KEY, "mallory")
            return [peer.key for peer in alice.home.peers()]

    assert KEY not in asyncio.run(main())


@pytest.mark.parametrize("body", [b"", b"short", bytes(32 + 129)])
def test_what_is_no_introduction_lets_nobody_in(tmp_path, body):
    """A message at the door that names no key changes nothing."""

    async def main():
        async with devices(tmp_path, 1, formats=FORMATS_KNOWN) as (alice,):
            chat = await alice.create_group("chat", format=CHAT)
            door, news = InvitationPeer(alice, chat), alice.news()
            await door.open()
            before = alice.home.peers()
            await alice.send("invitation", body)
            event = await next_event(news, lambda event: isinstance(event, Delivered))
            return await door.receive(event), alice.home.peers() == before

    assert asyncio.run(main()) == (None, True)


def test_where_nobody_is_the_reason_is_told_at_once(tmp_path):
    """A port at which nobody listens ends the attempt with that sentence, not after half a minute."""

    async def main():
        async with devices(tmp_path, 1, formats=FORMATS_KNOWN) as (alice,):
            chat = await alice.create_group("chat", format=CHAT)
            url = BspUrl.parse(await alice.listen())
        async with asyncio.timeout(10):
            await introduce(Invitation(url, chat), KEY, "bob")

    with pytest.raises(HostError, match="nobody listens on"):
        asyncio.run(main())


def test_somebody_else_at_the_address_is_told(tmp_path):
    """An answer under another key than the invitation's ends the attempt."""

    async def main():
        async with devices(tmp_path, 2, formats=FORMATS_KNOWN) as (alice, bob):
            chat = await alice.create_group("chat", format=CHAT)
            place = BspUrl.parse(await bob.listen()).place
            url = BspUrl.parse(place.replace("://", f"://{alice.key.hex()}@"))
            await introduce(Invitation(url, chat), KEY, "carol")

    with pytest.raises(HostError, match="another key answers"):
        asyncio.run(main())


def test_patience_of_the_caller_counts(tmp_path):
    """Somebody who listens and says nothing is waited for as long as the caller wants."""

    async def main():
        async def listen(reader, writer):
            await reader.read()
            writer.close()

        silent = await asyncio.start_server(listen, "127.0.0.1", 0)
        async with silent, devices(tmp_path, 1, formats=FORMATS_KNOWN) as (alice,):
            chat = await alice.create_group("chat", format=CHAT)
            port = silent.sockets[0].getsockname()[1]
            url = BspUrl.parse(f"bsp+tls://{alice.key.hex()}@127.0.0.1:{port}")
            await introduce(Invitation(url, chat), KEY, "bob", timeout_s=0.05)

    with pytest.raises(HostError, match=r"within 0\.05 s"):
        asyncio.run(main())
