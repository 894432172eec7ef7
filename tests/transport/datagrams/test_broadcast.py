import asyncio
import contextlib
import ipaddress
import socket

import pytest

from waystation.core.errors import HostError
from waystation.transport.datagrams.broadcast import (
    ANSWERS_BURST,
    ANSWERS_PER_S,
    RECEIVED_BURST,
    RECEIVED_PER_S,
    BroadcastPort,
)

LOOPBACK = [ipaddress.IPv4Interface("127.0.0.1/8")]
WITHIN_S = 20
QUESTION = b"q" * 64


class Port:
    """An open port that keeps what it hears and answers as the test says."""

    def __init__(self, answer=None, interfaces=LOOPBACK):
        self.heard = []
        self._answer = answer
        self._arrived = asyncio.Event()
        self.port = BroadcastPort(self._on_datagram, interfaces)

    def _on_datagram(self, data, host):
        self.heard.append((data, host))
        self._arrived.set()
        return self._answer

    async def __aenter__(self):
        await self.port.open()
        return self

    async def __aexit__(self, *_):
        self.port.close()

    async def until(self, holds):
        """Wait until something holds, looking after each datagram."""
        async with asyncio.timeout(WITHIN_S):
            while not holds():
                self._arrived.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._arrived.wait(), 0.05)


@contextlib.contextmanager
def plain_socket():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as carrier:
        carrier.bind(("127.0.0.1", 0))
        yield carrier


def test_question_reaches_everybody_and_answers_come_back():
    """Two that share a port hear the broadcast, and each of them answers the one that asked."""

    async def scenario():
        async with Port(b"first") as first, Port() as asking:
            second = Port(b"second")
            await second.port.open(first.port.port)
            asking.port.ask(QUESTION, first.port.port)
            await asking.until(lambda: len(asking.heard) == 2)
            second.port.close()
            return first.heard, second.heard, asking.heard

    first, second, asking = asyncio.run(scenario())

    assert first == second == [(QUESTION, "127.0.0.1")]
    assert sorted(asking) == [(b"first", "127.0.0.1"), (b"second", "127.0.0.1")]


def test_answer_longer_than_its_question_does_not_leave():
    """Nobody can be flooded by a question in its name: an answer has at most as many bytes."""

    async def scenario():
        async with Port(b"x" * 65) as relay, Port() as asking:
            asking.port.ask(QUESTION, relay.port.port)
            await relay.until(lambda: relay.port.ignored == 1)
            asking.port.ask(QUESTION + b"q", relay.port.port)
            await asking.until(lambda: asking.heard)
            return len(relay.heard), asking.heard

    heard, answers = asyncio.run(scenario())

    assert heard == 2
    assert answers == [(b"x" * 65, "127.0.0.1")]


async def flood(count, answer, holds):
    """Ask so many times at once; return the relay's port, the asker's, and the seconds until something held."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with Port(answer) as relay, Port() as asking:
        for _ in range(count):
            asking.port.ask(QUESTION, relay.port.port)
        await relay.until(lambda: holds(relay, asking))
        return relay, asking, loop.time() - began


def test_flood_is_looked_at_at_a_fixed_rate():
    """Of many questions in one moment a burst is looked at, the others are dropped unread."""
    count = 2 * RECEIVED_BURST
    relay, _, seconds = asyncio.run(
        flood(count, None, lambda relay, _asking: len(relay.heard) + relay.port.ignored >= count)
    )

    assert RECEIVED_BURST <= len(relay.heard) <= RECEIVED_BURST + RECEIVED_PER_S * (seconds + 0.1)


def test_flood_is_answered_at_a_fixed_rate():
    """Fewer are answered than are looked at."""
    count = RECEIVED_BURST
    relay, asking, seconds = asyncio.run(
        flood(count, b"a", lambda relay, asking: len(asking.heard) + relay.port.ignored >= count)
    )

    assert len(relay.heard) == count
    assert ANSWERS_BURST <= len(asking.heard) <= ANSWERS_BURST + ANSWERS_PER_S * (seconds + 0.1)


def test_datagram_from_another_network_is_not_heard():
    """Who is not in the network of one of our interfaces gets no answer."""

    async def scenario():
        async with Port(b"a", [ipaddress.IPv4Interface("192.0.2.1/24")]) as relay:
            with plain_socket() as stranger:
                stranger.sendto(QUESTION, ("127.0.0.1", relay.port.port))
                await relay.until(lambda: relay.port.ignored == 1)
            return relay.heard

    assert asyncio.run(scenario()) == []


@pytest.mark.parametrize("datagram", [b"", b"\0", b"\xff" * 65_507])
def test_any_size_of_datagram_is_passed_on_whole(datagram):
    """Nothing that arrives raises, and whoever judges it sees all of it."""

    async def scenario():
        async with Port() as relay:
            with plain_socket() as stranger:
                stranger.sendto(datagram, ("127.0.0.1", relay.port.port))
                await relay.until(lambda: relay.heard)
            return relay.heard

    assert asyncio.run(scenario()) == [(datagram, "127.0.0.1")]


def test_closed_port_hears_nothing():
    """What was under way is dropped and counted, like a complaint of the network."""

    async def scenario():
        async with Port() as relay:
            relay.port.close()
            relay.port.datagram_received(b"late", ("127.0.0.1", 1))
            relay.port.error_received(OSError())
        return relay.heard, relay.port.ignored

    assert asyncio.run(scenario()) == ([], 2)


def test_port_that_cannot_be_had_is_a_sentence():
    """A port that somebody keeps for itself, and one that is none."""

    async def scenario():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind(("", 0))
            number = taken.getsockname()[1]
            with pytest.raises(HostError, match=f"UDP port {number}.*taken") as caught:
                await BroadcastPort(lambda *_: None, LOOPBACK).open(number)
        with pytest.raises(HostError, match="70000"):
            await BroadcastPort(lambda *_: None, LOOPBACK).open(70_000)
        with pytest.raises(HostError, match="no IPv4 network"):
            await BroadcastPort(lambda *_: None, []).open()
        return caught.value.exit_code

    assert asyncio.run(scenario()) == 4
