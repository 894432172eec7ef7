"""The folder of one BSP device: its key, its message store, and the user's groups, peers and shares.

``bsp.key`` is the identity (32-byte seed in hexadecimal, mode 0600). ``bsp.db`` is a store of the same kind as a
node's. It has the messages and flags of ``protocols.bsp.ledger``. Further tables list the device's groups, its peers,
and which group is shared with which peer. These tables are the wanted state. A running ``BspPeer`` reads them every
second, so other programs may change them.

A group or peer is found by its name or by the first digits of its identifier.
"""

import datetime
import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from waystation.core.errors import HostError, LocalError
from waystation.core.ids import KEY_BYTES, PublicKey, encode_id52
from waystation.core.records import Change, Record
from waystation.crypto.certificates import make_local_certificates
from waystation.protocols.bsp.device.groups import Group
from waystation.protocols.bsp.device.links import Visibility
from waystation.protocols.bsp.messages import ID_BYTES
from waystation.protocols.bsp.profile import PROFILES, Profile
from waystation.protocols.bsp.url import BspUrl
from waystation.sdk.home_lock import is_held
from waystation.sdk.identity import read_or_make_key
from waystation.sdk.private_file import write_private
from waystation.store.sqlite import SqliteStore

__all__ = ["KEY_FILE", "LOCK_FILE", "STORE_FILE", "BspHome", "HomeGroup", "HomePeer", "HomeShare"]

KEY_FILE: Final = "bsp.key"
STORE_FILE: Final = "bsp.db"
LOCK_FILE: Final = "bsp.lock"
CERTIFICATE_FILE: Final = "bsp-tls.pem"
CERTIFICATE_KEY_FILE: Final = "bsp-tls-key.pem"

_GROUPS: Final = "bsp_groups"
_PEERS: Final = "bsp_peers"
_SHARES: Final = "bsp_shares"
_FACTS: Final = "bsp_facts"
_IDENTITY: Final = b"identity"
_PROFILE: Final = b"profile"
_FILE_NUMBER: Final = b"file_number"
_NOTE: Final = b"note "
_ENTRIES_MAX: Final = 10_000  # of each table; a device is no directory
_PREFIX_DIGITS_MIN: Final = 4
_NAME_CHARS_MAX: Final = 64
_EXIT_STORE: Final = 5
_FOREIGN: Final = "messages and flags belong to one key: bring it back, or use another folder"


class HomeGroup(NamedTuple):
    """A group that the device is a member of."""

    name: str
    """For people; may be empty."""
    group: Group


class HomePeer(NamedTuple):
    """Another device."""

    name: str
    """For people; may be empty."""
    key: PublicKey
    url: str
    """Where to dial it, without its key; empty for one that comes to us, or is written to by files only."""


class HomeShare(NamedTuple):
    """What a group is to a peer."""

    group_id: bytes
    peer: PublicKey
    visibility: Visibility


_Entry = TypeVar("_Entry", HomeGroup, HomePeer)


