"""A node in a process of its own, and cheap clients that look at what a Strata node gives."""

import asyncio
import http.client
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import orjson

from bench.strata_driver import Client, connect, frame
from waystation.core.dids import encode_did
from waystation.crypto.signing import KeyPair

STOP_S = 30.0
TURNS_MAX = 1_000


class ServedNode:
    """``waystation serve`` without rate limits; one folder, any number of starts."""

    def __init__(self, home: Path, tables: Sequence[str], key: KeyPair | None = None) -> None:
        """Write key and configuration of a node.

        Args:
            home: Its folder, made if absent.
            tables: Tables of its configuration, one for each protocol.
            key: Its identity; a fixed one by default.
        """
        self.home = home
        self.key = key or KeyPair.from_seed(b"n" * 32)
        self._process: subprocess.Popen[str] | None = None
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        key_file = home / "node.key"
        if not key_file.exists():
            key_file.touch(mode=0o600)
            key_file.write_text(self.key.seed.hex() + "\n")
        lines = [
            f"[node]\nhome = {json.dumps(str(home))}\nlog_level = 'info'",
            "[bhumi]\nenabled = false",
            "[admin]\nlisten = ''",
            "[limits]\nenabled = false",
            *([] if any("[bsp]" in table for table in tables) else ["[bsp]\nenabled = false"]),
            *tables,
        ]
        (home / "node.toml").write_text("\n".join(lines) + "\n")

    def start(self) -> Self:
        """Start, and return when it listens."""
        command = [sys.executable, "-m", "waystation", "serve", "--config", str(self.home / "node.toml")]
        with (self.home / "stderr.log").open("a") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self.log()
        return self

    @property
    def pid(self) -> int:
        """Id of the running process."""
        assert self._process is not None
        return self._process.pid

    @property
    def workers(self) -> list[int]:
        """Ids of the processes it has started."""
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def cut(self) -> None:
        """Send SIGKILL and do not wait."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)

    def kill(self) -> None:
        """End it as a power cut of the process would, and wait for that."""
        self.cut()
        self._reap()

    def stop(self) -> None:
        """Ask it to end, and see that it does so in order."""
        if self.running:
            assert self._process is not None
            self._process.send_signal(signal.SIGTERM)
            assert self._reap() == 0, self.log()[-2_000:]

    def close(self) -> None:
        """Make sure that nothing of it runs."""
        if self.running:
            self.kill()

    def log(self) -> str:
        """Return what it has logged since it was first started."""
        return (self.home / "stderr.log").read_text()

    def _reap(self) -> int:
        assert self._process is not None
        code = self._process.wait(STOP_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class StrataNode(ServedNode):
    """A node with nothing but Strata."""

    def __init__(
        self,
        home: Path,
        *,
        key: KeyPair | None = None,
        upstreams: Sequence[tuple[str, str]] = (),
        port: int | None = None,
        **strata: Any,
    ) -> None:
        """Write key and configuration of a node.

        Args:
            home: Its folder, made if absent.
            key: Its identity; a fixed one by default.
            upstreams: Address and DID of each relay it reads.
            port: Where it listens, the same at every start; a free one by default.
            strata: Further settings of the ``[strata]`` table.
        """
        self.port = port if port is not None else free_port()
        self.url = f"ws://127.0.0.1:{self.port}/strata"
        lines = [
            "[merk]\nenabled = false",
            "[lprp]\nenabled = false",
            f"[strata]\nws = '127.0.0.1:{self.port}'",
            *(f"{name} = {json.dumps(value)}" for name, value in strata.items()),
            *(f"[[strata.upstreams]]\nurl = '{url}'\nrelay_id = '{did}'" for url, did in upstreams),
        ]
        super().__init__(home, lines, key)
        self.did = encode_did(self.key.public)

    def check_store(self) -> None:
        """See that the file of the ended node is whole."""
        with closing(sqlite3.connect(self.home / "store.sqlite")) as store:
            assert store.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def free_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def id_of(published: bytes) -> str:
    """Return the packet id inside a PUBLISH frame of ``bench.strata_driver``."""
    at = published.rindex(b'"packet_id":"') + 13
    return published[at : at + 66].decode()


async def read_ids(url: str) -> list[str]:
    """Return the ids of everything that a node gives to a reader, in its order."""
    (client,) = await connect(url, 1)
    done = asyncio.get_running_loop().create_future()
    ids: list[str] = []

    def ask(cursor: str | None) -> None:
        filters = {"limit": 500} if cursor is None else {"limit": 500, "cursor": cursor}
        message = {"type": "SUBSCRIBE", "subscription_id": "h", "filters": filters, "want_eose": True}
        client.transport.write(frame(orjson.dumps(message)))

    def on_messages(messages: list[bytes]) -> None:
        for text in messages:
            message = orjson.loads(text)
            if message["type"] == "EVENT":
                ids.append(message["packet"]["packet_id"])
            elif message["type"] == "EOSE" and message["has_more"]:
                ask(message["cursor"])
            elif message["type"] in ("EOSE", "ERROR") and not done.done():
                done.set_result(message)

    client.on_messages = on_messages
    ask(None)
    try:
        end = await asyncio.wait_for(done, 120)
    finally:
        await drop(client)
    assert end["type"] == "EOSE", end
    return ids


async def drop(*clients: Client) -> None:
    """Cut connections, and return when they are gone."""
    for client in clients:
        client.transport.abort()
    for client in clients:
        for _ in range(TURNS_MAX):
            if client.lost:
                break
            await asyncio.sleep(0)


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


def rss_kib(pid: int) -> int:
    """Return the resident memory of a process."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") // 1_024


