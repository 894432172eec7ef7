"""Laws of core.machine, for every relay and every client machine: one contract, whatever the protocol.

Each client talks to its relay once, at one instant, without a network; what each side receives is its script. A script
can then be given to a fresh machine in any pieces. Bytes of a stream are cut anywhere; messages and datagrams stay
whole, and what varies is how many arrive between two looks at the outbox.
"""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.protocols.bhumi.build import ALICE, BOB, preimage
from tests.protocols.lprp.build_client import EASY
from tests.protocols.lprp.build_relay import settings_of
from tests.protocols.merk.build import ALICE as MERK_ALICE
from tests.protocols.refusing import commit_to
from waystation.core.effects import Close, Commit, Peer, Send, SendTo, Verify
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.core.machine import ClientMachine, Clocked, DatagramMachine, Machine
from waystation.crypto.signing import KeyPair, verify_any
from waystation.protocols.bhumi.client.device import DeviceClient
from waystation.protocols.bhumi.client.guide import GuideClient
from waystation.protocols.bhumi.client.sender import SenderClient
from waystation.protocols.bhumi.client.watcher import WatchClient
from waystation.protocols.bhumi.messages import Options
from waystation.protocols.bhumi.relay.machine import BhumiRelay
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.profile import SEED
from waystation.protocols.bsp.relay.machine import BspRelay
from waystation.protocols.bsp.settings import BspSettings
from waystation.protocols.bsp.stream.machine import BspMachine
from waystation.protocols.lprp.client.machine import LprpClient
from waystation.protocols.lprp.relay.machine import LprpRelay
from waystation.protocols.merk.client.machine import MerkClient
from waystation.protocols.merk.relay.machine import MerkRelay
from waystation.protocols.merk.settings import MerkSettings
from waystation.protocols.strata.client.machine import StrataClient
from waystation.protocols.strata.client.wire import encode_publish
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.packet import make_packet
from waystation.protocols.strata.relay.machine import StrataRelay
from waystation.protocols.strata.settings import StrataSettings
from waystation.store.memory import MemoryStore

NOW = Instant(5 * MICROSECONDS_PER_SECOND)
WALL_S = 1_767_225_600
PEER, UNKNOWN = Peer(7), Peer(999)
ADDRESS = ("192.0.2.10", 4000)
RELAY_KEY, CLIENT_KEY = (KeyPair.from_seed(name * 32) for name in (b"r", b"c"))
GROUP = SEED.group(b"c" * 32, b"tea", "opaque")
PACKET = make_packet(CLIENT_KEY, {"type": "POST", "text": "hello"}, timestamp=WALL_S)
GARBAGE = b"\xff" * 200
TURNS_MAX = 1_000


class Driven:
    """One machine whose disk and signature checks answer at once."""

    def __init__(self, machine: Any, connect: Callable[[Any], None]) -> None:
        """Set the clock; ``connect`` opens the machine's connection, and gives the first commands."""
        self.machine = machine
        self._connect = connect
        self.store: Any = MemoryStore()
        self.effects: list[Any] = []
        self.events: list[Any] = []
        if isinstance(machine, Clocked):
            machine.set_wall(NOW, WALL_S * MICROSECONDS_PER_SECOND)

    def open(self) -> "Driven":
        """Establish the connection."""
        self._connect(self.machine)
        return self.settle()

    def settle(self) -> "Driven":
        """Carry out effects until none is left, and take the events."""
        for _ in range(TURNS_MAX):
            effects = self.machine.take()
            if not effects:
                break
            for effect in effects:
                if isinstance(effect, Verify):
                    answers = [verify_any(check.keys, check.message, check.signature) for check in effect.checks]
                    self.machine.verified(effect.ticket, answers, NOW)
                elif isinstance(effect, Commit):
                    commit_to(self.store, self.machine, effect, NOW)
                else:
                    self.effects.append(effect)
        else:
            raise AssertionError("the machine has effects without end")
        if hasattr(self.machine, "take_events"):
            self.events += self.machine.take_events()
        return self

    def receive(self, *pieces: bytes) -> "Driven":
        """Let messages or bytes arrive, one after the other, with one look at the outbox behind all of them."""
        if isinstance(self.machine, LprpRelay):
            self.machine.receive_datagrams([(piece, ADDRESS) for piece in pieces], NOW)
        else:
            for piece in pieces:
                self.machine.receive(PEER, piece, NOW)
        return self.settle()

    def sent(self) -> list[bytes]:
        """Return every message for the other side."""
        return [effect.data for effect in self.effects if isinstance(effect, Send | SendTo)]

    def summary(self) -> tuple[bytes, list[Any], list[Any]]:
        """Return bytes sent, other effects and events: what the rest of a program can see of a machine."""
        others = [effect for effect in self.effects if not isinstance(effect, Send | SendTo)]
        return b"".join(self.sent()), others, self.events


