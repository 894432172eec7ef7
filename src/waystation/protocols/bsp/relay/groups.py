"""Writes the groups of a node's configuration into its store, for other programs to read.

The relay puts the rows into a commit at its start. A program beside the node, such as ``waystation bsp add`` with only
the node's home folder, finds the groups there. The node rewrites them at every start and never reads them.

Layout of a row of ``bsp_node_groups``: group 32 -> version 1, then profile, client, descriptor, format and name, each
after its length (4, big-endian), then the keys it is shared with, 32 each.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from waystation.core.cursor import Cursor, ShortError
from waystation.core.errors import HostError
from waystation.core.ids import KEY_BYTES, PublicKey
from waystation.core.records import Record, Store
from waystation.protocols.bsp.device.groups import Group

__all__ = ["NodeGroup", "changed_rows", "read_node_groups"]

_TABLE: Final = "bsp_node_groups"
_VERSION: Final = 1
_PAGE: Final = 256
_STORE_EXIT_CODE: Final = 5
_LENGTH: Final = struct.Struct(">I")


class NodeGroup(NamedTuple):
    """One group of a node."""

    profile: str
    """Name of the profile that makes its identifiers."""
    group: Group
    name: str
    """For display."""
    share_with: tuple[PublicKey, ...]


def changed_rows(store: Store, groups: Iterable[NodeGroup]) -> list[Record]:
    """Return the records with which the store has these groups and no others."""
    wanted = {each.group.group_id: _value(each) for each in groups}
    there = dict(_rows(store))
    # Groups that were taken out of the configuration must not be shown as the node's.
    gone = [Record(_TABLE, key, None) for key in there if key not in wanted]
    return gone + [Record(_TABLE, key, value) for key, value in wanted.items() if there.get(key) != value]


def read_node_groups(store: Store) -> list[NodeGroup]:
    """Return the groups of the node whose store this is, as of its last start.

    Raises:
        HostError: A row is not one of ours (exit code 5).
    """
    return [_node_group(key, value) for key, value in _rows(store)]


def _rows(store: Store) -> Iterator[tuple[bytes, bytes]]:
    start = b""
    while page := list(store.scan(_TABLE, start, _PAGE)):
        yield from page
        start = page[-1][0] + b"\x00"


def _value(each: NodeGroup) -> bytes:
    group = each.group
    fields = (each.profile.encode(), group.client_id, group.descriptor, group.format.encode(), each.name.encode())
    framed = b"".join(_LENGTH.pack(len(field)) + field for field in fields)
    return bytes((_VERSION,)) + framed + b"".join(each.share_with)


def _node_group(key: bytes, value: bytes) -> NodeGroup:
    cursor = Cursor(value)
    try:
        version = cursor.take_u8()
        profile, client_id, descriptor, form, name = (cursor.take(cursor.take_u32()) for _ in range(5))
        keys = cursor.take(cursor.left)
        # Keys fill the row to its end; a rest means that the row was written by a newer waystation.
        if version != _VERSION or len(keys) % KEY_BYTES:
            raise ValueError("not a group")
        share_with = tuple(PublicKey(keys[at : at + KEY_BYTES]) for at in range(0, len(keys), KEY_BYTES))
        return NodeGroup(profile.decode(), Group(key, client_id, descriptor, form.decode()), name.decode(), share_with)
    except (ShortError, ValueError) as error:
        raise HostError(f"the store's table {_TABLE} is damaged", exit_code=_STORE_EXIT_CODE) from error
