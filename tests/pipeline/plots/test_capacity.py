"""What nodes carried."""

import datetime

from tests.pipeline.plots.build import words_of
from waystation.pipeline.plots import svg
from waystation.pipeline.plots.capacity import NODES_MAX, Day, plot_capacity

TODAY = Day(datetime.date(2026, 5, 29), 1_200, 41.5, 3 << 30, 7 << 30)


def test_four_panels_share_their_days() -> None:
    """Connections, messages, bytes and store are drawn, each with its unit."""
    drawing = plot_capacity({"n1": [TODAY._replace(day=datetime.date(2026, 5, 28)), TODAY]})
    words = words_of(svg(drawing))

    assert all(word in words for word in ("connections", "messages per second", "GiB", "store and journal", "29 May"))
    assert "n1 7 GiB" in drawing.alt


def test_nodes_are_bounded() -> None:
    """More nodes than colours leave the last ones out."""
    drawing = plot_capacity({f"node{number}": [TODAY] for number in range(NODES_MAX + 2)})

    assert f"node{NODES_MAX - 1} " in drawing.alt
    assert f"node{NODES_MAX} " not in drawing.alt
