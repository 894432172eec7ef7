"""Laws of transport.send_queue, over sockets that really fill."""

import asyncio
import contextlib

import pytest

from tests.transport.datagrams.build_udp import drain, full_pair, turns
from waystation.transport.datagrams.send_queue import WAITING_MAX, SendQueue


def run(story):
    """Run a story with a full socket, its other end, a queue in front of it, and what the queue reported."""

    async def main():
        near, far, count = full_pair()
        reports = []
        queue = SendQueue(near, near.send, lambda: reports.append(len(queue.waiting)))
        with contextlib.closing(near), contextlib.closing(far):
            try:
                return await story(queue, far, count, reports)
            finally:
                queue.close()

    return asyncio.run(main())


def test_what_has_no_room_waits_and_leaves_in_order():
    """Nothing is lost or overtaken while the queue has room; the drained report comes once, when nothing waits."""

    async def story(queue, far, count, reports):
        queue.send([b"a", b"b"])
        queue.send([b"c"])
        waited = list(queue.waiting)
        before = drain(far)
        await turns(lambda: not queue.waiting)
        return waited, len(before) == count, drain(far), reports, queue.sent, queue.dropped

    assert run(story) == ([b"a", b"b", b"c"], True, [b"a", b"b", b"c"], [0], 3, 0)


def test_room_goes_to_the_oldest_first():
    """A datagram sent while others wait stands behind them, although the kernel has room by then."""

    async def story(queue, far, _count, _reports):
        queue.send([b"first"])
        drain(far)
        queue.send([b"second"])
        await turns(lambda: not queue.waiting)
        return drain(far)

    assert run(story) == [b"first", b"second"]


@pytest.mark.parametrize("calls", [1, 3])
def test_full_queue_drops_the_newest_and_counts(calls):
    """The bound holds for one call with too many and for many calls."""

    async def story(queue, _far, _count, _reports):
        for _ in range(calls):
            queue.send([b"%d" % number for number in range(WAITING_MAX + 5)])
        return len(queue.waiting), queue.waiting[-1], queue.dropped, queue.sent

    dropped = calls * (WAITING_MAX + 5) - WAITING_MAX

    assert run(story) == (WAITING_MAX, b"%d" % (WAITING_MAX - 1), dropped, 0)


def test_closing_drops_what_waits():
    """After the end nothing waits, the loss is counted, and the loop looks at the socket no more."""

    async def story(queue, far, _count, reports):
        queue.send([b"a", b"b"])
        queue.close()
        drain(far)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return len(queue.waiting), queue.dropped, drain(far), reports

    assert run(story) == (0, 2, [], [])


def test_refused_one_costs_nobody_behind_it():
    """A datagram that the kernel refuses is counted as failed, at once or out of the queue; the others leave."""

    async def story(queue, far, _count, _reports):
        huge = bytes(1_000_000)
        queue.send([b"a", huge, b"b"])
        drain(far)
        await turns(lambda: not queue.waiting)
        queue.send([huge, b"c"])
        return drain(far), queue.failed, queue.sent

    assert run(story) == ([b"a", b"b", b"c"], 2, 3)
