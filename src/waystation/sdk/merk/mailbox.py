"""Keeps a client's mailbox at its relay: opens and renews it, fetches what was kept, and says what the program took.

``MerkRelays`` passes in the connection's events, ``Inbox`` what the program took. The relay keeps a frame until it hears
TAKEN for it, so that is said once the program has the message, and of what can never be given to it: a message that was
taken already, or one that cannot be opened. Parts of a file are taken with the file. What the program has not taken when
the client ends comes again to the next one.

Spec: specs/merk.md 7; MERK-MAIL, MERK-MAILTWICE.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from waystation.crypto.signing import KeyPair
from waystation.protocols.merk.client.events import MailboxSaid
from waystation.protocols.merk.messages import (
    MAIL_TAKEN_MAX,
    Info,
    MailboxState,
    MailClose,
    MailFetch,
    MailOpen,
    MailTaken,
    PresenceKind,
)
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.wire import make_presence

__all__ = ["Mailbox", "MailboxChanged"]

WORD_MS: Final = 2_592_000_000
"""For how long a mailbox is opened: 30 days, the most that a relay takes."""
RENEW_MS: Final = WORD_MS // 2
"""A mailbox whose time ends sooner is renewed when the client connects."""
RENEW_EVERY_S: Final = 86_400.0
TAKEN_EVERY_S: Final = 0.5
"""How long what was taken is gathered: a crash within that time has it given again, and dropped."""
FETCH_AGAIN_S: Final = 11.0
"""How long to wait before asking anew for what was dropped for want of room: a relay begins anew after ten seconds."""
WAITING_MAX: Final = 65_536
"""Frames that are remembered until they are taken: as many as a relay can be set to keep."""


class MailboxChanged(NamedTuple):
    """The relay has said how our mailbox there stands."""

    relay: str
    """Address of the relay."""
    state: MailboxState
    """OPEN, CLOSED, or REFUSED: it gives us none."""
    messages_count: int
    """How many messages, or parts of files, it keeps."""
    kept_bytes: int
    """Their bytes."""
    until_ms: int
    """Until when it keeps mail, Unix milliseconds; 0 when it keeps none."""


class Mailbox:
    """The mailbox of one client, at whichever relay it is connected to."""

    def __init__(
        self,
        signing: KeyPair,
        say: Callable[[Info], bool],
        clock: Callable[[], float],
        report: Callable[[object], None],
        *,
        wanted: bool,
    ) -> None:
        """Describe it.

        Args:
            signing: Who we are.
            say: Sends something to the relay; returns False when it has not proved its key or has no mailboxes.
            clock: Unix seconds.
            report: Gets ``MailboxChanged``.
            wanted: Whether to have one at every relay that takes us.
        """
        self._signing = signing
        self._say = say
        self._clock = clock
        self._report = report
        self._wanted = wanted
        self._reads = False
        self._relay, self._server = "", b""
        self.said: MailboxChanged | None = None
        """What this relay said last; None before."""
        self._heard: list[asyncio.Future[MailboxChanged]] = []
        self._waiting: OrderedDict[bytes, None] = OrderedDict()
        """Frames that arrived and were not taken, the oldest first."""
        self._taken: list[bytes] = []
        self._timers: dict[str, asyncio.TimerHandle] = {}

    # The connection

    def ready(self, relay: str, server: bytes) -> None:
        """A relay has taken us."""
        self._relay, self._server, self.said = relay, server, None
        if self._wanted:
            self.open()
        self._flush()

    def heard(self, event: MailboxSaid) -> None:
        """The relay says how our mailbox stands."""
        self.said = said = MailboxChanged(self._relay, *event)
        waiting, self._heard = self._heard, []
        for future in waiting:
            if not future.done():
                future.set_result(said)
        if said.state is MailboxState.OPEN and said.until_ms - self._now_ms() < RENEW_MS and self._reads:
            self.open()
        self._fetch()
        self._report(said)

    def lost(self) -> None:
        """The connection is over."""
        self.said = None
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def close(self) -> None:
        """Say what is left to be said, and end."""
        self._flush()
        self.lost()
        for future in self._heard:
            future.cancel()

    # Commands

    def open(self) -> bool:
        """Ask the relay to keep our mail; False when it has no mailboxes."""
        now_ms = self._now_ms()
        presence = make_presence(self._signing, PresenceKind.MAILBOX, self._server, now_ms, now_ms + WORD_MS)
        said = self._say(MailOpen(presence))
        if said and self._wanted:
            self._later("renew", RENEW_EVERY_S, self.open)
        return said

    def want(self, *, wanted: bool) -> bool:
        """Have a mailbox from now on, or none any more; False when the relay has no mailboxes."""
        self._wanted = wanted
        return self.open() if wanted else self._say(MailClose())

    def read(self) -> None:
        """The program reads messages: fetch what was kept."""
        self._reads = True
        self._fetch()

    async def answer(self) -> MailboxChanged:
        """Return what the relay says next about our mailbox."""
        future = asyncio.get_running_loop().create_future()
        self._heard.append(future)
        return await future

    # What arrives

    def arrived(self, frame_hash: bytes) -> None:
        """A frame was given to the inbox."""
        if frame_hash and self._has_mail:
            self._waiting[frame_hash] = None
            if len(self._waiting) > WAITING_MAX:
                self._waiting.popitem(last=False)  # it stays in the mailbox, and is dropped when it comes again

    def taken(self, hashes: Iterable[bytes]) -> None:
        """The program has these: the relay may delete them."""
        for frame_hash in hashes:
            if self._waiting.pop(frame_hash, self) is None:
                self._take(frame_hash)

    def dropped(self, frame_hash: bytes, refusal: Refusal) -> None:
        """A frame was not taken: only one for which there was no room may come again."""
        if refusal is Refusal.QUEUE_FULL:
            self._waiting.pop(frame_hash, None)
            self._later("fetch", FETCH_AGAIN_S, self._fetch)
        # One that waits already came a second time, over another connection.
        elif frame_hash and frame_hash not in self._waiting and self._has_mail:
            self._take(frame_hash)

    @property
    def _has_mail(self) -> bool:
        return self.said is not None and (self.said.state is MailboxState.OPEN or self.said.messages_count > 0)

    def _fetch(self) -> None:
        if self._reads and self._has_mail and "fetch" not in self._timers:
            self._say(MailFetch())

    def _take(self, frame_hash: bytes) -> None:
        self._taken.append(frame_hash)
        if len(self._taken) >= MAIL_TAKEN_MAX:
            self._flush()
        else:
            self._later("taken", TAKEN_EVERY_S, self._flush)

    def _flush(self) -> None:
        while self._taken:
            if not self._say(MailTaken(tuple(self._taken[:MAIL_TAKEN_MAX]))):
                # It is not the relay that keeps them, or there is none: what stays comes again and is dropped.
                self._taken.clear()
                return
            del self._taken[:MAIL_TAKEN_MAX]

    def _later(self, name: str, delay_s: float, then: Callable[[], object]) -> None:
        if name not in self._timers:

            def due() -> None:
                del self._timers[name]
                then()

            self._timers[name] = asyncio.get_running_loop().call_later(delay_s, due)

    def _now_ms(self) -> int:
        return int(self._clock() * 1_000)
