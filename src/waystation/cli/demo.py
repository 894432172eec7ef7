"""``waystation demo``: runs the demonstration of ``waystation.examples.demo`` in a folder of its own.

Each step runs real nodes and commands on this machine and checks the result; the exit code is 1 when one differs.
"""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from waystation.core.errors import HostError
from waystation.examples.demo.run import run

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None)


@app.command()
def demo(
    keep: Annotated[Path | None, typer.Option(help="Work in this folder, which must be new or empty.")] = None,
    *,
    report: Annotated[
        bool, typer.Option(help="Run the Spark pipeline at the end, and let the node read what it found.")
    ] = True,
    stay: Annotated[bool, typer.Option(help="Leave two linked nodes and the page open until Ctrl-C.")] = False,
) -> None:
    """Show nodes at work: Bhumi, LPRP mail, a chat over BSP, Strata, MERK, faults on purpose, policy and the report.

    Ends by itself and leaves no process behind; the folder with the journal and the report stays.

    Example: waystation demo --keep ./my-demo
    """
    if not run(_folder(keep), stay=stay, report=report):
        raise typer.Exit(1)


def _folder(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="waystation-demo-"))
    if keep.exists() and any(keep.iterdir()):
        raise HostError(f"{keep} is not empty; name a folder that is")
    keep.mkdir(parents=True, exist_ok=True)
    return keep.resolve()
