"""Strata towns repeat themselves exactly, find nothing in what is right, and do what their plans say."""

from dataclasses import replace

from tests.sim.strata.build import APART, PAIR, QUIET, TAMPERED, lines_of, run_with


def test_replicas_have_the_same_packets():
    """Two relays that read each other have one set of packets in the end, through crashes and broken links."""
    lines = lines_of(APART)
    ends = [line.split() for line in lines if " Stored " in line and line.endswith("True")]

    assert len(ends) == 2
    assert ends[0][3] == ends[1][3] != "0"


def test_crashes_and_replication_take_place():
    """A plan with crashes has lives, and its relays dial each other."""
    lines = lines_of(PAIR)

    assert any(" crash for " in line for line in lines)
    assert any(" r0 connect " in line and " to did:" in line for line in lines)
    assert any(" r1 connect " in line and " to did:" in line for line in lines)


def test_forging_relay_is_read_and_thrown_out():
    """A relay that forges is dialled, its connection ended for it, and in the end it is left alone."""
    closes = [line for line in lines_of(TAMPERED) if "integrity_violation" in line and " close " in line]

    assert 1 <= len(closes) <= 8


def test_rotated_keys_are_used():
    """Publishers that change their keys go on publishing under them."""
    behaviour = replace(QUIET.publisher, rotates=0.3)
    lines = lines_of(replace(QUIET, publisher=behaviour))
    events = [number for number, line in enumerate(lines) if " Made " in line and " KEY_EVENT " in line]
    oks = [number for number, line in enumerate(lines) if " Published 0 " in line]

    assert len(events) > 2
    assert oks[-1] > events[-1]


def test_outcomes_count_what_was_told_and_read():
    """In a quiet world every packet is promised, and every reader without filters reads it."""
    outcomes = run_with(None, 1, QUIET).exchanges

    assert set(outcomes) == {"ok", "read"}
    assert outcomes["ok"] > 10
