"""The recipes of docs/operating.md with real proxies, nginx and HAProxy of Debian: apt-get install nginx haproxy."""

import asyncio
import contextlib
import re
import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.server.build import eventually
from tests.server.build_node import configured, serving
from tools.served import free_port
from waystation.engine.bans import Ban
from waystation.protocols.bhumi.messages import FrameType
from waystation.transport.tls import client_context

GUIDE = Path(__file__).parents[3] / "docs" / "operating.md"
CLIENTS = 1_000
AT_ONCE = 50
PER_CLIENT = 2

NGINX = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    set_real_ip_from 127.0.0.1;
    real_ip_header X-Test-Client;
    server {{
        listen 127.0.0.1:{port};
        {location}
    }}
}}
"""


def recipe(language, **changed):
    """Return the guide's recipe for a proxy, with these texts in place of others."""
    (text,) = re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    for old, new in changed.values():
        assert old in text
        text = text.replace(old, new)
    return text


@contextlib.asynccontextmanager
async def running(port, *command):
    """Run a proxy until the end of the test."""
    assert shutil.which(command[0]), f"{command[0]} is not installed; run: apt-get install {command[0]}"
    process = subprocess.Popen(command)  # noqa: ASYNC220 - it is only begun here
    try:
        await eventually(lambda: answers(port), f"{command[0]} on port {port}")
        yield
    finally:
        process.terminate()
        process.wait(10)


def answers(port):
    """Return whether a program listens on a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
def test_a_thousand_clients_of_nginx_have_their_own_limits(tmp_path):
    """Two connections of each of 1,000 addresses stand at once, and one banned address bans one."""

    async def main():
        port, web = free_port(), free_port()
        location = recipe("nginx", port=("8080", str(web)))
        (tmp_path / "nginx.conf").write_text(NGINX.format(folder=tmp_path, port=port, location=location))
        settings = configured(tmp_path / "home", strata__ws=f"127.0.0.1:{web}", node__trusted_proxies="127.0.0.1")
        async with (
            serving(tmp_path / "home", settings) as (server, _),
            running(port, "nginx", "-c", str(tmp_path / "nginx.conf"), "-p", str(tmp_path)),
        ):
            gate = asyncio.Semaphore(AT_ONCE)

            async def dial(number):
                client = f"100.{64 + number // 256}.{number % 256}.1"  # each in a network of its own
                async with gate:
                    return await connect(
                        f"ws://127.0.0.1:{port}/strata",
                        proxy=None,
                        open_timeout=60,
                        additional_headers={"X-Test-Client": client},
                    )

            lines = await asyncio.gather(*(dial(number) for number in range(CLIENTS) for _ in range(PER_CLIENT)))
            stood = server.operations.status()["sizes"]["node"]["connections"]
            await server.operations.ban(Ban("address:100.64.7.1", "a test", 0, None))
            with pytest.raises(InvalidStatus) as refused:
                await dial(7)
            lines.append(await dial(8))
            await asyncio.gather(*(line.close() for line in lines))
            return stood, refused.value.response.status_code

    assert asyncio.run(main()) == (CLIENTS * PER_CLIENT, 429)


@pytest.mark.slow
def test_haproxy_passes_tls_on_and_names_the_client(tmp_path):
    """The TLS is the node's own, and the ban of a client of HAProxy bans that client alone."""

    async def main():
        port, tls = free_port(), free_port()
        text = recipe("haproxy", bind=(":443", f"127.0.0.1:{port}"), server=("127.0.0.1:8443", f"127.0.0.1:{tls}"))
        head = "defaults\n    timeout connect 5s\n    timeout client 60s\n    timeout server 60s\n"
        (tmp_path / "haproxy.cfg").write_text(head + text)
        settings = configured(
            tmp_path / "home",
            bhumi__tls=f"127.0.0.1:{tls}",
            node__trusted_proxies="127.0.0.1/32",
            node__proxy_protocol="bhumi.tls",
        )
        async with (
            serving(tmp_path / "home", settings) as (server, _),
            running(port, "haproxy", "-db", "-f", str(tmp_path / "haproxy.cfg")),
        ):
            await server.operations.ban(Ban("address:127.0.0.7", "a test", 0, None))
            context = client_context(tmp_path / "home" / "tls" / "ca.pem")

            async def greeting(source):
                """Return the first bytes of the relay's HELLO."""
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", port, ssl=context, server_hostname="localhost", local_addr=(source, 0)
                )
                try:
                    return await reader.readexactly(2)
                finally:
                    writer.close()

            with pytest.raises((ConnectionError, ssl.SSLError)):
                await greeting("127.0.0.7")
            return await greeting("127.0.0.8")

    assert asyncio.run(main()) == FrameType.HELLO.to_bytes(2, "big")
