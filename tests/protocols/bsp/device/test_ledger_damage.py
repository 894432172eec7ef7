"""BSP-DAMAGED: a damaged message costs its body, not its group."""

import pytest

from tests.protocols.bsp.build_device import Bench
from tests.store.build_rot import lose
from waystation.core.errors import HostError
from waystation.protocols.bsp.graph.formats import deps_v1_body
from waystation.protocols.bsp.graph.order import State
from waystation.protocols.bsp.messages import Offer


def chain(count=4):
    """Return a device with so many messages, each of which depends on the one before, and their identifiers."""
    bench, found = Bench(format="deps_v1"), []
    for _ in range(count):
        message = bench.message(deps_v1_body(tuple(found[-1:]), b"x"))
        found.append(bench.id_of(message))
        bench.hear(message)
        bench.commit()
    return bench, found


def states(bench):
    """Return the state of each message of the first group and whether its body is there, by identifier."""
    vertices = bench.device.graph(bench.group_id).vertices
    return {message_id: (vertex.state, vertex.body_present) for message_id, vertex in vertices.items()}


@pytest.mark.parametrize("bad", [0, 1, 2])
@pytest.mark.parametrize("key_is_good", [True, False])
def test_damaged_message_that_others_rest_on_costs_its_body(bad, key_is_good):
    """The device starts; what was delivered stays delivered, and the damaged one is as if its body had been deleted."""
    bench, found = chain()
    lose(bench.store, "bsp_messages", bench.group_id + found[bad], key_is_good=key_is_good)
    bench.restart()

    assert states(bench) == {each: (State.DELIVERED, each != found[bad]) for each in found}


def test_several_damaged_messages_in_a_row():
    """One that a whole message names becomes a tombstone; what that rested on is unknown, so the next is missing."""
    bench, found = chain()
    for message_id in found[1:3]:
        lose(bench.store, "bsp_messages", bench.group_id + message_id)
    bench.restart()

    assert states(bench) == {
        found[0]: (State.DELIVERED, True),
        found[2]: (State.DELIVERED, False),
        found[3]: (State.DELIVERED, True),
    }


def test_damaged_message_that_nothing_rests_on_may_come_again():
    """It is missing, so a peer that offers it brings it back."""
    bench = Bench(format="deps_v1")
    message = bench.message(deps_v1_body((), b"x"))
    bench.hear(message)
    bench.commit()
    lose(bench.store, "bsp_messages", bench.group_id + bench.id_of(message))
    bench.restart()
    missing = states(bench)
    bench.hear(message)
    bench.commit()

    assert missing == {}
    assert states(bench) == {bench.id_of(message): (State.DELIVERED, True)}


def test_number_of_a_damaged_message_is_not_used_again():
    """Peers hold what was lost, but not the message that is made next: it does not inherit their flags."""
    bench = Bench()
    message = bench.message()
    bench.hear(message)
    bench.commit()
    lose(bench.store, "bsp_messages", bench.group_id + bench.id_of(message))
    bench.restart()
    bench.up()
    fresh = bench.add(b"new")
    bench.commit()

    assert not bench.flags(fresh).hold
    assert bench.vertex(fresh).seq == 1
    assert fresh in [each for record in bench.say() if isinstance(record, Offer) for each in record.ids]


def test_gap_without_a_damaged_row_still_stops_the_start():
    """Rows that are gone without a trace are a store that is not whole (BSP-WHOLE)."""
    bench, found = chain()
    lose(bench.store, "bsp_messages", bench.group_id + found[0])
    bench.store.damage.mended("bsp_messages", bench.group_id + found[0])

    with pytest.raises(HostError, match="bsp_messages is damaged"):
        bench.restart()


def test_group_with_a_tombstone_takes_new_messages():
    """The next message rests on what there is."""
    bench, found = chain()
    lose(bench.store, "bsp_messages", bench.group_id + found[1])
    bench.restart()
    message = bench.message(deps_v1_body((found[-1],), b"new"))
    bench.hear(message)
    bench.commit()
    bench.restart()

    assert states(bench)[bench.id_of(message)] == (State.DELIVERED, True)
