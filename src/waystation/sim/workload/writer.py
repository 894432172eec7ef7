"""Writes the events of each slot (a short span of time) as journal and archive files of every node.

The generator passes a slot and gets ``WorkloadFile`` values. Some files are late, duplicated, reordered or cut short,
as on real machines, and ``truth`` notes which; the pipeline must give the same tables anyway.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from waystation.journal.archive import ARCHIVE_FORMAT, ArchivedPacket, encode_archive
from waystation.journal.contract import FORMAT_VERSION, KINDS
from waystation.journal.events import AnonymousCounted, Event, SegmentOpened, SegmentSealed
from waystation.journal.segment import OPEN_SUFFIX, SEALED_SUFFIX, SegmentName, encode_lines
from waystation.sim.workload.mixture import GOOD_KINDS, REJECTIONS, SMUGGLED, Mixture
from waystation.sim.workload.plan import DAY_US, NodePlan, Plan
from waystation.sim.workload.stage import Stage
from waystation.sim.workload.truth import SegmentTruth

__all__ = ["WorkloadFile", "Writer"]

_FILLERS: Final = 3  # events that say nothing, for a tear to take
_NEVER_NUMBER: Final = 900_000  # numbers of files that no node wrote
_KIND_OF: Final = {kind.event: kind.name for kind in KINDS}


class WorkloadFile(NamedTuple):
    """One file of a workload."""

    shipment: int
    """1, or 2 for what arrives when the first shipment was worked on already."""
    path: str
    """Relative, with slashes."""
    data: bytes


class _Part(NamedTuple):
    """One segment before anything happens to it."""

    by: NodePlan
    key: str
    """What chance knows it by, whatever its node's clock says."""
    name: SegmentName
    events: list[Event]
    sealed: bool
    suffix: str


