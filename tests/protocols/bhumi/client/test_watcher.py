"""Laws of protocols.bhumi.client.watcher: it watches where the relay can, and notices one that is gone."""

from tests.protocols.bhumi.build import ALICE
from waystation.core.effects import Close, Peer, Send
from waystation.core.instant import Instant, after_ms
from waystation.protocols.bhumi import extension_wire, wire
from waystation.protocols.bhumi.client.base import Greeted, Unsent
from waystation.protocols.bhumi.client.watcher import ANSWER_TIMEOUT_MS, NoWatches, WatchClient
from waystation.protocols.bhumi.extension_messages import Watch, Watched, WatchState
from waystation.protocols.bhumi.messages import Feature, Hello, Keepalive, Options
from waystation.protocols.bhumi.refusals import Refusal

START = Instant(1_000)
PEER = Peer(3)
READY = wire.encode(Options(Feature.WATCH))


def client(*frames):
    """Return a client that has heard HELLO and ``frames``."""
    machine = WatchClient()
    machine.connect(PEER, START)
    machine.receive(PEER, wire.encode(Hello(1, 65_536)) + b"".join(frames), START)
    return machine


def left(machine):
    """Return the bytes that have left, and why the connection was closed."""
    effects = machine.take()
    sent = b"".join(effect.data for effect in effects if isinstance(effect, Send))
    return sent, [effect.reason for effect in effects if isinstance(effect, Close)]


def test_watches_once_the_relay_has_agreed():
    """OPTIONS first, then the watch; what is told is handed on as it is."""
    machine = client(READY)
    told = Watched(ALICE.public, WatchState.ONLINE)
    refused = machine.watch(ALICE.public)
    machine.receive(PEER, extension_wire.encode_extension(told), START)

    assert refused is None
    assert machine.take_events() == [Greeted(65_536), told]
    assert left(machine) == (READY + extension_wire.encode_extension(Watch(ALICE.public)), [])


def test_relay_without_the_extension_is_said_to_have_none():
    """Whether it says so, or ignores OPTIONS as the original does."""
    says_no, ignores = client(wire.encode(Options(Feature(0)))), client()
    ignores.wake(after_ms(START, ANSWER_TIMEOUT_MS))

    assert says_no.take_events() == ignores.take_events() == [NoWatches()]
    assert says_no.watch(ALICE.public) is Unsent.NOT_ACCEPTED
    assert says_no.deadline() is None


def test_silent_relay_is_asked_and_then_given_up():
    """KEEPALIVE after 20 s, the end before 30 (NODE-SILENCE)."""
    machine = client(READY)
    machine.take()
    asked_at = machine.deadline()
    machine.wake(asked_at)
    asked = left(machine)
    gone_at = machine.deadline()
    machine.wake(gone_at)

    assert asked == (wire.encode(Keepalive()), [])
    assert left(machine) == (b"", [Refusal.IDLE_TIMEOUT])
    assert gone_at <= after_ms(START, 30_000)


def test_malformed_word_of_the_relay_closes():
    """A state that does not exist, and a frame cut short."""
    frame = extension_wire.encode_extension(Watched(ALICE.public, WatchState.ONLINE))
    unknown = client(READY, frame[:-1] + b"\x09")

    assert left(unknown)[1] == [Refusal.BAD_WATCH]
    assert client(READY).watch(ALICE.public) is None
    assert WatchClient().watch(ALICE.public) is Unsent.NOT_OPEN
