"""Packets checked a second by Spark and by plain multiprocessing with the same functions, in one run.

Usage: python -m bench.pipeline_verify [--packets 60000] [--rounds 5] [--processes 2]

Both read the same Parquet file of ``bronze.archive`` columns and call ``waystation.pipeline.packets.check_packet`` for
each row; both are warm, with as many processes as Spark has threads. Spark runs ``check_new`` as its step does, which
also picks one copy of each packet and compares with what was checked before.
"""

import argparse
import hashlib
import multiprocessing
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.crypto.signing import KeyPair
from waystation.pipeline.packets import PacketVerdict, check_packet
from waystation.pipeline.session import open_session
from waystation.pipeline.tables import BRONZE_ARCHIVE, SILVER_PACKETS
from waystation.pipeline.transforms.packets import check_new
from waystation.protocols.strata.packet import make_packet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RATIO_MIN: Final = 0.9
"""What is aimed at: packets a second, of multiprocessing's."""

BAD_EVERY: Final = 1_000
CHUNK_ROWS: Final = 2_000
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


def check_chunk(path: str, begin: int) -> int:
    """Return how many packets of a chunk are valid."""
    rows = pq.read_table(path, columns=NEEDED).slice(begin, CHUNK_ROWS).to_pylist()
    return sum(check_packet(row).verdict is PacketVerdict.VALID for row in rows)


def by_processes(pool: Any, path: str, count: int) -> int:
    """Check everything in a pool of processes."""
    chunks = [(path, begin) for begin in range(0, count, CHUNK_ROWS)]
    return sum(pool.starmap(check_chunk, chunks, chunksize=1))


def by_spark(spark: "SparkSession", path: str) -> int:
    """Check everything as the step does."""
    archive = spark.read.schema(BRONZE_ARCHIVE.row_ddl()).parquet(path)
    known = spark.createDataFrame([], SILVER_PACKETS.row_ddl())
    return check_new(archive, known).where(F.col("verdict") == PacketVerdict.VALID.value).count()


def main() -> None:
    """Print packets a second of both, and the ratio."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--packets", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=min(os.cpu_count() or 1, 2))
    given = parser.parse_args()
    ratios, spark_s, plain_s = [], [], []
    with tempfile.TemporaryDirectory(prefix="bench-verify-") as folder:
        path = str(Path(folder) / "archive.parquet")
        table = pa.Table.from_pylist(make_rows(given.packets), BRONZE_ARCHIVE.arrow_schema())
        pq.write_table(table, path, row_group_size=max(given.packets // (4 * given.processes), 1))
        good = given.packets - -(-given.packets // BAD_EVERY)
        with multiprocessing.Pool(given.processes) as pool, open_session(cpus=given.processes) as opened:
            for number in range(given.rounds + 1):  # the first warms both up
                begun = time.perf_counter()
                assert by_processes(pool, path, given.packets) == good
                middle = time.perf_counter()
                assert by_spark(opened.spark, path) == good
                ended = time.perf_counter()
                if number:
                    plain_s.append(middle - begun)
                    spark_s.append(ended - middle)
                    ratios.append((middle - begun) / (ended - middle))
    machine = f"{platform.platform()}, CPython {platform.python_version()}"
    print(f"{machine}, {given.processes} processes, {given.packets:,} packets")
    for name, seconds in (("Spark", spark_s), ("multiprocessing", plain_s)):
        rates = sorted(given.packets / each for each in seconds)
        print(f"{name:16} {statistics.median(rates):>10,.0f} packets/s  ({rates[0]:,.0f} to {rates[-1]:,.0f})")
    spread = f"({min(ratios):.2f} to {max(ratios):.2f}), aim {RATIO_MIN}"
    print(f"ratio            {statistics.median(ratios):>10.2f}  {spread}")


if __name__ == "__main__":
    main()