class Pair(NamedTuple):
    """A client and its relay."""

    client: Callable[[], Driven]
    relay: Callable[[], Driven]
    is_stream: bool


def _at_peer(machine: Any) -> None:
    machine.connect(PEER, NOW)


def _bhumi_relay() -> Driven:
    settings = BhumiSettings()
    return Driven(BhumiRelay(settings, random.Random(1), key_pair=RELAY_KEY), _at_peer)


def _bhumi_device() -> Driven:
    return Driven(DeviceClient(ALICE), _at_peer)


class _Sends(SenderClient):
    """A sender whose one request is sent with HELLO, so that its relay gets one."""

    def _on_open(self, relay_nonce: int, now: Instant) -> None:
        super()._on_open(relay_nonce, now)
        self.send(BOB.public, preimage(1), b"ask", now)


def _bhumi_sender() -> Driven:
    return Driven(_Sends(), _at_peer)


class _Asks(GuideClient):
    """A guide's client that asks at once for relays."""

    def _on_open(self, relay_nonce: int, now: Instant) -> None:
        super()._on_open(relay_nonce, now)
        self.relays(now)


def _bhumi_guide() -> Driven:
    return Driven(_Asks(), _at_peer)


class _Watches(WatchClient):
    """A client that watches as soon as the relay has agreed."""

    def _on_options(self, options: Options) -> None:
        super()._on_options(options)
        self.watch(ALICE.public)


def _bhumi_watcher() -> Driven:
    return Driven(_Watches(), _at_peer)


def _lprp_relay() -> Driven:
    driven = Driven(None, lambda _machine: None)
    driven.machine = LprpRelay(settings_of(), RELAY_KEY, driven.store)
    driven.machine.set_wall(NOW, WALL_S * MICROSECONDS_PER_SECOND)
    return driven


def _lprp_client() -> Driven:
    def connect(client: LprpClient) -> None:
        client.connect(PEER, NOW)
        client.ask_lease(NOW)

    return Driven(LprpClient(CLIENT_KEY, RELAY_KEY.public, random.Random(2), settings=EASY), connect)


def _merk_relay() -> Driven:
    return Driven(MerkRelay(MerkSettings(), RELAY_KEY, MemoryStore(), random.Random(1)), _at_peer)


def _merk_client() -> Driven:
    return Driven(MerkClient(MERK_ALICE, random.Random(2)), _at_peer)


def _strata_relay() -> Driven:
    driven = Driven(None, _at_peer)
    driven.machine = StrataRelay(StrataSettings(), RELAY_KEY, driven.store, random.Random(1))
    driven.machine.set_wall(NOW, WALL_S * MICROSECONDS_PER_SECOND)
    return driven


def _strata_relay_with_a_packet() -> Driven:
    driven = _strata_relay()
    driven.machine.connect(Peer(8), NOW)
    driven.machine.receive(Peer(8), encode_publish(PACKET.canonical, "p"), NOW)
    driven.settle().effects.clear()
    return driven


def _strata_publisher() -> Driven:
    def connect(client: StrataClient) -> None:
        client.connect(PEER, NOW)
        client.publish(PACKET, NOW)

    return Driven(StrataClient(random.Random(2), key_pair=CLIENT_KEY), connect)


