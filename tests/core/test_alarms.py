"""Laws of core.alarms."""

from hypothesis import given
from hypothesis import strategies as st

from waystation.core.alarms import Alarms
from waystation.core.instant import Instant


def test_no_alarm_no_deadline():
    """Nothing set, nothing to wait for."""
    assert Alarms().next_at() is None


def test_earlier_wish_moves_the_alarm():
    """An alarm may only move forward in time by being earlier."""
    alarms = Alarms()
    alarms.set_by(1, Instant(50))
    alarms.set_by(1, Instant(20))

    assert alarms.next_at() == 20


def test_later_wish_keeps_the_alarm():
    """Ringing early is allowed, ringing late is not."""
    alarms = Alarms()
    alarms.set_by(1, Instant(20))
    alarms.set_by(1, Instant(50))

    assert alarms.next_at() == 20
    assert list(alarms.due(Instant(20))) == [1]
    assert list(alarms.due(Instant(50))) == []


def test_alarm_rings_at_its_instant_and_not_before():
    """The instant itself counts as come."""
    alarms = Alarms()
    alarms.set_by(1, Instant(20))

    assert list(alarms.due(Instant(19))) == []
    assert list(alarms.due(Instant(20))) == [1]
    assert len(alarms) == 0


def test_cancelled_alarm_is_silent():
    """A key that was let go neither rings nor holds up the deadline."""
    alarms = Alarms()
    alarms.set_by(1, Instant(20))
    alarms.set_by(2, Instant(30))
    alarms.cancel(1)
    alarms.cancel(7)

    assert alarms.next_at() == 30
    assert list(alarms.due(Instant(99))) == [2]


def test_key_may_be_set_again_while_it_rings():
    """The caller sets the next alarm from inside the loop."""
    alarms = Alarms()
    alarms.set_by(1, Instant(10))
    for key in alarms.due(Instant(10)):
        alarms.set_by(key, Instant(30))

    assert alarms.next_at() == 30
    assert len(alarms) == 1


WISHES = st.lists(
    st.tuples(st.sampled_from(["set", "cancel", "due"]), st.integers(0, 5), st.integers(0, 40)), max_size=60
)


@given(WISHES)
def test_rings_as_a_dictionary_would(wishes):
    """Against a plain dictionary of earliest instants, the same keys ring and the same deadline stands."""
    alarms, model = Alarms(), {}
    for what, key, at in wishes:
        if what == "set":
            alarms.set_by(key, Instant(at))
            model[key] = min(at, model.get(key, at))
        elif what == "cancel":
            alarms.cancel(key)
            model.pop(key, None)
        else:
            rung = {key for key, due in model.items() if due <= at}
            model = {key: due for key, due in model.items() if due > at}
            assert set(alarms.due(Instant(at))) == rung

        assert alarms.next_at() == min(model.values(), default=None)
        assert len(alarms) == len(model)
