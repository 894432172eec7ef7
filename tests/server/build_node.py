"""Whole nodes in the loop of a test."""

import asyncio
import contextlib

from tests.server.build import eventually
from waystation.core.errors import HostError
from waystation.server.bhumi.tables import BhumiListenSettings
from waystation.server.bsp.tables import BspListenSettings
from waystation.server.config.load import load_config
from waystation.server.config.web_ports import shared_web_ports
from waystation.server.home import Home
from waystation.server.lprp.tables import LprpListenSettings
from waystation.server.node import NodeServer

OFF = {
    "bhumi.tls": "",
    "bhumi.plain": "127.0.0.1:0",
    "bsp.tls": "",
    "lprp.udp": "",
    "merk.ws": "",
    "strata.ws": "",
    "admin.listen": "",
    "admin.socket": "",
}


def configured(home, config_path=None, **settings):
    """Return a configuration with quiet listeners and these settings ("table__key")."""
    chosen = OFF | {"node.home": str(home)} | {key.replace("__", "."): value for key, value in settings.items()}
    return load_config(config_path, {}, chosen)


def listeners_of(config):
    """Return the names of the listeners that a configuration asks for."""
    bhumi, bsp, lprp = config.of(BhumiListenSettings), config.of(BspListenSettings), config.of(LprpListenSettings)
    web = [port.table for group in shared_web_ports(config) for port in group]
    asked = {
        "bhumi": bhumi.enabled and bhumi.tls,
        "bhumi_plain": bhumi.enabled and bhumi.plain,
        "bsp": bsp.enabled and bsp.tls,
        "bsp_plain": bsp.enabled and bsp.plain,
        "lprp": lprp.enabled and lprp.udp,
        "admin": config.admin.listen,
    }
    return {name for name, address in asked.items() if address} | set(web)


@contextlib.asynccontextmanager
async def serving(home, config=None, kind=Home, static=None):
    """Give a node that serves in this loop, and the task whose result is its exit code."""
    place = kind(home)
    place.ensure()
    with place.lock():
        config = config or configured(home)
        server = NodeServer(config, place, static)
        task = asyncio.create_task(server.serve())

        def all_open():
            urls = server.operations.status()["listeners"]  # the blind box has "" until it is open
            return listeners_of(config) <= urls.keys() and all(urls.values())

        await eventually(lambda: task.done() or all_open())
        try:
            yield server, task
        finally:
            server.stop()
            with contextlib.suppress(HostError):
                await task
