"""Laws of server.proxies.faults: what a proxy does wrong is counted, logged once a burst, and said in the status."""

import asyncio
import contextlib
import random

import pytest
from structlog.testing import capture_logs
from websockets.asyncio.client import connect

from tests.server.build import eventually
from tests.server.build_node import configured, serving
from waystation.engine.recorder import Recorder
from waystation.server.proxies.faults import ProxyFaults
from waystation.transport.proxies import ProxyFault

HEADER = b"PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\r\n"
BINARY_HEADER = b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes(12)
GET = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
TRUSTED = {"node__trusted_proxies": "127.0.0.1"}
ADMIN = {"admin__listen": "127.0.0.1:0"}


def counted(recorder):
    """Return the refusals and the peers that they name."""
    totals = recorder.totals()["refusals"]
    return totals, {key: [peer.subject for peer in recorder.refused_peers.of(*key)] for key in totals}


def recorder():
    """Return one that writes nothing."""
    return Recorder(lambda *_: None, random.Random(1))


def node_story(home, story, **settings):
    """Run a story over a serving node; return its result, refusals, trouble sentences and log lines."""

    async def main():
        async with asyncio.timeout(60), serving(home, configured(home, **settings)) as (server, _):
            await story(server, server.operations.status()["listeners"])
            status = server.operations.status()
            return status["totals"]["refusals"], status["trouble"]

    with capture_logs() as logged:
        refusals, troubles = asyncio.run(main())
    return refusals, troubles, [line for line in logged if line["event"] == "proxy.fault"]


async def say(url, sent, *, times=1):
    """Connect to the host and port of a URL and send bytes, so many times one after the other."""
    host, port = url.partition("://")[2].partition("/")[0].rsplit(":", 1)
    for _ in range(times):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        with contextlib.suppress(ConnectionError):
            writer.write_eof()
            await reader.read()
        writer.close()


@pytest.mark.parametrize("header", [HEADER, BINARY_HEADER])
@pytest.mark.parametrize(
    ("setting", "listener"),
    [("bhumi__plain", "bhumi_plain"), ("bhumi__tls", "bhumi"), ("merk__ws", "merk"), ("bsp__box", "bsp_box")],
)
def test_header_that_no_setting_expects_is_counted_and_said(tmp_path, setting, listener, header):
    """On a bare, a TLS, a WebSocket and an HTTP port alike; nobody is trusted here."""

    async def story(_server, listeners):
        await say(listeners[listener], header + GET, times=3)

    refusals, troubles, logged = node_story(tmp_path, story, **{setting: "127.0.0.1:0"})

    protocol = listener.partition("_")[0]
    assert refusals[protocol, "proxy_header_not_read"] == (2 if setting == "bhumi__tls" else 3)
    (sentence,) = [each for each in troubles if "PROXY header" in each]
    assert sentence.startswith(f"{protocol} got connections of a proxy")
    assert "node.proxy_protocol" in sentence
    assert [(line["protocol"], line["proxy"]) for line in logged] == [(protocol, "127.0.0.1")]


def test_header_at_the_admin_port_is_counted_under_its_name(tmp_path):
    """It belongs to no protocol, so that the journal has no row of it."""

    async def story(_server, listeners):
        await say(listeners["admin"], HEADER + GET)

    refusals, troubles, _ = node_story(tmp_path, story, **ADMIN)

    assert refusals == {("admin", "proxy_header_not_read"): 1}
    assert troubles[0].startswith("admin got connections of a proxy")


def test_websocket_for_which_a_trusted_proxy_names_nobody_is_counted(tmp_path):
    """It is served, as the proxy's own; a plain GET may be the proxy's look whether the node is there."""

    async def story(server, listeners):
        await say(listeners["merk"], GET)
        async with connect(f"{listeners['merk']}/merk", proxy=None) as line:
            await line.recv()
        await eventually(lambda: not server.operations.status()["sizes"]["node"]["connections"], "the end")

    refusals, troubles, logged = node_story(tmp_path, story, merk__ws="127.0.0.1:0", **TRUSTED)

    assert refusals == {("merk", "proxy_names_nobody"): 1}
    (sentence,) = [each for each in troubles if "named no client" in each]
    assert "node.proxy_header" in sentence
    assert [line["reason"] for line in logged] == ["proxy_names_nobody"]


def test_named_client_is_no_fault(tmp_path):
    """Not even where the proxy is on this machine."""

    async def story(_server, listeners):
        headers = {"X-Forwarded-For": "203.0.113.7"}
        async with connect(f"{listeners['merk']}/merk", proxy=None, additional_headers=headers) as line:
            await line.recv()

    refusals, troubles, logged = node_story(tmp_path, story, merk__ws="127.0.0.1:0", **TRUSTED)

    assert (refusals, [each for each in troubles if "proxy" in each], logged) == ({}, [], [])


def test_request_to_the_box_that_names_nobody_is_counted_and_one_to_the_admin_port_is_not(tmp_path):
    """The operator's own commands reach the admin port from a proxy's machine, too."""

    async def story(_server, listeners):
        await say(listeners["bsp_box"], GET)
        await say(listeners["admin"], GET)

    refusals, _, _ = node_story(tmp_path, story, bsp__box="127.0.0.1:0", **ADMIN, **TRUSTED)

    assert refusals == {("bsp", "proxy_names_nobody"): 1}


def test_box_that_misses_a_header_counts_it(tmp_path):
    """Like every other listener of ``node.proxy_protocol``."""

    async def story(_server, listeners):
        await say(listeners["bsp_box"], GET)

    settings = {"bsp__box": "127.0.0.1:0", "node__proxy_protocol": "bsp.box"}
    refusals, troubles, _ = node_story(tmp_path, story, **settings, **TRUSTED)

    assert refusals == {("bsp", "proxy_header"): 1}
    assert troubles[0].startswith("bsp refused connections of a trusted proxy")


def test_faults_of_one_proxy_are_one_line_and_all_are_counted():
    """A proxy connects a thousand times a second for all we know."""
    counts = recorder()
    faults = ProxyFaults(counts)

    with capture_logs() as lines:
        for _ in range(20):
            faults.note("merk", "10.0.0.1", ProxyFault.NO_HEADER, is_trusted=True)

    key = ("merk", "proxy_header")
    assert counted(counts) == ({key: 20}, {key: ["net:10.0.0.0/24"]})
    assert len(lines) == len(faults.troubles()) == 1


@pytest.mark.parametrize(("host", "is_trusted", "hurts"), [("8.8.8.8", False, 0), ("8.8.8.8", True, 1), ("", False, 0)])
def test_stranger_does_not_make_trouble(host, is_trusted, hurts):
    """Anybody can send these bytes; he is counted, and the operator's status says nothing."""
    counts = recorder()
    faults = ProxyFaults(counts)

    faults.note("bsp", host, ProxyFault.HEADER_NOT_READ, is_trusted=is_trusted)

    assert counts.totals()["refusals"] == {("bsp", "proxy_header_not_read"): 1}
    assert len(faults.troubles()) == hurts
