"""The properties of a kind of link to a peer: its delay, and whether copies survive its end.

Who opens a connection, file or carrier passes one to ``BspDevice.link_up``; the device computes from it when to send a
message again. Spec: bsp 3, 5.
"""

from enum import Enum
from typing import Final, NamedTuple

__all__ = ["CAP_FACTOR", "FILE_TERMS", "LinkTerms", "Mode", "Visibility", "stream_terms"]

CAP_FACTOR: Final = 64
"""The interval between copies grows to this times the base and no further (BSP-D11)."""
# Unit of the terms of files and mailboxes.
_DAY_MS: Final = 86_400_000


class Mode(Enum):
    """The mode in which messages are sent (seed 4.2)."""

    AUTO = "auto"
    """The mode that costs fewer bytes, chosen for each message (BSP-D10)."""
    INTERACTIVE = "interactive"
    """Offered first, sent when requested."""
    BATCH = "batch"
    """Sent at once."""


class Visibility(Enum):
    """The visibility of a group to a peer; the seed has the first and the last, Briar all three."""

    INVISIBLE = "invisible"
    """Not shared: records about it are treated as about something unknown."""
    VISIBLE = "visible"
    """Messages are taken, none is sent."""
    SHARED = "shared"


class LinkTerms(NamedTuple):
    """One kind of link to a peer."""

    kind: str
    """For display: tls, wss, plain, file, merk, bhumi or lprp."""
    base_ms: int
    """Least interval before a message goes out again: twice the largest one-way latency to be expected."""
    measures: bool = False
    """Whether answers come soon enough that their round trip raises the base interval."""
    cap_ms: int | None = None
    """Longest interval between two copies; None is ``CAP_FACTOR`` times the base."""
    outlives: bool = False
    """Whether a copy still arrives when this link is gone."""
    mode: Mode | None = None
    """The only mode that makes sense here; None leaves it to the device."""

    @property
    def rank(self) -> int:
        """The order of links by delay, to choose among links that are up: streams, relays, then stores."""
        # BSP-NEWEST: a mailbox that is read tomorrow must not silence a connection.
        return 2 if self.measures else 0 if self.outlives else 1


def stream_terms(kind: str) -> LinkTerms:
    """Return the terms of a byte stream: 1 s, or twice the measured round trip (BSP-D11)."""
    # Spec 3: on streams base is max(1 s, 2 * round trip).
    return LinkTerms(kind, base_ms=1_000, measures=True)


# Spec 3: for files base is one day and the interval at most 14.
FILE_TERMS: Final = LinkTerms("file", base_ms=_DAY_MS, cap_ms=14 * _DAY_MS, outlives=True, mode=Mode.BATCH)
"""A file is carried by hand: its base interval is a day, and doubling stops at 14 days."""
