"""The MERK client: sends messages to a public key, end-to-end encrypted, over a mesh of untrusted relays.

::

    async with waystation.merk.open("me", "wss://relay.example/merk") as client:
        sent = await client.send(target, "hello")
        print(sent.id.hex(), sent.sentence, sent.advice, await sent.read())
        async for message in client.messages():
            print(message.sender.hex(), message.auth.value, message.text)

``sent.outcome`` says whether the recipient's relay has accepted the message, ``sent.read()`` waits until the program of
the recipient has taken it. A relay allows one connection per key, the newest, so each program needs its own identity.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey
from waystation.protocols.merk.client.addresses import check_address
from waystation.protocols.merk.client.events import MessageDropped
from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.messages import MailboxState
from waystation.protocols.merk.payload.contents import Json, Raw, Text
from waystation.protocols.merk.payload.sealing import Auth, Mode
from waystation.sdk.errors import (
    CannotAnswerError,
    FileTooLargeError,
    HostileRelayError,
    KeyChangedError,
    KeyDiffersError,
    KeyUnknownError,
    UncertainError,
)
from waystation.sdk.home_lock import hold
from waystation.sdk.life import Opening
from waystation.sdk.merk.client import MerkClient
from waystation.sdk.merk.download_buffer import FileFailed, FileProgress
from waystation.sdk.merk.keys import KEY_FILE, create_keys, import_keys, load_keys, open_keys
from waystation.sdk.merk.mailbox import Mailbox, MailboxChanged
from waystation.sdk.merk.message import Message, ReceivedFile
from waystation.sdk.merk.outcome import Outcome
from waystation.sdk.merk.recipients import RECIPIENTS_FILE, Recipient, Recipients
from waystation.sdk.merk.relays import ServersLearnt
from waystation.sdk.merk.seen_store import SEEN_FILE, SeenDatabase
from waystation.sdk.merk.sent import MessageRead, SentMessage
from waystation.sdk.merk.servers import SERVERS_FILE, Server, Servers
from waystation.sdk.outcome import Sent
from waystation.sdk.relay_list import Connected, Disconnected
from waystation.sdk.renamed import renamed_names
from waystation.sdk.store_news import StoreFailed, StoreRecovered
from waystation.transport.http_get import TlsContext
from waystation.transport.silence import SILENCE_S

__all__ = [
    "KEY_FILE",
    "RECIPIENTS_FILE",
    "SEEN_FILE",
    "SERVERS_FILE",
    "Auth",
    "CannotAnswerError",
    "Connected",
    "Disconnected",
    "FileFailed",
    "FileProgress",
    "FileTooLargeError",
    "HostileRelayError",
    "Json",
    "KeyChangedError",
    "KeyDiffersError",
    "KeyUnknownError",
    "Keys",
    "Mailbox",
    "MailboxChanged",
    "MailboxState",
    "MerkClient",
    "Message",
    "MessageDropped",
    "MessageRead",
    "Mode",
    "Outcome",
    "Raw",
    "ReceivedFile",
    "Recipient",
    "Recipients",
    "SeenDatabase",
    "Sent",
    "SentMessage",
    "Server",
    "Servers",
    "ServersLearnt",
    "StoreFailed",
    "StoreRecovered",
    "Text",
    "UncertainError",
    "create_keys",
    "import_keys",
    "load_keys",
    "open",
    "open_keys",
]

_BUSY_WAIT_S: Final = 1.0  # a program that is just ending


def open(  # noqa: A001 - as in tarfile and gzip: read with the module's name
    home: Path | str,
    relays: str | Iterable[str] = (),
    *,
    only: bool = False,
    tls: TlsContext | None = None,
    salvage: bool = False,
    keep_trying: bool = False,
    mailbox: bool = False,
    silence_s: float = SILENCE_S,
    receipts: bool = True,
    on_event: Callable[[object], None] | None = None,
) -> Opening[MerkClient]:
    """Return a client to use in ``async with``, with its identity, recipients and servers in one folder.

    Args:
        home: The folder, made if absent.
        relays: Addresses to try before those of the list, such as ``wss://relay.example/merk``.
        only: Try nothing but ``relays``.
        tls: Context for ``wss``; None means the system's authorities.
        salvage: Make the best of what an original relay has mutilated.
        keep_trying: Begin although no relay can be reached yet.
        mailbox: Have the relay keep encrypted messages for us while no program of this identity is connected.
        silence_s: A relay from which nothing comes for so long is left, 1 to 3,600 seconds.
        receipts: Whether senders get a receipt for each message that this program has taken.
        on_event: See ``MerkClient``.

    Raises:
        LocalError: An address is none; on entering, no relay is known.
        HomeBusyError: On entering: another program is connected with this identity.
        RelayUnreachableError: On entering: no relay could be reached, and ``keep_trying`` is false.
        HostError: On entering: the folder cannot be used.
    """
    urls = [relays] if isinstance(relays, str) else list(relays)
    for url in urls:
        check_address(url)
    folder = Path(home)

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[MerkClient]:
        keys = open_keys(folder)
        busy = f"another program is connected with the identity in {home}; end it, or use another home"
        async with hold(folder / "merk.lock", busy, _BUSY_WAIT_S):
            servers = Servers(folder / SERVERS_FILE)
            if not urls and (only or not servers.in_order()):
                raise LocalError("no relay is known; name one, or add one to the list")
            client = MerkClient(
                urls,
                keys=keys,
                servers=servers,
                only=only,
                recipients=Recipients(folder / RECIPIENTS_FILE),
                tls=tls,
                salvage=salvage,
                downloads=folder,
                seen=SeenDatabase(folder / SEEN_FILE),
                receipts=receipts,
                on_event=on_event,
                mailbox=mailbox,
                silence_s=silence_s,
            )
            client.start()
            try:
                if not keep_trying:
                    await client.reached()
                yield client
            finally:
                await client.aclose()

    return Opening("the MERK client", opened())


if not TYPE_CHECKING:
    __getattr__ = renamed_names(
        __name__,
        {"open_merk": ("waystation.merk.open", open), "parse_key": ("waystation.PublicKey.parse", PublicKey.parse)},
    )
