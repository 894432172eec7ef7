"""Random lives find mistakes of a device, whatever they are about."""

import pytest

from tests.protocols.bsp.build_device import audit
from tests.protocols.bsp.device.test_repository_random import Life
from waystation.protocols.bsp.device.events import Delivered
from waystation.protocols.bsp.device.flags import PeerState
from waystation.protocols.bsp.device.ledger import Ledger
from waystation.protocols.bsp.device.offered import OfferedList
from waystation.protocols.bsp.device.receiving import Receiver
from waystation.protocols.bsp.device.repository import Repository
from waystation.protocols.bsp.device.uncommitted import Unsaved

LIVES = 30


def tells_twice(monkeypatch):
    """What happened is told again at the next opportunity."""
    take_events = Repository.take_events

    def taken(books):
        events = take_events(books)
        books._events += [event for event in events if isinstance(event, Delivered)]
        return events

    monkeypatch.setattr(Repository, "take_events", taken)


def believes_the_disk(monkeypatch):
    """What is under way to the disk counts as there."""
    monkeypatch.setattr(Repository, "_unsaved_with", lambda books, message_id: None)


def tells_too_early(monkeypatch):
    """Events do not wait for the disk."""
    monkeypatch.setattr(Repository, "emit", Repository.emit_now)


def goes_on_sharing(monkeypatch):
    """Rows of a group that is no longer shared stay."""
    monkeypatch.setattr(Repository, "_drop_rows", lambda books, sharing: None)


def sends_where_it_should_not(monkeypatch):
    """A group that is only visible is served like one that is shared."""

    def shared(hearing, peer, message_id):
        member = hearing._repository.index.get(message_id)
        sharing = peer.sharings.get(member.group.group_id) if member is not None else None
        return (sharing, member.graph.vertices[message_id]) if sharing is not None else None

    monkeypatch.setattr(Receiver, "_shared", shared)


def forgets_flags(monkeypatch):
    """What a peer holds is not written down."""
    monkeypatch.setattr(Unsaved, "note_flag", lambda unsaved, sharing, seq: None)


def forgets_sharing(monkeypatch):
    """That a message is shared is not written down."""
    message = Ledger.message

    def unshared(ledger, group_id, vertex, body):
        record = message(ledger, group_id, vertex, body)
        return record._replace(value=record.value[:1] + bytes([record.value[1] & ~4]) + record.value[2:])

    monkeypatch.setattr(Ledger, "message", unshared)


def keeps_all_offers(monkeypatch):
    """Offers are kept without end."""
    monkeypatch.setattr(
        OfferedList, "add", lambda offered, message_id: offered._ids.setdefault(message_id, None), raising=True
    )


def loses_count(monkeypatch):
    """A row that is dropped goes on to be owed."""
    drop = PeerState.drop

    def dropped(peer, row):
        before = peer.unheld_count
        drop(peer, row)
        peer.unheld_count = before

    monkeypatch.setattr(PeerState, "drop", dropped)


MISTAKES = [
    *(tells_twice, believes_the_disk, tells_too_early, goes_on_sharing, sends_where_it_should_not, forgets_flags),
    *(forgets_sharing, keeps_all_offers, loses_count),
]


def live(*seeds):
    """Live through random lives, and begin another with what each leaves on the disk."""
    for seed in seeds:
        life = Life(seed)
        for _ in range(250):
            life.step()
            audit(life.bench.device, life.drafts)
        life.end()


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_mistakes_are_found(monkeypatch, mistake):
    """A device with a mistake does not survive a few lives."""
    mistake(monkeypatch)

    with pytest.raises((AssertionError, LookupError)):
        live(*range(LIVES))
