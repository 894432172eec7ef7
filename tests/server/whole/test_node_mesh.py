"""Laws of server.node that need two nodes: who is linked with whom, and what the logs say about it."""

import asyncio

import structlog

from tests.server.build import eventually
from tests.server.build_node import configured, serving


def test_node_dials_its_peers_before_anybody_comes(tmp_path):
    """Two nodes of which one names the other are linked, although nothing else ever happens to either."""

    async def story():
        async with serving(tmp_path / "far", configured(tmp_path / "far", merk__ws="127.0.0.1:0")) as (far, _):
            peers = f"{far.operations.status()['listeners']['merk']}/merk"
            config = configured(tmp_path / "near", merk__ws="127.0.0.1:0", merk__peers=peers)
            async with serving(tmp_path / "near", config) as (near, task):
                await eventually(
                    lambda: all(server.operations.status()["mesh"]["nodes"] for server in (far, near)), "a link"
                )
                seen = [server.operations.status()["mesh"]["nodes"][0] for server in (near, far)]
                keys = [server.operations.status()["node"]["public_key"] for server in (far, near)]
                near.stop()
                return seen, keys, await task, peers

    with structlog.testing.capture_logs() as lines:
        seen, keys, code, peers = asyncio.run(story())
    linked = [line for line in lines if line["event"] == "peer.linked" and line["dialled"]]

    assert [node["key"] for node in seen] == keys
    assert [(node["trust"], node["dialled"]) for node in seen] == [("mutual", True), ("mutual", False)]
    assert code == 0
    assert [(line["address"], line["trust"]) for line in linked] == [(peers, "mutual")]
    assert not [line for line in lines if line["event"] == "peer.refused"]


def test_node_that_is_not_taken_says_so(tmp_path):
    """Where the other node takes nobody the one that dialled logs why, and neither logs a link."""

    async def story(lines):
        closed = configured(tmp_path / "far", merk__ws="127.0.0.1:0", merk__accept_peers="false")
        async with serving(tmp_path / "far", closed) as (far, _):
            peers = f"{far.operations.status()['listeners']['merk']}/merk"
            config = configured(tmp_path / "near", merk__ws="127.0.0.1:0", merk__peers=peers)
            async with serving(tmp_path / "near", config):
                await eventually(lambda: [line for line in lines if line["event"] == "peer.refused"], "a refusal")
            return peers

    with structlog.testing.capture_logs() as lines:
        peers = asyncio.run(story(lines))
    refused = [line for line in lines if line["event"] == "peer.refused"]

    assert [(line["url"], line["status"]) for line in refused] == [(peers, 1013)]
    assert "peer.linked" not in [line["event"] for line in lines]
