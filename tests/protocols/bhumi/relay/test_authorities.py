"""Laws of protocols.bhumi.relay.authorities: who is shown the relay's authorities, and when."""

import pytest

from tests.protocols.bhumi.build import ALICE, BOB, CAROL, World, i_am
from waystation.protocols.bhumi.extension_messages import Authority
from waystation.protocols.bhumi.messages import Feature, Options, Send, SendResult

NOW, NEXT, LATER = b"authority of now", b"the next one", b"the one after it"


def asking(world, key, features=Feature.AUTHORITY):
    """Return the connection of a device that has agreed on these features, and has sent its I_AM."""
    line = world.connect()
    line.say(Options(features), i_am(key, line.nonce))
    line.hear()
    return line


def world_with(*authorities):
    """Return a world whose relay shows these."""
    world = World()
    world.relay.authorities.use(authorities)
    return world


def told(line):
    """Return and forget the authorities that a connection was shown."""
    return [message.der for message in line.hear() if isinstance(message, Authority)]


def test_device_is_shown_both_once_it_is_accepted():
    """The valid one first, behind everything that the I_AM brings; a refreshed I_AM brings nothing more."""
    world = world_with(NOW, NEXT)
    line = world.connect()
    line.say(Options(Feature.AUTHORITY))
    before = told(line)
    line.say(i_am(ALICE, line.nonce))
    at_once = told(line)
    line.say(i_am(ALICE, line.nonce))

    assert (before, at_once, told(line)) == ([], [NOW, NEXT], [])


def test_next_one_is_shown_to_who_is_connected():
    """Only what is new; and when it has become the valid one, nothing is."""
    world = world_with(NOW)
    alice, bob = asking(world, ALICE), asking(world, BOB)
    world.relay.authorities.use([NOW, NEXT])
    world.settle()
    shown = told(alice), told(bob)
    world.relay.authorities.use([NEXT])
    world.settle()

    assert shown == ([NEXT], [NEXT])
    assert told(alice) == told(bob) == []


@pytest.mark.parametrize("features", [None, Feature(0), Feature.WATCH])
def test_nobody_is_shown_unasked(features):
    """A connection without the feature, as the original's devices are, sees no such frame (BHUMI-24)."""
    world = world_with(NOW)
    line = world.connect()
    if features is not None:
        line.say(Options(features))
    line.say(i_am(CAROL, line.nonce))
    world.relay.authorities.use([NOW, NEXT])
    world.settle()

    assert told(line) == []


def test_who_has_no_identity_is_shown_none():
    """An anonymous connection asks, and gets nothing when the next one appears."""
    world = world_with(NOW)
    line = world.connect()
    line.say(Options(Feature.AUTHORITY))
    world.relay.authorities.use([NOW, NEXT])
    world.settle()

    assert told(line) == []


def test_certificate_that_does_not_fit_a_frame_is_left_out():
    """One byte too many; the other one is shown all the same."""
    world = world_with(bytes(4_097), NEXT)
    line = world.connect()
    line.say(Options(Feature.AUTHORITY), i_am(ALICE, line.nonce))

    assert told(line) == [NEXT]


def test_sender_is_shown_both_with_its_first_send():
    """Once a connection and before the result, and it says nothing of itself for that."""
    world = world_with(NOW, NEXT)
    line = world.connect()
    line.say(Options(Feature.AUTHORITY))
    before = told(line)
    line.say(Send(BOB.public, bytes(32), b"sealed"))
    heard = line.hear()
    line.say(Send(BOB.public, bytes(32), b"sealed"))

    assert before == []
    assert [type(message) for message in heard] == [Authority, Authority, SendResult]
    assert told(line) == []


def test_sender_that_has_not_asked_is_shown_none():
    """A SEND of the original's senders gets its result alone."""
    world = world_with(NOW, NEXT)
    line = world.connect()
    line.say(Send(BOB.public, bytes(32), b"sealed"))

    assert [type(message) for message in line.hear()] == [SendResult]
