"""LPRP towns repeat themselves exactly, find nothing in what is right, and do what their plans say."""

from dataclasses import replace

from tests.sim.lprp.build import FRAGILE, LIED_TO, MOVING, QUIET, SPOOFED, lines_of, run_with


def test_outcomes_count_what_was_told_and_kept():
    """In a quiet world everything that is sent is accepted and kept, and every tenant has its lease and its list."""
    outcomes = run_with(None, 1, QUIET).exchanges

    assert outcomes["accepted"] == outcomes["kept"] > 20
    assert outcomes["lease"] >= 2
    assert outcomes["whitelist"] >= 2


def test_strangers_work_and_friends_do_not():
    """Whoever is on no whitelist pays for each packet, whoever is on all of them for none."""
    friendly, strange = (lines_of(replace(QUIET, whitelisted=chance, senders=0)) for chance in (1.0, 0.0))

    assert not [line for line in friendly if " WorkJudged " in line and " relay " in line]
    assert [line for line in strange if " WorkJudged " in line and " relay accepted " in line]


def test_crashes_and_their_lives_take_place():
    """A plan with crashes has hosts that come back."""
    lines = lines_of(FRAGILE)

    assert any(" crash for " in line for line in lines)
    assert sum(" NodeStarted " in line for line in lines) > FRAGILE.hosts


def test_people_move():
    """A plan with rebinding has people whose datagrams come from more than one address."""
    lines = lines_of(MOVING)
    sources = {line.split()[3] for line in lines if " h0 in 10.1.0." in line}

    assert len(sources) > 1


def test_hostile_parties_are_heard():
    """Forged sources reach the hosts, and some of what they ask is answered to the victim, within what it paid."""
    lines = lines_of(SPOOFED)

    assert any(" in 203.0." in line for line in lines)
    assert any(" out 203.0." in line for line in lines)


def test_lies_reach_clients_and_are_dropped():
    """Clients hear what no host has sent, and say why they drop it."""
    outcomes = run_with(None, 1, LIED_TO).exchanges

    assert {"dropped_unasked_answer", "dropped_bad_signature"} <= set(outcomes)
