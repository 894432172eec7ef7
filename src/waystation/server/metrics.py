"""Prometheus metrics of one node, from numbers that the engine keeps anyway.

Labels come from closed enums, or from what the operator's own pipeline has signed, and that has a limit: the number of
series is bounded whatever peers do.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

__all__ = ["RELAYS_MAX", "render_metrics"]

RELAYS_MAX: Final = 100
"""Most relays whose score is shown, the worst first."""


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
        yield _counter(
            status,
            "deliveries",
            "Delivery attempts by outcome; of merk each frame is one, and so is each part of a file.",
            "outcome",
        )
        yield _counter(status, "refusals", "What was refused or dropped, by reason.", "reason")
        yield _counter(status, "packets", "Packets judged, by verdict.", "verdict")
        yield _counter(
            status, "lookups", "Clients looked for among other nodes, by result.", "result", "waystation_mesh_lookups"
        )
        yield _counter(status, "leases", "Leases of tenants, by what became of them.", "change")
        yield _counter(status, "work", "Proofs of work judged, by verdict.", "verdict")
        yield _counter(
            status, "messages", "Messages of groups, by what became of them; held: a peer came to hold one.", "change"
        )
        yield from _datagram_metrics(status)
        yield from _policy_metrics(status)
        rows = CounterMetricFamily(
            "waystation_written_rows", "Rows for the pipeline: written, dropped or lost.", labels=["file", "fate"]
        )
        for name, counts in status["written"].items():
            for fate in ("written", "dropped", "lost"):
                rows.add_metric([name, fate], counts[f"rows_{fate}"])
        yield rows


def _counter(status: dict[str, Any], name: str, help_text: str, label: str, metric: str = "") -> Metric:
    """Return one table of totals as a family."""
    family = CounterMetricFamily(metric or f"waystation_{name}", help_text, labels=["protocol", label])
    for (protocol, word), number in status["totals"][name].items():
        family.add_metric([protocol, word], number)
    return family


def _policy_metrics(status: dict[str, Any]) -> Iterator[Metric]:
    """Yield what is in force of what the pipeline published, and what it did."""
    policy = status["policy"]
    rules = policy["sizes"]["rules"]
    yield GaugeMetricFamily("waystation_policy_rules", "Published rules in force, expired ones included.", value=rules)
    matches = CounterMetricFamily(
        "waystation_policy_matches",
        "How often a published rule was met; enforce: it was carried out, shadow: it was only counted.",
        labels=["rule", "action", "mode"],
    )
    for match in policy["matches"]:
        matches.add_metric([match["rule"], match["action"], match["mode"]], match["n"])
    yield matches
    if policy["age_s"] is not None:
        age = "Since the end of what the published snapshot looked at."
        yield GaugeMetricFamily("waystation_policy_snapshot_age_seconds", age, value=policy["age_s"])
    scores = GaugeMetricFamily("waystation_relay_score", "Published score of other relays.", labels=["relay", "state"])
    for relay in status["relays"][:RELAYS_MAX]:
        scores.add_metric([relay["relay_id"], relay["state"]], relay["score"])
    yield scores


def _datagram_metrics(status: dict[str, Any]) -> Iterator[Metric]:
    """Yield what is known of protocols without connections: their bytes, and what became of their datagrams."""
    traffic = CounterMetricFamily(
        "waystation_traffic_bytes", "Bytes of protocols without connections.", labels=["protocol", "direction"]
    )
    for protocol, counts in status["traffic"].items():
        for direction, number in counts.items():
            traffic.add_metric([protocol, direction], number)
    yield traffic
    datagrams = CounterMetricFamily(
        "waystation_datagrams",
        "Datagrams received and sent, dropped for want of room, and refused by the kernel.",
        labels=["listener", "fate"],
    )
    for listener, counts in status["datagrams"].items():
        for fate in ("received", "sent", "dropped", "failed"):
            datagrams.add_metric([listener, fate], counts[fate])
    yield datagrams
