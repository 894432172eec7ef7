"""Laws of store.checksums; what they find is in test_sqlite_packets_rot and test_sqlite_records."""

import pytest

from tests.store.build import packet_row
from waystation.store.checksums import is_key_whole, is_value_whole, packet_checksum, record_checksum


def test_checksum_of_a_record_knows_key_and_value_apart():
    """Each half judges its own part, and nothing vouches for a value of another type."""
    checksum = record_checksum("bans", b"key", b"value")

    assert is_key_whole("bans", b"key", checksum)
    assert is_value_whole(b"value", checksum)
    assert not is_key_whole("bans", b"kez", checksum)
    assert not is_key_whole("bant", b"key", checksum)
    assert not is_key_whole("bans", b"key", None)
    assert not is_value_whole(b"valuf", checksum)
    assert not is_value_whole("value", checksum)
    assert -(1 << 63) <= checksum < 1 << 63


@pytest.mark.parametrize("number", [1 << 60, -(1 << 60)])
def test_packet_with_numbers_that_no_sum_holds_has_no_checksum(number):
    """SQLite would turn them into floats; no packet of a protocol has such a time."""
    assert packet_checksum(packet_row(1, timestamp=number), 1, 2) is None
    assert packet_checksum(packet_row(1), 1, 2) is not None
