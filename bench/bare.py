"""Runs bare picows WebSocket servers without a relay, the baselines for the benchmarks of WebSocket relays."""

import asyncio
import json
import sys
from collections.abc import Callable

import uvloop
from picows import WSListener, WSUpgradeRequest, ws_create_server


async def _serve(protocol: str, make: Callable[[], WSListener]) -> None:
    def factory(_request: WSUpgradeRequest) -> WSListener:
        return make()

    server = await ws_create_server(factory, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    print(json.dumps({"listeners": {protocol: f"ws://127.0.0.1:{port}/{protocol}"}}), flush=True)
    await asyncio.Event().wait()


def run(protocol: str, kinds: dict[str, type[WSListener]]) -> None:
    """Serve the kind that the command line names, until killed."""
    uvloop.run(_serve(protocol, kinds[sys.argv[1]]))
