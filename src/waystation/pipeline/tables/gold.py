"""Gold (result) datasets: hourly delivery outcomes and packet verdicts, and daily node capacity.

``jobs.outcomes``, ``verdicts`` and ``capacity`` write them; report and publication read them.
"""

from typing import Final

from waystation.pipeline.tables.columns import NODE, OPERATIONAL, PROTOCOL, PUBLIC, UNFINISHED
from waystation.pipeline.tables.dataset import Column, Dataset

__all__ = ["GOLD_CAPACITY", "GOLD_OUTCOMES", "GOLD_VERDICTS"]

GOLD_OUTCOMES: Final = Dataset(
    "gold",
    "delivery_outcomes",
    "one hour, protocol and outcome",
    (
        Column("hour", "timestamp", False, PUBLIC, "Hour in which the attempts began."),
        PROTOCOL,
        Column("outcome", "string", False, PUBLIC, f"Outcome, or `{UNFINISHED}`."),
        Column("n", "bigint", False, PUBLIC, "Attempts."),
        Column("bytes", "bigint", False, PUBLIC, "Bytes of requests and replies."),
        Column(
            "histogram", "map<int,bigint>", False, PUBLIC, "Latency bucket to attempts; docs/tables.md has the edges."
        ),
    ),
    ("hour", "protocol", "outcome"),
    "hour",
    365,
)

GOLD_VERDICTS: Final = Dataset(
    "gold",
    "packet_verdicts",
    "one hour, protocol, verdict and detail",
    (
        Column("hour", "timestamp", False, PUBLIC, "Hour in which the packets were judged."),
        PROTOCOL,
        Column("verdict", "string", False, PUBLIC, "`accepted`, `duplicate`, or the wire code of the refusal."),
        Column("detail", "string", False, PUBLIC, "Which rule of that code; empty when it says all."),
        Column("n", "bigint", False, PUBLIC, "Packets."),
        Column("bytes", "bigint", False, PUBLIC, "Their canonical bytes."),
    ),
    ("hour", "protocol", "verdict", "detail"),
    "hour",
    365,
)


GOLD_CAPACITY: Final = Dataset(
    "gold",
    "capacity",
    "one node and day",
    (
        NODE,
        Column("day", "date", False, OPERATIONAL, "UTC date."),
        Column("peak_connections", "bigint", False, OPERATIONAL, "Most connections in one sample."),
        Column("messages", "bigint", False, OPERATIONAL, "Messages judged."),
        Column(
            "messages_per_s_p99",
            "double",
            False,
            OPERATIONAL,
            "Messages per second of the minute that 99 of 100 do not exceed.",
        ),
        Column("bytes_in", "bigint", False, OPERATIONAL, "Bytes received."),
        Column("bytes_out", "bigint", False, OPERATIONAL, "Bytes sent."),
        Column("cpu_us", "bigint", False, OPERATIONAL, "Processor time."),
        Column("memory_bytes", "bigint", False, OPERATIONAL, "Most resident memory in one sample."),
        Column("store_bytes", "bigint", False, OPERATIONAL, "Store and journal at the day's end."),
        Column(
            "growth_bytes_day",
            "bigint",
            True,
            OPERATIONAL,
            "Theil-Sen slope of the store over the last days; null with fewer than two.",
        ),
        Column(
            "days_to_full",
            "bigint",
            True,
            OPERATIONAL,
            "Days until the configured disk is full at that rate; null when it does not grow or no size is configured.",
        ),
        Column("pow_accepted", "bigint", False, OPERATIONAL, "Proofs of work that were accepted."),
        Column("pow_turned_down", "bigint", False, OPERATIONAL, "Proofs of work that were rejected."),
        Column("pow_work", "double", False, OPERATIONAL, "Sum of 2^bits of the accepted ones: hashes that were paid."),
    ),
    ("node_id", "day"),
    "day",
    730,
)
