"""Laws of protocols.strata.relay.allowances: what small frames and vain searches cost whoever sends them."""

import pytest

from tests.protocols.strata.build import BOB, did
from tests.protocols.strata.drive import Drive
from waystation.core.effects import Peer
from waystation.protocols.strata.limits import StrataLimits
from waystation.protocols.strata.relay.allowances import FRAME_BYTES_LEAST

FRAMES = 65_536 // FRAME_BYTES_LEAST
LITTLE = StrataLimits(bytes_per_minute_anonymous=65_536, malformed=320)
UNSUBSCRIBE = b'{"type":"UNSUBSCRIBE","subscription_id":"s"}'
MALFORMED = b'{"type":"NONSENSE"}'


@pytest.mark.parametrize("frame", [UNSUBSCRIBE, MALFORMED, b"[", b"{}"])
def test_small_frame_costs_allowance(frame):
    """An UNSUBSCRIBE and a frame that is no message cost as much as one of 4 KiB, and are refused beyond that."""
    drive = Drive(limits=LITTLE)
    peer = drive.connect("192.0.2.7")
    answers = [got for _ in range(FRAMES + 1) for got in drive.send(peer, frame)]

    assert (answers[-1]["code"], answers[-1]["detail"]) == ("rate_limited", "bytes")
    assert answers[-1]["retry_after"] >= 1
    drive.pass_time(60)
    assert "rate_limited" not in {got["code"] for got in drive.send(peer, frame)}


def test_unsubscribe_between_malformed_frames_does_not_pass_for_ever():
    """Whoever mixes both to stay below the number in a row is closed for ignoring its allowance."""
    drive = Drive(limits=LITTLE)
    peer = drive.connect("192.0.2.7")
    for number in range(500):
        drive.relay.receive(Peer(peer), UNSUBSCRIBE if number % 5 == 0 else MALFORMED, drive.now)
    drive.settle()

    assert peer in drive.closed


def test_unsubscribe_beyond_the_allowance_ends_its_subscription():
    """The refusal is for the cost: no EVENT comes after it all the same."""
    drive = Drive(limits=LITTLE)
    peer = drive.connect("192.0.2.7")
    drive.subscribe(peer)
    for _ in range(FRAMES + 1):
        drive.send(peer, MALFORMED)
    refused = drive.send(peer, UNSUBSCRIBE)

    assert (refused[-1]["code"], refused[-1]["subscription_id"]) == ("rate_limited", "s")
    drive.fill(1)
    assert drive.events(peer) == []


@pytest.fixture
def searching(monkeypatch):
    """A relay with forty packets, that looks at four a page and lets an address search through two pages a minute."""
    monkeypatch.setattr("waystation.store.memory_packets.ROWS_LOOKED_AT_MAX", 4)
    drive = Drive(limits=StrataLimits(searches_per_minute_anonymous=2))
    for _ in range(2):
        drive.fill(20, key=BOB)
        drive.pass_time(60)
    return drive


def test_search_that_finds_nothing_is_charged(searching):
    """Pages that are looked through in vain come at the rate of their allowance, and the history ends all the same."""
    peer = searching.connect("192.0.2.7")
    rare = {"authors": [did(BOB)], "types": ["NONE"]}

    assert searching.subscribe(peer, **rare) == []
    searching.pass_time(60)
    assert not [got for got in searching.got[peer] if got["type"] == "EOSE"]
    for _ in range(10):
        searching.pass_time(60)
    assert [got["has_more"] for got in searching.got[peer] if got["type"] == "EOSE"] == [False]


def test_searches_of_one_address_share_their_allowance(searching):
    """A second connection has no allowance of its own, another address has."""
    rare = {"authors": [did(BOB)], "types": ["NONE"]}
    for address in ("192.0.2.7", "192.0.2.7", "192.0.2.8"):
        searching.subscribe(searching.connect(address), **rare)

    assert len(searching.relay._delivery._resting) == 3


def test_history_that_is_found_is_not_charged(searching):
    """Full pages are no search."""
    peer = searching.connect("192.0.2.7")
    got = searching.subscribe(peer, limit=4)

    assert [each["type"] for each in got] == ["EVENT"] * 4 + ["EOSE"]


def test_reader_that_leaves_while_it_waits_is_forgotten(searching):
    """Nothing of it stays."""
    peer = searching.connect("192.0.2.7")
    searching.subscribe(peer, authors=[did(BOB)], types=["NONE"])
    searching.drop(peer)

    assert searching.relay._delivery._resting == {}
    searching.pass_time(60)
