"""Laws of groups and peers of a BSP peer; tests/sdk/bsp/test_peer.py tries what becomes of their messages."""

import asyncio

import pytest

from tests.sdk.bsp.build import key_of, peer_in
from waystation.core.errors import LocalError
from waystation.sdk.bsp import Visibility


def test_names_keys_and_groups_lead_to_the_same(tmp_path):
    """A group is found by itself, its identifier or its name, a peer by its key, its text or its name."""
    other = key_of(2)

    async def scenario():
        async with peer_in(tmp_path, 1) as peer:
            group = await peer.create_group("talk")
            await peer.meet(other.id52, "bob")
            found = {peer.group(each) for each in (group, group.group_id, "talk")}
            keys = {peer.peer(each) for each in (other, other.hex(), "bob")}
            return found == {group}, keys == {other}

    assert asyncio.run(scenario()) == (True, True)


def test_what_is_shared_can_be_taken_back(tmp_path):
    """A peer that is met again keeps what is not given; one that was parted with is unknown."""
    other = key_of(2)

    async def scenario():
        async with peer_in(tmp_path, 1) as peer:
            await peer.create_group("talk")
            await peer.meet(other, "bob", "bsp+tls://bob.example:7443")
            await peer.meet(other, "robert")
            await peer.share("talk", "robert")
            shared = dict(peer.status().groups[0].audience)
            await peer.share("talk", "robert", Visibility.INVISIBLE)
            known = peer.home.peers()
            await peer.part("robert")
            with pytest.raises(LocalError):
                peer.peer("robert")
            await peer.leave("talk")
            return shared, known, peer.status().groups

    shared, (known,), groups = asyncio.run(scenario())

    assert shared == {other: Visibility.SHARED}
    assert (known.name, known.url) == ("robert", "bsp+tls://bob.example:7443")
    assert groups == ()
