"""Whitelist updates, judged one at a time."""

import pytest

from tests.protocols.lprp.build import FRIENDS, HOST, NOW_MS, SENDER, TENANT, sealed
from tests.protocols.lprp.build_parts import Parts
from tests.protocols.lprp.build_relay import key_of
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS, Command, Kind
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.relay.replies import Demand, Reply
from waystation.protocols.lprp.whitelist import WHITELIST_KEYS_MAX, ZERO_KEY, toggled, whitelist_hash


def with_list(keys=(), *, changed_at=0):
    """Return parts and a tenant with this whitelist."""
    parts = Parts()
    tenant = parts.tenant()
    tenant.whitelist, tenant.whitelist_at_ms = frozenset(keys), changed_at
    parts.commit()
    return parts, tenant


def update(*keys, hashed=None, time_ms=NOW_MS):
    """Return a 108 that toggles keys and says that ``hashed`` comes of it."""
    payload = whitelist_hash(keys if hashed is None else hashed) + b"".join(keys)
    return sealed(TENANT, HOST, Command.UPDATE_WHITELIST, payload, time_ms)


def done(packet):
    """Return a 208."""
    return Reply(Command.WHITELIST_DONE, packet)


def differs(packet, refusal):
    """Return a 408 with its reason."""
    return Reply(Command.WHITELIST_DIFFERS, packet, refusal)


def test_first_update_is_free():
    """A list that never changed is changed at once: set, time, and the time of the last change."""
    parts, tenant = with_list()
    packet = update(*FRIENDS)

    assert parts.listing.asked(tenant, packet, NOW_MS + 3) == done(packet)
    assert tenant.whitelist == frozenset(FRIENDS)
    assert (tenant.whitelist_at_ms, tenant.state_ts) == (NOW_MS + 3, NOW_MS) and parts.ledger.is_dirty


def test_first_update_is_free_whatever_the_clock_says():
    """A list that never changed did not change at the clock's zero either."""
    parts, tenant = with_list()
    packet = update(*FRIENDS, time_ms=7)

    assert parts.listing.asked(tenant, packet, 5) == done(packet)


@pytest.mark.parametrize(
    ("age_ms", "costs"), [(0, True), (CLOCK_WINDOW_MS, True), (CLOCK_WINDOW_MS + 1, False), (-5, True)]
)
def test_next_update_costs_work(age_ms, costs):
    """Within 2**19 ms of the last change, that moment included, work is demanded and nothing changes."""
    parts, tenant = with_list(FRIENDS, changed_at=NOW_MS)
    packet = update(SENDER.public, hashed=[*FRIENDS, SENDER.public])
    verdict = parts.listing.asked(tenant, packet, NOW_MS + age_ms)

    assert verdict == (Demand(Kind.WHITELIST, packet, TENANT.public, 0.0) if costs else done(packet))
    assert (tenant.whitelist == frozenset(FRIENDS)) == costs and parts.ledger.is_dirty != costs


def test_work_done_needs_no_time():
    """``apply`` is what the work was for: it asks no time of the last change."""
    parts, tenant = with_list(changed_at=NOW_MS)
    packet = update(*FRIENDS)

    assert parts.listing.apply(tenant, packet, NOW_MS) == done(packet)


@pytest.mark.parametrize(("time_ms", "overtaken"), [(NOW_MS - 1, True), (NOW_MS, True), (NOW_MS + 1, False)])
def test_overtaken(time_ms, overtaken):
    """An update that is not newer than the last change is void, work or not (LPRP-D14)."""
    parts, tenant = with_list()
    tenant.state_ts = NOW_MS
    packet = update(*FRIENDS, time_ms=time_ms)

    assert parts.listing.apply(tenant, packet, NOW_MS) == (
        differs(packet, Refusal.OVERTAKEN) if overtaken else done(packet)
    )


@pytest.mark.parametrize(
    ("packet", "refusal"),
    [
        (update(*FRIENDS, hashed=FRIENDS[:2]), Refusal.WHITELIST_HASH),
        (update(FRIENDS[0], ZERO_KEY), Refusal.ZERO_KEY),
        (update(ZERO_KEY, ZERO_KEY, hashed=[]), Refusal.ZERO_KEY),
        (
            update(SENDER.public, hashed=[key_of(n).public for n in range(256)] + [SENDER.public]),
            Refusal.WHITELIST_FULL,
        ),
    ],
)
def test_update_that_differs(packet, refusal):
    """A wrong hash, a zero key among others and a 257th key change nothing, and no time."""
    keys = [key_of(n).public for n in range(WHITELIST_KEYS_MAX)] if refusal is Refusal.WHITELIST_FULL else []
    parts, tenant = with_list(keys)

    assert parts.listing.asked(tenant, packet, NOW_MS) == differs(packet, refusal)
    assert tenant.whitelist == frozenset(keys)
    assert (tenant.state_ts, tenant.whitelist_at_ms, parts.ledger.is_dirty) == (0, 0, False)


def test_256th_key():
    """A list may have 256 keys."""
    keys = [key_of(n).public for n in range(WHITELIST_KEYS_MAX)]
    parts, tenant = with_list(keys[:-1])
    packet = update(keys[-1], hashed=keys)

    assert parts.listing.asked(tenant, packet, NOW_MS) == done(packet) and len(tenant.whitelist) == 256


@pytest.mark.parametrize(("keys", "equal"), [(FRIENDS, True), (FRIENDS[:1], False), ((), False)])
def test_comparison(keys, equal):
    """One zero key compares: no work, no change, no times."""
    parts, tenant = with_list(FRIENDS, changed_at=NOW_MS)
    tenant.state_ts = NOW_MS + 100
    packet = update(ZERO_KEY, hashed=keys)

    assert parts.listing.asked(tenant, packet, NOW_MS) == (
        done(packet) if equal else differs(packet, Refusal.WHITELIST_HASH)
    )
    assert (tenant.whitelist, tenant.whitelist_at_ms, tenant.state_ts) == (frozenset(FRIENDS), NOW_MS, NOW_MS + 100)
    assert not parts.ledger.is_dirty


def test_clearing():
    """An 808 empties the list, free of work, and counts as its last change."""
    parts, tenant = with_list(FRIENDS, changed_at=NOW_MS)
    packet = sealed(TENANT, HOST, Command.CLEAR_WHITELIST, bytes(64), NOW_MS + 4)

    assert parts.listing.cleared(tenant, packet, NOW_MS + 5) == done(packet)
    assert (tenant.whitelist, tenant.whitelist_at_ms, tenant.state_ts) == (frozenset(), NOW_MS + 5, NOW_MS + 4)
    assert parts.ledger.is_dirty


def test_toggles_in_order():
    """A key named twice stays where it was; the others change sides."""
    parts, tenant = with_list(FRIENDS)
    toggles = (FRIENDS[0], SENDER.public, FRIENDS[0], FRIENDS[1])
    packet = update(*toggles, hashed=toggled(frozenset(FRIENDS), toggles))
    parts.listing.asked(tenant, packet, NOW_MS)

    assert tenant.whitelist == frozenset({FRIENDS[0], FRIENDS[2], SENDER.public})
