"""Generates reference pages from the code: ``python -m tools.docs``; ``--check`` lists the pages that are out of date.

The sources are the declarations of configuration, journal, commands, metrics and tables. ``tools.refusals`` builds the
page of refusals.
"""

import argparse
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final

import typer.main
from prometheus_client.parser import text_string_to_metric_families

from soak.faults import table as faults
from tools.refusals import refusals, table
from waystation.cli import COMMANDS
from waystation.core.facts import Outcome
from waystation.journal.document import render_contract
from waystation.pipeline.tables import DATASETS, OUTCOMES, Dataset
from waystation.protocols.bhumi.refusals import Refusal
from waystation.rules import abuse
from waystation.rules.histogram import THRESHOLDS_US
from waystation.server.config.reference import render_docs, render_sample
from waystation.server.http.metrics import render_metrics

__all__ = ["PAGES", "commands", "drifted", "main", "tables"]

ROOT: Final = Path(__file__).parents[1]

_COMMANDS_HEAD: Final = """\
# Commands

Written from the commands' own help. Exit codes stand in [operating.md](operating.md).
"""


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command that can be run, by its full name ("bhumi send"), with its parsed form."""
    for name, listed in COMMANDS.items():
        yield from _runnable(
            name, typer.main.get_command(importlib.import_module(f"waystation.cli.{listed.module}").app)
        )


def _runnable(name: str, found: Any) -> Iterator[tuple[str, Any]]:
    """Yield a command, or all that a group of commands holds, however deep."""
    inner = getattr(found, "commands", None)
    if inner is None:
        yield name, found
        return
    for below, command in inner.items():
        yield from _runnable(f"{name} {below}", command)


def _cli() -> str:
    return "\n".join([_COMMANDS_HEAD, *(_command(name, found) for name, found in commands())])


def _command(name: str, found: Any) -> str:
    arguments = [part for part in found.params if part.param_type_name == "argument"]
    options = [part for part in found.params if part.param_type_name == "option" and part.name not in _TYPERS_OWN]
    usage = " ".join([f"waystation {name}", *(_argument(part) for part in arguments)])
    text, *examples = (found.help or "").split("Example:")
    lines = [f"## waystation {name}\n", text.strip(), f"\n```\n{usage} [OPTIONS]\n```\n"]
    lines += [f"Example: `{' '.join(example.split())}`\n" for example in examples]
    rows = [(f"`{_argument(part)}`", "", _cell(part.help or "")) for part in arguments]
    rows += [(_option_names(part), _option_default(part), _cell(part.help or "")) for part in options]
    if rows:
        lines.append(table(("argument or option", "default", "meaning"), rows))
    return "\n".join(lines)


def _argument(part: Any) -> str:
    name = part.name.upper() + ("..." if part.nargs == -1 else "")
    return name if part.required else f"[{name}]"


def _option_names(option: Any) -> str:
    return ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])


def _option_default(option: Any) -> str:
    default = option.default
    if default in (None, False, "", ()) or callable(default):
        return ""
    return f"`{default.value if isinstance(default, Enum) else default}`"


_TYPERS_OWN: Final = ("install_completion", "show_completion")  # on commands that are an app of their own

_METRICS_HEAD: Final = """\
# Metrics

