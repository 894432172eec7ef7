"""Laws of server.listeners: which ports are bound, what stands behind each path, and whose certificate it shows."""

import asyncio
import contextlib
import random
import socket
import time
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.server.build import eventually
from tests.server.build_hosts import context_of
from waystation.core.answers import HttpAnswer
from waystation.core.errors import HostError
from waystation.engine.admission import Admission
from waystation.engine.bans import BanList
from waystation.engine.node import Node
from waystation.engine.recorder import Recorder
from waystation.server.certificates.in_force import Certificates
from waystation.server.commit import GroupCommit
from waystation.server.config.load import load_config
from waystation.server.failures.log import FailureLog
from waystation.server.home import Home
from waystation.server.hosted import build_hosts
from waystation.server.http.public_pages import PublicPages
from waystation.server.http.well_known import WellKnown
from waystation.server.hub import Hub, monotonic_now
from waystation.server.listeners import Listeners
from waystation.server.proxies.rules import ProxyRules
from waystation.store.memory import MemoryStore
from waystation.transport.http_get import http_get
from waystation.transport.silence import SilencePolicy
from waystation.transport.tls import client_context

PATIENCE_S = 20
QUIET = {"bhumi.tls": "", "bsp.tls": "", "lprp.udp": "", "merk.ws": "", "strata.ws": ""}
CHALLENGE_BYTES = 152  # specs/merk.md 2: a header of 120 bytes and a challenge of 32


def free_address():
    """Return an address that is free for a moment."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"


@contextlib.asynccontextmanager
async def listening(home, **flags):
    """Give the open listeners of a configuration, ``merk__x="y"`` being merk.x = y, over real relays."""
    config = load_config(None, {}, QUIET | {name.replace("__", "."): value for name, value in flags.items()})
    place = Home(home)
    place.ensure()
    store = MemoryStore()
    hosts = build_hosts(context_of(config, home, place.key_pair()))
    relays = {name: host.relay for name, host in hosts.items()}
    recorder = Recorder(lambda _event: None, random.Random(1))
    recorder.set_wall(monotonic_now(), time.time_ns() // 1_000)
    recorder.use_key(b"k" * 32)
    commits = GroupCommit(store, FailureLog(monotonic_now))
    hub = Hub(Node(relays, Admission(), BanList(store), recorder), commits)
    pages = PublicPages(
        WellKnown("node", {}, dict, hosts),
        monotonic_now,
        static=lambda path: HttpAnswer(200, (), b"page") if path == "/" else None,
        fallback=lambda path, *_asked: HttpAnswer(200, (), f"strata {path}".encode()),
    )
    certificates = Certificates(config, place, lambda: None)
    certificates.use(config)
    rules = ProxyRules(config.node)

    def silence():
        return SilencePolicy(config.node.silence_ms)

    listeners = Listeners(config, certificates.context, hosts, hub, pages, rules, silence)
    try:
        await listeners.open()
        yield listeners
    finally:
        for each in listeners:
            each.close()
        hub.abort_all()
        await eventually(hub.idle)
        hub.close()
        await commits.close()


def told(home, story, **flags):
    """Run a story with listeners."""

    async def main():
        async with asyncio.timeout(PATIENCE_S), listening(home, **flags) as listeners:
            return await story(listeners)

    return asyncio.run(main())


def dial(url, **options):
    """Dial with the foreign client."""
    return connect(url, proxy=None, **options)


def test_every_listener_has_its_url(tmp_path):
    """Names and schemes are those of the ready line; MERK's has no path, Strata's has its own."""

    async def story(listeners):
        return listeners.urls(), len(list(listeners)), listeners.ports()

    flags = dict.fromkeys(("bhumi__tls", "bhumi__plain", "lprp__udp", "merk__ws", "strata__ws"), "127.0.0.1:0")
    urls, count, ports = told(tmp_path, story, **flags)
    parts = {name: urlsplit(url) for name, url in urls.items()}

    assert {name: part.scheme for name, part in parts.items()} == {
        "bhumi": "tls",
        "bhumi_plain": "tcp",
        "lprp": "udp",
        "merk": "ws",
        "strata": "ws",
    }
    assert (parts["merk"].path, parts["strata"].path) == ("", "/strata")
    assert count == len({part.port for part in parts.values()}) == 5
    assert ports == {name: part.port for name, part in parts.items()}


def test_what_is_off_is_not_bound(tmp_path):
    """An empty address and a disabled protocol open nothing."""

    async def story(listeners):
        return listeners.urls()

    assert told(tmp_path, story) == {}
    assert told(tmp_path, story, merk__ws="127.0.0.1:0", merk__enabled="false") == {}
    assert told(tmp_path, story, lprp__udp="127.0.0.1:0", lprp__enabled="false") == {}


def test_datagrams_reach_the_host_and_go_on_while_the_node_drains(tmp_path):
    """Closing the listeners shuts the doors of connections; what a host still owes leaves through its open port."""

    async def story(listeners):
        listeners.close()
        opened = listeners.named["lprp"]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.setblocking(False)
            peer.bind(("127.0.0.1", 0))
            await asyncio.get_running_loop().sock_sendto(peer, b"junk", ("127.0.0.1", opened.port))
            await eventually(lambda: listeners.datagrams()["lprp"].received)
            opened.send([(b"owed", peer.getsockname())])
            said = await asyncio.get_running_loop().sock_recv(peer, 100)
        counts = listeners.datagrams()["lprp"]
        opened.close()
        return said, counts.received, counts.sent, listeners._hub._node.traffic()

    assert told(tmp_path, story, lprp__udp="127.0.0.1:0") == (b"owed", 1, 1, {"lprp": {"in": 4, "out": 0}})


def test_taken_udp_port_is_a_sentence(tmp_path):
    """A port that another program has ends the start with the exit code of ports."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(HostError, match="the port is taken") as caught:
            told(tmp_path, None, lprp__udp=f"127.0.0.1:{taken.getsockname()[1]}")

    assert caught.value.exit_code == 4


