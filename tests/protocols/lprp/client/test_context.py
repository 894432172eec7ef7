"""Laws of protocols.lprp.client.context."""

from tests.protocols.lprp.build_client import CODEC, FRIEND, HOST, PEER, US, WALL_MS
from waystation.core.effects import Send
from waystation.core.instant import Instant
from waystation.crypto.signing import verify
from waystation.protocols.lprp.client.clock import PacketClock
from waystation.protocols.lprp.client.context import ClientContext
from waystation.protocols.lprp.client.events import LeaseDoubted, PacketDropped
from waystation.protocols.lprp.messages import Command
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.wire import signed_part

NOW = Instant(7_000_000)


def context():
    made = ClientContext(US, HOST.public, CODEC, PacketClock())
    made.set_wall(NOW, WALL_MS * 1_000)
    made.peer = PEER
    return made


def test_packets_are_signed_for_the_host():
    """What is said carries our key, the host's, the wall clock's time, and a signature over it all."""
    packet = context().send_command(Command.HEARTBEAT, b"", Instant(NOW + 3_999))

    assert (packet.sender, packet.recipient, packet.time_ms) == (US.public, HOST.public, WALL_MS + 3)
    assert verify(US.public, signed_part(packet.data), packet.signature)


def test_packet_for_another_names_him():
    """A 102 is addressed to its recipient, not to the host that carries it."""
    assert context().seal(Command.RELAY, b"x", NOW, FRIEND.public).recipient == FRIEND.public


def test_each_packet_is_newer_than_the_last():
    """Packets sealed in one moment have rising times."""
    made = context()

    assert [made.seal(Command.HEARTBEAT, b"", NOW).time_ms - WALL_MS for _ in range(3)] == [0, 1, 2]


def test_what_is_said_is_taken_once_and_in_order():
    """``take`` returns and forgets."""
    made = context()
    packets = [made.send_command(Command.HEARTBEAT, b"", NOW) for _ in range(2)]

    assert made.take() == [Send(PEER, packet.data) for packet in packets]
    assert made.take() == []


def test_without_a_peer_what_is_said_is_lost():
    """Nothing piles up while there is no way to the host."""
    made = context()
    made.peer = None
    made.send_command(Command.HEARTBEAT, b"", NOW)

    assert made.take() == []


def test_events_are_taken_once_and_in_order():
    """``take_events`` returns and forgets; a drop is an event."""
    made = context()
    made.emit(LeaseDoubted())
    made.drop(Refusal.CLOCK, None)

    assert made.take_events() == [LeaseDoubted(), PacketDropped(Refusal.CLOCK, None)]
    assert made.take_events() == []
