"""Events about groups and meshes, and plain loops that say what tables must hold of them."""

import itertools
import random
from collections.abc import Iterable
from typing import Any

from tests.journal.build import DAY_US, NOON_US, name_at
from waystation.journal.events import Event, MeshLinkEnded, MeshLookup, MessageChanged, MessageHeld, MessageStored
from waystation.journal.segment import encode_lines
from waystation.pipeline.transforms.ingest import accept, parse_lines

HOUR_US = 3_600_000_000


def ref(name: str) -> bytes:
    """Return 16 bytes that begin with a name."""
    return name.encode().ljust(16, b"_")


def bronze(spark: Any, events: Iterable[Event], odd: Iterable[str] = ()) -> Any:
    """Return events, and lines as they stand, as bronze rows; a line is numbered by its place."""
    lines = [*encode_lines(events, 0).decode().splitlines(), *odd]
    rows = [(line, name_at().text) for line in lines]
    return accept(parse_lines(spark.createDataFrame(rows, "value string, segment string"))).cache()


def group_events(seed: int, groups: int = 3, messages: int = 30) -> list[Event]:
    """Return what a node may tell of random groups, in any order: late and doubled words, lost arrivals, gaps."""
    rng = random.Random(seed)
    told: list[Event] = []
    for number, each in itertools.product(range(groups), range(messages)):
        group, message = ref(f"g{number}"), ref(f"m{each:02}")
        above = sorted({ref(f"m{rng.randrange(each + 1):02}") for _ in range(rng.randrange(4))} - {message})
        if rng.random() < 0.1:
            above.append(ref("unseen"))
        at = NOON_US + each * 1_000_000
        state, reason = rng.choice([("delivered", None), ("waiting", None), ("invalid", "invalid_dependency")])
        if rng.random() < 0.15:
            state, reason = "invalid", "unparsable"
        if rng.random() < 0.9:
            first = state if reason is None else rng.choice(["waiting", "invalid"])
            order = each + 1 if first == "delivered" else 0
            told.append(
                MessageStored(at, "bsp", None, first, each, group, message, b"".join(above), at // 1_000, order)
            )
        if reason is not None or rng.random() < 0.2:
            later = at + rng.choice([0, 5, DAY_US])
            told.append(MessageChanged(later, "bsp", state, reason, group, message, 0))
        for peer in range(rng.randrange(3)):
            heard = at + rng.randrange(-1_000, 9_000_000)
            word = (group, message, rng.randrange(3), rng.choice([None, 7]), None, 3)
            told += [MessageHeld(heard + extra, "bsp", ref(f"p{peer}"), *word) for extra in range(rng.randrange(1, 3))]
    rng.shuffle(told)
    return told


def plain_messages(events: list[Event]) -> dict[tuple[bytes, bytes], dict[str, Any]]:
    """Return what silver must hold of each group and message, times in microseconds."""
    rows: dict[tuple[bytes, bytes], dict[str, Any]] = {}
    blank = dict.fromkeys(("created_ms", "stored_at", "size", "delivery_order"))
    for event in sorted(events, key=lambda each: each.ts_us):
        if not isinstance(event, MessageStored | MessageChanged):
            continue
        row = rows.setdefault((event.group_ref, event.message_ref), {"dependency_refs": [], **blank})
        if isinstance(event, MessageStored) and row["stored_at"] is None:
            above = {event.dependency_refs[at : at + 16] for at in range(0, len(event.dependency_refs), 16)}
            row |= {"dependency_refs": sorted(above), "created_ms": event.created_ms}
            row |= {"stored_at": event.ts_us, "size": event.size_bytes}
        row |= {"state": event.state, "changed_at": event.ts_us}
        row["reason"] = event.reason if isinstance(event, MessageChanged) and event.state == "invalid" else None
        row["delivery_order"] = event.order or row["delivery_order"]
    return rows


def mesh_events(seed: int, servers: int = 7, links: int = 12) -> list[Event]:
    """Return what one node may tell of links with others over two days, and of look-ups."""
    rng = random.Random(seed)
    told: list[Event] = []
    for _ in range(links):
        other = f"{rng.randrange(servers):016x}"
        end, counts = NOON_US + rng.randrange(DAY_US), [rng.randrange(1_000) for _ in range(4)]
        told.append(MeshLinkEnded(end, "merk", ref("n"), other, 1, rng.randrange(9 * HOUR_US), *counts))
    for _ in range(links * 3):
        at, result = NOON_US + rng.randrange(DAY_US), rng.choice(["found", "absent", "timeout"])
        times = rng.choice([1, 1, 6])
        latency = rng.randrange(10**7) if result == "found" and times == 1 else None
        told.append(MeshLookup(at, "merk", None, 3 * times, int(result == "found"), latency, result, times))
    return told


def plain_links(events: list[Event]) -> dict[tuple[str, int], tuple[int, int, int, int]]:
    """Return by other node and hour (since 1970) the microseconds, frames, bytes and ends of a node's links."""
    spans: dict[str, list[tuple[int, int]]] = {}
    rows: dict[tuple[str, int], list[int]] = {}
    for event in events:
        if isinstance(event, MeshLinkEnded):
            spans.setdefault(event.relay_id, []).append((event.ts_us - event.duration_us, event.ts_us))
            end = rows.setdefault((event.relay_id, event.ts_us // HOUR_US), [0, 0, 0, 0])
            end[1] += event.frames_in + event.frames_out
            end[2] += event.bytes_in + event.bytes_out
            end[3] += 1
    for other, ended in spans.items():
        covered_to = 0
        for begins, ends in sorted(ended):
            at = max(begins, covered_to)
            for hour in range(begins // HOUR_US, ends // HOUR_US + 1):
                row = rows.setdefault((other, hour), [0, 0, 0, 0])
                row[0] += max(min(ends, (hour + 1) * HOUR_US) - max(at, hour * HOUR_US), 0)
            covered_to = max(covered_to, ends)
    return {key: (row[0], row[1], row[2], row[3]) for key, row in rows.items()}
