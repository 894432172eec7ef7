"""Laws of sdk.bhumi_probe: a probe looks like everybody's traffic, sees who is slow or lies, and goes nowhere else."""

import asyncio
import contextlib
import random
import socket

import pytest

from tests.sdk.build import ScriptedRelay
from tests.sdk.open_build import OpenRelay
from tests.sdk.probe_build import LIES, Liar, Stalling, sends_lie
from waystation.core.errors import LocalError
from waystation.protocols.bhumi.extension_messages import QaVerdict
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.signed_records import sign_advert
from waystation.sdk.bhumi_probe import PROBE_EVERY_S, Prober
from waystation.sdk.bhumi_quality import RelayQuality
from waystation.sdk.bhumi_relay_book import RelayBook
from waystation.transport.dial import RelayUrl

NOWHERE = "tcp://127.0.0.1:1"


class Bench:
    """A prober with a book, a view and a clock of its own."""

    def __init__(self, home, **options):
        self.now_s = 0.0
        self.book = RelayBook(home)
        self.quality = RelayQuality(home)
        rng = options.pop("rng", random.Random(7))
        self.prober = Prober(self.book, self.quality, None, rng, clock=lambda: self.now_s, **options)

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
    monkeypatch.setattr("waystation.sdk.bhumi_probe.SLOW_S", 0.02)
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
    """A place that neither the user nor a verified advert names is refused, and counted."""
    assert "neither named" in bench.prober.admit("tls://10.0.0.1:22")
    assert "neither named" in bench.prober.admit("no address at all")
    assert bench.prober.refused_count == 2


def test_advertised_and_named_relays_are_tried(tmp_path):
    """A seed, a verified advert and a relay of the command line may be tried."""
    key = OpenRelay(3).key_pair
    named = RelayUrl.parse("tcp://127.0.0.1:9")
    bench = Bench(tmp_path, named=[named])
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
    """One probe in ten minutes, whoever asks and however often; each refusal is counted."""
    bench.book.add_seed(NOWHERE)
    first = bench.prober.admit(NOWHERE)
    again = {bench.prober.admit(NOWHERE) for _ in range(1_000)}
    bench.now_s = PROBE_EVERY_S
    later = bench.prober.admit(NOWHERE)

    assert (first, later) == (None, None)
    assert again == {"a probe was made less than 600 s ago"}
    assert bench.prober.refused_count == 1_000


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
