"""What is taken, and what is known already."""

import pytest

from tests.journal.build import NOON_US, name_at, segment_bytes, traffic
from tests.pipeline.build import BAD_LINES, archive_bytes, archived
from waystation.journal.events import Refused
from waystation.pipeline.jobs.taking import ARCHIVE, JOURNAL, Lines, measure, take
from waystation.pipeline.lake import Lake
from waystation.pipeline.manifest import Place
from waystation.pipeline.tables import BRONZE_EVENTS, OPS_QUARANTINE
from waystation.pipeline.transforms.ingest import quarantine

pytestmark = pytest.mark.spark

NAME = name_at()


def parse(spark, data: bytes, source=JOURNAL):
    """Return lines as ingest has them."""
    lines = [(line, NAME.text) for line in data.decode().split("\n")]
    return source.parse(spark.createDataFrame(lines, "value string, segment string"))


def test_lines_are_measured_by_segment(spark) -> None:
    """Lines, bad ones, losses and numbers of lines are found; places are 0 where there are none."""
    gap = Refused(NOON_US, "node", None, "archive_disk_error", 4)
    data = archive_bytes(NAME, [archived(1), gap])

    assert measure(parse(spark, data + b"\n".join(BAD_LINES), ARCHIVE)) == {NAME.text: Lines(7, 3, 4, 0, 4, 0, 0)}


def test_lines_that_overlap_are_taken_once(spark, tmp_path) -> None:
    """Of lines that were taken in part, under another name, only the new ones come in, good and bad."""
    lake = Lake(tmp_path)
    data = segment_bytes(NAME, traffic(1, NOON_US, 5))
    lines = data.splitlines(keepends=True)
    bad = [line + b"\n" for line in BAD_LINES]
    steps = [[*lines[:6], bad[0]], [*lines[3:9], *bad[:2]], [*lines, *bad]]
    dead = quarantine(parse(spark, bad[0]), "bronze.events")
    lake.append(dead, OPS_QUARANTINE, "dead", ())  # by a run that was killed before it came to the good ones
    taken = []
    for number, step in enumerate(steps):
        parsed = parse(spark, b"".join(step))
        started = {NAME.text: Place(max(6, 9 * number), 0)}
        taken.append(take(spark, lake, JOURNAL, parsed, measure(parsed), f"b{number}", (), started))

    assert taken == [6, 3, len(lines) - 9]
    assert sorted(row["seq"] for row in lake.read(spark, BRONZE_EVENTS).collect()) == list(range(len(lines)))
    assert lake.read(spark, OPS_QUARANTINE).count() == len(BAD_LINES)
