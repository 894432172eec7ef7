"""``waystation admin``: shows the token of the admin port, and makes a new one.

A running node takes the new token over at once; browsers' sessions end. Without a running node only the file changes.
"""

import typer

from waystation.cli.options import ConfigOption, HomeOption, JsonOption
from waystation.cli.output import print_result

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help="Show and replace the token of the admin port.")


@app.command()
def token(home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Print the token of the admin port; programs send it as "Authorization: Bearer TOKEN".

    Example: waystation admin token --home ./waystation
    """
    from waystation.cli.node_client import existing_home  # noqa: PLC0415 - only these commands need it

    text = existing_home(home, config).admin_token()
    print_result({"token": text}, text, as_json=as_json)


@app.command()
def rotate(home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Make a new token; the old one and all sessions of browsers end at once, whether the node runs or not.

    Example: waystation admin rotate --home ./waystation
    """
    from waystation.cli.node_client import existing_home, rotate_token  # noqa: PLC0415 - only these commands need it

    place = existing_home(home, config)
    is_used = rotate_token(place)
    note = "the running node takes no other one from now on" if is_used else "the next start of the node takes it"
    line = f"wrote  {place.token_path}: {note}"
    print_result({"file": str(place.token_path), "in_force": is_used}, line, as_json=as_json)
