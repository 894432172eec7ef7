"""The tables for received LPRP mail: packets already seen, parts of messages, and complete messages.

``Inbox`` writes and reads them in the folder's SQLite file. All changes of one batch of packets are written in one
transaction, before the packets are confirmed to the host. After that the host may delete them.
"""

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Final

from waystation.core.errors import HostError
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS
from waystation.sdk.lprp.message import Message
from waystation.sdk.lprp.parts import Parts
from waystation.sdk.lprp.state import LprpState

__all__ = ["INBOX_BYTES_MAX", "INBOX_COUNT_MAX", "Mail"]

INBOX_COUNT_MAX: Final = 4_096
INBOX_BYTES_MAX: Final = 67_108_864
SEEN_MAX: Final = 1_000_000  # 60 MB, two packets a second for as long as a packet may be old
TIDY_AFTER: Final = SEEN_MAX // 8  # packets; half a minute of all that a hostile host can make us take
_PREFIX_BYTES: Final = 16  # of a signature, as hosts remember them


class Mail:
    """The arrivals of one folder; a ``SeenPackets`` for the client machine."""

    def __init__(self, state: LprpState, *, life_ms: int) -> None:
        """Open the mail of a folder.

        Args:
            state: The folder.
            life_ms: How old a packet may be, at most, and still be taken.
        """
        self._state = state
        self.life_ms = life_ms
        """How old a packet may be, at most, and still be taken."""
        self.parts = Parts(state, life_ms=life_ms)
        """Messages that lack parts."""
        self._new_count = 0
        self._is_counted = True
        self._count = self._bytes = 0
        self.tidy()
        self._count_again()

    @property
    def waiting_count(self) -> int:
        """How many messages wait, handed out or not."""
        return self._count

    @property
    def full(self) -> bool:
        """Whether nothing more may come in for now."""
        return self._count >= INBOX_COUNT_MAX or self._bytes >= INBOX_BYTES_MAX

    # Packets

    def has(self, signature: bytes) -> bool:
        """Return whether the packet of this signature is kept, or was; no, when the disk cannot be read.

        Then it is taken again, and its message is known by its id.
        """
        with contextlib.suppress(HostError):
            return self._state.first("SELECT 1 FROM seen WHERE signature = ?", signature[:_PREFIX_BYTES]) is not None
        return False

    def add(self, signature: bytes, until_ms: int) -> None:
        """Note a packet by itself; those of ``keep`` are noted with what came of them, and cost nothing here."""
        if not self.has(signature):
            with contextlib.suppress(HostError):  # written later: one that is forgotten meanwhile is taken again
                self._state.change_later(partial(self.see, signature, until_ms))

    # Inside a transaction

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Make what is put inside durable together at its end, or none of it; raises HostError.

        The counts of one that fails are made anew by the next one.
        """
        with self._state.transaction():
            if not self._is_counted:
                self._count_again()
                self.parts.count_again()
            self._is_counted = False
            yield
        self._is_counted = True

    def _count_again(self) -> None:
        row = self._state.first("SELECT count(*), coalesce(sum(length(body)), 0) FROM inbox")
        self._count, self._bytes = int(row[0]), int(row[1])

    def see(self, signature: bytes, until_ms: int) -> None:
        """Note a packet until the clock rule keeps it out."""
        self._new_count += 1
        self._state.run("INSERT OR REPLACE INTO seen VALUES (?, ?)", signature[:_PREFIX_BYTES], until_ms)

    def put_message(self, sender: bytes, message_id: bytes, sent_ms: int, *, sealed: bool, body: bytes) -> int | None:
        """Keep a whole message and drop its parts; return its position, or None when it was kept before."""
        run, now_ms = self._state.run, self._state.now_ms()
        self.parts.forget(sender, message_id)
        until_ms = now_ms + self.life_ms + CLOCK_WINDOW_MS
        if not run("INSERT OR IGNORE INTO finished VALUES (?, ?, ?)", sender, message_id, until_ms):
            return None
        run(
            "INSERT INTO inbox (sender, message_id, sent_ms, received_ms, sealed, body) VALUES (?, ?, ?, ?, ?, ?)",
            sender, message_id, sent_ms, now_ms, sealed, body,
        )  # fmt: skip
        self._count += 1
        self._bytes += len(body)
        return int(self._state.first("SELECT last_insert_rowid()")[0])

    def is_finished(self, sender: bytes, message_id: bytes) -> bool:
        """Return whether a message has been kept whole, lately."""
        row = self._state.first("SELECT 1 FROM finished WHERE sender = ? AND message_id = ?", sender, message_id)
        return row is not None

    # Messages

    def positions(self) -> list[int]:
        """Return where messages wait, oldest first."""
        return [row[0] for row in self._state.all("SELECT position FROM inbox ORDER BY position")]

    def message(self, position: int) -> Message:
        """Return the message that waits at a position."""
        sender, message_id, body, sealed, sent_ms, received_ms = self._state.first(
            "SELECT sender, message_id, body, sealed, sent_ms, received_ms FROM inbox WHERE position = ?", position
        )
        return Message(sender, message_id, body, bool(sealed), sent_ms, received_ms, position, self.finish)

    async def finish(self, message: Message) -> None:
        """Forget a message that the program is done with; it never comes again.

        Raises:
            HostError: The disk refuses; it is forgotten once that takes writes again, or comes after a restart.
        """
        await self._state.unlocked()
        try:
            self._state.change_later(partial(self._state.run, "DELETE FROM inbox WHERE position = ?", message.position))
        except HostError:
            self._is_counted = False
            raise
        self._count -= 1
        self._bytes -= len(message.data)

    def tidy_if_much_is_new(self) -> None:
        """Forget as ``tidy`` does when so much was noted since that the tables may be far beyond their limits."""
        if self._new_count >= TIDY_AFTER:
            self.tidy()

    def tidy(self) -> None:
        """Forget what is out of date, and the oldest of what is too much."""
        self._new_count = 0
        run, now_ms = self._state.run, self._state.now_ms()
        with self.transaction():
            run("DELETE FROM seen WHERE until_ms < ?", now_ms)
            run("DELETE FROM finished WHERE until_ms < ?", now_ms)
            self.parts.tidy()
            for table in ("seen", "finished"):
                run(
                    f"DELETE FROM {table} WHERE until_ms <= (SELECT until_ms FROM {table}"  # noqa: S608 - names above
                    " ORDER BY until_ms DESC LIMIT 1 OFFSET ?)",
                    SEEN_MAX,
                )
