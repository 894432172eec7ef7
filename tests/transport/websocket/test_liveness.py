"""Laws of transport.websocket_liveness: pings, silence, and ends that never come."""

import asyncio
import contextlib

import pytest

from tests.transport.build import PATIENCE_S, connect, frame, run
from waystation.transport.silence import SilencePolicy
from waystation.transport.websocket.liveness import PETTY_FRAMES_MAX, LivenessSweep, LivenessTimeouts, is_dead
from waystation.transport.websocket.pipe import WebSocketPipe


def test_silent_client_is_pinged_and_cut():
    """Who says nothing is asked once, and gone when nothing comes; the sink is told."""

    async def story(site):
        reader, writer, _ = await site.upgrade()
        async with asyncio.timeout(PATIENCE_S):
            try:
                said = await reader.read(100)
                rest = await reader.read()
            except ConnectionError:
                rest = b""
        writer.close()
        await site.quiet.until(lambda: "lost" in site.quiet.reports)
        return said, rest

    assert run(story, timeouts=LivenessTimeouts(0.05, 0.05)) == (b"\x89\x00", b"")


def test_silent_client_is_cut_within_the_policy():
    """NODE-SILENCE: one number is enough: who answers no ping is asked after a third of it, and gone."""
    silence = SilencePolicy(600)

    async def story(site):
        began_s = asyncio.get_running_loop().time()
        reader, writer, _ = await site.upgrade()
        async with asyncio.timeout(PATIENCE_S):
            said = await reader.readexactly(2)
            pinged_s = asyncio.get_running_loop().time() - began_s
            with contextlib.suppress(ConnectionError):
                await reader.read()
        writer.close()
        await site.quiet.until(lambda: "lost" in site.quiet.reports)
        return said, pinged_s

    said, pinged_s = run(story, timeouts=LivenessTimeouts.of(silence))

    assert said == b"\x89\x00"
    assert pinged_s >= silence.limit_ms / 3_000


@pytest.mark.parametrize("limit_ms", [1_000, 3_000, 30_000, 60_000, 3_600_000])
def test_question_answer_and_looks_fit_into_the_policy(limit_ms):
    """NODE-SILENCE: the last byte came just after a look, and ping and cut wait for a look each."""
    timeouts = LivenessTimeouts.of(SilencePolicy(limit_ms))
    look_s = min(timeouts) / 4

    assert (timeouts.ping_after_s + timeouts.pong_within_s + 3 * look_s) * 1_000 <= limit_ms


def test_client_that_answers_pings_stays(monkeypatch):
    """Who answers is asked again and again, and never cut; the foreign client answers by itself."""
    pings = []
    ping = WebSocketPipe.ping

    async def story(site):
        def noted(pipe):
            pings.append(1)
            ping(pipe)
            site.quiet.note("pinged")

        monkeypatch.setattr(WebSocketPipe, "ping", noted)
        async with connect(site, "/quiet") as client:
            await site.quiet.until(lambda: len(pings) == 4)
            await client.send("still here")
            await site.quiet.until(lambda: site.quiet.heard)
            return "lost" in site.quiet.reports

    assert not run(story, timeouts=LivenessTimeouts(0.02, 0.2))


def test_client_that_only_reads_slowly_stays():
    """Who takes what waits for it is alive, although its pong stands behind all of it; who stops taking is not."""

    async def story(site):
        reader, writer, _ = await site.upgrade()
        pipe, dead, later = site.quiet.pipe, [], asyncio.get_running_loop().time()
        pipe.write([bytes(4_000_000)])
        is_dead(pipe, later)
        for _ in range(5):
            async with asyncio.timeout(PATIENCE_S):
                await reader.readexactly(400_000)
                later += 9
            dead.append(is_dead(pipe, later))
        writer.transport.pause_reading()
        dead += [is_dead(pipe, later + silence) for silence in (5, 13, 26)]
        writer.close()
        return dead

    dead = run(story, send_buffer_bytes=4_096)

    assert dead[:6] == [False] * 6
    assert dead[-1]


def test_held_pipe_is_not_taken_for_dead():
    """While we do not read, silence proves nothing."""

    async def story(site):
        _, writer, _ = await site.upgrade()
        site.quiet.pipe.pause()
        now = asyncio.get_running_loop().time()
        dead = [is_dead(site.quiet.pipe, now + later) for later in (0, 100, 200, 300)]
        site.quiet.pipe.resume()
        dead += [is_dead(site.quiet.pipe, now + later) for later in (400, 431)]
        writer.close()
        return dead

    assert run(story) == [False, False, False, False, False, True]


def test_pause_of_our_own_is_not_the_silence_of_others():
    """NODE-SILENCE: a process that stood still has read nobody; who was asked before gets the time again."""

    async def story(site):
        _, writer, _ = await site.upgrade()
        pipe, sweep = site.quiet.pipe, site.site.sweep
        now = asyncio.get_running_loop().time()
        pipe.watch.received, pipe.watch.quiet_since, pipe.watch.pinged_at = False, now - 100, now - 90
        sweep._looked_at = now - 85
        sweep._look()
        stays = not pipe.ending
        pipe.watch.pinged_at = now - 90
        sweep._look()
        writer.close()
        return stays, pipe.ending

    assert run(story) == (True, True)


