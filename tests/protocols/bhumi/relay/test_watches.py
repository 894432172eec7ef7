"""Laws of protocols.bhumi.relay.watches: who is told what of whom, and what it may cost."""

from tests.protocols.bhumi.build import ALICE, BOB, CAROL, World, left_over
from waystation.protocols.bhumi import extension_wire, wire
from waystation.protocols.bhumi.extension_messages import Watch, Watched, WatchState
from waystation.protocols.bhumi.limits import BhumiLimits
from waystation.protocols.bhumi.messages import Feature, FrameType, Options

ONLINE, OFFLINE, REFUSED = WatchState.ONLINE, WatchState.OFFLINE, WatchState.REFUSED


class Watcher:
    """A client that watches; it keeps what it is told."""

    def __init__(self, world):
        self.line = world.connect()
        self.line.say(Options(Feature.WATCH))
        assert self.line.hear() == [Options(Feature.WATCH)]

    def watch(self, *keys, begins=True):
        """Begin or end watches, in one piece."""
        frames = [extension_wire.encode_extension(Watch(key.public, begins)) for key in keys]
        self.line.say_bytes(b"".join(frames))
        return self

    def told(self):
        """Return and forget what was told."""
        return self.line.hear()


def test_present_state_is_told_at_once_and_each_change_after_it():
    """A device connects and leaves; who watches it hears of both, in order."""
    world = World()
    watcher = Watcher(world).watch(ALICE)
    at_once = watcher.told()
    device = world.device(ALICE)
    connected = watcher.told()
    device.hang_up()

    assert (at_once, connected, watcher.told()) == (
        [Watched(ALICE.public, OFFLINE)],
        [Watched(ALICE.public, ONLINE)],
        [Watched(ALICE.public, OFFLINE)],
    )


def test_device_that_replaces_its_own_connection_has_not_changed():
    """The new connection stands in the turn in which the old one ends: nothing is told."""
    world = World()
    world.device(ALICE)
    watcher = Watcher(world).watch(ALICE)
    watcher.told()
    world.device(ALICE)

    assert watcher.told() == []


def test_ended_watch_is_told_nothing_more():
    """Nor is anybody told of other devices."""
    world = World()
    watcher = Watcher(world).watch(ALICE).watch(ALICE, begins=False)
    watcher.told()
    world.device(ALICE)
    world.device(BOB)

    assert watcher.told() == []


def test_watching_again_tells_the_present_state_again():
    """The same watch twice is one watch."""
    world = World()
    watcher = Watcher(world).watch(ALICE).watch(ALICE)

    assert watcher.told() == [Watched(ALICE.public, OFFLINE)] * 2
    assert world.relay.sizes()["watches"] == 1


def test_one_watch_too_many_is_refused():
    """Both limits have the same refusal, and the connection stays."""
    world = World(limits=BhumiLimits(watches=3, watches_per_connection=2))
    first = Watcher(world).watch(ALICE, BOB)
    first.told()
    over_own = first.watch(CAROL).told()
    second = Watcher(world).watch(ALICE, BOB)

    assert [told.state for told in over_own] == [REFUSED]
    assert [told.state for told in second.told()] == [REFUSED, OFFLINE]
    assert world.refusals() == {"watches_full": 2}
    assert first.line.closed is second.line.closed is None


def test_client_that_does_not_read_gets_the_last_state_once_it_does():
    """However often a device comes and goes meanwhile, nothing waits for the client in our memory."""
    world = World()
    watcher = Watcher(world).watch(ALICE)
    watcher.told()
    world.congest(watcher.line)
    before = watcher.line.out_bytes
    for _ in range(50):
        world.device(ALICE).hang_up()
    device = world.device(ALICE)
    while_unread = watcher.line.out_bytes - before
    world.drain(watcher.line)

    assert while_unread == 0
    assert watcher.told() == [Watched(ALICE.public, ONLINE)]
    assert device.closed is None


def test_nothing_is_left_of_a_watcher_that_hung_up():
    """Its watches end with its connection, whatever the devices do."""
    world = World()
    device = world.device(ALICE)
    watcher = Watcher(world).watch(ALICE, BOB)
    watcher.line.hang_up()
    device.hang_up()

    assert left_over(world.relay) == {}
    assert world.relay._watches._watchers == world.relay._watches._watched == {}


def test_watch_that_neither_begins_nor_ends_closes():
    """The third value of the byte is malformed."""
    world = World()
    watcher = Watcher(world)
    watcher.line.say_bytes(wire._frame(FrameType.WATCH, ALICE.public + b"\x02"))

    assert watcher.line.closed.value == "bad_watch"


def test_watch_without_agreement_is_ignored():
    """As any extension frame (BHUMI-24)."""
    world = World()
    line = world.connect()
    line.say_bytes(extension_wire.encode_extension(Watch(ALICE.public)))

    assert line.hear() == []
    assert world.refusals() == {"unknown_extension": 1}
