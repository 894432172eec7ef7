"""Laws of sdk.relay_list: rounds and pauses; tried in full by tests of Strata's and MERK's relays."""

import asyncio
import random

import pytest

from tests.sdk.strata.build import RelayServer
from tests.server.build import eventually
from waystation.protocols.strata.client.machine import StrataClient
from waystation.sdk.backoff import Backoff
from waystation.sdk.connection import Connection
from waystation.sdk.errors import RelayUnreachableError
from waystation.sdk.relay_list import Connected, Disconnected, RelayList

NOBODY = "ws://127.0.0.1:1/strata"


class Relays(RelayList):
    """Anonymous Strata clients, established as soon as a connection is open."""

    def __init__(self, *urls, pause_s=0.001):
        self.urls = list(urls)
        self.events = []
        backoff = Backoff(random.Random(1), first_s=pause_s, cap_s=2 * pause_s)
        super().__init__(self.events.append, backoff, text=True, message_bytes_max=1_000_000, tls=None)

    def _candidates(self):
        return self.urls

    def _make(self, url):
        return Connection(StrataClient(random.Random(1)), lambda _event: None)

    def _on_open(self):
        self._on_established()

    def _why_ended(self, ended):
        return f"status {ended.status}"

    def of(self, kind):
        """Return the relays that events of a kind named."""
        return [event.relay for event in self.events if isinstance(event, kind)]


def test_events_name_their_units():
    """Milliseconds and seconds are in the names, since a bare number would say neither."""
    assert Connected._fields == ("relay", "handshake_ms", "server", "authenticated")
    assert Disconnected._fields == ("relay", "reason", "up_s", "retry_s")


def test_first_that_takes_us_is_used_and_dialled_again():
    """A round passes over a relay that is not there; after the end of a connection the next round begins."""

    async def scenario():
        async with RelayServer() as server:
            relays = Relays(NOBODY, server.url)
            relays.start()
            await relays.reached()
            first = await relays.established(5)
            await server.cut()
            await eventually(lambda: len(relays.of(Connected)) == 2, "the second connection")
            second = await relays.established(5)
            await relays.aclose()
            await relays.aclose()
            return relays, first is second, server.url

    relays, same, url = asyncio.run(scenario())

    assert not same and not relays.connected
    assert relays.of(Connected) == [url, url]
    assert relays.of(Disconnected)[:3] == [NOBODY, url, NOBODY]
    assert [event.up_s is None for event in relays.events if isinstance(event, Disconnected)][:3] == [True, False, True]
    assert relays.events[0].retry_s == 0


def test_first_round_without_a_relay_is_told():
    """``reached`` raises the reason, ``established`` waits no longer than it is told, and the rounds go on."""

    async def scenario():
        relays = Relays(NOBODY)
        relays.start()
        with pytest.raises(RelayUnreachableError, match="nobody listens"):
            await relays.reached()
        with pytest.raises(RelayUnreachableError, match=r"no relay within 0\.01 s: nobody listens"):
            await relays.established(0.01)
        await eventually(lambda: len(relays.of(Disconnected)) > 2, "further rounds")
        waiting = asyncio.create_task(relays.established(5))
        await asyncio.sleep(0)
        await relays.aclose()
        with pytest.raises(RelayUnreachableError, match="the client is closed"):
            await waiting

    asyncio.run(scenario())


def test_empty_list_is_the_end():
    """Without a candidate nothing is tried, now or later."""

    async def scenario():
        relays = Relays()
        relays.start()
        with pytest.raises(RelayUnreachableError, match="add one first"):
            await relays.reached()
        await relays.aclose()
        return relays.fatal, relays.events

    fatal, events = asyncio.run(scenario())

    assert events == [fatal]


def test_reconnect_ends_a_pause():
    """A client that waits for an hour is connected at once when its program says that the network is back."""

    async def scenario():
        async with RelayServer() as server:
            relays = Relays(NOBODY, pause_s=3_600)
            relays.start()
            await eventually(lambda: relays.of(Disconnected), "the first failure")
            relays.urls = [server.url]
            relays.reconnect()
            connection = await relays.established(5)
            relays.reconnect()
            still = await relays.established(5)
            await relays.aclose()
            return connection is still

    assert asyncio.run(scenario())
