"""Benchmark: Strata packets checked per second by Spark and by plain multiprocessing with the same functions.

Usage: python -m bench.pipeline.verify [--packets 200000] [--rounds 3] [--processes 2]

Both read one Parquet file of ``bronze.archive`` columns, keep the earliest copy of each packet, and call
``waystation.pipeline.packets.check_packet``. Both are warm and use as many processes as Spark has threads. Spark runs
the pipeline's own ``check_new`` on empty Parquet tables (the lake).
"""

import hashlib
import multiprocessing
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from bench.report import Bench, Figures, compared
from waystation.crypto.signing import KeyPair
from waystation.pipeline.lake import Lake
from waystation.pipeline.packets import PacketVerdict, check_packet
from waystation.pipeline.session import open_session
from waystation.pipeline.tables import BRONZE_ARCHIVE, SILVER_PACKETS
from waystation.pipeline.transforms.packets import check_new
from waystation.protocols.strata.packet import make_packet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RATIO_MIN: Final = 0.9
"""What is aimed at: packets a second, of multiprocessing's."""

WARM_UP: Final = 3
"""Rounds before the first that counts; so long Java compiles what it found to be hot."""

BAD_EVERY: Final = 1_000
CHUNK_ROWS: Final = 5_000
"""A row group, and what one process takes at a time."""
ORDER: Final = ["received_at", "node_id", "segment", "seq"]
NEEDED: Final = ["packet_id", "author_id", "content_type", "packet_ts", "expires_at", "pubkey", "sig", "signed_bytes"]


def make_rows(count: int) -> list[dict[str, Any]]:
    """Return archived packets of 64 authors; one in a thousand has a foreign signature."""
    authors = [KeyPair.from_seed(hashlib.sha256(b"author %d" % number).digest()) for number in range(64)]
    rows = []
    for number in range(count):
        author = authors[number % len(authors)]
        packet = make_packet(
            author, {"type": "POST", "text": f"{number} " + "x" * 80}, timestamp=1_780_000_000 + number
        )
        signature = packet.canonical.partition(b'"signature":"0x')[2][:128]
        wrong = number % BAD_EVERY == 0
        canonical = packet.canonical.replace(signature, signature[::-1]) if wrong else packet.canonical
        rows.append(
            {
                "node_id": "00" * 8,
                "segment": "s",
                "seq": number,
                "packet_id": packet.packet_id,
                "author_id": packet.author_id,
                "content_type": "POST",
                "packet_ts": packet.timestamp,
                "expires_at": None,
                "pubkey": author.public,
                "sig": bytes.fromhex((signature[::-1] if wrong else signature).decode()),
                "signed_bytes": canonical,
                "size": len(canonical),
                "received_at": 1_780_000_000_000_000,
                "stored_at": 1_780_000_000_000_000,
                "protocol": "strata",
            }
        )
    return rows


def check_chunk(path: str, group: int, wanted: pa.Array) -> int:
    """Return how many of the wanted packets of a row group are valid."""
    rows = pq.ParquetFile(path).read_row_group(group, columns=NEEDED).take(wanted).to_pylist()
    return sum(check_packet(row).verdict is PacketVerdict.VALID for row in rows)


def by_processes(pool: Any, path: str) -> int:
    """Pick one copy of each packet, the earliest, and check those in a pool of processes."""
    keys = pq.read_table(path, columns=["packet_id", *ORDER])
    order = keys.append_column("row", pa.array(range(keys.num_rows))).sort_by([(name, "ascending") for name in ORDER])
    firsts = order.group_by("packet_id", use_threads=False).aggregate([("row", "first")])["row_first"].sort()
    chunks = []
    for group in range(-(-keys.num_rows // CHUNK_ROWS)):
        begin = group * CHUNK_ROWS
        here = pc.and_(pc.greater_equal(firsts, begin), pc.less(firsts, begin + CHUNK_ROWS))
        chunks.append((path, group, pc.subtract(firsts.filter(here), begin).combine_chunks()))
    return sum(pool.starmap(check_chunk, chunks, chunksize=1))


def by_spark(spark: "SparkSession", path: str) -> int:
    """Check everything as the step does over a lake that holds nothing yet."""
    archive = spark.read.schema(BRONZE_ARCHIVE.row_ddl()).parquet(path)
    known = Lake(f"{path}.lake").read(spark, SILVER_PACKETS)
    return check_new(archive, known).where(F.col("verdict") == PacketVerdict.VALID.value).count()


def measure(options: Any) -> list[Figures]:
    """Measure both, one after the other in each round."""
    packets, processes = options.packets, options.processes
    with tempfile.TemporaryDirectory(prefix="bench-verify-") as folder:
        path = str(Path(folder) / "archive.parquet")
        table = pa.Table.from_pylist(make_rows(packets), BRONZE_ARCHIVE.arrow_schema())
        pq.write_table(table, path, row_group_size=CHUNK_ROWS)
        good = packets - -(-packets // BAD_EVERY)
        with multiprocessing.Pool(processes) as pool, open_session(cpus=processes) as opened:
            sides = {"multiprocessing": lambda: by_processes(pool, path), "Spark": lambda: by_spark(opened.spark, path)}
            taken = compared(sides, lambda found: found == good, options.rounds, WARM_UP)
    return [
        {f"{name} packets/s": packets / one[f"{name} s"] for name in sides} | {"ratio": one["ratio"]} for one in taken
    ]


if __name__ == "__main__":
    bench = Bench(__doc__, rounds=3, packets=200_000, processes=min(os.cpu_count() or 1, 2))
    text = f"verify, {bench.options.packets:,} packets, {bench.options.processes} processes"
    bench.compare(text, measure, f"Spark over multiprocessing (at least {RATIO_MIN:g})")
