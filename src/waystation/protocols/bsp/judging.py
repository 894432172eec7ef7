"""Has an application judge a message in the context of its dependencies. Spec: seed 5, bsp 4."""

from functools import partial

from waystation.protocols.bsp.books import Books
from waystation.protocols.bsp.formats import Context
from waystation.protocols.bsp.graph import State, Vertex
from waystation.protocols.bsp.member import Membership

__all__ = ["judge"]


def judge(books: Books, group_id: bytes, vertex: Vertex) -> bool:
    """Return whether a message whose dependencies were all delivered is valid."""
    member = books.members[group_id]
    if not member.form.judges:
        return True
    body = books.read_body(group_id, vertex)
    if body is None:
        return False
    look = partial(_look, books, member)
    return member.form.validate(Context(group_id, vertex.message_id, vertex.timestamp, body, vertex.dependencies, look))


def _look(books: Books, member: Membership, message_id: bytes) -> tuple[int, bytes | None] | None:
    vertex = member.graph.vertices.get(message_id)
    if vertex is None or vertex.state is not State.DELIVERED:
        return None
    return vertex.timestamp, books.read_body(member.group.group_id, vertex)
