"""Laws of engine.recorder: what is written of messages of groups, and what is never named."""

import random

import pytest

from tests.engine.build import KEY, WALL
from waystation.core import facts
from waystation.core.instant import Instant
from waystation.crypto.hashing import keyed_reference
from waystation.engine.recorder import Recorder
from waystation.journal import events
from waystation.journal.segment import encode_lines, read_rows

GROUP, MESSAGE, OTHER, PEER = (letter * 32 for letter in (b"g", b"m", b"o", b"p"))


def make(*, journal: bool = True) -> tuple[Recorder, list]:
    """Return a recorder and what it writes."""
    written: list = []
    recorder = Recorder(written.append if journal else None, random.Random(1))
    recorder.set_wall(Instant(0), WALL)
    recorder.use_key(KEY)
    return recorder, written


def ref(identity: bytes) -> bytes:
    """Return the reference of a peer, group or message."""
    return keyed_reference(KEY, identity)


def stored(message_id: bytes = MESSAGE, source: bytes | None = PEER, *above: bytes, **more) -> facts.MessageStored:
    """Return a message of 100 bytes that was delivered as the third."""
    fact = facts.MessageStored("bsp", source, "delivered", 100, GROUP, message_id, above, 1_234, 3)
    return fact._replace(**more)


def test_stored_message_is_one_event_at_once() -> None:
    """It names group, message, source and dependencies by keyed hash, and wakes nobody later."""
    recorder, written = make()
    recorder.note(stored(MESSAGE, PEER, OTHER, GROUP), Instant(5))

    assert written == [
        events.MessageStored(
            *(WALL + 5, "bsp", ref(PEER), "delivered", 100, ref(GROUP), ref(MESSAGE)),
            *(ref(OTHER) + ref(GROUP), 1_234, 3),
        )
    ]
    assert recorder.deadline() is None


def test_own_message_has_no_source() -> None:
    """A message that the node wrote itself came from nobody, and one that depends on nothing says so."""
    recorder, written = make()
    recorder.note(stored(source=None), Instant(5))

    assert (written[0].peer_ref, written[0].dependency_refs) == (None, b"")


@pytest.mark.parametrize(
    ("state", "reason"),
    [("delivered", None), ("invalid", "unparsable"), ("deleted", None)],
)
def test_change_is_one_event_and_says_why(state: str, reason: str | None) -> None:
    """Each state that a stored message comes to is told; why, only where there is a reason."""
    recorder, written = make()
    recorder.note(facts.MessageChanged("bsp", state, reason, GROUP, MESSAGE, 7), Instant(6))

    assert written == [events.MessageChanged(WALL + 6, "bsp", state, reason, ref(GROUP), ref(MESSAGE), 7)]


def test_held_message_names_the_holder() -> None:
    """It tells who holds which message, after how many copies, and how long ago they were."""
    recorder, written = make()
    recorder.note(facts.MessageHeld("bsp", PEER, GROUP, MESSAGE, 2, 9, 8, 7), Instant(7))

    assert written == [events.MessageHeld(WALL + 7, "bsp", ref(PEER), ref(GROUP), ref(MESSAGE), 2, 9, 8, 7)]


def test_dependency_joins_the_message_that_it_names() -> None:
    """The reference of a dependency is that of the message itself, so the graph can be put together again."""
    recorder, written = make()
    recorder.note(stored(OTHER), Instant(1))
    recorder.note(stored(MESSAGE, PEER, OTHER), Instant(2))
    rows = list(read_rows(encode_lines(written, 0)))

    assert rows[1]["attrs"]["dependency_refs"] == rows[0]["attrs"]["message_ref"]


def test_lines_say_what_the_facts_said() -> None:
    """The journal carries each field of the three kinds where its contract says."""
    recorder, written = make()
    recorder.note(stored(state="waiting", order=0), Instant(5))
    recorder.note(facts.MessageChanged("bsp", "invalid", "invalid_dependency", GROUP, MESSAGE, 0), Instant(6))
    recorder.note(facts.MessageHeld("bsp", PEER, GROUP, MESSAGE, 1, None, 30, 20), Instant(7))
    first, second, third = read_rows(encode_lines(written, 0))
    named = {"group_ref": ref(GROUP).hex(), "message_ref": ref(MESSAGE).hex()}

    assert (first["kind"], first["outcome"], first["bytes"]) == ("message_stored", "waiting", 100)
    assert first["attrs"] == {**named, "dependency_refs": "", "created_ms": "1234", "order": "0"}
    assert (second["kind"], second["outcome"], second["reason"]) == ("message_changed", "invalid", "invalid_dependency")
    assert second["attrs"] == {**named, "order": "0"}
    assert (third["kind"], third["peer_ref"], third["attrs"]) == (
        "message_held",
        ref(PEER).hex(),
        {**named, "copies": "1", "requested_us": "30", "sent_us": "20"},
    )


