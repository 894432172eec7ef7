"""Prometheus metrics of one node, from numbers that the engine keeps anyway.

Labels come from closed enums only, so the number of series is fixed whatever peers do.
"""

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

__all__ = ["render_metrics"]


def render_metrics(status: Callable[[], dict[str, Any]]) -> bytes:
    """Return the text exposition of a node's status.

    Args:
        status: Returns what ``NodeServer.status`` returns.
    """
    registry = CollectorRegistry()
    registry.register(_NodeCollector(status))
    return generate_latest(registry)


class _NodeCollector(Collector):
    """Reads one status document."""

    def __init__(self, status: Callable[[], dict[str, Any]]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families; called by the registry."""
        status = self._status()
        yield GaugeMetricFamily("waystation_uptime_seconds", "Since the node started.", value=status["uptime_s"])
        sizes = GaugeMetricFamily(
            "waystation_size", "How much of each bounded thing there is.", labels=["protocol", "thing"]
        )
        for protocol, things in status["sizes"].items():
            for thing, number in things.items():
                sizes.add_metric([protocol, thing], number)
        yield sizes
        deliveries = CounterMetricFamily(
            "waystation_deliveries",
            "Delivery attempts by outcome; of merk each frame is one, and so is each part of a file.",
            labels=["protocol", "outcome"],
        )
        for (protocol, outcome), number in status["totals"]["deliveries"].items():
            deliveries.add_metric([protocol, outcome], number)
        yield deliveries
        refusals = CounterMetricFamily(
            "waystation_refusals", "What was refused or dropped, by reason.", labels=["protocol", "reason"]
        )
        for (protocol, reason), number in status["totals"]["refusals"].items():
            refusals.add_metric([protocol, reason], number)
        yield refusals
        packets = CounterMetricFamily(
            "waystation_packets", "Packets judged, by verdict.", labels=["protocol", "verdict"]
        )
        for (protocol, verdict), number in status["totals"]["packets"].items():
            packets.add_metric([protocol, verdict], number)
        yield packets
        lookups = CounterMetricFamily(
            "waystation_mesh_lookups", "Clients looked for among other nodes, by result.", labels=["protocol", "result"]
        )
        for (protocol, result), number in status["totals"]["lookups"].items():
            lookups.add_metric([protocol, result], number)
        yield lookups
        rows = CounterMetricFamily(
            "waystation_written_rows", "Rows for the pipeline: written, dropped or lost.", labels=["file", "fate"]
        )
        for name, counts in status["written"].items():
            for fate in ("written", "dropped", "lost"):
                rows.add_metric([name, fate], counts[f"rows_{fate}"])
        yield rows
