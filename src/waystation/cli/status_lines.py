"""The lines of ``waystation status`` for people, made from what the admin port answers.

Three JSON answers (status, connections, limits) go in, lines come out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from waystation.core.ids import KEY_BYTES, encode_id52

__all__ = ["duration", "size", "status_lines"]

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_KIB: Final = 1_024
_WHOLE_FROM: Final = 100  # no decimals from here on
_MINUTE_S: Final = 60
_HOUR_S: Final = 3_600
_DAY_S: Final = 86_400
_HIDDEN_SHOWN: Final = 3
_NAMES_SHOWN: Final = 2
_LIMITS: Final = "limits."


def status_lines(
    found: Mapping[str, Any], connections: Mapping[str, Any], limits: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return the page, the trouble last, where the eye is after reading.

    Args:
        found: The answer of ``/admin/v1/status``.
        connections: The answer of ``/admin/v1/connections``.
        limits: Those of ``/admin/v1/limits`` that were met.
    """
    return [
        f"{found['name']}  waystation {found['version']}, up {duration(found['uptime_s'])}",
        f"{found['node']['id52']}",
        *_block("listeners", ((name, url) for name, url in found["listeners"].items())),
        *_block("connected", _protocols(found, connections)),
        *_block("most traffic", _heaviest(connections)),
        *_block("limits met", _limits(limits)),
        *_block("disk", _disk(found["disk"])),
        *_block("certificates", _certificates(found.get("certificates", ()))),
        *_troubles(found["trouble"]),
    ]


def size(count: float) -> str:
    """Return a number of bytes for people: 3 significant figures at most, in steps of 1024."""
    for unit in _UNITS[:-1]:
        if count < _KIB:
            return f"{count:.0f} {unit}" if unit == _UNITS[0] or count >= _WHOLE_FROM else f"{count:.1f} {unit}"
        count /= _KIB
    return f"{count:.1f} {_UNITS[-1]}"


def duration(seconds: float) -> str:
    """Return a time span for people, in its largest unit and the next one."""
    whole = int(seconds)
    if whole < _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min"
    if whole < _DAY_S:
        return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S} min"
    return f"{whole // _DAY_S} d {whole % _DAY_S // _HOUR_S} h"


def _block(title: str, rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a titled table; nothing without rows."""
    table = list(rows)
    if not table:
        return []
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table)
    return ["", title, *(f"  {line}" for line in lines)]


def _protocols(found: Mapping[str, Any], connections: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    yield "protocol", "open", "identified", "received", "sent"
    for name, row in connections["protocols"].items():
        datagrams = found["traffic"].get(name)
        if datagrams is not None:
            yield name, "datagrams", "", size(datagrams["in"]), size(datagrams["out"])
        else:
            counts = str(row["connections"]), str(row["identified"])
            yield name, *counts, size(row["bytes_in"]), size(row["bytes_out"])


def _heaviest(connections: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    shown = connections["connections"]
    if shown:
        yield "protocol", "who", "since", "received", "sent", "waiting"
    for each in shown:
        who = each["id52"] or each["subject"].partition(":")[2] or "no address"
        moved = size(each["bytes_in"]), size(each["bytes_out"]), size(each["waiting_bytes"])
        yield each["protocol"], f"to {who}" if each["direction"] == "out" else who, duration(each["age_s"]), *moved
    hidden = connections["hidden"]
    if hidden:
        networks = [f"{count} in {name.removeprefix('net:')}" for name, count in hidden.items()]
        more = ", ..." if len(networks) > _HIDDEN_SHOWN else ""
        yield "bhumi", f"without an identity: {', '.join(networks[:_HIDDEN_SHOWN])}{more}", "", "", "", ""


def _limits(limits: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield a row for all limits of a protocol that share a refusal: its count does not say which of them was met."""
    rows: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for limit in limits:
        protocol = limit["name"].removeprefix(_LIMITS).rpartition(".")[0]
        rows.setdefault((protocol or "node", limit["refusal"]), []).append(limit)
    for (protocol, refusal), together in rows.items():
        limit = together[0]
        use = f"{limit['use']} of {limit['value']}" if limit["use"] is not None else str(limit["value"])
        last = ""
        if limit["peers"]:
            peer = limit["peers"][0]
            last = f"last {duration(peer['ago_s'])} ago by {_subject(peer['subject'])}"
        shown = limit["name"], f"{use} {limit['unit']}".rstrip()
        if len(together) > 1:
            shown = f"{protocol} {refusal}: {_names(together)}", ""
        yield *shown, f"met {limit['times']} times", last


def _names(limits: Sequence[Mapping[str, Any]]) -> str:
    names = ", ".join(limit["name"].rpartition(".")[2] for limit in limits[:_NAMES_SHOWN])
    more = len(limits) - _NAMES_SHOWN
    return f"{names} and {more} more" if more > 0 else names


def _subject(subject: str) -> str:
    """Return a peer as the other lines show it: an identity as its id52, a network without its prefix."""
    kind, _, rest = subject.partition(":")
    return encode_id52(bytes.fromhex(rest)) if kind == "id" and len(rest) == 2 * KEY_BYTES else rest


def _disk(disk: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    if disk["free_bytes"] is not None:
        yield "free", f"{size(disk['free_bytes'])} of {size(disk['size_bytes'])}"
    for name in ("store", "journal", "archive"):
        if disk[f"{name}_bytes"] is not None:
            yield name, size(disk[f"{name}_bytes"])


def _certificates(certificates: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield each file once, with the listeners that show it, and the next authority behind them."""
    listeners: dict[tuple[str, str], list[str]] = {}
    for each in certificates:
        listeners.setdefault((each["cert"], each["ends"][: len("2026-01-01")]), []).append(each["listener"])
    for (path, day), names in listeners.items():
        yield path, f"until {day}", ", ".join(names)
    follows = {each["next_ca"]: each["next_from"] for each in certificates if each.get("next_ca")}
    for path, begins in follows.items():
        yield path, f"from {begins[: len('2026-01-01')]}", "next authority"


def _troubles(troubles: Sequence[str]) -> list[str]:
    if not troubles:
        return ["", "all is well"]
    return ["", "needs attention", *(f"  - {sentence}" for sentence in troubles)]
