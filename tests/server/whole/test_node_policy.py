"""The loop closed: what is published changes what a running node does, and ends by itself."""

import asyncio
import logging

import pytest
import structlog

from tests.server.build import eventually
from tests.server.build_node import configured, serving
from tests.server.build_policy import SECOND, publish, rule_of, wall_us
from waystation.crypto.hashing import keyed_reference
from waystation.rules.policy import Action, Mode
from waystation.server.home import Home

NETWORK = b"net:127.0.0.0/24"


@pytest.fixture(autouse=True)
def logs():
    """Put logging back as it was: a node that reloads sends it where its configuration says."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


async def knock(server):
    """Connect once; return whether the node kept the connection."""
    host, _, port = server.operations.status()["listeners"]["bhumi_plain"].rpartition("//")[2].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        return await asyncio.wait_for(reader.read(1), 0.05) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False
    finally:
        writer.close()


async def tell(server, home, *rules):
    """Publish rules for this node and have it look."""
    node_id = server.operations.status()["node"]["public_key"][:16]
    snapshot = publish(home / "lake", rules, node_id=node_id)
    server.reload()
    await eventually(lambda: server.operations.status()["policy"]["snapshot"] == snapshot.snapshot, "the snapshot")


def reference(home):
    """Return what a node calls the network of this machine."""
    return keyed_reference(bytes.fromhex(Home(home)._read_reference_key().key.hex()), NETWORK)


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "expected"), [("enforce", [True, True, False, False]), ("shadow", [True] * 4)])
def test_flooder_is_limited_and_released(tmp_path, mode, expected):
    """Once a snapshot names its network, who floods gets so many connections a minute, and all again after its end."""

    async def story():
        async with serving(tmp_path, configured(tmp_path, policy__mode=mode)) as (server, _):
            free = [await knock(server) for _ in range(4)]
            ends = wall_us() + 2 * SECOND
            rate = rule_of(reference(tmp_path), action=Action.RATE, amount=2, valid_until_us=ends)
            await tell(server, tmp_path, rate)
            limited = [await knock(server) for _ in range(4)]
            await eventually(lambda: wall_us() >= ends, "the rule's end")
            released = [await knock(server) for _ in range(4)]
            return free, limited, released, server.operations.policy(), server.operations.status()["totals"]["refusals"]

    free, limited, released, policy, refusals = asyncio.run(story())

    assert (free, limited, released) == ([True] * 4, expected, [True] * 4)
    assert [(match["rule"], match["mode"], match["n"]) for match in policy["matches"]] == [("burst", mode, 2)]
    assert policy["rules"][0]["matches"] == 2
    assert refusals.get(("bhumi", "policy_rate"), 0) == expected.count(False)


def test_operator_wins(tmp_path):
    """A blocked network is let in once the operator allows its address, and a rule in shadow never keeps it out."""

    async def story():
        path = tmp_path / "node.toml"
        path.write_text('[policy]\nmode = "enforce"\n')
        async with serving(tmp_path, configured(tmp_path, path)) as (server, _):
            await tell(server, tmp_path, rule_of(reference(tmp_path)))
            blocked = await knock(server)
            path.write_text('[policy]\nmode = "enforce"\nallow = ["127.0.0.1"]\n')
            server.reload()
            allowed = await knock(server)
            path.write_text('[policy]\nmode = "enforce"\n')
            server.reload()
            await tell(server, tmp_path, rule_of(reference(tmp_path), mode=Mode.SHADOW, rule="replay"))
            return blocked, allowed, await knock(server)

    assert asyncio.run(story()) == (False, True, True)
