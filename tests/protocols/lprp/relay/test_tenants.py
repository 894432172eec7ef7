"""Leases: who holds one, for how long, what is kept of it, and how little a tenant is believed."""

import pytest

from tests.protocols.lprp.build import HOST, SENDER, TENANT, VISITOR, sealed
from tests.protocols.lprp.build_parts import limits_of
from tests.protocols.lprp.build_relay import AT_HOME, ELSEWHERE, START, key_of
from waystation.core.instant import Instant, after_ms
from waystation.protocols.lprp.messages import KEEP_AFTER_LEASE_MS, STALE_ADDRESS_MS, Command
from waystation.protocols.lprp.relay.sources import Sources
from waystation.protocols.lprp.relay.tenants import Grant, State, Tenant, Tenants

LEASE_MS = 1_000
DOUBT_MS = 1 << 22
T0 = 50_000
END = T0 + LEASE_MS
FORGOTTEN = END + KEEP_AFTER_LEASE_MS


def granted(count=1, count_max=10):
    """Return a table in which so many keys hold a lease since ``T0``, with the keys."""
    tenants = Tenants(LEASE_MS, count_max)
    keys = [key_of(number).public for number in range(count)]
    for key in keys:
        tenants.grant(key, T0)
    return tenants, keys


def at(wall_ms):
    """Return the instant at which a wall clock that never jumps shows this."""
    return Instant(START + (wall_ms - T0) * 1_000)


def tenant_and_source(address=AT_HOME):
    """Return somebody nobody has heard from, and a place to hear from."""
    return Tenant(TENANT.public, 1, T0), Sources(limits_of()).receive(address, 144, START)


def beat(time_ms):
    """Return a heartbeat of that time."""
    return sealed(TENANT, HOST, Command.HEARTBEAT, b"", time_ms)


# Leases


@pytest.mark.parametrize(("wall_ms", "holds"), [(T0, True), (END, True), (END + 1, False)])
def test_lease_lasts_its_time(wall_ms, holds):
    """A lease lasts until exactly ``lease_ms`` after it began, whether or not anyone has ended it yet."""
    tenants, (key,) = granted()

    assert (tenants.find(key, wall_ms) is not None) == holds
    assert tenants.find(VISITOR.public, wall_ms) is None


def test_renewal_begins_anew():
    """A lease that lasts is renewed: its end moves, everything else stays."""
    tenants, (key,) = granted()
    before = tenants.find(key, T0)
    tenant, grant = tenants.grant(key, END)

    assert (tenant, grant) == (before, Grant.RENEWED)
    assert tenants.find(key, END + LEASE_MS) is tenant and len(tenants) == 1


@pytest.mark.parametrize(("wall_ms", "ended"), [(END, 0), (END + 1, 1)])
def test_end_of_a_lease(wall_ms, ended):
    """A lease ends once its time is over; what it had is kept, but not its address."""
    tenants, (key,) = granted()
    tenant = tenants.find(key, T0)
    tenant.source = Sources(limits_of()).receive(AT_HOME, 144, START)
    over, resumed, forgotten = tenants.expire(wall_ms, at(wall_ms))

    assert (len(over), resumed, forgotten) == (ended, [], [])
    assert (len(tenants), tenants.kept_count) == (1 - ended, ended)
    assert (tenant.source is None) == bool(ended) and list(tenants) == [tenant]


@pytest.mark.parametrize(("wall_ms", "grant"), [(FORGOTTEN, Grant.REVIVED), (FORGOTTEN + 1, Grant.GRANTED)])
def test_revival(wall_ms, grant):
    """Until 2**25 ms after its end a lease comes back with all it had; after that it is a new one."""
    tenants, (key,) = granted()
    tenant = tenants.find(key, T0)
    tenant.last_ts = 77
    tenants.expire(END + 1, at(END))
    tenants.expire(wall_ms, at(wall_ms))
    again, how = tenants.grant(key, wall_ms)

    assert how is grant and (again is tenant) == (grant is Grant.REVIVED)
    assert again.last_ts == (77 if grant is Grant.REVIVED else 0)
    assert (len(tenants), tenants.kept_count) == (1, 0)


