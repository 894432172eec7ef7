"""Laws of protocols.lprp.work."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocols.lprp.build import VECTORS, vector
from waystation.protocols.lprp.work import WorkProgress, is_enough, leading_zero_bits, search, solution_of, work_hash

CHALLENGE = vector("lease_demand_work")
SOLVED = [("lease_demand_work", "lease_work"), ("relay_demand_work", "relay_work")]
SOLVED += [("whitelist_demand_work", "whitelist_work")]


def zero_bits(digest):
    """Return how many zeros a digest begins with, counted in its binary text."""
    text = "".join(f"{byte:08b}" for byte in digest)
    return len(text) - len(text.lstrip("0"))


def found_by_hand(challenge, bits, start, count):
    """Return what the plainest loop finds."""
    for counter in range(start, start + count):
        if zero_bits(hashlib.blake2b(challenge + counter.to_bytes(8, "big"), digest_size=32).digest()) >= bits:
            return counter
    return None


@pytest.mark.parametrize("case", VECTORS["pow"], ids=[f"S of {len(case['S']) // 2}" for case in VECTORS["pow"]])
def test_vector_hashes_and_counts(case):
    """Hash and zero bits of each vector are ours, and its verdict follows."""
    challenge, solution = vector(case["challenge"]), bytes.fromhex(case["S"])

    assert work_hash(challenge, solution).hex() == case["hash"]
    assert leading_zero_bits(work_hash(challenge, solution)) == case["leading_zero_bits"]
    assert is_enough(challenge, solution, case["n"]) == case.get("valid", True)


def test_search_finds_the_vector_after_as_many_tries():
    """From zero on, the first counter with 14 bits is that of the vector."""
    case = VECTORS["pow"][0]

    assert search(CHALLENGE, 14, 0, case["tries"]) == case["tries"] - 1 == int(case["S"], 16)
    assert search(CHALLENGE, 14, 0, case["tries"] - 1) is None


@pytest.mark.parametrize(("demand", "work"), SOLVED)
def test_work_of_the_story_solves_its_demand(demand, work):
    """Behind its reference each 101 of the vectors carries what was searched for."""
    solution = vector(work)[208:]

    assert is_enough(vector(demand), solution, 12)
    assert solution == solution_of(int.from_bytes(solution, "big"))
    assert not is_enough(vector(demand), solution, 16)


def test_zero_bits_are_counted_from_the_first_bit():
    """The most significant bit of the first byte comes first; what follows the first one does not count (LPRP-D7)."""
    for place in range(257):
        bare = (1 << 256 >> 1 >> place).to_bytes(32, "big")
        full = ((1 << 256 >> place) - 1).to_bytes(32, "big")

        assert leading_zero_bits(bare) == leading_zero_bits(full) == place


@given(st.binary(min_size=32, max_size=32))
def test_zero_bits_agree_with_the_binary_text(digest):
    """Counting numbers and counting letters is the same."""
    assert leading_zero_bits(digest) == zero_bits(digest)


@pytest.mark.parametrize("solution_bytes", [0, 1, 8, 300])
def test_enough_means_at_least(solution_bytes):
    """As many bits as there are suffice, one more does not, and none is always enough."""
    solution = b"s" * solution_bytes
    bits = leading_zero_bits(work_hash(CHALLENGE, solution))

    assert is_enough(CHALLENGE, solution, bits)
    assert is_enough(CHALLENGE, solution, 0)
    assert not is_enough(CHALLENGE, solution, bits + 1)


def test_hash_is_made_for_32_bytes():
    """It is no BLAKE2b of 64 bytes cut in two, and it has no key (LPRP-D7)."""
    text = CHALLENGE + b"abc"

    assert work_hash(CHALLENGE, b"abc") == hashlib.blake2b(text, digest_size=32).digest()
    assert work_hash(CHALLENGE, b"abc") != hashlib.blake2b(text).digest()[:32]


def test_one_solution_serves_one_challenge():
    """The hash covers the whole challenge, the host's signature included, not only what it is about."""
    for at in (0, 63, 64, 100, 143, 144, 207):
        other = CHALLENGE[:at] + bytes((CHALLENGE[at] ^ 1,)) + CHALLENGE[at + 1 :]

        assert work_hash(other, b"") != work_hash(CHALLENGE, b"")


@pytest.mark.parametrize("bits", range(13))
@pytest.mark.parametrize("start", [0, 255, 77_777, 2**63 - 100, 2**64 - 2_000])
def test_search_finds_what_a_dumb_loop_finds(bits, start):
    """The first counter that is enough, or None, wherever the search begins."""
    assert search(CHALLENGE, bits, start, 2_000) == found_by_hand(CHALLENGE, bits, start, 2_000)


@pytest.mark.parametrize("bits", [8, 10])
@pytest.mark.parametrize("step", [1, 7, 256])
def test_search_in_steps_finds_the_same(bits, step):
    """A search that is interrupted and resumed skips nothing."""
    whole = search(CHALLENGE, bits, 0, 10_000)
    starts = range(0, 10_000, step)

    found = next(counter for at in starts if (counter := search(CHALLENGE, bits, at, step)) is not None)

    assert found == whole


def test_search_keeps_to_its_range():
    """Neither the counter behind the range nor one in front of it is tried."""
    first = search(CHALLENGE, 9, 0, 10_000)

    assert search(CHALLENGE, 9, first, 1) == first
    assert search(CHALLENGE, 9, first - 3, 3) is None
    assert search(CHALLENGE, 9, first + 1, 10_000) > first
    assert search(CHALLENGE, 0, 5, 0) is None


def test_demand_of_all_bits_is_not_met():
    """A bound of 256 bits is a bound, no error."""
    assert search(CHALLENGE, 256, 0, 100) is None


@pytest.mark.parametrize("counter", [0, 1, 0x212F, 2**32, 2**64 - 1])
def test_solution_is_eight_bytes_big_endian(counter):
    """The counter is the solution and the solution the counter (LPRP-D7A)."""
    assert len(solution_of(counter)) == 8
    assert int(solution_of(counter).hex(), 16) == counter


def test_progress_says_what_is_to_be_expected():
    """Rate, average and chance follow from tries and time; what is left never shrinks, since each try is new."""
    progress = WorkProgress(bits=10, hashes=1_024, elapsed_s=2.0)

    assert (progress.rate, progress.expected_hashes, progress.remaining_s) == (512.0, 1_024, 2.0)
    assert progress.chance == pytest.approx(0.632, abs=0.001)
    assert WorkProgress(10, 0, 0.0).remaining_s is None
