"""Keeps a client's mailbox at its relay: opens and renews it, fetches what was kept, and says what the program took.

``MerkClient`` passes in the connection's events and what the program took. The relay keeps a frame until it gets TAKEN
for it, so that is said once the program has the message, and of what can never be given to it: a message that was taken
already, or one that cannot be opened. Parts of a file are taken with the file. What the program has not taken when the
client ends comes again to the next one.

Spec: specs/merk.md 7; MERK-MAIL, MERK-MAILTWICE.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
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
"""How long what was taken is gathered: what a crash within that time leaves is given again, and dropped."""
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
        established: Callable[[float], Awaitable[object]],
        clock: Callable[[], float],
        report: Callable[[object], None],
        *,
        wanted: bool,
    ) -> None:
        """Describe it.

        Args:
            signing: Who we are.
            say: Says something to the relay; returns False when it has not proved its key or has no mailboxes.
            established: Returns once there is a connection, within so many seconds.
            clock: Unix seconds.
            report: Gets ``MailboxChanged``.
            wanted: Whether to have one at every relay that takes us.
        """
        self._signing = signing
        self._say = say
        self._established = established
        self._clock = clock
        self._report = report
        self._wanted = wanted
        self._reads = self._knows = False
        self._relay, self._server = "", b""
        self._said: MailboxChanged | None = None
        self._asking: dict[asyncio.Future[MailboxChanged], MailboxState | None] = {}
        """Who waits for the relay's word, and which state is no answer."""
        self._waiting: OrderedDict[tuple[bytes, bytes], list[bytes]] = OrderedDict()
        """Hashes of the frames of each message, by sender and id, that arrived and was not taken, the oldest first."""
        self._hashes: set[bytes] = set()
        """All of them: whoever repeats frames must not have all that waits looked through."""
        self._taken: list[bytes] = []
        self._timers: dict[str, asyncio.TimerHandle] = {}

    # For programs

    async def open(self, timeout_s: float = 30.0) -> MailboxChanged:
        """Have the relay keep our mail while we are away, here and at relays to come; return what it says.

        Raises:
            RelayUnreachableError: There is no connection within ``timeout_s``.
            TimeoutError: It does not answer within as long.
        """
        self._wanted = True
        return await self._asked(self._open, timeout_s, not_yet=MailboxState.CLOSED)

    async def close(self, timeout_s: float = 30.0) -> MailboxChanged:
        """Have the relay keep no more mail, and delete what it has; return what it says. Raises as ``open``."""
        self._wanted = False
        return await self._asked(lambda: self._say(MailClose()), timeout_s, not_yet=MailboxState.OPEN)

    async def state(self, timeout_s: float = 30.0) -> MailboxChanged:
        """Return what the relay has said of our mailbox. Raises as ``open``."""
        await self._established(timeout_s)
        return self._said or await self._asked(lambda: self._knows, timeout_s)

    async def _asked(
        self, ask: Callable[[], bool], timeout_s: float, *, not_yet: MailboxState | None = None
    ) -> MailboxChanged:
        # A relay also says unasked how the mailbox stands, once it knows who we are: ``not_yet`` is no answer.
        await self._established(timeout_s)
        future: asyncio.Future[MailboxChanged] = asyncio.get_running_loop().create_future()
        self._asking[future] = not_yet
        if not ask():
            del self._asking[future]
            return MailboxChanged(self._relay, MailboxState.REFUSED, 0, 0, 0)
        async with asyncio.timeout(timeout_s):
            return await future

    # The connection

    def ready(self, relay: str, server: bytes, *, knows: bool) -> None:
        """A relay has taken us; ``knows`` is whether it proved its key and has mailboxes, and says how ours stands."""
        self._relay, self._server, self._said = relay, server, None
        self._knows = knows
        if self._wanted:
            self._open()
        self._flush()

    def changed(self, event: MailboxSaid) -> None:
        """The relay says how our mailbox stands."""
        self._said = said = MailboxChanged(self._relay, *event)
        for future in [future for future, not_yet in self._asking.items() if not_yet is not said.state]:
            del self._asking[future]
            if not future.done():
                future.set_result(said)
        if said.state is MailboxState.OPEN and said.until_ms - self._now_ms() < RENEW_MS and self._reads:
            self._open()
        self._fetch()
        self._report(said)

    def lost(self) -> None:
        """The connection is over."""
        self._said = None
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def end(self) -> None:
        """Say what is left to be said, and end."""
        self._flush()
        self.lost()
        for future in self._asking:
            future.cancel()

    # What arrives

    def read(self) -> None:
        """The program reads messages: fetch what was kept."""
        self._reads = True
        self._fetch()

    def arrived(self, sender: bytes, message_id: bytes, frame_hash: bytes) -> None:
        """A frame of a message, or of a file by its transfer id, was given to the inbox."""
        if not (frame_hash and self._has_mail) or frame_hash in self._hashes:
            return
        self._waiting.setdefault((sender, message_id), []).append(frame_hash)
        self._hashes.add(frame_hash)
        while len(self._hashes) > WAITING_MAX:
            # It stays in the mailbox, and is dropped and taken when it comes again.
            self._hashes.difference_update(self._waiting.popitem(last=False)[1])

    def taken(self, sender: bytes, message_id: bytes) -> None:
        """The program has this message: the relay may delete it."""
        for frame_hash in self._forget(sender, message_id):
            self._take(frame_hash)

    def not_taken(self, sender: bytes, message_id: bytes) -> None:
        """There was no room for this message: ask for it again later."""
        self._forget(sender, message_id)
        self._later("fetch", FETCH_AGAIN_S, self._fetch)

    def done(self, frame_hash: bytes) -> None:
        """What a frame brought was for the client itself: the relay may delete it."""
        if frame_hash and self._has_mail:
            self._take(frame_hash)

    def dropped(self, frame_hash: bytes, refusal: Refusal) -> None:
        """A frame was turned down: unless it waits already, it need not come again."""
        if not (frame_hash and self._has_mail):
            return
        if refusal is not Refusal.DUPLICATE or frame_hash not in self._hashes:
            self._take(frame_hash)

    @property
    def _has_mail(self) -> bool:
        return self._said is not None and (self._said.state is MailboxState.OPEN or self._said.messages_count > 0)

    def _forget(self, sender: bytes, message_id: bytes) -> list[bytes]:
        hashes = self._waiting.pop((sender, message_id), [])
        self._hashes.difference_update(hashes)
        return hashes

    def _open(self) -> bool:
        now_ms = self._now_ms()
        presence = make_presence(self._signing, PresenceKind.MAILBOX, self._server, now_ms, now_ms + WORD_MS)
        said = self._say(MailOpen(presence))
        if said and self._wanted:
            self._later("renew", RENEW_EVERY_S, self._open)
        return said

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
                # No relay of ours has us now: what it keeps comes again, and is dropped and taken then.
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
