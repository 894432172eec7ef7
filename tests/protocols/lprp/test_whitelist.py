"""Laws of protocols.lprp.whitelist."""

import hashlib
import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocols.lprp.build import BIG, FRIENDS, VECTORS, vector
from waystation.protocols.lprp.refusals import MalformedError, Refusal
from waystation.protocols.lprp.whitelist import (
    WHITELIST_KEYS_MAX,
    ZERO_KEY,
    comparison,
    has_zero_key,
    is_comparison,
    plan_updates,
    read_update,
    toggled,
    whitelist_hash,
)

EMPTY_HASH = hashlib.blake2b(b"", digest_size=32).digest()
POOL = [hashlib.sha256(b"key %d" % number).digest() for number in range(600)]


def update_of(name):
    """Return what a 108 of the vectors asks for."""
    return read_update(BIG.read(vector(name)).payload)


def hash_by_hand(keys):
    """Return the hash as the digest words it: the keys in unsigned byte order, one behind the other."""
    ordered = sorted(keys, key=lambda key: int.from_bytes(key, "big"))
    return hashlib.blake2b(b"".join(ordered), digest_size=32).digest()


def applied(keys, payloads):
    """Return every set that a host passes through, each checked against the hash that it was promised."""
    sets = [keys]
    for payload in payloads:
        update = read_update(payload)
        sets.append(toggled(sets[-1], update.keys))
        assert hash_by_hand(sets[-1]) == update.hash
    return sets


# The vectors


@pytest.mark.parametrize(
    "case", VECTORS["whitelist"], ids=[f"{len(case['set'])} keys" for case in VECTORS["whitelist"]]
)
def test_vector_hashes(case):
    """Every set of the vectors has the hash of the vectors, in whatever order its keys come."""
    keys = [bytes.fromhex(key) for key in case["set"]]

    assert {whitelist_hash(order).hex() for order in itertools.permutations(keys)} == {case["hash"]}


def test_story_of_the_vectors_comes_out():
    """Three keys come in, one goes out, and the comparison agrees."""
    added = toggled(frozenset(), update_of("whitelist_add3").keys)
    removed = toggled(added, update_of("whitelist_remove1").keys)

    assert added == frozenset(FRIENDS)
    assert whitelist_hash(added) == update_of("whitelist_add3").hash
    assert removed == added - {FRIENDS[1]}
    assert whitelist_hash(removed) == update_of("whitelist_remove1").hash == update_of("whitelist_check_only").hash


def test_mismatch_of_the_vectors_is_one():
    """The toggle would leave another set than the hash says."""
    update = update_of("whitelist_mismatch")
    kept = frozenset({FRIENDS[0], FRIENDS[2]})

    assert whitelist_hash(toggled(kept, update.keys)) != update.hash == EMPTY_HASH


def test_zero_key_alone_compares_and_among_others_is_wrong():
    """Only an update of the one zero key is a comparison (LPRP-D11)."""
    assert is_comparison(update_of("whitelist_check_only"))
    assert has_zero_key(update_of("whitelist_check_only"))
    assert not is_comparison(update_of("whitelist_remove1"))
    assert not has_zero_key(update_of("whitelist_remove1"))
    for keys in ((ZERO_KEY, ZERO_KEY), (POOL[0], ZERO_KEY), (ZERO_KEY, POOL[0])):
        update = read_update(EMPTY_HASH + b"".join(keys))

        assert has_zero_key(update)
        assert not is_comparison(update)


# Updates


def test_update_of_ten_keys_is_read_in_order():
    """Hash first, then the keys as they stand."""
    update = read_update(b"h" * 32 + b"".join(POOL[:10]))

    assert update.hash == b"h" * 32
    assert update.keys == tuple(POOL[:10])
    assert len(update_of("whitelist_max10").keys) == 10


def test_payload_of_another_length_is_refused():
    """A hash and one to ten keys, nothing less, between or more."""
    read, refusals = {}, set()
    for size in range(400):
        try:
            read[size] = len(read_update(bytes(size)).keys)
        except MalformedError as error:
            refusals.add(error.refusal)

    assert read == {32 + 32 * count: count for count in range(1, 11)}
    assert refusals == {Refusal.COMMAND_LENGTH}


# Toggles and hashes


