"""Laws of engine.recorder: what is written of look-ups and links between nodes, and what never is."""

import random

from tests.engine.build import KEY, WALL
from waystation.core import facts
from waystation.core.ids import node_id_of
from waystation.core.instant import Instant
from waystation.crypto.hashing import keyed_reference
from waystation.engine.recorder import Recorder
from waystation.journal import events
from waystation.journal.segment import encode_lines, read_rows

CLIENT = b"c" * 32
NODE = b"n" * 32


def make(*, journal: bool = True) -> tuple[Recorder, list]:
    """Return a recorder and what it writes."""
    written: list = []
    recorder = Recorder(written.append if journal else None, random.Random(1))
    recorder.set_wall(Instant(0), WALL)
    recorder.use_key(KEY)
    return recorder, written


def test_lookup_is_one_event_at_once() -> None:
    """It tells how many were asked and found, how long the first took, and names the client by keyed hash."""
    recorder, written = make()
    recorder.note(facts.MeshLookup("merk", CLIENT, 3, 1, 900, "found"), Instant(5))

    assert written == [
        events.MeshLookup(WALL + 5, "merk", keyed_reference(KEY, CLIENT), 3, 1, 900, "found", 1),
    ]
    assert recorder.deadline() is None


def test_gathered_lookups_name_nobody() -> None:
    """Many look-ups told as one are one row without a client, and every one of them is in the totals."""
    recorder, written = make()
    recorder.note(facts.MeshLookup("merk", None, 600, 0, None, "absent", 300), Instant(5))
    recorder.note(facts.MeshLookup("merk", CLIENT, 2, 0, None, "absent"), Instant(6))
    recorder.note(facts.MeshLookup("merk", CLIENT, 2, 0, None, "timeout"), Instant(7))

    assert written[0] == events.MeshLookup(WALL + 5, "merk", None, 600, 0, None, "absent", 300)
    assert recorder.totals()["lookups"] == {("merk", "absent"): 301, ("merk", "timeout"): 1}


def test_link_is_told_when_it_ends() -> None:
    """Its event has the node's keyed hash, who dialled, how long it stood and what it carried each way."""
    recorder, written = make()
    recorder.note(facts.MeshLinkEnded("merk", NODE, NODE, 1, 60_000_000, 5, 6, 700, 800), Instant(9))

    assert written == [
        events.MeshLinkEnded(
            ts_us=WALL + 9,
            protocol="merk",
            peer_ref=keyed_reference(KEY, NODE),
            relay_id=node_id_of(NODE),
            dialled=1,
            duration_us=60_000_000,
            frames_out=5,
            frames_in=6,
            bytes_out=700,
            bytes_in=800,
        )
    ]


def test_lines_say_what_the_facts_said() -> None:
    """The journal carries each field of both kinds where its contract says."""
    recorder, written = make()
    recorder.note(facts.MeshLookup("merk", CLIENT, 3, 2, 900, "found"), Instant(5))
    recorder.note(facts.MeshLinkEnded("merk", NODE, NODE, 0, 70, 5, 6, 700, 800), Instant(6))
    lookup, link = read_rows(encode_lines(written, 0))

    assert (lookup["kind"], lookup["outcome"], lookup["latency_us"]) == ("mesh_lookup", "found", 900)
    assert lookup["attrs"] == {"asked": "3", "found": "2", "n": "1"}
    assert (link["kind"], link["peer_ref"]) == ("mesh_link_ended", keyed_reference(KEY, NODE).hex())
    assert link["attrs"] == {
        "dialled": "0",
        "duration_us": "70",
        "frames_out": "5",
        "frames_in": "6",
        "bytes_out": "700",
        "bytes_in": "800",
    }


def test_lookups_are_counted_without_a_journal() -> None:
    """Metrics do not depend on whether anything is written."""
    recorder, written = make(journal=False)
    recorder.note(facts.MeshLookup("merk", CLIENT, 1, 1, 5, "found"), Instant(1))
    recorder.note(facts.MeshLinkEnded("merk", NODE, NODE, 0, 70, 5, 6, 700, 800), Instant(2))

    assert recorder.totals()["lookups"] == {("merk", "found"): 1}
    assert written == []


def test_journal_lines_hold_no_key() -> None:
    """The lines hold nothing of a client's key, and of another node's, which is public, only what names it."""
    recorder, written = make()
    rng = random.Random(3)
    keys = [rng.randbytes(32) for _ in range(200)]
    for key in keys:
        recorder.note(facts.MeshLookup("merk", key, 1, 1, 5, "found"), Instant(1))
        recorder.note(
            facts.MeshLinkEnded("merk", bytes(reversed(key)), bytes(reversed(key)), 1, 1, 1, 1, 1, 1), Instant(2)
        )
    lines = encode_lines(written, 0)

    assert len(written) == 400
    assert not [key for key in keys if key[:8] in lines or key[:8].hex().encode() in lines]
    assert not [key for key in keys if key[::-1][8:16].hex().encode() in lines]
