"""Frames of ``bronze.events`` that hold given events, and the same events as plain rows."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from tests.journal.build import NOON_US, segment_bytes
from waystation.journal.events import Event
from waystation.journal.segment import SegmentName, read_rows
from waystation.pipeline.transforms.ingest import accept, parse_lines

PARTS = pytest.mark.parametrize("parts", [7, pytest.param(1, marks=pytest.mark.slow)])
"""Into how many partitions a frame is cut: the same plain counting must come out of all."""

Told = Mapping[str, list[Event]]
"""Node to what it recorded."""


def events_frame(spark: Any, told: Told) -> Any:
    """Return what a lake holds after these nodes shipped what they recorded."""
    lines = [(line, name.text) for name, data in _segments(told) for line in data.decode().splitlines()]
    return accept(parse_lines(spark.createDataFrame(lines, "value string, segment string")))


def plain_events(told: Told) -> list[dict[str, Any]]:
    """Return the same as rows, each with its ``node_id``."""
    return [{**row, "node_id": name.node_id} for name, data in _segments(told) for row in read_rows(data)]


def rows_of(frame: Any, *columns: str) -> list[tuple[Any, ...]]:
    """Return rows as sorted tuples; bytes are bytes."""
    rows = frame.select(*(columns or frame.columns)).collect()
    plain = [tuple(bytes(cell) if isinstance(cell, bytearray) else cell for cell in row) for row in rows]
    return sorted(plain, key=repr)


def _segments(told: Told) -> Iterable[tuple[SegmentName, bytes]]:
    for node_id, events in told.items():
        name = SegmentName(node_id, NOON_US, 1)
        yield name, segment_bytes(name, events)
