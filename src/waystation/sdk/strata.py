"""Strata for programs: publish signed packets to relays, read them back, and believe only what is proved.

::

    async with open_strata(Path("me"), ["wss://relay.example/strata"]) as strata:
        await strata.post({"type": "POST", "text": "hello"})
        async for delivery in strata.subscribe(Filters(types=("POST",))):
            print(delivery.packet.author_id, delivery.packet.body["content"])

``open_strata`` uses several relays and judges them; ``RelayClient`` is one of them. Strata is not metadata-private:
show ``METADATA_NOTICE`` to whoever uses your program. With ``subscribe(resume="my-bot")`` a program that was restarted
goes on where it was; ``RelayClient.subscribe`` leaves that to its caller, who keeps ``Subscription.cursor``.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Final

from waystation.protocols.strata.bootstrap import BootstrapDocument, Snapshot
from waystation.protocols.strata.key_book import KeyBook
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.packet import Packet, packet_id_text, parse_packet_id
from waystation.rules.relay_choice import Profile
from waystation.rules.relay_state import Change
from waystation.sdk.relay_scores import RelayEntry, RelayScores
from waystation.sdk.strata_connection import Connected, Disconnected
from waystation.sdk.strata_errors import OutcomeUnknownError, RelayLiedError, RequestRefusedError
from waystation.sdk.strata_keys import KEY_FILE, Identity, create_identity, load_identity
from waystation.sdk.strata_many import ManyRelays, PublishReport
from waystation.sdk.strata_privacy import METADATA_NOTICE, notice_once
from waystation.sdk.strata_relay import Receipt, RelayClient
from waystation.sdk.strata_subscription import Delivery, Subscription
from waystation.sdk.strata_uri import RelayUri, draw_qr, parse_relay, parse_relay_json
from waystation.sdk.strata_view import View
from waystation.transport.http_get import TlsContext

__all__ = [
    "METADATA_NOTICE",
    "SCORES_FILE",
    "Connected",
    "Delivery",
    "Disconnected",
    "Filters",
    "Identity",
    "KeyBook",
    "ManyRelays",
    "OutcomeUnknownError",
    "Packet",
    "Profile",
    "PublishReport",
    "Receipt",
    "RelayClient",
    "RelayEntry",
    "RelayLiedError",
    "RelayScores",
    "RelayUri",
    "RequestRefusedError",
    "Subscription",
    "View",
    "create_identity",
    "draw_qr",
    "load_identity",
    "notice_once",
    "open_strata",
    "packet_id_text",
    "parse_packet_id",
    "parse_relay",
    "parse_relay_json",
]

SCORES_FILE: Final = "relay_scores.db"


@contextlib.asynccontextmanager
async def open_strata(
    home: Path,
    urls: Iterable[str] = (),
    *,
    tls: TlsContext | None = None,
    profile: Profile = Profile.STANDARD,
    bootstrap_urls: Iterable[str] = (),
    bootstrap: BootstrapDocument | None = None,
    snapshots: Iterable[Snapshot] = (),
    on_change: Callable[[str, Change], None] | None = None,
    on_connection: Callable[[str, Connected | Disconnected], None] | None = None,
) -> AsyncIterator[ManyRelays]:
    """Open a client with its identity and its relays in one folder; both are made if absent.

    Args:
        home: Folder of key and scores.
        urls: Relays to use besides those known.
        tls: Context for ``wss``; None means the system's authorities.
        profile: Privacy profile that the user prefers.
        bootstrap_urls: Relays to try now and then.
        bootstrap: A checked document (``strata_bootstrap.load_document``).
        snapshots: Advice of relays (``strata_bootstrap.fetch_snapshots``).
        on_change: Told whenever a relay's state changes, with the reason.
        on_connection: Told whenever a relay is reached, lost, or not reached.

    Raises:
        HostError: The folder cannot be used.
    """
    identity = load_identity(home) if (home / KEY_FILE).exists() else create_identity(home)
    scores = RelayScores(home / SCORES_FILE)
    try:
        async with ManyRelays(
            scores,
            urls,
            identity=identity,
            tls=tls,
            profile=profile,
            bootstrap_urls=bootstrap_urls,
            bootstrap=bootstrap,
            snapshots=snapshots,
            on_change=on_change,
            on_connection=on_connection,
        ) as many:
            yield many
    finally:
        scores.close()
