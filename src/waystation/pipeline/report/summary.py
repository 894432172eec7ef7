"""Input of the report: classes for bounded lists of plain rows, with times as whole seconds UTC.

``jobs.summarise`` fills a ``Summary`` from Spark tables; the sections of ``report`` read it without Spark.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from waystation.pipeline.jobs.step import Problem
from waystation.pipeline.plots import Hourly

__all__ = [
    "CapacityRow",
    "CheckRow",
    "ConsistencyRow",
    "FindingRow",
    "GroupRow",
    "MeshHour",
    "OutcomeRow",
    "PolicyRow",
    "QuarantineRow",
    "RefusalRow",
    "RelayRow",
    "RetentionRow",
    "RootRow",
    "RunFacts",
    "RunRow",
    "ServerRow",
    "StepRow",
    "Summary",
    "TransitionRow",
    "VerdictRow",
]


class OutcomeRow(NamedTuple):
    """One row of ``gold.delivery_outcomes``."""

    hour_s: int
    """Beginning of the hour, seconds UTC since 1970."""
    protocol: str
    outcome: str
    n: int
    bytes: int
    histogram: Mapping[int, int]


class RefusalRow(NamedTuple):
    """How often one protocol turned something down for one reason."""

    protocol: str
    reason: str
    n: int


class VerdictRow(NamedTuple):
    """One row of ``gold.packet_verdicts``."""

    hour_s: int
    """Beginning of the hour, seconds UTC since 1970."""
    protocol: str
    verdict: str
    detail: str
    n: int
    bytes: int


class CheckRow(NamedTuple):
    """How many archived packets of one protocol a check found to be so."""

    protocol: str
    verdict: str
    n: int
    bytes: int


class RelayRow(NamedTuple):
    """The newest row of one relay in ``gold.relay_scores``."""

    relay_id: str
    as_of_s: int
    p50_us: int | None
    p95_us: int | None
    p99_us: int | None
    uptime_ratio: float | None
    connect_ratio: float | None
    throughput_bps: int | None
    integrity_faults: int
    consistency_ratio: float | None
    consistency_low: float | None
    n_obs: int
    score: float
    state: str
    since_s: int
    reason: str | None


class TransitionRow(NamedTuple):
    """One row of ``gold.relay_transitions``."""

    relay_id: str
    at_s: int
    before: str
    after: str
    reason: str
    score: float


class FindingRow(NamedTuple):
    """One row of ``gold.abuse_findings``."""

    node_id: str
    protocol: str
    actor_kind: str
    actor: str
    """First eight hexadecimal digits of the reference."""
    rule: str
    window_s: int
    n: int
    limit: int
    first_s: int
    last_s: int
    severity: str
    action: str
    expires_s: int


class PolicyRow(NamedTuple):
    """One row of ``gold.policy``, of the newest moment."""

    node_id: str
    as_of_s: int
    subject_kind: str
    subject: str
    """First eight hexadecimal digits of the reference."""
    action: str
    amount: int
    rule: str
    evidence: int
    valid_until_s: int
    mode: str


class ServerRow(NamedTuple):
    """One row of ``gold.mesh_topology``, of the last hour that has links."""

    server: str
    hour_s: int
    neighbours: Sequence[str]
    degree: int
    component: str
    component_size: int
    is_articulation: bool
    n_queries: int
    n_found: int
    p95_us: int | None


class MeshHour(NamedTuple):
    """The whole mesh in one hour."""

    hour_s: int
    servers: int
    links: int
    components: int
    articulations: int
    n_queries: int
    n_found: int


class GroupRow(NamedTuple):
    """The newest row of one group at one node in ``gold.bsp_groups``."""

    node_id: str
    group: str
    """First eight hexadecimal digits of the reference."""
    as_of_s: int
    n_messages: int
    n_delivered: int
    n_waiting: int
    n_invalid_root: int
    n_invalid_transitive: int
    n_deleted: int
    missing_deps: int
    depth: int
    n_components: int
    fork_width: int
    n_peers: int
    converge_us: int | None
    least_us: int | None
    """Least ``converge_us`` of the dates."""
    most_us: int | None
    """Most ``converge_us`` of the dates."""


class RootRow(NamedTuple):
    """One message of ``gold.bsp_invalid`` that is invalid by itself, and what it took with it."""

    node_id: str
    group: str
    root: str
    """First eight hexadecimal digits of the reference."""
    n_invalid: int
    """Messages that are invalid because of it, itself left out."""
    distance: int
    """Dependencies to the furthest of them."""


class ConsistencyRow(NamedTuple):
    """One row of ``gold.consistency``."""

    relay_id: str
    day: datetime.date
    n_expected: int
    n_served: int
    n_missing: int
    ratio: float | None
    low: float | None
    high: float | None
    peers: int
    suspicious: Sequence[str]
    """First eight hexadecimal digits of the packets' ids."""