def test_one_address_is_one_port_for_both(tmp_path):
    """MERK and Strata meet at the same port, each behind its paths, and either name leads there."""
    address = free_address()

    async def story(listeners):
        urls = listeners.urls()
        async with dial(f"{urls['merk']}/merk") as merk, dial(urls["strata"]) as strata:
            return urls, len(list(listeners)), len(await merk.recv()), await strata.recv()

    urls, count, challenge_bytes, hello = told(tmp_path, story, merk__ws=address, strata__ws=address)

    assert urls == {"merk": f"ws://{address}", "strata": f"ws://{address}/strata"}
    assert (count, challenge_bytes) == (1, CHALLENGE_BYTES)
    assert '"AUTH_CHALLENGE"' in hello


@pytest.mark.parametrize("path", ["/", "/merk", "/?x=1"])
def test_merk_greets_on_its_paths(tmp_path, path):
    """A client that connects to any of them is challenged, in binary."""

    async def story(listeners):
        async with dial(f"{listeners.urls()['merk']}{path}") as client:
            return len(await client.recv())

    assert told(tmp_path, story, merk__ws="127.0.0.1:0") == CHALLENGE_BYTES


def test_mesh_door_greets_nobody(tmp_path):
    """An original node is not spoken to first: before its own first frame nothing comes but the answer to its ping."""

    async def story(listeners):
        async with dial(f"{listeners.urls()['merk']}/mesh") as node:
            await (await node.ping())
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(node.recv(), 0.05)
        return True

    assert told(tmp_path, story, merk__ws="127.0.0.1:0")


def test_mesh_door_may_be_off(tmp_path):
    """Without its path there is no door, and the path is a page that nobody has."""

    async def story(listeners):
        with pytest.raises(InvalidStatus) as caught:
            await dial(f"{listeners.urls()['merk']}/mesh")
        return caught.value.response.status_code

    assert told(tmp_path, story, merk__ws="127.0.0.1:0", merk__mesh_path="") == 200


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/", 200, b"page"),
        ("/merk", 426, b""),
        ("/mesh", 426, b""),
        ("/strata/descriptor", 200, b"strata /strata/descriptor"),
        ("/elsewhere?x=1", 200, b"strata /elsewhere?x=1"),
    ],
)
@pytest.mark.parametrize("shared", [True, False])
def test_plain_get(tmp_path, path, status, body, shared):
    """A path with a page and a WebSocket gives the page; one with only a WebSocket says so; the rest is the pages'."""
    address = free_address()

    async def story(listeners):
        return await http_get(f"{listeners.urls()['merk'].replace('ws:', 'http:')}{path}")

    flags = {"merk__ws": address} | ({"strata__ws": address} if shared else {})

    assert told(tmp_path, story, **flags) == (status, body)


def test_merk_takes_its_frames_and_their_envelope_and_no_more(tmp_path):
    """A message above the frame limit and the envelope closes with 1009; a text with 1003."""

    async def status_of(listeners, message):
        async with dial(f"{listeners.urls()['merk']}/merk") as client:
            await client.recv()
            await client.send(message)
            with contextlib.suppress(ConnectionClosed):
                while True:
                    await client.recv()
            return client.close_code

    async def story(listeners):
        return [await status_of(listeners, message) for message in (bytes(1_281), "text")]

    flags = {"merk__ws": "127.0.0.1:0", "merk__max_frame_bytes": "1024"}

    assert told(tmp_path, story, **flags) == [1009, 1003]


