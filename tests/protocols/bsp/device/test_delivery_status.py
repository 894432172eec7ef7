"""Laws of protocols.bsp.standing: what is told of one message and one peer."""

import pytest

from tests.protocols.bsp.build import id_at, ids
from tests.protocols.bsp.build_device import LIVE, Bench, P, Q
from waystation.core.errors import LocalError
from waystation.protocols.bsp.device.delivery_status import DeliveryStatus
from waystation.protocols.bsp.device.links import Visibility
from waystation.protocols.bsp.messages import Ack, Offer, Request

NOTHING = DeliveryStatus(
    Visibility.SHARED,
    holds=False,
    owes_ack=False,
    requested=False,
    copies=0,
    next_in_us=0,
    offered=False,
    link=None,
)


def standing(bench, name, peer=P):
    return bench.device.delivery_status(peer, bench.group_id, name, bench.now)


def test_message_nobody_knows_stands_nowhere():
    """Nothing is set for it."""
    assert standing(Bench(), id_at(0)) == NOTHING


def test_offered_message_is_told_until_it_is_requested():
    """What a peer has offered, and we have neither acknowledged nor requested."""
    bench = Bench()
    bench.hear(Offer(ids(1)))

    assert standing(bench, id_at(0)) == NOTHING._replace(offered=True)
    assert standing(bench, id_at(0), Q) == NOTHING
    bench.up()
    bench.say()
    assert standing(bench, id_at(0)) == NOTHING._replace(link="live")


def test_message_goes_from_new_to_held():
    """Each flag as it is set: copies and time, request, hold."""
    bench = Bench()
    name = bench.added()
    told = [standing(bench, name)]
    bench.up(terms=LIVE)
    bench.say()
    bench.pass_ms(400)
    told.append(standing(bench, name))
    bench.hear(Request((name,)))
    told.append(standing(bench, name))
    bench.say()
    bench.pass_ms(5_000)
    told.append(standing(bench, name))
    bench.hear(Ack((name,)))
    told.append(standing(bench, name))

    up = NOTHING._replace(link="live")
    assert told == [
        NOTHING,
        up._replace(copies=1, next_in_us=600_000),
        up._replace(requested=True),
        up._replace(copies=1),
        up._replace(holds=True, copies=1),
    ]


def test_message_of_a_peer_is_held_and_owed():
    """Until the acknowledgement has left, also before it is on disk."""
    bench = Bench()
    message = bench.message()
    bench.hear(message)

    assert standing(bench, bench.id_of(message)) == NOTHING._replace(holds=True, owes_ack=True)
    bench.device.share(bench.group_id, Q, bench.now, Visibility.VISIBLE)
    assert standing(bench, bench.id_of(message), Q) == NOTHING._replace(visibility=Visibility.VISIBLE)


def test_peer_that_shares_nothing_stands_nowhere():
    """Who asks about another group or peer is told so."""
    bench = Bench()

    with pytest.raises(LocalError, match="is not shared with"):
        bench.device.delivery_status(Q, bench.other_id, id_at(0), bench.now)
    with pytest.raises(LocalError, match="no member of the group"):
        bench.device.delivery_status(P, bytes(32), id_at(0), bench.now)