class BspHome:
    """One folder in use; close it when done."""

    def __init__(
        self, path: Path | str, *, makes: bool = True, profile: str | None = None, rng: random.Random | None = None
    ) -> None:
        """Open the folder.

        Args:
            path: The folder.
            makes: Make folder and identity if absent; else that is an error.
            profile: seed or briar; None means what the folder was made with, seed in a new one.
            rng: Source of a new key; anything but the default is for tests.

        Raises:
            LocalError: There is no home there and none is to be made, or it has another profile.
            HostError: A file cannot be used, others may read the key, or the store is that of another key.
        """
        self.path = Path(path)
        if not makes and not (self.path / KEY_FILE).exists():
            raise LocalError(f"{self.path} is no home of a BSP device yet; `waystation bsp group new` makes one there")
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise HostError(f"cannot use {self.path}: {error.strerror}", exit_code=_EXIT_STORE) from error
        if (self.path / STORE_FILE).exists() and not (self.path / KEY_FILE).exists():
            raise HostError(f"{self.path / KEY_FILE} is gone; {_FOREIGN}", exit_code=_EXIT_STORE)
        self.key_pair = read_or_make_key(self.path / KEY_FILE, rng)
        self.store = SqliteStore(self.path / STORE_FILE)
        try:
            self._claim(profile)
        except BaseException:
            self.store.close()
            raise

    @property
    def key(self) -> PublicKey:
        """The device's public key."""
        return self.key_pair.public

    @property
    def profile(self) -> Profile:
        """How records and identifiers are written."""
        return PROFILES[(self.store.get(_FACTS, _PROFILE) or b"seed").decode()]

    def close(self) -> None:
        """Release the store."""
        self.store.close()

    def commit(self, changes: Sequence[Change]) -> None:
        """Make changes durable; only for programs in which no ``BspPeer`` uses this home."""
        self.store.commit(changes)

    # Groups

    def groups(self) -> list[HomeGroup]:
        """Return the groups that the device is a member of, by identifier."""
        return [_group(key, value) for key, value in self._rows(_GROUPS)]

    def group(self, text: str) -> HomeGroup:
        """Return the group of this name, identifier, or beginning of one.

        Raises:
            LocalError: There is none, or more than one.
        """
        return _find("group", text, self.groups(), lambda entry: [entry.group.group_id.hex()])

    def put_group(self, name: str, group: Group) -> Record:
        """Return what makes the device a member of a group, or renames it.

        Raises:
            LocalError: The name is too long, or the group is ours already with another format: what its messages mean
                cannot change.
        """
        before = next((entry.group for entry in self.groups() if entry.group.group_id == group.group_id), group)
        if before.format != group.format:
            raise LocalError(f"we are in this group already, with format {before.format} instead of {group.format}")
        fields = {
            "name": _checked_name(name),
            "client_id": group.client_id.hex(),
            "descriptor": group.descriptor.hex(),
            "format": group.format,
            "major": group.major,
        }
        return Record(_GROUPS, group.group_id, json.dumps(fields).encode())

    def remove_group(self, group_id: bytes) -> list[Record]:
        """Return what ends the membership: with it goes whom the group is shared with."""
        shares = [share for share in self.shares() if share.group_id == group_id]
        return [Record(_GROUPS, group_id, None), *map(_no_share, shares)]

    # Peers

    def peers(self) -> list[HomePeer]:
        """Return the known peers, by key."""
        return [_peer(key, value) for key, value in self._rows(_PEERS)]

    def peer(self, text: str) -> HomePeer:
        """Return the peer of this name, key, or beginning of one in hexadecimal digits or as id52.

        Raises:
            LocalError: There is none, or more than one.
        """
        return _find("peer", text, self.peers(), lambda entry: [entry.key.hex(), encode_id52(entry.key)])

    def put_peer(self, name: str, key: PublicKey, url: str = "") -> Record:
        """Return what makes a peer known, or changes its name or address.

        Raises:
            LocalError: The name is too long, the address is none, or the key is our own.
        """
        if key == self.key:
            raise LocalError("this is our own key; a peer has another")
        if url:
            url = BspUrl.parse(url).place
        return Record(_PEERS, key, json.dumps({"name": _checked_name(name), "url": url}).encode())

    def remove_peer(self, key: PublicKey) -> list[Record]:
        """Return what makes a peer unknown: nothing is shared with it any more."""
        return [Record(_PEERS, key, None), *(_no_share(share) for share in self.shares() if share.peer == key)]

    # Who has which group

    def shares(self) -> list[HomeShare]:
        """Return which group is what to whom."""
        rows = self._rows(_SHARES)
        return [HomeShare(key[:ID_BYTES], PublicKey(key[ID_BYTES:]), Visibility(value.decode())) for key, value in rows]

    def put_share(self, group_id: bytes, peer: PublicKey, visibility: Visibility) -> Record:
        """Return what makes a group visible to a peer, or shared with it, or takes it away (``INVISIBLE``)."""
        value = None if visibility is Visibility.INVISIBLE else visibility.value.encode()
        return Record(_SHARES, group_id + peer, value)

    # Files

    def next_file_number(self, wall_ms: int) -> tuple[int, Record]:
        """Return a number that no file of this device has had, and what remembers it; it grows with the time of day."""
        used = int.from_bytes(self.store.get(_FACTS, _FILE_NUMBER) or b"")
        number = max(used + 1, wall_ms)
        return number, Record(_FACTS, _FILE_NUMBER, number.to_bytes(8, "big"))

    def make_certificate(self, host: str, at_s: float) -> tuple[Path, Path]:
        """Write a certificate for a host name, and its key, and return where they are.

        It proves nothing by itself: our key signs for it in every handshake.

        Args:
            host: Name or address.
            at_s: Unix seconds from which it is good.

        Raises:
            HostError: The disk says no.
        """
        made = make_local_certificates([host], datetime.datetime.fromtimestamp(at_s, tz=datetime.UTC))
        paths = self.path / CERTIFICATE_FILE, self.path / CERTIFICATE_KEY_FILE
        for path, pem in zip(paths, (made.cert_pem, made.key_pem), strict=True):
            write_private(path, pem.decode())
        return paths

    # What applications keep beside it

    def note(self, name: str) -> str:
        """Return a short text that ``put_note`` wrote down under a name; empty when there is none."""
        return (self.store.get(_FACTS, _NOTE + name.encode()) or b"").decode()

    def put_note(self, name: str, text: str) -> Record:
        """Return what writes a short text down under a name."""
        return Record(_FACTS, _NOTE + name.encode(), text.encode())

    @property
    def is_busy(self) -> bool:
        """Whether a ``BspPeer`` works with this home, here or in another program."""
        return is_held(self.path / LOCK_FILE)

    # Ours

    def _claim(self, profile: str | None) -> None:
        """Claim the store unless it belongs to another key."""
        owner, _ = self.store.get(_FACTS, _IDENTITY), self.store.get(_FACTS, _PROFILE)
        # NODE-ROT: absent would mean a new home, of the profile that happens to be the default.
        if any(row.key in (_IDENTITY, _PROFILE) for row in self.store.damaged(_FACTS)):
            lost = "is damaged: whose it is, or its profile, is lost; restore a copy"
            raise HostError(f"the store {self.path / STORE_FILE} {lost}", exit_code=_EXIT_STORE)
        if owner is None:
            chosen = profile or "seed"
            self.store.commit([Record(_FACTS, _IDENTITY, self.key), Record(_FACTS, _PROFILE, chosen.encode())])
        elif owner != self.key:
            raise HostError(f"{self.path / KEY_FILE} holds another key; {_FOREIGN}", exit_code=_EXIT_STORE)
        if profile is not None and profile != self.profile.name:
            raise LocalError(f"{self.path} was made for profile {self.profile.name}, not {profile}")

    def _rows(self, table: str) -> Iterator[tuple[bytes, bytes]]:
        return self.store.scan(table, count_max=_ENTRIES_MAX)