class Writer:
    """Writes the segments of all nodes, slot by slot."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._numbers = [0] * len(plan.nodes)
        self._mixture = Mixture.of(plan)
        rng = plan.stream("truncated_segment")
        pairs = [(node, slot) for node in range(len(plan.nodes)) for slot in range(plan.slots)]
        whole = [pair for pair in pairs if pair not in plan.kills and pair[1] < plan.slots - 1]
        self._torn = frozenset(rng.sample(whole, min(plan.param("truncated_segment", "torn") or 0, len(whole))))

    def write(self, stage: Stage) -> Iterator[WorkloadFile]:
        """Yield the files of a slot."""
        if stage.slot == 0 and "truncated_segment" in self._plan.scenarios:
            yield from self._rubbish(stage)
        if stage.slot == 0 and "schema_mix" in self._plan.scenarios:
            stage.truth.canaries = self._mixture.described()
        for by in self._plan.nodes:
            killed = (by.index, stage.slot) in self._plan.kills
            parts = list(self._parts(stage, by, killed))
            for number, part in enumerate(parts):
                last = number == len(parts) - 1
                torn = last and (by.index, stage.slot) in self._torn
                yield from self._journal(stage, part, torn=torn)
            yield from self._archive(stage, by, killed)
            if killed:
                self._numbers[by.index] = 0

    def _parts(self, stage: Stage, by: NodePlan, killed: bool) -> Iterator[_Part]:
        """Yield a node's events by the UTC date of its own clock, which may not be the true one."""
        events = stage.out[by.index]
        if by.skew_us:
            events = [event._replace(ts_us=event.ts_us + by.skew_us) for event in events]
        events.sort(key=_time)
        runs_on = stage.slot == self._plan.slots - 1 and by.index == len(self._plan.nodes) - 1
        start_us = stage.begin_us + by.skew_us
        midnight_us = (start_us // DAY_US + 1) * DAY_US
        pieces = [(start_us, events)]
        if by.skew_us and midnight_us < stage.end_us + by.skew_us:
            cut = sum(event.ts_us < midnight_us for event in events)
            pieces = [(start_us, events[:cut]), (midnight_us, events[cut:])]
        for index, (begin_us, piece) in enumerate(pieces):
            last = index == len(pieces) - 1
            self._numbers[by.index] += 1
            name = SegmentName(by.node_id, begin_us, self._numbers[by.index])
            suffix = OPEN_SUFFIX if last and runs_on else SEALED_SUFFIX
            yield _Part(
                by, f"journal {by.index} {stage.slot} {index}", name, piece, not (last and (killed or runs_on)), suffix
            )

    def _journal(self, stage: Stage, part: _Part, *, torn: bool) -> Iterator[WorkloadFile]:
        path = f"node-{part.by.node_id}/journal/{part.name.folder}/{part.name.text}{part.suffix}"
        odd = self._oddities(stage, part, torn=torn)
        fillers = _FILLERS if torn else 0
        rows = _rows_of(part, fillers)
        if odd & _ALTERING or torn:
            data, segment = self._alter(encode_lines(rows, 0).splitlines(keepends=True), part, odd, torn=torn)
        else:
            data, segment = encode_lines(rows, 0), _segment("", "journal", len(rows), sealed=part.sealed)
        segment = segment._replace(path=path, shipment=2 if "late" in odd else 1, oddities=tuple(sorted(odd)))
        self._count(stage, part, segment)
        yield WorkloadFile(segment.shipment, path, data)
        if "copied" in odd:
            copy = f"node-{part.by.node_id}/journal/copies/{part.name.text}{SEALED_SUFFIX}"
            shipment = max(segment.shipment, 1 + part.name.number % 2)
            stage.truth.segments.append(segment._replace(path=copy, shipment=shipment, oddities=(*sorted(odd), "copy")))
            yield WorkloadFile(shipment, copy, data)

    def _oddities(self, stage: Stage, part: _Part, *, torn: bool) -> set[str]:
        """Return what is to happen to a segment; every scenario draws for itself."""
        odd = {"open"} if part.suffix == OPEN_SUFFIX else set()
        if self._is_late(stage, part.key):
            odd.add("late")
        if not part.sealed or torn:
            return odd
        for word, scenario in _HAPPENS:
            if self._draws(scenario, part.key):
                odd.add(word)
        if "copied" in odd:
            odd.add("lines_twice")
        return odd

    def _alter(self, lines: list[bytes], part: _Part, odd: set[str], *, torn: bool) -> tuple[bytes, SegmentTruth]:
        """Return what a segment's lines become, and what is true of them; path, shipment and oddities are left out."""
        if torn:
            return _tear(lines)
        own, last = lines[1:-1], lines[-1]
        good = bad = twice = 0
        if "mixed" in odd:
            ts_us = part.events[-1].ts_us if part.events else part.name.start_us
            extra = self._mixture.good(ts_us, len(lines) - 1)
            wrong = self._mixture.bad(ts_us, len(lines) - 1 + len(extra))
            good, bad = len(extra), len(wrong)
            last = encode_lines([SegmentSealed(ts_us, len(lines) + good + bad)], len(lines) - 1 + good + bad)
            own = [*own, *extra, *wrong]
        promised = len(own) + 2
        if "lines_twice" in odd:
            percent = self._plan.param("duplicates", "line_percent") or 0
            chance = self._plan.stream(f"lines twice {part.key}").random
            again = [line for line in lines[1:-1] if chance() * 100 < percent]
            twice = len(again)
            own += again
        if "shuffled" in odd:
            self._plan.stream(f"shuffle {part.key}").shuffle(own)
        segment = _segment("", "journal", promised, sealed=True)
        segment = segment._replace(lines_good=promised - bad + twice, lines_bad=bad, lines_twice=twice)
        return b"".join([lines[0], *own, last]), segment

    def _count(self, stage: Stage, part: _Part, segment: SegmentTruth) -> None:
        truth, kinds = stage.truth, stage.truth.kinds[part.by.node_id]
        truth.segments.append(segment)
        kinds.update({_KIND_OF[kind]: n for kind, n in Counter(map(type, part.events)).items()})
        kinds["segment_opened"] += 1
        if segment.state == "torn":
            kinds["anonymous_counted"] += 1
            truth.rejections["unparsable"] += 1
        elif part.sealed:
            kinds["segment_sealed"] += 1
        if "mixed" in segment.oddities:
            kinds.update(GOOD_KINDS)
            truth.rejections.update(REJECTIONS)
            truth.smuggled.update(SMUGGLED)

    def _is_late(self, stage: Stage, key: str) -> bool:
        days_ago = (self._plan.end_us - stage.end_us) / DAY_US
        reach = self._plan.param("late_segments", "reach_days") or 0
        return 1 <= days_ago <= reach and self._draws("late_segments", key)

    def _draws(self, scenario: str, key: str) -> bool:
        """Return whether a segment is one of those that a scenario is about."""
        percent = self._plan.param(scenario, "segment_percent") or 0
        return percent > 0 and self._plan.stream(f"{scenario} {key}").random() * 100 < percent

    def _archive(self, stage: Stage, by: NodePlan, killed: bool) -> Iterator[WorkloadFile]:
        packets = sorted(stage.archived[by.index], key=_time)
        if by.skew_us:
            packets = [packet._replace(ts_us=packet.ts_us + by.skew_us) for packet in packets]
        late = self._is_late(stage, f"archive {by.index} {stage.slot}")
        number = self._numbers[by.index]
        for day in sorted({packet.ts_us // DAY_US for packet in packets}):
            mine = [packet for packet in packets if packet.ts_us // DAY_US == day]
            start_us = max(stage.begin_us + by.skew_us, day * DAY_US)
            name = SegmentName(by.node_id, start_us, number)
            path = f"node-{by.node_id}/archive/{name.folder}/{name.text}{SEALED_SUFFIX}"
            rows: list[ArchivedPacket | SegmentOpened | SegmentSealed] = [
                SegmentOpened(start_us, ARCHIVE_FORMAT, by.node_id, name.text),
                *mine,
            ]
            if not killed:
                rows.append(SegmentSealed(mine[-1].ts_us, len(rows) + 1))
            segment = _segment(path, "archive", len(rows), sealed=not killed)
            if late:
                segment = segment._replace(shipment=2, oddities=("late",))
            stage.truth.segments.append(segment)
            yield WorkloadFile(segment.shipment, path, encode_archive(rows, 0))

    def _rubbish(self, stage: Stage) -> Iterator[WorkloadFile]:
        """Yield files that are no segments, though most are called like one."""
        by = self._plan.nodes[0]
        names = [SegmentName(by.node_id, stage.begin_us, _NEVER_NUMBER + number) for number in range(4)]
        renamed = encode_lines([SegmentOpened(stage.begin_us, FORMAT_VERSION, by.node_id, names[3].text)], 0)
        for name, data, odd in (
            (names[0].text, b"", ("empty",)),
            (names[1].text, b"\x00\x01\xff" * 100, ()),
            (names[2].text, renamed, ()),
            ("notes", b'{"kind":"refused"}\n', ()),
        ):
            path = f"node-{by.node_id}/journal/{names[0].folder}/{name}{SEALED_SUFFIX}"
            stage.truth.segments.append(SegmentTruth(path, 1, "journal", "foreign", odd, 0, 0, 0, None, 0, 0))
            yield WorkloadFile(1, path, data)


def _rows_of(part: _Part, fillers: int) -> list[Event]:
    last_us = part.events[-1].ts_us if part.events else part.name.start_us
    rows: list[Event] = [SegmentOpened(part.name.start_us, FORMAT_VERSION, part.name.node_id, part.name.text)]
    rows += part.events
    rows += [AnonymousCounted(last_us, "bhumi", 0, 0)] * fillers
    if part.sealed:
        rows.append(SegmentSealed(last_us, len(rows) + 1))
    return rows


def _segment(path: str, thing: str, rows: int, *, sealed: bool) -> SegmentTruth:
    state, promised = ("complete", rows) if sealed else ("unsealed", None)
    return SegmentTruth(path, 1, thing, state, (), rows, 0, 0, promised, rows, 0)


def _tear(lines: list[bytes]) -> tuple[bytes, SegmentTruth]:
    """End a file inside the second of its fillers: that, the third and the last line are lost."""
    kept = lines[:-_FILLERS]
    segment = _segment("", "journal", len(lines), sealed=False)
    segment = segment._replace(state="torn", lines_good=len(kept), lines_bad=1, rows_lost=_FILLERS)
    return b"".join(kept) + lines[-_FILLERS][:40], segment


def _time(row: Event | ArchivedPacket) -> int:
    return row.ts_us


_HAPPENS: Final = (("copied", "duplicates"), ("shuffled", "out_of_order"), ("mixed", "schema_mix"))
_ALTERING: Final = frozenset({"lines_twice", "shuffled", "mixed"})
