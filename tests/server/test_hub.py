"""Laws of server.hub: order of effects, one write per peer and turn, one timer, and who pays for a failure."""

import asyncio
import contextlib

from tests.server.build import Echo, Rig, eventually, i_am, key_pair
from waystation.core.errors import StoreFaultKind
from waystation.protocols.bhumi import messages, session, wire
from waystation.protocols.bhumi.relay.machine import BhumiRelay
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.server import hub
from waystation.server.entropy import SystemEntropy
from waystation.store.sqlite import SqliteStore
from waystation.transport.pipe import Pipe


async def ask(streams, line, answer_bytes):
    """Say a line and return so many bytes of the answer."""
    reader, writer = streams
    writer.write(line + b"\n")
    async with asyncio.timeout(20):
        return await reader.readexactly(answer_bytes)


def run(story, relay=None, store=None):
    """Run a story with a rig around an echo relay."""

    async def main():
        async with Rig("echo", relay or Echo(durable=False), store) as rig:
            return await story(rig)

    return asyncio.run(main())


def test_durable_answers_come_after_the_commit(tmp_path):
    """What is said back can be read from the store at that moment."""

    async def story(rig):
        streams = await rig.dial()
        kept = []
        for number in range(20):
            await ask(streams, b"line %d" % number, len(b"line %d\n" % number))
            kept.append(rig.store.get("echo", b"line %d" % number))
        return kept

    assert run(story, Echo(), SqliteStore(tmp_path / "store.sqlite")) == [b"kept"] * 20


def test_answer_that_waits_for_the_disk_holds_nothing_back(tmp_path):
    """What needs no promise leaves at once; those that do keep their order."""

    async def story(rig):
        streams = await rig.dial()
        return await ask(streams, b"first\nmany 3\nsecond", len(b"first\nyyysecond\n"))

    assert run(story, Echo(), SqliteStore(tmp_path / "store.sqlite")) == b"yyyfirst\nsecond\n"


def test_what_the_disk_refuses_is_answered_so(tmp_path):
    """When the disk refuses, the machine hears it, nobody is told that the record is kept, and the connection stays."""

    async def story(rig):
        rig.store._writer.execute("PRAGMA query_only = ON")
        streams = await rig.dial()
        said = await ask(streams, b"promise\nmany 1", len(b"yrefused\n"))
        return said, rig.commits.health.fault.kind

    said, kind = run(story, Echo(), SqliteStore(tmp_path / "store.sqlite"))

    assert (said, kind) == (b"yrefused\n", StoreFaultKind.READ_ONLY)


def test_many_messages_of_one_effect_keep_their_place():
    """They leave in their order, behind what was sent before and before what is sent after."""

    async def story(rig):
        streams = await rig.dial()
        return await ask(streams, b"many 2\nrun 12", len(NUMBERS) + 5)

    assert run(story) == b"yy" + NUMBERS + b"end"


NUMBERS = b"0,1,2,3,4,5,6,7,8,9,10,11,"


def test_one_write_per_peer_and_turn(monkeypatch):
    """Fifty effects of one turn leave in one write for each of the peers they are for."""
    writes = []
    write = Pipe.write
    monkeypatch.setattr(
        Pipe, "write", lambda pipe, chunks: (writes.append((pipe.peer, len(chunks))), write(pipe, chunks))
    )

    async def story(rig):
        streams = [await rig.dial() for _ in range(3)]
        await eventually(lambda: len(rig.relay.peers) == 3)
        for _, writer in streams:
            writer.write(b"many 50\n")
        for reader, _ in streams:
            async with asyncio.timeout(20):
                await reader.readexactly(50)

    run(story)

    assert sorted(writes) == [(1, 50), (2, 50), (3, 50)]


def test_timer_rings_what_is_due_and_never_early():
    """Deadlines that are set in any order ring each at its time, by one timer, at most a few ms late."""
    delays_ms = [60, 5, 30, 5, 45, 0]

    async def story(rig):
        streams = await rig.dial()
        for delay_ms in delays_ms:
            await ask(streams, b"ring %d\nping" % delay_ms, 5)
        timers = [handle for handle in asyncio.get_running_loop()._scheduled if not handle.cancelled()]
        ours = [handle for handle in timers if handle._callback == rig.hub._on_timer]
        await eventually(lambda: len(rig.relay.rung) == len(delays_ms), "all alarms")
        return len(ours), list(rig.relay.rung)

    timers_count, rung = run(story)

    assert timers_count == 1
    assert all(came >= asked for asked, came in rung)
    assert min(came - asked for asked, came in rung) <= 25_000


