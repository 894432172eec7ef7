"""Whitelists at the host: toggles against a set, what costs work, what was overtaken, what a replay cannot do."""

import random

import pytest

from tests.protocols.lprp.build import FRIENDS, KEYS, SENDER, TENANT, VISITOR
from tests.protocols.lprp.build_relay import AFAR, ELSEWHERE, Person, commands, key_of, world
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS, Command
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.whitelist import WHITELIST_KEYS_MAX, ZERO_KEY, plan_updates, whitelist_hash
from waystation.store.memory import MemoryStore

DONE, DIFFERS, DEMAND = Command.WHITELIST_DONE, Command.WHITELIST_DIFFERS, Command.WHITELIST_DEMANDS_WORK


def keys_of(count):
    """Return so many public keys."""
    return [key_of(1_000 + number).public for number in range(count)]


def on_disk(host):
    """Return the whitelist that the store keeps for the tenant, as a list of keys."""
    value = host.store.get("lprp_whitelists", TENANT.public) or b""
    return [value[at : at + 32] for at in range(0, len(value), 32)]


def restart_with(keys, **options):
    """Return a host whose tenant has these keys on its whitelist, left by an earlier life, and changed long ago."""
    store = MemoryStore()
    host, tenant, sender = world(store=store, **options)
    wanted = frozenset(keys)
    for payload in plan_updates(frozenset(), wanted):
        host.pass_ms(CLOCK_WINDOW_MS + 1)
        assert commands(tenant.say(Command.UPDATE_WHITELIST, payload)) == [DONE]
    host.pass_ms(CLOCK_WINDOW_MS + 1)
    host.restart()
    return host, tenant, sender


def test_three_toggles():
    """One update adds three keys, and the next takes one out; the store keeps them in ascending order."""
    host, tenant, _ = world()
    added = tenant.toggle(*FRIENDS)
    host.pass_ms(CLOCK_WINDOW_MS + 1)
    removed = tenant.toggle(FRIENDS[1], current=FRIENDS)

    assert commands(added + removed) == [DONE, DONE]
    assert on_disk(host) == sorted((FRIENDS[0], FRIENDS[2]))


@pytest.mark.parametrize("name", ["friend1", "friend2", "friend3"])
def test_friends_write_without_work(name):
    """Whoever is on the list is relayed at once; whoever was taken off works again."""
    host, tenant, _ = world()
    friend = Person(host, KEYS[name], AFAR)
    before = commands(friend.mail(tenant))
    tenant.toggle(*FRIENDS)
    during = commands(friend.mail(tenant))
    host.pass_ms(CLOCK_WINDOW_MS + 1)
    tenant.toggle(friend.public, current=FRIENDS)

    assert before == commands(friend.mail(tenant)) == [Command.RELAY_DEMANDS_WORK]
    assert Command.RELAY_ACCEPTED in during


@pytest.mark.parametrize(("after_ms", "answer"), [(CLOCK_WINDOW_MS, DEMAND), (CLOCK_WINDOW_MS + 1, DONE)])
def test_soon_after_the_last_update_costs_work(after_ms, answer):
    """Within 2**19 ms of the last change, that moment included, an update costs work; later it is free."""
    host, tenant, sender = world()
    tenant.toggle(*FRIENDS)
    host.pass_ms(after_ms)

    assert commands(tenant.toggle(sender.public, current=FRIENDS)) == [answer]


@pytest.mark.parametrize("last", ["update", "clearing"])
def test_what_makes_the_next_update_cost_work(last):
    """An update that was done and a clearing both begin the time in which the next one costs work."""
    _, tenant, sender = world()
    tenant.toggle(sender.public) if last == "update" else tenant.clear()

    assert commands(tenant.toggle(*FRIENDS, current=[sender.public] if last == "update" else [])) == [DEMAND]


def test_failed_update_costs_nothing_later():
    """A 408 changes neither the set nor the time: the next update is as free as before."""
    host, tenant, sender = world()
    differs = tenant.toggle(sender.public, current=FRIENDS)

    assert commands(differs) == [DIFFERS] and on_disk(host) == []
    assert commands(tenant.toggle(sender.public)) == [DONE]


