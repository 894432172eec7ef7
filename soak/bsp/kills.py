"""Tests that SIGKILL between store and acknowledgement, on either side, loses and duplicates nothing in BSP.

Two ``sdk.bsp`` devices write to each other through a node, over TLS, at full speed. In each round one of the three is
killed after a random time and restarted; the round ends when all three have every message. A message in transit is sent
at most once more per new connection. An application gets each message once, after its dependencies.
"""

import random
import time
from pathlib import Path
from typing import Final

from soak.bsp.nodes import BspNode, DeviceProcess, Line, kept_messages
from soak.invariants import ended_well, kill_in_rounds
from soak.nodes import KEY
from soak.shims.power_cut import Power
from waystation.protocols.bsp.graph.order import State, Vertex

MOMENT_MAX_S: Final = 0.35
PER_ROUND: Final = 60
TIMEOUT_S: Final = 60.0
LOOK_S: Final = 0.02
MODES: Final = ("batch", "interactive", "auto")
LATE_MS: Final = 500
"""Two copies on one connection are further apart than this when the first was not answered within a second."""


def check(folder: Path, seed: int, rounds: int = 200, power: Power | None = None) -> str:
    """Try it so many times; return what happened. With ``power`` each kill is a power cut."""
    rng = random.Random(seed)
    killed = {"node": 0, "device": 0}
    devices = [DeviceProcess(folder / f"device{number}", number, KEY.public, power) for number in range(2)]
    node = BspNode(folder / "home", [each.key for each in devices], power=power)
    with ended_well(node, *devices):
        node.start()
        watches = [Watch(device.dial(node.url_at(), rng.choice(MODES))) for device in devices]
        down: list[BspNode | DeviceProcess] = []

        def check() -> None:
            for victim in down:
                _start_again(node, devices, victim, sum(killed.values()), rng.choice(MODES))
            _wait_until_equal(devices)
            for watch in watches:
                watch.look()

        def kill(_number: int, moment_s: float) -> Path:
            victim = devices[rng.randrange(2)] if rng.randrange(2) else node
            for device in devices:
                device.order("go", PER_ROUND)
            time.sleep(moment_s)
            victim.kill()
            killed["node" if victim is node else "device"] += 1
            down[:] = [victim]
            return victim.store

        kill_in_rounds(rng, rounds, MOMENT_MAX_S, check, kill)
        for device in devices:
            assert device.stop() == 0, device.log()[-4_000:]
    total = _compare(node, watches)
    repeated, late = (sum(getattr(watch, name) for watch in watches) for name in ("repeated", "late"))
    return (
        f"{rounds} kills ({killed['node']} of the node), {total} messages, delivered once on all three, none lost; "
        f"{repeated} sent again after a kill, at most once for each, {late} answered late; stores whole"
    )


def _start_again(
    node: BspNode, devices: list[DeviceProcess], victim: BspNode | DeviceProcess, number: int, mode: str
) -> None:
    """Start what was killed; each connection has an address of its own."""
    if isinstance(victim, DeviceProcess):
        victim.dial(node.url_at(number), mode)
        return
    victim.start()
    for device in devices:
        device.ask("dial", node.url_at(number + 1))


def _wait_until_equal(devices: list[DeviceProcess]) -> None:
    """Return when both devices have all that both have written, and the node has it too."""
    ends_at = time.monotonic() + TIMEOUT_S
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
        """By message, as the application got it."""
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
    """See that all three have the same, each in a causal order that its application got; return how many."""
    kept = [{vertex.message_id: vertex for vertex in kept_messages(watch.device.store)} for watch in watches]
    kept.append({vertex.message_id: vertex for vertex in kept_messages(node.store)})
    for messages in kept:
        assert messages.keys() == kept[0].keys()
        _check_order(messages)
    for watch, messages in zip(watches, kept, strict=False):
        assert watch.added <= {each.hex() for each in messages}, "added and not there"
        orders = {each.hex(): vertex.order for each, vertex in messages.items()}
        assert watch.orders.items() <= orders.items(), "an order was reported that is not that of the store"
    return len(kept[0])


def _check_order(messages: dict[bytes, Vertex]) -> None:
    """See that everything is delivered, without a gap, and after what it depends on."""
    assert sorted(vertex.order for vertex in messages.values()) == list(range(1, len(messages) + 1))
    for vertex in messages.values():
        assert vertex.state is State.DELIVERED
        assert all(messages[each].order < vertex.order for each in vertex.dependencies)
