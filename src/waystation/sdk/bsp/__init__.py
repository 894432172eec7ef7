"""The BSP client: groups of messages that devices synchronise over connections, relays or files.

::

    async with waystation.bsp.open("me") as client:
        await client.create_group("talk")
        await client.meet(bob, "bob", url="bsp+tls://bob.example:7443")
        await client.share("talk", "bob")
        sent = await client.send("talk", b"hello")
        await sent.settled()                              # every peer that shares the group has it
        async for message in client.messages("talk"):
            print(message.body)

    await client.export_file("bob", "to-bob.bsp")         # for a peer that is never online
    await client.import_file("from-bob.bsp")

``peer`` states the guarantees. An application defines its message format and which messages are valid in a
``ClientFormat``; ``waystation.examples.chat`` is an example.
"""

from typing import TYPE_CHECKING

from waystation.core.ids import PublicKey
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.device.events import (
    Delivered,
    DeviceEvent,
    Dropped,
    Invalidated,
    PeerHolds,
    Settled,
    Stored,
)
from waystation.protocols.bsp.device.groups import Group
from waystation.protocols.bsp.device.links import LinkTerms, Mode, Visibility
from waystation.protocols.bsp.device.why import Explanation, PeerWhy
from waystation.protocols.bsp.graph.formats import (
    FORMATS,
    ClientFormat,
    Context,
    DepsV1,
    InvalidMessageError,
    Opaque,
    deps_v1_body,
    deps_v1_content,
)
from waystation.protocols.bsp.graph.order import DEPENDENCIES_MAX, State
from waystation.protocols.bsp.home.status import GroupMessage, GroupStatus, PeerStatus, Status
from waystation.protocols.bsp.messages import BODY_BYTES_MAX, ID_BYTES
from waystation.protocols.bsp.profile import PROFILES, Profile
from waystation.protocols.bsp.refusals import MalformedError, Refusal
from waystation.protocols.bsp.stream.machine import PeerDown, PeerUp
from waystation.protocols.bsp.url import BspUrl
from waystation.sdk.bsp.carrier import Carrier, CarrierSession
from waystation.sdk.bsp.files import ExportResult, ImportResult
from waystation.sdk.bsp.home import BspHome, HomeGroup, HomePeer, HomeShare
from waystation.sdk.bsp.news import (
    BundleRefused,
    CarrierTrouble,
    FormatFailed,
    GroupLeftOut,
    NewsMissed,
    OrderRefused,
    PeerUnreachable,
    StoreFailed,
    StoreRecovered,
)
from waystation.sdk.bsp.outcome import Outcome, Sent
from waystation.sdk.bsp.peer import BspPeer
from waystation.sdk.renamed import renamed_names

__all__ = [
    "BODY_BYTES_MAX",
    "DEPENDENCIES_MAX",
    "FORMATS",
    "ID_BYTES",
    "PROFILES",
    "BspHome",
    "BspPeer",
    "BspUrl",
    "BundleRefused",
    "Carrier",
    "CarrierSession",
    "CarrierTrouble",
    "ClientFormat",
    "Context",
    "Delivered",
    "DepsV1",
    "DeviceEvent",
    "Dropped",
    "Explanation",
    "ExportResult",
    "FormatFailed",
    "Group",
    "GroupLeftOut",
    "GroupMessage",
    "GroupStatus",
    "HomeGroup",
    "HomePeer",
    "HomeShare",
    "ImportResult",
    "InvalidMessageError",
    "Invalidated",
    "KeyPair",
    "LinkTerms",
    "MalformedError",
    "Mode",
    "NewsMissed",
    "Opaque",
    "OrderRefused",
    "Outcome",
    "PeerDown",
    "PeerHolds",
    "PeerStatus",
    "PeerUnreachable",
    "PeerUp",
    "PeerWhy",
    "Profile",
    "PublicKey",
    "Refusal",
    "Sent",
    "Settled",
    "State",
    "Status",
    "StoreFailed",
    "StoreRecovered",
    "Stored",
    "Visibility",
    "deps_v1_body",
    "deps_v1_content",
    "open",
]


open = BspPeer  # noqa: A001 - as in tarfile and gzip: read with the module's name
"""Returns a client to use in ``async with``."""

if not TYPE_CHECKING:
    __getattr__ = renamed_names(__name__, {"parse_key": ("waystation.PublicKey.parse", PublicKey.parse)})
