"""What the kernel is told about every TCP connection between a node and clients of all protocols (NODE-SILENCE)."""

import asyncio
import contextlib
import os
import socket
import stat
from pathlib import Path

import waystation
from soak.bsp.nodes import share_table
from tests.server.build import eventually
from tests.server.build_node import configured, serving
from waystation.sdk.bsp import BspHome, BspPeer, PeerUp
from waystation.transport.silence import SilencePolicy

NODE_MS, CLIENT_S = 12_000, 21.0
BOTH = [NODE_MS, int(CLIENT_S * 1_000)]
PATIENCE_S = 60


def policy_of(stream):
    """Return the limit in milliseconds that the options of a connected socket stand for; 0 for none."""
    if not stream.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE):
        return 0
    names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    found = tuple(stream.getsockopt(socket.IPPROTO_TCP, name) for name in names)
    known = {limit_ms: SilencePolicy(limit_ms) for limit_ms in (NODE_MS, int(CLIENT_S * 1_000))}
    fitting = [ms for ms, each in known.items() if (each.idle_s, each.interval_s, each.questions_count) == found]
    return fitting[0] if fitting else -1


def streams():
    """Yield every connected TCP socket of this process."""
    for opened in tuple(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(opened.name)).st_mode):
                with socket.socket(fileno=os.dup(int(opened.name))) as found:
                    if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
                        found.getpeername()
                        yield found


def limits(port):
    """Return the limits at both ends of the connections of a listener, sorted."""
    return sorted(policy_of(each) for each in streams() if port in (each.getsockname()[1], each.getpeername()[1]))


@contextlib.asynccontextmanager
async def clients(folder, urls, node_key, bsp_home):
    """Connect a client of each protocol that runs over TCP."""
    tls = waystation.tls(folder / "node" / "tls" / "ca.pem")
    up = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        bhumi = waystation.bhumi.open(folder / "bhumi", urls["bhumi"], tls=tls, silence_s=CLIENT_S)
        device = await stack.enter_async_context(bhumi)
        asking = asyncio.create_task(device.serve(lambda request: request.text))
        stack.callback(asking.cancel)
        merk = waystation.merk.open(folder / "merk", urls["merk"], only=True, silence_s=CLIENT_S)
        await stack.enter_async_context(merk)
        strata = waystation.strata.open(folder / "strata", urls["strata"], only=True, silence_s=CLIENT_S)
        reader = await stack.enter_async_context(strata)
        await reader.send({"type": "POST", "text": "hello"})
        peer = BspPeer(
            bsp_home, silence_s=CLIENT_S, on_event=lambda event: up.set() if isinstance(event, PeerUp) else None
        )
        await stack.enter_async_context(peer)
        await peer.meet(node_key, "node", urls["bsp"])
        async with asyncio.timeout(PATIENCE_S):
            await up.wait()
        yield


def test_every_stream_follows_the_policy_of_its_side(tmp_path):
    """NODE-SILENCE: node.silence_ms at the node's end, silence_s at the client's; the admin port has neither."""

    async def main():
        home = tmp_path / "node"
        bsp_home = BspHome(tmp_path / "bsp")
        tables = tmp_path / "node.toml"
        tables.write_text(share_table([bsp_home.key]))
        listeners = {
            f"{name}__{kind}": "127.0.0.1:0"
            for name, kind in (("bhumi", "tls"), ("bsp", "tls"), ("merk", "ws"), ("strata", "ws"), ("admin", "listen"))
        }
        config = configured(home, tables, node__silence_ms=str(NODE_MS), bhumi__plain="", **listeners)
        found = {}
        async with serving(home, config) as (server, _):
            urls = server.operations.status()["listeners"]
            key = bytes.fromhex(server.operations.status()["node"]["public_key"])
            async with clients(tmp_path, urls, waystation.PublicKey(key), bsp_home):
                for name in ("bhumi", "bsp", "merk", "strata"):
                    port = int(urls[name].split("/")[2].rpartition(":")[2])
                    await eventually(lambda port=port: limits(port) == BOTH, f"the policy of {name}")
                    found[name] = limits(port)
                place = urls["admin"].split("/")[2].rpartition(":")
                reader, writer = await asyncio.open_connection(place[0], int(place[2]))
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                await reader.readuntil(b"\r\n")
                found["admin"] = limits(int(place[2]))
                writer.close()
        bsp_home.close()
        return found

    found = asyncio.run(main())

    assert found == {"bhumi": BOTH, "bsp": BOTH, "merk": BOTH, "strata": BOTH, "admin": [0, 0]}


def test_reload_changes_it_for_new_connections(tmp_path):
    """node.silence_ms holds for who connects after a reload; who is there keeps what it had."""

    async def main():
        settings = tmp_path / "node.toml"
        settings.write_text(f"[node]\nsilence_ms = {NODE_MS}\n")
        config = configured(tmp_path / "node", settings)
        found = []
        async with serving(tmp_path / "node", config) as (server, _), contextlib.AsyncExitStack() as stack:
            port = int(server.operations.status()["listeners"]["bhumi_plain"].rpartition(":")[2])
            for text in (str(NODE_MS), str(int(CLIENT_S * 1_000))):
                settings.write_text(f"[node]\nsilence_ms = {text}\n")
                server.reload()
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                stack.callback(writer.close)
                await reader.readexactly(1)
                found.append([each for each in limits(port) if each])
        return found

    assert asyncio.run(main()) == [[NODE_MS], BOTH]