def test_earlier_deadline_moves_the_timer():
    """A far deadline does not keep a near one waiting."""

    async def story(rig):
        streams = await rig.dial()
        await ask(streams, b"ring 3600000\nping", 5)
        await ask(streams, b"ring 10\nping", 5)
        await eventually(lambda: rig.relay.rung, "the near alarm")
        return len(rig.relay.rung), len(rig.relay.alarms)

    assert run(story) == (1, 1)


def test_receipt_comes_when_the_bytes_have_left():
    """A send that asks for a receipt is confirmed as soon as nothing of it waits here."""

    async def story(rig):
        streams = await rig.dial()
        before = list(rig.relay.calls)
        await ask(streams, b"receipt", 9)
        await eventually(lambda: rig.relay.calls)
        return before, list(rig.relay.calls)

    assert run(story) == ([], [("drained", 1)])


def test_slow_reader_is_told_to_the_relay():
    """A peer that does not read is congested once; when it has read everything it is drained."""

    async def story(rig):
        reader, writer = await rig.dial(4_096)
        writer.write(b"big 8000000\n")
        await eventually(lambda: ("congested", 1) in rig.relay.calls)
        held_back = list(rig.relay.calls)
        async with asyncio.timeout(20):
            await reader.readexactly(8_000_000)
        await eventually(lambda: ("drained", 1) in rig.relay.calls)
        return held_back, rig.relay.calls[-1]

    held_back, last = run(story)

    assert set(held_back) == {("congested", 1)}
    assert last == ("drained", 1)


def test_progress_of_a_slow_reader_is_noticed(monkeypatch):
    """A peer that takes something now and then is reported as congested again, so that its timer starts anew."""
    monkeypatch.setattr(hub, "PROGRESS_MS", 20)

    async def story(rig):
        reader, writer = await rig.dial(4_096)
        writer.write(b"big 8000000\n")
        await eventually(lambda: rig.relay.calls)
        async with asyncio.timeout(20):
            await reader.readexactly(3_000_000)
        await eventually(lambda: len(rig.relay.calls) > 1)
        return set(rig.relay.calls)

    assert run(story) == {("congested", 1)}


def test_close_lets_everything_leave_first():
    """A slow reader of a closed connection still gets all of it; the relay gets no disconnect for it."""

    async def story(rig):
        reader, writer = await rig.dial(4_096)
        writer.write(b"bye 4000000\n")
        await eventually(lambda: not rig.node.sizes()["echo"]["peers"])
        lingering = rig.hub.idle()
        async with asyncio.timeout(20):
            size = len(await reader.read())
        await eventually(rig.hub.idle)
        return size, lingering, rig.node.sizes()["node"]["connections"], ("disconnect", 1) in rig.relay.calls

    assert run(story) == (4_000_000, False, 0, False)


def test_closed_peer_that_does_not_read_is_cut(monkeypatch):
    """What was sent to a closed peer may linger for a while, not for ever."""
    monkeypatch.setattr(hub, "LINGER_MS", 50)

    async def story(rig):
        _, writer = await rig.dial(4_096)
        writer.write(b"bye 8000000\n")
        await eventually(lambda: not rig.node.sizes()["echo"]["peers"])
        await eventually(rig.hub.idle, "the cut")

    run(story)


def test_closed_peers_that_do_not_read_are_bounded(monkeypatch):
    """The oldest one that lingers is cut for the next, so closed connections cannot pile up."""
    monkeypatch.setattr(hub, "LINGERING_MAX", 1)

    async def story(rig):
        dialled = [await rig.dial(4_096) for _ in range(2)]
        for _, writer in dialled:
            writer.write(b"bye 8000000\n")
        await eventually(lambda: not rig.node.sizes()["echo"]["peers"])
        (first, _), (second, _) = dialled
        async with asyncio.timeout(20):
            sizes = await asyncio.gather(_length(first), _length(second))
        return sorted(sizes)

    short, whole = run(story)
    assert short < whole == 8_000_000


async def _length(reader):
    """Return how much arrives before the connection ends, however it does."""
    size = 0
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            size += len(data)
    return size


