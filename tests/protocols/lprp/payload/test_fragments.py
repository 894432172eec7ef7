"""Laws of protocols.lprp.fragments; the oracle for putting together is a dictionary."""

import random

import pytest

from waystation.core.errors import LocalError
from waystation.core.instant import Instant, after_ms
from waystation.protocols.lprp.payload.fragments import (
    FRAGMENT_HEADER_BYTES,
    FRAGMENT_OVERHEAD_BYTES,
    FRAGMENTS_MAX,
    MESSAGE_BYTES_MAX,
    Fragment,
    Reassembly,
    ReassemblyLimits,
    cut,
    read_fragment,
)
from waystation.protocols.lprp.payload.sealing import ONE_TIME_PLAINTEXT_MAX, REUSED_PLAINTEXT_MAX

ALICE, BOB, CAROL = b"a" * 32, b"b" * 32, b"c" * 32
NOW = Instant(5_000_000)


def name(number):
    return number.to_bytes(16, "big")


def pieces(number, size=1_000, budget=100):
    return cut(bytes([number % 256]) * size, budget, name(number))


def put_together(fragments, *, reassembly=None, sender=ALICE):
    """What each fragment gave, None left out."""
    reassembly = reassembly or Reassembly()
    given = [reassembly.take(sender, fragment, NOW) for fragment in fragments]
    return [message for message in given if message is not None]


def lie(fragment, *, index=None, count=None, message_id=None):
    parts = [fragment[:16], fragment[16:18], fragment[18:20], fragment[20:]]
    for at, value in ((1, index), (2, count)):
        if value is not None:
            parts[at] = value.to_bytes(2, "big")
    return (message_id or parts[0]) + b"".join(parts[1:])


@pytest.mark.parametrize("budget", [84, 100, REUSED_PLAINTEXT_MAX, ONE_TIME_PLAINTEXT_MAX])
@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 271, 272, 273, 5_000, MESSAGE_BYTES_MAX])
def test_message_comes_back_whole(size, budget):
    """Every size up to the largest, in any order: the message comes with its last fragment and not before."""
    message = random.Random(size).randbytes(size)
    fragments = cut(message, budget, name(1))
    random.Random(budget).shuffle(fragments)
    reassembly = Reassembly()

    assert all(len(fragment) <= budget for fragment in fragments)
    assert put_together(fragments[:-1], reassembly=reassembly) == []
    assert reassembly.take(ALICE, fragments[-1], NOW) == message
    assert reassembly.sizes() == {"messages": 0, "bytes": 0, "remembered": 1}


def test_layout_of_a_fragment():
    """Id 16, place 2, count 2, big-endian, then the bytes; all but the last fragment are full."""
    fragments = cut(b"abcdefg", FRAGMENT_HEADER_BYTES + 3, name(7))

    assert fragments == [
        name(7) + b"\0\0\0\3abc",
        name(7) + b"\0\1\0\3def",
        name(7) + b"\0\2\0\3g",
    ]


def test_fragment_is_read_as_it_was_cut():
    """Whoever keeps fragments himself can ask what each one is; what is none reads as None."""
    (_, second) = cut(b"abcd", FRAGMENT_HEADER_BYTES + 3, name(7))

    assert read_fragment(second) == Fragment(name(7), 1, 2, b"d")
    assert read_fragment(second[: FRAGMENT_HEADER_BYTES - 1]) is None
    assert read_fragment(b"a text that is no fragment") is None


def test_largest_message_in_sealed_packets():
    """65,536 bytes take 222 one-time packets."""
    assert len(cut(bytes(MESSAGE_BYTES_MAX), ONE_TIME_PLAINTEXT_MAX, name(1))) == 222


@pytest.mark.parametrize(
    ("size", "budget"),
    [(MESSAGE_BYTES_MAX + 1, 316), (1, FRAGMENT_HEADER_BYTES), (FRAGMENTS_MAX + 1, FRAGMENT_HEADER_BYTES + 1)],
)
def test_message_that_cannot_be_cut_is_refused(size, budget):
    """Too long, or in more fragments than there may be: the caller's mistake."""
    with pytest.raises(LocalError):
        cut(bytes(size), budget, name(1))


def test_fragments_that_come_twice_count_once():
    """Doubles before and after the end give nothing more."""
    fragments = pieces(1)

    assert put_together([*fragments[:3], *fragments[:3], *fragments, *fragments]) == [bytes([1]) * 1_000]


def test_first_word_holds_for_a_place():
    """Another fragment for a place that is taken is ignored, whatever it says."""
    fragments = pieces(1)
    other = fragments[0][:20] + b"other bytes"

    assert put_together([fragments[0], other, *fragments[1:]]) == [bytes([1]) * 1_000]


def test_senders_do_not_share_ids():
    """The same id of two senders is two messages."""
    reassembly = Reassembly()
    mine, yours = cut(b"m" * 100, 84, name(1)), cut(b"y" * 100, 84, name(1))
    given = [
        reassembly.take(sender, f, NOW)
        for pair in zip(mine, yours, strict=True)
        for sender, f in zip((ALICE, BOB), pair, strict=True)
    ]

    assert given == [None, None, b"m" * 100, b"y" * 100]


