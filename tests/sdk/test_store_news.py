"""Laws of what a client says about its own disk."""

import asyncio

from waystation.core.errors import HostError
from waystation.sdk.store_news import StoreFailed, StoreRecovered, StoreWatch


def refuse():
    raise HostError("the disk is full")


def test_refusal_is_told_once_and_so_is_its_end():
    """Whatever is tried meanwhile, the program hears of the first refusal and of the recovery."""
    told = []

    async def main():
        watch = StoreWatch(told.append)
        for write in (int, refuse, refuse, int, int):
            watch.attempt(write)
        return watch.failure

    assert asyncio.run(main()) is None
    assert [type(each) for each in told] == [StoreFailed, StoreRecovered]
    assert told[0].reason == "the disk is full"


def test_disk_has_recovered_when_it_has_taken_what_it_refused():
    """A write that goes through is no recovery while another file still waits."""
    told, refusals = [], [1]

    def settle():
        if refusals:
            refusals.pop()
            refuse()

    async def main():
        watch = StoreWatch(told.append, [settle])
        watch.attempt(refuse)
        seen = []
        for _ in range(2):
            watch.attempt(int)
            seen.append(watch.failure is None)
        return seen

    assert asyncio.run(main()) == [False, True]
    assert [type(each) for each in told] == [StoreFailed, StoreRecovered]
