"""``waystation upgrade``: brings a home's store to the layout (table format) of this version.

``server.home.upgrade`` does the work, for a stopped node. The command demands a backup or ``--no-backup``, because an
earlier version cannot read the store afterwards.
"""

from pathlib import Path
from typing import Annotated, Final

import typer

from waystation.cli.options import ConfigOption, HomeOption, JsonOption
from waystation.cli.output import print_result
from waystation.core.errors import LocalError
from waystation.version import __version__

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None)

_NO_WAY_BACK: Final = (
    "a version from before cannot read the store afterwards: name an empty folder with --backup, or say --no-backup"
)


@app.command()
def upgrade(
    home: HomeOption = None,
    config: ConfigOption = None,
    only_check: Annotated[bool, typer.Option("--check", help="Say what would be done, and do nothing.")] = False,
    backup: Annotated[Path | None, typer.Option("--backup", help="Take a backup into this empty folder first.")] = None,
    without_backup: Annotated[bool, typer.Option("--no-backup", help="There is a backup already.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Bring the store of a stopped node to the layout of this version; `serve` does the same when it starts.

    A version from before cannot read the store afterwards, so a backup is made first.

    Example: waystation upgrade --home ./waystation --backup /mnt/backup/before
    """
    from waystation.cli.home.backup import take_backup  # noqa: PLC0415 - only this command needs it
    from waystation.cli.node_client import existing_home  # noqa: PLC0415
    from waystation.server.home.mark import check_home  # noqa: PLC0415
    from waystation.server.home.upgrade import layout_of, upgrade_home  # noqa: PLC0415
    from waystation.store.sqlite_layout import SCHEMA_VERSION  # noqa: PLC0415

    place = existing_home(home, config)
    check_home(place)
    found = layout_of(place)
    is_due = found is not None and found < SCHEMA_VERSION
    if is_due and not only_check:
        if backup is None and not without_backup:
            raise LocalError(
                "a version from before cannot read the store afterwards: name a --backup DIR, or say --no-backup"
            )
        with place.lock():
            if backup is not None:
                take_backup(backup, str(place.path), None, shown=not as_json)
            upgrade_home(place)
    result = {
        "home": str(place.path.resolve()),
        "version": __version__,
        "layout_found": found,
        "layout": SCHEMA_VERSION,
        "needed": is_due,
        "done": is_due and not only_check,
        "backup": str(backup) if backup is not None and is_due and not only_check else None,
    }
    print_result(result, _sentence(found, SCHEMA_VERSION, done=bool(result["done"])), as_json=as_json)


def _sentence(found: int | None, layout: int, *, done: bool) -> str:
    if found is None:
        return "there is no store yet; the first start makes one"
    if found == layout:
        return f"the store has layout {layout}, that of waystation {__version__}: nothing to do"
    if done:
        return f"the store was brought from layout {found} to {layout}, that of waystation {__version__}"
    return f"the store has layout {found}, waystation {__version__} has {layout}: an upgrade is due"
