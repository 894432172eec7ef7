"""Waits at a BSP peer for the messages that it delivers, or until its peers have a given message.

``BspPeer`` offers both to programs: ``follow`` yields messages, ``until`` returns once peers have a message. They wait
for news of the device and look at it again, so nothing is missed in between.
"""

import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any

from waystation.protocols.bsp.device.events import Delivered, PeerHolds
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.home.status import GroupMessage, group_message
from waystation.sdk.bsp.news import News, NewsMissed
from waystation.sdk.errors import ClosedError

__all__ = ["follow", "until"]


async def follow(
    device: BspDevice, news: News, orders: dict[bytes, int], wanted: Callable[[bytes], bool]
) -> AsyncGenerator[GroupMessage, None]:
    """Yield messages as a device delivers them, each group's in its order, until the peer is closed.

    Args:
        device: Whose.
        news: What happens at its peer.
        orders: Group -> the order that the last message yielded had; changed here, so that another call goes on.
        wanted: Whether a group is followed.
    """
    at = orders
    async with contextlib.aclosing(news.listen()) as events:
        missed = True  # what was delivered before this call
        while True:
            if missed:
                for group in device.groups():
                    for vertex in device.messages(group.group_id) if wanted(group.group_id) else ():
                        if vertex.order > at.get(group.group_id, 0):
                            at[group.group_id] = vertex.order
                            yield group_message(device, group.group_id, vertex)
            event: Any = await anext(events, None)
            if event is None:
                return
            missed = isinstance(event, NewsMissed)
            if isinstance(event, Delivered) and wanted(event.group_id) and event.order > at.get(event.group_id, 0):
                fresh = device.vertex(event.group_id, event.message_id)
                if fresh is not None:
                    at[event.group_id] = event.order
                    yield group_message(device, event.group_id, fresh)


async def until(news: News, is_held: Callable[[], bool]) -> None:
    """Return once ``is_held``, which only what a peer reports changes; raises ClosedError when we are closed."""
    async with contextlib.aclosing(news.listen()) as events:
        while not is_held():
            async for event in events:
                if isinstance(event, PeerHolds | NewsMissed):
                    break
            else:
                raise ClosedError("the BSP client was closed while it waited for peers")
