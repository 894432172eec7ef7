"""Whole nodes in the loop of a test."""

import asyncio
import contextlib

from tests.server.build import eventually
from waystation.core.errors import HostError
from waystation.server.config import load_config
from waystation.server.home import Home
from waystation.server.node import NodeServer

OFF = {
    "bhumi.tls": "",
    "bhumi.plain": "127.0.0.1:0",
    "bsp.tls": "",
    "lprp.udp": "",
    "merk.ws": "",
    "strata.ws": "",
    "admin.listen": "",
}


def configured(home, config_path=None, **settings):
    """Return a configuration with quiet listeners and these settings ("table__key")."""
    chosen = OFF | {"node.home": str(home)} | {key.replace("__", "."): value for key, value in settings.items()}
    return load_config(config_path, {}, chosen)


def listeners_of(config):
    """Return the names of the listeners that a configuration asks for."""
    bhumi, merk, strata = config.bhumi_listen, config.merk_listen, config.strata_listen
    bsp, lprp = config.bsp_listen, config.lprp_listen
    asked = {
        "bhumi": bhumi.enabled and bhumi.tls,
        "bhumi_plain": bhumi.enabled and bhumi.plain,
        "bsp": bsp.enabled and bsp.tls,
        "bsp_plain": bsp.enabled and bsp.plain,
        "lprp": lprp.enabled and lprp.udp,
        "merk": merk.enabled and merk.ws,
        "strata": strata.enabled and strata.ws,
        "admin": config.admin.listen,
    }
    return {name for name, address in asked.items() if address}


@contextlib.asynccontextmanager
async def serving(home, config=None, kind=Home, static=None):
    """Give a node that serves in this loop, and the task whose result is its exit code."""
    place = kind(home)
    place.ensure()
    with place.lock():
        config = config or configured(home)
        server = NodeServer(config, place, static)
        task = asyncio.create_task(server.serve())
        await eventually(lambda: task.done() or listeners_of(config) <= server.status()["listeners"].keys())
        try:
            yield server, task
        finally:
            server.stop()
            with contextlib.suppress(HostError):
                await task
