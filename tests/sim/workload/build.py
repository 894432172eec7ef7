"""Small workloads that the tests share, and the plain reading that their truth is compared with."""

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from waystation.journal.archive import ARCHIVE_FORMAT, read_packets
from waystation.journal.segment import classify, parse_name, read_rows
from waystation.sim.workload import ALL_SCENARIOS, Workload, WorkloadFile
from waystation.sim.workload.plan import Plan, make_plan
from waystation.sim.workload.stage import Stage
from waystation.sim.workload.truth import Truth


class Made(NamedTuple):
    """A whole workload in memory."""

    files: list[WorkloadFile]
    truth: dict[str, Any]


@cache
def made(*scenarios: str, nodes: int = 4, days: int = 3, events: int = 3_000, seed: int = 7) -> Made:
    """Return a small workload; ``all`` stands for every scenario."""
    workload = Workload(seed, nodes, days, events, ALL_SCENARIOS if scenarios == ("all",) else scenarios)
    files = list(workload.files())
    return Made(files, workload.truth())


def plan_of(*scenarios: str, nodes: int = 4, days: int = 3, events: int = 6_000, **given: Any) -> Plan:
    """Return the plan of such a workload."""
    start_us = given.pop("start_us", 1_779_667_200_000_000)
    return make_plan(given.pop("seed", 7), nodes, days, events, scenarios, start_us, given.pop("signed_per_day", 2_000))


def played(plan: Plan, topic: Any) -> tuple[Stage, list[list[Any]]]:
    """Play one topic alone through all slots; return the stage and what each node recorded."""
    stage, events = Stage(plan, Truth(node.node_id for node in plan.nodes)), [[] for _ in plan.nodes]
    for _ in range(plan.slots):
        stage.advance()
        topic.play(stage)
        for node, out in enumerate(stage.out):
            events[node] += out
    return stage, events


def name_of(file: WorkloadFile) -> str:
    """Return a file's own name."""
    return file.path.rpartition("/")[2]


def journal_rows(files: list[WorkloadFile]) -> list[dict[str, Any]]:
    """Return each event of the journals once, with its ``node_id``; not to be changed, since tests share it."""
    if id(files) not in _ROWS:  # ``made`` keeps the list for ever, so nobody else gets its id
        _ROWS[id(files)] = _read(files)
    return _ROWS[id(files)]


_ROWS: dict[int, list[dict[str, Any]]] = {}


def _read(files: Iterable[WorkloadFile]) -> list[dict[str, Any]]:
    taken: dict[tuple[str, int], dict[str, Any]] = {}
    for file in files:
        name = parse_name(name_of(file))
        if "/journal/" in file.path and name and b'"segment_opened"' in file.data.partition(b"\n")[0]:
            if classify(name, file.data.partition(b"\n")[0], file.data)[0].value == "foreign":
                continue
            rows = read_rows(file.data)
            taken |= {(name.text, row["seq"]): {**row, "node_id": name.node_id} for row in rows}
    return list(taken.values())


def rows_of(files: list[WorkloadFile], *kinds: str) -> list[dict[str, Any]]:
    """Return the events of these kinds."""
    return [row for row in journal_rows(files) if row["kind"] in kinds]


def hour_of(ts_us: int) -> int:
    """Return the hour of a moment, in Unix seconds."""
    return ts_us // 3_600_000_000 * 3_600


def archive_rows(files: Iterable[WorkloadFile]) -> list[dict[str, Any]]:
    """Return each packet of the archives, with its ``node_id``."""
    found = []
    for file in files:
        name = parse_name(name_of(file))
        if "/archive/" in file.path and name:
            state, _ = classify(name, file.data.partition(b"\n")[0], file.data, ARCHIVE_FORMAT)
            assert state.value != "foreign"
            found += [{**row, "node_id": name.node_id} for row in read_packets(file.data)]
    return found
