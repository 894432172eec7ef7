"""A small world of nodes with every scenario, brought to one journal as shipping brings it, and what is true of it."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from waystation.sim.workload import ALL_SCENARIOS, Workload

NODES = 4
DAYS = 9
EVENTS = 16_000
SIGNED_PER_DAY = 40


def make_world(
    seed: int = 1, scenarios: Iterable[str] | Mapping[str, Mapping[str, int]] = ALL_SCENARIOS, events: int = EVENTS
) -> Workload:
    """Return the workload; the same seed gives the same bytes."""
    return Workload(seed, NODES, DAYS, events, scenarios, signed_per_day=SIGNED_PER_DAY)


def ship(workload: Workload, base: Path) -> dict[int, list[tuple[Path, bytes]]]:
    """Return by shipment where each file goes below ``base``: one journal and one archive for all nodes."""
    shipments: dict[int, list[tuple[Path, bytes]]] = {}
    for file in workload.files():
        _, _, place = file.path.partition("/")
        shipments.setdefault(file.shipment, []).append((base / place, file.data))
    return shipments


def put_all(files: Iterable[tuple[Path, bytes]]) -> None:
    """Write files; one that is there already goes into a folder of its own, as a second copy of a segment does."""
    for path, data in files:
        target = path
        while target.exists():
            target = target.parent.with_name(f"{target.parent.name}-again") / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def hours(rows: Iterable[Mapping[str, Any]], *keys: str) -> dict[tuple[Any, ...], tuple[int, int]]:
    """Return n and bytes of truth's rows by their keys."""
    return {tuple(row[key] for key in keys): (row["n"], row["bytes"]) for row in rows}
