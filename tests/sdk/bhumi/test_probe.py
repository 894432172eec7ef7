"""Laws of sdk.bhumi_probe: a probe looks like everybody's traffic, sees who is slow or lies, and goes nowhere else."""

import asyncio
import contextlib
import math
import random
import socket

import pytest

from tests.sdk.bhumi.build_open import OpenRelay
from tests.sdk.bhumi.build_probe import LIES, Liar, Stalling, sends_lie
from tests.sdk.build import RunningDevice, ScriptedRelay
from tests.sdk.tap import Tap
from waystation.core.errors import LocalError
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi import wire
from waystation.protocols.bhumi.extension_messages import QaVerdict
from waystation.protocols.bhumi.messages import Feature, FrameType
from waystation.protocols.bhumi.signed_records import sign_advert
from waystation.sdk.bhumi import BhumiState, ContentType, PresenceAsserted, RelayBook, RelayQuality, Sender
from waystation.sdk.bhumi.moves import RelayChoice
from waystation.sdk.bhumi.probe import CONTENT_BYTES_MAX, PROBE_EVERY_S, Prober
from waystation.sdk.bhumi.state import HandshakeFacts
from waystation.transport.dial import RelayUrl

NOWHERE = "tcp://127.0.0.1:1"


class Bench:
    """A prober with a book, a view and a clock of its own."""

    def __init__(self, home, **options):
        self.now_s = 0.0
        self.book = RelayBook(home)
        self.quality = RelayQuality(home)
        rng = options.pop("rng", random.Random(7))
        relays = RelayChoice(options.pop("named", ()), self.book, self.quality, rng)
        self.prober = Prober(relays, self.quality, None, rng, clock=lambda: self.now_s, **options)

    def close(self):
        self.book.close()
        self.quality.close()


@pytest.fixture
def bench(tmp_path):
    """A prober."""
    made = Bench(tmp_path)
    yield made
    made.close()


async def result_of(bench, relay, deadline_s=20):
    """Return what a probe of a relay comes to."""
    async with relay:
        return await bench.prober.probe(relay.url, deadline_s)


def test_honest_relay_is_found_good(bench):
    """Message and answer arrive as they were sent."""
    verdict, latency_s = asyncio.run(result_of(bench, OpenRelay(1)))

    assert verdict is QaVerdict.OK
    assert 0 < latency_s < 20
    assert [entry.window.latency_ms > 0 for entry in bench.quality.entries()] == [True]


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_lying_relay_is_found_out(bench, lie):
    """An answer, a request or a status that an honest relay does not make up is wrong."""
    verdict, _ = asyncio.run(result_of(bench, Liar(1, lie)))

    assert verdict is QaVerdict.WRONG
    (entry,) = bench.quality.entries()
    assert len(entry.window.violations_s) == 1


def test_slow_relay_is_found_slow(bench, monkeypatch):
    """What takes longer than it should is right, and slow."""
    monkeypatch.setattr("waystation.sdk.bhumi.probe.SLOW_S", 0.02)
    verdict, latency_s = asyncio.run(result_of(bench, Liar(1, None, delay_s=0.05)))

    assert verdict is QaVerdict.SLOW
    assert latency_s >= 0.05


@pytest.mark.parametrize("stage", ["greets nobody", "swallows requests"])
def test_stalling_relay_is_left_at_the_deadline(bench, stage):
    """A candidate that takes for ever costs the deadline and no more."""

    async def scenario():
        relay = Stalling() if stage == "greets nobody" else Liar(1, sends_lie(None))
        began = asyncio.get_running_loop().time()
        result = await result_of(bench, relay, deadline_s=0)
        return result, asyncio.get_running_loop().time() - began

    (verdict, latency_s), took_s = asyncio.run(scenario())
    assert verdict is QaVerdict.SLOW
    assert latency_s >= 1
    assert took_s < 15


def test_relay_that_is_not_there_is_unreachable(bench):
    """Nobody listening is a verdict, too."""
    verdict, _ = asyncio.run(bench.prober.probe(NOWHERE, 20))

    assert verdict is QaVerdict.UNREACHABLE
    assert bench.quality.entry(NOWHERE).standing.failures_running == 1


def test_relay_that_hangs_up_is_unreachable(bench):
    """A relay that breaks the connection has not lied."""

    async def scenario():
        async with ScriptedRelay() as relay:
            probing = asyncio.create_task(bench.prober.probe(relay.url, 20))
            await relay.wait_for(FrameType.I_AM)
            relay.stop()
            return await probing

    assert asyncio.run(scenario()).verdict is QaVerdict.UNREACHABLE


def test_relay_that_takes_nothing_is_wrong(bench):
    """A relay must take what people say to each other."""
    verdict, _ = asyncio.run(result_of(bench, OpenRelay(1, max_payload_bytes=64)))

    assert verdict is QaVerdict.WRONG


