"""Starts MERK nodes in their own processes, linked in a line or a ring, and waits until all links are up."""

import asyncio
import json
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from soak.nodes import SoakNode
from tools.served import free_port
from waystation.crypto.signing import KeyPair

SHAPES: Final = ("line", "ring")


class MerkNode(SoakNode):
    """A node with nothing but MERK, which dials every address on this machine that it learns."""

    def __init__(self, home: Path, number: int, *, peers: Sequence[str] = (), port: int | None = None) -> None:
        """Describe a node that links with others at these addresses; the number tells its key from theirs."""
        key = KeyPair.from_seed(b"merk-soak-node" + number.to_bytes(18, "big"))
        super().__init__(home, "merk", key=key, port=port, allow_private_peers=True, peers=list(peers))
        self.settings["merk.public_url"] = self.url

    def mesh(self) -> dict[str, Any]:
        """Return what the node reports about its links."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/.well-known/merk-mesh.json", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def linked_keys(self) -> set[str]:
        """Return the keys of the nodes that have proved themselves to this one."""
        return {node["key"] for node in self.mesh()["nodes"] if node["trust"] == "mutual"}


def mesh(folder: Path, shape: str, count: int = 3) -> list[MerkNode]:
    """Return nodes that have not been started: in a line each knows the one before, in a ring of the next."""
    ports = [free_port() for _ in range(count)]
    nodes = []
    for number, port in enumerate(ports):
        peer_ports = [ports[(number + 1) % count]] if shape == "ring" else ports[max(number - 1, 0) : number]
        peers = [f"ws://127.0.0.1:{each}/merk" for each in peer_ports]
        nodes.append(MerkNode(folder / f"{shape}-{number}", number, peers=peers, port=port))
    return nodes


async def start_all(nodes: Sequence[MerkNode]) -> None:
    """Start nodes, and return when all of them listen."""
    await asyncio.gather(*(asyncio.to_thread(node.start) for node in nodes))


async def until_meshed(nodes: Sequence[MerkNode], within_s: float = 20.0) -> None:
    """Return once every node is linked with every other."""
    async with asyncio.timeout(within_s):
        for node in nodes:
            others = {other.key.hex() for other in nodes if other is not node}
            while True:
                if await asyncio.to_thread(node.linked_keys) == others:
                    break
                await asyncio.sleep(0.02)
