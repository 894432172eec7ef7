"""Laws of the choice among several Strata relays; ``tests/sdk/strata/test_many.py`` tries them with real ones."""

import random
from dataclasses import replace

from tests.protocols.strata.build import NOW
from waystation.protocols.strata.client.events import ServerNamed
from waystation.protocols.strata.client.relay_pool import RelayPool
from waystation.rules.relay_choice import Probe, Profile, Sighting, Verdict
from waystation.rules.relay_entry import RelayEntry
from waystation.rules.relay_state import Standing, State

ONE, TWO, THREE = (f"wss://{name}.example/strata" for name in ("one", "two", "three"))


def pool(known=(), named=(), **options):
    """Return a pool at a time of its own."""
    given = {"profile": Profile.STANDARD, "has_private_path": False, "bootstrap_urls": (), "bootstrap": None}
    given |= {"snapshots": (), "on_change": lambda _url, _change: None, "rng": random.Random(1), "clock": lambda: NOW}
    return RelayPool(known, named, **given | options)


def entry(url, state=State.ACTIVE, **fields):
    """Return a relay in a state of its own."""
    return replace(RelayEntry.new(url, NOW), standing=Standing(state, NOW, **fields))


def test_named_relay_is_used_unless_it_is_banned():
    """What the program names is used though nothing is known of it; a ban goes before that."""
    chosen = pool([entry(ONE)], [TWO]).plan_publish().relays
    banned = pool([entry(ONE, State.BLACKLISTED, banned_until_s=NOW + 9_999)], [ONE]).plan_publish().relays

    assert TWO in chosen
    assert list(banned) == []


def test_relay_that_never_answered_is_not_kept():
    """A name that may be a typing error is kept once it has spoken as a Strata relay; what the table had stays."""
    several = pool([entry(ONE)], [TWO, THREE])
    several.watches[TWO].note(ServerNamed("did:strata:x"))

    assert [each.url for each in several.to_keep()] == [ONE, TWO]


def test_banned_relay_is_handed_out_to_be_left():
    """A look returns the relays that must not be used, but for pinned ones."""
    banned = {"banned_until_s": NOW + 9_999}
    several = pool([entry(ONE, State.BLACKLISTED, **banned), entry(TWO)])

    assert several.evaluate() == [ONE]


def test_relay_of_the_bootstrap_lists_is_tried_when_it_is_time_and_once():
    """It is on probation from then on, and the next is not due at once."""
    seconds = [NOW]
    several = pool(bootstrap_urls=[THREE], clock=lambda: seconds[0])
    seconds[0] += 30 * 86_400
    tried = several.churn(), several.churn()

    assert tried == (THREE, None)
    assert several.watches[THREE].entry.standing.state is State.PROBATION


def test_answer_to_a_probe_counts_and_a_missing_packet_is_asked_for_again():
    """A packet that is there counts at once; one that is not is asked for a second time."""
    several = pool([entry(ONE)])
    probe = Probe(ONE, "0x" + "00" * 32, NOW + 9_999)
    found, again = several.judge(probe, present=True), several.judge(probe, present=False)

    assert (found, again) == (Verdict.FOUND, Verdict.ASK_AGAIN)
    assert several.next_probe([ONE], []).packet_id == probe.packet_id
    assert pool().next_probe([ONE], [Sighting("0x", NOW, None, False, ())]) is None
