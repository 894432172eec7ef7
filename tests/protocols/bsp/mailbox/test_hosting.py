"""Laws of protocols.bsp.mailbox_hosting; test_mailbox_quota.py tries accounts within a mailbox."""

import pytest

from tests.protocols.bsp.build_mailbox import CLIENT_ID, key_pair
from tests.store.build_rot import lose
from waystation.core.errors import HostError
from waystation.core.records import Record
from waystation.core.settings import InForce
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.limits import DEFAULT_LIMITS
from waystation.protocols.bsp.mailbox.commands import KEEP_DEFAULT_MS, START, Amounts, Drop, Host, encode
from waystation.protocols.bsp.mailbox.hosting import (
    RESERVE,
    Account,
    Hosting,
    hosting_record,
    no_record,
    owner_record,
    quota_of,
    read_kept,
)
from waystation.protocols.bsp.profile import SEED
from waystation.protocols.bsp.settings import BspSettings
from waystation.store.memory import MemoryStore

A, B = key_pair(2).public, key_pair(3).public
GROUP = SEED.group(CLIENT_ID, b"friends", "opaque")
NOTHING = Amounts(0, 0, 0, 0)


def hosting(owner=A, group=GROUP, **more):
    """Return a hosted group."""
    return Hosting(owner, Host(group.group_id, group.client_id, group.descriptor, (A, B), **more), 77)


def kept_after(*records):
    """Return what is read once these rows are written."""
    store = MemoryStore()
    store.commit(records)
    return read_kept(store)


def test_rows_come_back():
    """Owners with their groups, and since when they are gone."""
    first, second = sorted((A, B))
    found = kept_after(owner_record(first, 0), owner_record(second, 9), hosting_record(hosting(second, keep_ms=5_000)))

    assert found[first] == (0, [])
    assert found[second].left_ms == 9
    assert [(each.host, each.since_ms, each.keep_ms) for each in found[second].hosted] == [
        (hosting(keep_ms=5_000).host, 77, 5_000)
    ]


def test_rows_can_be_forgotten():
    """One group, or the owner itself."""
    records = (owner_record(A, 0), hosting_record(hosting()))

    assert kept_after(*records, no_record(A, GROUP.group_id))[A] == (0, [])
    assert kept_after(*records, no_record(A, GROUP.group_id), no_record(A)) == {}


def test_many_rows_are_read():
    """More than a page of the store."""
    groups = [SEED.group(CLIENT_ID, b"%d" % number, "opaque") for number in range(300)]
    found = kept_after(owner_record(A, 0), *(hosting_record(hosting(group=group)) for group in groups))

    assert sorted(each.host.group_id for each in found[A].hosted) == sorted(group.group_id for group in groups)


def test_time_is_the_mailboxs_when_none_was_said():
    """0 stands for 14 days."""
    assert hosting().keep_ms == KEEP_DEFAULT_MS


@pytest.mark.parametrize(
    "record",
    [
        Record("bsp_hosted", A + START, b"\x02" + bytes(8)),
        Record("bsp_hosted", A + START, b"\x01" + bytes(7)),
        Record("bsp_hosted", A + START[1:], b"\x01" + bytes(8)),
        Record("bsp_hosted", B + GROUP.group_id, hosting_record(hosting()).value),
        Record("bsp_hosted", A + GROUP.group_id, hosting_record(hosting()).value[:-1]),
        Record("bsp_hosted", A + b"g" * 32, hosting_record(hosting()).value),
        Record("bsp_hosted", A + GROUP.group_id, b"\x01" + bytes(8) + encode(Drop(GROUP.group_id))),
    ],
)
def test_damage_is_told(record):
    """A row that is not ours ends the start with the store's exit code."""
    with pytest.raises(HostError, match="bsp_hosted is damaged") as caught:
        kept_after(owner_record(A, 0), record)

    assert caught.value.exit_code == 5


def test_owner_whose_row_is_damaged_keeps_its_groups():
    """It counts as configured; if it is not, its 14 days begin anew (BSP-DAMAGED)."""
    store = MemoryStore()
    store.commit([owner_record(A, 9), hosting_record(hosting())])
    lose(store, "bsp_hosted", A + START)
    kept = read_kept(store)

    assert (kept[A].left_ms, [each.host for each in kept[A].hosted]) == (0, [hosting().host])


