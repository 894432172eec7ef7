"""``waystation bsp why``: explains which messages, flags or peers a message is waiting for.

``protocols.bsp`` gives an ``Explanation`` of one message, and these functions make JSON and sentences of it.
"""

from collections.abc import Mapping
from typing import Any

import typer

from waystation.cli.bsp.show import say_running, short
from waystation.cli.output import visible
from waystation.sdk.bsp import Explanation, Group, State

__all__ = ["describe_why", "show_why"]


def describe_why(explanation: Explanation, group: Group, *, is_running: bool = False) -> dict[str, Any]:
    """Return an explanation for programs, and whether it was read beside the program that runs."""
    vertex = explanation.vertex
    return {
        "running": is_running,
        "id": explanation.message_id.hex(),
        "group": group.group_id.hex(),
        "state": vertex.state.name.lower() if vertex is not None else None,
        "reason": explanation.reason,
        "missing": [{"id": each.message_id.hex(), "known": each.is_known} for each in explanation.missing],
        "peers": [
            {
                "key": each.peer.hex(),
                "reason": each.reason,
                "holds": each.status.holds,
                "owes_ack": each.status.owes_ack,
                "requested": each.status.requested,
                "copies": each.status.copies,
                "next_in_ms": each.status.next_in_us // 1_000,
                "offered": each.status.offered,
                "visibility": each.status.visibility.value,
            }
            for each in explanation.peers
        ],
    }


def show_why(explanation: Explanation, names: Mapping[bytes, str], *, is_running: bool = False) -> None:
    """Print an explanation for people; see ``describe_why``."""
    waits = "waits" if explanation.vertex is None or explanation.vertex.state is not State.INVALID else "is no help"
    typer.echo(f"{short(explanation.message_id)}: {explanation.reason}")
    for missing in explanation.missing:
        typer.echo(
            f"  needs {missing.message_id.hex()}: {f'has come, and {waits}' if missing.is_known else 'never came'}"
        )
    for each in explanation.peers:
        typer.echo(f"  {visible(names.get(each.peer) or short(each.peer))}: {each.reason}")
    if not explanation.peers:
        typer.echo("  the group is shared with nobody")
    if is_running:
        say_running()
