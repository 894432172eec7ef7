"""Laws of server.metrics: what Prometheus reads is what the node counts, with a fixed number of series."""

from prometheus_client.parser import text_string_to_metric_families

from waystation.server.http.metrics import RELAYS_MAX, render_metrics


def status(**changes):
    """Return a node's status document."""
    names = ("deliveries", "refusals", "packets", "lookups", "leases", "work", "messages")
    totals = {name: {} for name in names} | changes.pop("totals", {})
    changes.setdefault("clock", {"steps": 2, "shift_s": -3.5})
    changes.setdefault("store", {"fault": None, "free_bytes": None, "days_left": None})
    empty = {name: {} for name in ("sizes", "traffic", "datagrams", "written")}
    policy = {"sizes": {"rules": 0}, "matches": [], "age_s": None}
    return (
        {"uptime_s": 12.5, "totals": totals, "policy": policy, "relays": [], "certificates": [], "damaged": {"met": {}}}
        | empty
        | changes
    )


def series(document, *limits):
    """Return every sample as {(name, labels): value}, read back by Prometheus' own parser."""
    text = render_metrics(lambda: document, lambda: limits).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


FAULTS = {
    ("waystation_store_fault", (("kind", kind),)): 0
    for kind in ("busy", "full", "io", "hung", "read_only", "gone", "overwritten", "damaged", "other")
}


def test_every_number_is_a_series():
    """Uptime, sizes, deliveries by outcome and refusals by reason are exposed as they are."""
    document = status(
        sizes={"bhumi": {"connections": 3}, "node": {"bans": 1}},
        totals={
            "deliveries": {("bhumi", "ok"): 7},
            "refusals": {("bhumi", "oversize"): 2},
            "packets": {("strata", "accepted"): 9},
            "lookups": {("merk", "found"): 4},
            "leases": {("lprp", "granted"): 5},
            "work": {("lprp", "too_few_bits"): 6},
            "messages": {("bsp", "held"): 8},
        },
        traffic={"lprp": {"in": 1_000, "out": 2_000}},
        certificates=[{"listener": "bhumi.tls", "ends_s": 1_800_000_000}],
        datagrams={"lprp": {"received": 10, "sent": 9, "waiting": 3, "dropped": 2, "failed": 1}},
        written={"archive": {"rows_written": 9, "rows_dropped": 0, "rows_lost": 1, "segments_sealed": 3}},
    )

    assert (
        series(document)
        == {
            ("waystation_uptime_seconds", ()): 12.5,
            ("waystation_clock_steps_total", ()): 2,
            ("waystation_clock_shift_seconds", ()): -3.5,
            ("waystation_size", (("protocol", "bhumi"), ("thing", "connections"))): 3,
            ("waystation_size", (("protocol", "node"), ("thing", "bans"))): 1,
            ("waystation_deliveries_total", (("outcome", "ok"), ("protocol", "bhumi"))): 7,
            ("waystation_refusals_total", (("protocol", "bhumi"), ("reason", "oversize"))): 2,
            ("waystation_packets_total", (("protocol", "strata"), ("verdict", "accepted"))): 9,
            ("waystation_mesh_lookups_total", (("protocol", "merk"), ("result", "found"))): 4,
            ("waystation_leases_total", (("change", "granted"), ("protocol", "lprp"))): 5,
            ("waystation_work_total", (("protocol", "lprp"), ("verdict", "too_few_bits"))): 6,
            ("waystation_messages_total", (("change", "held"), ("protocol", "bsp"))): 8,
            ("waystation_traffic_bytes_total", (("direction", "in"), ("protocol", "lprp"))): 1_000,
            ("waystation_traffic_bytes_total", (("direction", "out"), ("protocol", "lprp"))): 2_000,
            ("waystation_certificate_expiry_seconds", (("listener", "bhumi.tls"),)): 1_800_000_000,
            ("waystation_datagrams_total", (("fate", "received"), ("listener", "lprp"))): 10,
            ("waystation_datagrams_total", (("fate", "sent"), ("listener", "lprp"))): 9,
            ("waystation_datagrams_total", (("fate", "dropped"), ("listener", "lprp"))): 2,
            ("waystation_datagrams_total", (("fate", "failed"), ("listener", "lprp"))): 1,
            ("waystation_written_rows_total", (("fate", "written"), ("file", "archive"))): 9,
            ("waystation_written_rows_total", (("fate", "dropped"), ("file", "archive"))): 0,
            ("waystation_written_rows_total", (("fate", "lost"), ("file", "archive"))): 1,
            ("waystation_policy_rules", ()): 0,
        }
        | FAULTS
    )


