"""The limits of a node as an operator sees them: value, use, refusal, and the peers that met each last.

``server.operations`` gives it the configuration, the sizes of tables and the recorder, for the admin port's
``/limits``.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.engine.recorder import Recorder
from waystation.server.config.parts import PARTS, Part
from waystation.server.config.values import Config

__all__ = ["LimitUse", "LimitView", "limit_uses", "limit_views"]

_TABLE: Final = "limits"
_NODE: Final = "node"


class LimitUse(NamedTuple):
    """How much of one limit is taken."""

    name: str
    """As it is set: "limits.merk.connects_burst", "lprp.tenants_max"."""
    value: int
    use: int | None
    """How much of it is taken now, over all peers; None where each peer has its own count."""


class LimitView(NamedTuple):
    """One limit; name, value and use as in ``LimitUse``."""

    name: str
    value: int
    default: int
    at_most: int | None
    unit: str
    help: str
    use: int | None
    refusal: str
    """The reason in refusals.md, "" where nobody is refused."""
    times: int
    """How often it was met since the start."""
    peers: list[dict[str, Any]]
    """The peers that met it last, the latest first: subject, times, and seconds since the last time."""


def limit_uses(config: Config, sizes: Mapping[str, Mapping[str, int]]) -> list[LimitUse]:
    """Return the use of every limit that ``limit_views`` returns, in its order; arguments as there."""
    return [_use(part, field, config, sizes) for part, field in _declared()]


def limit_views(
    config: Config, sizes: Mapping[str, Mapping[str, int]], recorder: Recorder, now: Instant
) -> list[LimitView]:
    """Return every limit in the order of the file: ``[limits]``, its tables, and settings that have a refusal.

    Args:
        config: The one in force.
        sizes: What ``Node.sizes`` returns.
        recorder: Has counted the refusals.
        now: Monotonic time.
    """
    refused = recorder.totals()["refusals"]
    return [_view(part, field, config, sizes, refused, recorder, now) for part, field in _declared()]


def _declared() -> Iterator[tuple[Part, dataclasses.Field[Any]]]:
    for part in PARTS:
        for field in dataclasses.fields(part.owner):
            if "refusal" in field.metadata:
                yield part, field


def _table(part: Part) -> str:
    """Return the protocol of a table of limits, "" for the node's own."""
    return part.table.removeprefix(_TABLE).removeprefix(".")


def _use(part: Part, field: dataclasses.Field[Any], config: Config, sizes: Mapping[str, Mapping[str, int]]) -> LimitUse:
    taken = sizes.get(_table(part) or _NODE, {}).get(field.metadata["use"])
    return LimitUse(f"{part.table}.{field.name}", getattr(config.of(part.owner), field.name), taken)


def _view(
    part: Part,
    field: dataclasses.Field[Any],
    config: Config,
    sizes: Mapping[str, Mapping[str, int]],
    refused: Mapping[tuple[str, str], int],
    recorder: Recorder,
    now: Instant,
) -> LimitView:
    table, taken = _table(part), _use(part, field, config, sizes)
    declared = field.metadata
    reason = declared["refusal"]
    met = {key: times for key, times in refused.items() if key[1] == reason and table in ("", key[0])}
    latest = [peer for key in met for peer in recorder.refused_peers.of(*key)]
    return LimitView(
        name=taken.name,
        value=taken.value,
        default=cast("int", field.default),
        at_most=declared["at_most"],
        unit=declared["unit"],
        help=declared["help"],
        use=taken.use,
        refusal=reason,
        times=sum(met.values()),
        peers=[
            {"subject": peer.subject, "times": peer.times, "ago_s": (now - peer.last) // MICROSECONDS_PER_SECOND}
            for peer in sorted(latest, key=lambda peer: -peer.last)
        ],
    )
