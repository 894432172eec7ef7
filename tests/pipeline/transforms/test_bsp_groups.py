"""Groups by Spark and by the pure functions, on one frame."""

import pytest

from tests.journal.build import DAY_US, NODE_ID, NOON_US
from tests.pipeline.build import AS_OF
from tests.pipeline.graphs import bronze, group_events, plain_messages, ref
from waystation.journal.events import MessageHeld, MessageStored
from waystation.pipeline.tables import GOLD_BSP_GROUPS, GOLD_BSP_INVALID
from waystation.pipeline.transforms.bsp_groups import bsp_groups, bsp_invalid, closures
from waystation.pipeline.transforms.bsp_messages import bsp_messages
from waystation.pipeline.transforms.bsp_sync import bsp_sync
from waystation.rules.causal_graph import Closure, close, converge_us

pytestmark = pytest.mark.spark

AS_OF_US = NOON_US + DAY_US + DAY_US // 2
AFTER = [
    MessageStored(AS_OF_US, "bsp", None, "delivered", 1, ref("g0"), ref("after"), b"", 1, 1),
    MessageHeld(AS_OF_US, "bsp", ref("late peer"), ref("g0"), ref("m00"), 1, None, None, None),
]
EVENTS = [*group_events(2, groups=4, messages=40), *AFTER]
FACTS = Closure._fields[:-1]


@pytest.fixture(scope="module")
def silver(spark):
    """Give messages of random groups and what peers hold, some of it told at the moment itself."""
    events = bronze(spark, EVENTS)
    return bsp_messages(events).cache(), bsp_sync(events).cache()


def results(messages, sync):
    """Return groups and invalid messages as plain values."""
    closed = closures(messages, AS_OF).persist()
    groups, invalid = bsp_groups(closed, messages, sync, AS_OF).collect(), bsp_invalid(closed, AS_OF).collect()
    closed.unpersist()
    assert {(row["node_id"], row["event_date"]) for row in (*groups, *invalid)} == {(NODE_ID, AS_OF.date())}
    facts = {bytes(row["group_ref"]): tuple(row[name] for name in (*FACTS, "n_peers", "converge_us")) for row in groups}
    causes = sorted((*(bytes(row[name]) for name in GOLD_BSP_INVALID.names()[1:4]), row["distance"]) for row in invalid)
    return facts, causes


def plain():
    """Return the same by the pure functions over the events before the moment."""
    rows = plain_messages([event for event in EVENTS if event.ts_us < AS_OF_US])
    facts, causes = {}, []
    for group in {group for group, _ in rows}:
        of_group = {message: row for (each, message), row in rows.items() if each == group}
        closed = close([(name, row["dependency_refs"], row["state"], row["reason"]) for name, row in of_group.items()])
        words = [e for e in EVENTS if isinstance(e, MessageHeld) and e.group_ref == group and e.ts_us < AS_OF_US]
        first: dict = {}
        for word in sorted(words, key=lambda each: each.ts_us):
            first.setdefault((word.peer_ref, word.message_ref), word.ts_us)
        stored = {name: row["stored_at"] for name, row in of_group.items() if row["stored_at"] is not None}
        waited = converge_us(stored, [(message, at) for (_, message), at in first.items()])
        facts[group] = (*closed[:-1], len({word.peer_ref for word in words}), waited)
        causes += [(group, *cause) for cause in closed.causes]
    return facts, sorted(causes)


def test_groups_are_those_of_the_pure_functions_over_any_partitioning(silver) -> None:
    """Over 1, 2 and 7 partitions, counts, causes, peers and convergence are what plain Python finds before as_of."""
    found = [results(*(frame.repartition(count) for frame in silver)) for count in (1, 2, 7)]

    assert found == [plain()] * 3
    assert found[0][1]


def test_rows_have_the_declared_columns(silver) -> None:
    """What comes out is the tables' columns in their types, dated by the moment."""
    messages, sync = silver
    closed = closures(messages, AS_OF)
    groups = bsp_groups(closed, messages, sync, AS_OF)
    for frame, dataset in ((groups, GOLD_BSP_GROUPS), (bsp_invalid(closed, AS_OF), GOLD_BSP_INVALID)):
        types = dict(frame.dtypes)

        assert list(types) == [*dataset.names(), "event_date"]
        assert all(types[column.name] == column.type for column in dataset.columns)
