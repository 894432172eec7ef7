import asyncio

import pytest

from tests.protocols.strata.build import NOW, post
from waystation.core.errors import LocalError
from waystation.protocols.strata.messages import Filters
from waystation.sdk.strata.relay import RelayClient
from waystation.sdk.strata.subscription import Delivery, Subscription, check_filters


class Owner:
    """Writes down what a subscription asks of its relay."""

    def __init__(self):
        self.calls = []

    async def begin(self, _subscription):
        self.calls.append("begin")

    def end(self, _subscription):
        self.calls.append("end")

    def has_room(self):
        self.calls.append("room")


def subscription(owner, **options):
    """Return a subscription that begins nowhere."""
    fields = {"cursor": None, "received_at": None, "limit": None, "follow": True, "profile": None}
    calls = {"begin": owner.begin, "end": owner.end, "has_room": owner.has_room}
    return Subscription("s", Filters(), **(calls | fields | options))


def delivery(cursor):
    """Return a packet with a cursor."""
    return Delivery(post(), NOW, "UNKNOWN", None, True, cursor, "ws://a", False)


def test_place_moves_with_what_was_taken():
    """A packet that waits has not been taken yet."""

    async def run():
        one = subscription(Owner())
        for cursor in ("c1", None, "c2"):
            one.deliver(delivery(cursor))
        places = []
        for _ in range(3):
            await anext(one)
            places.append((one.cursor, one.waiting))
        return places

    assert asyncio.run(run()) == [("c1", 2), ("c1", 1), ("c2", 0)]


def test_history_alone_ends_the_iteration():
    """Without follow it ends behind the last stored packet, and the relay is told."""

    async def run():
        owner = Owner()
        one = subscription(owner, follow=False)
        one.deliver(delivery("c1"))
        one.on_history_ended()
        return [each.cursor async for each in one], owner.calls

    cursors, calls = asyncio.run(run())
    assert cursors == ["c1"]
    assert (calls[0], "end" in calls) == ("end", True)


def test_failure_comes_behind_what_arrived():
    """Then the iteration is over for good."""

    async def run():
        one = subscription(Owner())
        one.deliver(delivery("c1"))
        one.fail(ValueError("no"))
        await anext(one)
        with pytest.raises(ValueError, match="no"):
            await anext(one)
        with pytest.raises(StopAsyncIteration):
            await anext(one)

    asyncio.run(run())


def test_closing_wakes_whoever_waits():
    """The iteration ends instead of hanging."""

    async def run():
        one = subscription(Owner())
        waiting = asyncio.ensure_future(anext(one, "over"))
        await asyncio.sleep(0)
        await one.aclose()
        return await waiting

    assert asyncio.run(run()) == "over"


def test_cancelled_first_wait_asks_again():
    """A caller whose time was over before the relay was asked waits for an answer the next time, not for ever."""

    async def run():
        owner, asked, asking = Owner(), asyncio.Event(), asyncio.Event()

        async def begin(_subscription):
            owner.calls.append("begin")
            asked.set()
            await asking.wait()

        one = subscription(owner, begin=begin)
        first = asyncio.create_task(anext(one))
        await asked.wait()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        asking.set()
        one.deliver(delivery("c1"))
        await asyncio.wait_for(anext(one), 20)
        return owner.calls.count("begin")

    assert asyncio.run(run()) == 2


def test_cancelled_entry_leaves_no_subscription():
    """A caller that is cancelled on the way in has no way out, so that the owner forgets it at once."""

    async def run():
        owner, asked = Owner(), asyncio.Event()

        async def begin(_subscription):
            asked.set()
            await asyncio.Event().wait()

        entering = asyncio.create_task(subscription(owner, begin=begin).__aenter__())
        await asked.wait()
        entering.cancel()
        await asyncio.gather(entering, return_exceptions=True)
        return "end" in owner.calls

    assert asyncio.run(run())


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        ({"types": ["POST"]}, "filters are Filters"),
        (Filters(types="POST"), "types of Filters is a tuple of str, not 'POST'"),
        (Filters(authors=["did:strata:x"]), "authors of Filters is a tuple of str"),
        (Filters(ids=("0x11",)), "ids of Filters is a tuple of bytes"),
        (Filters(since=1.5), r"since of Filters is whole Unix seconds, such as int\(time.time\(\)\), not 1.5"),
        (Filters(until=True), "until of Filters is whole Unix seconds"),
    ],
)
def test_filters_that_are_none_are_refused_at_home(filters, said):
    """A relay would refuse them later, or give something else."""
    with pytest.raises(LocalError, match=said):
        check_filters(filters)
    with pytest.raises(LocalError, match=said):
        RelayClient("ws://127.0.0.1:1/strata").subscribe(filters)


def test_filters_of_every_kind_are_taken():
    """All that the wire has."""
    check_filters(Filters())
    check_filters(Filters(("did:strata:x",), ("POST",), 1, 2, True, (bytes(32),)))
