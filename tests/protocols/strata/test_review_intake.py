"""What one packet of a stranger may do to the relay: be refused or be stored, and nothing else."""

import orjson
import pytest

from tests.protocols.strata.build import ALICE, ALICE_RECOVERY, BOB, did, packet_of, post, signed, unsigned
from tests.protocols.strata.drive import Drive
from waystation.core.effects import Peer
from waystation.protocols.strata.relay.directory import StaticKey


@pytest.mark.parametrize("event", ["ADD", "ROTATE", [], {"ADD": 1}, 7])
def test_an_approval_that_looks_like_a_key_event_is_only_an_approval(event):
    """A RECOVERY_APPROVAL with a member ``event`` is stored as any other, and its author goes on signing."""
    keys = {did(ALICE): [StaticKey(ALICE.public), StaticKey(ALICE_RECOVERY.public, recovery=True)]}
    drive = Drive(static_dids=keys)
    peer = drive.connect()
    content = {"type": "RECOVERY_APPROVAL", "target_event": "0x" + "0" * 64, "event": event}
    approval = packet_of(signed(unsigned(content), ALICE_RECOVERY))

    assert drive.publish(peer, approval)["type"] == "OK"
    assert drive.publish(peer, post("behind it"))["type"] == "OK"
    assert drive.publish(drive.connect(), post("somebody else", BOB))["type"] == "OK"
    again = drive.restarted(static_dids=keys)
    assert again.publish(again.connect(), post("after a restart", ALICE))["type"] == "OK"


def test_a_failure_of_ours_costs_one_packet_and_not_those_behind_it(monkeypatch):
    """Whatever a decision raises, its packet gets internal_error, and those around it in the batch their verdict."""
    drive = Drive()
    peer = drive.connect()
    intake = drive.relay._intake
    decide = intake._decide
    poison = post("poison")

    def fail_for_poison(candidate, answer, wall_s):
        if candidate.packet.packet_id == poison.packet_id:
            raise ZeroDivisionError
        return decide(candidate, answer, wall_s)

    monkeypatch.setattr(intake, "_decide", fail_for_poison)
    for each in (post("before"), poison, post("good")):
        drive.relay.receive(Peer(peer), orjson.dumps({"type": "PUBLISH", "packet": each.body}), drive.now)
    with pytest.raises(ZeroDivisionError):
        drive.settle()
    drive.settle()

    assert [got.get("code", got["type"]) for got in drive.got[peer]] == [
        "AUTH_CHALLENGE",
        "OK",
        "internal_error",
        "OK",
    ]
    assert drive.relay.settled()
