"""The Strata client: publishes signed packets to relays, reads them back, and verifies every packet.

::

    async with waystation.strata.open("me", "wss://relay.example/strata") as client:
        sent = await client.send({"type": "POST", "text": "hello"})
        print(sent.sentence)
        async for delivery in client.messages(Filters(types=("POST",))):
            print(delivery.packet.author_id, delivery.packet.body["content"])

A client uses several relays and scores them; ``RelayClient`` uses one. Strata does not hide metadata: show
``METADATA_NOTICE`` to the users of your program. With ``messages(resume="my-bot")`` a restarted program continues at
its last position. With ``RelayClient.subscribe`` the program stores ``Subscription.cursor`` itself.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from waystation.protocols.strata.client.bootstrap import BootstrapDocument, Snapshot
from waystation.protocols.strata.client.identity import Identity, make_did_document
from waystation.protocols.strata.client.key_book import KeyBook
from waystation.protocols.strata.client.view import View
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.packet import Packet, packet_id_text, parse_packet_id
from waystation.protocols.strata.relay_uri import RelayUri, parse_relay, parse_relay_json
from waystation.rules.relay_choice import Profile
from waystation.rules.relay_state import Change
from waystation.sdk.errors import OutcomeUnknownError, RelayLiedError, RequestRefusedError
from waystation.sdk.life import Opening
from waystation.sdk.qr import draw_qr
from waystation.sdk.relay_list import Connected, Disconnected
from waystation.sdk.relay_scores import RelayEntry, RelayScores
from waystation.sdk.renamed import renamed_names
from waystation.sdk.store_news import StoreFailed, StoreRecovered
from waystation.sdk.strata.bootstrap import fetch_snapshots, load_document, load_gatekeepers
from waystation.sdk.strata.documents import fetch_documents
from waystation.sdk.strata.key_change import KeyChange, begin_change, finish_change, new_rotation, pending_change
from waystation.sdk.strata.keys import create_identity, load_identity, open_identity
from waystation.sdk.strata.many import ManyRelays
from waystation.sdk.strata.outcome import Outcome, Sent
from waystation.sdk.strata.privacy import METADATA_NOTICE, notice_once
from waystation.sdk.strata.relay import Receipt, RelayClient
from waystation.sdk.strata.subscription import Delivery, Subscription
from waystation.transport.http_get import TlsContext
from waystation.transport.silence import SILENCE_S

__all__ = [
    "METADATA_NOTICE",
    "SCORES_FILE",
    "Connected",
    "Delivery",
    "Disconnected",
    "Filters",
    "Identity",
    "KeyBook",
    "KeyChange",
    "ManyRelays",
    "Outcome",
    "OutcomeUnknownError",
    "Packet",
    "Profile",
    "Receipt",
    "RelayClient",
    "RelayEntry",
    "RelayEvent",
    "RelayLiedError",
    "RelayScores",
    "RelayUri",
    "RequestRefusedError",
    "Sent",
    "StoreFailed",
    "StoreRecovered",
    "Subscription",
    "View",
    "begin_change",
    "create_identity",
    "draw_qr",
    "fetch_documents",
    "fetch_snapshots",
    "finish_change",
    "load_document",
    "load_gatekeepers",
    "load_identity",
    "make_did_document",
    "new_rotation",
    "notice_once",
    "open",
    "packet_id_text",
    "parse_packet_id",
    "parse_relay",
    "parse_relay_json",
    "pending_change",
]

SCORES_FILE: Final = "relay_scores.db"


class RelayEvent(NamedTuple):
    """What has happened at one relay."""

    relay: str
    """Address; empty where it is about our own disk."""
    event: Connected | Disconnected | Change | StoreFailed | StoreRecovered
    """It was reached, lost or not reached; its state has changed, with the reason; our disk refuses, or no longer."""


def open(  # noqa: A001 - as in tarfile and gzip: read with the module's name
    home: Path | str,
    relays: str | Iterable[str] = (),
    *,
    only: bool = False,
    tls: TlsContext | None = None,
    profile: Profile = Profile.STANDARD,
    bootstrap_urls: Iterable[str] = (),
    bootstrap: BootstrapDocument | None = None,
    snapshots: Iterable[Snapshot] = (),
    silence_s: float = SILENCE_S,
    on_event: Callable[[RelayEvent], None] | None = None,
) -> Opening[ManyRelays]:
    """Return a client to use in ``async with``, with its identity and its relays in one folder.

    Args:
        home: Folder of key and scores, made if absent.
        relays: Addresses to use besides those known, in any spelling that ``parse_relay`` reads.
        only: Use ``relays`` and no other relay of the folder.
        tls: Context for ``wss``; None means the system's authorities.
        profile: Privacy profile that the user prefers.
        bootstrap_urls: Relays to try now and then.
        bootstrap: A checked document (``load_document``).
        snapshots: Advice of relays (``fetch_snapshots``).
        silence_s: A relay from which nothing comes for so long is left, 1 to 3,600 seconds.
        on_event: Gets every ``RelayEvent``.

    Raises:
        LocalError: An address is none.
        HostError: On entering: the folder cannot be used.
    """
    urls = [parse_relay(text).ws for text in ([relays] if isinstance(relays, str) else relays)]
    folder = Path(home)

    def on_relay(url: str, event: Connected | Disconnected | Change | StoreFailed | StoreRecovered) -> None:
        if on_event is not None:
            on_event(RelayEvent(url, event))

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[ManyRelays]:
        identity = open_identity(folder)
        with contextlib.closing(RelayScores(folder / SCORES_FILE)) as scores:
            async with ManyRelays(
                scores,
                urls,
                only=only,
                identity=identity,
                tls=tls,
                profile=profile,
                bootstrap_urls=bootstrap_urls,
                bootstrap=bootstrap,
                snapshots=snapshots,
                on_change=on_relay,
                on_connection=on_relay,
                on_store=partial(on_relay, ""),
                silence_s=silence_s,
            ) as client:
                yield client

    return Opening("the Strata client", opened())


if not TYPE_CHECKING:
    __getattr__ = renamed_names(
        __name__,
        {"open_strata": ("waystation.strata.open", open), "PublishReport": ("waystation.strata.Sent", Sent)},
    )
