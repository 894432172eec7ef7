"""From gold tables to published files, as a node reads them."""

import dataclasses
import datetime
import io
import json

import pyarrow.parquet as pq
import pytest

from tests.pipeline.build import AS_OF, context_of
from waystation.core.errors import LocalError
from waystation.pipeline.jobs.publish import _as_fit, _fitting, publish
from waystation.pipeline.lake import Lake
from waystation.pipeline.publish import load_key, table_part
from waystation.pipeline.tables import (
    GOLD_BSP_GROUPS,
    GOLD_CAPACITY,
    GOLD_CONSISTENCY,
    GOLD_MESH_TOPOLOGY,
    GOLD_OUTCOMES,
    GOLD_POLICY,
    GOLD_RELAY_SCORES,
    GOLD_RELAY_TRANSITIONS,
    OPS_RUNS,
)
from waystation.rules.policy import Action, Mode, decode_rules, decode_scores
from waystation.rules.relay_state import State
from waystation.rules.snapshot import (
    CURRENT_NAME,
    FILE_BYTES_MAX,
    POLICY_SCHEMA,
    SCORES_SCHEMA,
    TABLE_SCHEMA,
    decode_snapshot,
)
from waystation.server.policy_reader import TABLES, read_published

pytestmark = pytest.mark.spark

NODES = ("0011223344556677", "8899aabbccddeeff")
HOUR = datetime.timedelta(hours=1)
DAY = datetime.timedelta(days=1)
AS_OF_US = int(AS_OF.timestamp()) * 1_000_000
RELAY = "fedcba9876543210"


def policy(node, number, action, evidence=1, *, as_of=AS_OF, until=AS_OF + DAY, mode="shadow"):
    """Return a row of gold.policy."""
    amount = {"block": 0, "rate": 10, "pow": 4}[action]
    ref = bytes([number]) * 16
    return (node, as_of, "peer", ref, action, amount, "burst", evidence, as_of - HOUR, until, "1", mode)


def group(number, n_messages, n_peers):
    """Return a row of gold.bsp_groups."""
    return (NODES[0], bytes([number]) * 16, AS_OF, n_messages, n_messages, 0, 3, 0, 0, 0, 1, 1, 1, n_peers, 5)


ROWS = {
    GOLD_POLICY: [
        policy(NODES[0], 1, "pow", 9),
        policy(NODES[0], 2, "rate"),
        policy(NODES[0], 3, "rate", 7),
        policy(NODES[0], 4, "block", mode="enforce"),
        policy(NODES[0], 5, "block", until=AS_OF),
        policy(NODES[0], 6, "block", as_of=AS_OF + HOUR),
        policy(NODES[1], 1, "rate"),
    ],
    GOLD_RELAY_SCORES: [
        (RELAY, at, 1, 2, 3, 1.0, 0.5, None, 0, None, None, 4, score, "blacklisted", AS_OF - DAY, "violations")
        for at, score in ((AS_OF, 0.123457), (AS_OF + HOUR, 0.9))
    ],
    GOLD_OUTCOMES: [
        (AS_OF - hours * HOUR, "bhumi", "ok", n, 5, {3: n - 12, 2: 12})
        for hours, n in ((1, 30), (2, 9), (168, 14), (169, 99), (0, 99))
    ],
    GOLD_RELAY_TRANSITIONS: [(RELAY, AS_OF - HOUR, "active", "blacklisted", "violations", 0.5, 40)],
    GOLD_MESH_TOPOLOGY: [
        (NODES[0], AS_OF - hours * HOUR, [NODES[1]], 1, NODES[0], 2, False, 11, 5, None) for hours in (1, 2)
    ],
    GOLD_CONSISTENCY: [(RELAY, (AS_OF - DAY).date(), 40, 31, 9, 0.775, 0.6, 0.9, 2, [b"\xff" * 32, b"\x00" * 32])],
    GOLD_CAPACITY: [
        (NODES[0], (AS_OF - DAY).date(), 7, 100, 1.5, 1, 2, 3, 4, 5, None, None, 0, 0, 0.0),
    ],
    GOLD_BSP_GROUPS: [group(1, 20, 2), group(2, 12, 10)],
}


def dated(dataset, row):
    """Return the row with its partition columns."""
    moment = row[dataset.names().index(dataset.dated_by)]
    return (*row, moment.date() if isinstance(moment, datetime.datetime) else moment, "one")


@pytest.fixture(scope="module")
def lake(spark, tmp_path_factory) -> Lake:
    """Fill every table that is published."""
    made = Lake(tmp_path_factory.mktemp("publish") / "lake")
    for dataset, rows in ROWS.items():
        dates = {dated(dataset, row)[-2] for row in rows}
        frame = spark.createDataFrame([dated(dataset, row) for row in rows], dataset.ddl()).coalesce(1)
        made.overwrite(frame, dataset, "one", dates)
    document = {"run_id": "r", "started_at": "s", "finished_at": "f", "engine": "e", "steps": [], "report": "secret"}
    made.write_run(OPS_RUNS, "r", AS_OF.date(), document | {"segments": [1, 2], "rejections": []})
    return made


@pytest.fixture(scope="module")
def published(spark, lake):
    """Publish twice; return both counts, the files after each, and the pointer."""
    context = context_of(spark, lake, "r")
    folder = lake.root / "published"
    results = []
    for _ in range(2):
        counts = publish(context)
        results.append((counts, {path.name: path.read_bytes() for path in folder.iterdir()}))
    return results, decode_snapshot(results[0][1][CURRENT_NAME])


def read(published, stem, schema):
    """Return the bytes of one published file."""
    results, snapshot = published
    return results[0][1][snapshot.find(stem, schema).name]


