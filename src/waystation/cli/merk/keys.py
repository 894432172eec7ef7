"""``waystation merk keys`` and ``servers``: shows and changes the keys and the list of relays of an identity.

``commands`` passes the action and prints the documents that come back. Only files in the identity's folder are read and
written; nothing is dialled.
"""

from enum import Enum
from pathlib import Path
from typing import Any, Final

from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey, encode_id52
from waystation.sdk.merk import (
    RECIPIENTS_FILE,
    SERVERS_FILE,
    Keys,
    Recipients,
    Server,
    Servers,
    create_keys,
    import_keys,
    load_keys,
)

__all__ = ["KeyAction", "ServerAction", "act_on_keys", "act_on_servers", "describe_keys", "describe_server"]

_NO_FILE: Final = "this needs an exported key file, or - to read it from stdin"


class KeyAction(Enum):
    """What can be done with keys."""

    SHOW = "show"
    CREATE = "create"
    IMPORT = "import"
    EXPORT = "export"
    RECIPIENTS = "recipients"
    TRUST = "trust"
    FORGET = "forget"


class ServerAction(Enum):
    """What can be done with the list of servers."""

    LIST = "list"
    ADD = "add"
    REMOVE = "remove"
    SELECT = "select"


def describe_keys(keys: Keys) -> dict[str, Any]:
    """Return what may be shown of an identity."""
    return {
        "public_key": keys.signing.public.hex(),
        "id52": encode_id52(keys.signing.public),
        "agreement_key": keys.agreement_public.hex(),
        "agreement_id52": encode_id52(keys.agreement_public),
    }


def act_on_keys(action: KeyAction, values: list[str], text: str | None, home: Path) -> list[dict[str, Any]]:
    """Carry an action out and return what is to be shown, one document a line; of an export, the secret itself.

    Args:
        action: What to do.
        values: What stands behind it.
        text: Contents of the file to import.
        home: Folder of the identity.

    Raises:
        LocalError: A value is missing or malformed, or there is an identity already or none.
        HostError: A file cannot be used.
    """
    if action is KeyAction.CREATE:
        return [describe_keys(create_keys(home))]
    if action is KeyAction.IMPORT:
        if text is None:
            raise LocalError(_NO_FILE)
        return [describe_keys(import_keys(home, text))]
    if action in (KeyAction.RECIPIENTS, KeyAction.TRUST, KeyAction.FORGET):
        return _act_on_recipients(action, values, Recipients(home / RECIPIENTS_FILE))
    keys = load_keys(home)
    return [describe_keys(keys)] if action is KeyAction.SHOW else [{"key_file": keys.export_json()}]


def _act_on_recipients(action: KeyAction, values: list[str], recipients: Recipients) -> list[dict[str, Any]]:
    if action is KeyAction.RECIPIENTS:
        return [
            {"public_key": key.hex(), "agreement_key": each.agreement_key.hex(), "by_hand": each.by_hand}
            for key, each in recipients.known().items()
        ]
    wanted = 2 if action is KeyAction.TRUST else 1
    if len(values) != wanted:
        raise LocalError("trust needs a public key and its agreement key, forget a public key")
    key = PublicKey.parse(values[0])
    if action is KeyAction.FORGET:
        if not recipients.forget(key):
            raise LocalError(f"nothing is pinned for {key.hex()}")
        return [{"public_key": key.hex(), "forgotten": True}]
    agreement_key = PublicKey.parse(values[1])
    recipients.set_by_hand(key, agreement_key)
    return [{"public_key": key.hex(), "agreement_key": agreement_key.hex(), "by_hand": True}]


def act_on_servers(action: ServerAction, address: str | None, home: Path) -> list[dict[str, Any]]:
    """Carry an action out and return the list behind it, one document a server.

    Raises:
        LocalError: The address is missing or none, not in the list, or there are too many.
        HostError: The file cannot be used.
    """
    servers = Servers(home / SERVERS_FILE)
    if action is not ServerAction.LIST:
        if address is None:
            raise LocalError(f"{action.value} needs an address such as wss://relay.example/merk")
        acts = {
            ServerAction.ADD: servers.add,
            ServerAction.REMOVE: servers.remove,
            ServerAction.SELECT: servers.select,
        }
        acts[action](address)
    return [describe_server(server, selected=server.address == servers.selected) for server in servers.in_order()]


def describe_server(server: Server, *, selected: bool) -> dict[str, Any]:
    """Return what is shown of a server."""
    origin = "user" if server.added else "told"
    key = server.key.hex() if server.key is not None else None
    return {"address": server.address, "origin": origin, "selected": selected, "key": key}
