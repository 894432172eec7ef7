"""Changes the keys of an identity so that no crash and no lost answer loses the identity.

``waystation strata keys`` and programs call it. The signed key event, and the new key of a rotation, are on the disk in
``next/strata.key`` before a relay can have the event, and stay there until a relay is known to have it. Until then the
same event is sent again and no other change begins. Relays know a packet by its id, so that sending it again is safe.
Spec: RFC-0001; specs/strata.md 4.1 (STRATA-NEXT).
"""

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from waystation.core.errors import LocalError, WaystationError
from waystation.crypto.signing import KeyPair
from waystation.protocols.strata.canonical import parse
from waystation.protocols.strata.client.identity import (
    Identity,
    format_identity,
    key_fragment,
    parse_identity,
    rotate_key,
)
from waystation.protocols.strata.keys.keyring import KEY_EVENT_TYPES
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.packet import PACKET_BYTES_CEILING, Packet, read_packet
from waystation.protocols.strata.refusals import RefusedError
from waystation.sdk.errors import RelayUnreachableError, RequestRefusedError
from waystation.sdk.identity import load_identity_file, save_identity_file
from waystation.sdk.strata.keys import KEY_FILE, load_identity, save_identity
from waystation.sdk.strata.many import ManyRelays
from waystation.sdk.strata.outcome import Outcome, Sent

__all__ = ["NEXT_FOLDER", "Finished", "KeyChange", "begin_change", "finish_change", "new_rotation", "pending_change"]

NEXT_FOLDER: Final = "next"
"""Folder in the identity's folder that has the change under way."""

_STALE: Final = "invalid_timestamp"
_ROTATE: Final = "ROTATE"

Connect = Callable[[Identity], contextlib.AbstractAsyncContextManager[ManyRelays]]
"""Opens a client that shows this identity to its relays."""


class KeyChange(NamedTuple):
    """A key event that some relay may have."""

    identity: Identity
    """Who signs once a relay has it."""
    packet: Packet | None
    """The event; None for a rotation that an earlier version of this program began."""

    @property
    def event(self) -> str:
        """``ROTATE``, ``REVOKE`` or ``ADD``."""
        return _ROTATE if self.packet is None else str(self.packet.body["content"]["event"])

    @property
    def subject(self) -> str:
        """Id of the key that is added, or revoked."""
        return self.identity.key_id if self.packet is None else str(self.packet.body["content"]["key_id"])


class Finished(NamedTuple):
    """A change that some relay has, and that holds in the folder."""

    identity: Identity
    relays: tuple[str, ...]
    """Addresses of the relays that have it."""
    failures: Mapping[str, WaystationError]
    """Address -> why a relay does not, or may not, have it."""


def new_rotation(identity: Identity, fresh: KeyPair, now_s: int) -> KeyChange:
    """Return the change that replaces the key in use by a fresh one."""
    packet, renewed = rotate_key(identity, fresh, key_fragment(fresh.public), now_s)
    return KeyChange(renewed, packet)


def begin_change(home: Path, change: KeyChange) -> KeyChange:
    """Put a change on the disk and return it; nothing that is there is overwritten.

    Raises:
        LocalError: Another change is under way.
        HostError: The file cannot be written.
    """
    try:
        _save(home, change, replace=False)
    except LocalError as error:
        raise LocalError(f"another change of keys is under way in {home / NEXT_FOLDER}; finish it first") from error
    return change


def pending_change(home: Path) -> KeyChange | None:
    """Return the change that has begun and is not known to be at a relay, or None.

    Raises:
        LocalError: The folder has no identity.
        HostError: A file cannot be read, or holds something else.
    """
    path = home / NEXT_FOLDER / KEY_FILE
    if not path.exists():
        return None
    change = load_identity_file(path, _parse_change, "strata", "a change of keys")
    # A crash between the two files: the new key is in use already, so a relay has the event.
    if change.event == _ROTATE and change.identity == load_identity(home):
        _end(home)
        return None
    return change


