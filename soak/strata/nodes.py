"""Starts Strata nodes in their own processes, and reads their packets with lightweight clients."""

import asyncio
import http.client
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from bench.strata.driver import connect, drop, read_history
from soak.nodes import SoakNode
from waystation.core.dids import encode_did
from waystation.core.packets import PacketQuery, PacketRow
from waystation.store.sqlite import SqliteStore


class StrataNode(SoakNode):
    """A node with nothing but Strata."""

    def __init__(self, home: Path, *, upstreams: Sequence[tuple[str, str]] = (), **settings: Any) -> None:
        """Describe a node that reads relays, given by address and DID of each."""
        tables = [f"[[strata.upstreams]]\nurl = '{url}'\nrelay_id = '{did}'\n" for url, did in upstreams]
        super().__init__(home, "strata", tables="".join(tables), **settings)
        self.did = encode_did(self.key)


def stored_rows(store: SqliteStore) -> Iterator[PacketRow]:
    """Yield every packet by its sequence number."""
    query = PacketQuery(by_seq=True, rows_max=1_000)
    while True:
        page = store.packets.page(query)
        yield from page.rows
        if page.position is None:
            return
        query = query._replace(start=page.position)


def id_of(published: bytes) -> str:
    """Return the packet id inside a PUBLISH frame of ``bench.strata.driver``."""
    at = published.rindex(b'"packet_id":"') + 13
    return published[at : at + 66].decode()


async def read_ids(url: str) -> list[str]:
    """Return the ids of everything that a node gives to a reader, in its order."""
    (client,) = await connect(url, 1)
    ids: list[str] = []
    try:
        await asyncio.wait_for(read_history(client, lambda text: ids.append(packet_id_of(text))), 120)
    finally:
        await drop(client)
    return ids


def packet_id_of(event: bytes) -> str:
    """Return the packet id inside an EVENT."""
    found: str = orjson.loads(event)["packet"]["packet_id"]
    return found


def missing_over_http(url: str, ids: Sequence[str]) -> list[str]:
    """Return those ids that GET does not find."""
    place = urlsplit(url)
    missing = []
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=30)
    with closing(connection):
        for each in ids:
            connection.request("GET", f"/strata/packets/{each}")
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != 200 or orjson.loads(body)["packet"]["packet_id"] != each:
                missing.append(each)
    return missing
