"""NODE-TWIN with real nodes: two homes with one key, and a third that peers with both."""

import asyncio
import shutil

import pytest
import structlog

from tests.server.build import eventually
from tests.server.build_node import configured, serving
from waystation.server.home import Home


def copied(tmp_path):
    """Return two homes with the same key."""
    one, other = tmp_path / "one", tmp_path / "other"
    Home(one).ensure()
    other.mkdir(mode=0o700)
    shutil.copy(one / "node.key", other / "node.key")
    return one, other


def url_of(server, protocol):
    """Return where a node listens for others of a protocol."""
    found = server.operations.status()["listeners"]
    return f"{found['merk']}/merk" if protocol == "merk" else found["bhumi_plain"]


def twins(server):
    """Return the sentences about twins."""
    return [line for line in server.operations.status()["trouble"] if "key" in line]


def settings(protocol, *peers):
    """Return settings of a node that dials these."""
    if protocol == "merk":
        return {"merk__ws": "127.0.0.1:0", "merk__peers": ",".join(peers), "merk__allow_private_peers": "true"}
    return {"bhumi__gossip": "true", "bhumi__peers": ",".join(peers)}


@pytest.mark.parametrize("protocol", ["merk", "bhumi"])
def test_node_that_dials_its_twin_says_so(tmp_path, protocol):
    """Its own key at the operator's address is another node's; a dial of itself is none."""
    home, other = copied(tmp_path)

    async def story():
        async with serving(other, configured(other, **settings(protocol))) as (far, _):
            config = configured(home, **settings(protocol, url_of(far, protocol)))
            async with serving(home, config) as (near, _):
                await eventually(lambda: twins(near), "the sentence")
                near._twins.look()
                return twins(near), twins(far), url_of(far, protocol)

    with structlog.testing.capture_logs() as lines:
        near, far, url = asyncio.run(story())

    assert "another node has our key" in near[0] and url in near[0]
    assert bool(far) is (protocol == "merk")  # it has proved the key to the other; a link of Bhumi ends before
    assert {(line["event"], line["ours"]) for line in lines if line["event"] == "peer.twin"} == {("peer.twin", True)}


def test_both_notice_where_one_replicates_from_its_twin(tmp_path):
    """Strata: whoever dials meets its own DID, the other one a peer with its own key; both say so."""
    home, other = copied(tmp_path)

    async def story():
        async with serving(other, configured(other, strata__ws="127.0.0.1:0")) as (far, _):
            status = far.operations.status()
            url = status["listeners"]["strata"]
            upstream = f'[[strata.upstreams]]\nurl = "{url}"\nrelay_id = "{status["node"]["did"]}"\n'
            path = tmp_path / "node.toml"
            path.write_text(upstream)
            async with serving(home, configured(home, path, strata__ws="127.0.0.1:0")) as (near, _):
                await eventually(lambda: twins(near) and twins(far), "both sentences")
                return twins(near), twins(far), status["node"]["did"]

    near, far, did = asyncio.run(story())

    assert "another node has our key" in near[0] and did in near[0]
    assert "another node has our key" in far[0] and "127.0.0.1" in far[0]


def test_third_node_sees_two_with_one_key(tmp_path):
    """Both addresses are the operator's, and the link to one of them stands."""
    home, other = copied(tmp_path)

    async def story():
        async with (
            serving(home, configured(home, **settings("merk"))) as (one, _),
            serving(other, configured(other, **settings("merk"))) as (two, _),
        ):
            urls = [url_of(server, "merk") for server in (one, two)]
            third = tmp_path / "third"
            async with serving(third, configured(third, **settings("merk", *urls))) as (server, _):
                await eventually(lambda: twins(server), "the sentence")
                return twins(server), urls, twins(one) + twins(two)

    said, urls, others = asyncio.run(story())

    assert "two nodes have the key" in said[0]
    assert all(url in said[0] for url in urls)
    assert others == []
