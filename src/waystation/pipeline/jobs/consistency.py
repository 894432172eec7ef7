"""Step that compares relays: which archived packets each stored (``silver.packet_seen``, ``gold.consistency``).

``pipeline.run`` executes it on ``bronze.archive``. ``silver.packet_seen`` is rewritten as a whole, because a late copy
may move a packet to an earlier date.
"""

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.jobs.step import Context, Counts
from waystation.pipeline.tables import BRONZE_ARCHIVE, GOLD_CONSISTENCY, SILVER_PACKET_SEEN
from waystation.pipeline.transforms.consistency import consistency
from waystation.pipeline.transforms.packet_seen import packet_seen
from waystation.rules.consistency import Terms

__all__ = ["compare_relays"]


def compare_relays(context: Context) -> Counts:
    """Take in what was archived, then rewrite the dates that are due."""
    archived = context.lake.manifest(BRONZE_ARCHIVE).batches
    out = _take_in(context) if archived else 0
    due = context.due(GOLD_CONSISTENCY, SILVER_PACKET_SEEN)
    if due:
        settings = context.settings
        terms = Terms(settings.witnesses, settings.grace_s * 1_000_000, context.as_of_us)
        rows = consistency(context.read(SILVER_PACKET_SEEN), terms).where(F.col("event_date").isin(due))
        out += context.rewrite(rows, GOLD_CONSISTENCY, due)
    return Counts(sum(batch.rows for batch in archived), out)


def _take_in(context: Context) -> int:
    archive, known = context.read(BRONZE_ARCHIVE), context.read(SILVER_PACKET_SEEN)
    # The archive is dated by the first sighting of a packet, this table by when the node stored it: few, other dates.
    stored = archive.select(F.to_date("stored_at").alias("day")).distinct().collect()
    dates = {row["day"] for row in stored} | set(context.lake.manifest(SILVER_PACKET_SEEN).dates())
    return context.rewrite(packet_seen(archive, known), SILVER_PACKET_SEEN, sorted(dates))
