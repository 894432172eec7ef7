"""Laws of server.hub about datagrams, over real sockets: one call in, one call out, and who pays for a failure."""

import asyncio
import contextlib
import random
import time
from functools import partial

from structlog.testing import capture_logs

from tests.server.build import eventually
from tests.transport.datagrams.build_udp import address_of, port
from waystation.core.effects import Commit, SendTo, SignatureCheck, Verify
from waystation.core.records import Record
from waystation.crypto.signing import KeyPair, sign
from waystation.engine.admission import Admission
from waystation.engine.bans import BanList
from waystation.engine.node import Node
from waystation.engine.recorder import Recorder
from waystation.server.commit import GroupCommit
from waystation.server.failures.log import FailureLog
from waystation.server.hub import Hub, monotonic_now
from waystation.store.sqlite import SqliteStore
from waystation.transport.datagrams.udp import UdpSocket

PAIR = KeyPair.from_seed(b"k" * 32)


class Host:
    """Says every datagram back; some are commands.

    ``bug`` raises, ``commit`` and ``check`` ask first and answer then, ``ring`` asks to be woken and says then that it
    was.
    """

    def __init__(self, store):
        self.store = store
        self.calls = []
        self._outbox = []
        self._asked = {}
        self._alarm = None

    def receive_datagrams(self, datagrams, now):
        self.calls.append(len(datagrams))
        for data, address in datagrams:
            self._on_datagram(data, address, now)

    def _on_datagram(self, data, address, now):
        ticket = len(self._asked) + 1
        if data == b"bug":
            raise RuntimeError("a bug of ours")
        if data == b"commit":
            self._asked[ticket] = address
            self._outbox.append(Commit(ticket, (Record("t", b"committed", b"v"),)))
        elif data == b"check":
            self._asked[ticket] = address
            self._outbox.append(Verify(ticket, (SignatureCheck((PAIR.public,), b"text", sign(PAIR, b"text")),)))
        elif data == b"ring":
            self._alarm = now + 1_000, address
        else:
            self._outbox.append(SendTo(data + b"!", address))

    def committed(self, ticket, now):
        self._outbox.append(SendTo(self.store.get("t", b"committed"), self._asked[ticket]))

    def not_committed(self, ticket, now):
        self._outbox.append(SendTo(b"refused", self._asked[ticket]))

    def verified(self, ticket, answers, now):
        self._outbox.append(SendTo(repr(list(answers)).encode(), self._asked[ticket]))

    def wake(self, now):
        if self._alarm is not None and self._alarm[0] <= now:
            self._outbox.append(SendTo(b"rung", self._alarm[1]))
            self._alarm = None

    def deadline(self):
        return self._alarm[0] if self._alarm is not None else None

    def take(self):
        effects, self._outbox = self._outbox, []
        return effects

    def retire(self):
        pass

    def settled(self):
        return True

    def shut(self, now):
        pass

    def expel(self, identity, now):
        pass

    def review(self, now):
        pass

    def sizes(self):
        return {}


class Counting(UdpSocket):
    """A port that remembers how many datagrams each call of ``send`` had."""

    def __init__(self, on_datagrams):
        super().__init__(on_datagrams)
        self.calls = []

    def send(self, datagrams):
        self.calls.append(len(datagrams))
        super().send(datagrams)


@contextlib.asynccontextmanager
async def hosting(tmp_path, *, carried=True):
    """Give a host behind a hub, and the port through which it is reached."""
    store = SqliteStore(tmp_path / "store.sqlite")
    host = Host(store)
    recorder = Recorder(lambda _event: None, random.Random(1))
    recorder.set_wall(monotonic_now(), time.time_ns() // 1_000)
    recorder.use_key(b"k" * 32)
    commits = GroupCommit(store, FailureLog(monotonic_now))
    hub = Hub(Node({"host": host}, Admission(), BanList(store), recorder), commits)
    opened = Counting(partial(hub.datagrams, "host"))
    await opened.open("127.0.0.1", 0)
    if carried:
        hub.carry("host", opened.send)
    try:
        yield host, opened
    finally:
        opened.close()
        hub.close()
        await commits.close()
        store.close()


def run(tmp_path, story, **options):
    """Run a story with a host, its port, another port, and what that one hears."""

    async def main():
        async with hosting(tmp_path, **options) as (host, opened), port() as (other, heard):
            return await story(host, opened, other, heard)

    return asyncio.run(main())


def test_datagrams_of_one_look_are_one_call_each_way(tmp_path):
    """A burst goes to the engine as the socket gave it, and its answers leave in one list per turn, in order."""

    async def story(host, opened, other, heard):
        other.send([(b"%d" % number, address_of(opened)) for number in range(200)])
        return await heard.until(200), host.calls, opened.calls

    said, calls_in, calls_out = run(tmp_path, story)

    assert said == [b"%d!" % number for number in range(200)]
    assert calls_in == calls_out == [200]


def test_answers_to_questions_lead_on(tmp_path):
    """What commits, verifier and timer answer becomes datagrams in later turns."""

    async def story(_host, opened, other, heard):
        answers = []
        for question in (b"commit", b"check", b"ring"):
            other.send([(question, address_of(opened))])
            answers.append((await heard.until(len(answers) + 1))[-1])
        return answers

    assert run(tmp_path, story) == [b"v", b"[0]", b"rung"]


def test_bug_costs_its_datagrams_and_nothing_else(tmp_path):
    """It is logged with its protocol and never a peer's bytes; the port goes on."""

    async def story(_host, opened, other, heard):
        with capture_logs() as lines:
            other.send([(b"bug", address_of(opened))])
            await eventually(lambda: lines, "the log line")
        other.send([(b"after", address_of(opened))])
        return lines, await heard.until(1)

    (line,), said = run(tmp_path, story)

    assert said == [b"after!"]
    assert {name: line[name] for name in ("event", "protocol", "datagrams", "log_level")} == {
        "event": "engine.failed",
        "protocol": "host",
        "datagrams": 1,
        "log_level": "error",
    }


def test_without_a_port_answers_are_lost(tmp_path):
    """A protocol whose datagrams nobody carries loses them, as a network does; it hears on."""

    async def story(host, opened, other, heard):
        other.send([(b"a", address_of(opened)), (b"b", address_of(opened))])
        await eventually(lambda: sum(host.calls) == 2)
        await asyncio.sleep(0)
        return heard.datagrams

    assert run(tmp_path, story, carried=False) == []
