"""The dumb model knows who is where, and what is owed to whom."""

import random

import pytest

from tests.sim.build import Remembering
from tests.sim.merk.build import HIM, LINK, ME
from waystation.core.instant import Instant
from waystation.sim.merk.presences import GRACE_US, Presences
from waystation.sim.net.link import Stream
from waystation.sim.schedule import Schedule

SECOND = 1_000_000
HERE, THERE, ELSEWHERE = 0, 1, 2


class Scene:
    """Two linked nodes; ``ME`` has been connected to the second for 30 s."""

    def __init__(self):
        self.schedule = Schedule()
        self.presences = Presences(self.schedule)
        self.trunk, self.trunk_stream = self.link(HERE, THERE)
        self.line, self.line_stream = self.come(ME, THERE)
        self.wait(30)

    def wait(self, seconds):
        self.schedule.run(Instant(self.schedule.now + int(seconds * SECOND)))

    def stream(self):
        return Stream(self.schedule, random.Random(1), LINK, Remembering(self.schedule), Remembering(self.schedule))

    def come(self, key, node):
        stream = self.stream()
        presence = self.presences.add_client(key, node, stream)
        presence.up(self.schedule.now)
        return presence, stream

    def link(self, one, other, *, is_honest=True):
        stream = self.stream()
        return self.presences.add_link(one, other, stream, is_honest=is_honest), stream

    def owes(self, node=HERE, target=ME, seconds=24):
        return self.presences.owes(node, target, Instant(self.schedule.now - seconds * SECOND))

    @property
    def now(self):
        return self.schedule.now


@pytest.fixture
def scene():
    """Return a fresh scene."""
    return Scene()


def test_frame_over_one_link_is_owed(scene):
    """Who is connected to a linked node, undisturbed, gets what is sent; so does who is here."""
    assert scene.owes()
    assert scene.owes(node=THERE)
    assert not scene.owes(node=ELSEWHERE)
    assert not scene.owes(target=HIM)
    assert not scene.owes(seconds=31)


def test_path_of_two_links_owes_nothing(scene):
    """A frame crosses one link only."""
    scene.link(ELSEWHERE, HERE)
    scene.wait(30)

    assert not scene.owes(node=ELSEWHERE)


@pytest.mark.parametrize("part", ["trunk", "line"])
def test_disturbance_counts_for_its_time(scene, part):
    """What was held up owes nothing until it has been calm for the whole time."""
    getattr(scene, part).disturb(scene.now)
    scene.wait(20)
    soon = scene.owes()
    scene.wait(5)

    assert not soon
    assert scene.owes()


@pytest.mark.parametrize("what", ["cut", "give_up", "break_off"])
def test_dead_connections_owe_nothing(scene, what):
    """A path whose stream is cut or over is none."""
    getattr(scene.trunk_stream, what)()

    assert not scene.owes()
    assert scene.owes(node=THERE)


def test_ghost_elsewhere_may_swallow(scene):
    """While some node may believe in another connection of the recipient, nothing is owed."""
    ghost, _ = scene.come(ME, ELSEWHERE)
    ghost.over(scene.now)
    scene.wait(20)
    soon = scene.owes()
    scene.wait(4 + GRACE_US / SECOND)

    assert not soon
    assert scene.owes()


def test_recipient_in_two_places_needs_one_path(scene):
    """Connections at two nodes are both good, if both have stood all the time."""
    scene.come(ME, ELSEWHERE)
    early = scene.owes()
    scene.wait(25)

    assert not early
    assert scene.owes()


def test_half_dead_link_to_an_old_place_may_swallow(scene):
    """A location is remembered: where the recipient was before must not be a dead end."""
    _, stale = scene.link(HERE, ELSEWHERE)
    old, _ = scene.come(HIM, ELSEWHERE)
    scene.wait(1)
    old.over(scene.now)
    scene.come(HIM, THERE)
    scene.wait(40)
    clear = scene.owes(target=HIM)
    stale.cut()

    assert clear
    assert not scene.owes(target=HIM)


def test_places_of_the_last_minutes_are_known(scene):
    """Where somebody was lately is remembered after the connection has ended."""
    scene.line.over(scene.now)
    scene.wait(30)

    assert scene.presences.was_at(ME, THERE)
    assert not scene.presences.was_at(ME, HERE)
    assert not scene.presences.was_at(HIM, THERE)


def test_link_with_a_thief_may_swallow_when_it_ends(scene):
    """What was on its way to a node that says it has everybody is lost with the link to it."""
    stream = scene.stream()
    scene.presences.add_link(HERE, -1, stream, is_honest=False, is_thief=True)
    stands = scene.owes()
    stream.break_off()

    assert stands
    assert not scene.owes()
    assert scene.owes(node=THERE)


def test_shaky_is_who_was_disturbed_since(scene):
    """A recipient is an excuse when one of its connections was disturbed or ended since then."""
    calm = scene.presences.is_shaky(ME, Instant(scene.now - SECOND))
    scene.line.disturb(scene.now)

    assert not calm
    assert scene.presences.is_shaky(ME, Instant(scene.now - SECOND))
    assert not scene.presences.is_shaky(HIM, scene.now)


def test_silence_is_likely_with_doubtful_links(scene):
    """A new link, a disturbed one, or one with a hostile node may be why nobody answers."""
    since = Instant(scene.now - 12 * SECOND)
    quiet = scene.presences.is_silence_likely(HERE, since)
    scene.link(-1, HERE, is_honest=False)

    assert not quiet
    assert scene.presences.is_silence_likely(HERE, since)
    assert not scene.presences.is_silence_likely(THERE, since)


def test_node_that_dies_ends_everything_at_once(scene):
    """After a crash nobody is connected there, and nothing is linked."""
    scene.presences.node_down(THERE)

    assert not scene.owes()
    assert not scene.owes(node=THERE)
    assert not scene.presences.is_linked(HERE, THERE, scene.now)
    assert scene.presences.is_known(ME)


def test_key_is_known_where_its_connection_outlasted_the_proof(scene):
    """A connection that ended before its proof can have come leaves a node without knowledge of the key."""
    short, _ = scene.come(HIM, HERE)
    short.up(Instant(scene.now + 2 * SECOND))
    scene.wait(1)
    short.over(scene.now)
    scene.wait(9)
    assert not scene.presences.proved_at(HIM, HERE, Instant(0))
    lasting, _ = scene.come(HIM, HERE)
    scene.wait(1)
    lasting.over(scene.now)
    assert scene.presences.proved_at(HIM, HERE, Instant(0))
    assert not scene.presences.proved_at(HIM, HERE, scene.now)


def test_frame_is_owed_where_every_place_of_its_target_takes_it(scene):
    """A node knows one place of a client; where that may be one that refuses the frame, nothing is owed."""
    scene.link(HERE, ELSEWHERE)
    scene.come(ME, ELSEWHERE)
    scene.wait(30)
    since = Instant(scene.now - 24 * SECOND)
    assert scene.presences.owes(HERE, ME, since)
    assert not scene.presences.owes(HERE, ME, since, lambda node: node == THERE)
