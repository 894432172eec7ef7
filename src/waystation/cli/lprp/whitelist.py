"""``waystation lprp whitelist``: changes who may write to this tenant without proof of work, and waits for the host.

The change is stored in the identity's folder first. Only one program may speak to the host for a tenant, so a running
``listen`` sends it, else this command does.
"""

import asyncio
from collections.abc import Sequence
from enum import Enum
from typing import Any, Final

import typer

from waystation.cli.output import print_json, visible
from waystation.core.errors import HostError
from waystation.sdk.errors import HomeBusyError
from waystation.sdk.lprp import HostUrl, LprpState, LprpTenant, WhitelistWish

__all__ = ["WhitelistAction", "change_whitelist", "describe_whitelist", "show_whitelist"]

_LOOK_S: Final = 0.1
_NOTE_S: Final = 5.0
_LISTENER_S: Final = 90.0  # as long as a client goes on asking a silent host


class WhitelistAction(Enum):
    """What to do with the whitelist."""

    SHOW = "show"
    ADD = "add"
    REMOVE = "remove"
    CLEAR = "clear"


async def change_whitelist(
    state: LprpState, host: HostUrl, tenant: LprpTenant, action: WhitelistAction, keys: Sequence[bytes]
) -> None:
    """Change whom the host lets through, and return once it knows.

    Args:
        state: The folder.
        host: Whose whitelist.
        tenant: Not open yet; used when no other program listens.
        action: Anything but SHOW.
        keys: What to add or remove.

    Raises:
        LocalError: There would be too many keys.
        WhitelistFailedError: The host does not agree.
        HostError: The program that listens did not get it done.
    """
    add = keys if action is WhitelistAction.ADD else ()
    remove = keys if action is WhitelistAction.REMOVE else ()
    state.change_whitelist(host.key, add, remove, clear=action is WhitelistAction.CLEAR)
    try:
        async with tenant:
            await tenant.set_whitelist(state.whitelist(host.key).wanted)
    except HomeBusyError:
        await _wait_for_listener(state, host)


async def _wait_for_listener(state: LprpState, host: HostUrl) -> None:
    note = asyncio.get_running_loop().call_later(_NOTE_S, _say_waiting, state, host)
    try:
        async with asyncio.timeout(_LISTENER_S):
            while True:
                wish = state.whitelist(host.key)
                if wish.failure:
                    raise HostError(wish.failure)
                if wish.agreed == wish.wanted:
                    return
                await asyncio.sleep(_LOOK_S)
    except TimeoutError as error:
        raise HostError(
            f"the program that listens with {state.home} has not updated {host} within {_LISTENER_S:g} s; does it"
            " listen at this host? the wish is kept"
        ) from error
    finally:
        note.cancel()


def _say_waiting(state: LprpState, host: HostUrl) -> None:
    text = (
        f"note: the program that listens with {state.home} has not updated {host} yet, which may be silent; waiting"
        f" for up to {_LISTENER_S:g} s in all (the wish is kept)"
    )
    typer.echo(visible(text), err=True)


def describe_whitelist(wish: WhitelistWish, host: HostUrl) -> dict[str, Any]:
    """Return a whitelist for JSON."""
    # A host that has no entry of ours needs no update.
    return {
        "host": str(host),
        "keys": [key.hex() for key in sorted(wish.wanted)],
        "agreed": (wish.agreed or frozenset()) == wish.wanted,
        "failure": wish.failure,
    }


def show_whitelist(document: dict[str, Any], *, as_json: bool) -> None:
    """Print what ``describe_whitelist`` returns."""
    if as_json:
        print_json(document)
        return
    for key in document["keys"]:
        typer.echo(key)
    if not document["keys"]:
        typer.echo("nobody may write without work", err=True)
    if not document["agreed"]:
        why = f": {document['failure']}" if document["failure"] else "; it is updated when a program listens"
        typer.echo(visible(f"note: {document['host']} is not known to have this list{why}"), err=True)