def test_work_done_applies_the_update():
    """The 108 for which work was demanded is applied with the work, and its 208 names the 108, not the 101."""
    host, tenant, sender = world()
    tenant.toggle(*FRIENDS)
    update = tenant.update(sender.public, current=FRIENDS)
    (challenge,) = tenant.repeat(update)
    (answer,) = tenant.solve(challenge)
    host.pass_ms(4)

    assert (answer.command, answer.reference) == (DONE, update.signature)
    assert on_disk(host) == sorted((*FRIENDS, sender.public))
    assert tenant.repeat(update) == [answer]


def test_update_that_waits_for_work_is_overtaken_by_a_clearing():
    """An 808 accepted while work was done makes the older 108 void: its set is from another time (LPRP-D14)."""
    host, tenant, _ = world()
    tenant.toggle(*FRIENDS)
    (challenge,) = tenant.toggle(*FRIENDS)
    tenant.clear()
    answers = tenant.solve(challenge)

    assert commands(answers) == [DIFFERS] and on_disk(host) == []
    assert host.refused[Refusal.OVERTAKEN.value] == 1


def test_update_that_waits_for_work_has_its_own_time():
    """After the work the last accepted time is the 108's own, so a 108 signed between it and the 101 is still new."""
    host, tenant, sender = world()
    tenant.toggle(*FRIENDS)
    (challenge,) = tenant.toggle(sender.public, current=FRIENDS)
    between = tenant.update(SENDER.public, current=[*FRIENDS, SENDER.public])
    done = tenant.solve(challenge)
    host.now += 1_000

    assert commands(done) == [DONE]
    assert commands(tenant.repeat(between)) == [DEMAND]


def test_replayed_clearing_after_a_newer_update():
    """An 808 of before, captured and sent again after a newer update, clears nothing (LPRP-D14)."""
    host, tenant, _ = world()
    clearing = tenant.packet(Command.CLEAR_WHITELIST, bytes(64))
    tenant.toggle(*FRIENDS)
    answers = host.give((clearing.data, ELSEWHERE))

    assert answers == [] and on_disk(host) == sorted(FRIENDS)
    assert host.refused[Refusal.NOT_NEWER.value] == 1


def test_answered_clearing_replayed_after_a_newer_update():
    """An 808 that was answered gets its old answer again and clears nothing."""
    host, tenant, _ = world()
    clearing = tenant.packet(Command.CLEAR_WHITELIST, bytes(64))
    (answer,) = tenant.repeat(clearing)
    host.pass_ms(CLOCK_WINDOW_MS - 10)
    (challenge,) = tenant.toggle(*FRIENDS)
    tenant.solve(challenge)
    again = tenant.repeat(clearing)

    assert again == [answer] and on_disk(host) == sorted(FRIENDS)


def test_one_time_for_leases_updates_and_clearings():
    """A 104, 108 or 808 that is not newer than the last accepted of the three is dropped."""
    host, tenant, _ = world()
    early = host.wall_ms + 1_000
    tenant.clear(time_ms=early)
    says = [
        tenant.say(Command.ASK_LEASE, bytes(64), time_ms=early),
        tenant.say(Command.CLEAR_WHITELIST, bytes(70), time_ms=early),
        tenant.repeat(tenant.update(*FRIENDS, time_ms=early)),
        tenant.say(Command.ASK_LEASE, bytes(64), time_ms=early - 1),
    ]

    assert says == [[]] * 4 and host.refused[Refusal.NOT_NEWER.value] == 4
    assert commands(tenant.clear(time_ms=early + 1)) == [DONE]


def test_granted_lease_moves_that_time():
    """After a renewal an 808 from before its 104 clears nothing."""
    host, tenant, _ = world()
    tenant.toggle(*FRIENDS)
    clearing = tenant.packet(Command.CLEAR_WHITELIST, bytes(64))
    tenant.lease()

    assert tenant.repeat(clearing) == [] and on_disk(host) == sorted(FRIENDS)


# Comparing: LPRP-D11, LPRP-C6


def test_comparison_changes_nothing():
    """One zero key asks whether the sets are equal: 208 or 408, free of work, and no time moves."""
    host, tenant, sender = world()
    tenant.toggle(*FRIENDS)
    host.pass_ms(CLOCK_WINDOW_MS)
    row = host.store.get("lprp_tenants", TENANT.public)
    equal, different = tenant.compare(*FRIENDS), tenant.compare(sender.public)
    host.pass_ms(1)

    assert commands(equal + different) == [DONE, DIFFERS]
    assert row[17:] == host.store.get("lprp_tenants", TENANT.public)[17:]  # all but lease and last_ts
    assert commands(tenant.toggle(sender.public, current=FRIENDS)) == [DONE]


