"""File transfer in parts: decides which part to send next, and records which parts have arrived.

The SDK's ``files`` sends and ``download_buffer`` stores by it. ``OutgoingTransfer`` keeps a window of parts in flight,
which begins at one. A part delivered quickly widens the window by one, a slow one narrows it by one. A part refused for
lack of room halves it and starts a pause. ``IncomingTransfers`` records the parts that arrived and refuses those beyond
its limits. The caller stores the bytes and checks the whole file against its SHA-256.

All parts of a file but the last have the same length, so a part's offset follows from its index and length.

Spec: specs/merk.md 10.11; MERK-PARTS.
"""

import random
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from waystation.core.instant import Instant, after_ms
from waystation.protocols.merk.messages import DeliveryCode
from waystation.protocols.merk.payload.contents import FilePart
from waystation.protocols.merk.payload.sealing import Auth, Mode

__all__ = [
    "FILE_BYTES_MAX",
    "FINISHED_MAX",
    "IDLE_MS",
    "PARTS_COUNT_MAX",
    "PART_BYTES",
    "SENDER_TRANSFERS_MAX",
    "SETBACKS_MAX",
    "TRANSFERS_BYTES_MAX",
    "TRANSFERS_MAX",
    "WINDOW_PARTS_MAX",
    "IncomingTransfers",
    "OutgoingTransfer",
    "PartRefusal",
    "PartTaken",
    "TransferKey",
    "parts_count",
]

PART_BYTES: Final = 131_072  # one such frame fits a relay's look-up queue of 256 KiB (specs/merk.md 5)
WINDOW_PARTS_MAX: Final = 16  # 2 MiB: a link of 1 Gbit/s with 16 ms round trips
SETBACKS_MAX: Final = 12  # refusals in a row, about a minute of pauses; a recipient that moves is back by then
TRANSFERS_MAX: Final = 64  # files that arrive at a time, ours
SENDER_TRANSFERS_MAX: Final = 8  # of them from one sender
FILE_BYTES_MAX: Final = 4_294_967_296  # ours: 4 GiB
TRANSFERS_BYTES_MAX: Final = 8_589_934_592  # all of them together, as announced
PARTS_COUNT_MAX: Final = 131_072  # 16 GiB in parts of 128 KiB; bounds the memory of one transfer to as many bytes
IDLE_MS: Final = 180_000  # a transfer without a new part for so long is forgotten: twice as long as senders try again
FINISHED_MAX: Final = 1_024  # finished transfers whose late parts are still known as such

_PAUSE_FIRST_MS: Final = 100  # ours: doubles at each setback
_PAUSE_CAP_MS: Final = 8_000  # ours
_SLOW_MS: Final = 2_000  # a notice that takes longer waited for the recipient, not for the way
_FINAL: Final = (DeliveryCode.TOO_LARGE,)  # spec 6: repeating cannot help
_ARRIVED: Final = (DeliveryCode.DELIVERED, DeliveryCode.STORED)
_FOR_WANT_OF_ROOM: Final = (DeliveryCode.RATE, DeliveryCode.QUEUE_FULL)  # spec 6: later there may be room