def test_lying_counts_get_nowhere():
    """A fragment that tells another count than the first of its message is dropped; the honest ones complete it."""
    fragments = pieces(1)
    reassembly = Reassembly()
    reassembly.take(ALICE, fragments[0], NOW)
    for count in (1, 12, 14, FRAGMENTS_MAX):
        assert reassembly.take(ALICE, lie(fragments[0], index=0, count=count), NOW) is None

    assert reassembly.dropped_count == 4
    assert put_together(fragments[1:], reassembly=reassembly) == [bytes([1]) * 1_000]


@pytest.mark.parametrize(
    ("index", "count"), [(0, 0), (1, 1), (13, 13), (65_535, 13), (0, FRAGMENTS_MAX + 1), (65_534, 65_535)]
)
def test_impossible_places_are_dropped(index, count):
    """A place at or beyond the count, a count of nothing, or of more than there may be."""
    reassembly = Reassembly()

    assert reassembly.take(ALICE, lie(pieces(1)[0], index=index, count=count), NOW) is None
    assert reassembly.sizes()["messages"] == 0
    assert reassembly.dropped_count == 1


@pytest.mark.parametrize("size", range(FRAGMENT_HEADER_BYTES))
def test_fragment_cut_in_its_header_is_dropped(size):
    """Any bytes may arrive."""
    reassembly = Reassembly()

    assert reassembly.take(ALICE, pieces(1)[0][:size], NOW) is None
    assert reassembly.dropped_count == 1


def test_message_longer_than_allowed_is_given_up():
    """Fragments that together pass 64 KiB are dropped with all that came before, at the one that passes."""
    reassembly = Reassembly()
    big = [name(1) + place.to_bytes(2, "big") + (300).to_bytes(2, "big") + bytes(292) for place in range(300)]
    fits = MESSAGE_BYTES_MAX // 292
    assert put_together(big[:fits], reassembly=reassembly) == []
    assert reassembly.sizes()["messages"] == 1
    reassembly.take(ALICE, big[fits], NOW)

    assert reassembly.sizes() == {"messages": 0, "bytes": 0, "remembered": 0}
    assert reassembly.dropped_count == 1


def test_bytes_are_counted_with_what_keeping_them_costs():
    """An empty fragment is not free."""
    reassembly = Reassembly()
    reassembly.take(ALICE, lie(name(1) + bytes(4), index=0, count=2), NOW)
    reassembly.take(ALICE, pieces(2)[0], NOW)

    assert reassembly.sizes()["bytes"] == 2 * FRAGMENT_OVERHEAD_BYTES + 80


def test_sender_of_many_messages_loses_his_oldest():
    """One more unfinished message than allowed pushes out the first of the same sender, and nobody else's."""
    reassembly = Reassembly(ReassemblyLimits(messages_per_sender=2))
    reassembly.take(BOB, pieces(9)[0], NOW)
    for number in (1, 2, 3):
        reassembly.take(ALICE, pieces(number)[0], NOW)

    assert put_together(pieces(9)[1:], reassembly=reassembly, sender=BOB) == [bytes([9]) * 1_000]
    assert put_together(pieces(2)[1:], reassembly=reassembly) == [bytes([2]) * 1_000]
    assert put_together(pieces(1)[1:], reassembly=reassembly) == []


def test_sender_of_many_bytes_loses_his_oldest():
    """Beyond his bytes the oldest message goes, until it fits."""
    each = 80 + FRAGMENT_OVERHEAD_BYTES
    reassembly = Reassembly(ReassemblyLimits(bytes_per_sender=3 * each))
    for number in (1, 2, 3):
        reassembly.take(ALICE, pieces(number)[0], NOW)
    assert reassembly.sizes() == {"messages": 3, "bytes": 3 * each, "remembered": 0}
    reassembly.take(ALICE, pieces(3)[1], NOW)

    assert reassembly.sizes() == {"messages": 2, "bytes": 3 * each, "remembered": 0}


def test_too_many_messages_in_all_push_out_the_fullest_senders():
    """Whoever holds most makes room for others; who holds little is left alone."""
    reassembly = Reassembly(ReassemblyLimits(messages_max=3))
    for number in (1, 2):
        put_together(pieces(number)[:4], reassembly=reassembly)
    reassembly.take(BOB, pieces(8)[0], NOW)
    reassembly.take(CAROL, pieces(9)[0], NOW)

    assert reassembly.sizes()["messages"] == 3
    assert put_together(pieces(8)[1:], reassembly=reassembly, sender=BOB) == [bytes([8]) * 1_000]
    assert put_together(pieces(2)[4:], reassembly=reassembly) == [bytes([2]) * 1_000]
    assert put_together(pieces(1)[4:], reassembly=reassembly) == []


