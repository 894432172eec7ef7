"""Laws of merk.transfers: both halves alone, and against each other over a link that loses and refuses."""

import hashlib
import random

import pytest

from waystation.core.instant import Instant, after_ms
from waystation.protocols.merk.messages import DeliveryCode
from waystation.protocols.merk.payload import transfers
from waystation.protocols.merk.payload.contents import FilePart
from waystation.protocols.merk.payload.sealing import Auth, Mode
from waystation.protocols.merk.payload.transfers import (
    FINISHED_MAX,
    IDLE_MS,
    PART_BYTES,
    SENDER_TRANSFERS_MAX,
    SETBACKS_MAX,
    TRANSFERS_MAX,
    WINDOW_PARTS_MAX,
    IncomingTransfers,
    OutgoingTransfer,
    PartRefusal,
    PartTaken,
    TransferKey,
    parts_count,
)

NOW = Instant(5_000_000)
ALICE, BOB, ID = b"a" * 32, b"b" * 32, b"i" * 16
OK = DeliveryCode.DELIVERED


def outgoing(count):
    """Return a fresh transfer of so many parts."""
    return OutgoingTransfer(count, random.Random(1))


def parts_of(data, size, transfer_id=ID, name="a.bin"):
    """Return the parts of a file."""
    count = parts_count(len(data), size)
    digest = hashlib.sha256(data).digest()
    return [
        FilePart(transfer_id, digest, index, count, len(data), name, data[index * size : (index + 1) * size])
        for index in range(count)
    ]


def take(incoming, part, *, sender=ALICE, mode=Mode.ENCRYPTED, auth=Auth.BOUND, now=NOW):
    """Hand one part over."""
    return incoming.take(sender, mode, auth, part, now)


# Outgoing


@pytest.mark.parametrize(("total", "count"), [(0, 1), (1, 1), (PART_BYTES, 1), (PART_BYTES + 1, 2), (5 << 20, 40)])
def test_parts_count(total, count):
    """A file has as many parts as it takes, an empty one has one."""
    assert parts_count(total) == count


def test_window_begins_with_one_and_grows_to_its_limit():
    """A relay that searches queues little; each delivered part makes room for one more, up to the limit."""
    transfer = outgoing(200)
    flying, sizes = [], []
    for _ in range(60):
        flying += transfer.parts_to_send(NOW)
        sizes.append(len(flying))
        transfer.on_outcome(flying.pop(0), OK, NOW)

    assert sizes[:4] == [1, 2, 3, 4]
    assert max(sizes) == WINDOW_PARTS_MAX


def test_slow_notices_keep_the_window_small():
    """A recipient that takes seconds for a part gets no more of them at a time, and fewer when it slows down."""
    transfer, now, flying, sizes = outgoing(100), NOW, [], []
    for number in range(30):
        flying += transfer.parts_to_send(now)
        sizes.append(len(flying))
        now = after_ms(now, 10 if number < 6 else 3_000)
        transfer.on_outcome(flying.pop(0), OK, now)

    assert max(sizes) == 7
    assert sizes[-1] == 1


def test_every_part_goes_once_in_order():
    """Without trouble each part is sent exactly once, and the transfer is done with the last notice."""
    transfer, sent = outgoing(5), []
    while not transfer.is_done:
        batch = transfer.parts_to_send(NOW)
        sent += batch
        for index in batch:
            transfer.on_outcome(index, OK, NOW)

    assert sent == [0, 1, 2, 3, 4]
    assert not transfer.failed


@pytest.mark.parametrize("code", [DeliveryCode.RATE, DeliveryCode.QUEUE_FULL, DeliveryCode.UNKNOWN_TARGET, None])
def test_refused_part_is_sent_again_after_a_pause(code):
    """A part that did not arrive waits for the end of the pause, and then goes before new ones."""
    transfer = outgoing(3)
    transfer.on_outcome(transfer.parts_to_send(NOW)[0], code, NOW)
    resume_at = transfer.resume_at()

    assert resume_at is not None and resume_at > NOW
    assert transfer.parts_to_send(Instant(resume_at - 1)) == []
    assert transfer.parts_to_send(resume_at) == [0]


def test_refusals_of_one_window_are_one_setback():
    """A full queue refuses all that flies at once; that shrinks the window once and costs one pause."""
    transfer = outgoing(100)
    flying = []
    while len(flying) < 8:
        flying += transfer.parts_to_send(NOW)
        if len(flying) < 8:
            transfer.on_outcome(flying.pop(0), OK, NOW)
    for index in reversed(flying):
        transfer.on_outcome(index, DeliveryCode.QUEUE_FULL, NOW)
    again = transfer.parts_to_send(transfer.resume_at())

    assert not transfer.failed
    assert again == sorted(flying)[: len(again)]
    assert len(again) == 4