def test_stranger_is_not_tried(bench):
    """A place that neither the user nor a verified advert names is refused."""
    assert "neither named" in bench.prober.admit("tls://10.0.0.1:22")
    assert "neither named" in bench.prober.admit("no address at all")


def test_advertised_and_named_relays_are_tried(tmp_path):
    """A seed, a verified advert and a relay of the command line may be tried."""
    key = OpenRelay(3).key_pair
    named = RelayUrl.parse("tcp://127.0.0.1:9")
    bench = Bench(tmp_path, named=str(named))
    bench.book.add_seed("tcp://127.0.0.1:7")
    bench.book.learn(sign_advert(key, "tls://relay.example:8443", int(bench.book._clock()), 600))
    reasons = []
    for address in ("tcp://127.0.0.1:7", "tls://relay.example:8443", str(named)):
        reasons.append(bench.prober.admit(address))
        bench.now_s += PROBE_EVERY_S
    bench.close()

    assert reasons == [None, None, None]


def test_other_spelling_leads_nowhere_private(bench, monkeypatch):
    """Whoever asks in capitals gets no further: a name from an advert leads to the open internet or nowhere."""
    ask = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *rest, **more: ask("127.0.0.1" if "inward" in host else host, *rest, **more)
    )

    async def scenario():
        async with OpenRelay(1) as relay:
            address = f"tcp://inward.example:{relay.url.rpartition(':')[2]}"
            assert bench.book.learn(sign_advert(relay.key_pair, address, int(bench.book._clock()), 600))
            shouted = address.replace("inward", "INWARD")
            assert bench.prober.admit(shouted) is None
            return await bench.prober.probe(shouted, 20), relay.frames

    (verdict, _), frames = asyncio.run(scenario())

    assert (verdict, frames) == (QaVerdict.UNREACHABLE, [])


def test_endless_requests_are_refused(bench):
    """One probe in ten minutes, whoever asks and however often."""
    bench.book.add_seed(NOWHERE)
    first = bench.prober.admit(NOWHERE)
    again = {bench.prober.admit(NOWHERE) for _ in range(1_000)}
    bench.now_s = PROBE_EVERY_S
    later = bench.prober.admit(NOWHERE)

    assert (first, later) == (None, None)
    assert again == {"a probe was made less than 600 s ago"}


def test_each_probe_is_somebody_else(bench):
    """Two probes have neither an identity nor a commit in common."""

    async def scenario():
        async with OpenRelay(1) as relay:
            for _ in range(2):
                await bench.prober.probe(relay.url, 20)
            return [payload for _, payload in relay.of_type(FrameType.I_AM)]

    first, second = asyncio.run(scenario())
    assert first[:32] != second[:32]
    assert not {first[98 + 32 * at :][:32] for at in range(1)} & {second[98 + 32 * at :][:32] for at in range(1)}


def test_address_must_be_one(bench):
    """Whoever calls ``probe`` without ``admit`` gets a sentence."""
    with contextlib.closing(asyncio.new_event_loop()) as loop, pytest.raises(LocalError):
        loop.run_until_complete(bench.prober.probe("nonsense://", 1))


# What a relay can see of a probe is what it sees of everybody: the same frames, orders and sizes.

ROUNDS = 12
OPAQUE = (FrameType.SEND, FrameType.DELIVER, FrameType.ACK, FrameType.SEND_RESULT)
"""Frames whose size is that of what people say."""


class Devices:
    """Real devices and senders that talk through a tap: their states are made as pairing and talking leave them."""

    def __init__(self, home, rng):
        self._home = home
        self._rng = rng
        self._count = 0

    async def talk(self, url, sizes, *, findable, is_heard):
        """Let a fresh device answer one request of each (request size, answer size), once its presence is heard."""
        self._count += 1
        home = self._home / str(self._count)
        answers = iter([size for _, size in sizes])

        async def handler(_request):
            return self._rng.randbytes(next(answers))

        async with RunningDevice(home / "device", url, handler, findable=findable) as device:
            self._give_a_past(device.state, url)
            sender = BhumiState(home / "sender")
            rights = [self._rng.randbytes(32) for _ in range(8)]
            for right in rights:
                device.state.begin_handshake(bytes(32), sender.identity, b"", "", right)
                device.state.finish(bytes(32), sender.identity, ())
            sender.finish(bytes(32), device.state.identity, rights, HandshakeFacts("device", ""))
            await device.listening()
            if is_heard:
                await device.until(PresenceAsserted)
            async with Sender(sender, url) as bob:
                for size, _ in sizes:
                    await bob.send("device", self._rng.randbytes(size), ContentType.BINARY)
            sender.close()

    def _give_a_past(self, state, url):
        """Let a device have answered a few peers lately; nobody sees what, only how long it is."""
        for _ in range(self._rng.randint(0, 3)):
            peer = KeyPair.from_seed(self._rng.randbytes(32)).public
            sealed = self._rng.randbytes(self._rng.randint(200, 2_000))
            state.answered(self._rng.randbytes(32), peer, sealed, [self._rng.randbytes(32)], None)


