"""A summary in which everything occurs that a report can show."""

import datetime
from typing import Any

from waystation.pipeline.jobs.step import Problem
from waystation.pipeline.report import (
    CapacityRow,
    CheckRow,
    ConsistencyRow,
    FindingRow,
    GroupRow,
    Hourly,
    MeshHour,
    OutcomeRow,
    PolicyRow,
    QuarantineRow,
    RefusalRow,
    RelayRow,
    RetentionRow,
    RootRow,
    RunFacts,
    RunRow,
    ServerRow,
    StepRow,
    Summary,
    TransitionRow,
    VerdictRow,
)

HOUR_S = 1_780_056_000
"""2026-05-29 12:00 UTC."""
DAY_S = 86_400
NODE, OTHER_NODE = "00112233aabbccdd", "8899aabb00112233"
FACTS = RunFacts(
    [("run", "20260530T120000-0badcafe"), ("engine", "Spark 4.3.0")],
    [("ingest", "12,345", "12,300", "45", "1.2"), ("conform", "12,300", "4,000", "0", "3.4")],
    [Problem("00112233aabbccdd-1780056000-3.jsonl", "torn: read up to line 38")],
)


def relay_id(number: int) -> str:
    """Return the id of a made-up relay."""
    return f"{(number * 2_654_435_761 + 77) % (1 << 32):08x}{number:08x}"


def relay_row(number: int = 1, **changes: Any) -> RelayRow:
    """Return a good relay, with changes."""
    latency = 2_000 + 7_000 * number
    row = RelayRow(
        *(relay_id(number), HOUR_S, latency, 4 * latency, 9 * latency, 0.998, 0.97, 3_500_000, 0, 0.99, 0.96),
        *(1_200 + number, 0.93 - number / 40, "active", HOUR_S - 5 * DAY_S, "proved_good"),
    )
    return row._replace(**changes)


def finding_row(**changes: Any) -> FindingRow:
    """Return a finding of a burst, with changes."""
    row = FindingRow(
        *(NODE, "bhumi", "peer", "deadbeef", "burst", HOUR_S, 48_211, 3_000, HOUR_S + 7, HOUR_S + 3_590, "high"),
        *("block", HOUR_S + DAY_S),
    )
    return row._replace(**changes)


def group_row(number: int = 1, **changes: Any) -> GroupRow:
    """Return a group of messages, with changes."""
    row = GroupRow(
        *(NODE, f"{0xA0B0C0D0 + number:08x}", HOUR_S, 100 * number, 90 * number, 6 * number, 0, 0, 4 * number, 0, 40),
        *(1, 2, 5, 90_000_000 * number, 4_000_000 * number, 400_000_000 * number),
    )
    return row._replace(**changes)


def consistency_row(number: int, age_days: int, missing: int) -> ConsistencyRow:
    """Return one relay's day: what it had of 400 packets."""
    from waystation.rules.consistency import wilson_high, wilson_low  # noqa: PLC0415 - only here

    day = datetime.date(2026, 5, 29) - datetime.timedelta(days=age_days)
    served = 400 - missing
    low, high = wilson_low(served, 400), wilson_high(served, 400)
    packets = tuple(f"{0xC0FFEE00 + index:08x}" for index in range(min(missing, 20)))
    return ConsistencyRow(relay_id(number), day, 400, served, missing, served / 400, low, high, 4, packets)


def capacity_row(node: str, age_days: int, **changes: Any) -> CapacityRow:
    """Return one node's day, with changes."""
    day = datetime.date(2026, 5, 29) - datetime.timedelta(days=age_days)
    row = CapacityRow(
        *(node, day, 900 - 31 * age_days, 1_000_000, 41.5 - age_days, 3 << 30, 5 << 30, 9_000_000_000, 600 << 20),
        *((40 - age_days) << 30, 1 << 30, 24, 1_200, 31),
    )
    return row._replace(**changes)