def _no_share(share: HomeShare) -> Record:
    return Record(_SHARES, share.group_id + share.peer, None)


def _group(key: bytes, value: bytes) -> HomeGroup:
    fields: dict[str, Any] = json.loads(value)
    client_id, descriptor = bytes.fromhex(fields["client_id"]), bytes.fromhex(fields["descriptor"])
    return HomeGroup(fields["name"], Group(key, client_id, descriptor, fields["format"], fields["major"]))


def _peer(key: bytes, value: bytes) -> HomePeer:
    fields: dict[str, str] = json.loads(value)
    assert len(key) == KEY_BYTES
    return HomePeer(fields["name"], PublicKey(key), fields["url"])


def _checked_name(name: str) -> str:
    if len(name) > _NAME_CHARS_MAX or not name.isprintable():
        raise LocalError(f"a name has at most {_NAME_CHARS_MAX} printable characters: {name!r}")
    return name


def _find(what: str, text: str, entries: list[_Entry], spellings: Callable[[_Entry], list[str]]) -> _Entry:
    wanted = text.strip()
    named = [entry for entry in entries if entry.name and entry.name == wanted]
    lower = wanted.lower()
    if not named and len(wanted) >= _PREFIX_DIGITS_MIN:
        named = [entry for entry in entries if any(each.startswith(lower) for each in spellings(entry))]
    if len(named) == 1:
        return named[0]
    known = ", ".join(entry.name or spellings(entry)[0][:8] for entry in entries) or "none"
    if named:
        raise LocalError(f"{text!r} means more than one {what} here; write more of the identifier (known: {known})")
    raise LocalError(f"no {what} {text!r} here; known: {known}")
