"""Gold (result) datasets on other relays: latency, daily counts, states, scores and consistency.

``jobs.qos`` and ``jobs.consistency`` write them; report and publication read them.
"""

from typing import Final

from waystation.pipeline.tables.columns import OPERATIONAL, RELAY
from waystation.pipeline.tables.dataset import Column, Dataset

__all__ = ["GOLD_CONSISTENCY", "GOLD_RELAY_DAY", "GOLD_RELAY_HISTO", "GOLD_RELAY_SCORES", "GOLD_RELAY_TRANSITIONS"]

GOLD_RELAY_HISTO: Final = Dataset(
    "gold",
    "relay_histo",
    "one relay, day, kind of probe and latency bucket",
    (
        RELAY,
        Column("day", "date", False, OPERATIONAL, "UTC date."),
        Column("probe_kind", "string", False, OPERATIONAL, "What was looked at."),
        Column("bucket", "int", False, OPERATIONAL, "Latency bucket; docs/tables.md has the edges."),
        Column("n", "bigint", False, OPERATIONAL, "Answers."),
    ),
    ("relay_id", "day", "probe_kind", "bucket"),
    "day",
    35,
)

GOLD_RELAY_DAY: Final = Dataset(
    "gold",
    "relay_day",
    "one relay and day",
    (
        RELAY,
        Column("day", "date", False, OPERATIONAL, "UTC date."),
        Column("n_connect", "bigint", False, OPERATIONAL, "Connects that were tried."),
        Column("n_connect_ok", "bigint", False, OPERATIONAL, "Connects whose handshake succeeded."),
        Column("up_us", "bigint", False, OPERATIONAL, "Microseconds connected."),
        Column("wanted_us", "bigint", False, OPERATIONAL, "Microseconds in which a connection was wanted."),
        Column("n_probe", "bigint", False, OPERATIONAL, "Observations in all."),
        Column("n_bad_sig", "bigint", False, OPERATIONAL, "Packets with a signature that is not their author's."),
        Column("n_tampered", "bigint", False, OPERATIONAL, "Other things that an honest relay could not have done."),
        Column("n_known_ok", "bigint", False, OPERATIONAL, "Packets it was asked for and had."),
        Column("n_known_missing", "bigint", False, OPERATIONAL, "Packets it ought to have had and had not."),
        Column("n_timeout", "bigint", False, OPERATIONAL, "Probes without an answer, connects left out."),
        Column("transferred_bytes", "bigint", False, OPERATIONAL, "Bytes of measured transfers."),
        Column("transfer_us", "bigint", False, OPERATIONAL, "Microseconds of measured transfers."),
    ),
    ("relay_id", "day"),
    "day",
    35,
)

GOLD_RELAY_SCORES: Final = Dataset(
    "gold",
    "relay_scores",
    "one relay at one hour, over the seven days before",
    (
        RELAY,
        Column("as_of", "timestamp", False, OPERATIONAL, "End of the seven days."),
        Column(
            "p50_us",
            "bigint",
            True,
            OPERATIONAL,
            "Upper edge of the bucket that holds half of the answers; null without one.",
        ),
        Column("p95_us", "bigint", True, OPERATIONAL, "The same for 95 of 100."),
        Column("p99_us", "bigint", True, OPERATIONAL, "The same for 99 of 100."),
        Column(
            "uptime_ratio",
            "double",
            True,
            OPERATIONAL,
            "Connected share of the wanted time; null when none was wanted.",
        ),
        Column("connect_ratio", "double", True, OPERATIONAL, "Share of connects that succeeded; null without one."),
        Column(
            "throughput_bps",
            "bigint",
            True,
            OPERATIONAL,
            "Bytes per second over all measured transfers; null without one.",
        ),
        Column("integrity_faults", "bigint", False, OPERATIONAL, "What an honest relay could not have done."),
        Column(
            "consistency_ratio", "double", True, OPERATIONAL, "Share of expected packets that it had; null without one."
        ),
        Column("consistency_low", "double", True, OPERATIONAL, "Lower 95 % Wilson bound of that share."),
        Column("n_obs", "bigint", False, OPERATIONAL, "Observations."),
        Column("score", "double", False, OPERATIONAL, "0 to 1, by rules.relay_score."),
        Column(
            "state",
            "string",
            False,
            OPERATIONAL,
            "`active`, `backup`, `blacklisted` or `probation`, by rules.relay_state.",
        ),
        Column("since", "timestamp", False, OPERATIONAL, "When that state began."),
        Column("reason", "string", True, OPERATIONAL, "Why it began; null for a relay that was never moved."),
    ),
    ("relay_id", "as_of"),
    "as_of",
    35,
)

GOLD_RELAY_TRANSITIONS: Final = Dataset(
    "gold",
    "relay_transitions",
    "one change of a relay's state",
    (
        RELAY,
        Column("at", "timestamp", False, OPERATIONAL, "When."),
        Column("before", "string", False, OPERATIONAL, "State before."),
        Column("after", "string", False, OPERATIONAL, "State after."),
        Column("reason", "string", False, OPERATIONAL, "Why: a value of rules.relay_state.Reason."),
        Column("score", "double", False, OPERATIONAL, "Score at that moment."),
        Column("n_obs", "bigint", False, OPERATIONAL, "Observations of the seven days before."),
    ),
    ("relay_id", "at", "reason"),
    "at",
    365,
)

GOLD_CONSISTENCY: Final = Dataset(
    "gold",
    "consistency",
    "one relay and day",
    (
        RELAY,
        Column("day", "date", False, OPERATIONAL, "UTC date."),
        Column(
            "n_expected", "bigint", False, OPERATIONAL, "Packets that enough others had and this one ought to have had."
        ),
        Column("n_served", "bigint", False, OPERATIONAL, "How many of them it had."),
        Column("n_missing", "bigint", False, OPERATIONAL, "How many it had not."),
        Column(
            "ratio",
            "double",
            True,
            OPERATIONAL,
            "n_served of n_expected; null below the least number that says anything.",
        ),
        Column("lower_bound", "double", True, OPERATIONAL, "Lower 95 % Wilson bound of the ratio."),
        Column("upper_bound", "double", True, OPERATIONAL, "Upper 95 % Wilson bound of the ratio."),
        Column("peers_compared", "bigint", False, OPERATIONAL, "Relays it was compared with."),
        Column(
            "suspicious", "array<binary>", False, OPERATIONAL, "Ids of missing packets, at most 20, smallest first."
        ),
    ),
    ("relay_id", "day"),
    "day",
    35,
)
