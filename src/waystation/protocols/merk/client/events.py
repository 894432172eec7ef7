"""The events that a MERK client machine reports to its application: a closed set.

``MerkClient.take_events`` returns them in order. Keys have 32 bytes; a frame's hash is the first 16 bytes of its
SHA-256.
Spec: specs/merk.md 2, 4, 7, 10.
"""

from typing import NamedTuple

from waystation.protocols.merk.messages import DeliveryCode, KeyAdvert, MailboxState, ServerEntry
from waystation.protocols.merk.payload.sealing import Opened
from waystation.protocols.merk.refusals import Refusal

__all__ = [
    "Ended",
    "Event",
    "FrameOutcome",
    "KeyFound",
    "KeyNotFound",
    "MailboxSaid",
    "MessageArrived",
    "MessageDropped",
    "Ready",
    "ReceiptArrived",
    "ServerAdded",
    "ServersListed",
]


class Ready(NamedTuple):
    """Frames may be sent from now on; a second time if the relay proves itself late."""

    server: bytes
    """Key that the relay names."""
    authenticated: bool
    """Whether the relay has proved that key (EXT_AUTH)."""
    features: int
    """``Feature`` bits of the relay; 0 for an original one."""


class MessageArrived(NamedTuple):
    """A frame for us that passed every check, for the first time."""

    opened: Opened
    frame_bytes: int
    """Size of the frame, its header included."""


class ReceiptArrived(NamedTuple):
    """A recipient's program has taken messages of ours; the recipient itself says so, in the bound form."""

    sender: bytes
    """32-byte key of that recipient."""
    message_ids: tuple[bytes, ...]
    """16 bytes each; any text of the sender's choosing, so only ids of messages to that sender count."""
    frame_hash: bytes = b""
    """16 bytes, of the frame that it came in."""


class MessageDropped(NamedTuple):
    """A frame was not taken."""

    refusal: Refusal
    sender: bytes | None
    """Who it says it is from, unproved; None when it does not say."""
    frame_hash: bytes = b""
    """16 bytes; empty of what is no frame of content."""


class MailboxSaid(NamedTuple):
    """The relay says how our mailbox there stands; laid out as ``messages.MailState``."""

    state: MailboxState
    messages_count: int
    kept_bytes: int
    until_ms: int


class FrameOutcome(NamedTuple):
    """What became of a frame that ``send_frame`` was given; each gets exactly one."""

    frame_hash: bytes
    code: DeliveryCode | None
    """None when it stays unknown: an original relay, silence, or the connection ended."""
    sent: bool = True
    """False when it never left: sending it again is safe. With TOO_LARGE this relay will never take it."""


class ServersListed(NamedTuple):
    """Answer to ``ask_servers``: unproved, and at most ``SERVERS_MAX`` of them."""

    entries: tuple[ServerEntry, ...]


class ServerAdded(NamedTuple):
    """The relay names one more server, unproved."""

    address: str


class KeyFound(NamedTuple):
    """Answer to ``ask_key``: the signature of the advert holds."""

    advert: KeyAdvert


class KeyNotFound(NamedTuple):
    """Answer to ``ask_key``: nobody knows, there is no key directory here, or nobody answered in time."""

    key: bytes


class Ended(NamedTuple):
    """The connection is over; last event of a machine."""

    refusal: Refusal | None
    """Why we closed it; None when the other side or the network did."""


Event = (
    Ready
    | MailboxSaid
    | MessageArrived
    | MessageDropped
    | ReceiptArrived
    | FrameOutcome
    | ServersListed
    | ServerAdded
    | KeyFound
    | KeyNotFound
    | Ended
)