def _strata_reader() -> Driven:
    def connect(client: StrataClient) -> None:
        client.connect(PEER, NOW)
        client.subscribe("s", Filters(), NOW)

    return Driven(StrataClient(random.Random(2), key_pair=CLIENT_KEY), connect)


def _bsp_relay() -> Driven:
    groups = [{"client_id": (b"c" * 32).hex(), "descriptor": b"tea".hex(), "share_with": [CLIENT_KEY.public.hex()]}]
    chosen = BspSettings(groups=groups, plain_peer=CLIENT_KEY.public.hex(), mode="interactive")
    driven = Driven(None, lambda relay: relay.connect_by(PEER, "plain", NOW))
    driven.machine = BspRelay(chosen, RELAY_KEY, driven.store, random.Random(1))
    driven.machine.set_wall(NOW, WALL_S * MICROSECONDS_PER_SECOND)
    return driven


def _bsp_client() -> Driven:
    store = MemoryStore()
    device = BspDevice(SEED, store)
    device.set_wall(NOW, WALL_S * MICROSECONDS_PER_SECOND)
    device.join(GROUP, NOW)
    device.meet(RELAY_KEY.public)
    device.share(GROUP.group_id, RELAY_KEY.public, NOW)
    device.add(GROUP.group_id, WALL_S * 1_000, b"hello", NOW)
    machine = BspMachine(device, CLIENT_KEY, random.Random(2), plain_peer=RELAY_KEY.public)
    driven = Driven(machine, lambda machine: machine.connect_by(PEER, "plain", NOW))
    driven.store = store
    return driven


PAIRS = {
    "bhumi device": Pair(_bhumi_device, _bhumi_relay, is_stream=True),
    "bhumi sender": Pair(_bhumi_sender, _bhumi_relay, is_stream=True),
    "bhumi guide": Pair(_bhumi_guide, _bhumi_relay, is_stream=True),
    "bhumi watcher": Pair(_bhumi_watcher, _bhumi_relay, is_stream=True),
    "bsp": Pair(_bsp_client, _bsp_relay, is_stream=True),
    "lprp": Pair(_lprp_client, _lprp_relay, is_stream=False),
    "merk": Pair(_merk_client, _merk_relay, is_stream=False),
    "strata publisher": Pair(_strata_publisher, _strata_relay, is_stream=False),
    "strata reader": Pair(_strata_reader, _strata_relay_with_a_packet, is_stream=False),
}
SIDES = [(name, side) for name in PAIRS for side in ("client", "relay")]


def each_of(sides):
    """Run a test once for each of these machines."""
    return pytest.mark.parametrize(("name", "side"), sides, ids=[f"{name} {side}" for name, side in sides])


each_machine = each_of(SIDES)
each_machine_of_connections = each_of([pair for pair in SIDES if pair != ("lprp", "relay")])
"""A host of datagrams has no connections."""


def fresh(name: str, side: str) -> Driven:
    """Return one machine, not connected."""
    return getattr(PAIRS[name], side)()


def script(name: str, side: str) -> list[bytes]:
    """Return the messages that this side receives when both talk until neither has anything to send."""
    client, relay = fresh(name, "client").open(), fresh(name, "relay").open()
    given = {"client": 0, "relay": 0}
    for _ in range(TURNS_MAX):
        to_client, to_relay = relay.sent()[given["client"] :], client.sent()[given["relay"] :]
        if not to_client and not to_relay:
            break
        given["client"] += len(to_client)
        given["relay"] += len(to_relay)
        for data in to_client:
            client.receive(data)
        for data in to_relay:
            relay.receive(data)
    return (relay if side == "client" else client).sent()


def pieces_of(name: str, messages: list[bytes], rng: random.Random) -> list[list[bytes]]:
    """Return the same input in turns: a stream cut anywhere, whole messages in groups of any size."""
    units = [bytes([byte]) for byte in b"".join(messages)] if PAIRS[name].is_stream else messages
    turns: list[list[bytes]] = []
    while units:
        size = rng.randint(1, 40)
        turns.append([b"".join(units[:size])] if PAIRS[name].is_stream else units[:size])
        units = units[size:]
    return turns


