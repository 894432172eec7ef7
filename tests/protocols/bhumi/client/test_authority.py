"""Laws of protocols.bhumi.client.device for AUTHORITY: handed on as it is, only where asked for, a few times."""

import pytest

from tests.protocols.bhumi.build import ALICE
from waystation.core.effects import Close, Peer
from waystation.core.instant import Instant
from waystation.protocols.bhumi import extension_wire, wire
from waystation.protocols.bhumi.client.base import AUTHORITIES_MAX, AuthorityShown
from waystation.protocols.bhumi.client.device import DeviceClient
from waystation.protocols.bhumi.client.sender import SenderClient
from waystation.protocols.bhumi.extension_messages import Authority
from waystation.protocols.bhumi.messages import Feature, Hello, Options
from waystation.protocols.bhumi.refusals import Refusal

PEER = Peer(3)
START = Instant(5_000)


def device(asked, accepted, *ders):
    """Return a device that has asked for features, and to which the relay has said these authorities."""
    machine = DeviceClient(ALICE, features=asked)
    machine.connect(PEER, START)
    frames = [wire.encode(Hello(1, 65_536)), wire.encode(Options(accepted))]
    frames += [extension_wire.encode_extension(Authority(der)) for der in ders]
    machine.receive(PEER, b"".join(frames), START)
    return machine


def told(machine):
    """Return what was handed on."""
    return [event.der for event in machine.take_events() if isinstance(event, AuthorityShown)]


def test_authorities_are_handed_on_in_order():
    """The machine does not look into them."""
    assert told(device(Feature.AUTHORITY, Feature.AUTHORITY, b"one", b"two")) == [b"one", b"two"]


@pytest.mark.parametrize(("asked", "accepted"), [(Feature(0), Feature.AUTHORITY), (Feature.AUTHORITY, Feature(0))])
def test_relay_cannot_tell_what_was_not_agreed_on(asked, accepted):
    """Neither without our asking nor without its own word."""
    assert told(device(asked, accepted, b"one")) == []


def test_relay_that_tells_without_end_is_not_listened_to():
    """BHUMI-AUTHORITY: eight a connection; the connection stays."""
    ders = [bytes([number + 1]) for number in range(AUTHORITIES_MAX + 5)]
    machine = device(Feature.AUTHORITY, Feature.AUTHORITY, *ders)

    assert told(machine) == ders[:AUTHORITIES_MAX]
    assert machine.is_open


def test_malformed_authority_closes():
    """A length of zero."""
    machine = device(Feature.AUTHORITY, Feature.AUTHORITY)
    machine.receive(PEER, bytes([0, 0x4F, 0, 0, 0, 2, 0, 0]), START)

    assert [effect.reason for effect in machine.take() if isinstance(effect, Close)] == [Refusal.BAD_AUTHORITY]


def sender(accepted, *ders, asks=True):
    """Return a sender to which the relay has said these authorities."""
    machine = SenderClient(asks_authorities=asks)
    machine.connect(PEER, START)
    frames = [wire.encode(Hello(1, 65_536)), wire.encode(Options(accepted))]
    frames += [extension_wire.encode_extension(Authority(der)) for der in ders]
    machine.receive(PEER, b"".join(frames), START)
    return machine


def test_sender_asks_for_nothing_else_and_hands_on_what_it_asked_for():
    """Its OPTIONS has the one bit, and names nobody."""
    machine = sender(Feature.AUTHORITY, b"one", b"two")
    (options,) = (effect.data for effect in machine.take())

    assert options == wire.encode(Options(Feature.AUTHORITY))
    assert told(machine) == [b"one", b"two"] and machine.is_open


@pytest.mark.parametrize(("asks", "accepted"), [(False, Feature.AUTHORITY), (True, Feature(0))])
def test_sender_takes_nothing_that_was_not_agreed_on(asks, accepted):
    """Such a frame is passed over, as any extension that is not known."""
    machine = sender(accepted, b"one", asks=asks)

    assert told(machine) == [] and machine.is_open
