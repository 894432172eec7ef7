"""Laws of transport.silence: what the kernel is asked to do, and which streams are over."""

import asyncio
import socket
import struct

import pytest

from waystation.transport.dial import RelayUrl, dial
from waystation.transport.listen import Listener
from waystation.transport.silence import SilencePolicy, limit_silence, set_keepalive

PATIENCE_S = 20
POLICY = SilencePolicy(9_000)
SHORT = SilencePolicy(200)
REAL = SilencePolicy(3_000)
"""For a real peer: the kernel asks one that has no room every 200 ms to 1 s, and a busy machine answers late."""


def tcp_info(*, probes=0, unacked=0, data_ms=0, ack_ms=0):
    """Return the beginning of Linux's struct tcp_info."""
    words = [0] * 13
    words[4], words[11], words[12] = unacked, data_ms, ack_ms
    return struct.pack("=8B13I", 1, 0, 0, probes, 0, 0, 0, 0, *words)


class Stream:
    """A transport and its socket, of which the kernel says what the test wants."""

    family = socket.AF_INET
    type = socket.SOCK_STREAM

    def __init__(self, *answers):
        self.answers = list(answers)
        self.over = asyncio.Event()
        self.aborted = False
        self.closed = False

    def get_extra_info(self, _name):
        return self

    def setsockopt(self, *_):
        pass

    def getsockopt(self, _level, _option, size):
        if len(self.answers) == 1:
            self.over.set()
        return (self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])[:size]

    def is_closing(self):
        return self.closed

    def abort(self):
        self.aborted = self.closed = True
        self.over.set()


async def looked_at(*streams):
    """Look after streams until each was ended or the last of its answers was read."""
    for stream in streams:
        limit_silence(stream, SHORT)
    async with asyncio.timeout(PATIENCE_S):
        for stream in streams:
            await stream.over.wait()


