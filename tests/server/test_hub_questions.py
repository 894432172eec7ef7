"""Laws of server.hub about what a machine asks: commits, signatures, ends with a status, and upstreams."""

import asyncio

from structlog.testing import capture_logs

from tests.server.build import Echo, Rig, eventually, key_pair
from tests.transport.build import Sink, Site
from waystation.core.effects import Close, Commit, Dial, Peer, Send, SignatureCheck, Verify
from waystation.core.records import Record
from waystation.crypto.signing import sign
from waystation.protocols.bhumi import messages
from waystation.server import verifier
from waystation.store.sqlite import SqliteStore
from waystation.transport.websocket.dial import WebSocketDialler

PAIR = key_pair()


class Asker(Echo):
    """An echo that also asks; tickets count from 1.

    ``commit N`` makes N records durable, ``check N`` has N signatures checked of which every second is wrong,
    ``trip N`` fails when it is answered, ``leave N`` closes with a status. Each answer is said with what the store held
    then.
    """

    def __init__(self, store):
        super().__init__(durable=False)
        self.store = store
        self.asked = {}
        self.upstreams = []
        self.addresses = []
        self._tickets = 0

    def connect(self, peer, now, address=""):
        super().connect(peer, now)
        self.addresses.append(address)

    def connect_upstream(self, peer, name, now):
        self.upstreams.append(name)
        self._partial[peer] = b""

    def upstream_failed(self, name, now):
        self.calls.append(("failed", name))

    def _on_line(self, peer, line, now):
        word, _, number = line.partition(b" ")
        if word not in (b"commit", b"check", b"trip", b"leave"):
            super()._on_line(peer, line, now)
            return
        self._tickets += 1
        self.asked[self._tickets] = (peer, word)
        if word == b"leave":
            self._forget(peer)
            self.outbox.append(Close(peer, messages.Status.GONE, status=int(number)))
            return
        if word == b"commit":
            changes = tuple(Record("t", b"%d-%d" % (self._tickets, each), b"v") for each in range(int(number)))
            self.outbox.append(Commit(self._tickets, changes))
        else:
            texts = [b"%d" % each for each in range(int(number))]
            checks = [
                SignatureCheck((PAIR.public,), text, sign(PAIR, text if each % 2 == 0 else text + b"!"))
                for each, text in enumerate(texts)
            ]
            self.outbox.append(Verify(self._tickets, tuple(checks)))
        self._send(peer, b"asked\n")

    def committed(self, ticket, now):
        kept = sum(1 for key, _ in self.store.scan("t") if key.startswith(b"%d-" % ticket))
        self._send(self.asked[ticket][0], b"committed %d: %d\n" % (ticket, kept))

    def not_committed(self, ticket, now):
        self._send(self.asked[ticket][0], b"not committed %d\n" % ticket)

    def verified(self, ticket, answers, now):
        peer, word = self.asked[ticket]
        if word == b"trip":
            raise RuntimeError("a bug of ours")
        self._send(peer, b"verified %d: %s\n" % (ticket, repr(list(answers)).encode()))


def run(story, tmp_path):
    """Run a story with a rig around an asker on a real store."""

    async def main():
        store = SqliteStore(tmp_path / "store.sqlite")
        async with Rig("asker", Asker(store), store) as rig:
            return await story(rig)

    return asyncio.run(main())


async def lines(streams, said, count):
    """Say something and return so many lines of the answer."""
    reader, writer = streams
    writer.write(said)
    async with asyncio.timeout(20):
        return [await reader.readline() for _ in range(count)]


def test_commit_is_answered_from_disk_and_holds_nothing_back(tmp_path):
    """What is sent behind a Commit leaves at once; the answer comes when every change can be read."""

    async def story(rig):
        return await lines(await rig.dial(), b"commit 5\n", 2)

    assert run(story, tmp_path) == [b"asked\n", b"committed 1: 5\n"]


def test_commits_are_answered_in_order(tmp_path):
    """Many of one turn, some without any change, are answered in the order of asking."""

    async def story(rig):
        said = await lines(await rig.dial(), b"commit 2\ncommit 0\ncommit 1\n", 6)
        again = await lines(await rig.dial(), b"commit 0\n", 2)
        return said[3:], again

    assert run(story, tmp_path) == (
        [b"committed 1: 2\n", b"committed 2: 0\n", b"committed 3: 1\n"],
        [b"asked\n", b"committed 4: 0\n"],
    )


