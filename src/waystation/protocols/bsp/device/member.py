"""One group that this device is a member of: its graph, its size, and the peers that share it.

The repository keeps one for each group.
"""

from collections.abc import Callable
from typing import NamedTuple

from waystation.core.ids import PublicKey
from waystation.protocols.bsp.device.flags import Sharing
from waystation.protocols.bsp.device.groups import Group
from waystation.protocols.bsp.graph.formats import ClientFormat
from waystation.protocols.bsp.graph.order import MessageGraph, State, Vertex

__all__ = ["Membership", "Usage"]


class Usage(NamedTuple):
    """The messages and bytes of a group on this device."""

    live_count: int
    """Messages whose body is here."""
    live_bytes: int
    """Their bodies together."""
    tombstones: int
    """Messages whose body is gone."""


class Membership:
    """The state of one group, without bodies."""

    __slots__ = ("emptied", "form", "graph", "group", "hasher", "live_bytes", "live_count", "next_seq", "sharings")

    def __init__(
        self, group: Group, graph: MessageGraph, form: ClientFormat, hasher: Callable[[int, bytes], bytes]
    ) -> None:
        self.group = group
        self.graph = graph
        self.form = form
        self.hasher = hasher
        """Makes an identifier of timestamp and body."""
        self.sharings: dict[PublicKey, Sharing] = {}
        self.emptied: set[bytes] = set()
        """Messages that were deleted before they were delivered."""
        self.next_seq = 0
        self.live_count = 0
        self.live_bytes = 0

    def dependencies(self, body: bytes) -> tuple[bytes, ...]:
        """Return the dependencies of a body, each once; raises InvalidMessageError as the format does."""
        names = self.form.parse(body)
        # Spec 11.6: repeats count once.
        return tuple(names) if len(names) < 2 else tuple(dict.fromkeys(names))

    def usage(self) -> Usage:
        """Return the group's messages and bytes."""
        return Usage(self.live_count, self.live_bytes, len(self.graph.vertices) - self.live_count)

    def number(self, vertex: Vertex) -> None:
        """Give a new vertex its place among the flags."""
        # A number is never used twice: flags on disk are found by it.
        vertex.seq = self.next_seq
        self.next_seq += 1

    def weigh(self, vertex: Vertex, sign: int) -> None:
        """Count a body that came (1) or went (-1)."""
        self.live_count += sign
        self.live_bytes += sign * vertex.size_bytes

    def ordered(self) -> list[Vertex]:
        """Return all messages: delivered ones in their order, then the others by age."""
        return sorted(self.graph.vertices.values(), key=_place)


def _place(vertex: Vertex) -> tuple[bool, int, int, bytes]:
    # Delivered first, by their number; the others have order 0 and sort by age.
    return vertex.state is not State.DELIVERED, vertex.order, vertex.timestamp, vertex.message_id
