"""Laws of what became of a BSP message; tests/sdk/bsp/test_following.py waits for peers."""

import asyncio

from waystation.sdk.bsp.outcome import Outcome, Sent


def test_message_is_stored_and_then_settled():
    """Both are what BSP promises, and neither is a reason to send again: that would be another message."""

    async def scenario():
        held = asyncio.Event()
        sent = Sent(Outcome.STORED, None, held.wait)
        held.set()
        return sent.check().outcome, await sent.settled()

    assert asyncio.run(scenario()) == (Outcome.STORED, Outcome.SETTLED)
    assert not any(each.retry_safe for each in Outcome)
