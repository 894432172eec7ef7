"""Memory of a host is bounded, and flat over several rounds of each flood, and honest people are served after each.

The floods: garbage, forged signatures, replays, heartbeats of strangers, mail of strangers that leaves demands for
work unanswered, leases that nobody works for, and one datagram each from many thousand addresses. Nobody who sends
them may get more bytes back than it sent.
"""

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.lprp_driver import CODEC, Flow, Line, Pair, make_mail
from bench.lprp_hostile import GARBAGE, Hostile
from soak.lprp_nodes import LprpNode, close, settle
from soak.nodes import rss_kib
from waystation.crypto.signing import KeyPair
from waystation.protocols.lprp.messages import Command

ROUNDS: Final = 4
PORTION: Final = 2_000
PAIRS: Final = 8
HONEST: Final = 400
IN_FLIGHT: Final = 64
ADDRESSES: Final = 160_000
"""More than the 65,536 sources that a host remembers."""
DRIFT_KIB: Final = 8 * 1_024
GROWN_MAX_KIB: Final = 160 * 1_024
"""All tables full at once: 65,536 sources with their networks, 32,768 answers, 262,144 signatures, 16,384 demands."""
PER_S: Final = 20_000.0
_PADDING: Final = bytes(64)


def law(folder: Path, seed: int, datagrams: int = 400_000, addresses: int = ADDRESSES) -> str:
    """Send so many hostile datagrams of each kind, and from so many addresses; return figures."""
    rng = random.Random(seed)
    with ExitStack() as stack:
        node = stack.enter_context(LprpNode(folder / "home")).start()
        pairs = settle(node, PAIRS)
        stack.callback(close, pairs)
        honest = make_mail(pairs, HONEST)
        Flow(pairs, honest).run(IN_FLIGHT)
        replays = [data for each in honest for data in (each.relay, each.confirmation)]
        tenants = [pair.tenant.key for pair in pairs]
        hostile = Hostile(node.place, node.key.public, tenants, replays, rng)
        stack.callback(hostile.close)
        count = datagrams // ROUNDS
        floods: dict[str, Callable[[], None]] = {
            "garbage": lambda: _pour(hostile, GARBAGE, count),
            "forged": lambda: _pour(hostile, ("forged",), count),
            "replays": lambda: _pour(hostile, ("replay",), count),
            "outsiders": lambda: _pour(hostile, ("outsider",), count),
            "strangers": lambda: _pour(hostile, ("stranger",), count),
            "leases": lambda: _ask_for_leases(hostile, node, rng, count),
            "addresses": lambda: _from_everywhere(node, addresses // ROUNDS, tenants[0]),
        }
        told = [_rounds(name, node, pairs, make) for name, make in floods.items()]
        assert hostile.came_bytes <= hostile.sent_bytes, "more went to the hostile than came from them"
        node.stop()
        assert "Traceback" not in node.log(), node.log()[-4_000:]
    return "; ".join(told)


def _rounds(name: str, node: LprpNode, pairs: list[Pair], make: Callable[[], None]) -> str:
    """Let a flood come several times; see that memory is bounded and flat, and that mail goes through after each."""
    before, after = rss_kib(node.pid), []
    for _ in range(ROUNDS):
        make()
        Flow(pairs, make_mail(pairs, HONEST)).run(IN_FLIGHT)
        after.append(rss_kib(node.pid))
    shown = f"{name}: MiB before and after each round {before >> 10}: " + " ".join(f"{each >> 10}" for each in after)
    print(shown, flush=True)
    *first, last = after
    assert max(after) - before <= GROWN_MAX_KIB, shown
    assert last <= max(first) + DRIFT_KIB, shown
    return shown


def _pour(hostile: Hostile, kinds: tuple[str, ...], count: int) -> None:
    for at in range(0, count, PORTION):
        hostile.send_paced(hostile.make(kinds, min(PORTION, count - at)), PER_S)


def _ask_for_leases(hostile: Hostile, node: LprpNode, rng: random.Random, count: int) -> None:
    """Ask with ever new keys; nobody works."""
    now_ms = time.time_ns() // 1_000_000
    for at in range(0, count // 4, PORTION):
        keys = [KeyPair.from_seed(rng.randbytes(32)) for _ in range(min(PORTION, count // 4 - at))]
        asked = [CODEC.seal(key, node.key.public, Command.ASK_LEASE, _PADDING, now_ms).data for key in keys]
        hostile.send_paced(asked, PER_S)


def _from_everywhere(node: LprpNode, count: int, tenant: bytes) -> None:
    """Send one datagram of good form from each of many addresses, in many networks."""
    head = (time.time_ns() // 1_000_000).to_bytes(8, "big") + tenant + node.key.public
    data = bytes(64) + head + int(Command.HEARTBEAT).to_bytes(8, "big")
    for number in range(count):
        line = Line(node.place, f"127.{100 + number % 100}.{number // 100 % 250}.{1 + number // 25_000}")
        line.send(data)
        line.close()
