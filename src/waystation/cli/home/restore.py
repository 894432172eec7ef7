"""``waystation restore``: makes a home from a backup.

``server.home.backup`` does the work and compares every file with its SHA-256. The target must be empty, so nothing is
overwritten.
"""

from pathlib import Path
from typing import Annotated, Final

import typer

from waystation.cli.options import JsonOption
from waystation.cli.output import print_result
from waystation.core.ids import encode_id52

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None)

_ONE_KEY: Final = "never start the old home again: two nodes with one key take each other's peers away"


@app.command()
def restore(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What `waystation backup` has written.")],
    home: Annotated[Path, typer.Option("--home", help="Where the home goes: an empty folder, or none yet.")],
    as_json: JsonOption = False,
) -> None:
    """Make a home from a backup; every file is compared with the list of the backup.

    What was acknowledged after the backup began is not in it. The node of the old home must be stopped for good.

    Example: waystation restore /mnt/backup/monday --home ./waystation
    """
    from waystation.cli.progress import ProgressLines  # noqa: PLC0415 - only this command needs it
    from waystation.server.home import Home  # noqa: PLC0415
    from waystation.server.home.backup import restore_home  # noqa: PLC0415

    with ProgressLines(shown=not as_json) as lines:
        report = restore_home(folder, Home(home), lambda what, done, total: lines.show(what, what, done, total))
    name = encode_id52(report.public_key)
    result = {
        "home": str(home.resolve()),
        "files": report.files,
        "bytes": report.size_bytes,
        "generation": report.generation,
        "public_key": report.public_key.hex(),
        "id52": name,
        "note": _ONE_KEY,
    }
    print_result(
        result,
        f"made   {home}: {report.files} files, all as they were",
        f"node   {name}",
        f"note   {_ONE_KEY}",
        f"next   waystation serve --home {home}",
        as_json=as_json,
    )