def test_abort_drops_what_waits():
    """A close that aborts ends the connection without waiting for the reader."""

    async def story(rig):
        _, writer = await rig.dial(4_096)
        writer.write(b"cut 8000000\n")
        await eventually(lambda: rig.relay.peers and not rig.node.sizes()["echo"]["peers"])
        await eventually(rig.hub.idle)
        return rig.node.sizes()["node"]["connections"]

    assert run(story) == 0


def test_held_peer_is_not_read():
    """After ``Hold`` nothing of that peer arrives, while others are served."""

    async def story(rig):
        held, other = await rig.dial(), await rig.dial()
        await ask(held, b"hold", 5)
        held[1].write(b"unheard\n")
        for _ in range(3):
            await ask(other, b"heard", 6)
        return rig.relay._partial, held[0]._buffer

    partial, heard = run(story)

    assert heard == b""
    assert b"unheard" not in b"".join(partial.values())


def test_bug_of_ours_costs_one_peer():
    """When the engine fails on a peer's input that peer is cut and forgotten; its neighbour goes on."""

    async def story(rig):
        escaped = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: escaped.append(context))
        victim, neighbour = await rig.dial(), await rig.dial()
        await ask(neighbour, b"before", 7)
        victim[1].write(b"bug\n")
        try:
            async with asyncio.timeout(20):
                end = await victim[0].read()
        except ConnectionError:
            end = b""
        after = await ask(neighbour, b"after", 6)
        return end, after, rig.node.sizes()["node"]["connections"], escaped

    assert run(story) == (b"", b"after\n", 1, [])


def test_lost_peer_is_disconnected_once():
    """The end of a connection reaches the relay once, and its place is free again."""

    async def story(rig):
        _, writer = await rig.dial()
        await eventually(lambda: rig.relay.peers)
        writer.close()
        await eventually(lambda: rig.relay.calls)
        await eventually(rig.hub.idle)
        return rig.relay.calls, rig.node.sizes()["node"]["connections"]

    assert run(story) == ([("disconnect", 1)], 0)


def test_sender_that_never_reads_is_closed_and_its_answer_kept(monkeypatch):
    """A zero window ends with the write timeout; the answer from the cache is still there for a retry (BHUMI-A15)."""
    monkeypatch.setattr(session, "WRITE_TIMEOUT_MS", 150)
    monkeypatch.setattr(hub, "PROGRESS_MS", 20)
    relay = BhumiRelay(BhumiSettings(max_payload_bytes=1_048_576), SystemEntropy(), rate_limits=False)
    pair, answer = key_pair(), bytes(250_000)
    preimages = [bytes([number]) * 32 for number in range(60)]

    async def answer_everything(device):
        frames = wire.FrameBuffer(wire.client_frame_limits(1_048_576))
        reader, writer = device
        while data := await reader.read(65_536):
            frames.feed(data)
            while (frame := frames.next_frame()) is not None:
                if frame[0] == messages.FrameType.HELLO:
                    writer.write(wire.encode(i_am(pair, wire.decode_hello(frame[1]).relay_nonce, *preimages)))
                elif frame[0] == messages.FrameType.DELIVER:
                    number = wire.decode_deliver(frame[1], with_preimage=False).message_id
                    writer.write(wire.encode(messages.Ack(number, answer)))

    async def main():
        async with Rig("bhumi", relay) as rig:
            answering = asyncio.create_task(answer_everything(await rig.dial()))
            await eventually(lambda: relay.sizes()["commits"] == len(preimages))
            _, deaf = await rig.dial(4_096)
            deaf.transport.pause_reading()
            sends = [wire.encode(messages.Send(pair.public, preimage, b"?")) for preimage in preimages]
            deaf.writelines(sends)
            await eventually(lambda: relay.sizes()["cached_responses"] > 16)
            await eventually(lambda: relay.sizes()["connections"] == 1, "the write timeout")
            reader, writer = await rig.dial()
            writer.write(sends[10])
            async with asyncio.timeout(20):
                await reader.readexactly(15)
                head = await reader.readexactly(11)
                retried = await reader.readexactly(len(answer))
            answering.cancel()
            return head[6], retried == answer

    assert asyncio.run(main()) == (messages.Status.OK, True)


def test_monotonic_now_moves_forward():
    """The clock counts microseconds and never goes back."""
    readings = [hub.monotonic_now() for _ in range(100)]

    assert readings == sorted(readings)
    assert readings[-1] - readings[0] < 1_000_000
