"""``MerkClient`` sends and receives encrypted messages over a mesh of relays, and reconnects by itself.

::

    async with MerkClient("wss://relay.example/merk", keys=keys) as merk:
        sent = await merk.send(target, "hello")
        print(sent.id.hex(), sent.sentence, "and read" if await sent.read() else "not read yet")
        async for message in merk.messages():
            print(message.sender.hex(), message.auth.value, message.text)

``protocols.merk.client`` makes all protocol decisions. This module keeps one connection open, to the first reachable
relay of the list. It looks up agreement keys and waits for outcomes. All other events go to ``on_event``.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey
from waystation.protocols.merk.client.addresses import check_address
from waystation.protocols.merk.client.events import MailboxSaid, MessageArrived, MessageDropped, ReceiptArrived
from waystation.protocols.merk.client.seen_messages import SeenMessages
from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.messages import MESSAGE_ID_BYTES, Feature, Info, MailTaken
from waystation.protocols.merk.payload.contents import Answer, Extended, FilePart, Json, Raw, Receipt, Text
from waystation.protocols.merk.payload.sealing import Auth, Mode, Opened
from waystation.protocols.merk.payload.transfers import OutgoingTransfer
from waystation.sdk.backoff import CAP_S, FIRST_S, Backoff
from waystation.sdk.errors import CannotAnswerError, KeyUnknownError, UncertainError
from waystation.sdk.life import Client, Life, Reading
from waystation.sdk.merk.asks import Asks, end_early
from waystation.sdk.merk.directory import Directory, Found
from waystation.sdk.merk.files import FileToSend, send_parts
from waystation.sdk.merk.inbox import Inbox
from waystation.sdk.merk.mailbox import Mailbox
from waystation.sdk.merk.message import Message
from waystation.sdk.merk.outcome import Outcome, outcome_of
from waystation.sdk.merk.receipts import Receipts
from waystation.sdk.merk.recipients import Recipients
from waystation.sdk.merk.relays import MerkRelays
from waystation.sdk.merk.sealer import Sealer
from waystation.sdk.merk.seen_store import SeenDatabase
from waystation.sdk.merk.sent import ReadWaits, SentMessage
from waystation.sdk.merk.servers import Servers
from waystation.sdk.relay_list import Connected, Disconnected
from waystation.sdk.renamed import warn_renamed
from waystation.sdk.store_news import StoreWatch
from waystation.transport.http_get import TlsContext
from waystation.transport.silence import SILENCE_S, SilencePolicy

__all__ = ["MerkClient"]


class MerkClient(Client):
    """A client of the mesh; use it in ``async with``, or ``start`` and ``aclose`` it."""

    def __init__(
        self,
        urls: str | Iterable[str] = (),
        *,
        keys: Keys,
        servers: Servers | None = None,
        only: bool = False,
        recipients: Recipients | None = None,
        tls: TlsContext | None = None,
        salvage: bool = False,
        extensions: bool = True,
        downloads: Path | None = None,
        seen: SeenDatabase | None = None,
        receipts: bool = True,
        mailbox: bool = False,
        on_event: Callable[[object], None] | None = None,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.time,
        retry_first_s: float = FIRST_S,
        retry_cap_s: float = CAP_S,
        silence_s: float = SILENCE_S,
    ) -> None:
        """Describe a client.

        Args:
            urls: ``wss://host/merk``, one or several; tried in this order, and before those of the list.
            keys: Who we are.
            servers: The list of relays; None begins with an empty one in memory.
            only: Try nothing but ``urls``.
            recipients: Pinned agreement keys; None begins without any, in memory.
            tls: Context for ``wss``; None means the system's authorities.
            salvage: Make the best of messages that an original relay has mutilated; they prove little.
            extensions: Speak what original relays do not know; they ignore it.
            downloads: Folder for files while they arrive; None means the system's place for temporary files.
            seen: Keeps the names of messages taken, closed with the client; None knows no replay after a restart.
            receipts: Whether senders get a receipt for each message that this program has taken.
            mailbox: Have every relay that takes us keep our mail while we are away.
            on_event: Gets ``Connected``, ``Disconnected``, ``MessageRead``, ``StoreFailed`` and what else happens.
            rng: Source of keys and jitter; anything but the default is for tests.
            clock: Unix seconds.
            retry_first_s: First pause between connections.
            retry_cap_s: Longest pause between connections.
            silence_s: A relay from which nothing comes for so long is left, 1 to 3,600 seconds.

        Raises:
            LocalError: An address is none.
        """
        given = [urls] if isinstance(urls, str) else list(urls)
        for url in given:
            check_address(url)
        self.keys = keys
        self.servers = servers if servers is not None else Servers()
        self._report = on_event if on_event is not None else lambda _event: None
        self._rng = rng if rng is not None else random.SystemRandom()
        self._clock = clock
        self._sealer = Sealer(keys, self._rng, clock)
        self._asks = Asks()
        self._inbox = Inbox(self._report, clock, downloads, self._on_taken, self._on_lost, self._asks.settle)
        self._store = seen
        self._seen = SeenMessages(seen)
        self._wants_receipts = receipts
        self._receipts = Receipts(self._send_receipt)
        self._reads = ReadWaits(seen)
        pins = recipients if recipients is not None else Recipients()
        settle = [self.servers.settle, pins.settle, *([seen.settle] if seen is not None else [])]
        disk = StoreWatch(self._report, settle)
        if seen is not None:
            seen.attempt = disk.attempt
        self._relays = MerkRelays(
            keys,
            self.servers,
            self._handle,
            urls=given,
            only=only,
            tls=tls,
            salvage=salvage,
            extensions=extensions,
            rng=self._rng,
            clock=clock,
            backoff=Backoff(self._rng, first_s=retry_first_s, cap_s=retry_cap_s),
            silence=SilencePolicy.of_seconds(silence_s),
            disk=disk,
            seen=self._seen,
            is_able=self._is_able,
        )
        say = self._say_mail
        self.mailbox = Mailbox(keys.signing, say, self._relays.established, clock, self._report, wanted=mailbox)
        """Our mailbox at the relay that we are connected to."""
        self._life = Life("the MERK client")
        self._directory = Directory(self._relays, pins, disk)

    # Life

    async def _open(self) -> None:
        self._relays.start()
        await self._relays.reached()

    def start(self) -> None:
        """Begin to connect, and go on for ever."""
        self._life.open()
        self._relays.start()

    def reconnect(self) -> None:
        """Try to connect now, as after a change of the network; a connection that stands stays."""
        self._life.check()
        self._relays.reconnect()

    async def reached(self) -> None:
        """Return once a relay has taken us; raises RelayUnreachableError when the first round found none."""
        self._life.check()
        await self._relays.reached()

    async def aclose(self) -> None:
        """End the connection and drop files that were not saved; safe to call twice."""
        self._life.close()
        if self._relays.connected:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_RECEIPTS_S):
                    await self._receipts.flush()
        await self._receipts.aclose()
        self.mailbox.end()
        await self._relays.aclose()
        await self._inbox.aclose()
        self._reads.close()
        self._asks.close()
        if self._store is not None:
            store, self._store = self._store, None
            store.close()

    @property
    def public_key(self) -> PublicKey:
        """Who we are, 32 bytes."""
        return self.keys.signing.public

    @property
    def relay(self) -> str | None:
        """Address of the relay that we are connected to now, or None."""
        return self._relays.relay

    # Receiving

    def messages(self) -> Reading[Message]:
        """Return an iterator over messages as they come; it ends when the client is closed.

        Raises:
            HostileRelayError: No relay will be tried any more.
        """
        self.mailbox.read()
        return self._life.read("messages()", self._inbox.messages)

    @property
    def waiting_count(self) -> int:
        """How many messages have arrived and were not taken."""
        return self._inbox.waiting_count

    # Keys of others

    async def agreement_key_of(self, target: str | bytes, *, timeout_s: float = 30.0) -> bytes | None:
        """Return a recipient's agreement key, pinned or from the key directory; None when it is unknown.

        Raises:
            LocalError: ``target`` is no key.
            KeyChangedError: It is another one than the pinned one.
            RelayUnreachableError: There is no connection within ``timeout_s``.
        """
        self._life.check()
        return (await self._directory.look_up(PublicKey.parse(target), timeout_s)).agreement_key

    def _is_able(self, key: bytes) -> bool:
        return self._directory.is_able(key)

    def accept_key(self, target: str | bytes) -> bool:
        """Take the changed key of a ``KeyChangedError`` for good; return whether there is one."""
        return self._directory.accept(PublicKey.parse(target))

    # Sending

    async def send(
        self,
        target: str | bytes,
        content: str | bytes | Json | Path | IO[bytes],
        *,
        mode: Mode = Mode.ENCRYPTED,
        agreement_key: str | bytes | None = None,
        timeout_s: float = 30.0,
        name: str | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> SentMessage:
        """Send a text, bytes, JSON or a file, and return what became of it.

        Args:
            target: The recipient's public key, in any spelling that ``PublicKey.parse`` reads.
            content: Text and JSON (``Json.of``) arrive as raw bytes in mode PLAIN. A path, a binary stream, and bytes
                with a ``name`` are a file: it goes in parts to a client of ours, else in one frame, and must not change
                meanwhile.
            mode: ENCRYPTED hides it from relays, SIGNED only proves who wrote it, PLAIN is for tests.
            agreement_key: The recipient's, when it is known by another way; pinned from now on, unless the recipient
                has published another one.
            timeout_s: How long to wait for a connection, for a file each time that it is lost.
            name: Of a file: what to call it, at most 255 bytes; its own name when None.
            on_progress: Of a file: gets accepted and all bytes.

        Returns:
            The outcome, ``UNKNOWN_TARGET`` also when nobody knows the recipient's key; the message's id; and ``read``.

        Raises:
            LocalError: ``target`` is no key, or the content cannot be sent: also bytes that a client of the original
                would take for something else once they are signed.
            FileTooLargeError: The recipient takes no parts, and the file is too large for one frame.
            KeyChangedError: The recipient has another key than before.
            KeyDiffersError: The recipient has published another key than the one given.
            RelayUnreachableError: There is no connection within ``timeout_s``; nothing was sent.
        """
        self._life.check()
        is_file = _is_file(content, name)
        if is_file and mode is Mode.PLAIN:
            raise LocalError("a plain message has no place for a file's name; send it signed or encrypted")
        key = PublicKey.parse(target)
        try:
            found = await self._found(key, mode, agreement_key, timeout_s)
        except KeyUnknownError as error:
            return SentMessage(Outcome.UNKNOWN_TARGET, failure=error, id=bytes(MESSAGE_ID_BYTES))
        if is_file:
            assert isinstance(content, bytes | Path) or hasattr(content, "read")
            with FileToSend(content, name, self._relays.frame_bytes_max) as file:  # type: ignore[arg-type]
                progress = on_progress or (lambda _accepted, _total: None)
                return await self._send_file(file, key, mode, found, timeout_s, progress)
        assert isinstance(content, str | bytes | Text | Raw | Json)
        frame, message_id = self._sealer.seal(key, mode, found, _plain(content))
        return await self._settle(key, mode, found, message_id, self._deliver(frame, timeout_s))

    async def ask(
        self, target: str | bytes, content: str | bytes | Text | Raw | Json, *, timeout_s: float = 30.0
    ) -> Message:
        """Send a text, bytes or JSON encrypted, and return the message with which the recipient answers it.

        That is an encrypted, bound one of this recipient that names the id of ours; ``messages()`` does not give it,
        but gives answers that come later, with ``answers`` set. Several may be asked at once.

        Raises:
            LocalError: ``target`` is no key, the content cannot be sent, or ``asks.ASKS_MAX`` questions wait already.
            CannotAnswerError: The recipient is not known to use a client of ours; nothing was sent.
            KeyUnknownError, KeyChangedError, RelayUnreachableError: As ``send``; nothing was sent.
            NotTakenError: It was certainly not delivered; the sentence is the outcome's.
            UncertainError: No answer came within ``timeout_s``; the recipient may have read it.
        """
        self._life.check()
        if _is_file(content, None):
            raise LocalError("a question is text, bytes or JSON; send a file with send")
        key = PublicKey.parse(target)
        found = await self._found(key, Mode.ENCRYPTED, None, timeout_s)
        if not found.is_ours:
            raise CannotAnswerError(key)
        frame, message_id = self._sealer.seal(key, Mode.ENCRYPTED, found, _plain(content))
        with self._asks.expect(key, message_id) as answer:
            delivery = self._deliver(frame, timeout_s)
            sending = asyncio.create_task(self._settle(key, Mode.ENCRYPTED, found, message_id, delivery))
            sending.add_done_callback(partial(end_early, answer))
            try:
                async with asyncio.timeout(timeout_s):
                    return await answer
            except TimeoutError:
                raise UncertainError(
                    f"{key.id52} has not answered within {timeout_s:g} s, and may have read it"
                ) from None
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)

    async def answer(
        self, message: Message, content: str | bytes | Text | Raw | Json, *, timeout_s: float = 30.0
    ) -> SentMessage:
        """Send a text, bytes or JSON encrypted to the sender of a message, as the answer to it; returns as ``send``.

        Raises:
            LocalError: The message is not an encrypted, bound one, so that its sender waits for no answer.
            KeyUnknownError, KeyChangedError, RelayUnreachableError: As ``ask``; nothing was sent.
        """
        self._life.check()
        if message.auth is not Auth.BOUND or message.mode is not Mode.ENCRYPTED or _is_file(content, None):
            raise LocalError(
                "only an encrypted, bound message has an answer, and that is text, bytes or JSON; use send"
            )
        found = await self._found(message.sender, Mode.ENCRYPTED, None, timeout_s)
        ours = Found(found.agreement_key, is_ours=True)  # it wrote in the bound form
        frame, message_id = self._sealer.seal(message.sender, Mode.ENCRYPTED, ours, Answer(message.id, _plain(content)))
        sending = self._deliver(frame, timeout_s)
        return await self._settle(message.sender, Mode.ENCRYPTED, ours, message_id, sending)

    async def send_text(self, target: str | bytes, text: str, **options: Any) -> Outcome:
        """Send a text; the old name of ``send``."""
        warn_renamed("MerkClient.send_text", "MerkClient.send")
        return (await self.send(target, text, **options)).outcome

    async def send_json(self, target: str | bytes, value: Any, **options: Any) -> Outcome:
        """Send a value as JSON; the old name of ``send`` with ``Json.of``."""
        warn_renamed("MerkClient.send_json", "MerkClient.send with Json.of(value)")
        return (await self.send(target, Json.of(value), **options)).outcome

    async def send_bytes(self, target: str | bytes, data: bytes, **options: Any) -> Outcome:
        """Send bytes; the old name of ``send``."""
        warn_renamed("MerkClient.send_bytes", "MerkClient.send")
        return (await self.send(target, data, **options)).outcome

    async def send_file(self, target: str | bytes, path: Path, **options: Any) -> Outcome:
        """Send a file; the old name of ``send`` with a path."""
        warn_renamed("MerkClient.send_file", "MerkClient.send with a path")
        return (await self.send(target, path, **options)).outcome

    async def _found(self, key: bytes, mode: Mode, agreement_key: str | bytes | None, timeout_s: float) -> Found:
        given = PublicKey.parse(agreement_key) if agreement_key is not None else None
        if mode is Mode.PLAIN:
            return Found(None, is_ours=False)
        await self._relays.established(timeout_s)
        return await self._directory.look_up(key, timeout_s, needed=mode is Mode.ENCRYPTED, given=given)

    async def _deliver(self, frame: bytes, timeout_s: float) -> Outcome:
        return outcome_of(await self._relays.deliver(frame, timeout_s))

    async def _settle(
        self, key: bytes, mode: Mode, found: Found, message_id: bytes, sending: Coroutine[Any, Any, Outcome]
    ) -> SentMessage:
        """Wait for the outcome of a message; its receipt may come before that."""
        can_be_read = found.is_ours and mode is Mode.ENCRYPTED
        reading = self._reads.add(key, message_id) if can_be_read else None
        outcome = await sending
        if outcome is Outcome.STORED and can_be_read and self._store is not None:
            self._reads.stored(key, message_id, int(self._clock() * 1_000))
        return SentMessage(outcome, id=message_id, reading=reading)

    async def _send_file(
        self,
        file: FileToSend,
        key: bytes,
        mode: Mode,
        found: Found,
        timeout_s: float,
        on_progress: Callable[[int, int], None],
    ) -> SentMessage:
        size = file.size_bytes
        if file.parts_count == 1 or not found.is_ours or Feature.DELIVERY_NOTICES not in self._relays.features:
            frame, message_id = self._sealer.seal(key, mode, found, file.whole())
            sent = await self._settle(key, mode, found, message_id, self._deliver(frame, timeout_s))
            if sent.ok:
                on_progress(size, size)
            return sent
        transfer_id, digest = self._rng.randbytes(MESSAGE_ID_BYTES), await file.digest()
        sending = send_parts(
            OutgoingTransfer(file.parts_count, self._rng),
            lambda index: self._sealer.seal(key, mode, found, file.part(index, transfer_id, digest))[0],
            partial(self._relays.deliver, timeout_s=timeout_s),
            lambda accepted_count: on_progress(min(size, accepted_count * file.part_bytes), size),
        )
        return await self._settle(key, mode, found, transfer_id, sending)

    # Receipts

    def _on_taken(self, message: Message) -> None:
        """Remember for good what the program has taken, and receipt it."""
        if message.mode is not Mode.PLAIN:
            time_ms = message.time_ms if message.auth is Auth.BOUND else None
            taken_ms = time_ms if time_ms is not None else int(self._clock() * 1_000)
            self._seen.taken(message.sender, message.message_id, taken_ms)
        if self._wants_receipts and message.mode is Mode.ENCRYPTED and message.auth is Auth.BOUND:
            self._receipts.add(message.sender, message.message_id)
        self.mailbox.taken(message.sender, message.message_id)

    def _on_lost(self, sender: bytes, message_id: bytes) -> None:
        self._seen.not_taken(sender, message_id)
        self.mailbox.not_taken(sender, message_id)

    def _say_mail(self, info: Info) -> bool:
        """Say something about the mailbox; that messages were taken only once no power cut makes them new."""
        if isinstance(info, MailTaken) and self._store is not None:
            self._store.sync()
        return self._relays.say_mail(info)

    async def _send_receipt(self, sender: bytes, receipt: Receipt) -> bool:
        """Send a receipt and return whether somebody may have it; by then no power cut makes new what it names."""
        if self._store is not None:
            self._store.sync()
        agreement_key = await self._directory.key_for_receipt(sender, _RECEIPT_WITHIN_S)
        if agreement_key is None:
            return False
        frame, _ = self._sealer.seal(sender, Mode.ENCRYPTED, Found(agreement_key, is_ours=True), receipt)
        return not (await self._deliver(frame, _RECEIPT_WITHIN_S)).retry_safe

    # What happens

    def _handle(self, event: object) -> None:
        if isinstance(event, MessageArrived):
            self._directory.note_sender(event.opened)
            self.mailbox.arrived(event.opened.sender, _name_of(event.opened), event.opened.frame_hash)
            self._inbox.take(event, self._relays.relay or "")
        elif isinstance(event, ReceiptArrived):
            for read in self._reads.settle(event):
                self._report(read)
            self.mailbox.done(event.frame_hash)
        elif isinstance(event, MailboxSaid):
            self.mailbox.changed(event)
        else:
            if isinstance(event, Connected):
                knows = Feature.MAILBOX in self._relays.features
                self.mailbox.ready(event.relay, self._relays.server, knows=knows)
            elif isinstance(event, Disconnected):
                self.mailbox.lost()
            elif isinstance(event, MessageDropped):
                self.mailbox.dropped(event.frame_hash, event.refusal)
            if isinstance(event, BaseException):
                self._inbox.end(event)
            self._report(event)


def _name_of(opened: Opened) -> bytes:
    """Return the id under which the program takes what a frame brings: of a part of a file its transfer id."""
    content = opened.content.content if isinstance(opened.content, Extended) else opened.content
    return content.transfer_id if isinstance(content, FilePart) else opened.message_id


def _plain(content: str | bytes | Text | Raw | Json) -> Text | Raw | Json:
    return Text(content) if isinstance(content, str) else Raw(content) if isinstance(content, bytes) else content


def _is_file(content: object, name: str | None) -> bool:
    """Return whether a content is sent as a file; raises LocalError for what is none of the kinds."""
    if isinstance(content, Path) or (isinstance(content, bytes) and name is not None):
        return True
    if isinstance(content, str | bytes | Text | Raw | Json):
        return False
    if hasattr(content, "read") and hasattr(content, "seekable"):
        return True
    kinds = "text, bytes, JSON (Json.of(value)), a pathlib.Path or a binary stream"
    raise LocalError(f"content is {kinds}, not {type(content).__name__}")


_LAST_RECEIPTS_S: Final = 1.0  # for what the program took just before it closes
_RECEIPT_WITHIN_S: Final = 10.0
"""How long a receipt waits for a connection."""
