"""MERK for programs: send to a public key, encrypted to its owner, over a mesh of relays that nobody has to trust.

::

    async with open_merk(Path("me"), "wss://relay.example/merk") as merk:
        outcome = await merk.send_text(target, "hello")
        print(outcome.sentence, outcome.advice)
        async for message in merk.messages():
            print(message.sender.hex(), message.auth.value, message.text)

Messages are not kept anywhere: ``Outcome`` says at once whether a message has arrived. A key is connected once at a
time; who connects with it again takes the connection over, so each program needs an identity of its own.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Final

from waystation.protocols.merk.client_events import MessageDropped
from waystation.protocols.merk.contents import Json, Raw, Text
from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.sealing import Auth, Mode
from waystation.sdk.home_lock import hold
from waystation.sdk.merk_client import MerkClient
from waystation.sdk.merk_connection import Connected, Disconnected
from waystation.sdk.merk_errors import (
    FileTooLargeError,
    HostileRelayError,
    KeyChangedError,
    KeyDiffersError,
    KeyUnknownError,
)
from waystation.sdk.merk_keys import KEY_FILE, create_keys, import_keys, load_keys, open_keys, parse_key
from waystation.sdk.merk_message import Message, ReceivedFile
from waystation.sdk.merk_outcome import Outcome
from waystation.sdk.merk_recipients import RECIPIENTS_FILE, Recipient, Recipients
from waystation.sdk.merk_servers import SERVERS_FILE, Server, Servers
from waystation.sdk.merk_spool import FileFailed, FileProgress
from waystation.sdk.merk_standing import ServersLearnt
from waystation.transport.http_get import TlsContext

__all__ = [
    "KEY_FILE",
    "RECIPIENTS_FILE",
    "SERVERS_FILE",
    "Auth",
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
    "MerkClient",
    "Message",
    "MessageDropped",
    "Mode",
    "Outcome",
    "Raw",
    "ReceivedFile",
    "Recipient",
    "Recipients",
    "Server",
    "Servers",
    "ServersLearnt",
    "Text",
    "create_keys",
    "import_keys",
    "load_keys",
    "open_keys",
    "open_merk",
    "parse_key",
]

_BUSY_WAIT_S: Final = 1.0  # a program that is just ending


@contextlib.asynccontextmanager
async def open_merk(
    home: Path,
    urls: str | Iterable[str] = (),
    *,
    only: bool = False,
    tls: TlsContext | None = None,
    salvage: bool = False,
    keep_trying: bool = False,
    on_event: Callable[[object], None] | None = None,
) -> AsyncIterator[MerkClient]:
    """Open a client with its identity, recipients and servers in one folder; all are made if absent.

    Args:
        home: The folder.
        urls: Relays to try before those of the list.
        only: Try nothing but ``urls``.
        tls: Context for ``wss``; None means the system's authorities.
        salvage: Make the best of what an original relay has mutilated.
        keep_trying: Begin although no relay can be reached yet.
        on_event: See ``MerkClient``.

    Raises:
        HomeBusyError: Another program is connected with this identity.
        RelayUnreachableError: No relay could be reached, and ``keep_trying`` is false.
        HostError: The folder cannot be used.
        LocalError: An address is none.
    """
    keys = open_keys(home)
    busy = f"another program is connected with the identity in {home}; end it, or use another home"
    async with hold(home / "merk.lock", busy, _BUSY_WAIT_S):
        merk = MerkClient(
            urls,
            keys=keys,
            servers=Servers(home / SERVERS_FILE),
            only=only,
            recipients=Recipients(home / RECIPIENTS_FILE),
            tls=tls,
            salvage=salvage,
            spool=home,
            on_event=on_event,
        )
        merk.start()
        try:
            if not keep_trying:
                await merk.reached()
            yield merk
        finally:
            await merk.aclose()
