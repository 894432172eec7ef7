"""Sentences about what needs an operator's attention, from the values of the node's status.

``server.operations`` adds them to the status; ``waystation status`` prints them and exits with 1. Each sentence says
what to do.
"""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from waystation.core.errors import StoreFaultKind
from waystation.server.status.disk import disk_trouble

__all__ = ["TROUBLES_MAX", "troubles"]

TROUBLES_MAX: Final = 32
"""Sentences that are shown; the rest is counted in the last one."""

_DAY_CHARS: Final = len("2026-01-01")
_BLACKLISTED: Final = "blacklisted"
_MINUTE_S: Final = 60
_GONE_WAY_OUT: Final = (
    "; put it back as it was, or stop the node in order (SIGTERM), then start it; do not kill it: an orderly end writes"
    " what it still has open"
)
_OVERWRITTEN_WAY_OUT: Final = (
    "; stop the node (it ends with 5 and leaves the file and its log as they are), and restore a backup:"
    " waystation restore BACKUP --home NEW_HOME"
)
_WAYS_OUT: Final = {
    StoreFaultKind.GONE.value: _GONE_WAY_OUT,
    StoreFaultKind.OVERWRITTEN.value: _OVERWRITTEN_WAY_OUT,
}
LOST_S: Final = 3_600
"""For so long after the last row was lost the loss is said."""


def troubles(
    status: Mapping[str, Any],
    clock: list[str],
    wall_s: float,
    *,
    fault: Mapping[str, Any] | None,
    reload_refused: str = "",
    proxies: Sequence[str] = (),
    twins: Sequence[str] = (),
    kept_by: Sequence[str] = (),
) -> list[str]:
    """Return a sentence for each thing that is wrong, the gravest first; none when all is well.

    Args:
        status: What ``Operations.status`` has gathered.
        clock: What ``ClockWatch.trouble`` or ``wall_clock.clock_trouble`` returned.
        wall_s: Unix time.
        fault: What ``StoreHealth.view`` returned.
        reload_refused: Why the last reload was refused, "" when it was not.
        proxies: Sentences of ``ProxyFaults.troubles``.
        twins: Sentences of ``TwinWatch.trouble``.
        kept_by: Names of the settings that say how much may be kept on the disk.
    """
    found: list[str] = []
    if fault is not None:
        since = datetime.datetime.fromtimestamp(fault["since"], datetime.UTC)
        found.append(
            f"since {since:%Y-%m-%d %H:%M:%S} UTC nothing is stored, and what needs it is refused: {fault['error']}"
            f"{_WAYS_OUT.get(fault['kind'], '')}"
        )
    if status["draining"]:
        found.append("the node is draining: it takes no new connection and ends soon")
    if reload_refused:
        found.append(f"the last reload was refused, and the settings before it are in force: {reload_refused}")
    found += disk_trouble(status["disk"], kept_by)
    found += _damaged(status["damaged"]["now"])
    found += _certificates(status.get("certificates", ()), wall_s)
    found += clock
    found += twins
    found += proxies
    if status["policy"]["trouble"]:
        found.append(f"the published policy is not in force: {status['policy']['trouble']}")
    found += [_upstream(name, view) for name, view in status["upstreams"].items() if _hurts(view)]
    found += _lost(status["written"])
    if len(found) > TROUBLES_MAX:
        found[TROUBLES_MAX - 1 :] = [f"and {len(found) - TROUBLES_MAX + 1} more; see /admin/v1/status"]
    return found


def _damaged(rows: Mapping[str, int]) -> list[str]:
    """Return a sentence when the store has damaged rows, given by table."""
    if not rows:
        return []
    tables = ", ".join(f"{count} of {table}" for table, count in rows.items())
    found = f"rows of the store are not as they were written, and are left out ({tables})"
    return [f"{found}; look at the disk, run `waystation check --deep`, and restore a backup or have them sent again"]


def _certificates(certificates: Iterable[Mapping[str, Any]], wall_s: float) -> list[str]:
    """Return a sentence for each file that ends soon, whatever the number of listeners that show it."""
    soon = {each["cert"]: each for each in certificates if each["ends_soon"]}
    return [
        f"the certificate {path} {'ended' if each['ends_s'] < wall_s else 'ends'} on {each['ends'][:_DAY_CHARS]}; "
        "renew it, and the node takes it over"
        for path, each in soon.items()
    ]


def _hurts(view: Mapping[str, Any]) -> bool:
    return bool(view["trouble"]) or view["state"] == _BLACKLISTED


def _upstream(name: str, view: Mapping[str, Any]) -> str:
    return f"the upstream {name} is {view['state']}: {view['trouble'] or 'its score is too low'}"


def _lost(written: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [
        f"the {name} has lost {counts['rows_lost']} rows since the start, the last {_ago(counts['lost_ago_s'])};"
        " look at the disk and the log"
        for name, counts in written.items()
        if counts["lost_ago_s"] is not None and counts["lost_ago_s"] < LOST_S
    ]


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s ago" if seconds < _MINUTE_S else f"{seconds // _MINUTE_S:.0f} min ago"
