"""The mesh by the hour: Spark and the pure functions agree."""

import random

import pytest

from tests.journal.build import NOON_US
from tests.pipeline.graphs import HOUR_US
from waystation.pipeline.tables import GOLD_MESH_TOPOLOGY
from waystation.pipeline.transforms.mesh_topology import mesh_topology
from waystation.rules.histogram import THRESHOLDS_US, bucket_of, quantile
from waystation.rules.topology import places

pytestmark = pytest.mark.spark

SERVERS = [f"{number:016x}" for number in range(8)]
LONER = "ff" * 8
LINKS_DDL = "from_server string, to_server string, hour_us bigint, up_us bigint"
QUERIES_DDL = "node_id string, asked_us bigint, n bigint, first_found_us bigint, result string"


def drawn():
    """Return links of three hours, some told by both ends or never up, and look-ups, some by a server without links."""
    rng = random.Random(4)
    links = {}
    for _ in range(24):
        one, other = rng.sample(SERVERS, 2)
        links[one, other, NOON_US + rng.randrange(3) * HOUR_US] = rng.choice([0, 5, HOUR_US])
    queries = []
    for _ in range(120):
        result, n = rng.choice(["found", "found", "absent", "timeout"]), rng.choice([1, 1, 1, 9])
        took = rng.randrange(10**6) if result == "found" and n == 1 else None
        queries.append((rng.choice([*SERVERS, LONER]), NOON_US + rng.randrange(4 * HOUR_US), n, took, result))
    return [(*key, up) for key, up in links.items()], queries


def plain(links, queries):
    """Return by hour and server what the table must hold."""
    rows = {}
    for hour in range(NOON_US, NOON_US + 4 * HOUR_US, HOUR_US):
        asked = [query for query in queries if hour <= query[1] < hour + HOUR_US]
        up = [(one, other) for one, other, at, stood in links if at == hour and stood]
        for place in places({query[0] for query in asked}, up):
            own = [query for query in asked if query[0] == place.server]
            histogram: dict = {}
            for took in (query[3] for query in own if query[3] is not None):
                histogram[bucket_of(took)] = histogram.get(bucket_of(took), 0) + 1
            top = quantile(histogram, 0.95)
            rows[hour, place.server] = (
                list(place.neighbours),
                place.degree,
                place.component,
                place.component_size,
                place.is_articulation,
                sum(query[2] for query in own),
                sum(query[2] for query in own if query[4] == "found"),
                None if top is None else THRESHOLDS_US[top + 1] - 1,
            )
    return rows


def test_servers_are_placed_as_by_the_pure_functions_over_any_partitioning(spark) -> None:
    """Over 1, 2 and 7 partitions every server of every hour has its place; one that only asks stands alone."""
    links, queries = drawn()
    link_rows = spark.createDataFrame(links, LINKS_DDL).selectExpr("*", "timestamp_micros(hour_us) as hour")
    query_rows = spark.createDataFrame(queries, QUERIES_DDL).selectExpr("*", "timestamp_micros(asked_us) as asked_at")
    names = GOLD_MESH_TOPOLOGY.names()[2:]
    found = []
    for count in (1, 2, 7):
        frame = mesh_topology(link_rows.repartition(count), query_rows.repartition(count))
        rows = frame.selectExpr("*", "unix_micros(hour) as h").collect()
        found.append({(row["h"], row["server"]): tuple(row[name] for name in names) for row in rows})
        assert len(rows) == len(found[-1])

    assert found == [plain(links, queries)] * 3
    assert found[0][NOON_US + 3 * HOUR_US, LONER][:5] == ([], 0, LONER, 1, False)
    assert frame.columns == [*GOLD_MESH_TOPOLOGY.names(), "event_date"]
    assert all(dict(frame.dtypes)[column.name] == column.type for column in GOLD_MESH_TOPOLOGY.columns)