`GET /metrics` on the admin port, in Prometheus' text format. Labels come from closed sets, so the number of series does
not depend on what peers do.
"""


def _metrics() -> str:
    def status() -> dict[str, Any]:
        return {
            "uptime_s": 1,
            "sizes": {"bhumi": {"connections": 1}},
            "totals": {
                "deliveries": {("bhumi", Outcome.OK.value): 1},
                "refusals": {("bhumi", Refusal.TRUNCATED.value): 1},
                "packets": {("strata", "accepted"): 1},
                "lookups": {("merk", "found"): 1},
                "leases": {("lprp", "granted"): 1},
                "work": {("lprp", "accepted"): 1},
                "messages": {("bsp", "delivered"): 1},
            },
            "traffic": {"lprp": {"in": 1, "out": 1}},
            "clock": {"steps": 0, "shift_s": 0.0},
            "store": {"fault": None, "free_bytes": 0, "days_left": 1.0},
            "damaged": {"met": {"packets": 1}},
            "certificates": [{"listener": "bhumi.tls", "ends_s": 1}],
            "datagrams": {"lprp": {"received": 1, "sent": 1, "dropped": 0, "failed": 0}},
            "written": {"journal": {"rows_written": 1, "rows_dropped": 0, "rows_lost": 0}},
            "policy": {
                "sizes": {"rules": 1},
                "matches": [{"rule": "burst", "action": "rate", "mode": "enforce", "n": 1}],
                "age_s": 1,
            },
            "relays": [{"relay_id": "0" * 16, "state": "active", "score": 1.0}],
        }

    def limits() -> list[dict[str, Any]]:
        return [{"name": "limits.bhumi.presences", "value": 1, "use": 1}]

    rows = []
    for family in text_string_to_metric_families(render_metrics(status, limits).decode()):
        sample = family.samples[0]
        labels = ", ".join(f"`{label}`" for label in sample.labels) or "none"
        rows.append((f"`{sample.name}`", family.type, labels, _cell(family.documentation)))
    return f"{_METRICS_HEAD}\n{table(('name', 'type', 'labels', 'meaning'), rows)}"


def _journal() -> str:
    return _with_part("journal.md", "contract", render_contract())


def _operating() -> str:
    return _with_part("operating.md", "faults", faults.render())


def _with_part(page: str, name: str, text: str) -> str:
    """Return a page of docs/ whose part of this name is written anew."""
    part = re.compile(rf"(<!-- {name} -->\n).*(<!-- end of {name} -->)", re.DOTALL)
    return part.sub(lambda found: found[1] + text + found[2], (ROOT / "docs" / page).read_text())


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def tables() -> str:
    """Return the page of the lake's tables, from the pipeline's contracts."""
    return "".join([_TABLES_HEAD, *map(_dataset, DATASETS), _outcomes(), _buckets()])


def _dataset(dataset: Dataset) -> str:
    key = ", ".join(f"`{name}`" for name in dataset.key)
    kept = f"meant to be kept {dataset.retention_days} days"
    head = f"## {dataset.full_name}\n\nOne row is {dataset.grain}; key: {key}; {kept}; below `{dataset.folder}`.\n\n"
    rows = [
        (f"`{each.name}`", f"`{each.type}`", "yes" if each.nullable else "no", each.privacy.value, _cell(each.meaning))
        for each in dataset.columns
    ]
    return head + table(("column", "type", "null", "privacy", "meaning"), rows) + "\n"


def _outcomes() -> str:
    return "## Outcomes\n\n" + table(("outcome", "means"), [(f"`{name}`", means) for name, means in OUTCOMES.items()])


def _buckets() -> str:
    edges = _wrapped(f"{bucket}:{edge}" for bucket, edge in enumerate(THRESHOLDS_US))
    said = "Bucket `b` of a histogram holds latencies from its edge, in microseconds, up to the next one (`b:edge`):"
    return f"\n## Latency buckets\n\n{said}\n\n```\n{edges}\n```\n"


def _wrapped(words: Iterable[str]) -> str:
    return textwrap.fill(" ".join(words), 110)


_ABUSE_HEAD: Final = """\
# Abuse: what is found and what to do

The limits are written from the code (`rules/abuse.py`). Each is what one actor may have in one hour of the clock, at
one node and in one protocol.

"""

_ABUSE_TAIL: Final = """
Copies may be as many as {copies} of each packet of that author, and packets {factor} times what is usual at the node
(at most {packets:,}), where that is more than the limit.

Above the limit a finding is `low`, above {medium} times the limit `medium`, above {high} times `high`. From `medium` on
an action is suggested: extra bits of proof of work (`pow`: {pow}) or messages a minute (`rate`: {rate}). A peer
with `high` findings of one rule in {windows} hours is blocked. A network stands for many people: it is slowed, never
blocked. A finding is a reason for {hours} hours.

