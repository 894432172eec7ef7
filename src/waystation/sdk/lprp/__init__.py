"""The LPRP client: sealed messages that a host stores for offline recipients until they are delivered.

::

    async with waystation.lprp.open("me", "lprp://KEY@host:4810") as client:
        await client.allow(alice)
        sent = await client.send(alice, "hello")
        print(sent.sentence, sent.advice)
        async for message in client.messages():
            print(message.sender.hex(), message.text)

``open`` makes its client a tenant, with a lease at one host. Programs that only send use ``open_sender``. A host
demands proof of work for each packet of an unknown sender, and none from senders on the tenant's whitelist.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from waystation.core.ids import PublicKey
from waystation.protocols.lprp.client.events import (
    HostAnswered,
    LeaseDoubted,
    LeaseGranted,
    LeaseRefused,
    PacketDropped,
    RequestOutcome,
    WhitelistAgreed,
    WhitelistFailed,
)
from waystation.protocols.lprp.client.settings import ClientSettings
from waystation.protocols.lprp.messages import Kind
from waystation.protocols.lprp.payload.fragments import MESSAGE_BYTES_MAX, MESSAGE_ID_BYTES
from waystation.protocols.lprp.refusals import Refusal
from waystation.sdk.errors import LeaseRefusedError, WhitelistFailedError
from waystation.sdk.lprp.connection import HostUnreachable, WorkEnded, Working
from waystation.sdk.lprp.host import HostUrl
from waystation.sdk.lprp.message import Message
from waystation.sdk.lprp.outcome import Outcome, SendProgress, Sent
from waystation.sdk.lprp.sender import LprpSender
from waystation.sdk.lprp.solver import WorkPool, WorkProgress
from waystation.sdk.lprp.state import KEY_FILE, Lease, LprpState, WhitelistWish
from waystation.sdk.lprp.tenant import LprpTenant, TenantStatus
from waystation.sdk.renamed import renamed_names
from waystation.sdk.store_news import StoreFailed, StoreRecovered
from waystation.transport.silence import SILENCE_S

__all__ = [
    "KEY_FILE",
    "MESSAGE_BYTES_MAX",
    "MESSAGE_ID_BYTES",
    "ClientSettings",
    "HostAnswered",
    "HostUnreachable",
    "HostUrl",
    "Kind",
    "Lease",
    "LeaseDoubted",
    "LeaseGranted",
    "LeaseRefused",
    "LeaseRefusedError",
    "LprpSender",
    "LprpState",
    "LprpTenant",
    "Message",
    "Outcome",
    "PacketDropped",
    "Refusal",
    "RequestOutcome",
    "SendProgress",
    "Sent",
    "StoreFailed",
    "StoreRecovered",
    "TenantStatus",
    "WhitelistAgreed",
    "WhitelistFailed",
    "WhitelistFailedError",
    "WhitelistWish",
    "WorkEnded",
    "WorkPool",
    "WorkProgress",
    "Working",
    "open",
    "open_sender",
]


def open(  # noqa: A001 - as in tarfile and gzip: read with the module's name
    home: Path | str,
    host: HostUrl | str | None = None,
    *,
    keep_trying: bool = False,
    on_event: Callable[[object], None] | None = None,
    silence_s: float = SILENCE_S,
) -> LprpTenant:
    """Return a client to use in ``async with``: a tenant of one host, which receives and sends.

    Args:
        home: Folder of the identity, made if absent.
        host: ``lprp://KEY@host:port``; None means the host that this folder used last.
        keep_trying: Begin although the host cannot be reached, or gives no lease yet.
        on_event: See ``LprpTenant``.
        silence_s: A host from which nothing comes for so long is in doubt, 1 to 3,600 seconds.

    Raises:
        LocalError: ``host`` is no such address, or ``silence_s`` is out of range.
        LeaseRefusedError, RelayUnreachableError, HomeBusyError, HostError: On entering.
    """
    return LprpTenant(home, host, keep_trying=keep_trying, on_event=on_event, silence_s=silence_s)


def open_sender(
    home: Path | str,
    host: HostUrl | str | None = None,
    *,
    works: bool = True,
    on_event: Callable[[object], None] | None = None,
) -> LprpSender:
    """Return a client to use in ``async with`` that only sends; any number of them may use a folder.

    Args:
        home: As for ``open``.
        host: As for ``open``.
        works: Whether to do the work that a host demands of unknown senders.
        on_event: See ``LprpSender``.

    Raises:
        LocalError: ``host`` is no such address.
    """
    return LprpSender(home, host, works=works, on_event=on_event)


if not TYPE_CHECKING:
    __getattr__ = renamed_names(
        __name__,
        {
            "HostHeard": ("waystation.lprp.HostAnswered", HostAnswered),
            "parse_key": ("waystation.PublicKey.parse", PublicKey.parse),
        },
    )
