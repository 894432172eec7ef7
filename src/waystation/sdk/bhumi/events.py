"""The events that a Bhumi device reports, and the request object that its handler gets."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from waystation.core.ids import PublicKey
from waystation.protocols.bhumi.extension_messages import QaVerdict
from waystation.protocols.bhumi.payload.contents import Command, ContentType, decode_command

__all__ = [
    "AuthorityLearned",
    "Denied",
    "DeviceEvent",
    "Disconnected",
    "Handled",
    "Handler",
    "Listening",
    "Moved",
    "PeerJoined",
    "PeerOffline",
    "PeerOnline",
    "PresenceAsserted",
    "ProbeRefused",
    "Probed",
    "Request",
    "SenderEvent",
    "Trouble",
]


@dataclass(frozen=True, slots=True)
class Request:
    """What a peer asks."""

    peer: PublicKey
    """32-byte key."""
    alias: str
    """How we call the peer; its id52's beginning when it has no alias."""
    content_type: ContentType
    content: bytes
    is_legacy: bool = field(default=False, kw_only=True)
    """Whether it came in a legacy dialect, in which a relay may have written it (bhumi-v1, none) or paired itself."""

    @property
    def text(self) -> str:
        """The content as text; bytes that are no UTF-8 are replaced."""
        return self.content.decode("utf-8", errors="replace")

    def command(self) -> Command:
        """Return the content as a command; raises MalformedPayloadError when it is none."""
        return decode_command(self.content)


Handler = Callable[[Request], Awaitable[Any]]
"""Answers a request with text or bytes, and a command with anything that JSON can say, too."""


@dataclass(frozen=True, slots=True)
class Listening:
    """The relay has taken our registration."""

    relay: str
    confirmed: bool
    """False when this rests on the relay's silence, as with the original relay."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection ended, or could not be made."""

    relay: str
    reason: str
    retry_s: float
    """Seconds until the next try."""


@dataclass(frozen=True, slots=True)
class PeerJoined:
    """A peer used an invite."""

    peer: PublicKey
    alias: str
    is_legacy: bool = False
    """Whether the invite had no secret, so that a relay may have used it."""


@dataclass(frozen=True, slots=True)
class Handled:
    """A request was answered for the first time; the ACK has left if the connection is established."""

    request: Request
    ok: bool
    """False when the handler raised."""


@dataclass(frozen=True, slots=True)
class Denied:
    """A request was refused because its peer may not send it; no handler was called."""

    request: Request
    reason: str
    """What the answer says."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something could not be answered."""

    reason: str


@dataclass(frozen=True, slots=True)
class AuthorityLearned:
    """A relay has shown an authority that is trusted for it from now on, besides those that the user named."""

    relay: str
    sha256: bytes
    """Of its certificate in DER, 32 bytes."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The device has gone from one relay to another on purpose; answers under way still leave by the old one."""

    before: str
    after: str


@dataclass(frozen=True, slots=True)
class PresenceAsserted:
    """The relay knows where this device is, and may answer who asks."""

    relay: str
    ttl_s: int


@dataclass(frozen=True, slots=True)
class ProbeRefused:
    """The relay asked to have another one tried, and was refused."""

    relay: str
    candidate: str
    reason: str


@dataclass(frozen=True, slots=True)
class Probed:
    """Another relay was tried at our relay's wish; what came of it stays here."""

    candidate: str
    verdict: QaVerdict
    latency_s: float


@dataclass(frozen=True, slots=True)
class PeerOffline:
    """A request found that a peer is not connected; reported once, until it answers."""

    peer: PublicKey
    alias: str
    since_s: float
    """Unix seconds of the first request that found it so."""


@dataclass(frozen=True, slots=True)
class PeerOnline:
    """A peer that was offline has answered."""

    peer: PublicKey
    alias: str
    since_s: float
    """Unix seconds of the answer."""


SenderEvent = PeerOffline | PeerOnline | AuthorityLearned | Trouble
"""Every event of a sender."""

DeviceEvent = (
    Listening
    | Disconnected
    | PeerJoined
    | Handled
    | Denied
    | Trouble
    | Moved
    | PresenceAsserted
    | ProbeRefused
    | Probed
    | PeerOffline
    | PeerOnline
    | AuthorityLearned
)
"""Every event of a client, which is a device and a sender."""
