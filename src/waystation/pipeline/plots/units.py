"""Formats durations, sizes, shares, times and untrusted labels as short text for the page and its plots.

Report and plots call it for every number they show. ``label`` shortens text that peers chose, so that it cannot break a
plot.
"""

import datetime
from typing import Final

__all__ = ["bytes_text", "counted", "duration_text", "label", "moment_text", "share_text"]

_DURATIONS: Final = ((86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"))
_US_PER_MS: Final = 1_000
_BYTES: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_LABEL_MAX: Final = 24


def duration_text(duration_us: int) -> str:
    """Return a duration in microseconds with three digits and the unit that suits it: ``1.21 ms``."""
    for size, unit in _DURATIONS:
        if duration_us >= size:
            return f"{duration_us / size:.3g} {unit}"
    return f"{duration_us / _US_PER_MS:.3g} ms"


def bytes_text(size: int) -> str:
    """Return a number of bytes with three digits and the unit that suits it: ``1.5 MiB``."""
    for unit_bytes, unit in _BYTES:
        if abs(size) >= unit_bytes:
            return (
                f"{size / unit_bytes:,.3g} {unit}"
                if abs(size) < 1_000 * unit_bytes
                else f"{size / unit_bytes:,.0f} {unit}"
            )
    return f"{size} B"


def share_text(ratio: float | None) -> str:
    """Return a share of 0 to 1 in percent, a hyphen for none; only a whole share is called 100 %."""
    if ratio is None:
        return "-"
    text = f"{100 * ratio:.1f}"
    return f"{'99.9' if text == '100.0' and ratio < 1 else text.removesuffix('.0')} %"


def moment_text(at_s: int) -> str:
    """Return seconds since 1970 as date and minute in UTC."""
    return f"{datetime.datetime.fromtimestamp(at_s, datetime.UTC):%Y-%m-%d %H:%M}"


def counted(n: int, noun: str) -> str:
    """Return a number with its noun: ``1 rule``, ``2 rules``."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def label(text: str) -> str:
    """Return a word from outside as plots may hold it: printable ASCII, at most 24 characters."""
    plain = "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in text)
    return plain if len(plain) <= _LABEL_MAX else f"{plain[: _LABEL_MAX - 2]}.."
