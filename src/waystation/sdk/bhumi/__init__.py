"""The Bhumi client: a device that answers requests, a sender that sends them, and the folder that both use.

::

    async with waystation.bhumi.open("alice", "tls://relay.example:8443") as client:
        token = client.invite("bob")                       # goes to bob, who calls accept(token)
        async for request in client.requests():            # or: await client.serve(handler)
            request.answer(f"hello {request.alias}")

    async with waystation.bhumi.open("bob", "tls://relay.example:8443") as client:
        peer = await client.accept(token, alias="alice")
        reply = await client.send(peer, "hi")
        print(reply.text if reply.ok else reply.sentence)

One identity may listen in one program and send in others at the same time. A client with a ``RelayBook`` chooses
among the relays in it and uses another one when its relay fails. ``move`` changes the relay on request. A client finds
a peer that has moved by asking the relays. ``Device`` and ``Sender`` can also be used alone.
"""

from waystation.protocols.bhumi.payload.contents import Command, ContentType, ResponseStatus
from waystation.protocols.bhumi.payload.invite import Invite, decode_invite, encode_invite
from waystation.sdk.backoff import Backoff
from waystation.sdk.bhumi.client import BhumiClient, IncomingRequest
from waystation.sdk.bhumi.device import Device
from waystation.sdk.bhumi.dialect import Dialect, command_result
from waystation.sdk.bhumi.events import (
    AuthorityLearned,
    Denied,
    DeviceEvent,
    Disconnected,
    Handled,
    Handler,
    Listening,
    Moved,
    PeerJoined,
    PeerOffline,
    PeerOnline,
    PresenceAsserted,
    Probed,
    ProbeRefused,
    Request,
    SenderEvent,
    Trouble,
)
from waystation.sdk.bhumi.outcome import Outcome, Reply
from waystation.sdk.bhumi.quality import RelayQuality
from waystation.sdk.bhumi.relay_book import RelayBook
from waystation.sdk.bhumi.sender import Sender
from waystation.sdk.bhumi.sending.recovery import Recovered
from waystation.sdk.bhumi.sending.retry import Timeouts
from waystation.sdk.bhumi.state import BhumiState, PeerRecord, Pending, PendingKind

__all__ = [
    "AuthorityLearned",
    "Backoff",
    "BhumiClient",
    "BhumiState",
    "Command",
    "ContentType",
    "Denied",
    "Device",
    "DeviceEvent",
    "Dialect",
    "Disconnected",
    "Handled",
    "Handler",
    "IncomingRequest",
    "Invite",
    "Listening",
    "Moved",
    "Outcome",
    "PeerJoined",
    "PeerOffline",
    "PeerOnline",
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
    "SenderEvent",
    "Timeouts",
    "Trouble",
    "command_result",
    "decode_invite",
    "encode_invite",
    "open",
]


open = BhumiClient  # noqa: A001 - as in tarfile and gzip: read with the module's name
"""Makes a client to use in ``async with``."""
