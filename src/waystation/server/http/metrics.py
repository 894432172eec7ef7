"""Renders the Prometheus metrics of one node from the counters that it has at hand.

``/metrics`` of the admin port calls it: counts and limits go in, text comes out. Label values are closed enums or names
signed by the operator's pipeline, whose number is limited. So peers cannot increase the number of series without bound.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from waystation.core.errors import StoreFaultKind

__all__ = ["RELAYS_MAX", "render_metrics"]

RELAYS_MAX: Final = 100
"""Most relays whose score is shown, the worst first."""


def render_metrics(counts: Callable[[], dict[str, Any]], limits: Callable[[], list[dict[str, Any]]]) -> bytes:
    """Return the text exposition of a node's counts and limits.

    Args:
        counts: Returns what ``Operations.counts`` returns.
        limits: Returns what ``Operations.limit_uses`` returns.
    """
    registry = CollectorRegistry()
    registry.register(_NodeCollector(counts, limits))
    return generate_latest(registry)


class _NodeCollector(Collector):
    """Reads one document of counts, and one list of limits."""

    def __init__(self, counts: Callable[[], dict[str, Any]], limits: Callable[[], list[dict[str, Any]]]) -> None:
        self._counts = counts
        self._limits = limits

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families; called by the registry."""
        counts = self._counts()
        yield GaugeMetricFamily("waystation_uptime_seconds", "Since the node started.", value=counts["uptime_s"])
        yield from _clock_metrics(counts["clock"])
        yield from _store_metrics(counts["store"])
        sizes = GaugeMetricFamily(
            "waystation_size", "How much of each bounded thing there is.", labels=["protocol", "thing"]
        )
        for protocol, things in counts["sizes"].items():
            for thing, number in things.items():
                sizes.add_metric([protocol, thing], number)
        yield sizes
        yield from _limit_metrics(self._limits())
        yield _counter(
            counts,
            "deliveries",
            "Delivery attempts by outcome; of merk each frame is one, and so is each part of a file.",
            "outcome",
        )
        yield _counter(counts, "refusals", "What was refused or dropped, by reason.", "reason")
        yield _counter(counts, "packets", "Packets judged, by verdict.", "verdict")
        yield _counter(
            counts, "lookups", "Clients looked for among other nodes, by result.", "result", "waystation_mesh_lookups"
        )
        yield _counter(counts, "leases", "Leases of tenants, by what became of them.", "change")
        yield _counter(counts, "work", "Proofs of work judged, by verdict.", "verdict")
        yield _counter(
            counts, "messages", "Messages of groups, by what became of them; held: a peer came to hold one.", "change"
        )
        yield _certificate_metric(counts)
        yield from _datagram_metrics(counts)
        yield from _policy_metrics(counts)
        damaged = CounterMetricFamily(
            "waystation_store_rows_damaged",
            "Rows of the store that are not as they were written, each counted once.",
            labels=["table"],
        )
        for table, number in counts["damaged"]["met"].items():
            damaged.add_metric([table], number)
        yield damaged
        rows = CounterMetricFamily(
            "waystation_written_rows", "Rows for the pipeline: written, dropped or lost.", labels=["file", "fate"]
        )
        for name, rows_of in counts["written"].items():
            for fate in ("written", "dropped", "lost"):
                rows.add_metric([name, fate], rows_of[f"rows_{fate}"])
        yield rows


def _clock_metrics(clock: dict[str, Any]) -> Iterator[Metric]:
    yield CounterMetricFamily("waystation_clock_steps", "How often the wall clock stepped.", value=clock["steps"])
    shift = "How far the wall clock is ahead of where the one at the start would be now."
    yield GaugeMetricFamily("waystation_clock_shift_seconds", shift, value=clock["shift_s"])


def _store_metrics(store: dict[str, Any]) -> Iterator[Metric]:
    """Yield what is wrong with the store, a series per kind, and how long its disk lasts."""
    fault = GaugeMetricFamily("waystation_store_fault", "1 while the store takes no writes, by kind.", labels=["kind"])
    for kind in StoreFaultKind:
        fault.add_metric([kind.value], int(store["fault"] is not None and store["fault"]["kind"] == kind.value))
    yield fault
    if store["free_bytes"] is not None:
        free = "Free on the disk of the home."
        yield GaugeMetricFamily("waystation_store_free_bytes", free, value=store["free_bytes"])
    if store["days_left"] is not None:
        days = "Until that disk is full, at the pace of the last day."
        yield GaugeMetricFamily("waystation_store_days_left", days, value=store["days_left"])


def _limit_metrics(limits: list[dict[str, Any]]) -> Iterator[Metric]:
    """Yield what each limit allows, and how much of it is taken where all peers share it."""
    values = GaugeMetricFamily("waystation_limit", "What a limit allows, by the name of its setting.", labels=["limit"])
    uses = GaugeMetricFamily(
        "waystation_limit_use", "How much of a limit is taken, where all peers share it.", labels=["limit"]
    )
    for limit in limits:
        values.add_metric([limit["name"]], limit["value"])
        if limit["use"] is not None:
            uses.add_metric([limit["name"]], limit["use"])
    yield values
    yield uses


def _counter(counts: dict[str, Any], name: str, help_text: str, label: str, metric: str = "") -> Metric:
    """Return one table of totals as a family."""
    family = CounterMetricFamily(metric or f"waystation_{name}", help_text, labels=["protocol", label])
    for (protocol, word), number in counts["totals"][name].items():
        family.add_metric([protocol, word], number)
    return family


def _certificate_metric(counts: dict[str, Any]) -> Metric:
    family = GaugeMetricFamily(
        "waystation_certificate_expiry_seconds",
        "End of the certificate that a listener shows, Unix.",
        labels=["listener"],
    )
    for certificate in counts["certificates"]:
        family.add_metric([certificate["listener"]], certificate["ends_s"])
    return family


def _policy_metrics(counts: dict[str, Any]) -> Iterator[Metric]:
    """Yield what is in force of what the pipeline published, and what it did."""
    policy = counts["policy"]
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
    for relay in counts["relays"][:RELAYS_MAX]:
        scores.add_metric([relay["relay_id"], relay["state"]], relay["score"])
    yield scores


def _datagram_metrics(counts: dict[str, Any]) -> Iterator[Metric]:
    """Yield what is known of protocols without connections: their bytes, and what became of their datagrams."""
    traffic = CounterMetricFamily(
        "waystation_traffic_bytes", "Bytes of protocols without connections.", labels=["protocol", "direction"]
    )
    for protocol, carried in counts["traffic"].items():
        for direction, number in carried.items():
            traffic.add_metric([protocol, direction], number)
    yield traffic
    datagrams = CounterMetricFamily(
        "waystation_datagrams",
        "Datagrams received and sent, dropped for want of room, and refused by the kernel.",
        labels=["listener", "fate"],
    )
    for listener, fates in counts["datagrams"].items():
        for fate in ("received", "sent", "dropped", "failed"):
            datagrams.add_metric([listener, fate], fates[fate])
    yield datagrams
