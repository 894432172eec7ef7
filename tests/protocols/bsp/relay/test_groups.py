"""Laws of protocols.bsp.node_groups: the store tells what its node is a member of."""

import pytest

from waystation.core.errors import HostError
from waystation.core.ids import PublicKey
from waystation.core.records import Record
from waystation.protocols.bsp.profile import BRIAR, SEED
from waystation.protocols.bsp.relay.groups import NodeGroup, changed_rows, read_node_groups
from waystation.store.memory import MemoryStore

KEYS = tuple(PublicKey(bytes((number,)) * 32) for number in range(3))
TEA = NodeGroup("seed", SEED.group(bytes(32), b"tea", "deps_v1"), "tea 茶", KEYS)
BARE = NodeGroup("briar", BRIAR.group(b"org.example", b"", "opaque"), "", ())


def stored(*groups: NodeGroup) -> MemoryStore:
    store = MemoryStore()
    store.commit(changed_rows(store, groups))
    return store


def test_groups_read_back_as_they_were_written():
    """Every field survives, with nothing in it as well."""
    assert sorted(read_node_groups(stored(TEA, BARE))) == sorted([TEA, BARE])


def test_many_groups_read_back():
    """Over any number of pages."""
    groups = [NodeGroup("seed", SEED.group(bytes(32), b"%d" % number, "opaque"), "", ()) for number in range(600)]

    assert sorted(read_node_groups(stored(*groups))) == sorted(groups)


def test_only_what_changed_is_written():
    """A start with the same configuration writes nothing; a group that is gone loses its row."""
    store = stored(TEA, BARE)
    renamed = BARE._replace(name="bare")

    assert changed_rows(store, [TEA, BARE]) == []
    store.commit(changed_rows(store, [renamed]))
    assert read_node_groups(store) == [renamed]


@pytest.mark.parametrize("cut", range(0, 60, 3))
def test_row_that_is_cut_is_refused(cut):
    """A row of another form is the store's fault."""
    (record,) = changed_rows(MemoryStore(), [TEA])
    assert record.value is not None
    store = MemoryStore()
    store.commit([Record(record.table, record.key, record.value[:cut])])

    with pytest.raises(HostError, match="damaged"):
        read_node_groups(store)
