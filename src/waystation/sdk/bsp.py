"""BSP for programs: groups of messages that several devices keep the same, whether they ever meet or not.

::

    async with BspPeer(Path("me")) as peer:
        group = await peer.create_group("talk")
        await peer.meet(bob, "bob", url="bsp+tls://bob.example:7443")
        await peer.share("talk", "bob")
        await peer.add("talk", b"hello")
        async for event in peer.news():
            if isinstance(event, Delivered):
                print(peer.message(event.group_id, event.message_id).body)

    await peer.export_file("bob", "to-bob.bsp")     # for whoever is never online
    await peer.import_file("from-bob.bsp")

What is promised stands in ``bsp_peer``. How an application reads its messages, and which are valid, it says in a
``ClientFormat``; ``cli/bsp_chat*.py`` is an example.
"""

from waystation.core.ids import PublicKey
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.events import Delivered, DeviceEvent, Dropped, Invalidated, PeerHolds, Settled, Stored
from waystation.protocols.bsp.formats import (
    FORMATS,
    ClientFormat,
    Context,
    DepsV1,
    InvalidMessageError,
    Opaque,
    deps_v1_body,
    deps_v1_content,
)
from waystation.protocols.bsp.graph import DEPENDENCIES_MAX, State
from waystation.protocols.bsp.groups import Group
from waystation.protocols.bsp.links import LinkTerms, Mode, Visibility
from waystation.protocols.bsp.machine import PeerDown, PeerUp
from waystation.protocols.bsp.messages import BODY_BYTES_MAX, ID_BYTES
from waystation.protocols.bsp.profile import PROFILES, Profile
from waystation.protocols.bsp.refusals import MalformedError, Refusal
from waystation.protocols.bsp.why import Explanation, PeerWhy
from waystation.sdk.bsp_carrier import Carrier, Desk
from waystation.sdk.bsp_files import ExportResult, ImportResult
from waystation.sdk.bsp_home import BspHome, HomeGroup, HomePeer, HomeShare
from waystation.sdk.bsp_message import GroupMessage, GroupStatus, PeerStatus, Status
from waystation.sdk.bsp_news import (
    BundleRefused,
    CarrierTrouble,
    FormatFailed,
    GroupLeftOut,
    NewsMissed,
    OrderRefused,
    PeerUnreachable,
)
from waystation.sdk.bsp_peer import BspPeer
from waystation.sdk.bsp_url import BspUrl, parse_key

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
    "CarrierTrouble",
    "ClientFormat",
    "Context",
    "Delivered",
    "DepsV1",
    "Desk",
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
    "PeerDown",
    "PeerHolds",
    "PeerStatus",
    "PeerUnreachable",
    "PeerUp",
    "PeerWhy",
    "Profile",
    "PublicKey",
    "Refusal",
    "Settled",
    "State",
    "Status",
    "Stored",
    "Visibility",
    "deps_v1_body",
    "deps_v1_content",
    "parse_key",
]