def test_merk_asks_who_is_silent(tmp_path):
    """NODE-SILENCE: a connection gets a ping once it has been silent for a third of the node's limit."""
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13"
    request = f"GET /merk HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{key}\r\n\r\n"

    async def story(opened):
        place = urlsplit(opened.urls()["merk"])
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(request.encode())
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(4 + CHALLENGE_BYTES)
        asked = await reader.readexactly(2)
        writer.close()
        return asked

    assert told(tmp_path, story, merk__ws="127.0.0.1:0", node__silence_ms="1000") == b"\x89\x00"


def test_strata_keeps_its_own_limit_on_a_shared_port(tmp_path):
    """Eight MiB of MERK do not make Strata take more than its two."""
    address = free_address()

    async def story(listeners):
        async with dial(listeners.urls()["strata"]) as client:
            await client.recv()
            await client.send("x" * 2_097_153)
            with contextlib.suppress(ConnectionClosed):
                await client.recv()
            return client.close_code

    assert told(tmp_path, story, merk__ws=address, strata__ws=address) == 1009


def test_wss_shows_the_certificate_of_the_node(tmp_path):
    """With tls the port speaks wss; tests/server/certificates/ has what becomes of a new certificate."""

    async def story(listeners):
        url = listeners.urls()["merk"]
        context = client_context(tmp_path / "tls/ca.pem")
        async with dial(f"{url}/merk", ssl=context) as client:
            return url, len(await client.recv())

    url, challenge_bytes = told(tmp_path, story, merk__ws="127.0.0.1:0", merk__tls="true")

    assert url.startswith("wss://127.0.0.1:")
    assert challenge_bytes == CHALLENGE_BYTES


def test_taken_port_is_refused(tmp_path):
    """The error names the address; what was bound before can still be closed."""
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(HostError, match="the port is taken"):
        told(tmp_path, None, bhumi__plain="127.0.0.1:0", merk__ws=f"127.0.0.1:{taken.getsockname()[1]}")


def test_ports_of_bsp_have_their_names(tmp_path):
    """TLS, bare records, and the path on each port of a WebSocket that speaks TLS, told under the first of them."""

    async def story(listeners):
        return listeners.urls(), listeners.ports(), len(list(listeners))

    on = dict.fromkeys(("bsp__tls", "bsp__plain", "merk__ws", "strata__ws"), "127.0.0.1:0")
    on |= {"bsp__plain_peer": "ab" * 32, "merk__tls": "true", "strata__tls": "true", "bsp__path": "/sync"}
    urls, ports, count = told(tmp_path, story, **on)

    assert urls["bsp"] == f"tls://127.0.0.1:{ports['bsp']}"
    assert urls["bsp_plain"] == f"tcp://127.0.0.1:{ports['bsp_plain']}"
    assert urls["bsp_wss"] == f"wss://127.0.0.1:{ports['merk']}/sync"
    assert count == 4


@pytest.mark.parametrize(
    "flags", [{}, {"merk__tls": "true", "bsp__path": ""}, {"merk__tls": "true", "bsp__enabled": "false"}]
)
def test_web_port_without_tls_of_ours_does_not_carry_bsp(tmp_path, flags):
    """A proof must cover the certificate that the peer sees, so where we do not know it the path is nobody's."""

    async def story(listeners):
        url = listeners.urls()["merk"].replace("127.0.0.1", "localhost")
        context = client_context(tmp_path / "tls/ca.pem") if url.startswith("wss") else None
        with pytest.raises(InvalidStatus) as refused:
            await dial(f"{url}/bsp", ssl=context)
        return listeners.urls(), refused.value.response.status_code

    urls, status = told(tmp_path, story, merk__ws="127.0.0.1:0", **flags)

    assert "bsp_wss" not in urls
    assert status == 200  # what a plain GET of an unknown path gets here


@pytest.mark.parametrize(("where", "scheme"), [("127.0.0.1:0", "tcp"), ("0.0.0.0:0", "tls")])
def test_upstream_door_speaks_tls_unless_it_is_on_loopback(tmp_path, where, scheme):
    """Nodes of the original dial it from anywhere; the certificate is that of the other Bhumi door."""

    async def story():
        async with listening(tmp_path, bhumi__tls="127.0.0.1:0", bhumi__upstream_listen=where) as listeners:
            url = listeners.urls()["bhumi_upstream"]
            context = client_context(tmp_path / "tls/ca.pem") if scheme == "tls" else None
            port = int(url.rpartition(":")[2])
            name = "localhost" if context is not None else None
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
            hello = await asyncio.wait_for(reader.readexactly(15), PATIENCE_S)
            writer.close()
            return url, hello

    url, hello = asyncio.run(story())

    assert url.startswith(f"{scheme}://")
    assert hello[:6] == b"\x00\x01\x00\x00\x00\x09"
