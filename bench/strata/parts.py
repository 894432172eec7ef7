"""Measures the CPU cost of each part of accepting one Strata packet without a node: the lower bound for the node."""

import os
import sqlite3
import statistics
import time
from pathlib import Path

import jiter
import orjson
from blake3 import blake3
from nacl import bindings

from bench.report import cpu_us
from waystation.core.dids import key_of_did

ROUNDS = 5
ROWS_PER_GROUP = 100


def parts(frame_text: bytes, folder: Path, rows: int) -> dict[str, float]:
    """Return CPU microseconds of verify, parse and canonical form, hash and row for one PUBLISH.

    Args:
        frame_text: The message.
        folder: On the disk that the node uses.
        rows: How many packets the node will store in the same run; a row costs more in a larger table.
    """
    packet = orjson.loads(frame_text)["packet"]
    bare = {name: value for name, value in packet.items() if name not in {"packet_id", "signature"}}
    preimage = orjson.dumps(bare, option=orjson.OPT_SORT_KEYS)
    canonical = orjson.dumps(packet, option=orjson.OPT_SORT_KEYS)
    signed = bytes.fromhex(packet["signature"][2:]) + preimage
    public = bytes(key_of_did(packet["author_id"]) or b"")

    def canonicalise() -> None:
        body = jiter.from_json(frame_text, catch_duplicate_keys=True, allow_inf_nan=False)["packet"]
        orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
        del body["packet_id"], body["signature"]
        orjson.dumps(body, option=orjson.OPT_SORT_KEYS)

    return {
        "verify": min(cpu_us(lambda: bindings.crypto_sign_open(signed, public), 2_000, ROUNDS)),
        "parse and canonical form": min(cpu_us(canonicalise, 10_000, ROUNDS)),
        "hash": min(cpu_us(lambda: blake3(preimage).digest(), 10_000, ROUNDS)),
        "row": row_us(canonical, folder, rows),
    }


def row_us(canonical: bytes, folder: Path, rows: int) -> float:
    """Return CPU microseconds of one durable row with the indexes that filters need: id, author, type and order."""
    path = folder / "rows.sqlite"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
        "CREATE TABLE p (seq INTEGER PRIMARY KEY, id BLOB, author TEXT, type TEXT, ts INT, at INT, body BLOB);"
        "CREATE UNIQUE INDEX i ON p(id); CREATE INDEX a ON p(author, at, seq); CREATE INDEX h ON p(at, seq);"
        "CREATE INDEX t ON p(type, at, seq);"
    )
    taken = []
    seq = 0
    for _ in range(rows // ROWS_PER_GROUP):
        group = []
        for _ in range(ROWS_PER_GROUP):
            seq += 1
            group.append((seq, os.urandom(32), f"did:strata:{seq % 64:048d}", "POST", seq, seq // 100, canonical))
        before = time.process_time()
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO p VALUES (?,?,?,?,?,?,?)", group)
        connection.execute("COMMIT")
        taken.append((time.process_time() - before) / ROWS_PER_GROUP * 1e6)
    connection.close()
    return statistics.fmean(taken)


def sync_us(folder: Path, count: int = 200) -> float:
    """Return the median microseconds of appending 4 KiB and syncing them."""
    descriptor = os.open(folder / "sync", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    taken = []
    try:
        for _ in range(count):
            began = time.perf_counter()
            os.write(descriptor, bytes(4_096))
            os.fdatasync(descriptor)
            taken.append((time.perf_counter() - began) * 1e6)
    finally:
        os.close(descriptor)
    return statistics.median(taken)
