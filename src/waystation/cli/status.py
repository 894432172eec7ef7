"""``waystation status``: who is connected, which limits were met, disk, certificates, and what needs attention.

It asks the admin port of the node of a home (``NodeClient``); ``status_lines`` makes the page for people.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from waystation.cli.options import ConfigOption, HomeOption, JsonOption
from waystation.cli.output import EXIT_FAILURE, print_json, visible
from waystation.cli.status_lines import status_lines

if TYPE_CHECKING:
    from waystation.cli.node_client import NodeClient

__all__ = ["app", "is_well", "met_limits", "watch"]

app = typer.Typer(rich_markup_mode=None)

SHOWN_MAX: Final = 10
REDRAW_S: Final = 2.0
MET_S: Final = 6 * 3_600
"""A limit is listed for so long after it was met last."""

ANSWER_S: Final = 3.5
"""A node that does not answer within this stands still; with its own start the command ends within 5 s."""

_CLEAR: Final = "\x1b[H\x1b[2J"


@app.command()
def status(
    home: HomeOption = None,
    config: ConfigOption = None,
    watching: Annotated[bool, typer.Option("--watch", help="Show it again every two seconds until Ctrl-C.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show who is connected to the node of a home, how much, and what needs attention; exit 1 when something does.

    Example: waystation status --home ./waystation --watch
    """
    from waystation.cli.node_client import NodeClient  # noqa: PLC0415 - only this command needs it

    def draw() -> bool:
        client = NodeClient.find(home, config)
        client.timeout_s = ANSWER_S
        return show(client, as_json=as_json, clears=watching)

    if watching:
        watch(draw, time.sleep)
    elif not draw():
        raise typer.Exit(EXIT_FAILURE)


def watch(draw: Callable[[], object], pause: Callable[[float], None]) -> None:
    """Draw until Ctrl-C, or until nobody answers, which raises."""
    while True:
        draw()
        pause(REDRAW_S)


def show(client: "NodeClient", *, as_json: bool, clears: bool) -> bool:
    """Print what the node says of itself; return whether all is well.

    Args:
        client: The running node.
        as_json: One line of JSON in place of lines for people.
        clears: Clear the screen before, where stdout is a terminal.

    Raises:
        HostError: The node does not answer.
    """
    found = client.get("/admin/v1/status")
    connections = client.get(f"/admin/v1/connections?limit={SHOWN_MAX}")
    limits = met_limits(client.get("/admin/v1/limits")["limits"])
    well = is_well(found)
    if as_json:
        print_json({"ok": well, "status": found, "connections": connections, "limits": limits})
        return well
    lines = status_lines(found, connections, limits)
    if clears and typer.get_text_stream("stdout").isatty():
        typer.echo(_CLEAR, nl=False)
    typer.echo("\n".join(visible(line) for line in lines))
    return well


def is_well(found: dict[str, Any]) -> bool:
    """Return whether a status names no trouble."""
    return not found["trouble"]


def met_limits(limits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the limits that were met in the last hours, the latest first; those without a known peer come last."""

    def ago(limit: dict[str, Any]) -> int:
        return min((peer["ago_s"] for peer in limit["peers"]), default=MET_S)

    return sorted((limit for limit in limits if limit["times"] and ago(limit) <= MET_S), key=ago)
