"""``waystation strata keys``: manages the key file; the caller publishes the resulting key events.

A key event is a signed packet that replaces or revokes a key. ``commands`` gets it from here, publishes it, and then
has the file changed. A new key is saved beside the old one before that, so a crash in between loses no key.
"""

import secrets
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

from waystation.core.errors import LocalError
from waystation.crypto.signing import SEED_BYTES, KeyPair
from waystation.protocols.strata.client.identity import (
    Identity,
    approve_recovery,
    export_identity,
    revoke_key,
    rotate_key,
)
from waystation.protocols.strata.packet import Packet, packet_id_text, parse_packet_id
from waystation.sdk.strata.keys import create_identity, import_identity, load_identity, save_identity

__all__ = ["KeyAction", "KeyOutcome", "act_on_key"]


_EXPORTED: Final = "whoever has this is you; `waystation strata keys import -` takes it back"


class KeyAction(Enum):
    """What can be done with a key."""

    SHOW = "show"
    CREATE = "create"
    IMPORT = "import"
    EXPORT = "export"
    ROTATE = "rotate"
    REVOKE = "revoke"
    APPROVE = "approve"


class KeyOutcome(NamedTuple):
    """What an action came to."""

    packet: Packet | None
    """To publish, if any."""
    after: Callable[[], None]
    """To call once a relay has taken the packet."""
    document: dict[str, Any]
    """To show."""
    secret: str = ""
    """To show to people instead, when somebody asked for it."""
    note: str = ""
    """To say besides."""


def act_on_key(action: KeyAction, value: str | None, home: Path, *, yes: bool = False) -> KeyOutcome:
    """Carry an action out as far as it needs no relay.

    Args:
        action: What to do.
        value: What it needs: an exported identity, a key id, a packet id.
        home: Folder of the key file.
        yes: Revoke the key in use, too, which is the only one that this folder has.

    Raises:
        LocalError: A value is missing or malformed, there is an identity already or none, or the last key would go.
        HostError: The key file cannot be used.
    """
    if action is KeyAction.CREATE:
        return _shown(create_identity(home))
    if action is KeyAction.IMPORT:
        return _imported(home, _needed(value, "the line of `keys export`, or - to read it from stdin"))
    identity, now_s = load_identity(home), int(time.time())
    if action is KeyAction.EXPORT:
        whole = _document(identity) | {"seed": identity.key_pair.seed.hex()}
        return KeyOutcome(None, _nothing, whole, secret=export_identity(identity), note=_EXPORTED)
    if action is KeyAction.ROTATE:
        fresh = KeyPair.from_seed(secrets.token_bytes(SEED_BYTES))
        # The new key is on the disk before it is published: a crash in between must not lose the name.
        packet, renewed = rotate_key(identity, fresh, f"keys-{fresh.public.hex()[:16]}", now_s)
        waiting = home / "next"
        save_identity(waiting, renewed)
        return KeyOutcome(packet, lambda: _take_over(home, waiting, renewed), _document(renewed))
    if action is KeyAction.REVOKE:
        key_id = value or identity.key_id
        if not key_id.startswith(f"{identity.did}#"):
            raise LocalError(f"a key id of this identity begins with {identity.did}#")
        if key_id == identity.key_id and not yes:
            raise LocalError("this is your last key; rotate first, or pass --yes")
        packet = revoke_key(identity, key_id, now_s)
        return KeyOutcome(packet, _nothing, _document(identity) | {"revoked": key_id})
    if action is KeyAction.APPROVE:
        target = parse_packet_id(_needed(value, "the packet id of the pending key event"))
        if target is None:
            raise LocalError("a packet id is 0x and 64 lower-case hexadecimal digits")
        packet = approve_recovery(identity, target, now_s)
        return KeyOutcome(packet, _nothing, _document(identity) | {"approved": packet_id_text(target)})
    return _shown(identity)


def _imported(home: Path, text: str) -> KeyOutcome:
    identity = import_identity(home, text)
    bare = len(text.strip()) == 2 * SEED_BYTES
    note = f"a seed alone does not say whose it is; it is taken as {identity.did}" if bare else ""
    return _shown(identity)._replace(note=note)


def _shown(identity: Identity) -> KeyOutcome:
    return KeyOutcome(None, _nothing, _document(identity))


def _document(identity: Identity) -> dict[str, Any]:
    return {"did": identity.did, "key_id": identity.key_id, "public_key": identity.key_pair.public.hex()}


def _needed(value: str | None, what: str) -> str:
    if value is None:
        raise LocalError(f"this needs {what}")
    return value


def _take_over(home: Path, waiting: Path, renewed: Identity) -> None:
    path = save_identity(waiting, renewed)
    save_identity(home, renewed)
    path.unlink()
    waiting.rmdir()


def _nothing() -> None:
    """Do nothing after an action that changes no file."""
