"""Starts a BSP node and BSP devices in their own processes, and reads the messages stored on their disks."""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, Self

from bench.report import module
from soak.bsp.device import GROUP, LOG_FILE
from soak.nodes import SoakNode
from soak.shims.power_cut import Power, cut_when_killed
from tools.served import ServedProcess
from waystation.core.ids import PublicKey
from waystation.protocols.bsp.device.ledger import Ledger
from waystation.protocols.bsp.device.links import Visibility
from waystation.protocols.bsp.graph.order import Vertex
from waystation.sdk.bsp import BspHome
from waystation.store.sqlite import SqliteStore


def share_table(share_with: Sequence[PublicKey]) -> str:
    """Return the configuration of a node that shares the group of these laws with these keys."""
    return (
        f"[[bsp.groups]]\nclient_id = '{GROUP.client_id.hex()}'\ndescriptor = '{GROUP.descriptor.hex()}'\n"
        f"format = '{GROUP.format}'\nshare_with = {json.dumps([each.hex() for each in share_with])}\n"
    )


class BspNode(SoakNode):
    """A node with nothing but BSP, a member of the group of these laws."""

    def __init__(self, home: Path, share_with: Sequence[PublicKey], power: Power | None = None) -> None:
        """Describe a node that shares the group with these keys; ``power`` as for ``SoakNode``."""
        super().__init__(home, "bsp", tables=share_table(share_with), power=power)
        self.settings["bsp.tls"] = f"0.0.0.0:{self.port}"

    def url_at(self, number: int = 1) -> str:
        """Return one of the addresses under which it is reached; a device waits less before it dials another one."""
        return f"bsp+tls://127.0.0.{1 + number % 250}:{self.port}"


class Line(NamedTuple):
    """One line of a device's log."""

    what: str
    """up, received, sent, added or delivered."""
    at_ms: int
    message: str
    """Identifier, hexadecimal; empty for up."""
    order: int


class DeviceProcess(ServedProcess):
    """``soak.bsp.device`` with a folder of its own; any number of starts."""

    def __init__(self, path: Path, number: int, node_key: PublicKey, power: Power | None = None) -> None:
        """Make the home of a device that shares the group with the node; ``power`` as for ``SoakNode``."""
        self.path = path
        self.store = path / "bsp.db"
        self._number = number
        home = BspHome(path)
        super().__init__(log=path / "stderr.log", ordered=True)
        if power is not None:
            cut_when_killed(self, path, power)
        self.key = home.key
        shared = home.put_share(GROUP.group_id, node_key, Visibility.SHARED)
        home.commit([home.put_group("soak", GROUP), home.put_peer("node", node_key), shared])
        home.close()
        self._read = 0

    def dial(self, url: str, mode: str) -> Self:
        """Start, and return when it dials the node."""
        self.command = module("soak.bsp.device", self.path, self._number, mode)
        self.start()
        self.ask("dial", url)
        return self

    def ask(self, *words: object) -> dict[str, Any]:
        """Ask it something, and return its answer."""
        self.order(*words)
        line = self.read_line()
        assert line, self.log()[-4_000:]
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> int:
        """Ask it to end; return its exit code."""
        self.order("end")
        return self.wait()

    def news(self) -> list[Line]:
        """Return what it has written down since the last call; a line that was cut off belongs to the next one."""
        with (self.path / LOG_FILE).open("rb") as log:
            log.seek(self._read)
            data = log.read()
        data = data[: data.rfind(b"\n") + 1]
        self._read += len(data)
        return [_line(text) for text in data.decode().splitlines()]


def _line(text: str) -> Line:
    what, at_ms, message, order = text.split(" ")
    return Line(what, int(at_ms), message, int(order))


def kept_messages(store_path: Path) -> Iterator[Vertex]:
    """Yield the messages of the group that are on the disk of a node or device that has ended."""
    with closing(SqliteStore(store_path)) as store:
        yield from Ledger(store).read_messages(GROUP.group_id)
