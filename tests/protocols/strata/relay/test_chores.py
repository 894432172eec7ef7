"""Laws of strata.chores, and of cursors: what nobody waits for is written later, and nothing is passed unread."""

from tests.protocols.refusing import RefusingStore
from tests.protocols.strata.build import BOB
from tests.protocols.strata.drive import Drive
from tests.protocols.strata.pair import join
from tests.protocols.strata.relay.test_replication import UP, ids_of, reader, upstream
from waystation.core.commits import COMMIT_AGAIN_MS

DAY = 86_400


def test_retention_is_asked_for_again():
    """What should go while the store refuses goes once it does not; until then it is tried once a second."""
    drive = Drive(store := RefusingStore(), retention_days=1)
    drive.fill(3)
    store.refuses = True
    drive.pass_time(2 * DAY)
    kept = len(drive.rows())
    again_s = (drive.relay.deadline() - drive.now) / 1_000_000
    store.refuses = False
    drive.pass_time(120)

    assert kept == 3
    assert 0 < again_s <= COMMIT_AGAIN_MS / 1_000
    assert drive.rows() == []


def test_cursor_passes_no_packet_that_could_not_be_stored():
    """The connection ends, the upstream is not to blame, and the next one brings all that was refused."""
    up, down = upstream(), reader(store := RefusingStore())
    first = up.fill(3)
    join(down, up).cut()
    score = down.score_of(UP)[0]
    store.refuses = True
    later = up.fill(4, BOB)
    refused = join(down, up)
    ended, kept = refused.end(), down.ids()
    store.refuses = False
    down.pass_time(2)
    join(down, up)

    assert (ended, kept) == (("not_stored", 1000), ids_of(first))
    assert down.ids() == ids_of(first + later)
    assert down.score_of(UP)[0] >= score
