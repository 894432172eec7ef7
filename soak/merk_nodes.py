"""MERK nodes in processes of their own, joined in a line or a ring, and what they say of their links."""

import asyncio
import json
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from soak.nodes import ServedNode, free_port
from waystation.crypto.signing import KeyPair

SHAPES: Final = ("line", "ring")


class MerkNode(ServedNode):
    """A node with nothing but MERK, which dials what it hears of on this machine."""

    def __init__(self, home: Path, number: int, *, peers: Sequence[str] = (), port: int | None = None) -> None:
        """Write key and configuration of a node.

        Args:
            home: Its folder, made if absent.
            number: Tells its key from those of others.
            peers: Addresses of nodes that it is told to link with.
            port: Where it listens, the same at every start; a free one by default.
        """
        self.port = port if port is not None else free_port()
        self.url = address_of(self.port)
        lines = [
            "[strata]\nenabled = false",
            "[lprp]\nenabled = false",
            f"[merk]\nws = '127.0.0.1:{self.port}'\npublic_url = '{self.url}'\nallow_private_peers = true",
            f"peers = {json.dumps(list(peers))}",
        ]
        super().__init__(home, lines, KeyPair.from_seed(b"merk-soak-node" + number.to_bytes(18, "big")))

    def mesh(self) -> dict[str, Any]:
        """Return what the node says about its links."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/.well-known/merk-mesh.json", timeout=10) as answer:
            told: dict[str, Any] = json.load(answer)
        return told

    def linked_keys(self) -> set[str]:
        """Return the keys of the nodes that have proved themselves to this one."""
        return {node["key"] for node in self.mesh()["nodes"] if node["trust"] == "mutual"}


def address_of(port: int) -> str:
    """Return the address of a node on this machine."""
    return f"ws://127.0.0.1:{port}/merk"


def mesh(folder: Path, shape: str, count: int = 3) -> list[MerkNode]:
    """Return nodes that have not been started: in a line each is told of the one before, in a ring of the next."""
    ports = [free_port() for _ in range(count)]
    nodes = []
    for number, port in enumerate(ports):
        told = [ports[(number + 1) % count]] if shape == "ring" else ports[max(number - 1, 0) : number]
        peers = [address_of(each) for each in told]
        nodes.append(MerkNode(folder / f"{shape}-{number}", number, peers=peers, port=port))
    return nodes


async def start_all(nodes: Sequence[MerkNode]) -> None:
    """Start nodes, and return when all of them listen."""
    await asyncio.gather(*(asyncio.to_thread(node.start) for node in nodes))


async def until_meshed(nodes: Sequence[MerkNode], within_s: float = 20.0) -> None:
    """Return once every node is linked with every other."""
    async with asyncio.timeout(within_s):
        for node in nodes:
            others = {other.key.public.hex() for other in nodes if other is not node}
            while True:
                if await asyncio.to_thread(node.linked_keys) == others:
                    break
                await asyncio.sleep(0.02)
