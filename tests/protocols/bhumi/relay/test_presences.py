"""Laws of protocols.bhumi.whereabouts: the newest of each device and relay, and never one past its end."""

import random

import pytest

from tests.protocols.bhumi.build import KEYS, limits_of
from tests.protocols.bhumi.build_open import ALICE, BOB, RELAY_KEYS, WALL_S, presence
from waystation.protocols.bhumi.extension_wire import encode_record, encode_tagged
from waystation.protocols.bhumi.relay.presences import RELAYS_PER_DEVICE_MAX, PresenceTable, Standing


def tagged(device, relay, issued_s=0, ttl_s=600):
    """Return the tagged record of ``presence``."""
    return encode_tagged(presence(device, relay, issued_s, ttl_s))


def unsigned(number, issued_s=0, ttl_s=600, relay=0):
    """Return a tagged presence of any device; the table does not look at signatures."""
    device = number.to_bytes(32, "big")
    times = (WALL_S + issued_s).to_bytes(8, "big") + ttl_s.to_bytes(4, "big")
    return b"\x44" + device + RELAY_KEYS[relay].public + times + bytes(64)


def kept(*records, now_s=WALL_S, entries_max=100_000):
    """Return a table that was offered these records."""
    table = PresenceTable(limits_of(presences=entries_max))
    for record in records:
        if table.standing(record, now_s) is Standing.NEW:
            table.keep(record, now_s)
    return table


def test_what_was_kept_is_found_as_it_came():
    """The bytes are those that the owner signed."""
    table = kept(tagged(ALICE, 0), tagged(BOB, 1))

    assert table.find(ALICE.public, WALL_S) == [encode_record(presence(ALICE, 0))]
    assert (len(table), table.devices_count) == (2, 2)


def test_nobody_is_found_who_said_nothing():
    """An unknown device has no hints."""
    assert kept(tagged(ALICE, 0)).find(BOB.public, WALL_S) == []


def test_newest_of_device_and_relay_stands():
    """An older or equal one is known already, in whatever order they come."""
    table = kept(tagged(ALICE, 0, 5), tagged(ALICE, 0, 3), tagged(ALICE, 0, 9))

    assert table.find(ALICE.public, WALL_S) == [encode_record(presence(ALICE, 0, 9))]
    assert table.standing(tagged(ALICE, 0, 9), WALL_S) is Standing.KNOWN
    assert table.standing(tagged(ALICE, 0, 9, 300), WALL_S) is Standing.KNOWN
    assert table.standing(tagged(ALICE, 0, 10), WALL_S) is Standing.NEW


def test_hints_come_newest_first():
    """Whoever moved last is found there first."""
    table = kept(tagged(ALICE, 0, 5), tagged(ALICE, 1, 9), tagged(ALICE, 2, 7))

    assert table.find(ALICE.public, WALL_S) == [
        encode_record(presence(ALICE, n, s)) for n, s in ((1, 9), (2, 7), (0, 5))
    ]


def test_nothing_is_shown_past_its_end():
    """In the second of its end a presence is gone, swept or not; a second earlier it is there."""
    table = kept(tagged(ALICE, 0, ttl_s=60))

    assert table.find(ALICE.public, WALL_S + 59)
    assert table.find(ALICE.public, WALL_S + 60) == []
    assert not table.holds(tagged(ALICE, 0, ttl_s=60), WALL_S + 60)
    assert table.sample(random.Random(1), 10, WALL_S + 60) == []
    assert len(table) == 1


def test_sweep_forgets_what_has_ended_and_nothing_else():
    """What is left is as if the others had never been."""
    table = kept(tagged(ALICE, 0, ttl_s=60), tagged(ALICE, 1, ttl_s=90), tagged(BOB, 0, ttl_s=60))
    table.sweep(WALL_S + 60)

    assert (len(table), table.devices_count, table.next_end_s()) == (1, 1, WALL_S + 90)
    table.sweep(WALL_S + 90)
    assert (len(table), table.devices_count, table.next_end_s()) == (0, 0, None)


def test_renewed_presence_outlives_the_end_of_the_one_before():
    """The note of the first end leads nowhere."""
    table = kept(tagged(ALICE, 0, 0, 60), tagged(ALICE, 0, 50, 60))
    table.sweep(WALL_S + 60)

    assert table.find(ALICE.public, WALL_S + 60) == [encode_record(presence(ALICE, 0, 50, 60))]


def test_device_has_eight_relays_and_the_oldest_leaves():
    """A ninth that is newer takes the place of the oldest; one that is older still is not taken."""
    table = kept(*(tagged(ALICE, relay, 10 + relay) for relay in range(RELAYS_PER_DEVICE_MAX)))

    assert table.standing(tagged(ALICE, 9, 9), WALL_S) is Standing.KNOWN
    assert table.standing(tagged(ALICE, 9, 99), WALL_S) is Standing.NEW
    table.keep(tagged(ALICE, 9, 99), WALL_S)
    found = table.find(ALICE.public, WALL_S)
    assert len(found) == len(table) == RELAYS_PER_DEVICE_MAX
    assert encode_record(presence(ALICE, 0, 10)) not in found


