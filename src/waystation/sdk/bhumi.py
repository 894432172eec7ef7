"""Bhumi for programs: a device that answers, a sender that asks, and the folder both keep.

::

    async def answer(request: Request) -> str:
        return f"hello {request.alias}"

    state = BhumiState(Path("me"))
    await Device(state, "tls://relay.example:8443", answer).run()

    async with Sender(BhumiState(Path("you")), "tls://relay.example:8443") as sender:
        peer = await sender.accept(token, alias="me")
        print((await sender.send(peer, "hi")).text)

One identity may listen in one program and send in another at the same time.
"""

from waystation.protocols.bhumi.invite import Invite, decode_invite, encode_invite
from waystation.protocols.bhumi.payloads import Command, ContentType, ResponseStatus
from waystation.sdk.bhumi_device import Device
from waystation.sdk.bhumi_dialect import Dialect, command_result
from waystation.sdk.bhumi_events import (
    DeviceEvent,
    Disconnected,
    Handled,
    Handler,
    Listening,
    Moved,
    PeerJoined,
    PresenceAsserted,
    Probed,
    ProbeRefused,
    Request,
    Trouble,
)
from waystation.sdk.bhumi_quality import RelayQuality
from waystation.sdk.bhumi_relay_book import RelayBook
from waystation.sdk.bhumi_retry import Backoff, Patience
from waystation.sdk.bhumi_sender import Recovered, Reply, Sender
from waystation.sdk.bhumi_state import BhumiState, PeerRecord, Pending, PendingKind

__all__ = [
    "Backoff",
    "BhumiState",
    "Command",
    "ContentType",
    "Device",
    "DeviceEvent",
    "Dialect",
    "Disconnected",
    "Handled",
    "Handler",
    "Invite",
    "Listening",
    "Moved",
    "Patience",
    "PeerJoined",
    "PeerRecord",
    "Pending",
    "PendingKind",
    "PresenceAsserted",
    "ProbeRefused",
    "Probed",
    "Recovered",
    "RelayBook",
    "RelayQuality",
    "Reply",
    "Request",
    "ResponseStatus",
    "Sender",
    "Trouble",
    "command_result",
    "decode_invite",
    "encode_invite",
]
