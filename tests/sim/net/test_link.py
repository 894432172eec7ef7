"""Streams of bytes between a client and the node."""

import random

import pytest

from tests.sim.build import Remembering, fixed_rng
from waystation.core.instant import Instant
from waystation.sim.net.link import LinkSettings, Stream
from waystation.sim.schedule import Schedule

PLAIN = LinkSettings(latency_us=100, jitter_us=0, pieces=0.0)


def joined(settings=PLAIN):
    schedule = Schedule()
    client, node = Remembering(schedule), Remembering(schedule)
    return schedule, Stream(schedule, fixed_rng(), settings, client, node), client, node


def test_bytes_arrive_after_the_latency():
    """What one side writes the other reads, one latency later."""
    schedule, stream, client, node = joined()

    stream.client.write(b"to node")
    stream.node.write(b"to client")
    schedule.run(Instant(1_000))

    assert node.got == [(100, b"to node")]
    assert client.got == [(100, b"to client")]


@pytest.mark.parametrize("seed", range(10))
def test_jitter_and_pieces_never_lose_or_reorder(seed):
    """However the bytes are cut and delayed, the stream is the one that was written."""
    settings = LinkSettings(latency_us=50, jitter_us=10_000, window_bytes=64, pieces=0.8, bytes_per_second=100_000)
    schedule, stream, _, node = joined(settings)
    rng, written = random.Random(seed), b""
    for _ in range(50):
        data = rng.randbytes(rng.randint(1, 200))
        written += data
        stream.client.write(data)
        schedule.run(Instant(schedule.now + rng.randrange(5_000)))
        if rng.random() < 0.1:
            stream.stall(rng.randrange(50_000))

    schedule.run(Instant(schedule.now + 10_000_000))

    assert node.data == written
    assert len(node.got) > 50


def test_bandwidth_spreads_arrivals():
    """A thousand bytes at ten thousand per second take a tenth of a second."""
    schedule, stream, _, node = joined(LinkSettings(latency_us=0, jitter_us=0, bytes_per_second=10_000, pieces=0.0))

    stream.client.write(bytes(1_000))
    stream.client.write(bytes(1_000))
    schedule.run(Instant(1_000_000))

    assert [at for at, _ in node.got] == [100_000, 200_000]


def test_full_window_congests_and_drains():
    """What does not fit into the window waits; both ends of the wait are told once."""
    schedule, stream, client, node = joined(LinkSettings(latency_us=100, jitter_us=0, window_bytes=10, pieces=0.0))
    stream.node.pause()

    stream.client.write(bytes(25))
    schedule.run(Instant(1_000))
    waiting = (stream.client.unsent_bytes, list(client.told))
    stream.node.resume()
    schedule.run(Instant(10_000))

    assert waiting == (15, ["congested"])
    assert client.told == ["congested", "drained"]
    assert node.data == bytes(25)


def test_write_within_the_window_is_not_congested():
    """A write that fits is gone at once."""
    _, stream, client, _ = joined()

    stream.client.write(bytes(1_000))

    assert not stream.client.waits
    assert client.told == []


def test_close_comes_behind_what_was_written():
    """A clean close lets everything arrive first, then ends the other side once."""
    schedule, stream, client, node = joined(LinkSettings(latency_us=100, jitter_us=0, window_bytes=4, pieces=0.0))

    stream.client.write(b"0123456789")
    stream.client.close()
    schedule.run(Instant(10_000))

    assert node.data == b"0123456789"
    assert node.told == ["ended"]
    assert client.told == ["congested"]
    assert stream.is_over


def test_abort_loses_what_is_under_way():
    """A reset overtakes nothing but destroys everything."""
    schedule, stream, _, node = joined()

    stream.client.write(b"lost")
    stream.client.abort()
    schedule.run(Instant(10_000))

    assert node.got == []
    assert node.told == ["ended"]


def test_cut_tells_nobody():
    """A half-open connection: nothing arrives, not even the end."""
    schedule, stream, client, node = joined()

    stream.cut()
    stream.client.write(b"into the void")
    stream.client.close()
    schedule.run(Instant(10_000))

    assert (node.got, node.told, client.told) == ([], [], [])
    assert stream.faulted


def test_stall_delays_without_loss():
    """What a stall holds back comes when it ends."""
    schedule, stream, _, node = joined()

    stream.client.write(b"a")
    stream.stall(5_000)
    stream.client.write(b"b")
    schedule.run(Instant(20_000))

    assert node.data == b"ab"
    assert [at for at, _ in node.got] == [5_000, 5_000]


def test_break_off_ends_both_sides():
    """Both sides learn of a reset, each once."""
    schedule, stream, client, node = joined()

    stream.break_off()
    stream.client.write(b"too late")
    schedule.run(Instant(1_000))

    assert (client.told, node.told, node.got) == (["ended"], ["ended"], [])


def test_client_that_gives_up_leaves_the_node_alone():
    """After a cut the client may notice; the node's side stays open and hears nothing."""
    schedule, stream, client, node = joined()
    stream.cut()

    stream.give_up()
    stream.node.write(b"anybody?")
    schedule.run(Instant(10_000))

    assert (client.told, node.told, client.got) == (["ended"], [], [])
    assert stream.is_cut
    assert not stream.is_over


def test_mark_is_told_when_the_last_byte_was_read():
    """``then`` comes behind the bytes it belongs to, and never when they are lost."""
    schedule, stream, _, node = joined(LinkSettings(latency_us=100, jitter_us=0, window_bytes=4, pieces=0.0))
    marks = []

    stream.client.write(b"0123456789", lambda: marks.append(node.data))
    schedule.run(Instant(10_000))
    stream.cut()
    stream.client.write(b"lost", lambda: marks.append("never"))
    schedule.run(Instant(20_000))

    assert marks == [b"0123456789"]


FRAMED = LinkSettings(latency_us=50, jitter_us=10_000, window_bytes=64, pieces=0.8, framed=True)


@pytest.mark.parametrize("seed", range(5))
def test_messages_arrive_whole_and_in_order(seed):
    """A framed stream gives every message as it was written, however small the window is."""
    schedule, stream, _, node = joined(FRAMED)
    rng = random.Random(seed)
    written = [rng.randbytes(rng.randint(0, 200)) for _ in range(50)]
    for message in written:
        stream.client.write(message)
        schedule.run(Instant(schedule.now + rng.randrange(5_000)))

    schedule.run(Instant(schedule.now + 10_000_000))

    assert [data for _, data in node.got] == written


def test_paused_reader_of_messages_congests_the_writer():
    """Messages behind the window wait, the writer is told, and told again when they have gone."""
    schedule, stream, _, node = joined(FRAMED)
    stream.node.pause()
    for _ in range(4):
        stream.client.write(bytes(40))

    schedule.run(Instant(1_000_000))
    waiting = stream.client.unsent_bytes
    stream.node.resume()
    schedule.run(Instant(2_000_000))

    assert waiting == 120
    assert len(node.got) == 4
    assert joined(FRAMED)[1].client.unsent_bytes == stream.client.unsent_bytes == 0
