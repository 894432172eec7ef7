"""Laws of protocols.bsp.rejected: what is remembered of messages that were not taken."""

import pytest

from tests.protocols.bsp.build import ids
from waystation.core.errors import HostError
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant, after_ms
from waystation.core.records import Record
from waystation.protocols.bsp.device.rejected import REMEMBERED_MAX, RejectedMessages
from waystation.protocols.bsp.refusals import Refusal
from waystation.store.memory import MemoryStore

PEER, OTHER = PublicKey(b"p" * 32), PublicKey(b"q" * 32)
START = Instant(7)


def test_last_refusal_of_a_message_is_told():
    """Who brought it last, and why it was not taken; of others nothing."""
    away, (one, other) = RejectedMessages(MemoryStore()), ids(2)

    away.note(one, PEER, Refusal.QUOTA_FULL, START)
    away.note(one, OTHER, Refusal.DEVICE_FULL, START)

    assert away.find(one) == (OTHER, Refusal.DEVICE_FULL)
    assert away.find(other) is None


def test_oldest_is_forgotten_at_the_bound():
    """One that comes again is young again."""
    away, names = RejectedMessages(MemoryStore()), ids(REMEMBERED_MAX + 1)
    for name in (*names[:-1], names[0], names[-1]):
        away.note(name, PEER, Refusal.QUOTA_FULL, START)

    assert [name for name in names if away.find(name) is None] == [names[1]]


def test_program_beside_finds_it_in_the_store():
    """The row has everything that is remembered."""
    store, away = MemoryStore(), RejectedMessages(MemoryStore())
    written = [
        away.note(name, PEER, Refusal.PENDING_FULL, after_ms(START, 5_000 * at)) for at, name in enumerate(ids(2))
    ]

    store.commit([record for record in written if record is not None])
    again = RejectedMessages(store)

    assert [again.find(name) for name in ids(2)] == [(PEER, Refusal.PENDING_FULL)] * 2


def test_flood_is_written_every_five_seconds():
    """A refusal costs no commit of its own."""
    away = RejectedMessages(MemoryStore())
    moments = [START, after_ms(START, 4_999), after_ms(START, 5_000), after_ms(START, 5_001)]

    written = [away.note(ids(1)[0], PEER, Refusal.QUOTA_FULL, at) is not None for at in moments]

    assert written == [True, False, True, False]


@pytest.mark.parametrize("value", [b"x", bytes(64), bytes(64) + b"\x05abc", bytes(64) + b"\x04away"])
def test_row_of_another_form_is_refused(value):
    """It is the store's fault."""
    store = MemoryStore()
    store.commit([Record("bsp_refused", b"last", value)])

    with pytest.raises(HostError, match="damaged"):
        RejectedMessages(store)