def full_summary() -> Summary:
    """Return a summary with every part filled."""
    relays = [relay_row(number) for number in range(1, 7)]
    relays[2] = relay_row(3, state="backup", score=0.41, since_s=HOUR_S - DAY_S, reason="low_score")
    relays[2] = relays[2]._replace(p95_us=2_400_000, p99_us=5_100_000)
    relays[4] = relay_row(5, state="blacklisted", score=0.04, since_s=HOUR_S - 7_200, reason="violations")
    relays[4] = relays[4]._replace(integrity_faults=3)
    relays[5] = relay_row(6, state="probation", since_s=HOUR_S - 4 * 3_600, reason="ban_over", p50_us=None)
    bad, slow, back = relay_id(5), relay_id(3), relay_id(6)
    return Summary(
        outcomes=_outcomes(),
        connections=[Hourly(HOUR_S + 3_600 * hour, 30 + hour % 7, 29) for hour in range(36)],
        anonymous=[Hourly(HOUR_S + 3_600 * hour, 90 + 3 * hour, 90) for hour in range(36)],
        refusals=[RefusalRow("bhumi", "<b>odd</b>", 7), RefusalRow("strata", "too_large", 1_234)],
        row_counts=[("bronze.events", 12_345), ("silver.deliveries", 2_000), ("gold.relay_scores", 6)],
        verdicts=_verdicts(),
        checks=[CheckRow("strata", "bad_signature", 2, 700), CheckRow("strata", "valid", 4_220, 300_000)],
        relays=relays,
        transitions=_transitions(slow, bad, back),
        findings=[
            finding_row(),
            finding_row(window_s=HOUR_S + 3_600, n=51_002),
            finding_row(actor="0badcafe", rule="replay", n=19, limit=3, severity="medium", action="rate"),
            finding_row(actor_kind="source", actor="5ca1ab1e", rule="work_farming", n=7, limit=5, severity="low"),
        ],
        findings_hourly=[
            (HOUR_S + 3_600 * hour, rule, 1 + hour % 3) for hour in range(20) for rule in ("burst", "replay")
        ],
        policy=[
            PolicyRow(NODE, HOUR_S, "peer", "deadbeef", "block", 0, "burst", 2, HOUR_S + DAY_S, "enforce"),
            PolicyRow(NODE, HOUR_S, "peer", "0badcafe", "rate", 60, "replay", 1, HOUR_S + DAY_S, "shadow"),
        ],
        servers=_servers(),
        mesh_hours=[MeshHour(HOUR_S - 3_600 * age, 16, 22, 3, 2, 200 + age, 190 - age) for age in range(24)],
        groups=[group_row(2, n_invalid_root=2, n_invalid_transitive=9), group_row(1), group_row(3, converge_us=None)],
        roots=[RootRow(NODE, "a0b0c0d2", "bad0bad0", 9, 4), RootRow(NODE, "a0b0c0d2", "bad1bad1", 0, 0)],
        consistency=sorted(
            consistency_row(number, age, (number * 13 + age) % 9 if number != 4 else 90 - 4 * age)
            for number in range(1, 7)
            for age in range(5)
        ),
        capacity=sorted(
            [capacity_row(NODE, age) for age in range(9)]
            + [capacity_row(OTHER_NODE, age, growth_bytes=None, days_to_full=None) for age in range(6)]
        ),
        retention=[
            RetentionRow("bronze.events", HOUR_S, 14, 1, 900, 12, datetime.date(2026, 5, 20), True),
            RetentionRow("silver.pow", HOUR_S, 14, 0, 0, 1, None, True),
        ],
        quarantine=[QuarantineRow("bronze.events", "not json", 40), QuarantineRow("bronze.events", "unknown kind", 5)],
        runs=[
            RunRow(
                "20260530T120000-0badcafe",
                "2026-05-30T12:00:00",
                "2026-05-30T12:01:00",
                [StepRow("ingest", 9, 8, 1, 0.5)],
                [],
            )
        ],
        as_of_s=HOUR_S,
    )


def _transitions(slow: str, bad: str, back: str) -> list[TransitionRow]:
    rows = [
        TransitionRow(slow, HOUR_S - 6 * DAY_S, "probation", "active", "proved_good", 0.8),
        TransitionRow(slow, HOUR_S - DAY_S, "active", "backup", "low_score", 0.45),
        TransitionRow(bad, HOUR_S - 6 * DAY_S, "probation", "active", "proved_good", 0.9),
        TransitionRow(bad, HOUR_S - 7_200, "active", "blacklisted", "violations", 0.04),
        TransitionRow(back, HOUR_S - 2 * DAY_S, "active", "blacklisted", "unreachable", 0.2),
        TransitionRow(back, HOUR_S - 4 * 3_600, "blacklisted", "probation", "ban_over", 0.3),
    ]
    return sorted(rows)


def _outcomes() -> list[OutcomeRow]:
    hours = range(40)
    rows = [OutcomeRow(HOUR_S, "bhumi", "ok", 1_990, 500, {70: 1_000, 80: 990})]
    rows += [
        OutcomeRow(HOUR_S + 3_600 * h, "bhumi", "ok", 300 + 20 * (h % 9), 90_000, {72: 200, 85: 100}) for h in hours
    ]
    rows += [OutcomeRow(HOUR_S + 3_600 * h, "strata", "ok", 200 + h, 90_000, {98: 150, 118: 49, 139: 3}) for h in hours]
    rows += [OutcomeRow(HOUR_S + 3_600 * h, "lprp", "timeout", 9 + h % 5, 0, {150: 9}) for h in hours]
    return [*rows, *(OutcomeRow(HOUR_S + 3_600 * h, "bhumi", "offline", 10 + h, 0, {}) for h in hours)]


def _verdicts() -> list[VerdictRow]:
    rows = [VerdictRow(HOUR_S + 3_600 * h, "strata", "accepted", "", 100 + h, 900) for h in range(36)]
    rows += [VerdictRow(HOUR_S + 3_600 * h, "strata", "duplicate", "", 30, 90) for h in range(36)]
    return [*rows, VerdictRow(HOUR_S, "strata", "invalid_timestamp", "too_old", 77, 9)]


def _servers() -> list[ServerRow]:
    links = [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (3, 5), (4, 5), (4, 6), (5, 6), (6, 7), (8, 9), (9, 10), (8, 10)]
    links += [(10, 11), (0, 12), (12, 1)]
    names = [relay_id(50 + number) for number in range(14)]
    rows = []
    for number, name in enumerate(names):
        near = sorted(names[b if a == number else a] for a, b in links if number in {a, b})
        part, size = (names[0], 9) if number < 8 or number == 12 else (names[8], 4) if number < 12 else (name, 1)
        splits = number in {2, 3, 6, 10}
        rows.append(ServerRow(name, HOUR_S, near, len(near), part, size, splits, 20 * number, 19 * number, 90_000))
    return rows