def test_store_in_fault_is_shown():
    """The kind that it has is 1, all others 0; free space and the days it lasts as soon as they are known."""
    shown = series(status(store={"fault": {"kind": "full"}, "free_bytes": 1_000, "days_left": 0.5}))

    assert shown[("waystation_store_fault", (("kind", "full"),))] == 1
    assert sum(shown[name] for name in FAULTS) == 1
    assert shown[("waystation_store_free_bytes", ())] == 1_000
    assert shown[("waystation_store_days_left", ())] == 0.5


def test_published_policy_is_shown():
    """Rules, what they did, how old the snapshot is, and the worst of the relays."""
    match = {"rule": "burst", "action": "rate", "mode": "shadow", "n": 3}
    relays = [{"relay_id": f"{number:016x}", "state": "active", "score": 0.5} for number in range(RELAYS_MAX + 5)]
    shown = series(status(policy={"sizes": {"rules": 2}, "matches": [match], "age_s": 60.5}, relays=relays))
    labels = (("action", "rate"), ("mode", "shadow"), ("rule", "burst"))

    assert shown["waystation_policy_rules", ()] == 2
    assert shown["waystation_policy_matches_total", labels] == 3
    assert shown["waystation_policy_snapshot_age_seconds", ()] == 60.5
    assert shown["waystation_relay_score", (("relay", "0" * 16), ("state", "active"))] == 0.5
    assert len([name for name, _ in shown if name == "waystation_relay_score"]) == RELAYS_MAX


def test_fresh_node_has_no_counters():
    """Before anything happened only the uptime, and that there is no rule, have a sample."""
    assert {name for name, _ in series(status())} == {
        "waystation_uptime_seconds",
        "waystation_clock_steps_total",
        "waystation_clock_shift_seconds",
        "waystation_policy_rules",
        "waystation_store_fault",
    }


def test_status_is_asked_at_each_rendering():
    """Two renderings show two moments."""
    moments = iter([status(uptime_s=1), status(uptime_s=2)])

    texts = [render_metrics(lambda: next(moments), list) for _ in range(2)]

    assert [b"waystation_uptime_seconds 1.0" in texts[0], b"waystation_uptime_seconds 2.0" in texts[1]] == [True, True]


def test_limits_are_shown_with_what_is_taken_of_them():
    """A limit of each peer alone has no use of its own; one that all share has."""
    shown = series(
        status(),
        {"name": "limits.bhumi.presences", "value": 100_000, "use": 7},
        {"name": "limits.bhumi.joiners", "value": 4, "use": None},
    )

    assert shown["waystation_limit", (("limit", "limits.bhumi.presences"),)] == 100_000
    assert shown["waystation_limit", (("limit", "limits.bhumi.joiners"),)] == 4
    assert [key for key in shown if key[0] == "waystation_limit_use"] == [
        ("waystation_limit_use", (("limit", "limits.bhumi.presences"),))
    ]


def test_damaged_rows_are_counted_by_table():
    """Those that were mended since stay counted (NODE-ROT)."""
    found = series(status(damaged={"met": {"bans": 1, "packets": 10}, "now": {"packets": 3}}))

    assert found["waystation_store_rows_damaged_total", (("table", "packets"),)] == 10
    assert found["waystation_store_rows_damaged_total", (("table", "bans"),)] == 1