@pytest.mark.parametrize("seed", range(100))
def test_random_toggles_match_a_set_model(seed):
    """A key is in when it was named an odd number of times, and the hash is that of those keys."""
    rng = random.Random(seed)
    pool = rng.sample(POOL, rng.randrange(1, 30))
    keys = frozenset()
    named = []
    for _ in range(rng.randrange(1, 12)):
        toggles = [rng.choice(pool) for _ in range(rng.randrange(1, 11))]
        keys = toggled(keys, toggles)
        named += toggles
        model = {key for key in named if named.count(key) % 2}

        assert keys == model
        assert whitelist_hash(keys) == hash_by_hand(model)


def test_key_named_twice_stays_where_it_was():
    """An even count changes nothing, in one update or in two."""
    keys = frozenset(POOL[:3])

    assert toggled(keys, [POOL[0], POOL[0]]) == keys
    assert toggled(keys, [POOL[9], POOL[1], POOL[9], POOL[1]]) == keys
    assert toggled(toggled(keys, POOL[2:6]), POOL[2:6]) == keys


def test_toggling_leaves_the_old_set_alone():
    """The host works on a copy and may still throw it away."""
    keys = frozenset(POOL[:3])
    toggled(keys, POOL[:5])

    assert keys == frozenset(POOL[:3])


def test_order_of_keys_is_that_of_unsigned_bytes():
    """0x80 comes behind 0x7f, and the first byte counts most."""
    low, high = b"\x7f" + b"\xff" * 31, b"\x80" + bytes(31)

    assert whitelist_hash([high, low]) == hashlib.blake2b(low + high, digest_size=32).digest()


def test_key_given_twice_is_in_the_set_once():
    """It is a set that is hashed."""
    assert whitelist_hash([POOL[0], POOL[1], POOL[0]]) == hash_by_hand(POOL[:2])


# Plans


@given(st.integers(0, 2**32), st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_plan_leads_from_one_set_to_the_other(seed, kept, gone, come):
    """As few updates as can be, each of at most ten keys, never more keys on the way than at the fuller end."""
    keys = random.Random(seed).sample(POOL, kept + gone + come)
    current, wanted = frozenset(keys[: kept + gone]), frozenset(keys[:kept] + keys[kept + gone :])

    payloads = plan_updates(current, wanted)
    sets = applied(current, payloads)

    assert sets[-1] == wanted
    assert len(payloads) == -(-(gone + come) // 10)
    assert max(map(len, sets)) == max(len(current), len(wanted))


def test_plan_for_a_full_list_never_overfills_the_host():
    """Where all of 256 keys are replaced the host never sees a 257th."""
    current, wanted = frozenset(POOL[:256]), frozenset(POOL[300:556])

    sets = applied(current, plan_updates(current, wanted))

    assert sets[-1] == wanted
    assert max(map(len, sets)) == WHITELIST_KEYS_MAX == 256


def test_plan_between_equal_sets_is_empty():
    """Nothing to say, nothing said."""
    assert plan_updates(frozenset(POOL[:5]), frozenset(POOL[:5])) == []


def test_plan_depends_on_sets_alone():
    """Two runs make the same updates, whatever order the keys came in."""
    forwards, backwards = frozenset(POOL[:40]), frozenset(reversed(POOL[:40]))

    assert plan_updates(frozenset(), forwards) == plan_updates(frozenset(), backwards)


@pytest.mark.parametrize("wanted", [frozenset(POOL[:257]), frozenset({ZERO_KEY})], ids=["257 keys", "the zero key"])
def test_set_that_no_host_takes_is_not_planned(wanted):
    """More than a list holds, and the key that means a comparison, are mistakes of the caller."""
    with pytest.raises(AssertionError):
        plan_updates(frozenset(), wanted)


@pytest.mark.parametrize("keys", [POOL[:0], POOL[:1], POOL[:256]], ids=["no keys", "one key", "256 keys"])
def test_comparison_names_the_set_and_changes_nothing(keys):
    """A comparison is read as one, with the hash of the set it asks about, in as many bytes as its answer needs."""
    payload = comparison(keys)

    assert is_comparison(read_update(payload))
    assert read_update(payload).hash == hash_by_hand(keys)
    assert len(payload) == 64


def test_comparison_of_the_vectors_is_ours():
    """The check of the vectors is what we would send."""
    assert BIG.read(vector("whitelist_check_only")).payload == comparison([FRIENDS[0], FRIENDS[2]])