def test_commit_that_the_disk_refuses_is_answered_so(tmp_path):
    """A refused commit is told to its machine, the connection goes on, and a commit without changes waits for none."""

    async def story(rig):
        rig.store._writer.execute("PRAGMA query_only = ON")
        streams = await rig.dial()
        said = await lines(streams, b"commit 1\n", 2)
        said += await lines(streams, b"commit 1\ncommit 0\nstill here\n", 5)
        rig.store._writer.execute("PRAGMA query_only = OFF")
        await rig.commits.probe()
        return said, await lines(streams, b"commit 1\n", 2)

    said, after = run(story, tmp_path)

    assert said[:2] == [b"asked\n", b"not committed 1\n"]
    assert said[2:] == [b"asked\n", b"asked\n", b"still here\n", b"not committed 2\n", b"not committed 3\n"]
    assert after == [b"asked\n", b"committed 4: 1\n"]


def test_signatures_are_checked(tmp_path):
    """Few or many, each question gets one answer per check, in order, and nothing waits for them."""

    async def story(rig):
        return await lines(await rig.dial(), b"check 3\ncheck 0\ncheck 20\n", 6)

    said = run(story, tmp_path)

    assert said[3:] == [
        b"verified 1: [0, -1, 0]\n",
        b"verified 2: []\n",
        b"verified 3: %s\n" % repr([0, -1] * 10).encode(),
    ]


def test_answer_that_trips_costs_itself_alone(tmp_path):
    """When the engine fails on an answer it is said, and those behind it are handed on."""

    async def story(rig):
        with capture_logs() as logs:
            said = await lines(await rig.dial(), b"trip 1\ncheck 1\n", 3)
        return said[2], [entry["event"] for entry in logs]

    assert run(story, tmp_path) == (b"verified 2: [0]\n", ["engine.failed"])


def test_signatures_of_a_turn_are_one_batch(tmp_path, monkeypatch):
    """What many peers ask in one turn is flushed together."""
    sizes = []
    packed = verifier._packed
    monkeypatch.setattr(verifier, "_packed", lambda gathered: (sizes.append(len(gathered)), packed(gathered))[1])

    async def story(rig):
        await lines(await rig.dial(), b"check 1\n" * 30, 60)

    run(story, tmp_path)

    assert sizes == [30]


def test_status_of_a_close_reaches_the_pipe(tmp_path):
    """What the machine says about the end is what a WebSocket client sees, behind everything sent before."""

    async def story(rig):
        async with Site() as site:
            site.site._endpoints["/text"] = site.site._endpoints["/text"]._replace(sink=rig.sink)
            site.listener._admit, site.listener._release = rig.sink.admit, rig.hub.release
            sink = Sink()
            pipe = await WebSocketDialler(message_bytes_max=1_000, text=True).dial(site.url(), sink)
            pipe.write([b"hello\nleave 1013\n"])
            await sink.until(lambda: "lost" in sink.reports)
            return sink.heard, pipe.close_status, rig.relay.addresses

    assert run(story, tmp_path) == ([b"hello\n"], 1013, ["127.0.0.1"])


def test_dial_without_a_dialler_fails(tmp_path):
    """A hub that cannot dial says so in a later turn, and what stands beside the effect goes on."""

    async def story(rig):
        rig.relay.outbox += [Dial("them", "ws://127.0.0.1:1/", only_public=False)]
        rig.hub.plan_turn()
        await eventually(lambda: rig.relay.calls)
        return rig.relay.calls

    assert run(story, tmp_path) == [("failed", "them")]


def test_upstream_is_driven_like_any_peer(tmp_path):
    """A pipe that we dialled is named to its relay, heard, written to, and not counted at the door."""

    class Outgoing:
        """Leads a dialled pipe to the hub."""

        def __init__(self, hub):
            self.connected = lambda pipe: hub.connected_out("asker", pipe, "upstream")
            self.received, self.congested, self.drained, self.lost = hub.received, hub.congested, hub.drained, hub.lost

    async def story(rig):
        async with Site() as site:
            pipe = await WebSocketDialler(message_bytes_max=1_000, text=True).dial(
                site.url("/quiet"), Outgoing(rig.hub)
            )
            theirs = await site.quiet.stood()
            theirs.write([b"one\n", b"two\n"])
            await site.quiet.until(lambda: len(site.quiet.heard) == 2)
            counted = rig.node.sizes()["node"]["connections"]
            rig.relay.outbox.append(Send(Peer(pipe.peer), b"unasked"))
            rig.hub.plan_turn()
            await site.quiet.until(lambda: len(site.quiet.heard) == 3)
            theirs.close()
            await eventually(lambda: ("disconnect", 1) in rig.relay.calls)
            return site.quiet.heard, counted, rig.relay.upstreams, rig.relay.calls

    heard, counted, upstreams, calls = run(story, tmp_path)

    assert (heard, counted, upstreams) == ([b"one\n", b"two\n", b"unasked"], 0, ["upstream"])
    assert calls[-1] == ("disconnect", 1)
