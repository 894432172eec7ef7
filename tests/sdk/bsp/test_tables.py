"""Laws of how a running device follows the tables of its home, and orders that others leave."""

import asyncio

import pytest

from tests.sdk.bsp.build import hurry, next_event, peer_in, until
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.device.orders import (
    AddMessage,
    Join,
    Leave,
    Meet,
    Part,
    ShareGroup,
    ShareMessage,
    queue_order,
)
from waystation.protocols.bsp.profile import SEED
from waystation.sdk.bsp import BspHome, Delivered, GroupLeftOut, OrderRefused, Visibility

OTHER = KeyPair.from_seed(bytes([7]) * 32).public
CLIENT = bytes(range(32))


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Nobody waits a second for what takes milliseconds."""
    hurry(monkeypatch)


def left(home, *orders):
    """Leave orders in a home, as another program would."""
    beside = BspHome(home, makes=False)
    beside.commit([queue_order(order, at) for at, order in enumerate(orders)])
    beside.close()


def test_orders_about_groups_and_peers_change_the_home(tmp_path):
    """An order to join, meet or share does what the methods do, and is there after a restart; so is its undoing."""
    group = BspHome(tmp_path / "1").profile.group(CLIENT, b"d", "opaque")
    left(tmp_path / "1", Join(CLIENT, b"d", "opaque", "talk"), Meet(OTHER, "bsp+tls://peer.example", "bob"))

    async def main():
        seen = []
        async with peer_in(tmp_path / "1", dials=False) as alice:
            left(tmp_path / "1", ShareGroup(group.group_id, OTHER, "shared"))
            await until(alice.home.shares)
            seen.append((alice.home.groups()[0].name, alice.home.peers()[0].url))
        async with peer_in(tmp_path / "1", dials=False) as alice:
            seen.append(alice.status().groups[0].audience)
            left(tmp_path / "1", Leave(group.group_id), Part(OTHER))
            await until(lambda: not alice.home.peers() and not alice.home.groups())
            seen.append(alice.home.shares())
        return seen

    assert asyncio.run(main()) == [
        ("talk", "bsp+tls://peer.example:7443"),
        {OTHER: Visibility.SHARED},
        [],
    ]


@pytest.mark.parametrize(
    "order",
    [
        Join(b"short", b"", "opaque", ""),
        Meet(OTHER, "https://nowhere", ""),
        ShareMessage(bytes(32), bytes(32)),
        ShareGroup(bytes(32), OTHER, "loudly"),
    ],
)
def test_impossible_order_is_told_and_forgotten(tmp_path, order):
    """What cannot be done is told once, and the device goes on."""

    async def main():
        async with peer_in(tmp_path / "1") as alice:
            news = alice.news()
            left(tmp_path / "1", order)
            told = await next_event(news, lambda event: isinstance(event, OrderRefused))
            group = await alice.create_group("talk")
            return told.order, ((await alice.send(group, b"goes on")).message).order

    assert asyncio.run(main()) == (order, 1)


def test_group_of_an_unknown_format_is_left_out(tmp_path):
    """What another application joined stays in the home as it is: the device opens, and goes on with the rest."""
    home = BspHome(tmp_path / "1")
    home.commit([home.put_group("chess", SEED.group(CLIENT, b"", "chess_v1"))])

    async def main():
        async with peer_in(tmp_path / "1") as alice:
            group = await alice.create_group("talk")
            left(tmp_path / "1", AddMessage(group.group_id, 1, b"by order"))
            await until(lambda: alice.history(group))
            return alice.status(), sorted(entry.name for entry in alice.home.groups())

    status, names = asyncio.run(main())
    home.close()

    assert ([group.name for group in status.groups], names) == (["talk"], ["chess", "talk"])
    assert [each.name for each in status.left_out] == ["chess"]


def test_group_that_is_left_out_is_told_once_and_looking_goes_on(tmp_path):
    """A group of an unknown format that another program joins is told once, whatever changes behind it."""
    home = BspHome(tmp_path / "1")
    foreign, known = SEED.group(CLIENT, b"", "chess_v1"), SEED.group(CLIENT, b"", "opaque")

    async def main():
        async with peer_in(tmp_path / "1") as alice:
            news = alice.news()
            home.commit([home.put_group("chess", foreign)])
            told = await next_event(news, lambda event: isinstance(event, GroupLeftOut))
            home.commit([home.put_group("renamed", foreign)])
            await until(lambda: alice.status().left_out[0].name == "renamed")
            home.commit(home.remove_group(foreign.group_id))
            await until(lambda: not alice.status().left_out)
            home.commit([home.put_group("talk", known)])
            await until(lambda: alice.status().groups)
            await alice.send(known, b"x")
            return told, await next_event(news, lambda event: isinstance(event, GroupLeftOut | Delivered))

    told, after = asyncio.run(main())
    home.close()

    assert (told.group_id, told.name) == (foreign.group_id, "chess")
    assert "no format 'chess_v1'" in told.reason
    assert type(after) is Delivered
