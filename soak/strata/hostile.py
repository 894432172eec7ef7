"""Tests that a tampering upstream relay gets no packet into a Strata node's store and ends up banned.

The upstream is a `websockets` server that authenticates correctly and then serves packets with false signatures. A
final restart checks that the ban persists on disk.
"""

import asyncio
import base64
import json
import random
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from bench.strata.driver import publish_frames
from soak.invariants import check_store, ended_well, eventually
from soak.strata.nodes import StrataNode, read_ids
from waystation.core.dids import encode_did
from waystation.crypto.signing import KeyPair
from waystation.protocols.strata.relay.replication import UPSTREAMS_TABLE, kept_score
from waystation.rules.relay_state import State
from waystation.store.sqlite import SqliteStore

KEY = KeyPair.from_seed(b"h" * 32)
DID = encode_did(KEY.public)
WAYS = ("signature", "text", "malformed")
VIOLATIONS = 3


def check(folder: Path, seed: int, quiet_s: float = 15.0, ways: tuple[str, ...] = WAYS, packets: int = 2_000) -> str:
    """Try each way to tamper, watch ``quiet_s`` for another dial, restart and watch again; return what happened."""
    rng = random.Random(seed)
    found = [f"{way}: {asyncio.run(_try(folder / way, way, rng, packets, quiet_s))}" for way in ways]
    return "; ".join(found)


async def _try(home: Path, way: str, rng: random.Random, packets: int, quiet_s: float) -> str:
    hostile = Hostile(way, rng, packets)
    async with serve(hostile.talk, "127.0.0.1", 0, max_size=None, compression=None) as server:
        node = StrataNode(home, upstreams=[(_url(server), DID)])
        with ended_well(node):
            node.start()
            await eventually(lambda: '"upstream.rests"' in node.log(), "the ban", 60)
            dials = hostile.dials
            assert await read_ids(node.url) == []
            await asyncio.sleep(quiet_s)
            assert node.stop() == 0, node.log()[-2_000:]
            score, standing = _repute(node)
            assert standing.state is State.BLACKLISTED
            assert score < 0.5, score  # what an upstream never met has
            node.start()
            await asyncio.sleep(quiet_s)
            assert await read_ids(node.url) == []
        assert hostile.dials == dials, "a banned upstream was dialled"
        check_store(node.store)
    return f"banned after {dials} connections, score {score:.2f}, nothing stored"


def _url(server: Server) -> str:
    return f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/strata"


def _repute(node: StrataNode) -> tuple[float, Any]:
    with closing(SqliteStore(node.store)) as store:
        score = kept_score(store.get(UPSTREAMS_TABLE, DID.encode()))
        return score.score(int(time.time())), score.standing


class Hostile:
    """A relay that authenticates as it should and serves what it must not."""

    def __init__(self, way: str, rng: random.Random, packets: int) -> None:
        self.dials = 0
        self._way = way
        self._rng = rng
        frames = publish_frames(packets, int(time.time()))
        self._packets = [json.loads(each[each.index(b'{"type"') :])["packet"] for each in frames]

    async def talk(self, connection: ServerConnection) -> None:
        """Serve one connection."""
        self.dials += 1
        challenge = base64.b64encode(self._rng.randbytes(32)).decode()
        asks = {"type": "AUTH_CHALLENGE", "challenge": challenge, "server_id": DID, "expires_at": int(time.time()) + 99}
        try:
            await connection.send(json.dumps(asks))
            async for text in connection:
                message = json.loads(text)
                if message["type"] == "AUTH":
                    answer = {name: message[name] for name in ("author_id", "capabilities")}
                    await connection.send(json.dumps({"type": "AUTH_OK"} | answer))
                elif message["type"] == "SUBSCRIBE":
                    await self._serve(connection, message["subscription_id"])
        except ConnectionClosed:
            return  # as it should

    async def _serve(self, connection: ServerConnection, subscription_id: str) -> None:
        for number, packet in enumerate(self._packets):
            event = {"type": "EVENT", "subscription_id": subscription_id, "received_at": int(time.time())}
            await connection.send(json.dumps(event | {"cursor": f"c{number}", "packet": self._tampered(packet)}))

    def _tampered(self, packet: dict[str, Any]) -> dict[str, Any]:
        if self._way == "text":
            return packet | {"content": packet["content"] | {"text": "never sent"}}
        if self._way == "malformed":
            return {name: value for name, value in packet.items() if name != "timestamp"}
        other = self._rng.choice([each for each in self._packets[:64] if each["author_id"] != packet["author_id"]])
        return packet | {"signature": other["signature"]}
