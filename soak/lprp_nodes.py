"""A host in a process of its own, and tenants with friends that look at what it gives."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from bench.lprp_driver import Line, Pair, Party, ask, command_of, lease, let_in
from soak.nodes import ServedNode, free_port
from waystation.protocols.lprp.messages import SIGNATURE_BYTES, Command

PATIENCE_S: Final = 20.0
BEAT_S: Final = 0.3


class LprpNode(ServedNode):
    """A node with nothing but LPRP, which demands work of 0 bits."""

    def __init__(self, home: Path) -> None:
        """Write key and configuration of a node; it listens on the same port at every start."""
        self.port = free_port()
        lines = [
            "[merk]\nenabled = false",
            "[strata]\nenabled = false",
            f"[lprp]\nudp = '127.0.0.1:{self.port}'\npow_adaptive = false",
            *(f"pow_base_bits_{kind} = 0" for kind in ("relay", "lease", "whitelist")),
        ]
        super().__init__(home, lines)

    @property
    def place(self) -> tuple[str, int]:
        """Where it listens."""
        return "127.0.0.1", self.port

    def line(self, local: str = "127.0.0.1") -> Line:
        """Return a socket that talks to it."""
        return Line(self.place, local)


def settle(node: LprpNode, count: int) -> list[Pair]:
    """Give so many tenants a lease and one friend each, on two lines for each pair, in a network of its own."""
    pairs = []
    for number in range(count):
        local = f"127.0.{1 + number}.1"
        tenant, sender = Party(2 * number + 1, node.key.public), Party(2 * number + 2, node.key.public)
        pair = Pair(tenant, node.line(local), sender, node.line(local))
        lease(pair.tenant_line, tenant)
        let_in(pair.tenant_line, tenant, (), [sender.key])
        pairs.append(pair)
    return pairs


def close(pairs: Sequence[Pair]) -> None:
    """Close the sockets of all pairs."""
    for pair in pairs:
        pair.tenant_line.close()
        pair.sender_line.close()


def is_tenant(line: Line, party: Party) -> bool:
    """Return whether the host answers a heartbeat; it is silent towards a key without a lease."""
    try:
        return command_of(ask(line, party.seal(Command.HEARTBEAT))) == Command.HEARTBEAT_ANSWER
    except TimeoutError:
        return False


def collect(pairs: Sequence[Pair], owed: Iterable[bytes], known: frozenset[bytes] | set[bytes]) -> int:
    """Let tenants speak and confirm what comes until all that is owed has come; return how many packets came.

    Args:
        pairs: Whose tenants speak.
        owed: Names of packets that must come.
        known: Names of all packets that may come.

    Raises:
        AssertionError: Something owed does not come in time, or something comes that nobody has sent.
    """
    left, came = set(owed), set()
    ends_at = time.monotonic() + PATIENCE_S
    beat_at = 0.0
    while left:
        assert time.monotonic() < ends_at, f"{len(left)} packets answered with 202 are lost"
        if time.monotonic() >= beat_at:
            for pair in pairs:
                pair.tenant_line.send(pair.tenant.seal(Command.HEARTBEAT).data)
            beat_at = time.monotonic() + BEAT_S
        names = [name for pair in pairs for name in _confirm(pair)]
        assert known.issuperset(names), "a packet came that nobody has sent"
        came.update(names)
        left.difference_update(names)
        if not names:
            pairs[0].tenant_line.wait(BEAT_S / 10)
    return len(came)


def _confirm(pair: Pair) -> list[bytes]:
    """Say of everything that has come that it is here for good; return the names."""
    names = [data[:SIGNATURE_BYTES] for data in pair.tenant_line.read() if command_of(data) == Command.RELAY]
    for name in names:
        pair.tenant_line.send(pair.tenant.seal(Command.DELIVERED, name).data)
    return names
