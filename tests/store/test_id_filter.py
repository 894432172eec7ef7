"""Laws of store.id_filter."""

from tests.store.build import packet_id
from waystation.store.id_filter import FILTER_BYTES, IdFilter


def test_added_ids_are_never_denied():
    """What was added may always be held."""
    ids = IdFilter()
    for number in range(5_000):
        ids.add(packet_id(number))

    assert all(ids.may_hold(packet_id(number)) for number in range(5_000))


def test_unknown_ids_are_hardly_ever_doubted():
    """Beside 20,000 known ids, the chance that an unknown one is doubtful is below one in a million."""
    ids = IdFilter()
    for number in range(20_000):
        ids.add(packet_id(number))

    assert sum(ids.may_hold(packet_id(number)) for number in range(20_000, 30_000)) == 0


def test_each_of_three_probes_counts():
    """An id that agrees with a known one in only two of its three probes is denied."""
    ids = IdFilter()
    known = packet_id(7)
    ids.add(known)
    others = [bytearray(known) for _ in range(3)]
    for probe, other in enumerate(others):
        other[4 * probe] ^= 1

    assert [ids.may_hold(bytes(other)) for other in others] == [False] * 3


def test_size_is_fixed():
    """No number of ids makes the filter larger."""
    ids = IdFilter()
    for number in range(1_000):
        ids.add(packet_id(number))

    assert len(ids._bits) == FILTER_BYTES
