"""Hostile peers of the simulated town reach the defence that each of them is for."""

import pytest

from tests.sim.build import Street, fixed_rng
from waystation.journal.events import PeerLeft, Refused
from waystation.sim.bhumi_hostile import Hostile
from waystation.sim.observations import Concluded
from waystation.sim.plan import HOSTILE_KINDS


def attacked(kind, seconds):
    street = Street()
    street.device.come()
    street.run(1)
    street.sender.start()
    hostile = Hostile(street.commons, fixed_rng(9), "10.3.0.1", kind, [street.device.identity])
    hostile.come()
    street.run(seconds)
    return street, hostile, {event.reason for event in street.events if isinstance(event, Refused | PeerLeft)}


@pytest.mark.parametrize(
    ("kind", "reasons"),
    [
        ("garbage", {"unknown_type", "oversize", "end_inside_frame", "frame_timeout"}),
        ("slowloris", {"frame_timeout"}),
        ("spoofer", {"unsolicited_ack"}),
        ("mutant", {"bad_signature", "end_inside_frame", "frame_timeout", "unknown_type", "oversize", "inner_length"}),
    ],
)
def test_trick_reaches_its_defence(kind, reasons):
    """The journal names one of the reasons that this trick ends with."""
    _, _, found = attacked(kind, 120)

    assert found & reasons


def test_others_are_served_while_all_tricks_are_played():
    """Whatever one peer does, requests of the others are answered."""
    for kind in HOSTILE_KINDS:
        street, _, _ = attacked(kind, 30)
        results = street.kinds(Concluded)
        assert len(results) > 1
        assert all(result.status == 0 for result in results), kind


def test_hostile_that_left_stays_away():
    """After ``leave`` nobody dials again."""
    street, hostile, _ = attacked("garbage", 5)

    hostile.leave()
    street.run(900)

    assert street.world.sizes()["bhumi"]["connections"] <= 2
