"""Laws of lprp.answers: the same bytes get the same answer, for as long as they can come."""

import random
from collections import OrderedDict
from dataclasses import replace

import pytest

from tests.protocols.lprp.build_parts import limits_of
from waystation.core.instant import Instant, after_ms
from waystation.protocols.lprp.limits import DEFAULT_LIMITS as LIMITS
from waystation.protocols.lprp.relay.answers import ANSWER_LIFE_MS, Answers, Seen

NOW = Instant(7_000_000)
PACKET = random.Random(1).randbytes(208)
ANSWER, LATER_ANSWER = b"\x02" * 208, b"\x04" * 208


def after(now, microseconds):
    return Instant(now + microseconds)


def signature(number):
    return number.to_bytes(16, "big") + bytes(48)


def test_bounds_are_those_of_the_text():
    """32,768 answers for 2 * 2**19 ms, 262,144 signatures."""
    assert (LIMITS.stored_answers, ANSWER_LIFE_MS, LIMITS.known_packets) == (32_768, 1_048_576, 262_144)


def test_answer_is_found_by_equal_bytes():
    """The packet need not be the same object."""
    answers = Answers(limits_of())
    answers.keep(PACKET, ANSWER, NOW)

    assert answers.find(bytes(bytearray(PACKET))) == ANSWER


def test_packet_that_differs_in_one_bit_is_not_found():
    """No bit of the packet, signature or not, may differ; neither may its length."""
    answers = Answers(limits_of())
    answers.keep(PACKET, ANSWER, NOW)
    whole = int.from_bytes(PACKET, "big")
    twisted = [(whole ^ 1 << bit).to_bytes(len(PACKET), "big") for bit in range(8 * len(PACKET))]

    assert not any(answers.find(packet) for packet in [*twisted, PACKET[:-1], PACKET + b"\0", b""])


def test_empty_memory_knows_nothing():
    """Before anything is kept there is no answer and nothing to wait for."""
    answers = Answers(limits_of())
    answers.expire(NOW)

    assert (answers.find(PACKET), answers.next_expiry(), len(answers)) == (None, None, 0)


def test_answer_lives_exactly_its_time():
    """At 2 * 2**19 ms the answer is still there, a microsecond later it is gone."""
    answers = Answers(limits_of())
    answers.keep(PACKET, ANSWER, NOW)
    last = after_ms(NOW, 1_048_576)

    answers.expire(last)
    assert answers.find(PACKET) == ANSWER
    answers.expire(after(last, 1))
    assert answers.find(PACKET) is None
    assert len(answers) == 0


def test_next_expiry_is_the_first_moment_with_something_to_drop():
    """Whoever waits until then drops one answer, and a microsecond earlier none."""
    answers = Answers(limits_of())
    answers.keep(PACKET, ANSWER, NOW)
    answers.keep(b"later", ANSWER, after(NOW, 10))
    due = answers.next_expiry()

    answers.expire(after(due, -1))
    assert len(answers) == 2
    answers.expire(due)
    assert (len(answers), answers.next_expiry()) == (1, after(due, 10))


def test_later_answer_takes_the_place_of_the_earlier():
    """When work is done 602 becomes 202: one entry, the new bytes, and a new life."""
    answers = Answers(limits_of())
    answers.keep(PACKET, ANSWER, NOW)
    answers.keep(PACKET, LATER_ANSWER, after_ms(NOW, 1_000_000))
    answers.expire(after_ms(NOW, 2_000_000))

    assert (answers.find(PACKET), len(answers)) == (LATER_ANSWER, 1)


def test_forgotten_answer_is_gone():
    """A forgotten packet is judged again; forgetting what nobody knows changes nothing."""
    answers = Answers(limits_of())
    answers.keep(PACKET, ANSWER, NOW)
    answers.forget(PACKET)
    answers.forget(b"unknown")

    assert (answers.find(PACKET), len(answers)) == (None, 0)


def test_answers_beyond_the_bound_push_out_the_oldest():
    """32,768 are kept; the next takes the place of the first, and only of that."""
    answers = Answers(limits_of())
    for number in range(32_768):
        answers.keep(number.to_bytes(4, "big"), ANSWER, NOW)
    assert answers.find(bytes(4)) == ANSWER
    answers.keep(PACKET, ANSWER, NOW)

    assert (len(answers), answers.find(bytes(4))) == (32_768, None)
    assert answers.find((1).to_bytes(4, "big")) == answers.find(PACKET) == ANSWER