Findings by author suggest nothing: anybody can bring somebody else's packets, so whoever is named may be the victim.
The same holds for spent capabilities, which name the recipient.

## Reading a finding

The report begins with what needs attention; `gold.abuse_findings` has every finding with its counts and times. Whom it
is about stands there as a reference, a keyed hash. To see whether it is somebody you know:

```
waystation pipeline reference 203.0.113.7 --home ./waystation
```

This takes keys, id52, DIDs and addresses. It answers for the week whose key lies in the home; nobody can tell older
ones.

## Acting

1. For some days leave `policy_mode = "shadow"` in the pipeline's settings and `mode = "shadow"` in the node's
   `[policy]`: the node counts what it would have refused (`matches` in `GET /admin/v1/policy`) and refuses nothing.
2. `waystation pipeline backtest --policy FILE --from D --to D` tells what the rules would have refused of what was
   accepted.
3. Then set both to `enforce`. What is refused is journalled as `policy_rate` or `policy_blocked`, and every rule ends
   by itself.
4. Your own lists win over all of it: a ban ([operating.md](operating.md)) keeps somebody out for good, `allow` in the
   node's `[policy]` lets somebody through.
"""


def _abuse() -> str:
    said = dict(re.findall(r'    ([A-Z_]+) = "[a-z_]+"\n    """(.+?)"""', inspect.getsource(abuse.Measure), re.DOTALL))
    rows = [
        (
            f"`{standard.rule.value}`",
            _cell(said[measure.name]),
            f"{standard.limit:,}",
            "nothing" if standard.action is abuse.Suggestion.NONE else f"`{standard.action.value}`",
        )
        for measure, standard in abuse.STANDARDS.items()
    ]
    amounts = {
        action.value: ", then ".join(str(n) for (of, _), n in abuse.AMOUNTS.items() if of is action)
        for action in (abuse.Suggestion.POW, abuse.Suggestion.RATE)
    }
    tail = _ABUSE_TAIL.format(
        copies=abuse.COPIES_PER_PACKET,
        factor=abuse.PACKETS_FACTOR,
        packets=abuse.PACKETS_MAX,
        medium=abuse.MEDIUM_ABOVE,
        high=abuse.HIGH_ABOVE,
        windows=abuse.WINDOWS_TO_BLOCK,
        hours=abuse.FINDING_HOURS,
        **amounts,
    )
    return _ABUSE_HEAD + table(("rule", "what is counted, and of whom", "limit", "suggests"), rows) + tail


_TABLES_HEAD: Final = """# Tables of the lake

Written by `make docs` from the schemas in `src/waystation/pipeline/tables/`. Every file also has the partition columns
`event_date` and `batch`; [pipeline.md](pipeline.md) shows how to open a table.

"""

PAGES: Final[dict[str, Callable[[], str]]] = {
    "refusals.md": refusals,
    "configuration.md": render_docs,
    "waystation.toml": render_sample,
    "journal.md": _journal,
    "cli.md": _cli,
    "tables.md": tables,
    "metrics.md": _metrics,
    "abuse.md": _abuse,
    "operating.md": _operating,
}
"""File below docs/ and what writes it."""


def drifted(folder: Path | None = None) -> list[str]:
    """Return the names of pages in ``folder`` (docs/ when None) that are not what the code says."""
    place = folder or ROOT / "docs"
    return [name for name, render in PAGES.items() if _text_of(place / name) != render()]


def _text_of(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Write all pages, or with ``--check`` only name those that have drifted; exit 1 when there are any."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    stale = drifted()
    if parser.parse_args(arguments).check:
        sys.stdout.writelines(f"docs/{name} has drifted; run: make docs\n" for name in stale)
        return 1 if stale else 0
    for name in stale:
        (ROOT / "docs" / name).write_text(PAGES[name]())
        sys.stdout.write(f"wrote docs/{name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
