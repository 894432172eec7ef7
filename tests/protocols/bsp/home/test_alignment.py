"""Laws of how a device follows the tables of its home."""

import random

import pytest

from waystation.core.errors import LocalError
from waystation.core.instant import Instant
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.device.links import Visibility
from waystation.protocols.bsp.device.orders import AddMessage, Join, ShareGroup
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.home.alignment import Tables
from waystation.protocols.bsp.home.tables import HomeTables
from waystation.protocols.bsp.profile import SEED
from waystation.protocols.bsp.stream.machine import BspMachine
from waystation.store.memory import MemoryStore

ME = KeyPair.from_seed(bytes(32))
PEER = KeyPair.from_seed(b"\x01" * 32).public
GROUP = SEED.group(bytes(32), b"", "opaque")
FOREIGN = SEED.group(bytes(32), b"", "chess_v1")
NOW = Instant(0)


@pytest.fixture
def home():
    """Tables of a new device."""
    return HomeTables(MemoryStore(), ME.public)


def followed(home):
    """Return a device, what makes it follow the tables, and what it could not join."""
    device, left_out = BspDevice(SEED, home.store), []
    machine = BspMachine(device, ME, random.Random(1))
    return device, Tables(home, device, machine, dials=False, on_left_out=left_out.append), left_out


def test_device_is_what_its_tables_say_and_no_longer(home):
    """Groups, peers and shares come with their rows, and go with them."""
    device, tables, left_out = followed(home)
    share = home.put_share(GROUP.group_id, PEER, Visibility.SHARED)
    home.store.commit([home.put_group("talk", GROUP), home.put_peer("bob", PEER), share])
    tables.align(NOW)
    there = device.is_member(GROUP.group_id), device.knows(PEER), dict(device.audience(GROUP.group_id))
    home.store.commit([*home.remove_group(GROUP.group_id), *home.remove_peer(PEER)])
    tables.align(NOW)

    assert there == (True, True, {PEER: Visibility.SHARED})
    assert (device.is_member(GROUP.group_id), device.knows(PEER), left_out) == (False, False, [])


def test_group_that_cannot_be_joined_is_told_once(home):
    """A format that nobody here reads leaves the group out, and the home as it is."""
    device, tables, left_out = followed(home)
    home.store.commit([home.put_group("chess", FOREIGN)])
    for name in ("bob", "carol"):
        tables.align(NOW)
        home.store.commit([home.put_peer(name, PEER)])

    assert [each.name for each in left_out] == ["chess"]
    assert not device.is_member(FOREIGN.group_id)
    assert len(home.groups()) == 1


def test_group_that_is_kept_for_others_is_joined_once_it_is_free(home):
    """A device that is in a group as a mailbox stays so, until the group's owner needs it no more."""
    device, tables, left_out = followed(home)
    device.join(GROUP, NOW)
    home.store.commit([home.put_group("talk", GROUP)])
    tables.align(NOW)
    with pytest.raises(LocalError, match="as a mailbox"):
        tables.check_free(GROUP.group_id)
    device.leave(GROUP.group_id)
    tables.align(NOW)
    tables.check_free(GROUP.group_id)

    assert [each.is_others for each in left_out] == [True]
    assert (device.is_member(GROUP.group_id), tables.left_out) == (True, {})


def test_order_changes_messages_or_tables(home):
    """A message is added at once; what concerns groups becomes rows; nonsense is refused."""
    device, tables, _ = followed(home)
    home.store.commit([home.put_group("talk", GROUP)])
    tables.align(NOW)
    tables.carry_out(AddMessage(GROUP.group_id, 1, b"by order"), NOW)
    tables.carry_out(Join(bytes(32), b"two", "opaque", "second"), NOW)

    assert device.must_commit
    assert len(list(device.messages(GROUP.group_id))) == 1
    with pytest.raises(LocalError, match="loudly"):
        tables.carry_out(ShareGroup(GROUP.group_id, PEER, "loudly"), NOW)
