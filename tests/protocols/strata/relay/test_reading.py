"""Laws of protocols.strata.reading."""

from tests.protocols.strata.build import ALICE, BOB, did
from tests.protocols.strata.drive import Drive
from waystation.core.packets import PacketPage, PacketQuery
from waystation.protocols.strata.relay.reading import PAGES_MAX, read_some
from waystation.store import memory_packets


class Endless:
    """A store whose pages are empty and go on for ever."""

    def __init__(self):
        self.asked = 0

    def page(self, query):
        """Return nothing, and a place to go on from."""
        self.asked += 1
        return PacketPage([], (0, self.asked))


def test_it_reads_over_pages(monkeypatch):
    """Rows that lie many pages apart are found, in order and no more than wanted."""
    monkeypatch.setattr(memory_packets, "ROWS_LOOKED_AT_MAX", 3)
    drive = Drive(rate_limits=False)
    for _ in range(3):
        drive.fill(1, BOB, nonce=f"{drive._peers}")
        drive.fill(7, nonce=f"{drive._peers}")
    query = PacketQuery(types=("POST",), authors=())
    bobs = [row for row in drive.rows() if row.author_id == did(BOB)]

    assert read_some(drive.store.packets, query, 5) == drive.rows()[:5]
    assert read_some(drive.store.packets, query._replace(by_seq=True, authors=(did(BOB),)), 9) == bobs
    assert len(read_some(drive.store.packets, query._replace(authors=(did(ALICE),)), 100)) == 21


def test_it_gives_up():
    """A question costs a bounded number of pages, whatever the store says."""
    store = Endless()

    assert read_some(store, PacketQuery(), 1) == []
    assert store.asked == PAGES_MAX
