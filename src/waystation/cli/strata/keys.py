"""``waystation strata keys``: manages the key file; the caller publishes the resulting key events.

A key event is a signed packet that adds, replaces or revokes a key. ``commands`` gets it from here as a change that is
on the disk already, and has it finished by ``sdk.strata.key_change``, which goes on with one that was cut.
"""

import secrets
import time
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

from waystation.core.dids import decode_key_multibase
from waystation.core.errors import LocalError
from waystation.core.ids import decode_key_hex
from waystation.crypto.signing import SEED_BYTES, KeyPair
from waystation.protocols.strata.client.identity import (
    Identity,
    add_key,
    approve_recovery,
    export_identity,
    key_fragment,
    revoke_key,
)
from waystation.protocols.strata.packet import Packet, packet_id_text, parse_packet_id
from waystation.sdk.strata.key_change import NEXT_FOLDER, KeyChange, begin_change, new_rotation, pending_change
from waystation.sdk.strata.keys import KEY_FILE, create_identity, import_identity, load_identity

__all__ = ["KeyAction", "KeyOutcome", "act_on_key", "unfinished_note"]


_EXPORTED: Final = "whoever has this is you; `waystation strata keys import -` takes it back"


class KeyAction(Enum):
    """What can be done with a key."""

    SHOW = "show"
    CREATE = "create"
    IMPORT = "import"
    EXPORT = "export"
    ROTATE = "rotate"
    ADD = "add"
    REVOKE = "revoke"
    APPROVE = "approve"


_CHANGES: Final = {KeyAction.ROTATE: "", KeyAction.ADD: "added", KeyAction.REVOKE: "revoked"}
"""What goes to relays as a key event, and the member of the result that names its key."""


class KeyOutcome(NamedTuple):
    """What an action came to."""

    document: dict[str, Any]
    """To show."""
    change: KeyChange | None = None
    """To finish at relays, if any."""
    packet: Packet | None = None
    """To publish, if any."""
    secret: str = ""
    """To show to people instead, when somebody asked for it."""
    note: str = ""
    """To say besides."""


def act_on_key(action: KeyAction, value: str | None, home: Path, *, yes: bool = False) -> KeyOutcome:
    """Carry an action out as far as it needs no relay.

    Args:
        action: What to do.
        value: What it needs: an exported identity, a public key, a key id, a packet id.
        home: Folder of the key file.
        yes: Revoke the key in use, too, which is the only one that this folder has.

    Raises:
        LocalError: A value is missing or malformed, there is an identity already or none, the last key would go, or
            another change of keys is not finished.
        HostError: The key file cannot be used.
    """
    if action is KeyAction.CREATE:
        return _shown(create_identity(home))
    if action is KeyAction.IMPORT:
        return _imported(home, _needed(value, "the line of `keys export`, or - to read it from stdin"))
    identity, now_s = load_identity(home), int(time.time())
    if action is KeyAction.EXPORT:
        whole = _document(identity) | {"seed": identity.key_pair.seed.hex()}
        notes = (unfinished_note(home), _EXPORTED)
        return KeyOutcome(whole, secret=export_identity(identity), note="; ".join(filter(None, notes)))
    if action in _CHANGES:
        return _changed(home, pending_change(home) or _begun(action, value, home, identity, yes=yes), action, value)
    if action is KeyAction.APPROVE:
        target = parse_packet_id(_needed(value, "the packet id of the pending key event"))
        if target is None:
            raise LocalError("a packet id is 0x and 64 lower-case hexadecimal digits")
        packet = approve_recovery(identity, target, now_s)
        return KeyOutcome(_document(identity) | {"approved": packet_id_text(target)}, packet=packet)
    return _shown(identity)._replace(note=unfinished_note(home))


def unfinished_note(home: Path) -> str:
    """Return a sentence on the change of keys that is under way in a folder; empty when there is none."""
    change = pending_change(home) if (home / KEY_FILE).exists() else None
    if change is None:
        return ""
    return f"a change of keys is not finished and waits in {home / NEXT_FOLDER}; run: {_command_of(change)}"


def _begun(action: KeyAction, value: str | None, home: Path, identity: Identity, *, yes: bool) -> KeyChange:
    """Sign a new change and put it on the disk."""
    now_s = int(time.time())
    if action is KeyAction.ROTATE:
        return begin_change(home, new_rotation(identity, KeyPair.from_seed(secrets.token_bytes(SEED_BYTES)), now_s))
    if action is KeyAction.ADD:
        public = _public_key(value)
        return begin_change(home, KeyChange(identity, add_key(identity, public, key_fragment(public), now_s)))
    key_id = value or identity.key_id
    if not key_id.startswith(f"{identity.did}#"):
        raise LocalError(f"a key id of this identity begins with {identity.did}#")
    if key_id == identity.key_id and not yes:
        raise LocalError("this is your last key; rotate first, or pass --yes")
    return begin_change(home, KeyChange(identity, revoke_key(identity, key_id, now_s)))


def _changed(home: Path, change: KeyChange, action: KeyAction, value: str | None) -> KeyOutcome:
    """Return what to show of a change; raises LocalError when another one was asked for."""
    identity, asked = change.identity, change.subject
    if action is KeyAction.REVOKE:
        asked = value or identity.key_id
    elif action is KeyAction.ADD:
        asked = f"{identity.did}#{key_fragment(_public_key(value))}"
    if (change.event, change.subject) != (action.name, asked):
        raise LocalError(unfinished_note(home))
    shown = {} if action is KeyAction.ROTATE else {_CHANGES[action]: change.subject}
    return KeyOutcome(_document(identity) | shown, change)


def _public_key(value: str | None) -> bytes:
    return decode_key_hex(_needed(value, "the public key of the other device, 64 hexadecimal digits"))


def _command_of(change: KeyChange) -> str:
    value = ""
    if change.event == KeyAction.REVOKE.name:
        value = f" {change.subject} --yes"
    elif change.event == KeyAction.ADD.name and change.packet is not None:
        public = decode_key_multibase(change.packet.body["content"]["public_key_multibase"])
        value = f" {public.hex()}" if public is not None else ""
    return f"waystation strata keys {change.event.lower()}{value}"


def _imported(home: Path, text: str) -> KeyOutcome:
    identity = import_identity(home, text)
    bare = len(text.strip()) == 2 * SEED_BYTES
    note = f"a seed alone does not say whose it is; it is taken as {identity.did}" if bare else ""
    return _shown(identity)._replace(note=note)


def _shown(identity: Identity) -> KeyOutcome:
    return KeyOutcome(_document(identity))


def _document(identity: Identity) -> dict[str, Any]:
    return {"did": identity.did, "key_id": identity.key_id, "public_key": identity.key_pair.public.hex()}


def _needed(value: str | None, what: str) -> str:
    if value is None:
        raise LocalError(f"this needs {what}")
    return value
