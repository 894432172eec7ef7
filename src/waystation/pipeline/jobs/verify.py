"""Step that writes ``silver.packets`` from ``bronze.archive``: the result of each packet's id and signature check.

``pipeline.run`` executes it. The table is rewritten as a whole, because a later copy may move a packet to an earlier
date. Earlier results are kept, so only new packets, or all after a change of the check rules, need a signature check.
"""

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.jobs.step import Context, Counts
from waystation.pipeline.packets import PacketVerdict
from waystation.pipeline.tables import BRONZE_ARCHIVE, SILVER_PACKETS
from waystation.pipeline.transforms.packets import check_new, packets

__all__ = ["verify_packets"]


def verify_packets(context: Context) -> Counts:
    """Check what is new in the archive; packets that are not valid count as rejected, and stay in the table."""
    bronze, silver = context.lake.manifest(BRONZE_ARCHIVE), context.lake.manifest(SILVER_PACKETS)
    dates = sorted({*bronze.dates(), *silver.dates()})
    if not dates:
        return Counts(0, 0)
    archive, known = context.read(BRONZE_ARCHIVE), context.read(SILVER_PACKETS)
    rows = packets(archive, known, check_new(archive, known))
    out = context.rewrite(rows, SILVER_PACKETS, dates)
    bad = context.read(SILVER_PACKETS).where(F.col("verdict") != PacketVerdict.VALID.value).count()
    return Counts(sum(batch.rows for batch in bronze.batches), out, bad)
