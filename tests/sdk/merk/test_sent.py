"""Laws of sdk.merk.sent."""

import asyncio

from waystation.protocols.merk.client.events import ReceiptArrived
from waystation.sdk.merk.outcome import Outcome
from waystation.sdk.merk.sent import MessageRead, ReadWaits, SentMessage

BOB, CAROL = b"b" * 32, b"c" * 32
ID = b"i" * 16


def test_only_the_recipient_settles_a_message():
    """A receipt of somebody else, or for another id, is none; the second one says nothing new."""

    async def scenario():
        waits = ReadWaits()
        sent = SentMessage(Outcome.ACCEPTED, id=ID, reading=waits.add(BOB, ID))
        strangers = [waits.settle(ReceiptArrived(CAROL, (ID,))), waits.settle(ReceiptArrived(BOB, (b"j" * 16,)))]
        before = await sent.read(0.0)
        settled = [waits.settle(ReceiptArrived(BOB, (ID,))) for _ in range(2)]
        return strangers, before, settled, await sent.read(0.0)

    assert asyncio.run(scenario()) == ([[], []], False, [[MessageRead(BOB, ID)], []], True)


def test_message_that_cannot_be_read_says_so_at_once():
    """Nobody waits for a receipt that cannot come."""
    assert asyncio.run(SentMessage(Outcome.UNKNOWN_TARGET, id=ID).read(60.0)) is False


def test_waits_are_bounded():
    """The oldest message is matched no more, and whoever waits for it is told that it was not read."""

    async def scenario():
        waits = ReadWaits(count_max=1)
        first = SentMessage(Outcome.ACCEPTED, id=ID, reading=waits.add(BOB, ID))
        waits.add(BOB, b"j" * 16)
        return await first.read(60.0), waits.settle(ReceiptArrived(BOB, (ID,)))

    assert asyncio.run(scenario()) == (False, [])


def test_close_ends_all_waiting():
    """After the client is closed no receipt can come."""

    async def scenario():
        waits = ReadWaits()
        sent = SentMessage(Outcome.ACCEPTED, id=ID, reading=waits.add(BOB, ID))
        reading = asyncio.create_task(sent.read(60.0))
        await asyncio.wait([reading], timeout=0.01)
        waits.close()
        return await reading

    assert asyncio.run(scenario()) is False
