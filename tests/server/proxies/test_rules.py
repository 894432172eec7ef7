"""Laws of server.proxies.rules: behind a trusted proxy each client has its own limits, and a ban bans one."""

import asyncio
import contextlib
import json

import pytest
from structlog.testing import capture_logs
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.server.build_node import configured, serving
from waystation.core.errors import ConfigError
from waystation.engine.admission import DEFAULT_LIMITS
from waystation.engine.bans import Ban

PROXY = {"merk__ws": "127.0.0.1:0", "node__trusted_proxies": "127.0.0.1"}
HANDSHAKES_AT_ONCE = 40
PER_ADDRESS_MAX = DEFAULT_LIMITS.connections_per_address


def node_story(home, story, **settings):
    """Run a story over a serving node."""

    async def main():
        async with asyncio.timeout(60), serving(home, configured(home, **settings)) as (server, _):
            return await story(server)

    return asyncio.run(main())


async def dial(server, *forwarded, source="127.0.0.1", header="X-Forwarded-For"):
    """Connect to MERK as a proxy does for a client; give the connection, or the status of a refusal."""
    url = server.operations.status()["listeners"]["merk"] + "/merk"
    headers = [(header, value) for value in forwarded]
    try:
        line = await connect(url, proxy=None, additional_headers=headers, local_addr=(source, 0))
        await line.recv()
    except InvalidStatus as error:
        return error.response.status_code
    except (ConnectionClosed, OSError):
        return 0
    return line


def count(server):
    """Return how many connections stand."""
    return server.operations.status()["sizes"]["node"]["connections"]


async def close(*lines):
    """End connections."""
    for line in lines:
        with contextlib.suppress(ConnectionClosed):
            await line.close()


def test_each_client_of_a_proxy_has_its_own_limits(tmp_path):
    """More clients than one address may have connections are all served, and one of them alone meets the limit."""

    async def story(server):
        lines = []
        for start in range(0, 3 * PER_ADDRESS_MAX, HANDSHAKES_AT_ONCE):
            numbers = range(start, min(start + HANDSHAKES_AT_ONCE, 3 * PER_ADDRESS_MAX))
            lines += await asyncio.gather(*(dial(server, f"203.0.{n}.7") for n in numbers))
        greedy = [await dial(server, "198.51.100.1") for _ in range(PER_ADDRESS_MAX + 1)]
        other = await dial(server, "198.51.100.2")
        stood = count(server)
        await close(*lines, *greedy[:-1], other)
        return {isinstance(line, int) for line in (*lines, *greedy[:-1], other)}, greedy[-1], stood

    assert node_story(tmp_path, story, **PROXY) == ({False}, 429, 4 * PER_ADDRESS_MAX + 1)


def test_banned_client_of_a_proxy_is_one(tmp_path):
    """A ban of an address names a client, not the proxy."""

    async def story(server):
        await server.operations.ban(Ban("address:203.0.113.7", "a test", 0, None))
        banned, other = await dial(server, "203.0.113.7"), await dial(server, "203.0.113.8")
        await close(other)
        return banned, isinstance(other, int)

    assert node_story(tmp_path, story, **PROXY) == (429, False)


@pytest.mark.parametrize(
    ("forwarded", "source"),
    [
        (["203.0.113.7"], "127.0.0.2"),  # no trusted proxy
        (["203.0.113.7, 127.0.0.3"], "127.0.0.1"),  # the client wrote the first, the proxy the second
        ([], "127.0.0.3"),
    ],
)
def test_client_cannot_name_another(tmp_path, forwarded, source):
    """The ban of 203.0.113.7 does not meet a client that says so, so that it could shed its own address neither."""

    async def story(server):
        await server.operations.ban(Ban("address:203.0.113.7", "a test", 0, None))
        line = await dial(server, *forwarded, source=source)
        await close(*([] if isinstance(line, int) else [line]))
        return isinstance(line, int)

    assert not node_story(tmp_path, story, **PROXY)


def test_only_the_chosen_header_counts(tmp_path):
    """A proxy that sets one of the two passes the other one on as the client sent it."""

    async def story(server):
        await server.operations.ban(Ban("address:203.0.113.7", "a test", 0, None))
        theirs = await dial(server, "203.0.113.7")
        ours = await dial(server, "for=203.0.113.7", header="Forwarded")
        await close(theirs)
        return isinstance(theirs, int), ours

    assert node_story(tmp_path, story, **PROXY, node__proxy_header="forwarded") == (False, 429)


def test_plain_requests_count_as_the_client(tmp_path):
    """Pages are limited for each client, too."""

    async def story(server):
        url = server.operations.status()["listeners"]["merk"]
        host, port = url.removeprefix("ws://").split(":")

        async def status(client):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"GET /none HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: {client}\r\n\r\n".encode())
            answer = await reader.read()
            writer.close()
            return int(answer.split()[1])

        await server.operations.ban(Ban("address:203.0.113.7", "a test", 0, None))
        return [await status(client) for client in ("203.0.113.7", "203.0.113.8")], count(server)

    assert node_story(tmp_path, story, **PROXY) == ([429, 404], 0)


def test_pages_of_an_answer_to_a_client_that_is_not_admitted_are_json(tmp_path):
    """A proxy passes the refusal on, so that it has a form."""

    async def story(server):
        await server.operations.ban(Ban("address:203.0.113.7", "a test", 0, None))
        url = server.operations.status()["listeners"]["merk"] + "/merk"
        with pytest.raises(InvalidStatus) as caught:
            await connect(url, proxy=None, additional_headers={"X-Forwarded-For": "203.0.113.7"})
        return json.loads(caught.value.response.body)

    assert node_story(tmp_path, story, **PROXY) == {"error": "not admitted"}


def test_header_of_a_proxy_that_is_missing_is_counted_and_named(tmp_path):
    """The operator sees that a proxy before a listener is not set up to send it."""

    async def story(server):
        url = server.operations.status()["listeners"]["merk"]
        host, port = url.removeprefix("ws://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        status = server.operations.status()
        return status["totals"]["refusals"], [each for each in status["trouble"] if "node.proxy_protocol" in each]

    settings = PROXY | {"node__proxy_protocol": "merk.ws"}
    with capture_logs() as logged:
        refusals, troubles = node_story(tmp_path, story, **settings)

    assert refusals == {("merk", "proxy_header"): 1}
    assert len(troubles) == 1
    assert troubles[0].startswith("merk ")
    assert [line["proxy"] for line in logged if line["event"] == "proxy.fault"] == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"node__trusted_proxies": "10.0.0.1/8"}, "node.trusted_proxies: '10.0.0.1/8' is no IP address and no network"),
        ({"node__proxy_protocol": "bhumi.tls"}, "name them in node.trusted_proxies"),
        (
            {"node__trusted_proxies": "::1", "node__proxy_protocol": "lprp.udp"},
            "'lprp.udp' is no TCP listener; allowed: bhumi.tls, bhumi.plain, bhumi.upstream_listen, bsp.tls",
        ),
        ({"node__proxy_header": "x-real-ip"}, 'allowed: one of "x-forwarded-for", "forwarded"'),
    ],
)
def test_bad_settings_are_refused(tmp_path, settings, says):
    """A typo must not leave everybody under one address."""
    with pytest.raises(ConfigError, match="flag node") as caught:
        configured(tmp_path, **settings)
    assert says in str(caught.value)
