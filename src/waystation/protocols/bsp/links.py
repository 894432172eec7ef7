"""What a device must know of a way to a peer: how slow it is, and whether copies survive its end. Spec: bsp 3, 5."""

from enum import Enum
from typing import Final, NamedTuple

__all__ = ["CAP_FACTOR", "FILE_TERMS", "LinkTerms", "Mode", "Visibility", "stream_terms"]

CAP_FACTOR: Final = 64
"""The interval between copies grows to this times the base and no further (BSP-D11)."""
_DAY_MS: Final = 86_400_000


class Mode(Enum):
    """How messages are handed over (seed 4.2)."""

    AUTO = "auto"
    """Whichever costs fewer bytes, judged message by message (BSP-D10)."""
    INTERACTIVE = "interactive"
    """Offered first, sent when requested."""
    BATCH = "batch"
    """Sent at once."""


class Visibility(Enum):
    """What a group is to a peer; the seed knows the first and the last, Briar all three."""

    INVISIBLE = "invisible"
    """Not shared: records about it are treated as about something unknown."""
    VISIBLE = "visible"
    """Messages are taken, none is sent."""
    SHARED = "shared"


class LinkTerms(NamedTuple):
    """One kind of way to a peer."""

    kind: str
    """For people: tls, wss, plain, file, merk, bhumi or lprp."""
    base_ms: int
    """Least interval before a message goes out again: twice the largest one-way latency to be expected."""
    measures: bool = False
    """Whether answers come soon enough that their round trip means something; it then raises the base."""
    cap_ms: int | None = None
    """Longest interval between two copies; None is ``CAP_FACTOR`` times the base."""
    outlives: bool = False
    """Whether what was handed over still arrives when this way is gone."""
    mode: Mode | None = None
    """The only mode that makes sense here; None leaves it to the device."""

    @property
    def rank(self) -> int:
        """How soon word gets through, for choosing among ways that are up: streams, relays, what stores."""
        return 2 if self.measures else 0 if self.outlives else 1


def stream_terms(kind: str) -> LinkTerms:
    """Return the terms of a byte stream: 1 s, or twice the measured round trip (BSP-D11)."""
    return LinkTerms(kind, base_ms=1_000, measures=True)


FILE_TERMS: Final = LinkTerms("file", base_ms=_DAY_MS, cap_ms=14 * _DAY_MS, outlives=True, mode=Mode.BATCH)
"""Somebody carries a file: a day is soon, and after 14 days we stop doubling."""
