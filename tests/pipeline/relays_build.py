"""Observations of relays for the tests of quality, and the plain counting that the tables are compared with."""

import datetime
import random
from collections import Counter
from typing import Any, NamedTuple

from tests.journal.build import DAY_US, NOON_US
from waystation.pipeline.tables import SILVER_PROBES
from waystation.rules.histogram import THRESHOLDS_US, bucket_of, quantile
from waystation.rules.relay_observation import Observation, Probe
from waystation.rules.relay_state import Incident
from waystation.rules.relay_window import MEDIA_BYTES_MIN

RELAYS = ("00aa11bb22cc33dd", "11aa11bb22cc33dd", "22aa11bb22cc33dd")
UNTIL_US = NOON_US + 3 * DAY_US
WEEK_US = 7 * DAY_US
VIOLATIONS = [each.value for each in Incident if each.is_violation]


class Seen(NamedTuple):
    """One row of ``silver.probes``; times are microseconds."""

    event_id: bytes
    relay_id: str
    ts_us: int
    probe_kind: str
    outcome: str
    incident: str | None = None
    latency_us: int | None = None
    bytes: int | None = None
    duration_us: int | None = None
    n: int = 1

    @property
    def day(self) -> datetime.date:
        """The UTC date, by the standard library."""
        return datetime.datetime.fromtimestamp(self.ts_us // 1_000_000, datetime.UTC).date()

    @property
    def observation(self) -> Observation:
        """What a fold takes."""
        incident = None if self.incident is None else Incident(self.incident)
        amounts = (self.latency_us, self.bytes, self.duration_us, self.n)
        return Observation(self.ts_us, self.event_id, Probe(self.probe_kind), self.outcome, incident, *amounts)


def observed(seed: int, count: int = 900) -> list[Seen]:
    """Return what may be seen of three relays in eleven days, many of it at equal times: good, unsteady, forging."""
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        quality = rng.randrange(3)
        # Bursts of whole minutes, so that states move; equal times, so that only the event tells rows apart.
        burst_us = UNTIL_US - 10 * DAY_US + rng.randrange(44) * DAY_US // 4
        at_us = burst_us + rng.randrange(600) * 1_000_000 + rng.choice([0, 0, 999_999])
        ok = rng.random() < (0.99, 0.6, 0.9)[quality]
        probe = rng.choice(list(Probe))
        outcome = "ok" if ok else rng.choice(["failed", "missing"])
        incident = None
        if probe is Probe.VALIDITY:
            if quality != 2:
                continue
            outcome, incident = "failed", rng.choice(VIOLATIONS)
        latency_us = int(2 ** rng.uniform(0, 24)) if ok and rng.random() < 0.9 else None
        size = rng.choice([None, 1_000, 65_535, 65_536, 10**7])
        duration_us = rng.choice([None, 0, rng.randrange(10**8)])
        key = rng.randbytes(15) + bytes([number % 256])
        row = Seen(key, RELAYS[quality], at_us, probe.value, outcome, incident, latency_us, size, duration_us)
        rows.append(row._replace(n=rng.choice([1, 1, 1, 4])))
    return rows


def probes_frame(spark: Any, rows: list[Seen], partitions: int = 2) -> Any:
    """Return rows as ``silver.probes``, in the given order over so many partitions."""
    names = [name for name in SILVER_PROBES.names() if name != "ts"]
    kinds = {column.name: column.type for column in SILVER_PROBES.columns}
    ddl = ", ".join(f"`{name}` {kinds[name]}" for name in names) + ", ts_us bigint"
    known = {"node_id": "0" * 16, "protocol": "strata"}
    plain = [(*({**row._asdict(), **known}[name] for name in names), row.ts_us) for row in rows]
    frame = spark.createDataFrame(plain, ddl).repartition(partitions)
    return frame.selectExpr("*", "timestamp_micros(ts_us) as ts", "to_date(timestamp_micros(ts_us)) as event_date")


def histo_of(rows: list[Seen]) -> Counter[tuple[str, datetime.date, str, int]]:
    """Return answers by relay, day, kind and bucket."""
    counts: Counter[tuple[str, datetime.date, str, int]] = Counter()
    for row in rows:
        if row.outcome == "ok" and row.latency_us is not None:
            counts[row.relay_id, row.day, row.probe_kind, bucket_of(row.latency_us)] += row.n
    return counts


def facts_of(rows: list[Seen]) -> dict[str, int]:
    """Return the counts of ``gold.relay_day``."""
    facts: Counter[str] = Counter()
    for row in rows:
        kind, ok = row.probe_kind, row.outcome == "ok"
        facts["n_probe"] += row.n
        if kind == "connect":
            facts["n_connect"] += row.n
            facts["n_connect_ok"] += row.n * ok
        elif kind == "span" and row.outcome != "missing":
            facts["wanted_us"] += row.n * (row.duration_us or 0)
            facts["up_us"] += row.n * (row.duration_us or 0) * ok
        elif kind == "validity":
            facts["n_bad_sig" if row.incident == "bad_signature" else "n_tampered"] += row.n
        elif kind == "known_hash" and row.outcome != "failed":
            facts["n_known_ok" if ok else "n_known_missing"] += row.n
        elif kind == "blob" and ok and (row.bytes or 0) >= MEDIA_BYTES_MIN and row.duration_us:
            facts["transferred_bytes"] += row.n * (row.bytes or 0)
            facts["transfer_us"] += row.n * row.duration_us
        if kind in ("rtt", "self_send", "blob") and row.outcome == "failed":
            facts["n_timeout"] += row.n
    return dict(facts)


def week_of(rows: list[Seen], until_us: int) -> list[Seen]:
    """Return the rows of the seven days before a moment."""
    return [row for row in rows if until_us - WEEK_US <= row.ts_us < until_us]


def edge_of(rows: list[Seen], share: float) -> int | None:
    """Return the upper edge of a quantile of the latencies that the score takes."""
    histogram: Counter[int] = Counter()
    for (_, _, kind, bucket), n in histo_of(rows).items():
        histogram[bucket] += n if kind in ("rtt", "self_send") else 0
    found = quantile(+histogram, share)
    return None if found is None else THRESHOLDS_US[found + 1] - 1