async def finish_change(home: Path, change: KeyChange, connect: Connect) -> Finished:
    """Send a change to every relay and, once one has it, make its identity the one of the folder.

    A rotation that every relay refuses is looked for among the author's key events, and signed again with the same new
    key when it has become too old. The next call goes on wherever this one was cut.

    Args:
        home: Folder of the identity.
        change: From ``begin_change`` or ``pending_change``.
        connect: Opens clients, one after the other.

    Raises:
        WaystationError: No relay is known to have it. A rotation stays on the disk, and so does another change unless
            it was refused.
    """
    identity = load_identity(home)
    sent: Sent | None = None
    # A relay that has the rotation and asks for AUTH admits the new key, and the old one no more.
    for signer in (identity, change.identity) if change.event == _ROTATE else (identity,):
        async with connect(signer) as client:
            sent = None if change.packet is None else await client.send(change.packet, everywhere=True)
            if change.event == _ROTATE and (sent is None or sent.outcome is Outcome.REFUSED):
                relays = await _who_has(client, change.identity)
                if relays:
                    return _take_over(home, change, relays, {})
                if sent is None or _is_stale(sent):
                    # Spec 4.1: whichever of the two events a relay takes, the key counts there.
                    packet, change = _signed_again(home, identity, change)
                    sent = await client.send(packet, everywhere=True)
        if sent is None or sent.outcome is not Outcome.REFUSED:
            break
    assert sent is not None
    if sent.ok:
        return _take_over(home, change, tuple(receipt.relay for receipt in sent.receipts), sent.failures)
    if sent.outcome is Outcome.REFUSED and change.event != _ROTATE:
        _end(home)
    raise sent.failure or RelayUnreachableError(sent.sentence)


async def _who_has(client: ManyRelays, renewed: Identity) -> tuple[str, ...]:
    """Return the relays that deliver a key event of the author which gives it this key."""
    filters = Filters((renewed.did,), KEY_EVENT_TYPES)
    try:
        events = [each async for each in client.messages(filters, follow=False)]
    except WaystationError:
        return ()  # the relays' answers to the event say more than that they cannot be read
    keys = client.book.keys_of(renewed.did, int(time.time()))
    if keys is None or renewed.key_pair.public not in keys:
        return ()
    naming = [each.relay for each in events if each.packet.body["content"].get("key_id") == renewed.key_id]
    return tuple(dict.fromkeys(naming))


def _is_stale(sent: Sent) -> bool:
    return any(isinstance(each, RequestRefusedError) and each.code == _STALE for each in sent.failures.values())


def _signed_again(home: Path, identity: Identity, change: KeyChange) -> tuple[Packet, KeyChange]:
    again = new_rotation(identity, change.identity.key_pair, int(time.time()))
    assert again.packet is not None
    _save(home, again, replace=True)
    return again.packet, again


def _take_over(
    home: Path, change: KeyChange, relays: tuple[str, ...], failures: Mapping[str, WaystationError]
) -> Finished:
    save_identity(home, change.identity)
    _end(home)
    return Finished(change.identity, relays, failures)


def _end(home: Path) -> None:
    # What stays behind after a failure, a half-written file at most, is found and taken away by the next change.
    shutil.rmtree(home / NEXT_FOLDER, ignore_errors=True)


def _save(home: Path, change: KeyChange, *, replace: bool) -> None:
    assert change.packet is not None
    document = json.loads(format_identity(change.identity)) | {"packet": change.packet.canonical.decode()}
    save_identity_file(home / NEXT_FOLDER / KEY_FILE, json.dumps(document, indent=1), replace=replace)


def _parse_change(text: str) -> KeyChange:
    identity, stored = parse_identity(text), json.loads(text).get("packet")
    try:
        return KeyChange(
            identity, None if stored is None else read_packet(parse(stored.encode()), PACKET_BYTES_CEILING)
        )
    except (AttributeError, RefusedError) as error:
        raise LocalError("its packet is none") from error
