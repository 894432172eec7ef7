"""Laws of parts on the disk; the oracle for putting together is a dictionary."""

import random

import pytest

from waystation.protocols.lprp.payload.fragments import MESSAGE_BYTES_MAX, Fragment, cut, read_fragment
from waystation.sdk.lprp import parts as lprp_parts
from waystation.sdk.lprp.parts import PART_LIFE_MS, SETTLED_MS, Parts, WholeMessage
from waystation.sdk.lprp.state import LprpState

NOW_MS = 1_700_000_000_000
LIFE_MS = 1_000
ALICE, BOB, CAROL = b"a" * 32, b"b" * 32, b"c" * 32


class Rig:
    """Parts over a folder, at a time of day that tests move."""

    def __init__(self, home, life_ms=LIFE_MS):
        self.now_ms = NOW_MS
        self.state = LprpState(home, clock=lambda: self.now_ms / 1_000)
        self.parts = Parts(self.state, life_ms=life_ms)

    def put(self, sender, *parts):
        """Put parts, each in a transaction of its own, as far as there is room; return what became of each."""
        fates = []
        for part in parts:
            with self.state.transaction():
                fates.append(self.parts.put(sender, part) if self.parts.make_room(sender, part) else "no room")
        return fates

    def put_together(self, sender, parts):
        """Put many parts in one transaction; return what became of each."""
        with self.state.transaction():
            return [self.parts.put(sender, part) for part in parts]

    def tidy(self):
        """Give up what is too old."""
        with self.state.transaction():
            self.parts.tidy()

    def rows(self):
        """Return how many parts lie in the table."""
        return self.state.first("SELECT count(*) FROM parts_here")[0]


@pytest.fixture
def rig(tmp_path):
    """An open folder."""
    rig = Rig(tmp_path)
    yield rig
    rig.state.close()


def pieces(number, count=3, size=10):
    """Return the parts of a message of so many parts."""
    parts = cut(bytes([number]) * (count * size), size + 20, bytes([number]) * 16)
    return [read_fragment(part) for part in parts]


def test_message_is_whole_with_its_last_part_in_any_order_and_twice(rig):
    """It is given once, when the last missing part comes; nothing is forgotten before whoever keeps it says so."""
    one, two, three = pieces(1)
    fates = rig.put(ALICE, three, three, one, one)
    message = rig.put(ALICE, two)
    again = rig.put(ALICE, two, one)
    with rig.state.transaction():
        rig.parts.forget(ALICE, one.message_id)

    assert (fates, message, again) == ([None] * 4, [b"\1" * 30], [None] * 2)
    assert (rig.parts.parts_count, rig.rows()) == (0, 0)


def test_parts_are_counted_over_a_restart(rig, tmp_path):
    """What the disk holds is what the next life begins with."""
    rig.put(ALICE, *pieces(1)[:2])
    again = Rig(tmp_path)
    before = again.parts.parts_count
    whole = again.put(ALICE, pieces(1)[2])
    told = again.parts.whole()
    again.state.close()

    assert (before, whole) == (2, [b"\1" * 30])
    assert told == [WholeMessage(ALICE, b"\1" * 16, NOW_MS, b"\1" * 30)]


def test_senders_and_counts_are_apart(rig):
    """The same id of another sender, or with another count, is another message; the first word holds for a place."""
    one, two = pieces(1, 2)
    fates = [
        rig.put(ALICE, one),
        rig.put(BOB, two),
        rig.put(ALICE, Fragment(two.message_id, 1, 3, b"another count")),
        rig.put(ALICE, Fragment(one.message_id, 0, 2, b"another word")),
    ]

    assert fates == [[None]] * 4
    assert rig.put(ALICE, two) == [b"\1" * 20]


def test_message_longer_than_any_may_be_never_comes(rig):
    """The part that passes 64 KiB is not kept; its message waits for it until it is given up."""
    fits = MESSAGE_BYTES_MAX // 292
    parts = [Fragment(b"i" * 16, index, fits + 1, bytes(292)) for index in range(fits + 1)]
    fates = rig.put_together(ALICE, [*parts, parts[-1]])

    assert set(fates) == {None}
    assert (rig.parts.parts_count, rig.parts.whole()) == (fits, [])


