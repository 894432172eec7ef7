"""A node on both families: clients reach it by name over either, and answers leave from the address that was asked."""

import asyncio
import contextlib
import socket

import pytest

import waystation
from tests.server.build_node import configured, serving
from tests.server.lprp.stand_in import Party
from tests.transport.datagrams.build_udp import HAS_IPV6
from tests.transport.resolver import resolving

PATIENCE_S = 20
FAMILIES = ["*", "127.0.0.1", "[::1]"] if HAS_IPV6 else ["*", "127.0.0.1"]
HOSTS = ["127.0.0.1", "127.0.0.2", "::1"] if HAS_IPV6 else ["127.0.0.1", "127.0.0.2"]
LPRP = {"lprp__pow_base_bits_lease": "0", "lprp__pow_adaptive": "false"}


def everywhere(home, host, **settings):
    """Return a configuration whose listeners are all on one host, on free ports."""
    names = ("bhumi__tls", "bsp__tls", "lprp__udp", "merk__ws", "strata__ws")
    return configured(home, **dict.fromkeys(names, f"{host}:0"), **LPRP, **settings)


def url_of(server, name):
    """Return the address of a listener under the name localhost."""
    address = server.operations.status()["listeners"][name]
    scheme, _, rest = address.partition("://")
    port = rest.rpartition(":")[2].partition("/")[0]
    path = rest.partition("/")[2]
    return f"{scheme}://localhost:{port}" + (f"/{path}" if path else "")


async def merk(home, server):
    """Connect a MERK client."""
    async with waystation.merk.open(home / "merk", url_of(server, "merk"), only=True) as client:
        return len(client.public_key) == 32


async def strata(home, server):
    """Publish a Strata packet."""
    async with waystation.strata.open(home / "strata", url_of(server, "strata"), only=True) as client:
        return (await client.send({"type": "POST", "content": "hello"})).ok


async def bhumi(home, server):
    """Connect a Bhumi device over TLS."""
    tls = waystation.tls(home / "node" / "tls" / "ca.pem")
    async with waystation.bhumi.open(home / "bhumi", url_of(server, "bhumi"), tls=tls) as client:
        return len(client.public_key) == 32


async def lprp(home, server):
    """Get a lease of the LPRP host."""
    key = server.operations.status()["node"]["public_key"]
    place = url_of(server, "lprp").removeprefix("udp://")
    async with waystation.lprp.open(home / "lprp", f"lprp://{key}@{place}") as client:
        return len(client.public_key) == 32


@pytest.mark.parametrize("connect", [merk, strata, bhumi, lprp])
@pytest.mark.parametrize("host", FAMILIES)
def test_client_reaches_the_node_by_name_on_either_family(tmp_path, host, connect):
    """NODE-DUAL: the name localhost leads to a node on IPv4, on IPv6 and on both."""

    async def story():
        async with serving(tmp_path / "node", everywhere(tmp_path / "node", host)) as (server, _), in_time():
            with resolving():
                return await connect(tmp_path, server)

    assert asyncio.run(story())


def test_merk_and_strata_share_every_address(tmp_path):
    """NODE-DUAL: one listener has both protocols and both families, and is shown as one place that can be dialled."""

    async def story():
        number = free_tcp_port()
        config = configured(tmp_path, merk__ws=f"*:{number}", strata__ws=f"*:{number}")
        async with serving(tmp_path, config) as (server, _), in_time():
            writers = [(await asyncio.open_connection(host, number))[1] for host in HOSTS]
            for writer in writers:
                writer.close()
            listeners = server.operations.status()["listeners"]
            return listeners["merk"], listeners["strata"], number

    merk_url, strata_url, number = asyncio.run(story())

    assert merk_url.startswith(f"ws://0.0.0.0:{number}")
    assert strata_url == f"ws://0.0.0.0:{number}/strata"


@pytest.mark.parametrize("host", HOSTS)
def test_lease_is_answered_from_the_address_that_was_asked(tmp_path, host):
    """NODE-PKTINFO: a tenant whose socket drops answers from elsewhere gets its lease at each address of the node."""

    async def story():
        async with serving(tmp_path, everywhere(tmp_path, "*")) as (server, _), in_time():
            status = server.operations.status()
            port = int(status["listeners"]["lprp"].rpartition(":")[2])
            party = Party(b"\x07" * 32, bytes.fromhex(status["node"]["public_key"]), (host, port))
            answer = await asyncio.get_running_loop().run_in_executor(None, party.lease)
            party.socket.close()
            return answer, server.operations.tenants(10)[0][0]["address"]

    answer, address = asyncio.run(story())

    assert answer is not None
    assert address.startswith("[::1]:" if host == "::1" else "127.0.0.")


def in_time():
    """End what hangs."""
    return asyncio.timeout(PATIENCE_S)


def free_tcp_port():
    """Return a port where nobody listens."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as probe:
        return probe.getsockname()[1]
