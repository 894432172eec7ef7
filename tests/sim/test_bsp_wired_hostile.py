"""The back door lets a stranger with a known key in, and shut out it comes again."""

import random

import pytest

from waystation.protocols.bsp.links import Mode
from waystation.sim.bsp_records import MESSAGE, OFFER, REQUEST, ids_record, read_records
from waystation.sim.bsp_village import BspVillage
from waystation.sim.bsp_wired import WiredParty
from waystation.sim.link import LinkSettings

LINK = LinkSettings(latency_us=100_000, jitter_us=0, pieces=0.5)


@pytest.fixture
def visit():
    """Return a village with one wired party, a back door, and what the stranger hears."""
    here, heard = BspVillage(random.Random(1)), []
    here.wired_party("a", Mode.INTERACTIVE)
    here.strangers["h"] = lambda sender, data: heard.append((sender, data))
    return here, here.back_door("a", "h", LINK), heard


def test_stranger_is_let_in_and_heard(visit):
    """It proves its key; what it says is answered, record by record, in whatever pieces."""
    here, door, heard = visit
    here.run(1_000)
    door.throw("h", ids_record(OFFER, *[bytes([number]) * 32 for number in range(9)]))
    here.run(1_000)

    assert door.entered == 1
    assert [sender for sender, _ in heard] == ["a"]
    assert read_records(heard[0][1])[0].kind == REQUEST


def test_stranger_that_is_shut_out_comes_again(visit):
    """Rubbish costs it the connection, not its welcome."""
    here, door, _ = visit
    here.run(1_000)
    door.throw("h", b"rubbish of any kind")
    here.run(5_000)

    assert here.parties["a"].refused == 1
    assert door.entered == 2


def test_rude_stranger_never_gets_in():
    """Bytes before the proof that are none end the handshake."""
    here = BspVillage(random.Random(3))
    party = here.wired_party("a")
    here.strangers["h"] = lambda _sender, _data: None
    door = here.back_door("a", "h", LINK)
    for _ in range(60):
        door.throw("h", b"rude")
        here.run(50)

    assert isinstance(party, WiredParty)
    assert party.refused > 0


def test_stranger_waits_for_a_party_that_is_down(visit):
    """It comes when the party is back."""
    here, door, _ = visit
    here.run(1_000)
    here.parties["a"].crash()
    here.run(3_000)
    here.parties["a"].start()
    here.run(5_000)

    assert door.entered == 2


def test_closed_door_stays_closed(visit):
    """When the trouble ends the stranger leaves for good."""
    here, door, heard = visit
    here.run(1_000)
    here.down(door)
    door.throw("h", ids_record(MESSAGE))
    here.run(10_000)

    assert door.entered == 1
    assert heard == []
    assert here.parties["a"].ends == {}