def test_timer_runs_only_while_somebody_is_there():
    """An empty site has no timer; one serves all of its pipes."""

    async def story(site):
        before = site.site.sweep._timer
        async with connect(site), connect(site, "/quiet"):
            await site.quiet.until(lambda: site.quiet.pipes)
            handles = [
                each for each in asyncio.get_running_loop()._scheduled if each._callback == site.site.sweep._look
            ]
        await site.sink.until(lambda: "lost" in site.sink.reports)
        await site.quiet.until(lambda: "lost" in site.quiet.reports)
        return before, len(handles), site.site.sweep._timer

    assert run(story, asyncio.SelectorEventLoop) == (None, 1, None)


def test_who_never_answers_a_close_is_cut():
    """A client that ignores our Close frame is gone when its time is over, although it goes on talking."""

    async def story(site):
        reader, writer, _ = await site.upgrade()
        site.quiet.pipe.close()
        async with asyncio.timeout(PATIENCE_S):
            await reader.readexactly(4)
            with contextlib.suppress(ConnectionError):
                while not reader.at_eof() and "lost" not in site.quiet.reports:
                    writer.write(frame(0x81, b"and another thing"))
                    await asyncio.sleep(0)
        writer.close()
        await site.quiet.until(lambda: "lost" in site.quiet.reports)
        return site.quiet.reports

    assert run(story, timeouts=LivenessTimeouts(close_within_s=0.05)) == ["connected", "lost"]


def test_pings_of_who_does_not_read_are_not_answered():
    """Pongs do not pile up in memory: while bytes wait, pings are let go."""

    async def story(site):
        _, writer, _ = await site.upgrade()
        writer.transport.pause_reading()
        pipe = site.quiet.pipe
        while not pipe.waits:
            pipe.write([bytes(100_000)])
        before = pipe.unsent_bytes
        writer.write(frame(0x89, b"p" * 125) * 1_000 + frame(0x81, b"done"))
        await site.quiet.until(lambda: site.quiet.heard)
        after = pipe.unsent_bytes
        writer.close()
        return after <= before

    assert run(story, send_buffer_bytes=4_096)


@pytest.mark.parametrize("petty", [frame(0x89), frame(0x8A), frame(0x00)])
def test_frames_that_carry_nothing_have_a_limit(petty):
    """Pings, pongs and empty fragments cost as much as messages: one too many from look to look closes with 1008."""

    async def story(site):
        begin = frame(0x01, b"x" * 200) if petty == frame(0x00) else b""
        _, patient, _ = await site.upgrade()
        end = frame(0x80, b"y" * 200) if begin else frame(0x81, b"done")
        patient.write(begin + petty * PETTY_FRAMES_MAX + end)
        await site.quiet.until(lambda: site.quiet.heard)
        reader, flooding, _ = await site.upgrade()
        flooding.write(begin + petty * (PETTY_FRAMES_MAX + 1) + end)
        async with asyncio.timeout(PATIENCE_S):
            await reader.readuntil(b"\x88\x02\x03\xf0")
        patient.close()
        flooding.close()
        return len(site.quiet.heard)

    assert run(story) == 1


@pytest.mark.parametrize(
    "unfinished",
    [frame(0x82, bytes(1_100_000), size=1_200_000), frame(0x02, bytes(60_000)) + frame(0x00, bytes(60_000)) * 15],
)
def test_large_messages_that_never_end_give_way(unfinished):
    """Beyond what all of them may take, who has stood still for longest is cut; the others come to their end."""

    async def story(site):
        site.site.sweep = LivenessSweep([LivenessTimeouts(close_within_s=0.05)], unread_bytes_max=1_500_000)
        _, stalled, _ = await site.upgrade("/binary")
        stalled.write(unfinished)
        await site.binary.stood()
        first = site.binary.pipe
        while first.watch.large_since is None:  # noqa: ASYNC110 - the timer tells nobody
            await asyncio.sleep(0)
        _, honest, _ = await site.upgrade("/binary")
        honest.write(unfinished)
        await site.binary.until(lambda: "lost" in site.binary.reports)
        honest.write(bytes(100_000) if unfinished[0] == 0x82 else frame(0x80, b"end"))
        await site.binary.until(lambda: site.binary.heard)
        second = site.binary.pipes[1]
        told = (first.is_established and first._transport is None, second._transport is None, second.watch.large_since)
        stalled.close()
        honest.close()
        return told

    assert run(story) == (True, False, None)


def test_ping_is_answered():
    """A ping comes back as a pong with its payload."""

    async def story(site):
        async with connect(site) as client:
            async with asyncio.timeout(PATIENCE_S):
                await (await client.ping(b"there?"))
            return site.sink.heard

    assert run(story) == []
