import asyncio
import contextlib

import pytest

from tests.transport.datagrams.build_mdns import HAS_MULTICAST, LOOPBACK, SERVICE, WITHIN_S, Watch
from tools.served import free_port
from waystation.core.errors import HostError
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.lan_datagrams import LanResponder, encode_answer, read_query
from waystation.protocols.bhumi.signed_records import sign_advert
from waystation.sdk.bhumi.lan import look_on_lan
from waystation.sdk.bhumi.relay_book import RelayBook, Source
from waystation.transport.datagrams.broadcast import BroadcastPort

NOW = 1_800_000_000
RELAY = KeyPair.from_seed(bytes([0x0E]) * 32)
OTHER = KeyPair.from_seed(bytes([0x0F]) * 32)
HERE = "tls://127.0.0.1:4444"


@pytest.fixture
def book(tmp_path):
    opened = RelayBook(tmp_path, clock=lambda: NOW)
    yield opened
    opened.close()


@contextlib.asynccontextmanager
async def answering(answer):
    """Give the port of a relay that answers broadcasts with what the test makes of a datagram."""
    port = BroadcastPort(answer, LOOPBACK)
    await port.open()
    try:
        yield port.port
    finally:
        port.close()


async def look(book, broadcast_port, *, enough=1, **options):
    options.setdefault("seconds", WITHIN_S)
    return await look_on_lan(
        book,
        options.pop("seconds"),
        interfaces=LOOPBACK,
        enough=lambda search: len(search.found) >= enough,
        service=options.pop("service", SERVICE),
        broadcast_port=broadcast_port,
        clock=lambda: NOW,
    )


def test_relay_that_answers_a_broadcast_comes_into_the_book(book):
    """It is local, has its key, lives as long as an mDNS find, and is no reason to be sent there."""
    session = LanResponder(RELAY, "tls", 4444, b"8 bytes!")

    async def scenario():
        async with answering(lambda data, host: session.receive(data, host, "127.0.0.1", NOW)) as port:
            return await look(book, port)

    search = asyncio.run(scenario())
    (entry,) = book.entries()

    assert search.found == {HERE: RELAY.public}
    assert (entry.address, entry.relay_id, entry.source, entry.is_local) == (HERE, RELAY.public, Source.LAN, True)
    assert entry.expires_s == NOW + 120
    assert not book.knows(HERE)


def test_relay_that_mdns_shows_comes_into_the_book(book):
    """A find is entered with its key and its TTL."""

    async def scenario():
        async with Watch() as relay:
            await relay.mdns.announce(RELAY.public, "tcp", "127.0.0.1", 4444)
            return await look(book, free_port())

    if not HAS_MULTICAST:
        assert asyncio.run(look(book, free_port(), seconds=0.1)).found == {}
        return

    assert asyncio.run(scenario()).found == {"tcp://127.0.0.1:4444": RELAY.public}
    assert [(entry.relay_id, entry.expires_s) for entry in book.entries()] == [(RELAY.public, NOW + 120)]


def test_relay_that_leaves_meanwhile_leaves_the_book(book):
    """The goodbye of a relay takes it out again at once."""

    async def scenario():
        async with Watch() as relay:
            await relay.mdns.announce(RELAY.public, "tls", "127.0.0.1", 4444)
            searching = asyncio.create_task(look(book, free_port(), enough=2))
            await relay.until(book.entries)
            await relay.mdns.close()
            await relay.until(lambda: not book.entries())
            searching.cancel()
            await asyncio.wait([searching])

    if HAS_MULTICAST:
        asyncio.run(scenario())
    assert book.entries() == []


@pytest.mark.parametrize(
    "hostile",
    [
        lambda nonce: b"",
        lambda nonce: b"bhumi!\x01" + nonce,
        lambda nonce: b"bhumi!\x01" + nonce + b"\xff" * 400,
        lambda nonce: encode_answer(b"another!", sign_advert(OTHER, "tls://127.0.0.1:1", NOW, 300)),
        lambda nonce: encode_answer(nonce, sign_advert(OTHER, "tls://10.0.0.1:1", NOW, 300)),
        lambda nonce: encode_answer(nonce, sign_advert(OTHER, "tls://relay.example:1", NOW, 300)),
        lambda nonce: encode_answer(nonce, sign_advert(OTHER, "tls://127.0.0.1:1", NOW - 300, 300)),
        lambda nonce: encode_answer(nonce, sign_advert(OTHER, "tls://127.0.0.1:1", NOW, 300))[:-1] + b"\0",
    ],
)
def test_hostile_answers_come_to_nothing(book, hostile):
    """Each is passed over, and the honest relay beside is found."""
    session = LanResponder(RELAY, "tls", 4444, b"8 bytes!")

    async def scenario():
        async with answering(lambda data, host: hostile(read_query(data))) as port:
            honest = BroadcastPort(lambda data, host: session.receive(data, host, "127.0.0.1", NOW), LOOPBACK)
            await honest.open(port)
            try:
                return await look(book, port)
            finally:
                honest.close()

    assert asyncio.run(scenario()).found == {HERE: RELAY.public}
    assert [entry.address for entry in book.entries()] == [HERE]


def test_flood_of_relays_is_bounded_by_the_book(book):
    """Who announces a hundred relays from one address fills no more than the places for such finds."""
    keys = [KeyPair.from_seed(bytes([number]) * 32) for number in range(1, 101)]
    turn = iter(range(10_000))

    def answer(data, host):
        nonce = read_query(data)
        number = next(turn) % 100
        return encode_answer(nonce, sign_advert(keys[number], f"tls://127.0.0.1:{number + 1}", NOW, 300))

    async def scenario():
        async with answering(answer) as port:
            return await look(book, port, seconds=0.2, enough=1_000)

    search = asyncio.run(scenario())

    assert set(search.found) == {entry.address for entry in book.entries()}
    assert len(book.entries()) <= 64


def test_nobody_there_ends_in_time(book):
    """An empty network is no error; the look ends when its time is over."""
    search = asyncio.run(look(book, free_port(), seconds=0.3))

    assert search.found == {}
    assert book.entries() == []


def test_machine_without_any_network_is_told_so(book):
    """With neither way there is one sentence for both."""
    with pytest.raises(HostError, match=r"mDNS .*; UDP broadcast "):
        asyncio.run(look_on_lan(book, 1.0, interfaces=[], service=SERVICE, broadcast_port=1))
