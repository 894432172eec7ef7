"""Verifies the id and signature of archived packets, and merges the copies of each packet into one row.

``jobs.verify`` calls it: ``bronze.archive`` and present results go in, rows of ``silver.packets`` come out. Only
packets not yet checked by the current rules are verified; the earliest copy decides for all copies.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.packets import RULE_VERSION, check_packet
from waystation.pipeline.tables import SILVER_PACKETS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["check_new", "packets"]

_CHECKED: Final = ("author_id", "content_type", "packet_ts", "expires_at", "pubkey", "sig", "signed_bytes")
_ORDER: Final = ("received_at", "node_id", "segment", "seq")
_CHECKS_DDL: Final = "packet_id binary, schema_ok boolean, id_ok boolean, sig_ok boolean, verdict string"
_CHECKS: Final = ("packet_id", "schema_ok", "id_ok", "sig_ok", "verdict")


def check_new(archive: "DataFrame", known: "DataFrame") -> "DataFrame":
    """Check every packet that no row of ``known`` has by today's rules, its earliest copy for all.

    Takes ``bronze.archive`` and ``silver.packets``. Gives ``packet_id: binary``, ``schema_ok``, ``id_ok``,
    ``sig_ok: boolean`` and ``verdict: string``.
    """
    done = known.where(F.col("verified_with") == RULE_VERSION).select("packet_id")
    new = archive.select("packet_id", *_CHECKED, *_ORDER).join(done, "packet_id", "left_anti")
    # Sorting spills when it must, and a window would do it twice; the first of each run is taken where it is checked.
    copies = new.repartition("packet_id").sortWithinPartitions("packet_id", *_ORDER)
    return copies.select("packet_id", *_CHECKED).mapInArrow(_check_firsts, _CHECKS_DDL)


def packets(archive: "DataFrame", known: "DataFrame", checked: "DataFrame") -> "DataFrame":
    """Return one row per packet id: when and by how many nodes it was seen, and what its check found.

    Takes ``bronze.archive``, ``silver.packets`` as it was and what ``check_new`` gives. Gives the columns of
    ``silver.packets`` and ``event_date: date``, the date of ``first_received_at``.
    """
    reported = F.struct("protocol", "author_id", "content_type", "packet_ts", "expires_at", "size")
    seen = archive.groupBy("packet_id").agg(
        F.min_by(reported, F.struct(*_ORDER)).alias("reported"),
        F.min("received_at").alias("first_received_at"),
        F.countDistinct("node_id").cast("int").alias("n_nodes"),
    )
    still = known.where(F.col("verified_with") == RULE_VERSION).select(*_CHECKS)
    joined = seen.join(still.unionByName(checked), "packet_id").withColumn("verified_with", F.lit(RULE_VERSION))
    rows = joined.select("*", "reported.*")
    return rows.select(*SILVER_PACKETS.names(), F.to_date("first_received_at").alias("event_date"))


def _check_firsts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Check the first of the copies of each packet; copies follow each other, over the borders of batches too."""
    before = None
    for batch in batches:
        firsts = []
        for row in batch.to_pylist():
            if row["packet_id"] != before:
                before = row["packet_id"]
                firsts.append(row)
        checks = [check_packet(row) for row in firsts]
        columns = [
            pa.array([row["packet_id"] for row in firsts], pa.binary()),
            pa.array([check.schema_ok for check in checks], pa.bool_()),
            pa.array([check.id_ok for check in checks], pa.bool_()),
            pa.array([check.sig_ok for check in checks], pa.bool_()),
            pa.array([check.verdict.value for check in checks], pa.string()),
        ]
        yield pa.RecordBatch.from_arrays(columns, names=list(_CHECKS))
