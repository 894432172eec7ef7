"""Starts an LPRP host in its own process, and collects mail as its tenants do."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from bench.lprp.driver import Line, Pair, Signer, ask, command_of
from soak.nodes import SoakNode
from soak.shims.power_cut import Power
from waystation.protocols.lprp.messages import SIGNATURE_BYTES, Command

TIMEOUT_S: Final = 20.0
BEAT_S: Final = 0.3


class LprpNode(SoakNode):
    """A node with nothing but LPRP, which demands work of 0 bits."""

    def __init__(self, home: Path, power: Power | None = None) -> None:
        """Describe a node; ``power`` as for ``SoakNode``."""
        bits: dict[str, Any] = {f"pow_base_bits_{kind}": 0 for kind in ("relay", "lease", "whitelist")}
        super().__init__(home, "lprp", power=power, pow_adaptive=False, **bits)

    @property
    def place(self) -> tuple[str, int]:
        """Where it listens."""
        return "127.0.0.1", self.port

    def line(self, local: str = "127.0.0.1") -> Line:
        """Return a socket that talks to it."""
        return Line(self.place, local)


def is_tenant(line: Line, signer: Signer) -> bool:
    """Return whether the host answers a heartbeat; it is silent towards a key without a lease."""
    try:
        return command_of(ask(line, signer.seal(Command.HEARTBEAT))) == Command.HEARTBEAT_ANSWER
    except TimeoutError:
        return False


def collect(pairs: Sequence[Pair], owed: Iterable[bytes], known: frozenset[bytes] | set[bytes]) -> int:
    """Let tenants send heartbeats and confirm what comes until all that is owed has come; return how many packets came.

    Args:
        pairs: Whose tenants send.
        owed: Names of packets that must come.
        known: Names of all packets that may come.

    Raises:
        AssertionError: Something owed does not come in time, or something comes that was never sent.
    """
    left, came = set(owed), set()
    ends_at = time.monotonic() + TIMEOUT_S
    beat_at = 0.0
    while left:
        assert time.monotonic() < ends_at, f"{len(left)} packets answered with 202 are lost"
        if time.monotonic() >= beat_at:
            for pair in pairs:
                pair.tenant_line.send(pair.tenant.seal(Command.HEARTBEAT).data)
            beat_at = time.monotonic() + BEAT_S
        names = [name for pair in pairs for name in _confirm(pair)]
        assert known.issuperset(names), "a packet came that was never sent"
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
