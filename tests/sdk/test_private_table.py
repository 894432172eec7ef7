"""Laws of a client's small tables in JSON files, tried with the pins of MERK and a disk of 1 MiB."""

import json

import pytest

from tests.disk import fill, small_disk
from waystation.core.errors import HostError
from waystation.sdk import private_table
from waystation.sdk.merk import Recipients

ALICE, BOB, KEY = b"a" * 32, b"b" * 32, b"k" * 32


@pytest.fixture
def path(tmp_path):
    """A file on a small disk."""
    with small_disk(tmp_path / "disk", 1) as disk:
        yield disk / "pins.json"


def test_change_that_the_disk_refuses_holds_and_is_written_with_the_next(path):
    """It raises and is there; what another program writes meanwhile is not undone by it."""
    pins = Recipients(path)
    stuffing = fill(path.parent)
    with pytest.raises(HostError, match=r"pins\.json.*it holds until the program ends"):
        pins.set_by_hand(ALICE, KEY)
    held = pins.get(ALICE)
    stuffing.unlink()
    other = Recipients(path)
    other.set_by_hand(BOB, KEY)
    pins.settle()

    assert held.agreement_key == KEY
    assert set(json.loads(path.read_text())) == {ALICE.hex(), BOB.hex()}
    assert set(Recipients(path).known()) == {ALICE, BOB}


def test_settling_a_table_that_nothing_waits_for_writes_nothing(path):
    """A full disk is not asked when there is nothing to write."""
    pins = Recipients(path)
    fill(path.parent)
    pins.settle()

    assert not path.exists()


def test_changes_that_wait_are_bounded(path, monkeypatch):
    """Beyond ``WAITING_MAX`` a change is gone with the next look at the file."""
    monkeypatch.setattr(private_table, "WAITING_MAX", 1)
    pins = Recipients(path)
    fill(path.parent)
    for key in (ALICE, BOB):
        with pytest.raises(HostError):
            pins.set_by_hand(key, KEY)

    assert set(pins.known()) == {ALICE}
