"""Laws of protocols.bsp.links."""

import pytest

from waystation.protocols.bsp.device.links import CAP_FACTOR, FILE_TERMS, LinkTerms, Mode, Visibility, stream_terms
from waystation.protocols.bsp.settings import BspSettings


@pytest.mark.parametrize("kind", ["tls", "wss", "plain"])
def test_stream_begins_with_a_second_and_measures(kind):
    """max(1 s, 2 x measured round trip); what its end swallows is lost (BSP-D11, clarification 3)."""
    terms = stream_terms(kind)

    assert (terms.kind, terms.base_ms, terms.measures) == (kind, 1_000, True)
    assert (terms.cap_ms, terms.outlives, terms.mode) == (None, False, None)


def test_interval_of_a_stream_is_capped_at_64_times_its_base():
    """specs/bsp.md 3: live transports."""
    assert CAP_FACTOR == 64


def test_file_is_slow_survives_and_sends_at_once():
    """specs/bsp.md 3: batch for files, and at most 14 days between two copies."""
    day_ms = 24 * 60 * 60 * 1_000

    assert (FILE_TERMS.mode, FILE_TERMS.outlives, FILE_TERMS.measures) == (Mode.BATCH, True, False)
    assert (FILE_TERMS.base_ms, FILE_TERMS.cap_ms) == (day_ms, 14 * day_ms)


def test_terms_of_a_new_way_promise_nothing():
    """Who names only a kind and a base gets copies that do not survive, no measurement, and no cap of its own."""
    assert LinkTerms("merk", 2_000) == LinkTerms("merk", 2_000, measures=False, cap_ms=None, outlives=False, mode=None)


def test_modes_are_those_that_an_operator_may_name():
    """The configuration and the device say the same words."""
    for mode in Mode:
        assert BspSettings(mode=mode.value).mode == mode.value
    assert {mode.value for mode in Mode} == {"auto", "interactive", "batch"}


def test_visibility_has_briars_middle_state():
    """Taken from, not sent to (specs/bsp.md 7)."""
    assert [each.value for each in Visibility] == ["invisible", "visible", "shared"]


def test_ways_rank_by_how_soon_word_gets_through():
    """Streams stand before relays that keep nothing, and these before what stores (BSP-NEWEST)."""
    relay, store = LinkTerms("merk", 10_000), LinkTerms("lprp", 86_400_000, outlives=True)

    assert stream_terms("tls").rank > relay.rank > store.rank == FILE_TERMS.rank
