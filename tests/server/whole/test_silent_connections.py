"""Silent TCP connections of many addresses: those who speak TLS come in all the same (NODE-HANDSHAKES)."""

import asyncio
import contextlib

from tests.server.build_node import configured, serving
from waystation.protocols.bhumi.messages import FrameType
from waystation.transport.tls import client_context

ATTACKERS, EACH = 16, 16


def test_sixteen_addresses_do_not_close_a_tls_port(tmp_path):
    """256 connections that send nothing are open, each new one as often as one is closed; every client is served."""

    async def main():
        home = tmp_path / "home"
        settings = configured(home, bhumi__tls="127.0.0.1:0", bhumi__plain="")
        async with asyncio.timeout(60), serving(home, settings) as (server, _), contextlib.AsyncExitStack() as stack:
            port = int(server.operations.status()["listeners"]["bhumi"].rpartition(":")[2])
            context = client_context(home / "tls" / "ca.pem")

            async def silent(address):
                _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
                stack.callback(writer.close)

            async def served():
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", port, ssl=context, server_hostname="localhost"
                )
                stack.callback(writer.close)
                return await reader.readexactly(2)

            greetings = []
            for _ in range(EACH):
                for number in range(ATTACKERS):
                    await silent(f"127.0.1.{number + 1}")
                greetings.append(await served())
            refusals = server.operations.status()["totals"]["refusals"]
            return greetings, {reason for _, reason in refusals}

    greetings, reasons = asyncio.run(main())
    assert greetings == [FrameType.HELLO.to_bytes(2, "big")] * EACH
    assert reasons == {"handshake_displaced"}
