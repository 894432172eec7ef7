"""Merges several subscriptions into one stream, in the order of arrival.

``ManyRelays.subscribe`` reads its relays through it. A bounded queue connects them, so a slow program slows down all
relays instead of using more memory.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from waystation.core.errors import WaystationError
from waystation.sdk.strata.subscription import Delivery, Subscription

__all__ = ["merge"]

_WAITING_MAX: Final = 1_000


async def merge(subscriptions: Sequence[Subscription]) -> AsyncGenerator[Delivery, None]:
    """Yield what any of the subscriptions delivers until all have ended; close it with ``contextlib.aclosing``.

    Raises:
        WaystationError: Every one of them has failed; the first one's reason.
        Exception: Anything else that one of them raised, at once.
    """
    arrivals: asyncio.Queue[Delivery | Exception | None] = asyncio.Queue(_WAITING_MAX)
    tasks = [asyncio.create_task(_read(each, arrivals)) for each in subscriptions]
    failures: list[WaystationError] = []
    ended = 0
    try:
        while ended < len(tasks):
            item = await arrivals.get()
            if isinstance(item, Delivery):
                yield item
                continue
            if isinstance(item, Exception) and not isinstance(item, WaystationError):
                raise item
            ended += 1
            failures += [item] if item is not None else []
        if failures and len(failures) == len(tasks):
            raise failures[0]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read(subscription: Subscription, arrivals: "asyncio.Queue[Delivery | Exception | None]") -> None:
    try:
        async with subscription:
            async for delivery in subscription:
                await arrivals.put(delivery)
    except Exception as error:  # noqa: BLE001 - whoever waits for the queue must see the end of every reader
        await arrivals.put(error)
    else:
        await arrivals.put(None)