class CapacityRow(NamedTuple):
    """One row of ``gold.capacity``."""

    node_id: str
    day: datetime.date
    peak_connections: int
    messages: int
    messages_per_s: float
    bytes_in: int
    bytes_out: int
    cpu_us: int
    memory_bytes: int
    store_bytes: int
    growth_bytes: int | None
    days_to_full: int | None
    pow_accepted: int
    pow_turned_down: int


class RetentionRow(NamedTuple):
    """The newest row of one dataset in ``ops.retention``."""

    dataset: str
    as_of_s: int
    days: int
    deleted_dates: int
    deleted_rows: int
    files: int
    oldest: datetime.date | None
    holds: bool


class QuarantineRow(NamedTuple):
    """Lines of ``ops.quarantine`` that were not taken for one reason."""

    dataset: str
    reason: str
    n: int


class StepRow(NamedTuple):
    """What one step of a run did."""

    name: str
    rows_in: int
    rows_out: int
    rows_rejected: int
    seconds: float


class RunRow(NamedTuple):
    """One row of ``ops.runs``."""

    run_id: str
    started_at: str
    finished_at: str
    steps: Sequence[StepRow]
    problems: Sequence[Problem]


@dataclass(frozen=True, slots=True)
class Summary:
    """What the lake says."""

    outcomes: Sequence[OutcomeRow] = ()
    connections: Sequence[Hourly] = ()
    anonymous: Sequence[Hourly] = ()
    refusals: Sequence[RefusalRow] = ()
    row_counts: Sequence[tuple[str, int]] = ()
    verdicts: Sequence[VerdictRow] = ()
    checks: Sequence[CheckRow] = ()
    relays: Sequence[RelayRow] = ()
    transitions: Sequence[TransitionRow] = ()
    """In order of relay and moment."""
    findings: Sequence[FindingRow] = ()
    """The most severe first, of those the newest."""
    findings_hourly: Sequence[tuple[int, str, int]] = ()
    """Hour, rule and number, in order; all findings, not only those listed."""
    policy: Sequence[PolicyRow] = ()
    servers: Sequence[ServerRow] = ()
    mesh_hours: Sequence[MeshHour] = ()
    groups: Sequence[GroupRow] = ()
    roots: Sequence[RootRow] = ()
    consistency: Sequence[ConsistencyRow] = ()
    """In order of relay and day."""
    capacity: Sequence[CapacityRow] = ()
    """In order of node and day."""
    retention: Sequence[RetentionRow] = ()
    quarantine: Sequence[QuarantineRow] = ()
    runs: Sequence[RunRow] = ()
    """The newest first."""
    as_of_s: int | None = None
    """The moment of everything; None for the lake's newest."""

    def is_empty(self) -> bool:
        """Return whether nothing at all was recorded."""
        return not any(rows for name, rows in self.row_counts if not name.startswith("ops."))


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the run says about itself."""

    lines: Sequence[tuple[str, str]] = ()
    """Name and value, in order."""
    steps: Sequence[Sequence[str]] = ()
    """Step, rows in, out, rejected, seconds; with rows that came late before the seconds, when they are known."""
    problems: Sequence[Problem] = field(default=())