def test_quota_is_that_of_the_settings():
    """64 groups, 64 MiB, 50,000 messages and 500,000 tombstones unless the operator says otherwise."""
    assert quota_of(BspSettings()) == (64, 64 * 1_048_576, 50_000, 500_000)
    assert quota_of(BspSettings(owner_groups_max=1, owner_mib_max=2)) == (1, 2 << 20, 50_000, 500_000)


@pytest.fixture
def device():
    """Return a device with one group."""
    device = BspDevice(SEED, MemoryStore())
    device.join(GROUP, 0)
    return device


def account(device, **quota):
    """Return the account of an owner with one group."""
    most = Amounts(1, 1_000, 10, 20)._replace(**quota)
    found = Account(device, most, InForce(DEFAULT_LIMITS))
    found.groups[GROUP.group_id] = hosting()
    return found


def test_account_counts_what_it_admits(device):
    """Without a look at the device, ten are admitted and the next is not, as none of them came yet the count is new."""
    found = account(device)
    for number in range(10):
        assert found.admits(1, NOTHING)
        device.add(GROUP.group_id, number, b"x", 0)

    assert not found.admits(1, NOTHING)
    assert found.uses() == (1, 10, 10, 0)


def test_account_sees_what_has_gone(device):
    """Bodies that went make room for messages, and tombstones none."""
    found = account(device, tombstones=5)
    ids = [device.add(GROUP.group_id, number, b"x", 0) for number in range(10)]
    refused = found.admits(1, NOTHING)
    for message_id in ids[:4]:
        device.delete(GROUP.group_id, message_id)
    unheard = found.admits(1, NOTHING)
    found.freed()
    admitted = found.admits(1, NOTHING)
    device.delete(GROUP.group_id, ids[4])
    found.freed()

    assert (refused, unheard, admitted, found.admits(1, NOTHING)) == (False, False, True, False)


def test_what_asks_for_less_than_the_refused_is_counted_for(device):
    """A message that was too long, or for too many, does not keep out a shorter one, nor one with a reserve."""
    found = account(device, live_bytes=10)
    tries = [
        (11, NOTHING, 0),
        (12, NOTHING, 0),
        (3, NOTHING, DEFAULT_LIMITS.owner_copies + 1),
        (3, NOTHING, 1),
        (11, RESERVE, 0),
    ]

    assert [found.admits(*each) for each in tries] == [False, False, False, True, True]


def test_full_account_is_not_counted_for_every_message(device, monkeypatch):
    """Whatever is said to an owner's groups while nothing goes, they are counted once."""
    found, counts = account(device, live_messages=1), []
    device.add(GROUP.group_id, 0, b"x", 0)
    monkeypatch.setattr(Account, "copies", lambda each: counts.append(each) or 0)
    refused = [found.admits(1, NOTHING) for _ in range(100)]

    assert (any(refused), len(counts)) == (False, 1)


def test_account_expects_every_body_to_go(device):
    """Bodies that were there at the count may have become tombstones since, without a word."""
    found = account(device, tombstones=5)
    ids = [device.add(GROUP.group_id, number, b"x", 0) for number in range(8)]
    for message_id in ids[:3]:
        device.delete(GROUP.group_id, message_id)
    admitted = found.admits(1, NOTHING)
    for message_id in ids[3:5]:
        device.delete(GROUP.group_id, message_id)

    assert (admitted, found.admits(1, NOTHING)) == (True, False)


def test_reserve_is_added_to_the_quota(device):
    """A control message fits where a hosted one does not."""
    found = account(device, live_messages=1)
    device.add(GROUP.group_id, 0, b"x", 0)

    assert not found.admits(1, NOTHING)
    assert found.admits(1, RESERVE)


def test_recount_notices_what_came_past_it(device):
    """What was added without being asked for counts after a recount."""
    found = account(device)
    assert found.admits(1, NOTHING)
    for number in range(10):
        device.add(GROUP.group_id, number, b"x", 0)
    found.recount()

    assert not found.admits(1, NOTHING)
