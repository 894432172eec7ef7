"""The queue of one tenant: accepted packets in their order, until the tenant says that it has them.

A packet that was accepted is never pushed out, so the bounds hold before acceptance. Spec: lprp 7; LPRP-C9.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from waystation.core.instant import Instant
from waystation.protocols.lprp.messages import RECIPIENT, SENDER, WINDOW_PACKETS
from waystation.protocols.lprp.refusals import Refusal

__all__ = ["PER_STRANGER_MAX", "QUEUE_MAX", "STRANGERS_MAX", "Letter", "Mailbox"]

QUEUE_MAX: Final = 256  # this and the next two: lprp 7; beyond them 402 (LPRP-FULL)
STRANGERS_MAX: Final = QUEUE_MAX // 4  # all senders outside the whitelist together
PER_STRANGER_MAX: Final = 16


class Letter:
    """One accepted packet, as it came."""

    __slots__ = (
        "accepted_ms",
        "attempt",
        "bundle",
        "data",
        "from_stranger",
        "gone",
        "index",
        "sent_at",
        "signature",
        "vouches",
    )

    def __init__(self, data: bytes, signature: bytes, *, from_stranger: bool, accepted_ms: int, attempt: int) -> None:
        """Describe a packet of 144 to 508 bytes, its first 64 too, that was accepted at ``accepted_ms`` (Unix ms)."""
        self.data = data
        self.signature = signature
        """The 64 bytes by which everybody names it."""
        self.from_stranger = from_stranger
        self.accepted_ms = accepted_ms
        self.attempt = attempt
        """Number of the delivery in the facts."""
        self.sent_at: Instant | None = None
        """When it last left, None for never."""
        self.gone = False
        """The queue has no more business with it."""
        self.bundle: int | None = None
        """Where it stands on disk: number of its bundle, None until that is written."""
        self.vouches = 0
        """For how many packets that name it it has spoken."""
        self.index = 0
        """Its place in the bundle."""

    @property
    def sender(self) -> bytes:
        """Key of 32 bytes."""
        return self.data[SENDER]

    @property
    def recipient(self) -> bytes:
        """Key of 32 bytes."""
        return self.data[RECIPIENT]


class Mailbox:
    """Letters by signature, oldest first."""

    __slots__ = ("_letters", "_per_stranger", "strangers_count")

    def __init__(self) -> None:
        """Start empty."""
        self._letters: dict[bytes, Letter] = {}
        self._per_stranger: dict[bytes, int] = {}
        self.strangers_count = 0
        """Letters from senders outside the whitelist."""

    def __len__(self) -> int:
        """Return how many letters wait."""
        return len(self._letters)

    def __iter__(self) -> Iterator[Letter]:
        """Yield the letters, oldest first."""
        return iter(self._letters.values())

    def __contains__(self, signature: bytes) -> bool:
        """Return whether the letter with this signature waits."""
        return signature in self._letters

    def find(self, signature: bytes) -> Letter | None:
        """Return the letter with this signature, if it waits."""
        return self._letters.get(signature)

    def refuses(self, sender: bytes, *, from_stranger: bool) -> Refusal | None:
        """Return why there is no room for one more letter of this sender, or None."""
        if len(self._letters) >= QUEUE_MAX:
            return Refusal.QUEUE_FULL
        if from_stranger and (
            self.strangers_count >= STRANGERS_MAX or self._per_stranger.get(sender, 0) >= PER_STRANGER_MAX
        ):
            return Refusal.STRANGERS_FULL
        return None

    @property
    def strangers_share(self) -> float:
        """How much of the room for strangers is taken, 0 to 1."""
        return self.strangers_count / STRANGERS_MAX

    def add(self, letter: Letter) -> None:
        """Put a letter behind the others."""
        assert letter.signature not in self._letters
        self._letters[letter.signature] = letter
        if letter.from_stranger:
            self.strangers_count += 1
            self._per_stranger[letter.sender] = self._per_stranger.get(letter.sender, 0) + 1

    def remove(self, signature: bytes) -> Letter | None:
        """Take a letter out and return it, or None when it is not here."""
        letter = self._letters.pop(signature, None)
        if letter is not None and letter.from_stranger:
            self.strangers_count -= 1
            left = self._per_stranger[letter.sender] - 1
            if left:
                self._per_stranger[letter.sender] = left
            else:
                del self._per_stranger[letter.sender]
        return letter

    def call_back(self) -> None:
        """Count what is under way as never sent: it went where its tenant is no more (LPRP-MOVED)."""
        for letter in self.window():
            letter.sent_at = None

    def window(self) -> Iterator[Letter]:
        """Yield the letters that may be under way together: the first 16 (LPRP-WINDOW)."""
        return islice(self._letters.values(), WINDOW_PACKETS)
