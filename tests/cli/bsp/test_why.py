"""Laws of how it is shown what holds a message back."""

from waystation.cli.bsp.why import describe_why, show_why
from waystation.core.instant import Instant
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.device.why import explain
from waystation.protocols.bsp.messages import Message
from waystation.protocols.bsp.profile import SEED
from waystation.sdk.bsp import deps_v1_body
from waystation.store.memory import MemoryStore

PEER, PARENT = b"\x01" * 32, b"\x02" * 32
GROUP = SEED.group(bytes(32), b"", "deps_v1")


def waiting():
    """Return why a message waits whose parent never came."""
    device, at = BspDevice(SEED, MemoryStore()), Instant(0)
    device.join(GROUP, at)
    device.meet(PEER)
    device.share(GROUP.group_id, PEER, at)
    body = deps_v1_body([PARENT], b"child")
    device.receive(PEER, Message(GROUP.group_id, 5, body), at)
    return explain(device, GROUP.group_id, SEED.message_id(GROUP.group_id, 5, body), at)


def test_missing_dependency_and_peers_are_whole_for_programs():
    """Programs get the state, each missing dependency, and each peer with its flags."""
    described = describe_why(waiting(), GROUP)

    assert (described["state"], described["missing"]) == ("pending", [{"id": PARENT.hex(), "known": False}])
    assert [(peer["key"], peer["holds"]) for peer in described["peers"]] == [(PEER.hex(), True)]


def test_missing_dependency_is_named_for_people(capfd):
    """People read which message is missing, and what the peer called bob has."""
    show_why(waiting(), {PEER: "bob"})
    told = capfd.readouterr().out

    assert f"needs {PARENT.hex()}: never came" in told
    assert "bob: holds it" in told


def test_group_of_nobody_is_said(capfd):
    """A message that is shared with nobody says so."""
    show_why(waiting()._replace(peers=()), {})

    assert "shared with nobody" in capfd.readouterr().out
