"""Step that writes ``silver.pow`` and ``gold.abuse_findings`` for due dates, then ``gold.policy`` as of this run.

``pipeline.run`` executes it. Findings are limits that a peer exceeded in an hour, policy is what nodes may do about it
(``rules.abuse``). ``silver.pow`` has the proof-of-work checks.
"""

import datetime

from waystation.pipeline.jobs.step import Context, Counts
from waystation.pipeline.tables import BRONZE_EVENTS, GOLD_ABUSE_FINDINGS, GOLD_POLICY, SILVER_POW
from waystation.pipeline.transforms.abuse import activity, findings, policy
from waystation.pipeline.transforms.pow import work
from waystation.rules.abuse import FINDING_HOURS

__all__ = ["find_abuse"]


def find_abuse(context: Context) -> Counts:
    """Rewrite the dates that are due, then decide the rules of nodes as of ``context.as_of``."""
    looked_at = _judge_dates(context)
    out = _decide(context)
    return Counts(looked_at.rows_in, looked_at.rows_out + out)


def _judge_dates(context: Context) -> Counts:
    due = context.due(SILVER_POW, BRONZE_EVENTS)
    out = context.rewrite(work(context.read(BRONZE_EVENTS, due)), SILVER_POW, due) if due else 0
    judged = context.due(GOLD_ABUSE_FINDINGS, BRONZE_EVENTS)
    if judged:
        counted = activity(context.read(BRONZE_EVENTS, judged), context.read(SILVER_POW, judged))
        out += context.rewrite(findings(counted), GOLD_ABUSE_FINDINGS, judged)
    return Counts(context.rows(BRONZE_EVENTS, sorted({*due, *judged})), out)


def _decide(context: Context) -> int:
    """Rewrite the rules of ``as_of``; those of other moments of its date stay. Returns the rows for ``as_of``."""
    today = context.as_of.date()
    oldest = (context.as_of - datetime.timedelta(hours=FINDING_HOURS + 1)).date()
    dates = [date for date in context.lake.manifest(GOLD_ABUSE_FINDINGS).dates() if oldest <= date <= today]
    if not dates and today not in context.lake.manifest(GOLD_POLICY).dates():
        return 0
    settings, found = context.settings, context.read(GOLD_ABUSE_FINDINGS, dates)
    decided = policy(found, context.as_of_us, settings.policy_hours, settings.policy_mode)
    return context.rewrite_hour(decided, GOLD_POLICY)
