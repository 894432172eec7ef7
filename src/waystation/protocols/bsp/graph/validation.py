"""Has the application validate a message whose dependencies were all delivered.

``BspDevice`` calls it when the graph finds a message ready. The bodies of the dependencies are read from the
repository, since a format may compare with them. Spec: seed 5, bsp 4.
"""

from functools import partial

from waystation.protocols.bsp.device.member import Membership
from waystation.protocols.bsp.device.repository import Repository
from waystation.protocols.bsp.graph.formats import Context
from waystation.protocols.bsp.graph.order import State, Vertex

__all__ = ["validate"]


def validate(repository: Repository, group_id: bytes, vertex: Vertex) -> bool:
    """Return whether a message whose dependencies were all delivered is valid."""
    member = repository.members[group_id]
    # Formats that accept everything spare us reading the body back.
    if not member.form.judges:
        return True
    body = repository.read_body(group_id, vertex)
    # BSP-JUDGED: without its body the message cannot be validated; ``delete`` refuses before it comes to this.
    if body is None:
        return False
    look = partial(_look, repository, member)
    return member.form.validate(Context(group_id, vertex.message_id, vertex.timestamp, body, vertex.dependencies, look))


def _look(repository: Repository, member: Membership, message_id: bytes) -> tuple[int, bytes | None] | None:
    vertex = member.graph.vertices.get(message_id)
    # Seed 5: validity depends on delivered messages alone, which every device has in the same form.
    if vertex is None or vertex.state is not State.DELIVERED:
        return None
    return vertex.timestamp, repository.read_body(member.group.group_id, vertex)
