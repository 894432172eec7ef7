"""Laws of store.damage."""

from waystation.core.records import DamagedRow
from waystation.store.damage import ROWS_NOTED_MAX, Damage


def test_rows_are_told_once_and_counted_by_table():
    """Totals only grow; what is mended leaves the rows."""
    damage, told = Damage(), []
    damage.on_row = told.append
    for key in (b"a", b"b", b"a"):
        damage.note("bans", key, key_is_good=True)
    damage.note("packets", b"7", key_is_good=False)
    damage.mended("bans", b"a")
    damage.mended("bans", b"never met")
    damage.mended("leases", b"a")

    assert [row.key for row in told] == [b"a", b"b", b"7"]
    assert (damage.counts(), damage.totals()) == ({"bans": 1, "packets": 1}, {"bans": 2, "packets": 1})
    assert damage.rows("bans") == [DamagedRow("bans", b"b", key_is_good=True)]
    assert damage.any


def test_rows_remembered_are_bounded():
    """A disk that loses everything does not fill the memory, nor the log."""
    damage = Damage()
    for number in range(ROWS_NOTED_MAX + 10):
        damage.note("packets", b"%d" % number, key_is_good=False)

    assert damage.totals() == {"packets": ROWS_NOTED_MAX}
