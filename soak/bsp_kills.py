"""After SIGKILL at any moment between store and acknowledgement, on either side, nothing is lost and nothing doubled.

Two devices of ``sdk.bsp`` and a node between them, over TLS, write to each other at full speed. In each round one of
the three is killed a random time later and started again, and the round ends when everybody has everything. What is
sent again is sent once for each new connection, and only what was under way when the last one ended; what an
application was told of once it is never told again, in no other order, and nothing before what it depends on.
"""

import random
import sqlite3
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

from soak.bsp_nodes import BspNode, DeviceProcess, Line, kept_messages, store_of
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.graph import State, Vertex

MOMENT_MAX_S: Final = 0.35
PER_ROUND: Final = 60
PATIENCE_S: Final = 60.0
LOOK_S: Final = 0.02
CHECK_EVERY: Final = 20
MODES: Final = ("batch", "interactive", "auto")
LATE_MS: Final = 500
"""Two copies on one connection are further apart than this when the first was not answered within a second."""


def law(folder: Path, seed: int, rounds: int = 200) -> str:
    """Try it so many times; return what happened."""
    rng = random.Random(seed)
    node_key = KeyPair.from_seed(b"n" * 32)
    killed = {"node": 0, "device": 0}
    with ExitStack() as stack:
        devices = [DeviceProcess(folder / f"device{number}", number, node_key.public) for number in range(2)]
        node = stack.enter_context(BspNode(folder / "home", [each.key for each in devices], node_key))
        for device in devices:
            stack.callback(device.close)
        node.start()
        watches = [Watch(device.start(node.url(), rng.choice(MODES))) for device in devices]
        for number in range(rounds):
            victim = devices[rng.randrange(2)] if rng.randrange(2) else node
            _beat(node, devices, victim, number, rng)
            killed["node" if victim is node else "device"] += 1
            _settle(devices)
            for watch in watches:
                watch.look()
        for device in devices:
            device.stop()
        node.stop()
        assert "Traceback" not in node.log(), node.log()[-4_000:]
        total = _compare(node, watches)
    repeated, late = (sum(getattr(watch, name) for watch in watches) for name in ("repeated", "late"))
    return (
        f"{rounds} kills ({killed['node']} of the node), {total} messages, delivered once on all three, none lost; "
        f"{repeated} sent again after a kill, at most once for each, {late} answered late; stores whole"
    )


def _beat(
    node: BspNode, devices: list[DeviceProcess], victim: BspNode | DeviceProcess, number: int, rng: random.Random
) -> None:
    """Load both ways, kill one at a random moment, and start it again."""
    for device in devices:
        device.tell("go", PER_ROUND)
    time.sleep(rng.uniform(0, MOMENT_MAX_S))
    victim.kill()
    if number % CHECK_EVERY == 0:
        with closing(sqlite3.connect(store_of(victim))) as store:
            assert store.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    if isinstance(victim, DeviceProcess):
        victim.start(node.url(number), rng.choice(MODES))
        return
    victim.start()
    for device in devices:
        device.ask("dial", node.url(number + 1))


def _settle(devices: list[DeviceProcess]) -> None:
    """Return when both devices have all that both have written, and the node has it too."""
    ends_at = time.monotonic() + PATIENCE_S
    while True:
        hows = [device.ask("how") for device in devices]
        total = sum(how["own"] for how in hows)
        if all(not how["busy"] and not how["owes"] and how["delivered"] == total for how in hows):
            return
        assert time.monotonic() < ends_at, f"not everywhere: {hows}"
        time.sleep(LOOK_S)


class Watch:
    """Reads one device's log, and sees that what it tells is lawful."""

    def __init__(self, device: DeviceProcess) -> None:
        """Begin with its first life."""
        self.device = device
        self.added: set[str] = set()
        self.orders: dict[str, int] = {}
        """By message, as the application was told."""
        self.repeated = 0
        self.late = 0
        self._connection = 0
        self._last: dict[tuple[str, str], tuple[int, int]] = {}
        """By direction and message: connection and time of the last copy."""

    def look(self) -> None:
        """Take what was written down since the last look."""
        for line in self.device.news():
            if line.what == "up":
                self._connection += 1
            elif line.what == "added":
                self.added.add(line.message)
            elif line.what == "delivered":
                assert line.message not in self.orders, f"delivered twice: {line}"
                self.orders[line.message] = line.order
            else:
                self._copy(line)

    def _copy(self, line: Line) -> None:
        key = line.what, line.message
        connection, at_ms = self._last.get(key, (self._connection, line.at_ms - LATE_MS))
        if key in self._last and connection == self._connection:
            assert line.at_ms - at_ms >= LATE_MS, f"twice on one connection within {line.at_ms - at_ms} ms: {line}"
            self.late += 1
        elif key in self._last:
            assert connection == self._connection - 1, f"a copy of long ago came again: {line}"
            self.repeated += 1
        self._last[key] = self._connection, line.at_ms


def _compare(node: BspNode, watches: list[Watch]) -> int:
    """See that all three have the same, each in a causal order that its application was told; return how many."""
    kept = [{vertex.message_id: vertex for vertex in kept_messages(watch.device)} for watch in watches]
    kept.append({vertex.message_id: vertex for vertex in kept_messages(node)})
    for messages in kept:
        assert messages.keys() == kept[0].keys()
        _check_order(messages)
    for watch, messages in zip(watches, kept, strict=False):
        assert watch.added <= {each.hex() for each in messages}, "added and not there"
        orders = {each.hex(): vertex.order for each, vertex in messages.items()}
        assert watch.orders.items() <= orders.items(), "an order was told that is not that of the store"
    return len(kept[0])


def _check_order(messages: dict[bytes, Vertex]) -> None:
    """See that everything is delivered, without a gap, and behind what it depends on."""
    assert sorted(vertex.order for vertex in messages.values()) == list(range(1, len(messages) + 1))
    for vertex in messages.values():
        assert vertex.state is State.DELIVERED
        assert all(messages[each].order < vertex.order for each in vertex.dependencies)
