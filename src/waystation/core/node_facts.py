"""Facts about the node itself, such as start, stop and minute samples; their protocol is ``node``.

The recorder writes start, stop and counts of anonymous connections, ``server.sampler`` the samples, the segment writer
the first and last line of each segment. ``core.facts`` has the facts that relays report.
"""

from typing import Annotated, NamedTuple

from waystation.core.fields import BYTES_IN, BYTES_OUT, operational, public

__all__ = [
    "AnonymousCounted",
    "NodeFact",
    "NodeSampled",
    "NodeStarted",
    "NodeStopped",
    "SegmentOpened",
    "SegmentSealed",
]


class SegmentOpened(NamedTuple):
    """First line of a segment."""

    format: Annotated[str, public("format", "Name or version of the line format.")]
    node_id: Annotated[str, public("node_id", "Node that wrote the segment, 16 hexadecimal digits.")]
    segment: Annotated[str, public("segment", "Name of the segment.")]


class SegmentSealed(NamedTuple):
    """Last line of a finished segment."""

    rows: Annotated[int, public("rows", "Lines in the segment, first and last included.")]


class NodeStarted(NamedTuple):
    """The node began to listen."""

    version: Annotated[str, public("version", "Version of waystation.")]


class NodeSampled(NamedTuple):
    """What the node was and did in one minute.

    The minute ends at the event's time; the first one after a start may be shorter.
    """

    connections: Annotated[int, operational("connections", "Connections that were open when a sample was taken.")]
    messages: Annotated[
        int, operational("messages", "What was judged in a minute: attempts, packets, messages of groups.")
    ]
    bytes_in: Annotated[int, BYTES_IN]
    bytes_out: Annotated[int, BYTES_OUT]
    cpu_us: Annotated[int, operational("cpu_us", "Processor time that the process spent in a minute, microseconds.")]
    memory_bytes: Annotated[int, operational("memory_bytes", "Resident memory of the process.")]
    store_bytes: Annotated[int, operational("store_bytes", "Bytes of the store and what lies beside it.")]
    journal_bytes: Annotated[int, operational("journal_bytes", "Bytes of the sealed segments of journal and archive.")]


class NodeStopped(NamedTuple):
    """The node ended in good order."""

    reason: str


class AnonymousCounted(NamedTuple):
    """Anonymous connections of one minute, only ever counted.

    ``opened`` counts every connection, since none has identified itself yet; ``closed`` those that never did.
    """

    protocol: str
    opened: Annotated[int, public("opened", "Connections opened in the minute, identified later or not.")]
    closed: Annotated[int, public("closed", "Connections closed in the minute that never identified themselves.")]


NodeFact = SegmentOpened | SegmentSealed | NodeStarted | NodeSampled | NodeStopped | AnonymousCounted
"""What the node itself reports."""