def kernel_says(carrier):
    """Return what the kernel will do with an idle stream: whether it asks, after how long, how often."""
    names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    asks = bool(carrier.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
    return asks, *(carrier.getsockopt(socket.IPPROTO_TCP, name) for name in names)


@pytest.mark.parametrize("limit_ms", [3_000, 5_000, 10_000, 30_000, 45_000, 120_000, 3_600_000])
def test_an_idle_stream_is_over_within_the_limit(limit_ms):
    """NODE-SILENCE: all questions and the wait for their answers take no longer than the limit, nor do the looks."""
    policy = SilencePolicy(limit_ms)

    assert (policy.idle_s + policy.interval_s * policy.questions_count) * 1_000 <= limit_ms
    assert policy.silent_ms + policy.look_s * 1_000 < limit_ms
    assert policy.resend_ms <= limit_ms / 3 + 1_000


def test_one_number_says_what_the_kernel_does():
    """NODE-SILENCE: 30 s are a question after 8 s, again every 3 s, and an end after six without an answer."""
    with socket.socket() as stream:
        set_keepalive(stream, SilencePolicy())

        assert kernel_says(stream) == (True, 8, 3, 6)
        assert stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0


def test_other_sockets_are_left_alone():
    """Datagrams and unix sockets have no such options."""
    left, right = socket.socketpair()
    with left, right, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        set_keepalive(left, POLICY)
        set_keepalive(datagrams, POLICY)

        assert not datagrams.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


class Ends:
    """The sink of both ends of a connection."""

    def __init__(self):
        self.pipes = []
        self.changed = asyncio.Event()

    def connected(self, pipe):
        self.pipes.append(pipe)
        self.changed.set()

    def lost(self, pipe, _error):
        self.pipes.remove(pipe)
        self.changed.set()

    async def until(self, count):
        """Wait until so many ends exist."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.pipes) != count:
                self.changed.clear()
                await self.changed.wait()


@pytest.mark.parametrize(("silence", "asks"), [(lambda: POLICY, True), (None, False)])
def test_both_ends_of_a_stream_are_watched(silence, asks):
    """NODE-SILENCE: who accepts and who dials follows its own policy; a listener without one asks nothing."""

    async def story():
        ends = Ends()
        listener = Listener(ends, lambda _: True, lambda _: None, None, silence=silence)
        await listener.open("127.0.0.1", 0)
        dialled = await dial(RelayUrl("tcp", "127.0.0.1", listener.port), ends, None, PATIENCE_S, silence=POLICY)
        await ends.until(2)
        accepted = next(pipe for pipe in ends.pipes if pipe is not dialled)
        found = [kernel_says(pipe._transport.get_extra_info("socket")) for pipe in (accepted, dialled)]
        dialled.close()
        await ends.until(0)
        listener.close()
        return found

    accepted, dialled = asyncio.run(story())

    assert accepted[0] is asks
    assert dialled == (True, POLICY.idle_s, POLICY.interval_s, POLICY.questions_count)


SILENT = {"data_ms": 190, "ack_ms": 195}


@pytest.mark.parametrize("asked", [{"unacked": 3}, {"probes": 1}])
def test_an_answer_that_is_due_and_does_not_come_ends_a_stream(asked):
    """NODE-SILENCE: bytes or a probe without an answer, and nothing else either, for as long as the policy says."""

    async def story():
        stream = Stream(tcp_info(**asked, **SILENT))
        limit_silence(stream, SHORT)
        async with asyncio.timeout(PATIENCE_S):
            while not stream.aborted:
                stream.over.clear()
                await stream.over.wait()
        return stream.aborted

    assert asyncio.run(story())


@pytest.mark.parametrize(
    "said",
    [
        [tcp_info(**SILENT)] * 5,
        [tcp_info(probes=1, **SILENT), tcp_info(), tcp_info(probes=1, **SILENT), tcp_info()],
        [tcp_info(unacked=3, data_ms=190, ack_ms=5)] * 5,
        [tcp_info(unacked=3, data_ms=5, ack_ms=190)] * 5,
    ],
)
def test_a_stream_that_answers_stays(said):
    """NODE-SILENCE: nobody who was not asked, whose host acknowledges, or who talks, is taken for silent."""

    async def story():
        stream = Stream(*said)
        await looked_at(stream)
        stream.closed = True
        return stream.aborted

    assert not asyncio.run(story())


def test_streams_that_are_closing_are_forgotten():
    """One that closes is not looked at again, among however many."""

    async def story():
        many = [Stream(tcp_info(), tcp_info()) for _ in range(600)]
        await looked_at(*many)
        for stream in many:
            stream.closed, stream.answers = True, []  # a further look would find nothing to say
        later = Stream(*[tcp_info()] * 4)
        await looked_at(later)
        later.closed = True
        return [stream.aborted for stream in many]

    assert not any(asyncio.run(story()))


class Flood(Ends):
    """Writes to whoever is accepted until the kernels take no more."""

    def received(self, pipe, data):
        pass

    def congested(self, pipe):
        pass

    def drained(self, pipe):
        pipe.write([bytes(1_000_000)])


def test_peer_that_reads_nothing_is_not_silent():
    """NODE-SILENCE: its kernel acknowledges that there is no room, so it stays for as long as it likes."""

    async def story():
        ends = Flood()
        listener = Listener(ends, lambda _: True, lambda _: None, None, silence=lambda: REAL)
        await listener.open("127.0.0.1", 0)
        with socket.create_connection(("127.0.0.1", listener.port)):
            await ends.until(1)
            pipe = ends.pipes[0]
            while not pipe.waits:
                pipe.write([bytes(1_000_000)])
                await asyncio.sleep(0)
            beside = Stream(*[tcp_info()] * 12)  # more than the limit, counted in looks
            limit_silence(beside, REAL)
            async with asyncio.timeout(PATIENCE_S):
                await beside.over.wait()
            beside.closed = True
            stays = bool(ends.pipes) and pipe.unsent_bytes > 0
        listener.close()
        await ends.until(0)
        return stays

    assert asyncio.run(story())
