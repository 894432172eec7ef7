"""Laws of sdk.merk.receipts."""

import asyncio

from waystation.protocols.merk.payload.contents import RECEIPT_IDS_MAX
from waystation.sdk.errors import RelayUnreachableError
from waystation.sdk.merk import receipts as merk_receipts
from waystation.sdk.merk.receipts import Receipts


def ids(count):
    """Return so many message ids."""
    return [number.to_bytes(16, "big") for number in range(count)]


def test_ids_are_gathered_and_none_is_lost():
    """Many messages of one sender make few receipts, of at most 64 ids each."""
    sent = []

    async def send(sender, receipt):
        sent.append((sender, receipt.message_ids))

    async def scenario():
        receipts = Receipts(send)
        for each in ids(150):
            receipts.add(b"b" * 32, each)
        await receipts.flush()
        await receipts.aclose()

    asyncio.run(scenario())

    assert [len(named) for _, named in sent] == [RECEIPT_IDS_MAX, RECEIPT_IDS_MAX, 22]
    assert [each for _, named in sent for each in named] == ids(150)


def test_receipt_leaves_within_a_second():
    """Nobody has to ask for it."""

    async def scenario():
        arrived = asyncio.get_running_loop().create_future()

        async def send(_sender, receipt):
            arrived.set_result(receipt.message_ids)

        receipts = Receipts(send)
        receipts.add(b"b" * 32, b"i" * 16)
        async with asyncio.timeout(1.0):
            named = await arrived
        await receipts.aclose()
        return named

    assert asyncio.run(scenario()) == (b"i" * 16,)


def test_senders_are_bounded(monkeypatch):
    """A crowd of strangers takes so many places and no more; a sender that has one keeps it."""
    monkeypatch.setattr(merk_receipts, "SENDERS_MAX", 2)
    sent = []

    async def send(sender, receipt):
        sent.append((sender, len(receipt.message_ids)))

    async def scenario():
        receipts = Receipts(send)
        for sender in (b"a", b"b", b"c", b"a"):
            receipts.add(sender, b"i" * 16)
        await receipts.flush()
        await receipts.aclose()

    asyncio.run(scenario())

    assert sent == [(b"a", 2), (b"b", 1)]


def test_sender_out_of_reach_keeps_no_other_waiting():
    """A receipt that cannot leave is given up; the next sender's leaves all the same."""
    sent = []

    async def send(sender, _receipt):
        if sender == b"a":
            raise RelayUnreachableError("gone")
        sent.append(sender)

    async def scenario():
        receipts = Receipts(send)
        for sender in (b"a", b"b"):
            receipts.add(sender, b"i" * 16)
        await receipts.flush()
        await receipts.aclose()

    asyncio.run(scenario())

    assert sent == [b"b"]
