"""``waystation backup``: copies a home while its node runs.

``server.home.backup`` does the work; ``upgrade`` calls it before it changes the store. Everything acknowledged before
the call is in the copy.
"""

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from waystation.cli.options import ConfigOption, HomeOption, JsonOption
from waystation.cli.output import EXIT_FAILURE, print_result
from waystation.core.ids import encode_id52

__all__ = ["app", "take_backup"]

app = typer.Typer(rich_markup_mode=None)

_MIB: Final = 1_048_576


@app.command()
def backup(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="An empty folder, or one that is not there yet.")],
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy a node's home, also while the node runs: keys, certificates, store, box, and sealed segments.

    Everything acknowledged before the command began is in the copy. The folder holds the node's key: keep it as private
    as the home. The configuration file and files that it names are not in it. Every row of the copied store is read:
    with damaged ones the backup is written all the same, and the exit code is 1.

    Example: waystation backup /mnt/backup/monday --home ./waystation
    """
    result = take_backup(folder, home, config, shown=not as_json)
    damaged = ", ".join(f"{count} of {table}" for table, count in result["damaged"].items())
    print_result(
        result,
        f"wrote    {result['folder']}: {result['files']} files, {result['bytes'] / _MIB:.1f} MiB",
        f"node     {result['id52']}",
        f"restore  waystation restore {folder} --home NEW_HOME",
        *(
            [f"DAMAGED  {damaged}: rows that are not as they were written; waystation check --deep names them"]
            if damaged
            else []
        ),
        as_json=as_json,
    )
    if damaged:
        raise typer.Exit(EXIT_FAILURE)


def take_backup(folder: Path, home: str | None, config: str | None, *, shown: bool) -> dict[str, Any]:
    """Take a backup, and return what it holds for programs; arguments as for the command."""
    from waystation.cli.node_client import existing_home  # noqa: PLC0415 - only this command needs it
    from waystation.cli.progress import ProgressLines  # noqa: PLC0415
    from waystation.server.home.backup import backup_home  # noqa: PLC0415

    place = existing_home(home, config)
    with ProgressLines(shown=shown) as lines:
        report = backup_home(place, folder, lambda what, done, total: lines.show(what, what, done, total))
    return {
        "folder": report.path,
        "home": str(place.path.resolve()),
        "files": report.files,
        "bytes": report.size_bytes,
        "generation": report.generation,
        "public_key": report.public_key.hex(),
        "id52": encode_id52(report.public_key),
        "damaged": dict(report.damaged),
    }