def test_comparison_obeys_no_last_time():
    """A comparison may be older than the last accepted change (LPRP-C6)."""
    host, tenant, _ = world()
    old = host.wall_ms
    tenant.toggle(*FRIENDS)

    assert commands(tenant.compare(*FRIENDS, time_ms=old)) == [DONE]


def test_empty_set_hashes_to_the_hash_of_nothing():
    """A tenant without a list compares with BLAKE2b-256 of no bytes."""
    _, tenant, _ = world()

    assert commands(tenant.compare()) == [DONE]
    assert whitelist_hash(()).hex().startswith("0e5751c026e543b2")


@pytest.mark.parametrize("keys", [(ZERO_KEY, FRIENDS[0]), (FRIENDS[0], ZERO_KEY), (ZERO_KEY, ZERO_KEY)])
def test_zero_key_among_others_differs(keys):
    """A zero key that is not alone makes the whole update wrong, whatever its hash."""
    host, tenant, _ = world()

    assert commands(tenant.toggle(*keys)) == [DIFFERS]
    assert host.refused[Refusal.ZERO_KEY.value] == 1 and on_disk(host) == []


def test_keys_named_twice_stay_where_they_were():
    """Toggles are carried out in order, so a key named twice does not change sides."""
    host, tenant, _ = world()
    answers = tenant.toggle(FRIENDS[0], FRIENDS[1], FRIENDS[0])

    assert commands(answers) == [DONE] and on_disk(host) == [FRIENDS[1]]


# Bounds and the model


def test_257th_key_differs():
    """A whitelist holds 256 keys; an update that would make it longer is refused, one that swaps two is not."""
    host, tenant, _ = restart_with(keys_of(WHITELIST_KEYS_MAX))
    extra = key_of(5_000).public
    too_many = tenant.toggle(extra, current=keys_of(WHITELIST_KEYS_MAX))
    swapped = tenant.toggle(extra, keys_of(1)[0], current=keys_of(WHITELIST_KEYS_MAX))

    assert commands(too_many + swapped) == [DIFFERS, DONE]
    assert host.refused[Refusal.WHITELIST_FULL.value] == 1 and len(on_disk(host)) == WHITELIST_KEYS_MAX


@pytest.mark.parametrize("seed", range(100))
def test_random_toggles_match_a_set(seed):
    """Whatever is toggled, cleared, compared and restarted, the host has what a plain set has."""
    rng = random.Random(seed)
    pool = keys_of(12)
    host, tenant, _ = world()
    model = set()
    for _ in range(6):
        host.pass_ms(CLOCK_WINDOW_MS + 1)
        toggles = [rng.choice(pool) for _ in range(rng.randint(1, 10))]
        wrong = rng.random() < 0.2
        wished = set(model)
        for key in toggles:
            wished ^= {key}
        claimed = wished ^ {pool[0]} if wrong else wished
        answer = tenant.say(Command.UPDATE_WHITELIST, whitelist_hash(claimed) + b"".join(toggles))
        assert commands(answer) == [DIFFERS if wrong else DONE]
        model = model if wrong else wished
        if rng.random() < 0.15:
            tenant.clear()
            model = set()
        if rng.random() < 0.2:
            host.restart()

    assert on_disk(host) == sorted(model)
    assert commands(tenant.compare(*model)) == [DONE]


def test_only_tenants_have_whitelists():
    """A visitor's update is dropped unchecked; at the end of a lease its waiting update is too."""
    host, tenant, _ = world(lease_ms=60_000)
    visitor = Person(host, VISITOR, ELSEWHERE)
    tenant.toggle(*FRIENDS)
    (challenge,) = tenant.toggle(*FRIENDS, current=FRIENDS)
    host.pass_ms(60_001)
    late = tenant.solve(challenge)

    assert visitor.toggle(*FRIENDS) == []
    assert DONE not in commands(late) and on_disk(host) == sorted(FRIENDS)


def test_full_list_of_ten_at_once():
    """One update carries up to ten keys."""
    host, tenant, _ = world()

    assert commands(tenant.toggle(*keys_of(10))) == [DONE]
    assert len(on_disk(host)) == 10