@pytest.mark.parametrize("seed", range(8))
def test_answers_agree_with_a_dumb_model(seed):
    """Any mixture of keeping, forgetting, waiting and asking gives what a list of all that happened gives."""
    rng = random.Random(seed)
    answers, model, now = Answers(limits_of(stored_answers=6)), [], NOW
    for step in range(400):
        packet = bytes([rng.randrange(10)])
        now = after_ms(now, rng.choice([0, 1, 100_000, 524_288]))
        answers.expire(now)
        model = [entry for entry in model if now - entry[2] <= 1_048_576_000]
        if rng.random() < 0.6:
            answers.keep(packet, bytes([step % 256]), now)
            model = [entry for entry in model if entry[0] != packet] + [(packet, bytes([step % 256]), now)]
            model = model[-6:]
        elif rng.random() < 0.3:
            answers.forget(packet)
            model = [entry for entry in model if entry[0] != packet]
        known = {entry[0]: entry[1] for entry in model}

        assert [answers.find(bytes([number])) for number in range(10)] == [
            known.get(bytes([number])) for number in range(10)
        ], f"seed {seed}"
        assert len(answers) == len(model), f"seed {seed}"


def test_seen_signature_is_known_until_its_time():
    """The last millisecond counts, the next does not; other signatures are not known."""
    seen = Seen(limits_of())
    seen.add(signature(1), 5_000)

    assert seen.has(signature(1), 0)
    assert seen.has(signature(1), 5_000)
    assert not seen.has(signature(2), 5_000)
    assert not seen.has(signature(1), 5_001)


def test_first_sixteen_bytes_name_a_signature():
    """Bytes from the seventeenth on do not matter, every one before does."""
    seen = Seen(limits_of())
    seen.add(bytes(64), 5_000)

    assert seen.has(bytes(16) + b"\xff" * 48, 1)
    assert not any(seen.has(bytes(index) + b"\1" + bytes(63 - index), 1) for index in range(16))


def test_signature_seen_again_keeps_its_place_and_takes_the_new_time():
    """A second add does not take a second place, and does not make it younger."""
    seen = Seen(limits_of(known_packets=2))
    seen.add(signature(1), 5_000)
    seen.add(signature(2), 5_000)
    seen.add(signature(1), 9_000)
    assert seen.has(signature(1), 9_000)
    seen.add(signature(3), 9_000)

    assert [seen.has(signature(number), 5_000) for number in (1, 2, 3)] == [False, True, True]


def test_what_is_over_takes_no_room():
    """Signatures whose time is over leave, a few at each look, so that no look is a long one."""
    seen = Seen(limits_of())
    for number in range(100):
        seen.add(signature(number), 5_000)
    seen.has(signature(0), 5_001)
    assert len(seen) == 92
    for _ in range(13):
        seen.has(signature(0), 5_001)

    assert len(seen) == 0


def test_signatures_beyond_the_bound_push_out_the_oldest():
    """A full memory gives the place of the first to the next, and only that."""
    seen = Seen(limits_of(known_packets=1_000))
    for number in range(1_000):
        seen.add(signature(number), 5_000)
    assert seen.has(signature(0), 1)
    seen.add(signature(1_000), 5_000)

    assert len(seen) == 1_000
    assert [seen.has(signature(number), 1) for number in (0, 1, 1_000)] == [False, True, True]


@pytest.mark.parametrize("seed", range(8))
def test_seen_agrees_with_a_dumb_model(seed):
    """Times in any order: a signature is known exactly until its own, unless enough others came after it."""
    rng = random.Random(seed)
    seen, model, wall_ms = Seen(limits_of(known_packets=12)), OrderedDict(), 1_000
    for _ in range(500):
        wall_ms += rng.choice([0, 0, 1, 30])
        number = rng.randrange(40)
        known = model.get(number, -1) >= wall_ms

        assert seen.has(signature(number), wall_ms) == known, f"seed {seed}"
        while model and next(iter(model.values())) < wall_ms:
            model.popitem(last=False)
        # Emptied before each add, as the model is, so that both push out the same one.
        for _ in range(2):
            seen.has(signature(number), wall_ms)
        model[number] = wall_ms + rng.randrange(60)
        seen.add(signature(number), model[number])
        if len(model) > 12:
            model.popitem(last=False)


def test_lower_limit_drops_two_for_each_that_comes():
    """A table that a reload made smaller shrinks in small steps; the newest entries stay."""
    limits = limits_of(stored_answers=8, known_packets=8)
    answers, seen = Answers(limits), Seen(limits)
    for number in range(8):
        answers.keep(signature(number), b"answer", NOW)
        seen.add(signature(number), 1_000)
    limits.now = replace(limits.now, stored_answers=4, known_packets=4)
    counts = []
    for number in range(8, 14):
        answers.keep(signature(number), b"answer", NOW)
        seen.add(signature(number), 1_000)
        counts.append((len(answers), len(seen)))

    assert counts == [(7, 7), (6, 6), (5, 5), (4, 4), (4, 4), (4, 4)]
    assert answers.find(signature(13)) is not None
    assert seen.has(signature(13), 0)
