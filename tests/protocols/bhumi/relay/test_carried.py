"""Laws of protocols.bhumi.relay.carried."""

from hypothesis import given
from hypothesis import strategies as st

from waystation.core.instant import Instant
from waystation.protocols.bhumi.relay.carried import CacheEntry, CarriedResponses

CARRIERS = [bytes([number]) * 32 for number in range(4)]


def entry(carrier, number, response=b""):
    """Return the answer of a device to the preimage called ``number``."""
    return CacheEntry((carrier, number.to_bytes(32, "big")), response, Instant(number), carrier)


def weight(entries):
    """Return what a device's answers weigh: their bytes, and 256 for each."""
    return sum(256 + len(each.response) for each in entries)


def test_first_to_leave_is_of_the_largest_share():
    """A device with much loses its oldest answer; one with little keeps what it has."""
    table = CarriedResponses()
    table.add(entry(CARRIERS[0], 1, b"first of all"))
    for number in range(2, 10):
        table.add(entry(CARRIERS[1], number))

    assert table.first_to_leave().key == entry(CARRIERS[1], 2).key
    assert table.oldest().key == entry(CARRIERS[0], 1).key


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2_000), st.booleans()), max_size=60))
def test_shares_are_those_of_a_list(script):
    """Whatever comes and goes: counts and bytes are a list's, and who loses has half of the largest share at least."""
    table, model = CarriedResponses(), []
    for number, (who, size, leaves) in enumerate(script):
        if leaves and model:
            table.remove(model.pop(size % len(model)))
        else:
            model.append(entry(CARRIERS[who], number, bytes(size)))
            table.add(model[-1])
        shares = {carrier: [each for each in model if each.carrier == carrier] for carrier in CARRIERS}

        assert len(table) == len(model)
        assert table.oldest() is (model[0] if model else None)
        for carrier, entries in shares.items():
            assert table.count_of(carrier) == len(entries)
            assert table.bytes_of(carrier) == sum(len(each.response) for each in entries)
        if model:
            leaving = table.first_to_leave()
            assert leaving is shares[leaving.carrier][0]
            assert 2 * weight(shares[leaving.carrier]) >= max(map(weight, shares.values()))
    for each in model:
        table.remove(each)
    assert (table._shares, table._levels) == ({}, {})
