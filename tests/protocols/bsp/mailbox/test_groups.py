"""Laws of protocols.bsp.mailbox_groups; test_mailbox*.py try the rest within a mailbox."""

import pytest

from tests.protocols.bsp.build_mailbox import CLIENT_ID, key_pair
from waystation.core.settings import InForce
from waystation.protocols.bsp.device.links import Visibility
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.limits import DEFAULT_LIMITS
from waystation.protocols.bsp.mailbox.commands import Amounts, Host
from waystation.protocols.bsp.mailbox.groups import HostedGroups
from waystation.protocols.bsp.mailbox.hosting import Hosting
from waystation.protocols.bsp.profile import SEED
from waystation.store.memory import MemoryStore

A, B, C = (key_pair(number).public for number in (2, 3, 4))
FIRST, SECOND = (SEED.group(CLIENT_ID, name, "opaque") for name in (b"first", b"second"))
NOW = 1_000_000


def hosting(group=FIRST, *members, owner=A):
    """Return a hosted group."""
    return Hosting(owner, Host(group.group_id, group.client_id, group.descriptor, members or (A, B)), 7)


@pytest.fixture
def device():
    """Return a device without groups."""
    return BspDevice(SEED, MemoryStore())


@pytest.fixture
def parted():
    """Return the list of parted peers."""
    return []


@pytest.fixture
def groups(device, parted):
    """Return the groups of one owner, A, who stays known."""
    groups = HostedGroups(
        device, Amounts(9, 9, 9, 9), [A], lambda peer, now: parted.append((peer, now)), InForce(DEFAULT_LIMITS)
    )
    groups.open(A, [], NOW, suspended=False)
    return groups


def test_peer_is_parted_with_its_last_group(groups, parted):
    """As long as another group has the member, it stays; who stays anyway is never parted."""
    one, other = hosting(), hosting(SECOND, A, B, C)
    groups.add(one, NOW)
    groups.add(other, NOW)
    groups.forget(one, 5)
    before = list(parted)
    groups.change(other, other.host._replace(members=(A,)), 6)

    assert (before, parted) == ([], [(B, 6), (C, 6)])


def test_suspended_members_are_visible_and_no_more(groups, device):
    """Nothing is sent to them, and what is known of them stays."""
    groups.add(hosting(), NOW)
    groups.suspend(A, NOW, suspended=True)
    suspended = device.audience(FIRST.group_id)
    groups.suspend(A, NOW, suspended=False)

    assert set(suspended.values()) == {Visibility.VISIBLE}
    assert set(device.audience(FIRST.group_id).values()) == {Visibility.SHARED}


def test_group_of_somebody_else_is_not_active(device, groups):
    """A hosted group that the device is in already keeps its row, and nothing is shared."""
    device.join(FIRST, NOW)
    groups.open(A, [hosting()], NOW, suspended=False)

    assert groups.active(FIRST.group_id) is None
    assert groups.hosted_for(A, FIRST.group_id) is not None
    assert device.audience(FIRST.group_id) == {}


def test_only_the_owner_may_change_a_group(groups):
    """Others find no such group, and nobody finds a control group."""
    groups.add(hosting(), NOW)
    control = hosting(SECOND)
    control.is_control = True
    groups.open(B, [control], NOW, suspended=False)

    assert groups.hosted_for(A, FIRST.group_id) is not None
    assert groups.hosted_for(B, FIRST.group_id) is None
    assert groups.hosted_for(A, SECOND.group_id) is None


def test_gone_owner_leaves_nothing(groups, device):
    """Groups, account and the owner itself are forgotten, and nobody is told of anything."""
    groups.gone[B] = 5
    groups.open(B, [hosting(owner=B)], NOW, suspended=False)
    audience = device.audience(FIRST.group_id)
    groups.forget_owner(B, NOW)

    assert audience == {}
    assert (groups.hostings, list(groups.accounts), groups.gone, device.groups()) == ({}, [A], {}, [])


def test_without_help_the_device_forgets_the_peer(device):
    """What parts a peer defaults to the device."""
    groups = HostedGroups(device, Amounts(9, 9, 9, 9), [], None, InForce(DEFAULT_LIMITS))
    groups.open(A, [], NOW, suspended=False)
    one = hosting()
    groups.add(one, NOW)
    known = device.knows(B)
    groups.forget(one, NOW)

    assert (known, device.knows(B), device.knows(A)) == (True, False, False)
