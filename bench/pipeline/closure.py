"""Benchmark: the dependency closure of message groups in Spark compared with plain Python in one process.

Usage: python -m bench.pipeline.closure [--edges 1000000] [--rounds 5] [--seed 1] [--json FILE]

Half of the dependencies are in groups of 500 messages, half in one large group that cannot be partitioned. Spark reads
``silver.bsp_messages`` from Parquet in a warm session and counts the result rows. Plain Python runs the same
``rules.causal_graph.close`` on lists in memory, so Spark's reading and sorting count only against Spark. A third case
is plain Python that reads the same Parquet. All three results must be equal.
"""

import datetime
import gc
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from bench.report import Bench, Figures, compared
from waystation.pipeline.session import open_session
from waystation.pipeline.tables import SILVER_BSP_MESSAGES
from waystation.pipeline.transforms.bsp_groups import bsp_groups, bsp_invalid, closures
from waystation.rules.causal_graph import Closure, Message, close

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RATIO_MAX: Final = 5.0
"""What is aimed at for a million dependencies."""

AS_OF: Final = datetime.datetime(2026, 5, 31, tzinfo=datetime.UTC)
STORED_AT: Final = datetime.datetime(2026, 5, 30, tzinfo=datetime.UTC)
NODE: Final = "00" * 8
GROUP_MESSAGES: Final = 500
ROOT_SHARE: Final = 0.0004
COLUMNS: Final = ("group_ref", "message_ref", "dependency_refs", "state", "reason")

Found = tuple[int, int, int, int, int]
"""Groups, messages, depths and parts of all of them together, and invalid messages with a known root."""


def make_group(rng: random.Random, messages: int) -> list[Message]:
    """Return a group in which each message depends on two that are not long before it, in any order."""
    refs = [rng.randbytes(16) for _ in range(messages)]
    made: list[Message] = [(refs[0], [], "delivered", None)]
    fallen: set[bytes] = set()
    for at in range(1, messages):
        above = sorted({refs[max(0, at - 1 - int(rng.expovariate(0.05)))] for _ in range(2)})
        state: tuple[str, str | None] = ("delivered", None)
        if not fallen.isdisjoint(above):
            state = ("invalid", "invalid_dependency")
        elif rng.random() < ROOT_SHARE:
            state = ("invalid", "unparsable")
        # Else the first invalid message of a long group would take all that come after it.
        if state[0] == "invalid" and rng.random() < 0.5:
            fallen.add(refs[at])
        made.append((refs[at], above, *state))
    rng.shuffle(made)
    return made


def make_groups(edges: int, seed: int) -> list[list[Message]]:
    """Return one big group and many of 500 messages, about so many dependencies in all."""
    rng = random.Random(seed)
    per_message = 1.96  # two, less those drawn twice
    small = round(edges / 2 / per_message / GROUP_MESSAGES)
    return [
        make_group(rng, round(edges / 2 / per_message)),
        *(make_group(rng, GROUP_MESSAGES) for _ in range(small)),
    ]


def write(groups: list[list[Message]], path: Path) -> None:
    """Write the groups as rows of ``silver.bsp_messages``, the big one among the others."""
    schema = SILVER_BSP_MESSAGES.arrow_schema()
    rows = [
        dict.fromkeys(schema.names)
        | {"node_id": NODE, "stored_at": STORED_AT, "changed_at": STORED_AT}
        | dict(zip(COLUMNS, (number.to_bytes(16, "big"), *message), strict=True))
        for number, group in enumerate(groups)
        for message in group
    ]
    random.Random(0).shuffle(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema), path, row_group_size=100_000)


def total(closed: Iterator[Closure]) -> Found:
    """Add up what was found of each group."""
    count = messages = depth = parts = causes = 0
    for one in closed:
        count, messages = count + 1, messages + one.n_messages
        depth, parts, causes = depth + one.depth, parts + one.n_components, causes + len(one.causes)
    return count, messages, depth, parts, causes


def plain(groups: list[list[Message]]) -> Found:
    """Close groups that are in memory."""
    return total(close(group) for group in groups)


def plain_from_file(path: Path) -> Found:
    """Read the file, put messages together by group, and close them."""
    groups: dict[bytes, list[Message]] = {}
    columns = [pq.read_table(path, columns=[name]).column(0).to_pylist() for name in COLUMNS]
    for group, *message in zip(*columns, strict=True):
        groups.setdefault(group, []).append(tuple(message))
    return total(close(group) for group in groups.values())


def by_spark(spark: "SparkSession", path: Path) -> Found:
    """Make both tables as the step does, and count their rows."""
    messages = spark.read.schema(SILVER_BSP_MESSAGES.row_ddl()).parquet(str(path))
    sync = spark.createDataFrame(
        [], "node_id string, peer_ref binary, group_ref binary, message_ref binary, held_at timestamp"
    )
    closed = closures(messages, AS_OF).persist()
    sums = [F.count("*"), *(F.sum(name) for name in ("n_messages", "depth", "n_components"))]
    groups = bsp_groups(closed, messages, sync, AS_OF).agg(*sums).first()
    causes = bsp_invalid(closed, AS_OF).count()
    closed.unpersist()
    assert groups is not None
    return groups[0], groups[1], groups[2], groups[3], causes


def measure(options: Any) -> list[Figures]:
    """Return the seconds of each round; the first warms Spark up and is not among them."""
    with tempfile.TemporaryDirectory(prefix="bench-closure-") as folder:
        path = Path(folder) / "messages.parquet"
        groups = make_groups(options.edges, options.seed)
        write(groups, path)
        edges_made = sum(len(message[1]) for group in groups for message in group)
        print(f"  {len(groups):,} groups, {sum(map(len, groups)):,} messages, {edges_made:,} dependencies")
        gc.collect()
        gc.freeze()  # the lists are there before the clock starts, and no collection of garbage walks them
        with open_session(extra={"spark.driver.memory": "2g"}) as opened:
            sides = {
                "spark": lambda: by_spark(opened.spark, path),
                "plain": lambda: plain(groups),
                "plain from file": lambda: plain_from_file(path),
            }
            return compared(sides, bool, options.rounds)


if __name__ == "__main__":
    bench = Bench(__doc__, rounds=5, edges=1_000_000, seed=1)
    text = f"closure, {bench.options.edges:,} dependencies, half of them in one group; seed {bench.options.seed}"
    bench.compare(text, measure, f"Spark over plain Python in one process (at most {RATIO_MAX:g})")