def test_pauses_double_up_to_a_cap_and_then_it_is_given_up():
    """A recipient that never takes a part is not tried for ever; the last outcome is the reason."""
    transfer, now, pauses = outgoing(2), NOW, []
    while not transfer.failed:
        (index,) = transfer.parts_to_send(now)
        transfer.on_outcome(index, DeliveryCode.UNKNOWN_TARGET, now)
        if transfer.resume_at() is not None:
            pauses.append((transfer.resume_at() - now) // 1_000)
            now = transfer.resume_at()

    assert transfer.failure is DeliveryCode.UNKNOWN_TARGET
    assert len(pauses) == SETBACKS_MAX
    assert 50 <= pauses[0] <= 100
    assert max(pauses) <= 8_000
    assert pauses[-1] >= 4_000
    assert transfer.parts_to_send(after_ms(now, 60_000)) == []
    assert transfer.resume_at() is None


def test_progress_makes_patience_new():
    """Setbacks count in a row only: one delivered part, and the pauses begin small again."""
    transfer, now = outgoing(50), NOW
    for _ in range(4 * SETBACKS_MAX):
        for index in transfer.parts_to_send(now):
            transfer.on_outcome(index, DeliveryCode.RATE, now)
        now = transfer.resume_at()
        for index in transfer.parts_to_send(now):
            transfer.on_outcome(index, OK, now)
        if transfer.is_done:
            break

    assert not transfer.failed


def test_too_large_ends_it_at_once():
    """A part that no relay will ever take is not tried again."""
    transfer = outgoing(2)
    transfer.on_outcome(transfer.parts_to_send(NOW)[0], DeliveryCode.TOO_LARGE, NOW)

    assert (transfer.failed, transfer.failure) == (True, DeliveryCode.TOO_LARGE)


def test_outcome_of_a_part_that_does_not_fly_changes_nothing():
    """A second notice, or one for a part never sent, is ignored."""
    transfer = outgoing(2)
    (index,) = transfer.parts_to_send(NOW)
    transfer.on_outcome(index, OK, NOW)
    transfer.on_outcome(index, OK, NOW)
    transfer.on_outcome(1, OK, NOW)

    assert transfer.delivered_count == 1


# Incoming


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_parts_find_their_place_in_any_order(order):
    """Whatever comes first, each part's offset is the sum of those before it, and the last to come completes."""
    data = bytes(range(250))
    parts, incoming, whole = parts_of(data, 100), IncomingTransfers(), bytearray(250)
    taken = [take(incoming, parts[index]) for index in order]
    for each, index in zip(taken, order, strict=True):
        whole[each.offset_bytes : each.offset_bytes + len(parts[index].data)] = parts[index].data

    assert bytes(whole) == data
    assert [each.is_last for each in taken] == [False, False, True]
    assert [each.is_first for each in taken] == [True, False, False]
    assert taken[-1].received_bytes == 250


def test_empty_file_is_one_empty_part():
    """A file without a byte arrives, too."""
    (part,) = parts_of(b"", 100)

    assert take(IncomingTransfers(), part) == PartTaken(
        TransferKey(ALICE, Mode.ENCRYPTED, True, ID), 0, True, Auth.BOUND, 0, True
    )


def test_repeated_part_counts_once():
    """A part that was sent again because its notice got lost is known, also after the file is complete."""
    parts, incoming = parts_of(b"x" * 200, 100), IncomingTransfers()
    take(incoming, parts[0])
    again = take(incoming, parts[0])
    last = take(incoming, parts[1])
    incoming.finish(last.key)

    assert again is PartRefusal.REPEATED
    assert take(incoming, parts[1]) is PartRefusal.REPEATED
    assert len(incoming) == 0


def lie(part, **changes):
    """Return a part with other fields."""
    fields = {name: getattr(part, name) for name in FilePart.__slots__} | changes
    return FilePart(**fields)


@pytest.mark.parametrize(
    "changes",
    [
        {"digest": b"d" * 32},
        {"count": 4},
        {"total_bytes": 251},
        {"name": "b.bin"},
        {"data": b"y" * 99},
        {"data": b"y" * 101},
        {"data": b""},
    ],
)
def test_part_that_contradicts_the_others_is_refused(changes):
    """Nothing about a file may change behind its first part."""
    parts, incoming = parts_of(bytes(250), 100), IncomingTransfers()
    take(incoming, parts[0])

    assert take(incoming, lie(parts[1], **changes)) is PartRefusal.CONTRADICTION


@pytest.mark.parametrize(
    ("index", "count", "total", "size"),
    [
        (0, 1, 5, 4),
        (0, 1, 0, 1),
        (0, 2, 100, 100),
        (0, 2, 100, 40),
        (0, 3, 100, 0),
        (2, 3, 100, 1),
        (1, 2, 100, 60),
        (1, 2, 100, 0),
    ],
)
def test_impossible_lengths_are_refused(index, count, total, size):
    """A part whose length fits no division of its file into equal parts begins nothing."""
    incoming = IncomingTransfers()
    part = FilePart(ID, b"d" * 32, index, count, total, "n", bytes(size))

    assert take(incoming, part) is PartRefusal.CONTRADICTION
    assert len(incoming) == 0


def test_nobody_gets_into_the_file_of_another():
    """Sender, mode and proof belong to a transfer's name: the same id from elsewhere is another file."""
    parts, incoming = parts_of(bytes(200), 100), IncomingTransfers()
    take(incoming, parts[0])
    others = [
        take(incoming, parts[1], sender=BOB),
        take(incoming, parts[1], mode=Mode.SIGNED),
        take(incoming, parts[1], auth=Auth.NONE),
    ]

    assert [each.is_last for each in others] == [False] * 3
    assert len(incoming) == 4


def test_file_is_as_well_proved_as_its_worst_part():
    """One part of weaker proof, and the file has no better one."""
    parts, incoming = parts_of(bytes(300), 100), IncomingTransfers()
    auths = [
        take(incoming, part, auth=auth).auth
        for part, auth in zip(parts, (Auth.BOUND, Auth.LEGACY, Auth.BOUND), strict=True)
    ]

    assert auths == [Auth.BOUND, Auth.LEGACY, Auth.LEGACY]


def begin(incoming, number, *, sender=ALICE, total=200, now=NOW):
    """Begin a file of two parts."""
    part = FilePart(number.to_bytes(16, "big"), b"d" * 32, 0, 2, total, "n", bytes(total // 2))
    return take(incoming, part, sender=sender, now=now)


def test_one_sender_may_begin_a_few_files():
    """Beyond its share a sender is refused, and others are not."""
    incoming = IncomingTransfers()
    taken = [begin(incoming, number) for number in range(SENDER_TRANSFERS_MAX + 1)]

    assert taken[-1] is PartRefusal.TOO_MANY
    assert isinstance(begin(incoming, 99, sender=BOB), PartTaken)


def test_files_at_a_time_are_bounded():
    """Beyond the limit everybody is refused until one is finished."""
    incoming = IncomingTransfers()
    taken = [begin(incoming, number, sender=number.to_bytes(32, "big")) for number in range(TRANSFERS_MAX + 1)]
    incoming.finish(taken[0].key)

    assert taken[-1] is PartRefusal.TOO_MANY
    assert isinstance(begin(incoming, 999, sender=BOB), PartTaken)


def test_announced_bytes_are_bounded():
    """What all unfinished files announce counts, not what has come; finishing one makes room."""
    incoming = IncomingTransfers(transfers_bytes_max=400)
    first = begin(incoming, 1)
    assert isinstance(begin(incoming, 2), PartTaken)
    third = begin(incoming, 3)
    incoming.finish(first.key)

    assert third is PartRefusal.TOO_MANY
    assert isinstance(begin(incoming, 3), PartTaken)


@pytest.mark.parametrize(
    ("total", "count"), [(1_002, 2), (transfers.PARTS_COUNT_MAX + 1, transfers.PARTS_COUNT_MAX + 1)]
)
def test_file_beyond_the_limits_is_refused(total, count):
    """Too many bytes, or more parts than anybody remembers, begin nothing."""
    incoming = IncomingTransfers(file_bytes_max=1_000 if count == 2 else 2**40)
    part = FilePart(ID, b"d" * 32, 0, count, total, "n", bytes(total // count))

    assert take(incoming, part) is PartRefusal.TOO_BIG
    assert len(incoming) == 0


def test_idle_transfers_are_forgotten():
    """Without a new part for the idle time a transfer is over; one with parts is not."""
    incoming = IncomingTransfers()
    idle, busy = begin(incoming, 1), begin(incoming, 2)
    part = FilePart((2).to_bytes(16, "big"), b"d" * 32, 1, 2, 200, "n", bytes(100))
    take(incoming, part, now=after_ms(NOW, IDLE_MS - 1))
    gone = incoming.expire(after_ms(NOW, IDLE_MS))

    assert gone == [idle.key]
    assert len(incoming) == 1
    assert busy.key not in gone


def test_memory_of_finished_files_is_bounded():
    """The oldest finished file is forgotten beyond the limit."""
    incoming = IncomingTransfers()
    for number in range(FINISHED_MAX + 1):
        incoming.finish(begin(incoming, number).key)

    assert isinstance(begin(incoming, 0), PartTaken)
    assert begin(incoming, 1) is PartRefusal.REPEATED


# Both


@pytest.mark.parametrize("seed", range(20))
def test_file_arrives_whole_over_a_link_that_refuses_and_forgets(seed):
    """Parts refused, delivered without a notice, and reordered: the file is complete, and each byte in its place."""
    rng = random.Random(seed)
    data = rng.randbytes(rng.randrange(0, 4_000))
    parts, incoming = parts_of(data, 100), IncomingTransfers()
    transfer, now, whole, completed = OutgoingTransfer(len(parts), rng), NOW, bytearray(len(data)), 0
    while not transfer.is_done:
        flying = transfer.parts_to_send(now)
        rng.shuffle(flying)
        for index in flying:
            code = rng.choices([OK, None, DeliveryCode.RATE, DeliveryCode.QUEUE_FULL], [12, 1, 1, 1])[0]
            taken = take(incoming, parts[index], now=now) if code in (OK, None) else None
            if isinstance(taken, PartTaken):
                whole[taken.offset_bytes : taken.offset_bytes + len(parts[index].data)] = parts[index].data
                completed += taken.is_last
            transfer.on_outcome(index, code, now)
        now = transfer.resume_at() or now

    assert bytes(whole) == data
    assert completed == 1
