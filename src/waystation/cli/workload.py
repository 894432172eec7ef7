"""``waystation pipeline generate``: writes synthetic journals and archives of nodes, with the expected findings.

``sim.workload`` writes the files from a seed. They serve to try the pipeline at any size, since it is known what it
must find.
"""

import hashlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from waystation.cli.options import JsonOption
from waystation.cli.output import print_result
from waystation.core.errors import HostError, LocalError

if TYPE_CHECKING:
    from waystation.sim.workload import Workload, WorkloadFile

__all__ = ["LATE_FOLDER", "generate"]

LATE_FOLDER: Final = "late"
"""Folder for the second shipment, unless both are wanted together."""

_TRUTH_FILE: Final = "truth.json"
_FILES_A_SLOT: Final = 2  # a node's journal and archive


def generate(
    directory: Annotated[Path, typer.Argument(help="An empty or new folder.", metavar="DIR")],
    seed: Annotated[int, typer.Option("--seed", help="Decides everything that is left to chance.")] = 1,
    nodes: Annotated[int, typer.Option("--nodes", help="How many nodes, 1 to 64.")] = 3,
    days: Annotated[int, typer.Option("--days", help="How many UTC dates, from 2026-05-25 on; 1 to 35.")] = 9,
    events: Annotated[int, typer.Option("--events", help="Events of the honest load, all nodes together.")] = 100_000,
    honest: Annotated[bool, typer.Option("--honest", help="Play no scenario: nobody misbehaves.")] = False,
    scenario: Annotated[
        list[str] | None,
        typer.Option(
            "--scenario", help="Play this one, as NAME or NAME:key=number,key=number; may repeat. Default: all."
        ),
    ] = None,
    truth: Annotated[Path | None, typer.Option("--truth", help="The truth's file. Default: DIR/truth.json.")] = None,
    together: Annotated[
        bool, typer.Option("--together", help="Put late files among the others, and not below DIR/late.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write what nodes would have recorded in some days, and what is true of it.

    The same arguments give the same bytes. Each node has a folder DIR/node-ID with its journal and its archive.

    Example: waystation pipeline generate ./workload --seed 1 --nodes 3 --events 100000 --scenario slow_relay
    """
    from waystation.sim.workload import ALL_SCENARIOS, HONEST, Workload  # noqa: PLC0415 - only this command needs it

    if honest and scenario:
        raise LocalError("--honest plays no scenario; leave it or --scenario away")
    named = _scenarios(scenario) if scenario else dict.fromkeys(HONEST if honest else ALL_SCENARIOS, _NO_PARAMETERS)
    workload = Workload(seed, nodes, days, events, named)
    started = time.monotonic()
    digest, count, size = hashlib.sha256(), 0, 0
    try:
        if directory.exists() and any(directory.iterdir()):
            raise LocalError(f"{directory} is not empty")
        for file in _with_progress(workload):
            path = directory / (LATE_FOLDER if file.shipment > 1 and not together else "") / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.data)
            digest.update(f"{file.shipment} {file.path} {len(file.data)}\n".encode() + file.data)
            count, size = count + 1, size + len(file.data)
        document = workload.truth()
        truth_path = truth or directory / _TRUTH_FILE
        truth_path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise HostError(f"cannot write the workload to {directory}: {error.strerror}") from error
    rows = sum(sum(kinds.values()) for kinds in document["counts"]["events"].values())
    facts = {
        "directory": str(directory),
        "truth": str(truth_path),
        "files": count,
        "bytes": size,
        "events": rows,
        "sha256": digest.hexdigest(),
        "seconds": round(time.monotonic() - started, 3),
    }
    print_result(facts, *(f"{name:10} {value}" for name, value in facts.items()), as_json=as_json)


def _scenarios(texts: list[str]) -> dict[str, dict[str, int]]:
    """Return scenarios with their parameters, as they were written."""
    named: dict[str, dict[str, int]] = {}
    for text in texts:
        name, _, given = text.partition(":")
        pairs = [pair.partition("=") for pair in given.split(",") if pair]
        try:
            named[name] = {key.strip(): int(value) for key, _, value in pairs}
        except ValueError as error:
            raise LocalError(f"{text!r} is no scenario; write it as NAME:key=number,key=number") from error
    return named


def _with_progress(workload: "Workload") -> "Iterator[WorkloadFile]":
    """Show a bar on stderr on a terminal."""
    if not sys.stderr.isatty():
        yield from workload.files()
        return
    from rich.console import Console  # noqa: PLC0415 - a third of a second that only a terminal needs
    from rich.progress import Progress  # noqa: PLC0415

    total = workload.plan.slots * len(workload.plan.nodes) * _FILES_A_SLOT
    console = Console(stderr=True)
    with Progress(console=console, transient=True, redirect_stdout=sys.stdout.isatty()) as progress:
        yield from progress.track(workload.files(), total=total, description="generating")


_NO_PARAMETERS: Final[dict[str, int]] = {}
