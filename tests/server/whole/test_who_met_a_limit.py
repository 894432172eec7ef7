"""The limits of a running node show who met them last: by identity, else by network (NODE-NAMED)."""

import asyncio
import json

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidMessage, InvalidStatus

from tests.server.build import eventually
from tests.server.build_node import configured, serving

LOOPBACK = "net:127.0.0.0/24"
PROXIED = "net:203.0.113.0/24"
FORWARDED = {"X-Forwarded-For": "203.0.113.7"}


def met(home, story, **settings):
    """Run a story over a node and return its limits that were met, by name, with the peers."""

    async def main():
        async with asyncio.timeout(60), serving(home, configured(home, **settings)) as (server, _):
            await story(server.operations.status()["listeners"])
            await eventually(lambda: any(view["times"] for view in server.operations.limits()), "a refusal")
            limits = server.operations.limits()
            refusals = server.operations.status()["totals"]["refusals"]
            return {
                view["name"]: [peer["subject"] for peer in view["peers"]] for view in limits if view["times"]
            }, refusals

    return asyncio.run(main())


def test_limit_of_the_box_shows_the_network_that_met_it(tmp_path):
    """Whoever tries tokens has no name."""

    async def story(urls):
        host, port = urls["bsp_box"].removeprefix("http://").split(":")
        for _ in range(3):
            reader, writer = await asyncio.open_connection(host, int(port))
            head = [
                "GET /v1/folders HTTP/1.1",
                "Host: x",
                "Connection: close",
                "Authorization: Bearer " + "0" * 64,
                "",
                "",
            ]
            writer.write("\r\n".join(head).encode())
            await reader.read()
            writer.close()

    shown, refusals = met(tmp_path, story, bsp__box="127.0.0.1:0", limits__bsp_box__bad_tokens_per_minute="1")

    assert shown["limits.bsp_box.bad_tokens_per_minute"] == [LOOPBACK]
    assert refusals["bsp_box", "too_many_bad_tokens"] == 2


def test_limit_of_anonymous_readers_of_strata_shows_their_network(tmp_path):
    """Their identity is unknown, and an operator must see whom a limit keeps out."""

    async def story(urls):
        async with connect(urls["strata"], proxy=None) as line:
            for number in range(3):
                frame = {
                    "type": "SUBSCRIBE",
                    "subscription_id": f"s{number}",
                    "filters": {},
                    "client_msg_id": f"m{number}",
                }
                await line.send(json.dumps(frame))
            while "rate_limited" not in await line.recv():
                pass

    settings = {"limits__strata__subscribe_per_minute_anonymous": "1"}
    shown, _ = met(tmp_path, story, strata__ws="127.0.0.1:0", **settings)

    assert shown["limits.strata.subscribe_per_minute_anonymous"] == [LOOPBACK]


def test_rate_of_connections_of_merk_shows_the_network_that_met_it(tmp_path):
    """Whoever connects too often has proved no key."""

    async def story(urls):
        for _ in range(3):
            async with connect(urls["merk"] + "/merk", proxy=None) as line:
                try:
                    await line.recv()
                except ConnectionClosed:
                    return

    settings = {"limits__merk__connects_burst": "1", "limits__merk__connects_per_second": "1"}
    shown, _ = met(tmp_path, story, merk__ws="127.0.0.1:0", **settings)

    assert shown["limits.merk.connects_burst"] == [LOOPBACK]


@pytest.mark.parametrize(("protocol", "listener", "path"), [("merk", "merk", "/merk"), ("bsp", "bsp_wss", "")])
def test_ceiling_on_a_shared_port_counts_for_the_protocol_that_was_asked_for(tmp_path, protocol, listener, path):
    """A proxy's client says its path before it is counted."""

    async def story(urls):
        url = urls[listener].replace("wss://", "ws://") + path
        async with connect(url, proxy=None, additional_headers=FORWARDED):
            with pytest.raises(InvalidStatus):
                await connect(url, proxy=None, additional_headers=FORWARDED)

    settings = {"bsp__terminator_certificate": "aa" * 32, "node__trusted_proxies": "127.0.0.1"}
    shown, refusals = met(tmp_path, story, merk__ws="127.0.0.1:0", limits__connections_per_address="1", **settings)

    assert refusals == {(protocol, "address_full"): 1}
    assert shown["limits.connections_per_address"] == [PROXIED]


@pytest.mark.parametrize(("carries", "counted"), [({"bsp__terminator_certificate": "aa" * 32}, "web"), ({}, "merk")])
def test_ceiling_before_the_path_is_known_counts_for_the_port(tmp_path, carries, counted):
    """A direct connection is counted before it says a path, so a port of several protocols cannot say which."""

    async def story(urls):
        url = urls["merk"] + "/merk"
        async with connect(url, proxy=None):
            with pytest.raises((OSError, ConnectionClosed, InvalidMessage)):
                await connect(url, proxy=None)

    shown, refusals = met(tmp_path, story, merk__ws="127.0.0.1:0", limits__connections_per_address="1", **carries)

    assert refusals == {(counted, "address_full"): 1}
    assert shown["limits.connections_per_address"] == [LOOPBACK]
