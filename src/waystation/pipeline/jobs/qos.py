"""Step that writes ``silver.probes``, the histograms and daily counts of relays, and their states and scores.

``pipeline.run`` executes it on what nodes observed of other relays. Probes, histograms and daily counts are rewritten
for due dates. Relay states are replayed up to today, from ``WARM_UP_DAYS`` before the first date to rewrite. The replay
starts with every relay on probation and without history. After the warm-up, its window equals that of a client. State
changes caused by the start itself are therefore not reported (PIPE-WARM).
"""

import datetime
from typing import Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.jobs.step import Context, Counts, DateRange
from waystation.pipeline.tables import (
    BRONZE_EVENTS,
    GOLD_RELAY_DAY,
    GOLD_RELAY_HISTO,
    GOLD_RELAY_SCORES,
    GOLD_RELAY_TRANSITIONS,
    SILVER_PROBES,
)
from waystation.pipeline.transforms.probes import KIND, probes
from waystation.pipeline.transforms.relay_history import relay_histories, relay_scores, relay_transitions
from waystation.pipeline.transforms.relays import relay_day, relay_histo, relay_week

__all__ = ["WARM_UP_DAYS", "WEEK", "judge_relays"]

WARM_UP_DAYS: Final = 7
"""Days before the first rewritten one that the fold begins with, as far as they are kept."""
WEEK: Final = datetime.timedelta(days=7)
"""What ``gold.relay_scores`` looks back on."""


def judge_relays(context: Context) -> Counts:
    """Rewrite the dates that are due, and judge every relay at ``context.as_of``."""
    due = context.due(SILVER_PROBES, BRONZE_EVENTS)
    if not due:
        return Counts(0, 0)
    events = context.read(BRONZE_EVENTS, due).where(F.col("kind") == KIND)
    rows_in = events.count()
    kept = context.rewrite(probes(events), SILVER_PROBES, due)
    seen = context.read(SILVER_PROBES, due)
    out = kept + context.rewrite(relay_histo(seen), GOLD_RELAY_HISTO, due)
    out += context.rewrite(relay_day(seen), GOLD_RELAY_DAY, due)
    return Counts(rows_in, out + _judge(context, due), rows_in - kept)


def _judge(context: Context, due: list[datetime.date]) -> int:
    """Fold each relay once; write its changes and its score; return the rows."""
    today = context.as_of.date()
    # Where a relay stands follows from what came before: with one date all later ones are judged anew (PIPE-WARM), and
    # a ban may run out on a day without a record.
    recomputed = today - datetime.timedelta(days=context.settings.recompute_days)
    begin = min(due[0], recomputed)
    judged = _days(begin, today)
    kept = DateRange(begin - datetime.timedelta(days=WARM_UP_DAYS), today)
    dates = kept.select(context.lake.manifest(SILVER_PROBES).dates())
    seen = context.read(SILVER_PROBES, dates).where(F.col("ts") < F.lit(context.as_of))
    until_s = int(context.as_of.timestamp())
    histories = relay_histories(seen, until_s).persist()
    try:
        changes = relay_transitions(histories).where(F.col("event_date").isin(judged))
        out = context.rewrite(changes, GOLD_RELAY_TRANSITIONS, judged)
        week = relay_week(seen.where(F.col("ts") >= F.lit(context.as_of - WEEK)))
        return out + context.rewrite_hour(relay_scores(histories, week, until_s), GOLD_RELAY_SCORES)
    finally:
        histories.unpersist()


def _days(first: datetime.date, last: datetime.date) -> list[datetime.date]:
    return [first + datetime.timedelta(days=number) for number in range((last - first).days + 1)]
