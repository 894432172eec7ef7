"""The file that says what counts."""

import datetime

import pytest

from tests.journal.build import DAY_US, NOON_US, name_at
from waystation.core.errors import HostError
from waystation.pipeline.manifest import Batch, Manifest, Place, Retired
from waystation.pipeline.tables import BRONZE_EVENTS

DAY = datetime.date(2026, 5, 29)
OLD, NEW = name_at(NOON_US).text, name_at(NOON_US + DAY_US).text
FULL = Manifest(
    (Batch(DAY, "one", 3),),
    frozenset({OLD, NEW}),
    frozenset({DAY}),
    {NEW: Place(7, 900), OLD: Place(1, 2)},
    (Retired(DAY, "zero", 12),),
    5,
)


def test_manifest_comes_back_as_it_was() -> None:
    """Encoding and decoding lose nothing."""
    assert Manifest.decode(FULL.encode(BRONZE_EVENTS), "x") == FULL
    assert FULL.batches[0].folder == "event_date=2026-05-29/batch=one"
    assert FULL.retired[0].folder == "event_date=2026-05-29/batch=zero"


def test_manifest_of_the_first_version_is_read() -> None:
    """What older versions did not write is empty."""
    text = '{"batches": [{"event_date": "2026-05-29", "batch": "one", "rows": 3}], "segments": ["a"]}'

    assert Manifest.decode(text, "x") == Manifest((Batch(DAY, "one", 3),), frozenset({"a"}))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"batches": [1], "segments": []}'])
def test_broken_manifest_is_said(text) -> None:
    """A file that is no manifest is named, and nothing is guessed."""
    with pytest.raises(HostError, match="the manifest here cannot be read"):
        Manifest.decode(text, "here")


def test_pruning_forgets_old_segments_and_closes_to_them() -> None:
    """Names before the moment are gone, and such segments are not taken again; an earlier moment opens nothing."""
    pruned = FULL.prune(NOON_US + 1).prune(3)

    assert (pruned.segments, set(pruned.started)) == ({NEW}, {NEW})
    assert pruned.is_closed(OLD) and not pruned.is_closed(NEW)
    assert not FULL.is_closed(OLD)