def test_totals_count_without_a_journal() -> None:
    """Metrics do not depend on whether anything is written."""
    recorder, _ = make(journal=False)
    for state in ("delivered", "waiting", "delivered"):
        recorder.note(stored(state=state), Instant(1))
    recorder.note(facts.MessageChanged("bsp", "deleted", None, GROUP, MESSAGE, 3), Instant(1))
    recorder.note(facts.MessageHeld("bsp", PEER, GROUP, MESSAGE, 1, None, None, 1), Instant(1))

    assert recorder.totals()["messages"] == {
        ("bsp", "delivered"): 2,
        ("bsp", "waiting"): 1,
        ("bsp", "deleted"): 1,
        ("bsp", "held"): 1,
    }


def test_journal_lines_hold_no_identifier() -> None:
    """Whatever facts say of groups, messages and peers, the lines hold none of them, raw or in hexadecimal."""
    recorder, written = make()
    rng = random.Random(3)
    names = [rng.randbytes(32) for _ in range(100)]
    for name in names:
        recorder.note(stored(name, name, name, group=name), Instant(1))
        recorder.note(facts.MessageChanged("bsp", "invalid", "unparsable", name, name, 0), Instant(1))
        recorder.note(facts.MessageHeld("bsp", name, name, name, 1, 3, 2, 1), Instant(1))
    lines = encode_lines(written, 0)

    assert len(written) == 300
    assert not [name for name in names if name[:8] in lines or name[:8].hex().encode() in lines]


def test_new_key_makes_other_references() -> None:
    """Messages of two weeks cannot be joined: that is what the key is changed for."""
    recorder, written = make()
    recorder.note(stored(), Instant(1))
    recorder.use_key(b"another" * 4)
    recorder.note(stored(), Instant(2))

    assert len({event.message_ref for event in written}) == 2


def test_group_can_be_put_together_again() -> None:
    """From the lines alone follow state, dependencies, root causes and how long each peer took (pipeline 7)."""
    recorder, written = make()
    names = {name: name.encode() * 32 for name in "abcdx"}
    for at, (name, state, above) in enumerate((("b", "waiting", "a"), ("a", "invalid", ""), ("c", "delivered", ""))):
        recorder.note(stored(names[name], PEER, *(names[each] for each in above), state=state, order=0), Instant(at))
    for at, (name, reason) in enumerate((("a", "unparsable"), ("b", "invalid_dependency")), 10):
        recorder.note(facts.MessageChanged("bsp", "invalid", reason, GROUP, names[name], 0), Instant(at))
    recorder.note(stored(names["d"], PEER, names["x"], state="waiting", order=0), Instant(20))
    recorder.note(facts.MessageHeld("bsp", OTHER, GROUP, names["c"], 1, 480, 470, 460), Instant(500))
    rows = list(read_rows(encode_lines(written, 0)))
    known = {row["attrs"]["message_ref"]: row for row in rows if row["kind"] == "message_stored"}
    last = {row["attrs"]["message_ref"]: (row["outcome"], row["reason"]) for row in rows if row["outcome"]}
    above = {one: bytes.fromhex(row["attrs"]["dependency_refs"]) for one, row in known.items()}
    missing = {part for all_of in above.values() for part in _parts(all_of)} - known.keys()
    (held,) = [row for row in rows if row["kind"] == "message_held"]

    assert [last[ref(names[name]).hex()] for name in "abcd"] == [
        ("invalid", "unparsable"),
        ("invalid", "invalid_dependency"),
        ("delivered", None),
        ("waiting", None),
    ]
    assert list(_parts(above[ref(names["b"]).hex()])) == [ref(names["a"]).hex()]
    assert missing == {ref(names["x"]).hex()}
    assert held["ts"] - known[held["attrs"]["message_ref"]]["ts"] == 498
    assert [held["attrs"][name] for name in ("copies", "offered_us", "requested_us", "sent_us")] == [
        *("1", "480", "470", "460"),
    ]


def _parts(references: bytes) -> list[str]:
    return [references[at : at + 16].hex() for at in range(0, len(references), 16)]
