"""Observations of a simulated MERK network: one named tuple per kind of event, and the only input of its invariants.

Nodes and clients emit them. A frame is identified by the 16 bytes that identify it in DELIVERY (specs/merk.md 10.3).
"""

from typing import NamedTuple

__all__ = [
    "Arrived",
    "Bundled",
    "Dialled",
    "Drawn",
    "Dropped",
    "Due",
    "Exposed",
    "Extended",
    "Forwarded",
    "Gathered",
    "Injected",
    "KeyShown",
    "MailDue",
    "MailGiven",
    "MailRead",
    "MailStored",
    "MailTaken",
    "Meshed",
    "OutcomeDue",
    "ReadReported",
    "Remembered",
    "Reported",
    "Sent",
    "Stolen",
    "Taken",
    "WrittenDue",
]


class Remembered(NamedTuple):
    """A node has linked, by its own dial and for a while, with one that nobody configured."""

    node: int
    url: str
    is_stored: bool
    """Whether the address is in the node's store."""


class Sent(NamedTuple):
    """Somebody honest put a frame on its way to the node; it may be the same one again."""

    line: int
    """Number of the connection; never used twice."""
    frame: bytes
    target: bytes
    size_bytes: int
    """Of the whole frame."""


class Arrived(NamedTuple):
    """A frame that is not NODE_INFO or HANDSHAKE came over somebody's connection."""

    line: int
    key: bytes
    """Whose connection it is."""
    frame: bytes
    target: bytes
    """First 32 bytes of its payload."""
    origin: str
    """``honest`` when somebody honest made it, byte for byte, ``peer`` when a hostile node did in another's name,
    ``resigned`` when it did in its own, ``client`` when a hostile client did, else ``nobody``."""


class Taken(NamedTuple):
    """A client handed a message to its application."""

    key: bytes
    frame: bytes
    auth: str
    """Value of ``sealing.Auth``."""
    is_theirs: bool
    """Whether the sender that it names has made it."""
    is_plain: bool
    """Whether it is DATA, which nobody signs."""
    is_aimed: bool
    """Whether it was made for this client, where it was encrypted."""


class Dropped(NamedTuple):
    """A client turned down a frame that somebody honest had made for it."""

    key: bytes
    refusal: str


class KeyShown(NamedTuple):
    """A client got the agreement key of another."""

    key: bytes
    is_true: bool


class Reported(NamedTuple):
    """A sender got the outcome of a frame."""

    line: int
    frame: bytes
    code: int
    """A ``DeliveryCode``."""
    is_target_known: bool
    """Whether anybody with the target's key was ever connected."""
    is_silence_likely: bool
    """Whether a link of the sender's node was disturbed, new or with a hostile node lately."""
    is_target_shaky: bool
    """Whether a connection of the target was disturbed, new or over lately, or it is hostile."""
    is_crowded: bool
    """Whether enough was sent to the target lately to fill a queue."""


class Due(NamedTuple):
    """The node has had a frame for long enough."""

    frame: bytes
    is_owed: bool
    """Whether a path of one hop at most existed, undisturbed, for long enough before and since."""


class WrittenDue(NamedTuple):
    """Long enough ago a sender got DELIVERED for a frame."""

    frame: bytes
    is_excused: bool
    """Whether a connection of the recipient was disturbed or has ended in the meantime."""


class OutcomeDue(NamedTuple):
    """The node has had a frame for so long that its sender must know the outcome."""

    line: int
    frame: bytes
    is_owed: bool
    """Whether the sender asked for outcomes, and its connection stands and was not disturbed."""


class Extended(NamedTuple):
    """A client that has said no EXT_HELLO got a NODE_INFO of ours."""

    line: int
    subtype: int


class Drawn(NamedTuple):
    """Whoever has passed a challenge on to an honest client got a frame that is meant for it."""

    node: int
    frame: bytes
    is_known: bool
    """Whether that client has proved itself to the node, in this life of the node."""


class Stolen(NamedTuple):
    """A hostile node that said it has the recipient was sent a frame and keeps it, or is one too many to deny it."""

    frame: bytes


class Forwarded(NamedTuple):
    """A hostile node was sent a frame by an honest one."""

    node: int
    """Who sent it."""
    frame: bytes
    hop: int
    is_own: bool
    """Whether the node names itself as origin, and the frame's sender was connected to it lately."""
    is_invited: bool
    """Whether the hostile node said, about when it was asked, that it has the recipient."""
    is_shown: bool
    """Whether the recipient is a client of the hostile node, whose presence it can show."""


class Bundled(NamedTuple):
    """An honest node forwarded several frames to a hostile one by one message; each is ``Forwarded``, too."""

    node: int
    """Who did so."""
    is_right: bool
    """Whether the hostile node understands that, and every length in the message is right."""


class Gathered(NamedTuple):
    """An honest node sent a hostile one a notice of many frames."""

    node: int
    """Who said so."""
    is_right: bool
    """Whether the hostile node understands that, and every id is of a frame that it brought and had no outcome of."""


class Injected(NamedTuple):
    """A hostile node forwards a frame that it once got, under an id that it has not used before."""

    frame: bytes


class MailStored(NamedTuple):
    """A sender got STORED for a frame to the owner of a mailbox."""

    owner: bytes
    frame: bytes


class MailGiven(NamedTuple):
    """A frame came over a connection of a mailbox's owner."""

    owner: bytes
    frame: bytes
    life: int
    """How often its node was started."""


class MailRead(NamedTuple):
    """The owner's program took a frame."""

    owner: bytes
    frame: bytes


class ReadReported(NamedTuple):
    """The writer's client reports that the owner's program has taken a frame."""

    owner: bytes
    frame: bytes


class Exposed(NamedTuple):
    """Somebody else than its target has opened what a frame carries."""

    frame: bytes


class MailTaken(NamedTuple):
    """The node has the owner's TAKEN of a frame."""

    owner: bytes
    frame: bytes
    life: int


class MailDue(NamedTuple):
    """The owner was at its node for long enough, after the faults have ended, to get everything."""

    owner: bytes


class Dialled(NamedTuple):
    """A node's relay wants a connection."""

    node: int
    life: int
    """How often the node was started."""
    url: str
    only_public: bool
    is_configured: bool
    is_private_allowed: bool
    """Whether this node may dial private addresses that it has learnt."""
    is_from_client: bool
    """Whether only clients have ever named this address."""


class Meshed(NamedTuple):
    """After the faults have ended: which nodes a node is not linked with, and should be."""

    node: int
    missing: tuple[int, ...]

    def __str__(self) -> str:
        """Return a line for the trace."""
        return f"Meshed {self.node} {','.join(map(str, self.missing)) or '-'}"