def parts_count(total_bytes: int, part_bytes: int = PART_BYTES) -> int:
    """Return how many parts a file has; an empty one has one, empty too."""
    return max(1, -(-total_bytes // part_bytes))


class OutgoingTransfer:
    """Decides which parts of one file are to be sent."""

    def __init__(self, count: int, rng: random.Random) -> None:
        """Begin to send ``count`` parts; ``rng`` is for the jitter of pauses."""
        assert count > 0
        self._rng = rng
        self.count = count
        self._next = 0
        self._again: list[int] = []
        self._in_flight: dict[int, Instant] = {}
        self._window = 1
        self._pause_ms = _PAUSE_FIRST_MS
        self._resume_at: Instant | None = None
        self._setbacks = 0
        self.delivered_count = 0
        """Parts that were delivered."""
        self.failed = False
        """Whether it was given up."""
        self.failure: DeliveryCode | None = None
        """Why, by the last outcome; None when it is unknown."""

    @property
    def is_done(self) -> bool:
        """Whether every part was delivered."""
        return self.delivered_count == self.count

    def parts_to_send(self, now: Instant) -> list[int]:
        """Return the indexes of the parts to send now, which then count as in flight; each gets one ``on_outcome``."""
        if self.failed or (self._resume_at is not None and now < self._resume_at):
            return []
        self._resume_at = None
        parts: list[int] = []
        while len(self._in_flight) < self._window and (self._again or self._next < self.count):
            index = self._again.pop(0) if self._again else self._next
            self._next += index == self._next
            self._in_flight[index] = now
            parts.append(index)
        return parts

    def on_outcome(self, index: int, code: DeliveryCode | None, now: Instant) -> None:
        """Note what became of a part; None when it is unknown."""
        sent_at = self._in_flight.pop(index, None)
        if sent_at is None:
            return
        if code in _ARRIVED:
            self._on_delivered(slow=now > after_ms(sent_at, _SLOW_MS))
        else:
            self._on_setback(index, code, now)

    def resume_at(self) -> Instant | None:
        """Return when a pause ends, or None when there is none."""
        return None if self.failed else self._resume_at

    def _on_delivered(self, *, slow: bool) -> None:
        self.delivered_count += 1
        self._setbacks = 0
        self._pause_ms = _PAUSE_FIRST_MS
        self._window = max(1, self._window - 1) if slow else min(WINDOW_PARTS_MAX, self._window + 1)

    def _on_setback(self, index: int, code: DeliveryCode | None, now: Instant) -> None:
        self._again.append(index)
        self._again.sort()
        # Failures of one window count as one setback.
        if self._resume_at is not None and now < self._resume_at and code not in _FINAL:
            return  # the rest of the same window: one setback
        self._setbacks += 1
        if code in _FINAL or self._setbacks > SETBACKS_MAX:
            self.failed, self.failure = True, code
            return
        # For want of room the window halves; a time-out may mean a lost node, so one part probes.
        self._window = max(1, self._window // 2) if code in _FOR_WANT_OF_ROOM else 1
        pause_ms = int(self._pause_ms * self._rng.uniform(0.5, 1.0))
        self._pause_ms = min(_PAUSE_CAP_MS, 2 * self._pause_ms)
        self._resume_at = after_ms(now, max(1, pause_ms))


class PartRefusal(Enum):
    """Why a part was not taken."""

    TOO_BIG = "the file is larger than this client takes"
    TOO_MANY = "too many files arrive at the same time"
    CONTRADICTION = "the part does not fit the others of its file"
    REPEATED = "the part was here before"


class TransferKey(NamedTuple):
    """What makes parts one file: nobody else's parts, and no less protected ones, can get in between."""

    sender: bytes
    mode: Mode
    proved: bool
    """Whether anything proves the sender."""
    transfer_id: bytes
    """16 bytes."""


class PartTaken(NamedTuple):
    """A part to keep."""

    key: TransferKey
    offset_bytes: int
    """Where its data belongs."""
    is_first: bool
    """Whether the transfer began with it."""
    auth: Auth
    """The weakest proof of all parts so far."""
    received_bytes: int
    """Of the whole file, this part included."""
    is_last: bool
    """Whether the file is complete: check its digest, then call ``finish``."""


@dataclass(slots=True)
class _Incoming:
    digest: bytes
    count: int
    total_bytes: int
    name: str
    part_bytes: int
    have: bytearray
    auth: Auth
    touched_at: Instant
    have_count: int = 0
    received_bytes: int = 0


class IncomingTransfers:
    """Knows which parts of which files have come."""

    def __init__(self, *, file_bytes_max: int = FILE_BYTES_MAX, transfers_bytes_max: int = TRANSFERS_BYTES_MAX) -> None:
        """Start empty.

        Args:
            file_bytes_max: Largest file.
            transfers_bytes_max: All files that are not finished, as announced, together.
        """
        self._file_bytes_max = file_bytes_max
        self._transfers_bytes_max = transfers_bytes_max
        self._transfers: OrderedDict[TransferKey, _Incoming] = OrderedDict()
        self._finished: OrderedDict[TransferKey, None] = OrderedDict()
        self.announced_bytes = 0
        """Sizes of the files that have begun and are not finished, together."""

    def __len__(self) -> int:
        """Return how many files have begun and are not finished."""
        return len(self._transfers)

    def take(self, sender: bytes, mode: Mode, auth: Auth, part: FilePart, now: Instant) -> PartTaken | PartRefusal:
        """Take a part in any order; ``sender`` is a 32-byte key."""
        part_bytes = _part_bytes_of(part)
        if part_bytes is None:
            return PartRefusal.CONTRADICTION
        key = TransferKey(sender, mode, auth is not Auth.NONE, part.transfer_id)
        # A part that is repeated after the end must not begin the file anew.
        if key in self._finished:
            return PartRefusal.REPEATED
        transfer = self._transfers.get(key)
        begins = transfer is None
        if transfer is None:
            refusal = self._refusal(key, part)
            if refusal is not None:
                return refusal
            transfer = self._begin(key, part, part_bytes, auth, now)
        elif not _fits(transfer, part, part_bytes):
            return PartRefusal.CONTRADICTION
        if transfer.have[part.index]:
            return PartRefusal.REPEATED
        return self._keep(key, transfer, part, auth, now, begins=begins)

    def finish(self, key: TransferKey) -> None:
        """Forget a transfer, complete or not, but for its name: no later part begins it anew."""
        transfer = self._transfers.pop(key, None)
        if transfer is None:
            return
        self.announced_bytes -= transfer.total_bytes
        self._finished[key] = None
        if len(self._finished) > FINISHED_MAX:
            self._finished.popitem(last=False)

    def expire(self, now: Instant) -> Sequence[TransferKey]:
        """Forget and return the transfers that have been idle for ``IDLE_MS``; what was kept of them can go."""
        idle = [key for key, each in self._transfers.items() if now >= after_ms(each.touched_at, IDLE_MS)]
        for key in idle:
            self.finish(key)
        return idle

    def _refusal(self, key: TransferKey, part: FilePart) -> PartRefusal | None:
        if part.total_bytes > self._file_bytes_max or part.count > PARTS_COUNT_MAX:
            return PartRefusal.TOO_BIG
        # One sender must not take every place.
        of_sender = sum(each.sender == key.sender for each in self._transfers)
        if len(self._transfers) >= TRANSFERS_MAX or of_sender >= SENDER_TRANSFERS_MAX:
            return PartRefusal.TOO_MANY
        # Counted as announced: what has begun may always be finished.
        if self.announced_bytes + part.total_bytes > self._transfers_bytes_max:
            return PartRefusal.TOO_MANY
        return None

    def _begin(self, key: TransferKey, part: FilePart, part_bytes: int, auth: Auth, now: Instant) -> _Incoming:
        have = bytearray(part.count)
        transfer = _Incoming(part.digest, part.count, part.total_bytes, part.name, part_bytes, have, auth, now)
        self._transfers[key] = transfer
        self.announced_bytes += part.total_bytes
        return transfer

    def _keep(
        self, key: TransferKey, transfer: _Incoming, part: FilePart, auth: Auth, now: Instant, *, begins: bool
    ) -> PartTaken:
        transfer.have[part.index] = 1
        transfer.have_count += 1
        transfer.received_bytes += len(part.data)
        transfer.touched_at = now
        # A file is proved as weakly as its weakest part.
        transfer.auth = max(transfer.auth, auth, key=_WEAKNESS.index)
        offset_bytes = part.index * transfer.part_bytes
        is_last = transfer.have_count == transfer.count
        return PartTaken(key, offset_bytes, begins, transfer.auth, transfer.received_bytes, is_last)


_WEAKNESS: Final = (Auth.BOUND, Auth.LEGACY, Auth.AMBIGUOUS, Auth.NONE)


def _fits(transfer: _Incoming, part: FilePart, part_bytes: int) -> bool:
    same = (transfer.digest, transfer.count, transfer.total_bytes, transfer.name, transfer.part_bytes)
    return same == (part.digest, part.count, part.total_bytes, part.name, part_bytes)


def _part_bytes_of(part: FilePart) -> int | None:
    """Return how long every part but the last is, or None when this one's length is impossible."""
    size, last = len(part.data), part.count - 1
    if part.count == 1:
        return size if size == part.total_bytes else None
    if part.index < last:
        part_bytes, rest = size, part.total_bytes - last * size
    else:
        # From the last part: all others must have one and the same length.
        part_bytes, rest = divmod(part.total_bytes - size, last)
        part_bytes, rest = (0, 0) if rest else (part_bytes, size)
    return part_bytes if 0 < rest <= part_bytes else None
