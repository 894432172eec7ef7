"""Make ``silver.packets`` out of ``bronze.archive``: signatures and ids, each packet checked once by each set of rules.

The table is rewritten whole, because a later copy may move a packet to an earlier date; what was checked before is
taken over, so that only new packets cost a signature check.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.jobs.step import Counts
from waystation.pipeline.lake import Lake
from waystation.pipeline.packets import PacketVerdict
from waystation.pipeline.tables import BRONZE_ARCHIVE, SILVER_PACKETS
from waystation.pipeline.transforms.packets import check_new, packets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["verify_packets"]


def verify_packets(spark: "SparkSession", lake: Lake, run_id: str) -> Counts:
    """Check what is new in the archive; packets that are not valid count as rejected, and stay in the table."""
    bronze, silver = lake.manifest(BRONZE_ARCHIVE), lake.manifest(SILVER_PACKETS)
    dates = sorted({*bronze.dates(), *silver.dates()})
    if not dates:
        return Counts(0, 0)
    archive, known = lake.read(spark, BRONZE_ARCHIVE), lake.read(spark, SILVER_PACKETS)
    rows = packets(archive, known, check_new(archive, known))
    out = lake.overwrite(rows, SILVER_PACKETS, run_id, dates)
    bad = lake.read(spark, SILVER_PACKETS).where(F.col("verdict") != PacketVerdict.VALID.value).count()
    return Counts(sum(batch.rows for batch in bronze.batches), out, bad)
