"""Sends one packet to several relays at once and waits for the result of each.

``ManyRelays`` passes a coroutine for each relay and gets a receipt or an error for each. One slow or failing relay does
not hide the success of others.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from waystation.core.errors import WaystationError
from waystation.sdk.errors import OutcomeUnknownError
from waystation.sdk.strata.relay import Receipt

__all__ = ["OTHERS_S", "failures_of", "fan_out"]

OTHERS_S: Final = 20.0
"""How much longer the other relays may take once one has stored the packet."""


async def fan_out(tries: Mapping[str, Coroutine[Any, Any, Receipt]]) -> dict[str, Receipt | WaystationError]:
    """Return what became of each, in the order given; ``OTHERS_S`` after the first receipt the rest is unknown.

    Args:
        tries: By address: returns a receipt, or raises a WaystationError; anything else is raised here.
    """
    tasks = {url: asyncio.ensure_future(work) for url, work in tries.items()}
    try:
        await _first_receipt(set(tasks.values()))
        await asyncio.wait(tasks.values(), timeout=OTHERS_S)
        return {url: _outcome(url, task) for url, task in tasks.items()}
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


def failures_of(outcomes: Mapping[str, Receipt | WaystationError]) -> dict[str, WaystationError]:
    """Return why each relay that has not stored the packet did not."""
    return {url: each for url, each in outcomes.items() if isinstance(each, WaystationError)}


async def _first_receipt(waiting: set[asyncio.Future[Receipt]]) -> None:
    """Return once one task has a receipt, or all have failed."""
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if any(task.exception() is None for task in done):
            return


def _outcome(url: str, task: asyncio.Future[Receipt]) -> Receipt | WaystationError:
    if not task.done():
        return OutcomeUnknownError(f"{url} has not said yet whether it has stored the packet; another relay has")
    error = task.exception()
    if error is None:
        return task.result()
    if isinstance(error, WaystationError):
        return error
    raise error
