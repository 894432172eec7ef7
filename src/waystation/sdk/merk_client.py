"""MERK for programs: messages over a mesh of relays, encrypted to the recipient, over a connection that comes back.

::

    async with MerkClient("wss://relay.example/merk", keys=keys) as merk:
        outcome = await merk.send_text(target, "hello")
        async for message in merk.messages():
            print(message.sender.hex(), message.auth.value, message.text)

All decisions of the protocol are ``protocols.merk.client``'s; this keeps one connection standing, at the first relay of
the list that can be reached, finds agreement keys, and waits for outcomes. What happens besides goes to ``on_event``.
"""

import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from waystation.core.errors import LocalError
from waystation.crypto.aead_gcm import GCM_NONCE_BYTES
from waystation.crypto.agreement import SECRET_BYTES
from waystation.protocols.merk.client_events import MessageArrived
from waystation.protocols.merk.contents import Content, Extended, File, FilePart, Json, Plain, Raw, Text, is_signable
from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.messages import MESSAGE_ID_BYTES, DeliveryCode, Feature
from waystation.protocols.merk.sealing import Mode, data_frame, encrypted_frame, signed_frame
from waystation.protocols.merk.transfers import PART_BYTES, OutgoingTransfer, parts_count
from waystation.sdk.merk_directory import Directory
from waystation.sdk.merk_errors import FileTooLargeError
from waystation.sdk.merk_files import FileToSend, send_parts
from waystation.sdk.merk_inbox import Inbox
from waystation.sdk.merk_keys import parse_key
from waystation.sdk.merk_message import Message
from waystation.sdk.merk_outcome import Outcome, outcome_of
from waystation.sdk.merk_recipients import Recipients
from waystation.sdk.merk_servers import Servers, check_address
from waystation.sdk.merk_standing import StandingConnection
from waystation.transport.http_get import TlsContext

__all__ = ["FRAME_FILE_BYTES_MAX", "MerkClient"]

FRAME_FILE_BYTES_MAX: Final = 8_388_608 - 1_024
"""Largest file in one frame: what relays take by default (specs/merk.md 10.11), less header, keys, name and tag."""