def test_forgotten_is_returned_once():
    """Whoever is forgotten is told once, so that its rows can go; the clock must have said so for 2**22 ms."""
    tenants, (key,) = granted()
    ended, _, at_once = tenants.expire(FORGOTTEN + 1, START)
    _, _, doubted = tenants.expire(FORGOTTEN + 1, after_ms(START, DOUBT_MS))
    wall_ms, due = tenants.next_forgetting()
    _, _, too_early = tenants.expire(wall_ms - 1, due)
    _, _, forgotten = tenants.expire(wall_ms, due)

    assert [tenant.key for tenant in ended] == [tenant.key for tenant in forgotten] == [key]
    assert at_once == doubted == too_early == []
    assert (wall_ms, due) == (FORGOTTEN + 1, after_ms(START, DOUBT_MS) + 1)
    assert tenants.expire(FORGOTTEN + 1, due) == ([], [], []) and list(tenants) == []


def test_clock_that_was_ahead_takes_nothing():
    """Leases that ended by a clock days ahead go on when it is right again, with all they had, in their order."""
    tenants, keys = granted(3)
    tenants.grant(keys[0], T0 + 500)
    everyone = list(tenants)
    ended, _, _ = tenants.expire(T0 + 8 * 86_400_000, START)
    away = [tenants.find(key, T0 + 600) for key in keys]
    _, resumed, forgotten = tenants.expire(T0 + 600, after_ms(START, 60_000))

    assert len(ended) == 3 and away == [None] * 3
    assert set(resumed) == set(everyone) and forgotten == []
    assert [tenants.find(key, T0 + 600).key for key in keys] == keys
    assert [tenant.lease_at_ms for tenant in tenants] == [T0, T0, T0 + 500]


def test_clock_that_went_back_holds_no_places():
    """A lease that began by a clock set back ends before those that began earlier and later on the clock."""
    tenants, (first,) = granted()
    second = key_of(9).public
    tenants.grant(second, T0 - 300)
    ended, _, _ = tenants.expire(END - 299, at(END))

    assert [tenant.key for tenant in ended] == [second]
    assert tenants.find(first, END - 299) is not None and len(tenants) == 1


def test_kept_leases_are_no_more_than_may_live():
    """Of leases that are over only as many are kept as may live: the oldest goes first."""
    tenants, keys = granted(3, count_max=3)
    tenants.expire(END + 1, at(END + 1))
    for number in range(10, 12):
        tenants.grant(key_of(number).public, END + 2)
    _, _, forgotten = tenants.expire(END + 2 + LEASE_MS + 1, at(END + 2 + LEASE_MS + 1))

    assert [tenant.key for tenant in forgotten] == keys[:2]
    assert tenants.kept_count == 3


@pytest.mark.parametrize(("count", "full"), [(9, False), (10, True)])
def test_full_table(count, full):
    """The table is full when as many leases last as may."""
    tenants, _ = granted(count)

    assert tenants.is_full() == full and tenants.occupancy == count / 10
    assert len(tenants) == count


def test_table_without_places():
    """A table for nobody is full, and wholly occupied."""
    tenants = Tenants(LEASE_MS, 0)

    assert tenants.is_full() and tenants.occupancy == 1.0


def test_next_end_and_forgetting():
    """There is a next end while leases last, and a next forgetting while any is kept: the first of each."""
    tenants = Tenants(LEASE_MS, 10)
    nothing = tenants.next_end_ms(), tenants.next_forgetting()
    tenants.grant(key_of(1).public, T0)
    tenants.grant(key_of(2).public, T0 + 5)
    first = tenants.next_end_ms()
    tenants.expire(first, START)
    second = tenants.next_end_ms()
    tenants.expire(second, after_ms(START, 5))

    assert nothing == (None, None)
    assert (first, second, tenants.next_end_ms()) == (END + 1, END + 6, None)
    assert tenants.next_forgetting() == (FORGOTTEN + 1, after_ms(START, DOUBT_MS) + 1)


def test_nothing_ends_before_its_time():
    """One millisecond before the time that was named ``expire`` does nothing; at that time it does."""
    tenants, _ = granted()
    due_ms = tenants.next_end_ms()

    assert tenants.expire(due_ms - 1, START) == ([], [], [])
    assert len(tenants.expire(due_ms, START).ended) == 1