def test_many_tiny_beginnings_push_out_no_long_message():
    """Senders who begin one message each and bring next to nothing push out each other, not who is nearly through."""
    reassembly = Reassembly(ReassemblyLimits(messages_max=5))
    put_together(pieces(1)[:-1], reassembly=reassembly)
    for number in range(50):
        reassembly.take(number.to_bytes(32, "big"), lie(name(number) + bytes(4), index=0, count=2), NOW)

    assert reassembly.sizes()["messages"] == 5
    assert put_together(pieces(1)[-1:], reassembly=reassembly) == [bytes([1]) * 1_000]


def test_too_many_bytes_in_all_push_out_the_fullest_sender():
    """The same for bytes."""
    each = 80 + FRAGMENT_OVERHEAD_BYTES
    reassembly = Reassembly(ReassemblyLimits(bytes_max=5 * each))
    put_together(pieces(1)[:4], reassembly=reassembly)
    small = pieces(2, size=250)
    put_together(small[:2], reassembly=reassembly, sender=BOB)

    assert reassembly.sizes() == {"messages": 1, "bytes": 2 * each, "remembered": 0}
    assert put_together(small[2:], reassembly=reassembly, sender=BOB) == [bytes([2]) * 250]


def test_message_that_lacks_fragments_is_given_up_in_time():
    """After its life, counted from its first fragment, nothing of it is left."""
    reassembly = Reassembly(ReassemblyLimits(lifetime_ms=1_000))
    fragments = pieces(1)
    reassembly.take(ALICE, fragments[0], NOW)
    assert reassembly.deadline() == after_ms(NOW, 1_000)
    reassembly.take(ALICE, fragments[1], after_ms(NOW, 999))
    reassembly.wake(after_ms(NOW, 1_000))

    assert reassembly.sizes() == {"messages": 0, "bytes": 0, "remembered": 0}
    assert reassembly.deadline() is None


def test_time_counts_even_when_nobody_wakes_it():
    """A fragment that comes too late begins anew instead of completing what should be gone."""
    reassembly = Reassembly(ReassemblyLimits(lifetime_ms=1_000))
    first, last = cut(b"x" * 100, 84, name(1))
    reassembly.take(ALICE, first, NOW)

    assert reassembly.take(ALICE, last, after_ms(NOW, 1_000)) is None
    assert reassembly.sizes()["messages"] == 1


def test_memory_of_complete_messages_is_bounded():
    """Beyond the bound the oldest is forgotten, and would be given again."""
    reassembly = Reassembly(ReassemblyLimits(remembered_max=2))
    for number in (1, 2, 3):
        put_together(pieces(number), reassembly=reassembly)

    assert put_together(pieces(3), reassembly=reassembly) == []
    assert put_together(pieces(1), reassembly=reassembly) == [bytes([1]) * 1_000]
    assert reassembly.sizes()["remembered"] == 2


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_many_messages_matches_a_dictionary(seed):
    """Messages of several senders, shuffled, doubled, some fragments lost: given are those whose places all came."""
    rng, reassembly, model, given, expected = random.Random(seed), Reassembly(), {}, [], []
    stream = []
    for number in range(20):
        sender = rng.choice((ALICE, BOB, CAROL))
        fragments = cut(rng.randbytes(rng.randrange(2_000)), 100, name(number))
        kept = [fragment for fragment in fragments if rng.random() < 0.97]
        stream += [(sender, fragment, len(fragments)) for fragment in kept + rng.sample(kept, len(kept) // 3)]
    rng.shuffle(stream)
    for sender, fragment, count in stream:
        message = reassembly.take(sender, fragment, NOW)
        given += [message] if message is not None else []
        places = model.setdefault(fragment[:16], {})
        is_new = len(places) < count
        places[fragment[16:18]] = fragment[20:]
        if is_new and len(places) == count:
            expected.append(b"".join(places[place] for place in sorted(places)))

    assert given == expected
    assert expected


def test_limits_hold_against_anything():
    """Ten thousand random fragments of random senders: no limit is passed, and the books stay right."""
    limits = ReassemblyLimits(
        messages_per_sender=3, bytes_per_sender=2_000, messages_max=7, bytes_max=4_000, lifetime_ms=50, remembered_max=5
    )
    rng, reassembly, now = random.Random(1), Reassembly(limits), NOW
    for _ in range(10_000):
        now = Instant(now + rng.randrange(4_000))
        head = name(rng.randrange(6)) + rng.randrange(4).to_bytes(2, "big") + rng.randrange(5).to_bytes(2, "big")
        reassembly.take(bytes([rng.randrange(5)]) * 32, head + bytes(rng.randrange(300)), now)
        sizes = reassembly.sizes()

        assert sizes["messages"] <= 7 and sizes["bytes"] <= 4_000 and sizes["remembered"] <= 5
        assert sizes["bytes"] == sum(partial.held_bytes for partial in reassembly._partials.values())
        assert all(len(own) <= 3 for own in reassembly._of_sender.values())
        assert all(0 < held <= 2_000 for held in reassembly._held_of.values())
    reassembly.wake(after_ms(now, 50))

    assert reassembly._of_sender == reassembly._held_of == {}
