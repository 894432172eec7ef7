"""Laws of server.node about the host of datagrams: what people are shown of it, and how it ends."""

import asyncio
import json
import socket
from urllib.parse import urlsplit

import pytest

from tests.server.build import eventually
from tests.server.build_node import configured, serving
from tests.server.lprp import stand_in as other
from tests.server.lprp.stand_in import Party
from waystation.engine.bans import Ban
from waystation.transport.http_get import http_get


def party_of(server, number):
    """Return somebody who speaks with a node's host."""
    status = server.operations.status()
    place = urlsplit(status["listeners"]["lprp"])
    key = bytes.fromhex(status["node"]["public_key"])
    return Party(bytes([number]) * 32, key, (place.hostname, place.port))


def test_host_of_datagrams_is_shown(tmp_path):
    """Junk is heard, counted and refused; port, bytes and the host's own words stand in status and document."""

    async def story():
        config = configured(tmp_path, lprp__udp="127.0.0.1:0", strata__ws="127.0.0.1:0")
        async with serving(tmp_path, config) as (server, _):
            status = server.operations.status()
            place = urlsplit(status["listeners"]["lprp"])
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
                peer.sendto(b"junk", (place.hostname, place.port))
            await eventually(lambda: server.operations.status()["totals"]["refusals"], "the refusal")
            url = status["listeners"]["strata"].replace("ws:", "http:").removesuffix("/strata")
            info = json.loads((await http_get(f"{url}/.well-known/waystation.json")).body)
            return server.operations.status(), info["protocols"]["lprp"], place.port, server.operations.tenants(10)[0]

    status, info, port, tenants = asyncio.run(story())

    assert status["totals"]["refusals"] == {("lprp", "length"): 1}
    assert status["traffic"] == {"lprp": {"in": 4, "out": 0}}
    assert status["datagrams"] == {"lprp": {"received": 1, "sent": 0, "waiting": 0, "dropped": 0, "failed": 0}}
    assert (info["port"], info["public_key"]) == (port, status["node"]["public_key"])
    assert tenants == []


def test_node_without_lprp_has_no_tenants(tmp_path):
    """A host that is off leaves neither counts nor a list."""

    async def story():
        async with serving(tmp_path, configured(tmp_path, lprp__enabled="false")) as (server, _):
            return server.operations.tenants(10)[0], server.operations.status()

    tenants, status = asyncio.run(story())

    assert (tenants, status["traffic"], status["datagrams"]) == ([], {}, {})
    assert "lprp" not in status["sizes"]


def test_answer_that_was_promised_leaves_before_the_end(tmp_path):
    """A node that is told to stop while a lease is on its way to the disk still says that it was granted."""

    async def story():
        config = configured(
            tmp_path, lprp__udp="127.0.0.1:0", lprp__pow_base_bits_lease="0", lprp__pow_adaptive="false"
        )
        async with serving(tmp_path, config) as (server, task):
            party = party_of(server, 1)
            lease = asyncio.get_running_loop().run_in_executor(None, party.lease)
            while not server._hosts["lprp"].relay._committing:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0)
            server.stop()
            code = await task
            answer = await lease
            party.socket.close()
            return code, answer

    assert asyncio.run(story()) == (0, other.GRANTED)


@pytest.mark.parametrize("kind", ["identity", "address"])
def test_banned_tenant_is_not_heard_again(tmp_path, kind):
    """Whoever is banned by key or by address gets no answer from then on, and one again when the ban is lifted."""

    async def story():
        config = configured(
            tmp_path, lprp__udp="127.0.0.1:0", lprp__pow_base_bits_lease="0", lprp__pow_adaptive="false"
        )
        async with serving(tmp_path, config) as (server, _):
            party = party_of(server, 2)
            ask = asyncio.get_running_loop().run_in_executor
            heard = [await ask(None, party.lease)]
            subject = f"id:{party.key.hex()}" if kind == "identity" else "address:127.0.0.1"
            await server.operations.ban(Ban(subject, "a test", 1, None))
            party.say(party.packet(other.HEARTBEAT))
            heard.append(await ask(None, party.hear, 0.05))
            await server.operations.lift_ban(subject)
            heard.append(await ask(None, party.beat))
            party.socket.close()
            return heard, server.operations.status()["totals"]["refusals"]

    heard, refused = asyncio.run(story())

    assert heard == [other.GRANTED, None, other.ALIVE]
    assert refused[("lprp", f"{kind}_banned")] == 1
