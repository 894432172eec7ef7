"""LPRP for programs: messages left at a host for somebody who is not there, sealed, and kept until they arrive.

::

    async with LprpTenant(Path("me"), "lprp://KEY@host:4810") as tenant:
        await tenant.allow(friend)
        async for message in tenant.messages():
            print(message.sender.hex(), message.text)

    async with LprpSender(Path("me"), "lprp://KEY@host:4810") as sender:
        sent = await sender.send(recipient, "hello")
        print(sent.outcome.sentence, sent.outcome.advice)

A tenant holds a lease at one host; strangers pay with work for each packet, friends on its whitelist do not. What is
promised stands in ``lprp_tenant``.
"""

from waystation.protocols.lprp.client_events import (
    HostHeard,
    LeaseDoubted,
    LeaseGranted,
    LeaseRefused,
    PacketDropped,
    RequestOutcome,
    WhitelistAgreed,
    WhitelistFailed,
)
from waystation.protocols.lprp.client_settings import ClientSettings
from waystation.protocols.lprp.fragments import MESSAGE_BYTES_MAX, MESSAGE_ID_BYTES
from waystation.protocols.lprp.messages import Kind
from waystation.protocols.lprp.refusals import Refusal
from waystation.sdk.lprp_errors import LeaseRefusedError, WhitelistFailedError
from waystation.sdk.lprp_host import HostUrl, parse_key
from waystation.sdk.lprp_line import HostUnreachable, WorkEnded, Working
from waystation.sdk.lprp_message import Message
from waystation.sdk.lprp_outcome import Outcome, SendProgress, Sent
from waystation.sdk.lprp_sender import LprpSender
from waystation.sdk.lprp_solver import WorkPool, WorkProgress
from waystation.sdk.lprp_state import KEY_FILE, Lease, LprpState, WhitelistWish
from waystation.sdk.lprp_tenant import LprpTenant, TenantStatus

__all__ = [
    "KEY_FILE",
    "MESSAGE_BYTES_MAX",
    "MESSAGE_ID_BYTES",
    "ClientSettings",
    "HostHeard",
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
    "TenantStatus",
    "WhitelistAgreed",
    "WhitelistFailed",
    "WhitelistFailedError",
    "WhitelistWish",
    "WorkEnded",
    "WorkPool",
    "WorkProgress",
    "Working",
    "parse_key",
]
