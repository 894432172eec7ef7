"""Readers page, leave, resume, and tell what they have."""

from dataclasses import replace

from tests.sim.build_strata import QUIET, Quarter
from waystation.sim import strata_observations as seen
from waystation.sim.strata_plan import ReaderHabits
from waystation.sim.strata_publisher import Publisher
from waystation.sim.strata_reader import Reader


def reading(seconds, seed=1, **habits):
    """Return what a reader with these habits saw while somebody published, and it, at rest."""
    quarter = Quarter(replace(QUIET, packets_per_hour=7_200.0, reader=ReaderHabits(**habits)), seed)
    publisher = Publisher(quarter.commons, quarter.rng, "10.1.0.1", 0)
    reader = Reader(quarter.commons, quarter.rng, "10.2.0.1", 0, 0, publisher.dids)
    publisher.start()
    reader.start()
    quarter.run(seconds)
    quarter.commons.troubled = False
    quarter.run(5)
    reader.probe()
    quarter.run(30)
    return quarter, reader


def test_reader_gets_what_its_filter_gives():
    """Whatever a reader asks for, in the end it has what was promised and matches."""
    for seed in range(6):
        quarter, reader = reading(20, seed)
        reader.look()
        last = quarter.kinds(seen.CaughtUp)[-1]
        wanted = {
            each.packet_id
            for each in quarter.kinds(seen.Made)
            if last.filters.match(each.author_id, each.content_type, each.timestamp)
        }

        assert last.final
        assert last.floor > 0 or last.got == wanted


def test_resumed_reader_shows_its_cursor():
    """A reader that drops asks again with the cursor of what it has."""
    quarter, _ = reading(60, drops=600.0)
    cursors = {each.cursor for each in quarter.kinds(seen.EventSeen)} | {
        each.cursor for each in quarter.kinds(seen.PageEnded)
    }
    resumed = [each for each in quarter.kinds(seen.Asked) if each.cursor is not None]

    assert len(resumed) > 2
    assert {each.cursor for each in resumed} <= cursors


def test_mangled_cursor_is_lost_and_replaced_by_time():
    """A cursor that no relay knows is asked with once, and never again."""
    quarter, _ = reading(60, mangles=600.0)
    asked = [each.cursor for each in quarter.kinds(seen.Asked)]
    known = {each.cursor for each in (*quarter.kinds(seen.EventSeen), *quarter.kinds(seen.PageEnded))}
    mangled = [number for number, cursor in enumerate(asked) if cursor is not None and cursor not in known]

    assert mangled
    assert all(asked[number + 1] is None for number in mangled)


def test_reader_that_has_not_come_to_the_end_complains():
    """Who is asked what it has while it is away has nothing to show."""
    quarter = Quarter()
    reader = Reader(quarter.commons, quarter.rng, "10.2.0.1", 0, 0, ["did:strata:a"])

    reader.look()

    assert "has not come to the end" in quarter.kinds(seen.LeftHanging)[0].what
