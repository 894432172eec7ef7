"""Numbers as people read them."""

import pytest

from waystation.pipeline.plots.units import bytes_text, counted, duration_text, label, moment_text, share_text


@pytest.mark.parametrize(
    ("duration_us", "expected"),
    [(0, "0 ms"), (1, "0.001 ms"), (1_213, "1.21 ms"), (2_000_000, "2 s"), (90_000_000, "1.5 min")],
)
def test_durations_have_the_unit_that_suits(duration_us, expected) -> None:
    """Microseconds become milliseconds, seconds, minutes."""
    assert duration_text(duration_us) == expected


def test_long_durations() -> None:
    """Hours and days have a unit too."""
    assert (duration_text(7_200_000_000), duration_text(86_400_000_000)) == ("2 h", "1 d")


@pytest.mark.parametrize(
    ("size", "expected"),
    [(0, "0 B"), (1_023, "1023 B"), (1_536, "1.5 KiB"), (1_023 << 20, "1,023 MiB"), (-(3 << 30), "-3 GiB")],
)
def test_bytes_have_the_unit_that_suits(size, expected) -> None:
    """A shrinking store has a sign, and no number is written with a power of ten."""
    assert bytes_text(size) == expected


@pytest.mark.parametrize(
    ("ratio", "expected"), [(None, "-"), (0.0, "0 %"), (0.775, "77.5 %"), (0.99999, "99.9 %"), (1.0, "100 %")]
)
def test_shares_do_not_flatter(ratio, expected) -> None:
    """Only a whole share is 100 %."""
    assert share_text(ratio) == expected


def test_words_from_outside_become_plain() -> None:
    """A label is printable ASCII and short."""
    assert label("a\x00é" + "b" * 30) == "a??" + "b" * 19 + ".."


def test_numbers_have_their_noun() -> None:
    """One is singular, everything else plural."""
    assert [counted(n, "rule") for n in (0, 1, 2_000)] == ["0 rules", "1 rule", "2,000 rules"]


def test_moments_are_utc() -> None:
    """Seconds become date and minute, whatever the machine's zone."""
    assert moment_text(1_780_056_000) == "2026-05-29 12:00"
