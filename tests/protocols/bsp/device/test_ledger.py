"""Laws of protocols.bsp.ledger: what is written comes back, and what is not ours is refused."""

import contextlib
import random

import pytest

from waystation.core.errors import HostError
from waystation.core.ids import PublicKey
from waystation.core.records import Record
from waystation.protocols.bsp.device.ledger import CHUNK_MESSAGES, KeptCopy, KeptFlags, Ledger
from waystation.protocols.bsp.graph.order import State, Vertex
from waystation.protocols.bsp.refusals import Refusal
from waystation.store.memory import MemoryStore

GROUP, OTHER = b"g" * 32, b"h" * 32
PEER = PublicKey(b"p" * 32)


def vertex(
    name: int, *, timestamp: int = 5, size_bytes: int = 3, dependencies=(b"d" * 32,), **fields: object
) -> Vertex:
    fields = {"seq": name, "stored_ms": 9, **fields}
    return Vertex(name.to_bytes(32, "big"), timestamp, size_bytes, dependencies, **fields)


def fields_of(one: Vertex) -> tuple[object, ...]:
    place = (one.message_id, one.timestamp, one.size_bytes, one.dependencies, one.seq, one.stored_ms)
    return (*place, one.state, one.order, one.shared, one.body_present, one.refusal)


VERTICES = [
    vertex(0),
    vertex(1, state=State.PENDING, dependencies=tuple(bytes([i]) * 32 for i in range(64))),
    vertex(2, state=State.DELIVERED, order=(1 << 32) - 1, shared=True, dependencies=(), size_bytes=0),
    vertex(3, state=State.DELIVERED, order=1, shared=True, body_present=False),
    vertex(4, state=State.INVALID, body_present=False, refusal=Refusal.TOO_MANY_DEPENDENCIES, dependencies=()),
    vertex(5, timestamp=(1 << 63) - 1, stored_ms=(1 << 60), seq=(1 << 32) - 1, size_bytes=32_768),
]


@pytest.mark.parametrize("one", VERTICES, ids=lambda one: str(one.seq))
def test_message_reads_back_with_every_field(one):
    """State, place, time, order, dependencies, reason and body survive."""
    store = MemoryStore()
    ledger = Ledger(store)
    body = bytes(one.size_bytes)

    store.commit([ledger.message(GROUP, one, body)])
    (read,) = ledger.read_messages(GROUP)

    assert fields_of(read) == fields_of(one)
    assert ledger.read_body(GROUP, read) == (body if one.body_present else None)


def test_later_state_holds_over_the_row_of_the_message():
    """State, order and sharing are those written last; body and dependencies are those of the message."""
    store = MemoryStore()
    ledger = Ledger(store)
    one = vertex(1, state=State.PENDING)
    store.commit([ledger.message(GROUP, one, b"abc")])
    one.state, one.order, one.shared = State.DELIVERED, 7, True

    store.commit([ledger.state(GROUP, one)])
    (read,) = ledger.read_messages(GROUP)

    assert fields_of(read) == fields_of(one)
    assert ledger.read_body(GROUP, read) == b"abc"


@pytest.mark.parametrize("state", [State.INVALID, State.DELIVERED])
def test_message_without_its_body_has_one_row(state):
    """What was deleted leaves neither body nor a second row."""
    store = MemoryStore()
    ledger = Ledger(store)
    one = vertex(1, state=State.PENDING)
    store.commit([ledger.message(GROUP, one, b"abc"), ledger.state(GROUP, one)])
    one.state, one.body_present = state, False

    store.commit(ledger.emptied(GROUP, one))
    (read,) = ledger.read_messages(GROUP)

    assert fields_of(read) == fields_of(one)
    assert not list(store.scan("bsp_states"))


@pytest.mark.parametrize("value", [b"", b"\x01\x02", b"\x02" + bytes(5), bytes(6), b"\x01" + bytes(6)])
def test_state_row_of_another_form_is_refused(value):
    """A state that is not one of ours is the store's fault."""
    store = MemoryStore()
    ledger = Ledger(store)
    one = vertex(1)
    store.commit([ledger.message(GROUP, one, b"abc"), Record("bsp_states", GROUP + one.message_id, value)])

    with pytest.raises(HostError, match="bsp_states is damaged"):
        list(ledger.read_messages(GROUP))


def test_bodies_of_many_messages_are_read_at_once():
    """Of any groups; what is not on disk is left out."""
    store = MemoryStore()
    ledger = Ledger(store)
    kept = [vertex(number, size_bytes=number) for number in range(4)]
    store.commit([ledger.message((GROUP, OTHER)[one.seq % 2], one, bytes([one.seq]) * one.seq) for one in kept])

    found = ledger.read_bodies([((GROUP, OTHER)[one.seq % 2], one) for one in (*kept, vertex(9))])

    assert found == {one.message_id: bytes([one.seq]) * one.seq for one in kept}


