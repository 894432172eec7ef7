"""Tests that an LPRP host's memory stays bounded and flat under each flood, and that honest clients are then served.

The floods are: garbage, forged signatures, replays, heartbeats and mail of unknown senders, leases without work, and
one datagram each from thousands of addresses. The mail leaves work challenges unanswered. No flooding sender may
receive more bytes than it sent.
"""

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from bench.lprp.driver import CODEC, Flow, Line, close, make_mail, settle
from bench.lprp.hostile import GARBAGE, KINDS, Hostile
from soak.invariants import ROUNDS, ended_well, flat_under_floods
from soak.lprp.nodes import LprpNode
from waystation.crypto.signing import KeyPair
from waystation.protocols.lprp.messages import Command

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


def check(folder: Path, seed: int, datagrams: int = 400_000, addresses: int = ADDRESSES) -> str:
    """Send so many hostile datagrams of each kind, and from so many addresses; return figures."""
    rng = random.Random(seed)
    node = LprpNode(folder / "home")
    with ended_well(node), ExitStack() as stack:
        node.start()
        pairs = settle(node.place, node.key, PAIRS)
        stack.callback(close, pairs)
        honest = make_mail(pairs, HONEST)
        Flow(pairs, honest).run(IN_FLIGHT)
        replays = [data for each in honest for data in (each.relay, each.confirmation)]
        tenants = [pair.tenant.key for pair in pairs]
        hostile = Hostile(node.place, node.key, tenants, replays, rng)
        stack.callback(hostile.close)
        count = datagrams // ROUNDS
        floods: dict[str, Callable[[], None]] = {
            "garbage": lambda: _pour(hostile, GARBAGE, count),
            **{kind: partial(_pour, hostile, (kind,), count) for kind in KINDS if kind not in GARBAGE},
            "leases": lambda: _ask_for_leases(hostile, node, rng, count),
            "addresses": lambda: _from_everywhere(node, addresses // ROUNDS, tenants[0]),
        }

        def serve() -> None:
            Flow(pairs, make_mail(pairs, HONEST)).run(IN_FLIGHT)

        figures = flat_under_floods(node, floods, serve, GROWN_MAX_KIB, DRIFT_KIB)
        assert hostile.came_bytes <= hostile.sent_bytes, "more went to the hostile than came from them"
    return figures


def _pour(hostile: Hostile, kinds: tuple[str, ...], count: int) -> None:
    for at in range(0, count, PORTION):
        hostile.send_paced(hostile.make(kinds, min(PORTION, count - at)), PER_S)


def _ask_for_leases(hostile: Hostile, node: LprpNode, rng: random.Random, count: int) -> None:
    """Ask with ever new keys, without work."""
    now_ms = time.time_ns() // 1_000_000
    for at in range(0, count // 4, PORTION):
        keys = [KeyPair.from_seed(rng.randbytes(32)) for _ in range(min(PORTION, count // 4 - at))]
        asked = [CODEC.seal(key, node.key, Command.ASK_LEASE, _PADDING, now_ms).data for key in keys]
        hostile.send_paced(asked, PER_S)


def _from_everywhere(node: LprpNode, count: int, tenant: bytes) -> None:
    """Send one datagram of good form from each of many addresses, in many networks."""
    head = (time.time_ns() // 1_000_000).to_bytes(8, "big") + tenant + node.key
    data = bytes(64) + head + int(Command.HEARTBEAT).to_bytes(8, "big")
    for number in range(count):
        line = Line(node.place, f"127.{100 + number % 100}.{number // 100 % 250}.{1 + number // 25_000}")
        line.send(data)
        line.close()
