"""Laws of sdk.merk.receipts."""

import asyncio

from tests.server.build import eventually
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
        return True

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
            return True

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
        return True

    async def scenario():
        receipts = Receipts(send)
        for sender in (b"a", b"b", b"c", b"a"):
            receipts.add(sender, b"i" * 16)
        await receipts.flush()
        await receipts.aclose()

    asyncio.run(scenario())

    assert sent == [(b"a", 2), (b"b", 1)]


def test_sender_out_of_reach_keeps_no_other_waiting():
    """A receipt that cannot leave waits; the next sender's leaves all the same."""
    sent = []

    async def send(sender, _receipt):
        if sender == b"a":
            raise RelayUnreachableError("gone")
        sent.append(sender)
        return True

    async def scenario():
        receipts = Receipts(send)
        for sender in (b"a", b"b"):
            receipts.add(sender, b"i" * 16)
        await receipts.flush()
        await receipts.aclose()

    asyncio.run(scenario())

    assert sent == [b"b"]


async def repeated(send, counts, adds=()):
    """Owe senders so many receipts each, and what ``adds`` says a moment later, until nothing goes again."""
    receipts = Receipts(send)
    for sender, count in counts.items():
        for each in ids(count):
            receipts.add(sender, each)
    await receipts.flush()
    for sender, message_id in adds:
        receipts.add(sender, message_id)
    await receipts.flush()
    await eventually(lambda: not receipts.repeating_count, "the end of repetitions")
    await receipts.aclose()


def test_receipt_that_finds_nobody_goes_again(monkeypatch):
    """With those that came meanwhile, until somebody has it; what has arrived does not go again."""
    monkeypatch.setattr(merk_receipts, "AGAIN_S", (0.0, 0.0, 0.0))
    sent, answers = [], iter([True, False, False, False])

    async def send(_sender, receipt):
        sent.append(receipt.message_ids)
        return next(answers, True)

    asyncio.run(repeated(send, {b"a": RECEIPT_IDS_MAX + 1}, [(b"a", b"later".ljust(16))]))

    last = ids(RECEIPT_IDS_MAX + 1)[-1]
    assert len(sent[0]) == RECEIPT_IDS_MAX
    assert sent[1:] == [(last,), (b"later".ljust(16),), (last, b"later".ljust(16)), (last, b"later".ljust(16))]


def test_receipt_that_never_finds_anybody_is_given_up(monkeypatch):
    """After so many times; a relay that is not there counts as nobody."""
    monkeypatch.setattr(merk_receipts, "AGAIN_S", (0.0, 0.0))
    sent = []

    async def send(_sender, receipt):
        sent.append(receipt.message_ids)
        raise RelayUnreachableError("gone")

    asyncio.run(repeated(send, {b"a": 1}))

    assert sent == [(bytes(16),)] * 3


def test_repetitions_are_bounded(monkeypatch):
    """So many senders and messages of one go again, and no more."""
    monkeypatch.setattr(merk_receipts, "AGAIN_S", (0.0,))
    monkeypatch.setattr(merk_receipts, "AGAIN_MAX", 2)
    monkeypatch.setattr(merk_receipts, "AGAIN_IDS_MAX", 3)
    sent = []

    async def send(sender, receipt):
        sent.append((sender, len(receipt.message_ids)))
        return False

    asyncio.run(repeated(send, {b"a": 5, b"b": 1, b"c": 1}))

    assert sent == [(b"a", 5), (b"b", 1), (b"c", 1), (b"a", 3), (b"b", 1)]