def test_groups_do_not_see_each_other():
    """The rows of a group are those that begin with its identifier, over any number of pages."""
    store = MemoryStore()
    ledger = Ledger(store)
    store.commit([ledger.message(group, vertex(n), b"abc") for n in range(600) for group in (GROUP, OTHER)])

    read = list(ledger.read_messages(GROUP))

    assert sorted(one.seq for one in read) == list(range(600))


@pytest.mark.parametrize("state", [None, State.PENDING, State.INVALID])
def test_delivered_message_without_its_dependency_is_damage(state):
    """A group whose rows are gone in part is refused as the store's fault."""
    child = vertex(1, state=State.DELIVERED, order=2, dependencies=(vertex(0).message_id,))
    others = [] if state is None else [vertex(0, state=state)]
    ledger = Ledger(MemoryStore())

    with pytest.raises(HostError, match="bsp_messages is damaged"):
        ledger.check_whole([child, *others])


def test_whole_group_passes():
    """What is delivered rests on what is delivered; what waits may wait for anything."""
    root, child = vertex(0, state=State.DELIVERED, dependencies=()), vertex(1, state=State.PENDING)

    Ledger(MemoryStore()).check_whole([root, child, vertex(2, state=State.DELIVERED, dependencies=(root.message_id,))])


def test_forgotten_message_is_gone():
    """Its row is removed, those of others stay."""
    store = MemoryStore()
    ledger = Ledger(store)
    store.commit([ledger.message(GROUP, vertex(n), b"abc") for n in range(2)])

    store.commit(ledger.no_message(GROUP, vertex(0).message_id))

    assert [one.seq for one in ledger.read_messages(GROUP)] == [1]


@pytest.mark.parametrize("count", [0, 1, CHUNK_MESSAGES])
def test_flags_read_back_with_their_copies(count):
    """A chunk of any length, with copies at both ends of every field."""
    store = MemoryStore()
    ledger = Ledger(store)
    copies = (KeptCopy(0, 1, 0, 0), KeptCopy(255, 255, (1 << 63) - 1, (1 << 32) - 1))
    kept = KeptFlags(3, bytes(i % 4 for i in range(count)), copies)

    store.commit([ledger.flags(GROUP, PEER, kept), ledger.flags(OTHER, PEER, KeptFlags(0, b"\x01", ()))])
    (read,) = ledger.read_flags(GROUP, PEER)

    assert (read.chunk, read.flags, tuple(read.copies)) == kept


def test_flags_of_a_group_are_found_whoever_the_peer():
    """All rows of a group can be removed without knowing its peers."""
    store = MemoryStore()
    ledger = Ledger(store)
    peers = [PublicKey(bytes([n]) * 32) for n in range(3)]
    store.commit([ledger.flags(GROUP, peer, KeptFlags(n, b"\x01", ())) for peer in peers for n in range(2)])

    store.commit([ledger.no_flag_row(key) for key in ledger.flag_rows(GROUP)])

    assert all(not list(ledger.read_flags(GROUP, peer)) for peer in peers)


@pytest.mark.parametrize("one", VERTICES[:5], ids=lambda one: str(one.seq))
def test_message_row_cut_anywhere_is_refused(one):
    """A row of any other length is the store's fault, told as such (exit code 5)."""
    whole = Ledger(MemoryStore()).message(GROUP, one, bytes(one.size_bytes)).value
    assert whole is not None
    for cut in (*range(min(len(whole), 40)), len(whole) - 1):
        store = MemoryStore()
        store.commit([Record("bsp_messages", GROUP + one.message_id, whole[:cut])])

        with pytest.raises(HostError, match="bsp_messages is damaged") as caught:
            list(Ledger(store).read_messages(GROUP))

        assert caught.value.exit_code == 5


def test_flag_row_cut_anywhere_is_refused():
    """A row of any other length is refused, unless the cut leaves whole copies."""
    kept = KeptFlags(0, b"\x01\x02\x03", (KeptCopy(1, 2, 3, 4),))
    whole = Ledger(MemoryStore()).flags(GROUP, PEER, kept).value
    assert whole is not None
    lengths = {3 + 3, len(whole)}
    for cut in set(range(len(whole))) - lengths:
        store = MemoryStore()
        store.commit([Record("bsp_flags", GROUP + PEER + bytes(4), whole[:cut])])

        with pytest.raises(HostError, match="bsp_flags is damaged"):
            list(Ledger(store).read_flags(GROUP, PEER))


@pytest.mark.parametrize("seed", range(40))
def test_flipped_bits_are_refused_or_give_a_vertex(seed):
    """No row makes reading fail in another way than HostError."""
    rng = random.Random(seed)
    whole = Ledger(MemoryStore()).message(GROUP, rng.choice(VERTICES[:5]), bytes(3)).value
    assert whole is not None
    row = bytearray(whole)
    row[rng.randrange(len(row))] ^= 1 << rng.randrange(8)
    store = MemoryStore()
    store.commit([Record("bsp_messages", GROUP + bytes(32), bytes(row))])

    with contextlib.suppress(HostError):
        assert len(list(Ledger(store).read_messages(GROUP))) == 1