@each_machine
def test_every_machine_has_the_contract(name, side):
    """A client has the inputs and outputs of ``ClientMachine``, a relay those of ``Machine`` or ``DatagramMachine``."""
    machine = fresh(name, side).machine
    contract = ClientMachine if side == "client" else DatagramMachine if name == "lprp" else Machine

    wanted = {member for kind in contract.__mro__ for member in vars(kind) if not member.startswith("_")}
    assert wanted <= set(dir(machine))


@each_machine
def test_a_script_is_a_conversation(name, side):
    """Every script says something, so that the laws below are about something."""
    assert len(b"".join(script(name, side))) > 0


@each_machine
def test_any_chunking_gives_the_same_effects(name, side):
    """Effects and events depend on the bytes received, not on the pieces in which they came."""
    messages = script(name, side)
    expected = fresh(name, side).open()
    for message in messages:
        expected.receive(message)

    for seed in range(20):
        other = fresh(name, side).open()
        for turn in pieces_of(name, messages, random.Random(seed)):
            other.receive(*turn)
        assert other.summary() == expected.summary()


@each_machine
def test_early_wake_is_nothing(name, side):
    """A wake before the deadline has no effect and leaves the deadline where it is."""
    driven = fresh(name, side).open()
    driven.receive(*script(name, side))
    before, due = driven.summary(), driven.machine.deadline()

    driven.machine.wake(NOW if due is None else Instant(min(due - 1, NOW + 1)))
    assert driven.settle().summary() == before
    assert driven.machine.deadline() == due


@each_machine
def test_wake_is_idempotent(name, side):
    """A second wake at the same instant has no effect, and the next deadline lies in the future."""
    driven = fresh(name, side).open()
    driven.receive(*script(name, side))
    for _ in range(40):
        due = driven.machine.deadline()
        if due is None:
            break
        driven.machine.wake(due)
        once = driven.settle().summary()
        again = driven.machine.deadline()
        driven.machine.wake(due)
        assert driven.settle().summary() == once
        assert driven.machine.deadline() == again
        assert again is None or again > due


@each_machine
def test_nothing_follows_a_close(name, side):
    """After ``Close`` a machine has forgotten its peer: no input in its name has an effect for it."""
    driven = fresh(name, side).open()
    for _ in range(60):
        driven.receive(GARBAGE)
        if hasattr(driven.machine, "disconnect"):
            driven.machine.congested(PEER, NOW)
            driven.machine.drained(PEER, NOW)
    driven.receive(*script(name, side))
    kinds = [type(effect) for effect in driven.effects if getattr(effect, "peer", None) == PEER]

    closes = [kind for kind in kinds if kind is Close]
    assert len(closes) == (0 if name == "lprp" else 1)
    assert not closes or kinds[kinds.index(Close) + 1 :].count(Send) == 0


@each_machine_of_connections
def test_an_unknown_peer_is_harmless(name, side):
    """Inputs in the name of a peer that never connected, or is gone, change nothing."""
    machine = fresh(name, side)
    messages = script(name, side)
    expected = fresh(name, side).open().receive(*messages).summary()

    machine.open()
    machine.machine.disconnect(UNKNOWN, NOW)
    machine.machine.receive(UNKNOWN, messages[0], NOW)
    machine.machine.drained(UNKNOWN, NOW)
    assert machine.receive(*messages).summary() == expected
    machine.machine.disconnect(PEER, NOW)
    gone = machine.settle().summary()[0]
    machine.machine.disconnect(PEER, NOW)
    machine.machine.receive(PEER, messages[0], NOW)
    assert machine.settle().summary()[0] == gone


@each_machine
def test_a_machine_without_a_connection_sends_nothing(name, side):
    """Before ``connect`` and after ``disconnect`` nothing can be sent."""
    driven = fresh(name, side)
    due = driven.machine.deadline()
    driven.machine.wake(NOW if due is None else due)

    assert driven.settle().sent() == []
