"""Explains why a message is in its state: the flag, missing dependency, group or link that it waits for.

The SDK and ``waystation bsp why`` call it with a device and a message's identifier. It only reads, so it is safe on a
store that a running program uses.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.protocols.bsp.device.delivery_status import DeliveryStatus
from waystation.protocols.bsp.device.links import Visibility
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.graph.order import State, Vertex
from waystation.protocols.bsp.refusals import Refusal

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
    Refusal.INVALID_IN_CONTEXT: "the application found it invalid in the context of its dependencies",
}

_ONLY_RUNNING: Final = "only the running program knows"


class Missing(NamedTuple):
    """A dependency that is not delivered."""

    message_id: bytes
    is_known: bool
    """Whether the message itself has come, and waits in turn."""


class PeerWhy(NamedTuple):
    """The delivery status of a message towards one peer, with a reason."""

    peer: PublicKey
    status: DeliveryStatus
    reason: str
    """One sentence."""


class Explanation(NamedTuple):
    """The state of one message, with reasons."""

    message_id: bytes
    vertex: Vertex | None
    """None when it has never come here."""
    reason: str
    """One sentence about its state in the graph."""
    missing: tuple[Missing, ...]
    peers: tuple[PeerWhy, ...]


def explain(
    device: BspDevice, group_id: bytes, message_id: bytes, now: Instant, *, is_running: bool = True
) -> Explanation:
    """Return why a message is where it is.

    Args:
        device: The device; one that was only read from a store will do.
        group_id: 32 bytes.
        message_id: 32 bytes.
        now: Waiting times count from here.
        is_running: Whether the device knows its links to peers; one that was read from a store beside the running
            program knows neither these nor what was offered or is under way, and claims neither.

    Raises:
        LocalError: The device is no member of the group.
    """
    graph = device.graph(group_id)
    vertex = graph.vertices.get(message_id)
    # Seed 5: a message is delivered only after all its dependencies.
    missing = tuple(
        Missing(each, graph.is_known(each)) for each in (graph.missing(vertex) if vertex is not None else ())
    )
    peers = tuple(_peers(device, group_id, message_id, vertex, now, is_running=is_running))
    # A message that was taken later is in the graph; its old refusal says nothing any more.
    refused = device.refused(message_id) if vertex is None else None
    if refused is not None:
        reason = (
            f"it came from {refused[0].hex()[:8]} and was rejected, so that its author keeps it: {_full(refused[1])}"
        )
    # Offers are in memory alone, so beside a running program "nobody offered it" would be a guess.
    elif vertex is None and not is_running:
        reason = f"it has not come here; whether it was offered {_ONLY_RUNNING}"
    else:
        reason = _graph_reason(vertex, missing, peers)
    return Explanation(message_id, vertex, reason, missing, peers)


def _full(refusal: Refusal) -> str:
    return _NOT_TAKEN.get(refusal, refusal.value)


def _graph_reason(vertex: Vertex | None, missing: tuple[Missing, ...], peers: tuple[PeerWhy, ...]) -> str:
    if vertex is None:
        offered = sum(each.status.offered for each in peers)
        who = "1 peer has" if offered == 1 else f"{offered} peers have"
        return f"it has not come here; {who} offered it" if offered else "no peer has offered or sent it"
    # Seed 5: final, also for what depends on it.
    if vertex.state is State.INVALID:
        return f"it is invalid: {_INVALID.get(vertex.refusal, 'for a reason that was not kept')}"
    if vertex.state is not State.DELIVERED:
        # Those that came and wait resolve by themselves; one that never came needs somebody who has it.
        never = sum(not each.is_known for each in missing)
        waits = f"it waits for {len(missing)} of its dependencies"
        return f"{waits}, {never} of which have never come here" if never else f"{waits}, which wait in turn"
    body = "" if vertex.body_present else "; its body was deleted"
    shared = "shared" if vertex.shared else "not shared with any peer"
    return f"it is delivered (number {vertex.order}) and {shared}{body}"


def _peers(
    device: BspDevice, group_id: bytes, message_id: bytes, vertex: Vertex | None, now: Instant, *, is_running: bool
) -> Iterator[PeerWhy]:
    for peer in device.audience(group_id):
        status = device.delivery_status(peer, group_id, message_id, now)
        yield PeerWhy(peer, status, _peer_reason(status, vertex, is_running=is_running))


def _peer_reason(status: DeliveryStatus, vertex: Vertex | None, *, is_running: bool) -> str:
    if vertex is None and not is_running:
        return f"whether it has offered it {_ONLY_RUNNING}"
    if vertex is None:
        return "has offered it; we ask for it at the next opportunity" if status.offered else "has not offered it"
    # Seed 4.1: a message that the peer holds is never sent to it, whatever else is true.
    if status.holds:
        owed = "; we still owe it an acknowledgement" if status.owes_ack else ""
        return f"holds it{owed}"
    # Seed 4.1 and Briar's third state: visible takes messages and sends none.
    if status.visibility is not Visibility.SHARED:
        return "the group is visible to it, but not shared: we take its messages and send none"
    # Seed 5: only a shared message goes out, and sharing one shares its dependencies as well.
    if not vertex.shared:
        return "the message is not shared"
    # A deleted body leaves identifier and dependencies, which cannot be sent as a message.
    if not vertex.body_present:
        return "does not hold it, and never will from us: the body is gone"
    return _waiting_reason(status) if is_running else _kept_reason(status)


def _kept_reason(status: DeliveryStatus) -> str:
    """Return the reason that the disk alone shows for a message that a peer is not known to hold."""
    # BSP-ROWS: only copies that may still arrive after a restart are on disk.
    if not status.copies:
        return f"is not known to hold it; what is under way {_ONLY_RUNNING}"
    seconds = status.next_in_us // MICROSECONDS_PER_SECOND
    kept = f"a copy is in a file or at a relay, and is repeated there in {seconds} s at the earliest"
    return f"is not known to hold it; {kept}; what else is under way {_ONLY_RUNNING}"


def _waiting_reason(status: DeliveryStatus) -> str:
    times = "once" if status.copies == 1 else f"{status.copies} times"
    went = f"was offered or sent {times} without an answer" if status.copies else "has not gone out yet"
    # Asked before the times: without a link nothing goes out, however due it is.
    if status.link is None:
        return f"does not hold it; it {went}, and no link to the peer is up"
    if status.requested and not status.next_in_us:
        return "has asked for it; it goes out at the next opportunity"
    if status.next_in_us > 0:
        return f"does not hold it; it {went}, and goes out again in {status.next_in_us / MICROSECONDS_PER_SECOND:.1f} s"
    return f"does not hold it; it {went}, and goes out at the next opportunity over {status.link}"