class MerkClient:
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
        spool: Path | None = None,
        on_event: Callable[[object], None] | None = None,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.time,
        retry_first_s: float = 0.5,
        retry_cap_s: float = 30.0,
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
            spool: Folder for files while they arrive; None means the system's place for temporary files.
            on_event: Gets ``Connected``, ``Disconnected``, ``MessageDropped``, ``FileProgress`` and what else happens.
            rng: Source of keys and jitter; anything but the default is for tests.
            clock: Unix seconds.
            retry_first_s: First pause between connections.
            retry_cap_s: Longest pause between connections.

        Raises:
            LocalError: An address is none.
        """
        given = [urls] if isinstance(urls, str) else list(urls)
        for url in given:
            check_address(url)
        self.keys = keys
        self.servers = servers if servers is not None else Servers()
        self._tell = on_event if on_event is not None else lambda _event: None
        self._rng = rng if rng is not None else random.SystemRandom()
        self._clock = clock
        self._inbox = Inbox(self._tell, clock, spool)
        self._standing = StandingConnection(
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
            retry_first_s=retry_first_s,
            retry_cap_s=retry_cap_s,
        )
        self._directory = Directory(self._standing, recipients if recipients is not None else Recipients())

    # Life

    async def __aenter__(self) -> Self:
        self.start()
        try:
            await self.reached()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def start(self) -> None:
        """Begin to connect, and go on for ever."""
        self._standing.start()

    async def reached(self) -> None:
        """Return once a relay has taken us; raises RelayUnreachableError when the first round found none."""
        await self._standing.reached()

    async def aclose(self) -> None:
        """End the connection and drop files that were not saved; safe to call twice."""
        await self._standing.aclose()
        await self._inbox.aclose()

    @property
    def public_key(self) -> bytes:
        """Who we are, 32 bytes."""
        return self.keys.signing.public

    @property
    def relay(self) -> str | None:
        """Address of the relay that we are connected to now, or None."""
        return self._standing.relay

    # Receiving

    def messages(self) -> AsyncIterator[Message]:
        """Return an iterator over messages as they come; it ends when the client is closed.

        Raises:
            HostileRelayError: No relay will be tried any more.
        """
        return self._inbox.messages()

    @property
    def waiting_count(self) -> int:
        """How many messages have arrived and were not taken."""
        return self._inbox.waiting_count

    # Keys of others

    async def agreement_key_of(self, target: str | bytes, *, timeout_s: float = 30.0) -> bytes | None:
        """Return a recipient's agreement key, pinned or from the key directory; None when nobody knows.

        Raises:
            LocalError: ``target`` is no key.
            KeyChangedError: It is another one than the pinned one.
            RelayUnreachableError: There is no connection within ``timeout_s``.
        """
        return (await self._directory.look_up(parse_key(target), timeout_s)).agreement_key

    def accept_key(self, target: str | bytes) -> bool:
        """Take the changed key of a ``KeyChangedError`` for good; return whether there is one."""
        return self._directory.accept(parse_key(target))

    # Sending

    async def send_text(
        self,
        target: str | bytes,
        text: str,
        *,
        mode: Mode = Mode.ENCRYPTED,
        agreement_key: str | bytes | None = None,
        timeout_s: float = 30.0,
    ) -> Outcome:
        """Send a text and return what became of it.

        Args:
            target: The recipient's public key: 32 bytes, 64 hexadecimal digits, or an id52.
            text: In mode PLAIN it arrives as raw bytes.
            mode: ENCRYPTED hides it from relays, SIGNED only proves who wrote it, PLAIN is for tests.
            agreement_key: The recipient's, when it is known by another way; pinned from now on, unless the recipient
                has published another one.
            timeout_s: How long to wait for a connection.

        Raises:
            LocalError: ``target`` is no key, or the content cannot be sent.
            KeyUnknownError: Nothing can be encrypted for this recipient.
            KeyChangedError: The recipient has another key than before.
            KeyDiffersError: The recipient has published another key than the one given.
            RelayUnreachableError: There is no connection within ``timeout_s``; nothing was sent.
        """
        return await self._say(target, Text(text), mode, agreement_key, timeout_s)

    async def send_json(
        self,
        target: str | bytes,
        value: Any,
        *,
        mode: Mode = Mode.ENCRYPTED,
        agreement_key: str | bytes | None = None,
        timeout_s: float = 30.0,
    ) -> Outcome:
        """Send a value as JSON; else as ``send_text``."""
        return await self._say(target, Json.of(value), mode, agreement_key, timeout_s)

    async def send_bytes(
        self,
        target: str | bytes,
        data: bytes,
        *,
        mode: Mode = Mode.ENCRYPTED,
        agreement_key: str | bytes | None = None,
        timeout_s: float = 30.0,
    ) -> Outcome:
        """Send bytes that only the application understands; else as ``send_text``."""
        return await self._say(target, Raw(data), mode, agreement_key, timeout_s)

    async def send_file(
        self,
        target: str | bytes,
        path: Path,
        *,
        name: str | None = None,
        mode: Mode = Mode.ENCRYPTED,
        agreement_key: str | bytes | None = None,
        timeout_s: float = 30.0,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Outcome:
        """Send a file: in parts to a client of ours, else in one frame; else as ``send_text``.

        Args:
            target: As for ``send_text``.
            path: The file; it must not change meanwhile.
            name: What to call it, at most 255 bytes; its own name when None.
            mode: ENCRYPTED or SIGNED.
            agreement_key: As for ``send_text``.
            timeout_s: As for ``send_text``, and for each connection on the way.
            on_progress: Gets delivered and all bytes.

        Raises:
            FileTooLargeError: The recipient takes no parts, and it is too large for one frame.
        """
        if mode is Mode.PLAIN:
            raise LocalError("a plain message has no place for a file's name; send it signed or encrypted")
        seal, is_ours = await self._sealer(target, mode, agreement_key, timeout_s)
        called = path.name if name is None else name
        progress = on_progress or (lambda _delivered, _total: None)
        with FileToSend(path) as file:
            if file.size_bytes <= PART_BYTES or not (is_ours and self._has_notices):
                return await self._send_whole(file, called, seal, timeout_s, progress)
            return await self._send_parts(file, called, seal, timeout_s, progress)

    async def _say(
        self, target: str | bytes, content: Plain, mode: Mode, agreement_key: str | bytes | None, timeout_s: float
    ) -> Outcome:
        seal, _ = await self._sealer(target, mode, agreement_key, timeout_s)
        return outcome_of(await self._standing.deliver(seal(content), timeout_s))

    async def _sealer(
        self, target: str | bytes, mode: Mode, agreement_key: str | bytes | None, timeout_s: float
    ) -> "tuple[Callable[[Plain | FilePart], bytes], bool]":
        """Return what makes a frame for the recipient, and whether the recipient's client is one of ours."""
        key = parse_key(target)
        given = parse_key(agreement_key) if agreement_key is not None else None
        if mode is Mode.PLAIN:
            return partial(self._seal_plain, key), False
        await self._standing.ready(timeout_s)
        found = await self._directory.look_up(key, timeout_s, needed=mode is Mode.ENCRYPTED, given=given)
        if mode is Mode.SIGNED:
            return partial(self._seal_signed, key, found.is_ours), found.is_ours
        assert found.agreement_key is not None
        return partial(self._seal_encrypted, key, found.agreement_key, found.is_ours), found.is_ours

    def _seal_plain(self, target: bytes, content: Plain | FilePart) -> bytes:
        assert isinstance(content, Raw | Text | Json)
        data = content.data if isinstance(content, Raw) else content.text.encode()
        return data_frame(self.keys.signing, target, data, header_signature=True)

    def _seal_signed(self, target: bytes, is_ours: bool, content: Plain | FilePart) -> bytes:
        bare = isinstance(content, Raw) and not is_signable(content.data)
        return signed_frame(self.keys.signing, target, self._wrapped(content, is_ours=is_ours or bare))

    def _seal_encrypted(self, target: bytes, agreement_key: bytes, is_ours: bool, content: Plain | FilePart) -> bytes:
        return encrypted_frame(
            self.keys.signing,
            target,
            agreement_key,
            self._wrapped(content, is_ours=is_ours),
            ephemeral_secret=self._rng.randbytes(SECRET_BYTES),
            nonce=self._rng.randbytes(GCM_NONCE_BYTES),
        )

    def _wrapped(self, content: Plain | FilePart, *, is_ours: bool) -> Content:
        """Return the content with time and id where the recipient's client understands them."""
        if not is_ours:
            assert not isinstance(content, FilePart)
            return content
        return Extended(int(self._clock() * 1_000), self._rng.randbytes(MESSAGE_ID_BYTES), content)

    @property
    def _has_notices(self) -> bool:
        return Feature.DELIVERY_NOTICES in self._standing.features

    async def _send_whole(
        self,
        file: FileToSend,
        name: str,
        seal: Callable[[Plain | FilePart], bytes],
        timeout_s: float,
        on_progress: Callable[[int, int], None],
    ) -> Outcome:
        if file.size_bytes > FRAME_FILE_BYTES_MAX:
            raise FileTooLargeError(
                f"{name} has {file.size_bytes} bytes, and this recipient takes a file only in one frame of at most "
                f"{FRAME_FILE_BYTES_MAX}: it has no client of waystation, or the relay is an original one"
            )
        outcome = outcome_of(await self._standing.deliver(seal(File(name, file.whole())), timeout_s))
        if outcome.delivered:
            on_progress(file.size_bytes, file.size_bytes)
        return outcome

    async def _send_parts(
        self,
        file: FileToSend,
        name: str,
        seal: Callable[[Plain | FilePart], bytes],
        timeout_s: float,
        on_progress: Callable[[int, int], None],
    ) -> Outcome:
        size, count = file.size_bytes, parts_count(file.size_bytes)
        digest = await file.digest()
        transfer_id = self._rng.randbytes(MESSAGE_ID_BYTES)

        def frame_of(index: int) -> bytes:
            return seal(FilePart(transfer_id, digest, index, count, size, name, file.part(index)))

        def deliver(frame: bytes) -> Awaitable[DeliveryCode | None]:
            return self._standing.deliver(frame, timeout_s)

        def on_delivered(delivered_count: int) -> None:
            on_progress(min(size, delivered_count * PART_BYTES), size)

        return await send_parts(OutgoingTransfer(count, self._rng), frame_of, deliver, on_delivered)

    # What happens

    def _handle(self, event: object) -> None:
        if isinstance(event, MessageArrived):
            self._directory.heard(event.opened)
            self._inbox.take(event, self._standing.relay or "")
        else:
            if isinstance(event, BaseException):
                self._inbox.end(event)
            self._tell(event)
