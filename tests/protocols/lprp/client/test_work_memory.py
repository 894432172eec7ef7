"""Laws of protocols.lprp.work_memory."""

import pytest

from waystation.protocols.lprp.client.settings import ClientSettings
from waystation.protocols.lprp.client.work_memory import LOWER_AFTER_COUNT, WorkMemory
from waystation.protocols.lprp.messages import Kind

SETTINGS = ClientSettings(work_first_bits=12, work_step_bits=2, bits_max=17)


def test_first_offer_to_an_unknown_host():
    """Nothing known: the first offer is the setting's, and nothing is worth keeping."""
    memory = WorkMemory(SETTINGS)

    assert memory.first_offer(Kind.LEASE) == 12
    assert memory.bits == {}


@pytest.mark.parametrize(("refused", "offered"), [(12, 14), (15, 17), (16, 17), (17, None), (20, None)])
def test_offers_rise_by_a_step_to_the_most_we_do(refused, offered):
    """The last offer is the setting's most, even where a step would pass it."""
    assert WorkMemory(SETTINGS).next_offer(refused) == offered


def test_what_was_taken_is_offered_first_next_time():
    """Kinds are remembered apart."""
    memory = WorkMemory(SETTINGS)
    memory.note_taken(Kind.RELAY, 16, at_first=False)

    assert memory.first_offer(Kind.RELAY) == 16
    assert memory.first_offer(Kind.WHITELIST) == 12
    assert WorkMemory(SETTINGS, memory.bits).first_offer(Kind.RELAY) == 16


def test_remembered_bits_beyond_our_most_are_cut():
    """A host's old demand, or a bent file, does not make us work more than the setting allows."""
    memory = WorkMemory(SETTINGS, {Kind.RELAY: 60, Kind.LEASE: -3})

    assert memory.bits == {Kind.RELAY: 17, Kind.LEASE: 0}


def test_first_offer_is_never_above_our_most():
    """A most below the first offer holds too."""
    assert WorkMemory(ClientSettings(work_first_bits=12, bits_max=8)).first_offer(Kind.RELAY) == 8


def test_offers_fall_after_many_were_taken_at_once():
    """Demands fall and nobody tells us: after eight first offers taken in a row the next is a step lower."""
    memory = WorkMemory(SETTINGS)
    offers = []
    for _ in range(2 * LOWER_AFTER_COUNT + 1):
        offers.append(memory.first_offer(Kind.RELAY))
        memory.note_taken(Kind.RELAY, offers[-1], at_first=True)

    assert offers == [12] * LOWER_AFTER_COUNT + [10] * LOWER_AFTER_COUNT + [8]


def test_a_refusal_ends_the_row():
    """Seven at first, one after a refusal: the count begins again."""
    memory = WorkMemory(SETTINGS)
    offers = []
    for at_first in [True] * (LOWER_AFTER_COUNT - 1) + [False] + [True] * (LOWER_AFTER_COUNT - 1):
        memory.note_taken(Kind.RELAY, 14, at_first=at_first)
        offers.append(memory.first_offer(Kind.RELAY))

    assert set(offers) == {14}


def test_offers_do_not_fall_below_nothing():
    """A host that takes everything is offered zero bits, not less."""
    memory = WorkMemory(SETTINGS, {Kind.RELAY: 1})
    for _ in range(LOWER_AFTER_COUNT):
        memory.note_taken(Kind.RELAY, memory.first_offer(Kind.RELAY), at_first=True)

    assert memory.first_offer(Kind.RELAY) == 0