def table(published, stem):
    """Return the rows of one table."""
    return json.loads(read(published, stem, TABLE_SCHEMA))["rows"]


def test_each_node_gets_its_rules(published):
    """The hardest first, then those with the most evidence; neither ended ones nor those of another moment."""
    rules, others = (decode_rules(read(published, f"policy-{node}", POLICY_SCHEMA)) for node in NODES)

    assert [(rule.subject_ref[0], rule.action) for rule in rules] == [
        (4, Action.BLOCK),
        (3, Action.RATE),
        (2, Action.RATE),
        (1, Action.POW),
    ]
    assert (rules[0].mode, rules[3].amount) == (Mode.ENFORCE, 4)
    assert (rules[0].valid_from_us, rules[0].valid_until_us) == (AS_OF_US - 3_600_000_000, AS_OF_US + 86_400_000_000)
    assert [rule.subject_ref[0] for rule in others] == [1]


def test_node_takes_what_was_published(published, lake):
    """Its reader finds all of it in order: rules, scores and every table of the console."""
    _, snapshot = published
    found = read_published(lake.root / "published", NODES[0], snapshot.key, None, AS_OF_US)

    assert (len(found.table), list(found.scores)) == (4, [RELAY])
    assert sorted(found.tables) == sorted(TABLES)


def test_files_are_cut_at_what_a_node_reads():
    """Lines that have no room fall away, and so do the last rows of a table."""
    lines = list(_as_fit(iter([b"x" * 1_000_000] * 5)))
    rows = [{"text": "x" * 1_000_000}] * 8
    part = _fitting(lambda some: table_part("runs", AS_OF, some), rows)

    assert len(lines) == 4
    assert 2 <= part.rows <= 4
    assert len(part.data) <= FILE_BYTES_MAX


def test_scores_are_those_of_the_moment(published, lake):
    """For nodes as lines, for analysts as Parquet, for the console as JSON."""
    _, snapshot = published
    (score,) = decode_scores(read(published, "scores", SCORES_SCHEMA)).values()
    parquet = pq.read_table(io.BytesIO(read(published, "scores", "parquet-1"))).to_pylist()

    assert (score.relay_id, score.score, score.state, score.reason) == (
        RELAY,
        0.123457,
        State.BLACKLISTED,
        "violations",
    )
    assert (score.as_of_us, score.since_us) == (AS_OF_US, AS_OF_US - 86_400_000_000)
    assert [(row["relay_id"], row["as_of"], row["n_obs"]) for row in parquet] == [(RELAY, AS_OF, 4)]
    assert [(row["as_of"], row["n_obs"]) for row in table(published, "scores")] == [("2026-05-31T00:00:00+00:00", None)]
    assert (snapshot.as_of_us, snapshot.expires_at_us) == (AS_OF_US, AS_OF_US + 86_400_000_000)
    assert snapshot.key == load_key(lake.root).public


def test_small_counts_are_left_out(published):
    """Rows of outcomes, buckets and counts below ten are not told, nor what they follow from; what nobody was in is."""
    outcomes = table(published, "outcomes")
    (served,) = table(published, "consistency")

    assert [(row["hour"], row["n"], row["histogram"]) for row in outcomes] == [
        ("2026-05-30T23:00:00+00:00", 30, [[2, 12], [3, 18]]),
        ("2026-05-24T00:00:00+00:00", 14, [[2, 12]]),
    ]
    counts = ("n_messages", "n_invalid_root", "n_waiting", "n_peers")
    assert [[row[name] for name in counts] for row in table(published, "bsp")] == [
        [20, None, 0, None],
        [12, None, 0, 10],
    ]
    assert [served[name] for name in ("n_expected", "n_served", "n_missing")] == [None] * 3


def test_other_tables_are_windows_of_gold(published):
    """The last hour of the mesh, the last days of the others, no references and no ids, runs without places."""
    (row,) = table(published, "consistency")

    assert row["day"] == "2026-05-30"
    assert "suspicious" not in row
    assert [row["hour"] for row in table(published, "topology")] == ["2026-05-30T23:00:00+00:00"]
    assert [row["at"] for row in table(published, "transitions")] == ["2026-05-30T23:00:00+00:00"]
    assert [(row["peak_connections"], row["messages"]) for row in table(published, "capacity")] == [(None, 100)]
    (run,) = table(published, "runs")
    assert list(run) == ["engine", "finished_at", "rejections", "run_id", "segments", "started_at", "steps"]
    assert (run["segments"], run["rejections"]) == (2, 0)


def test_same_gold_gives_the_same_bytes(published):
    """Publishing again changes nothing, and rows are accounted for."""
    (first, files), (second, again) = published[0]

    assert files == again
    assert first == second
    assert first.rows_in == first.rows_out + first.rows_rejected
    assert first.rows_rejected == 1


def test_empty_lake_publishes_that(spark, tmp_path) -> None:
    """A pipeline that found nothing says so, so that nodes are told that nothing holds any more."""
    counts = publish(context_of(spark, Lake(tmp_path / "lake"), "r"))
    snapshot = decode_snapshot((tmp_path / "lake" / "published" / CURRENT_NAME).read_bytes())

    assert (counts.rows_in, counts.rows_out) == (0, 0)
    assert {entry.rows for entry in snapshot.files} == {0}


def test_remote_lake_needs_a_folder_of_the_node(spark, tmp_path) -> None:
    """Nodes read files: a lake in an object store is published beside the journal, or not at all."""
    context = dataclasses.replace(context_of(spark, Lake("s3a://bucket/lake"), "r"))

    with pytest.raises(LocalError, match="no journal names the node"):
        publish(context)
