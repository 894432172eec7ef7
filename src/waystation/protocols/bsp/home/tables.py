"""The tables of a device's home: its groups, its peers, and which group is shared with which peer.

``sdk.bsp.home`` opens them in the device's SQLite file. They are the wanted state of a device, and ``alignment`` makes
the device match them. A group or peer is found by its name or by the first digits of its identifier. What changes
something returns records, for the caller to commit.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

from waystation.core.errors import LocalError
from waystation.core.ids import KEY_BYTES, PublicKey, encode_id52
from waystation.core.records import Record, Store
from waystation.protocols.bsp.device.groups import Group
from waystation.protocols.bsp.device.links import Visibility
from waystation.protocols.bsp.messages import ID_BYTES
from waystation.protocols.bsp.profile import PROFILES, Profile
from waystation.protocols.bsp.url import BspUrl

__all__ = ["HomeGroup", "HomePeer", "HomeShare", "HomeTables"]

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


class HomeTables:
    """The tables in one store."""

    def __init__(self, store: Store, key: PublicKey) -> None:
        """Read and write ``store`` for the device with this key."""
        self.store = store
        self.key = key
        """The device's public key."""

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

    def next_file_number(self, wall_ms: int) -> tuple[int, Record]:
        """Return a number that no file of this device has had, and what remembers it; it grows with the time of day."""
        used = int.from_bytes(self.store.get(_FACTS, _FILE_NUMBER) or b"")
        number = max(used + 1, wall_ms)
        return number, Record(_FACTS, _FILE_NUMBER, number.to_bytes(8, "big"))

    # What is kept beside them

    def note(self, name: str) -> str:
        """Return a short text that ``put_note`` wrote down under a name; empty when there is none."""
        return (self.store.get(_FACTS, _NOTE + name.encode()) or b"").decode()

    def put_note(self, name: str, text: str) -> Record:
        """Return what writes a short text down under a name."""
        return Record(_FACTS, _NOTE + name.encode(), text.encode())

    # Whose it is

    @property
    def owner(self) -> bytes | None:
        """Key of the device that the store was made for, 32 bytes; None in a new one."""
        return self.store.get(_FACTS, _IDENTITY)

    @property
    def profile(self) -> Profile:
        """How records and identifiers are written."""
        return PROFILES[(self.store.get(_FACTS, _PROFILE) or b"seed").decode()]

    @property
    def has_lost_its_facts(self) -> bool:
        """Whether owner or profile were written and are damaged."""
        _ = self.owner, self.store.get(_FACTS, _PROFILE)  # a store notices damage when it reads
        return any(row.key in (_IDENTITY, _PROFILE) for row in self.store.damaged(_FACTS))

    def put_owner(self, profile: str) -> list[Record]:
        """Return what makes the store that of our key, with a profile of this name."""
        return [Record(_FACTS, _IDENTITY, self.key), Record(_FACTS, _PROFILE, profile.encode())]

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