def test_message_of_exactly_the_most_bytes_comes(rig):
    """65,536 bytes are not too many."""
    parts = [read_fragment(part) for part in cut(bytes(MESSAGE_BYTES_MAX), 316, b"i" * 16)]

    assert rig.put_together(ALICE, parts)[-1] == bytes(MESSAGE_BYTES_MAX)


@pytest.mark.parametrize(("life_ms", "kept_ms"), [(LIFE_MS, PART_LIFE_MS), (2 * PART_LIFE_MS, 2 * PART_LIFE_MS)])
def test_message_is_given_up_when_no_part_comes_any_more(tmp_path, life_ms, kept_ms):
    """A week after its last part, or longer where packets may be older; a part that comes keeps the others."""
    rig = Rig(tmp_path, life_ms)
    rig.put(ALICE, *pieces(1)[:1])
    rig.put(BOB, *pieces(2)[:1])
    rig.now_ms += kept_ms
    rig.put(BOB, *pieces(2)[1:2])
    rig.tidy()
    at_the_end = rig.parts.parts_count
    rig.now_ms += 1
    rig.tidy()
    left = (rig.parts.parts_count, rig.rows(), rig.put(BOB, pieces(2)[2]))
    rig.state.close()

    assert at_the_end == 3
    assert left == (2, 2, [b"\2" * 30])


def test_sender_of_too_much_loses_what_has_waited_longest_of_his_own(rig, monkeypatch):
    """Beyond his limit his stalest message goes, at once, and nobody else's, however old."""
    monkeypatch.setattr(lprp_parts, "PARTS_OF_SENDER_MAX", 4)
    rig.put(BOB, *pieces(9)[:2])
    for number in (1, 2):
        rig.now_ms += 1
        rig.put(ALICE, *pieces(number)[:2])
    rig.now_ms += 1
    rig.put(ALICE, *pieces(3)[:2])
    counts = rig.parts.parts_count

    assert counts == 6
    assert rig.put(BOB, pieces(9)[2]) == [b"\x09" * 30]
    assert rig.put(ALICE, pieces(2)[2], pieces(1)[2]) == [b"\2" * 30, None]


def test_part_pushes_out_nothing_of_its_own_message(rig, monkeypatch):
    """The message that has waited longest is whole when its last part comes at the limit."""
    monkeypatch.setattr(lprp_parts, "PARTS_OF_SENDER_MAX", 3)
    rig.put(ALICE, *pieces(1)[:2])
    rig.now_ms += 1
    rig.put(ALICE, pieces(2)[0])

    assert rig.put(ALICE, pieces(1)[2]) == [b"\1" * 30]


def test_too_much_in_all_waits_at_the_host_while_everything_is_young(rig, monkeypatch):
    """A part beyond the limit has no room until a message has waited so long that it gives way; the stalest does."""
    monkeypatch.setattr(lprp_parts, "PARTS_MAX", 4)
    rig.put(ALICE, *pieces(1)[:2])
    rig.now_ms += 1
    rig.put(BOB, *pieces(2)[:2])
    rig.now_ms = NOW_MS + SETTLED_MS - 1
    young = rig.put(CAROL, pieces(3)[0])
    rig.now_ms = NOW_MS + SETTLED_MS
    settled = rig.put(CAROL, pieces(3)[0])

    assert (young, settled) == (["no room"], [None])
    assert rig.parts.parts_count == 3
    assert rig.put(BOB, pieces(2)[2]) == [b"\2" * 30]


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_many_messages_matches_a_dictionary(rig, seed):
    """Messages of several senders, shuffled, doubled, some parts lost: given are those whose places all came."""
    rng, stream, model, given, expected = random.Random(seed), [], {}, [], []
    for number in range(12):
        sender = rng.choice((ALICE, BOB, CAROL))
        parts = [part for part in pieces(number, rng.randrange(2, 9)) if rng.random() < 0.95]
        stream += [(sender, part) for part in parts + rng.sample(parts, len(parts) // 3)]
    rng.shuffle(stream)
    with rig.state.transaction():
        for sender, part in stream:
            message = rig.parts.put(sender, part)
            given += [message] if message is not None else []
            places = model.setdefault((sender, part.message_id), {})
            is_new = len(places) < part.count
            places[part.index] = part.body
            if is_new and len(places) == part.count:
                expected.append(b"".join(places[place] for place in sorted(places)))

    assert given == expected
    assert expected
    assert rig.parts.parts_count == rig.rows() == sum(len(places) for places in model.values())