async def eventually(holds: Callable[[], bool], what: str, within_s: float) -> None:
    """Return once something is true; fail when it is not in time."""
    ends_at = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < ends_at, f"{what} did not happen within {within_s:g} s"
        await asyncio.sleep(0.05)


class Publisher:
    """Publishes frames over some connections, so many in flight, and knows what was acknowledged."""

    def __init__(
        self, frames: Sequence[bytes], in_flight: int, on_mark: tuple[int, Callable[[], None]] | None = None
    ) -> None:
        """Prepare; ``on_mark`` names a count of acknowledged packets, and what is called when it is reached."""
        self.acknowledged: set[str] = set()
        self._on_mark = on_mark
        self.refused: list[bytes] = []
        self.done = asyncio.Event()
        self._waiting = iter(frames)
        self._left = len(frames)
        self._in_flight = in_flight
        self._clients: list[Client] = []

    async def begin(self, url: str, connections: int) -> None:
        """Connect and publish."""
        if not self._left:
            self.done.set()
        self._clients = await connect(url, connections)
        for client in self._clients:
            client.on_messages = lambda messages, client=client: self._on_messages(client, messages)  # type: ignore[misc]
            self._write(client, self._in_flight)

    def _on_messages(self, client: Client, messages: list[bytes]) -> None:
        answers = [text for text in messages if b'"AUTH_CHALLENGE"' not in text]
        for text in answers:
            message = orjson.loads(text)
            if message["type"] == "OK":
                self.acknowledged.add(message["packet_id"])
            else:
                self.refused.append(text)
        if self._on_mark is not None and len(self.acknowledged) >= self._on_mark[0]:
            self._on_mark[1]()
            self._on_mark = None
        self._left -= len(answers)
        self._write(client, len(answers))
        if self._left <= 0:
            self.done.set()

    def _write(self, client: Client, count: int) -> None:
        more = list(islice(self._waiting, count))
        if more and not client.lost:
            client.transport.write(b"".join(more))

    @property
    def cut_off(self) -> bool:
        """Whether every connection is gone."""
        return all(client.lost for client in self._clients)

    async def close(self) -> None:
        """Drop the connections."""
        await drop(*self._clients)
