"""Why a message is where it is, in words: which flag, missing dependency, group or way to a peer it waits for."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.protocols.bsp.device import BspDevice
from waystation.protocols.bsp.graph import State, Vertex
from waystation.protocols.bsp.links import Visibility
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.standing import Standing

__all__ = ["Explanation", "Missing", "PeerWhy", "explain"]

_NOT_TAKEN: dict[Refusal, str] = {
    Refusal.QUOTA_FULL: "the quota of the group's owner is used up",
    Refusal.GROUP_FULL: "the group has as many messages as it may here",
    Refusal.DEVICE_FULL: "the device has as many messages as it can",
    Refusal.PENDING_FULL: "too many messages of the group wait for others",
    Refusal.IDENTITY_BANNED: "the group's owner is banned or gone",
}
_INVALID: dict[Refusal | None, str] = {
    Refusal.UNPARSABLE: "its body is not what the group's format can read",
    Refusal.TOO_MANY_DEPENDENCIES: "it names more than 64 dependencies",
    Refusal.NAMES_ITSELF: "it names itself as a dependency",
    Refusal.INVALID_DEPENDENCY: "a message that it depends on is invalid",
    Refusal.INVALID_IN_CONTEXT: "the application judged it invalid in the context of its dependencies",
}

_ONLY_RUNNING: Final = "only the program that runs can tell"


class Missing(NamedTuple):
    """A dependency that is not delivered."""

    message_id: bytes
    is_known: bool
    """Whether the message itself has come, and waits in turn."""


class PeerWhy(NamedTuple):
    """Where a message stands with one peer."""

    peer: PublicKey
    standing: Standing
    reason: str
    """One sentence."""


class Explanation(NamedTuple):
    """All there is to say about one message."""

    message_id: bytes
    vertex: Vertex | None
    """None when it has never come here."""
    reason: str
    """One sentence about its place in the graph."""
    missing: tuple[Missing, ...]
    peers: tuple[PeerWhy, ...]


def explain(
    device: BspDevice, group_id: bytes, message_id: bytes, now: Instant, *, is_running: bool = True
) -> Explanation:
    """Return why a message is where it is.

    Args:
        device: Whose message; one that was only read from a store will do.
        group_id: 32 bytes.
        message_id: 32 bytes.
        now: As of when waiting times are told.
        is_running: Whether the device knows its ways to peers; one that was read from a store beside the program that
            runs knows neither these nor what was offered or is under way, and does not pretend to.

    Raises:
        LocalError: The device is no member of the group.
    """
    graph = device.graph(group_id)
    vertex = graph.vertices.get(message_id)
    missing = tuple(
        Missing(each, graph.is_known(each)) for each in (graph.missing(vertex) if vertex is not None else ())
    )
    peers = tuple(_peers(device, group_id, message_id, vertex, now, is_running=is_running))
    refused = device.refused(message_id) if vertex is None else None
    if refused is not None:
        reason = (
            f"it came from {refused[0].hex()[:8]} and was not taken, so that its author keeps it: {_full(refused[1])}"
        )
    elif vertex is None and not is_running:
        reason = f"it has not come here; whether it was offered {_ONLY_RUNNING}"
    else:
        reason = _graph_reason(vertex, missing, peers)
    return Explanation(message_id, vertex, reason, missing, peers)


def _full(refusal: Refusal) -> str:
    return _NOT_TAKEN.get(refusal, refusal.value)


def _graph_reason(vertex: Vertex | None, missing: tuple[Missing, ...], peers: tuple[PeerWhy, ...]) -> str:
    if vertex is None:
        offered = sum(each.standing.offered for each in peers)
        who = "1 peer has" if offered == 1 else f"{offered} peers have"
        return f"it has not come here; {who} offered it" if offered else "nobody has offered or sent it"
    if vertex.state is State.INVALID:
        return f"it is invalid: {_INVALID.get(vertex.refusal, 'for a reason that was not kept')}"
    if vertex.state is not State.DELIVERED:
        never = sum(not each.is_known for each in missing)
        waits = f"it waits for {len(missing)} of its dependencies"
        return f"{waits}, {never} of which have never come here" if never else f"{waits}, which wait in turn"
    body = "" if vertex.body_present else "; its body was deleted"
    shared = "shared" if vertex.shared else "not shared with anybody"
    return f"it is delivered (number {vertex.order}) and {shared}{body}"


def _peers(
    device: BspDevice, group_id: bytes, message_id: bytes, vertex: Vertex | None, now: Instant, *, is_running: bool
) -> Iterator[PeerWhy]:
    for peer in device.audience(group_id):
        standing = device.standing(peer, group_id, message_id, now)
        yield PeerWhy(peer, standing, _peer_reason(standing, vertex, is_running=is_running))


def _peer_reason(standing: Standing, vertex: Vertex | None, *, is_running: bool) -> str:
    if vertex is None and not is_running:
        return f"whether it has offered it {_ONLY_RUNNING}"
    if vertex is None:
        return "has offered it; we ask for it at the next opportunity" if standing.offered else "has not offered it"
    if standing.holds:
        owed = "; we still owe it an acknowledgement" if standing.owes_ack else ""
        return f"holds it{owed}"
    if standing.visibility is not Visibility.SHARED:
        return "the group is visible to it, but not shared: we take its messages and send none"
    if not vertex.shared:
        return "the message is not shared"
    if not vertex.body_present:
        return "does not hold it, and never will from us: the body is gone"
    return _waiting_reason(standing) if is_running else _kept_reason(standing)


def _kept_reason(standing: Standing) -> str:
    """Return what the disk alone can tell of a message that a peer is not known to hold."""
    if not standing.copies:
        return f"is not known to hold it; what is under way {_ONLY_RUNNING}"
    seconds = standing.next_in_us // MICROSECONDS_PER_SECOND
    kept = f"a copy is in a file or at a relay, and is repeated there in {seconds} s at the earliest"
    return f"is not known to hold it; {kept}; what else is under way {_ONLY_RUNNING}"


def _waiting_reason(standing: Standing) -> str:
    times = "once" if standing.copies == 1 else f"{standing.copies} times"
    went = f"was offered or sent {times} without an answer" if standing.copies else "has not gone out yet"
    if standing.link is None:
        return f"does not hold it; it {went}, and no way to the peer is up"
    if standing.requested and not standing.next_in_us:
        return "has asked for it; it goes out at the next opportunity"
    if standing.next_in_us > 0:
        return (
            f"does not hold it; it {went}, and goes out again in {standing.next_in_us / MICROSECONDS_PER_SECOND:.1f} s"
        )
    return f"does not hold it; it {went}, and goes out at the next opportunity over {standing.link}"
