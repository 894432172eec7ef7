"""Laws of server.http_connection: who is silent goes, and nobody takes all the room."""

import asyncio
import contextlib
import json

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from waystation.server.config.settings import Address
from waystation.server.http import connection as http_connection
from waystation.server.http.connection import HEAD_S, HttpLimits, LateAnswer
from waystation.server.http.port import HttpPort

WHOLE = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
HALF = b"GET / HTTP/1.1\r\nHost: x\r\n"
LATE = LateAnswer({"late": True})
LARGE_BYTES = 12 << 20  # more than two sockets' buffers hold
WITHIN_S = 5


class Place:
    """An open port: / says yes, /wait once it is let go, /large more than fits into a socket."""

    def __init__(self, limits):
        self.asked, self.go = asyncio.Event(), asyncio.Event()
        routes = [Route("/", self.say), Route("/wait", self.wait), Route("/large", self.large)]
        self.port = HttpPort(Starlette(routes=routes), LATE, limits)

    async def say(self, _request):
        """Answer at once."""
        return PlainTextResponse("yes")

    async def wait(self, _request):
        """Answer later."""
        self.asked.set()
        await self.go.wait()
        return PlainTextResponse("yes")

    async def large(self, _request):
        """Answer with much."""
        return PlainTextResponse(bytes(LARGE_BYTES))

    async def send(self, data, host="127.0.0.1"):
        """Connect from an address and send; return the two ends of the stream."""
        number = int(self.port.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", number, local_addr=(host, 0))
        writer.write(data)
        return reader, writer

    async def begin(self):
        """Send a request that is at work until ``go``."""
        self.asked.clear()
        found = await self.send(b"GET /wait HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        await self.asked.wait()
        return found

    async def answer(self, data=WHOLE, host="127.0.0.1"):
        """Send, and return what is told until the end; nothing for a connection that was cut."""
        reader, writer = await self.send(data, host)
        try:
            return await told(reader)
        finally:
            writer.close()


async def told(reader):
    """Return everything until the end."""
    data = bytearray()
    with contextlib.suppress(ConnectionError):
        while more := await asyncio.wait_for(reader.read(1 << 16), WITHIN_S):
            data += more
    return bytes(data)


def tried(scenario, limits=HttpLimits()):  # noqa: B008 - immutable
    """Run a scenario at an open place and return what it does."""

    async def run():
        place = Place(limits)
        await place.port.open(Address("127.0.0.1", 0))
        try:
            return await scenario(place)
        finally:
            place.go.set()
            await place.port.close()

    return asyncio.run(run())


@pytest.fixture
def hasty(monkeypatch):
    """Make a head due in 30 ms."""
    monkeypatch.setattr(http_connection, "HEAD_S", 0.03)


CLOSING = WHOLE[:-2] + b"Connection: close\r\n\r\n"


def test_head_has_ten_seconds():
    """As a handshake at other doors."""
    assert HEAD_S == 10


@pytest.mark.parametrize("sent", [b"", b"G", HALF, WHOLE + HALF], ids=["nothing", "a byte", "half", "the second"])
def test_who_does_not_finish_a_head_is_told_and_closed(hasty, sent):
    """Status 408 with the port's word, whether or not a request went before."""
    answer = tried(lambda place: place.answer(sent))

    *before, late = answer.split(b"HTTP/1.1 ")
    assert late.startswith(b"408 Request Timeout\r\n")
    assert json.loads(late.partition(b"\r\n\r\n")[2]) == LATE.document
    assert len(before) == (2 if sent.startswith(WHOLE) else 1)


def test_drop_by_drop_is_no_faster(hasty):
    """Bytes that come do not move the time."""

    async def scenario(place):
        reader, writer = await place.send(HALF)
        data, sent = b"", 0
        while not data:
            writer.write(b"x")
            sent += 1
            with contextlib.suppress(TimeoutError):
                data = await asyncio.wait_for(reader.read(12), 0.01)
        writer.close()
        return data, sent

    data, sent = tried(scenario)

    assert data == b"HTTP/1.1 408"
    assert sent < 100


def test_request_at_work_is_not_late(hasty):
    """What the application takes is not the head's time."""

    async def scenario(place):
        reader, writer = await place.begin()
        await place.answer(HALF)  # so long
        place.go.set()
        answer = await told(reader)
        writer.close()
        return answer

    assert tried(scenario).endswith(b"yes")


def test_request_without_an_answer_ends(monkeypatch):
    """Nothing holds a connection for ever."""
    monkeypatch.setattr(http_connection, "REQUEST_S", 0.05)

    async def scenario(place):
        reader, writer = await place.begin()
        answer = await told(reader)
        writer.close()
        return answer

    assert tried(scenario) == b""


@pytest.mark.parametrize(("take_s", "is_whole"), [(0.04, False), (WITHIN_S, True)])
def test_answer_has_to_be_taken_in_time(hasty, monkeypatch, take_s, is_whole):
    """Who reads slowly has longer than a head may take, who does not read at all is cut."""
    monkeypatch.setattr(http_connection, "TAKE_S", take_s)

    async def scenario(place):
        reader, writer = await place.send(b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        first = await asyncio.wait_for(reader.readline(), WITHIN_S)
        for _ in range(2):
            await place.answer(HALF)  # so long
        rest = await told(reader)
        writer.close()
        return first, len(rest)

    first, count = tried(scenario)

    assert first == b"HTTP/1.1 200 OK\r\n"
    assert (count >= LARGE_BYTES) == is_whole


def test_one_address_has_a_share():
    """One connection more is closed without a word; another address is let in, and this one once there is room."""

    async def scenario(place):
        held = [await place.send(HALF) for _ in range(16)]
        refused = await place.answer(CLOSING)
        other = await place.answer(CLOSING, "127.0.0.2")
        held[0][1].write(b"Connection: close\r\n\r\n")
        await told(held[0][0])
        again = await place.answer(CLOSING)
        for _, writer in held:
            writer.close()
        return refused, other, again

    refused, other, again = tried(scenario)

    assert refused == b""
    assert other.endswith(b"yes")
    assert again.endswith(b"yes")


def test_share_of_an_address_can_be_lifted():
    """For somebody behind a proxy, to whom all come from one."""

    async def scenario(place):
        held = [await place.send(HALF) for _ in range(20)]
        answer = await place.answer(CLOSING)
        for _, writer in held:
            writer.close()
        return answer

    assert tried(scenario, HttpLimits(per_address=False)).endswith(b"yes")


def test_full_port_cuts_whoever_waits_the_longest():
    """A crowd of half requests keeps nobody out, and takes nothing from a request at work."""

    async def scenario(place):
        at_work = await place.begin()
        halves = [await place.send(HALF) for _ in range(2)]
        answer = await place.answer(CLOSING)
        cut = await told(halves[0][0])
        place.go.set()
        late = await told(at_work[0])
        halves[1][1].write(b"Connection: close\r\n\r\n")
        kept = await told(halves[1][0])
        for _, writer in [at_work, *halves]:
            writer.close()
        return answer, cut, late, kept

    answer, cut, late, kept = tried(scenario, HttpLimits(connections_max=3))

    assert cut == b""
    assert [each[-3:] for each in (answer, late, kept)] == [b"yes"] * 3


def test_newcomers_wait_while_all_are_at_work():
    """A port whose connections all have a request is full."""

    async def scenario(place):
        at_work = [await place.begin() for _ in range(2)]
        refused = await place.answer(CLOSING)
        place.go.set()
        answers = [await told(reader) for reader, _ in at_work]
        again = await place.answer(CLOSING)
        for _, writer in at_work:
            writer.close()
        return refused, again, answers

    refused, again, answers = tried(scenario, HttpLimits(connections_max=2))

    assert refused == b""
    assert [each[-3:] for each in (again, *answers)] == [b"yes"] * 3


@pytest.mark.parametrize("end", ["close", "abort"])
def test_every_end_gives_the_place_back(end):
    """However a connection ends, and whatever it had sent."""

    async def scenario(place):
        answers = []
        for sent in (b"", HALF, WHOLE, CLOSING, b"nonsense\r\n\r\n") * 2:
            _, writer = await place.send(sent)
            answers.append(await place.answer(CLOSING, "127.0.0.2"))  # in turn, so that the first was accepted
            getattr(writer.transport, end)()
            answers.append(await place.answer(CLOSING, "127.0.0.2"))
        return answers

    answers = tried(scenario, HttpLimits(connections_max=4, per_address_max=2))

    assert all(answer.endswith(b"yes") for answer in answers)


def test_upgrade_leads_nowhere():
    """What asks for a WebSocket is answered as what it is besides, and counts on."""
    asked = HALF + b"Connection: Upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n"

    answer = tried(lambda place: place.answer(asked))

    assert answer.startswith(b"HTTP/1.1 200 ")
