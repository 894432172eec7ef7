"""``waystation sim``: runs whole nodes on a virtual clock, with one or many random seeds.

A failed run prints its seed, which replays it byte for byte.
"""

import gc
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from waystation.cli.options import JsonOption
from waystation.cli.output import EXIT_FAILURE, print_json
from waystation.core.errors import HostError, LocalError

if TYPE_CHECKING:
    from waystation.sim.run import SimResult

__all__ = ["app", "describe", "describe_failure"]

app = typer.Typer(rich_markup_mode=None)

ALL: Final = "all"
_HOUR_US: Final = 3_600_000_000
_HASH_CHARS_SHOWN: Final = 16


@app.command()
def sim(
    protocol: Annotated[
        str,
        typer.Option(
            "--protocol",
            help="Whose world to run: bhumi, bhumi-open, bsp, lprp, merk, strata, all of them; or bhumi-sdk.",
        ),
    ] = "bhumi",
    seed: Annotated[int, typer.Option("--seed", help="The first seed; it decides everything.")] = 1,
    hours: Annotated[float, typer.Option("--hours", help="Simulated hours of traffic and faults per seed.")] = 1.0,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many seeds, counting up from the first.")] = 1,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Processes to share the seeds.")] = 1,
    trace: Annotated[Path | None, typer.Option("--trace", help="Write the trace of a single seed here.")] = None,
    disks: Annotated[
        bool, typer.Option("--disk", help="Let the disks of nodes lose, refuse and spoil what is written, too.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a node, its clients and its faults on a virtual clock; exit 1 when an invariant is violated.

    A seed gives the same run, and the same trace hash, on every machine. With --protocol all every seed is run once per
    protocol. In bhumi-sdk the SDK itself meets a relay that lies; a seed of 0.003 hours takes a second.

    Example: waystation sim --protocol bhumi --seed 1 --seeds 100 --hours 1 --jobs 2
    """
    protocols = _protocols(protocol)
    if disks and protocol in _of_sdk():
        raise LocalError(f"no disk fails in {protocol}: its participants are programs, and have folders of their own")
    if trace is not None and seeds * len(protocols) > 1:
        raise LocalError("a trace is written for one seed of one protocol; leave --seeds away and name the protocol")
    runs = [(each, number) for each in protocols for number in range(seed, seed + seeds)]
    started = time.monotonic()
    failed, simulated_us, outcomes = 0, 0, Counter[str]()
    for result, wall_s in _with_progress(_run_all(runs, hours, jobs, trace, disks=disks), len(runs)):
        failed += result.failure is not None
        simulated_us += result.simulated_us
        outcomes.update(result.exchanges)
        if as_json:
            print_json({**result.document(), "wall_s": round(wall_s, 3), "hours_per_wall_s": _speed(result, wall_s)})
        else:
            typer.echo(describe(result, wall_s))
            if result.failure is not None:
                typer.echo(describe_failure(result))
    if len(runs) > 1:
        speed = simulated_us / _HOUR_US / max(time.monotonic() - started, 1e-9)
        if as_json:
            print_json({"seeds": len(runs), "failed": failed, "exchanges": dict(outcomes), "hours_per_wall_s": speed})
        else:
            verdict = f"{failed} of {len(runs)} seeds failed" if failed else f"{len(runs)} seeds, no invariant violated"
            typer.echo(f"{verdict}; {_outcomes(outcomes)}; {speed:.2f} simulated hours per second")
    if failed:
        raise typer.Exit(EXIT_FAILURE)


def describe(result: "SimResult", wall_s: float) -> str:
    """Return one line about a run that took ``wall_s`` seconds."""
    verdict = "FAIL" if result.failure is not None else "ok  "
    return (
        f"{verdict}  {result.protocol} seed {result.seed}  trace {result.trace_hash[:_HASH_CHARS_SHOWN]}  "
        f"{result.events} events  "
        f"{_outcomes(result.exchanges)}  {_speed(result, wall_s):.2f} simulated hours per second"
    )


def describe_failure(result: "SimResult") -> str:
    """Return the lines that help to find the cause of a failed run."""
    failure = result.failure
    assert failure is not None
    return "\n".join(
        (
            f"      invariant  {failure.invariant}",
            f"      what       {failure.detail}",
            f"      when       {failure.at_us / 1_000_000:.6f} simulated seconds",
            f"      again      {result.command}",
            "      trace, last lines:",
            *(f"        {line}" for line in failure.last_lines),
        )
    )


def _protocols(protocol: str) -> list[str]:
    """Return the protocols that a name stands for."""
    from waystation.sim.run import SCENARIOS  # noqa: PLC0415 - only this command needs it

    return sorted(SCENARIOS) if protocol == ALL else [protocol]


def _of_sdk() -> "tuple[str, ...]":
    """Return the worlds in which the SDK itself runs."""
    from waystation.simsdk.run import PROTOCOLS  # noqa: PLC0415 - only this command needs it

    return PROTOCOLS


def _run_all(
    runs: list[tuple[str, int]], hours: float, jobs: int, trace: Path | None, *, disks: bool
) -> "Iterator[tuple[SimResult, float]]":
    """Yield result and wall seconds of each protocol and seed, in order however many processes share them."""
    if jobs == 1 or len(runs) == 1:
        yield from (_run_one(protocol, seed, hours, trace, disks) for protocol, seed in runs)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        protocols, seeds = zip(*runs, strict=True)
        yield from pool.map(_run_one, protocols, seeds, [hours] * len(runs), [None] * len(runs), [disks] * len(runs))


def _run_one(protocol: str, seed: int, hours: float, trace: Path | None, disks: bool) -> "tuple[SimResult, float]":
    from waystation.sim.run import run_seed  # noqa: PLC0415 - only this command needs it
    from waystation.simsdk import run as simsdk  # noqa: PLC0415 - likewise

    run = simsdk.run_seed if protocol in simsdk.PROTOCOLS else partial(run_seed, disks=disks)
    started = time.monotonic()
    if trace is None:
        result = run(protocol, seed, hours)
    else:
        try:
            with trace.open("w", encoding="utf-8") as file:
                result = run(protocol, seed, hours, sink=lambda line: print(line, file=file))
        except OSError as error:
            raise HostError(f"cannot write the trace to {trace}: {error.strerror}") from error
    wall_s = time.monotonic() - started
    gc.collect()  # a world is one great cycle, and the thresholds of this program would leave hundreds of them
    return result, wall_s


def _with_progress(results: "Iterator[tuple[SimResult, float]]", count: int) -> "Iterator[tuple[SimResult, float]]":
    """Show a bar on stderr while many seeds run, on a terminal."""
    if count == 1 or not sys.stderr.isatty():
        yield from results
        return
    from rich.console import Console  # noqa: PLC0415 - a third of a second that only a terminal needs
    from rich.progress import Progress  # noqa: PLC0415

    # Lines that go elsewhere than to this terminal must not be drawn around the bar: they would end up on stderr.
    console = Console(stderr=True)
    with Progress(console=console, transient=True, redirect_stdout=sys.stdout.isatty()) as progress:
        yield from progress.track(results, total=count, description="simulating")


def _speed(result: "SimResult", wall_s: float) -> float:
    """Return simulated hours per wall second."""
    return round(result.simulated_us / _HOUR_US / max(wall_s, 1e-9), 3)


def _outcomes(exchanges: "dict[str, int] | Counter[str]") -> str:
    counts = " ".join(f"{name}={number}" for name, number in sorted(exchanges.items())) or "no exchanges"
    right, wrong = exchanges.get("lookups_right", 0), exchanges.get("lookups_wrong", 0)
    return f"{counts} ({right / (right + wrong):.1%} of look-ups right)" if right + wrong else counts
