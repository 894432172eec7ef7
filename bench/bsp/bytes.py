"""Measures the bytes that loss-free scenarios of bsp 10 send, relative to the optimum defined in bsp 8.

For each device that lacks n messages of b bytes, the optimum is n(b+76) + 4R in batch mode and n(b+140) + 12R in
interactive mode. Two devices that receive the same messages at once and share the group also exchange them once. They
cannot avoid that, so the optimum of a mesh includes those bytes.
"""

from functools import cache
from typing import Final, NamedTuple

from waystation.protocols.bsp.device.links import Mode
from waystation.sim.bsp.network import BspNetwork

_BODY_BYTES: Final = 1_000
_COUNT: Final = 100
_RUN_MS: Final = 20_000


class Shape(NamedTuple):
    """Who has a line to whom; the first writes."""

    name: str
    edges: tuple[str, ...]
    crossings: int
    """Pairs that get everything at once from another device."""


SHAPES: Final = (
    Shape("pair", ("ab",), 0),
    Shape("line of three", ("ab", "bc"), 0),
    Shape("triangle", ("ab", "ac", "bc"), 1),
    Shape("star of five", ("ab", "ac", "ad", "ae"), 0),
    Shape("mesh of five", ("ab", "ac", "ad", "ae", "bc", "bd", "be", "cd", "ce", "de"), 6),
)


def optimum(shape: Shape, mode: Mode, count: int = _COUNT, body_bytes: int = _BODY_BYTES) -> int:
    """Return the bytes that a burst of messages must cost in a shape."""
    lacking = len(set("".join(shape.edges))) - 1
    if mode is Mode.BATCH:
        one = count * (body_bytes + 76) + 4
        return one * (lacking + 2 * shape.crossings)
    one = count * (body_bytes + 140) + 12
    crossing = 4 * (4 + 32 * count)  # both offer, both acknowledge
    return one * lacking + crossing * shape.crossings


def spent(shape: Shape, mode: Mode) -> int:
    """Return the bytes that a burst of messages does cost."""
    here = BspNetwork()
    for name in sorted(set("".join(shape.edges))):
        here.host(name, mode)
    for edge in shape.edges:
        here.connection(*edge)
    group = here.group()
    here.gather(group)
    for number in range(_COUNT):
        here.hosts["a"].add(group, number, number.to_bytes(4, "big") + bytes(_BODY_BYTES - 4))
    here.run(_RUN_MS)
    here.stand(group)
    return here.record_bytes()


def least(shape: Shape) -> int:
    """Return what bsp 8 calls the optimum: each device that lacks the messages gets one copy, and nothing crosses."""
    return (_COUNT * (_BODY_BYTES + 76) + 4) * (len(set("".join(shape.edges))) - 1)


@cache
def ratios() -> dict[str, float]:
    """Return bytes over optimum by shape and mode: over that of the shape and mode, and over one copy each."""
    found = {}
    for shape in SHAPES:
        for mode in (Mode.BATCH, Mode.INTERACTIVE):
            taken = spent(shape, mode)
            found[f"bytes over optimum, {shape.name}, {mode.value} (1.000)"] = taken / optimum(shape, mode)
            found[f"bytes over one copy each, {shape.name}, {mode.value}"] = taken / least(shape)
    return found
