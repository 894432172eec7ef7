"""Laws of server.mesh_log, over relays that link in memory."""

import asyncio

import pytest
from structlog.testing import capture_logs

from tests.protocols.merk.net import Net
from waystation.core.ids import encode_id52
from waystation.server.merk import mesh_log as module
from waystation.server.merk.mesh_log import MeshLog


def logging(node):
    """Return the log of a relay of the net."""
    return MeshLog(node.relay.sizes, lambda: node.relay.mesh(node.net.now))


def looked(*logs, url=""):
    """Return what these logs say when they look."""
    with capture_logs() as lines:
        for log in logs:
            log.look(url)
    return lines


def test_link_is_told_once_on_both_sides():
    """Each names the other short, says who dialled and how well it is proved; a second look says nothing."""
    net = Net()
    a, b = net.mesh("a", "b")
    logs = logging(a), logging(b)
    on_a, on_b = looked(*logs)

    assert (on_a["event"], on_a["peer"], on_a["dialled"]) == ("peer.linked", encode_id52(b.key)[:8], False)
    assert (on_b["event"], on_b["peer"], on_b["dialled"]) == ("peer.linked", encode_id52(a.key)[:8], True)
    assert [line["trust"] for line in (on_a, on_b)] == ["mutual", "mutual"]
    assert [line["log_level"] for line in (on_a, on_b)] == ["info", "info"]
    assert looked(*logs) == []


def test_dialled_address_is_told_where_the_public_one_is_unknown():
    """The operator reads what was dialled, although others are not told about it."""
    net = Net()
    a, b = net.mesh("a", "b")

    assert looked(logging(b), url="ws://10.0.0.1/merk")[0]["address"] == "ws://10.0.0.1/merk"
    assert looked(logging(a), url="ws://10.0.0.1/merk")[0]["address"] == ""


def test_end_of_a_link_is_told_once():
    """What was told to stand is told to be over, with the same words."""
    net = Net()
    a, b = net.mesh("a", "b")
    log = logging(a)
    (linked,) = looked(log)
    net.kill(b)
    (lost,) = looked(log)

    assert lost == linked | {"event": "peer.lost"}
    assert (log.links_count(), looked(log)) == (0, [])


def test_connection_without_a_proof_is_no_link():
    """A client that only connects is in no line."""
    net = Net()
    a = net.node("a")
    log = logging(a)
    net.client(a, net.nodes["a"].key_pair.from_seed(b"c" * 32))

    assert (log.links_count(), looked(log)) == (0, [])


def test_links_are_looked_for_by_themselves(monkeypatch):
    """While it watches nobody need ask."""
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0.0)
    net = Net()
    a, _ = net.mesh("a", "b")

    async def story(log):
        with capture_logs() as lines, pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await log.watch()
        return lines

    assert [line["event"] for line in asyncio.run(story(logging(a)))] == ["peer.linked"]
