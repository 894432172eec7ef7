"""Laws of protocols.bsp.offered: what is remembered of offers, and what goes at the bound."""

import pytest

from waystation.protocols.bsp.device.offered import OFFERED_MAX, OfferedList


def names(*numbers: int) -> list[bytes]:
    return [number.to_bytes(32, "big") for number in numbers]


def filled(count: int, *, drops_oldest: bool) -> OfferedList:
    offered = OfferedList(drops_oldest=drops_oldest)
    for name in names(*range(count)):
        offered.add(name)
    return offered


@pytest.mark.parametrize("count", [OFFERED_MAX, OFFERED_MAX + 1, 2 * OFFERED_MAX])
def test_seed_keeps_the_newest(count):
    """At the bound the oldest identifier makes room (seed 4.1)."""
    offered = filled(count, drops_oldest=True)

    assert offered.first(count) == names(*range(count - OFFERED_MAX, count))


@pytest.mark.parametrize("count", [OFFERED_MAX, OFFERED_MAX + 1, 2 * OFFERED_MAX])
def test_briar_keeps_the_first(count):
    """In profile briar a new identifier is refused at the bound."""
    offered = filled(count, drops_oldest=False)

    assert offered.first(count) == names(*range(OFFERED_MAX))


def test_identifier_offered_again_keeps_its_place():
    """Once more is no matter: neither a second entry nor a younger one."""
    offered = filled(3, drops_oldest=True)

    offered.add(names(0)[0])

    assert offered.first(10) == names(0, 1, 2)


def test_first_is_bounded_and_in_order():
    """At most so many are returned, the oldest first."""
    offered = filled(5, drops_oldest=True)

    assert offered.first(2) == names(0, 1)
    assert offered.first(0) == []


def test_removed_identifiers_leave_room_and_strangers_are_no_matter():
    """What was answered is forgotten; what was never there is nothing."""
    offered = filled(3, drops_oldest=True)

    offered.remove(names(1, 99))

    assert offered.first(10) == names(0, 2)
    assert len(offered) == 2
    assert names(1)[0] not in offered
    assert names(2)[0] in offered


def test_cleared_list_is_empty():
    """Nothing is left, and the list can be used again."""
    offered = filled(3, drops_oldest=True)

    offered.clear()
    offered.add(names(7)[0])

    assert offered.first(10) == names(7)