def drawn(rng):
    """Return a size out of the range that probes draw from, ends included."""
    return int(2 ** rng.uniform(0, math.log2(CONTENT_BYTES_MAX)))


async def traffic(tmp_path, *, findable, features):
    """Return what real devices and senders, and what probes, said through a tap in front of one relay."""
    rng = random.Random(5)
    settings = {"gossip": Feature.PRESENCE in features, "qa": False}
    async with OpenRelay(1, **settings) as relay, Tap(relay.url) as real, Tap(relay.url) as probed:
        devices = Devices(tmp_path, rng)
        extremes = [(1, 1), (CONTENT_BYTES_MAX, CONTENT_BYTES_MAX)]
        for number in range(ROUNDS):
            sizes = extremes if not number else [(drawn(rng), drawn(rng)) for _ in range(rng.randint(1, 3))]
            await devices.talk(real.url, sizes, findable=findable, is_heard=findable and settings["gossip"])
        with contextlib.closing(RelayBook(tmp_path)) as book, contextlib.closing(RelayQuality(tmp_path)) as quality:
            prober = Prober(RelayChoice([], book, quality, rng), quality, None, rng, findable=findable)
            for _ in range(ROUNDS):
                await prober.probe(probed.url, 30)
        return real.passages, probed.passages


def kind_of(passage):
    """Return whether a connection is a device's or a sender's."""
    return "device" if FrameType.I_AM in passage.types("client") else "sender"


def shape(passage):
    """Return who said which frames in which order; exchanges count once, however many there are."""
    repeated = {
        ("device", "client"): (FrameType.UPDATE_COMMITS, FrameType.ACK),
        ("device", "relay"): (FrameType.DELIVER,),
        ("sender", "client"): (FrameType.SEND,),
        ("sender", "relay"): (FrameType.SEND_RESULT,),
    }
    kind = kind_of(passage)
    said = {}
    for side in ("client", "relay"):
        unit, types = repeated[kind, side], list(passage.types(side))
        while types[-2 * len(unit) :] == [*unit, *unit]:
            del types[-len(unit) :]
        said[side] = tuple(types)
    return kind, said["client"], said["relay"]


def fixed_sizes(passages):
    """Return type and size of every frame that does not depend on what people say."""
    varying = {*OPAQUE, FrameType.I_AM}
    return {
        (side, kind, len(payload))
        for passage in passages
        for side in ("client", "relay")
        for kind, payload in passage.frames[side]
        if kind not in varying
    }


def ranges(passages):
    """Return the smallest and the largest payload of each opaque frame type."""
    found = {}
    for kind in OPAQUE:
        sizes = [size for each in passages for side in ("client", "relay") for size in each.sizes(side, kind)]
        found[kind] = (min(sizes), max(sizes))
    return found


@pytest.mark.parametrize(
    ("findable", "features"),
    [(True, Feature.PRESENCE), (False, Feature.PRESENCE), (True, Feature(0))],
    ids=["findable", "hidden", "a relay that knows no presence"],
)
def test_probe_has_the_shape_of_everybody(tmp_path, findable, features):
    """Frames of real devices and senders and of probes: the same orders, the same sizes, the same range of sizes."""
    real, probed = asyncio.run(traffic(tmp_path, findable=findable, features=features))

    assert len(real) == len(probed) == 2 * ROUNDS
    assert {shape(passage) for passage in real} == {shape(passage) for passage in probed}
    assert fixed_sizes(real) == fixed_sizes(probed)
    allowed, seen = ranges(real), ranges(probed)
    for kind in OPAQUE:
        assert allowed[kind][0] <= seen[kind][0]
        assert seen[kind][1] <= allowed[kind][1]
        assert seen[kind][1] > 4 * seen[kind][0] // 2


def test_probe_introduces_itself_like_a_device(tmp_path):
    """Commits and carried answers of a probe are as many and as long as a device may have."""
    _, probed = asyncio.run(traffic(tmp_path, findable=True, features=Feature.PRESENCE))
    said = [payload for each in probed for kind, payload in each.frames["client"] if kind == FrameType.I_AM]
    introductions = [wire.decode_i_am(payload) for payload in said]
    carried = [response for each in introductions for response in each.responses]

    assert len({each.identity for each in introductions}) == ROUNDS
    assert len({len(each.commits) for each in introductions}) > 3
    assert {len(each.responses) for each in introductions} >= {0, 1}
    assert len({len(response.response) for response in carried}) > 3
    assert all(100 < len(response.response) <= CONTENT_BYTES_MAX + 300 for response in carried)


def test_another_shape_would_be_seen(tmp_path):
    """The comparison is no formality: a sender that says one frame more has another shape."""
    real, _ = asyncio.run(traffic(tmp_path, findable=True, features=Feature.PRESENCE))
    one = next(passage for passage in real if kind_of(passage) == "device")
    before = shape(one)
    one.frames["client"].insert(2, (FrameType.UPDATE_COMMITS, bytes(34)))

    assert shape(one) != before