def test_renewed_leases_end_in_their_new_order():
    """A renewal goes to the end of the row, so whoever did not renew ends first."""
    tenants, keys = granted(2)
    tenants.grant(keys[0], T0 + 500)
    ended, _, _ = tenants.expire(END + 1, at(END + 1))

    assert [tenant.key for tenant in ended] == [keys[1]]


def test_loaded_tenants_are_looked_at_like_others():
    """A tenant of an earlier life has its lease from then, and a number of its own."""
    tenants = Tenants(LEASE_MS, 10)
    first, second = tenants.load(key_of(1).public, T0 - 300), tenants.load(key_of(2).public, T0)
    ended, _, _ = tenants.expire(END - 299, at(END - 299))

    assert ended == [first] and tenants.find(second.key, END) is second
    assert first.number != second.number


def test_numbers_are_never_used_twice():
    """A key that comes back after it was forgotten is somebody else to the alarms."""
    tenants, (key,) = granted()
    number = tenants.find(key, T0).number
    tenants.expire(END + 1, at(END))
    tenants.expire(FORGOTTEN + 1, at(FORGOTTEN + 1))
    tenant, _ = tenants.grant(key, FORGOTTEN + 1)

    assert tenant.number != number


# What a tenant is


def test_new_tenant_is_nowhere():
    """Nobody has heard from it, its list and mailbox are empty, and everything it signed is new."""
    tenant = Tenant(TENANT.public, 1, T0)

    assert tenant.state(START) is State.INACTIVE
    assert (tenant.whitelist, len(tenant.mailbox), tenant.last_ts, tenant.state_ts) == (frozenset(), 0, 0, 0)


def test_newer_packets_move_it():
    """A packet that is newer than all before says where it is; one of the same time or older does not (LPRP-D13)."""
    tenant, home = tenant_and_source()
    away = Sources(limits_of()).receive(ELSEWHERE, 144, START)
    moved = [
        tenant.update_contact(beat(time), source, source.address, START)
        for time, source in ((5, home), (5, away), (4, away))
    ]
    stayed = tenant.source

    assert moved == [True, False, False] and stayed is home
    assert tenant.update_contact(beat(6), away, away.address, START) and (tenant.source, tenant.last_ts) == (away, 6)


def test_contact_wakes_it():
    """Contact sets the tries back and ends the sleep."""
    tenant, home = tenant_and_source()
    tenant.tries, tenant.dormant = 5, True
    tenant.update_contact(beat(5), home, home.address, START)

    assert (tenant.tries, tenant.dormant, tenant.state(START)) == (0, False, State.ACTIVE)


def test_old_contact_wakes_nobody():
    """A packet that is not newer leaves a sleeper asleep."""
    tenant, home = tenant_and_source()
    tenant.update_contact(beat(5), home, home.address, START)
    tenant.tries, tenant.dormant = 5, True
    tenant.update_contact(beat(5), home, home.address, START)

    assert (tenant.tries, tenant.state(START)) == (5, State.DORMANT)


@pytest.mark.parametrize(
    ("silent_ms", "state"), [(STALE_ADDRESS_MS - 1, State.ACTIVE), (STALE_ADDRESS_MS, State.INACTIVE)]
)
def test_silence_makes_it_inactive(silent_ms, state):
    """An address not heard from for 2**17 ms is no longer taken for the tenant's (LPRP-D21)."""
    tenant, home = tenant_and_source()
    tenant.update_contact(beat(5), home, home.address, START)

    assert tenant.state(after_ms(START, silent_ms)) is state


def test_lost_address():
    """Whoever lost its address is inactive, and its last heartbeat has no answer any more."""
    tenant, home = tenant_and_source()
    tenant.update_contact(beat(5), home, home.address, START)
    tenant.heartbeat = (b"beat", b"answer")
    tenant.lose_address()

    assert (tenant.state(START), tenant.heartbeat, tenant.last_ts) == (State.INACTIVE, None, 5)


def test_friends():
    """Friends are on the list; a tenant is its own friend (LPRP-C8)."""
    tenant = Tenant(TENANT.public, 1, T0)
    tenant.whitelist = frozenset({SENDER.public})

    assert tenant.is_allow_listed(SENDER.public) and tenant.is_allow_listed(TENANT.public)
    assert not tenant.is_allow_listed(VISITOR.public)