def test_ended_relays_of_a_device_make_room():
    """Only what has not ended counts towards the eight."""
    table = kept(*(tagged(ALICE, relay, 10 + relay, 60) for relay in range(RELAYS_PER_DEVICE_MAX)))
    later = WALL_S + 10 + 60

    assert table.standing(tagged(ALICE, 9, 9, 600), later) is Standing.NEW
    table.keep(tagged(ALICE, 9, 9, 600), later)
    assert len(table) == RELAYS_PER_DEVICE_MAX


def test_full_table_drops_the_soonest_to_end_for_one_that_lasts_longer():
    """Who would end first anyway is not taken."""
    table = kept(unsigned(1, ttl_s=60), unsigned(2, ttl_s=30), unsigned(3, ttl_s=90), entries_max=3)

    assert table.standing(unsigned(4, ttl_s=30), WALL_S) is Standing.FULL
    assert table.standing(unsigned(2, 1, ttl_s=20), WALL_S) is Standing.NEW
    assert table.standing(unsigned(4, ttl_s=31), WALL_S) is Standing.NEW
    table.keep(unsigned(4, ttl_s=31), WALL_S)
    assert len(table) == 3
    assert table.find((2).to_bytes(32, "big"), WALL_S) == []


def test_mere_renewal_is_known_until_half_is_over():
    """The newest known says the same place and is less than half over (BHUMI-RENEWAL)."""
    table = kept(tagged(ALICE, 0, 0, 600))

    assert table.is_mere_renewal(tagged(ALICE, 0, 240), WALL_S + 240)
    assert table.is_mere_renewal(tagged(ALICE, 0, 299), WALL_S + 299)
    assert not table.is_mere_renewal(tagged(ALICE, 0, 300), WALL_S + 300)
    assert not table.is_mere_renewal(tagged(ALICE, 1, 10), WALL_S + 10)
    assert not table.is_mere_renewal(tagged(BOB, 0, 10), WALL_S + 10)


def test_return_to_an_old_relay_is_no_renewal():
    """A device that went from 0 to 1 and back says something new, however young the first presence is."""
    table = kept(tagged(ALICE, 0, 0), tagged(ALICE, 1, 10))

    assert not table.is_mere_renewal(tagged(ALICE, 0, 20), WALL_S + 20)


def test_sample_has_the_newest_of_as_many_devices():
    """One record a device, no device twice."""
    table = kept(*(unsigned(number, relay=relay, issued_s=relay) for number in range(50) for relay in range(3)))
    drawn = table.sample(random.Random(1), 20, WALL_S)

    assert len({record[1:33] for record in drawn}) == len(drawn) == 20
    assert {record[33:65] for record in drawn} == {RELAY_KEYS[2].public}


def test_notes_of_ends_do_not_pile_up():
    """A device that renews all day leaves no trail: the notes are cleared when most of them lead nowhere."""
    table = PresenceTable(limits_of())
    for second in range(20_000):
        table.keep(unsigned(1, second % 500, 100), WALL_S)

    assert sum(map(len, table._ends.values())) < 2_000
    assert len(table) == 1


@pytest.mark.parametrize("seed", range(8))
def test_table_agrees_with_a_dumb_one(seed):
    """A list that is searched from end to end gives the same answers."""
    rng = random.Random(seed)
    table, model, now_s = PresenceTable(limits_of(presences=40)), {}, WALL_S
    for _ in range(600):
        now_s += rng.randrange(3)
        record = unsigned(
            rng.randrange(12), now_s - WALL_S - rng.randrange(40), rng.randrange(41, 90), rng.randrange(6)
        )
        device, relay, issued, ends = record[1:33], record[33:65], record[65:73], _end(record)
        live = {key: one for key, one in model.items() if _end(one) > now_s}
        before = live.get((device, relay))
        is_new = before is None or issued > before[65:73]
        room = len(table) < 40 or before is not None or min(map(_end, model.values())) < ends
        standing = table.standing(record, now_s)
        assert standing is (Standing.KNOWN if not is_new else Standing.NEW if room else Standing.FULL)
        if standing is Standing.NEW:
            table.keep(record, now_s)
            if (device, relay) not in model and len(model) >= 40:
                (gone,) = [key for key, one in model.items() if not table.holds(one, now_s - 100)]
                assert _end(model.pop(gone)) <= min(map(_end, model.values()))
            model[device, relay] = record
        table.sweep(now_s)
        model = {key: one for key, one in model.items() if _end(one) > now_s}
        expected = sorted((one[1:] for (who, _), one in model.items() if who == device), key=lambda one: one[64:72])
        assert sorted(table.find(device, now_s)) == sorted(expected)
        assert len(table) == len(model)


def _end(record):
    return int.from_bytes(record[65:73], "big") + int.from_bytes(record[73:77], "big")


def test_many_devices_of_the_tests_are_different():
    """The keys that these tests draw on are no duplicates."""
    assert len({key.public for key in KEYS}) == len(KEYS)
