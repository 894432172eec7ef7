"""A node and devices in processes of their own, and what they leave on their disks."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from soak.bsp_device import GROUP, LOG_FILE
from soak.nodes import STOP_S, ServedNode, free_port
from waystation.core.ids import PublicKey
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.graph import Vertex
from waystation.protocols.bsp.ledger import Ledger
from waystation.protocols.bsp.links import Visibility
from waystation.sdk.bsp import BspHome
from waystation.store.sqlite import SqliteStore


class BspNode(ServedNode):
    """A node with nothing but BSP, a member of the group of these laws; it listens on the same port at every start."""

    def __init__(self, home: Path, share_with: Sequence[PublicKey], key: KeyPair | None = None) -> None:
        """Write key and configuration of a node that shares the group with these keys."""
        self.port = free_port()
        group = (
            f"client_id = '{GROUP.client_id.hex()}'\ndescriptor = '{GROUP.descriptor.hex()}'\nformat = '{GROUP.format}'"
        )
        lines = [
            *(f"[{other}]\nenabled = false" for other in ("merk", "strata", "lprp")),
            f"[bsp]\ntls = '0.0.0.0:{self.port}'",
            f"[[bsp.groups]]\n{group}\nshare_with = {json.dumps([each.hex() for each in share_with])}",
        ]
        super().__init__(home, lines, key)

    def url(self, number: int = 1) -> str:
        """Return one of the addresses under which it is reached; a device waits less before it dials another one."""
        return f"bsp+tls://127.0.0.{1 + number % 250}:{self.port}"


class Line(NamedTuple):
    """One line of a device's log."""

    what: str
    """up, heard, said, added or delivered."""
    at_ms: int
    message: str
    """Identifier, hexadecimal; empty for up."""
    order: int


class DeviceProcess:
    """``soak.bsp_device`` with a folder of its own; any number of starts."""

    def __init__(self, path: Path, number: int, node_key: PublicKey) -> None:
        """Make the home of a device that shares the group with the node."""
        self.path = path
        self.number = number
        home = BspHome(path)
        self.key = home.key
        shared = home.put_share(GROUP.group_id, node_key, Visibility.SHARED)
        home.commit([home.put_group("soak", GROUP), home.put_peer("node", node_key), shared])
        home.close()
        self._process: subprocess.Popen[str] | None = None
        self._read = 0

    def start(self, url: str, mode: str) -> Self:
        """Start, and return when it dials the node."""
        command = [sys.executable, "-m", "soak.bsp_device", str(self.path), str(self.number), mode]
        with (self.path / "stderr.log").open("a") as log:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True)
        self.ask("dial", url)
        return self

    def tell(self, *words: object) -> None:
        """Tell it something that it does not answer."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def ask(self, *words: object) -> dict[str, Any]:
        """Ask it something, and return its answer."""
        self.tell(*words)
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, (self.path / "stderr.log").read_text()[-4_000:]
        answer: dict[str, Any] = json.loads(line)
        return answer

    def kill(self) -> None:
        """End it as a power cut of the process would."""
        assert self._process is not None
        self._process.kill()
        self._reap()

    def stop(self) -> None:
        """Ask it to end, and see that it does so in order."""
        self.tell("end")
        assert self._reap() == 0, (self.path / "stderr.log").read_text()[-4_000:]

    def close(self) -> None:
        """Make sure that nothing of it runs."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def news(self) -> list[Line]:
        """Return what it has written down since the last call; a line that was cut off belongs to the next one."""
        with (self.path / LOG_FILE).open("rb") as log:
            log.seek(self._read)
            data = log.read()
        data = data[: data.rfind(b"\n") + 1]
        self._read += len(data)
        return [_line(text) for text in data.decode().splitlines()]

    def _reap(self) -> int:
        assert self._process is not None
        code = self._process.wait(STOP_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        return code


def _line(text: str) -> Line:
    what, at_ms, message, order = text.split(" ")
    return Line(what, int(at_ms), message, int(order))


STORES: Final = {BspNode: "store.sqlite", DeviceProcess: "bsp.db"}


def store_of(party: BspNode | DeviceProcess) -> Path:
    """Return the file with everything that a node or device has on its disk."""
    return (party.home if isinstance(party, BspNode) else party.path) / STORES[type(party)]


def kept_messages(party: BspNode | DeviceProcess) -> Iterator[Vertex]:
    """Yield the messages of the group that are on the disk of a node or device that has ended."""
    store = SqliteStore(store_of(party))
    try:
        yield from Ledger(store).read_messages(GROUP.group_id)
    finally:
        store.close()
