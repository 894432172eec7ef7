"""What a relay can see of a probe is what it sees of everybody: the same frames, orders and sizes."""

import asyncio
import contextlib
import math
import random

import pytest

from tests.sdk.build import RunningDevice
from tests.sdk.open_build import OpenRelay
from tests.sdk.tap import Tap
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi import wire
from waystation.protocols.bhumi.messages import Feature, FrameType
from waystation.sdk.bhumi import BhumiState, ContentType, PresenceAsserted, RelayBook, RelayQuality, Sender
from waystation.sdk.bhumi_probe import CONTENT_BYTES_MAX, Prober
from waystation.sdk.bhumi_state import HandshakeFacts

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
            prober = Prober(book, quality, None, rng, findable=findable)
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
