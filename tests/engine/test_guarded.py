"""Laws of engine.guarded: what one relay raises costs that relay alone, and never spins the loop."""

import pytest

from waystation.core.instant import Instant
from waystation.engine.guarded import REST_MS, Guarded

SECOND = 1_000_000
NAMES = ("a", "b", "broken", "c", "d")


class Steady:
    """A relay that wants to be woken each second and says so each time."""

    def __init__(self):
        self.due = Instant(SECOND)
        self.woken = []

    def wake(self, now):
        self.woken.append(now)
        self.due = Instant(now + SECOND)

    def deadline(self):
        return self.due

    def take(self):
        said, self.woken = self.woken, []
        return said


class Broken(Steady):
    """One that raises in the call of this name."""

    def __init__(self, call):
        super().__init__()
        setattr(self, call, self._raise)

    def _raise(self, *_):
        raise ValueError("a bug of ours")


def guarded(call):
    """Return five relays of which the third raises in ``call``, and what is reported."""
    relays = {name: Broken(call) if name == "broken" else Steady() for name in NAMES}
    reported = []
    guard = Guarded(relays)
    guard.on_failure = lambda protocol, at, error: reported.append((protocol, at, str(error)))
    return guard, reported


@pytest.mark.parametrize("call", ["take", "wake", "deadline"])
def test_others_go_on(call):
    """Four relays are asked in each turn, whatever the fifth does; each failure is reported with its call."""
    guard, reported = guarded(call)
    turns = []
    for now in (Instant(SECOND), Instant(2 * SECOND)):
        guard.deadline()
        guard.wake(now)
        turns.append({name for name, _ in guard.take(now)} - {"broken"})

    assert turns == [{"a", "b", "c", "d"}] * 2
    assert set(reported) == {("broken", call, "a bug of ours")}


@pytest.mark.parametrize("call", ["wake", "deadline"])
def test_relay_that_raises_rests(call):
    """Its deadline counts as due again only after the rest, so that a timer does not fire without end."""
    guard, _ = guarded(call)
    now = Instant(SECOND)
    assert guard.deadline() is not None
    guard.wake(now)

    assert guard.deadline() == now + REST_MS * 1_000


def test_relay_that_recovers_is_woken_as_before():
    """After the rest it is woken again; nothing is kept against it once that works."""
    guard, reported = guarded("wake")
    broken = guard._relays["broken"]
    guard.wake(Instant(SECOND))
    del broken.wake
    guard.wake(Instant(SECOND + 1))
    assert broken.woken == []
    guard.wake(Instant(2 * SECOND))

    assert broken.woken == [2 * SECOND]
    assert (len(reported), guard._rests) == (1, {})


def test_without_a_report_failures_reach_the_caller():
    """A simulation and a test of a machine see the bug itself."""
    guard, _ = guarded("wake")
    guard.on_failure = None

    with pytest.raises(ValueError, match="a bug of ours"):
        guard.wake(Instant(SECOND))
