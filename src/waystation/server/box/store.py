"""Stores the files of the blind box: owners, their contacts, and one folder of sealed files in each direction.

::

    box/                           0700
      owners/NAME                  0600  SHA-256 of an owner's token; ``waystation bsp box setup`` writes it
      contacts/TO_OWNER.json       0600  one contact: whose, SHA-256 of its token, its two folders
      folders/FOLDER/FILE          0600  a file, named after the SHA-256 of its bytes

Tokens, folders and files have 32 bytes, shown as 64 hexadecimal digits. Only the hash of a token is stored. A contact
has two folders: one for its files to the owner, one for the owner's files to it. Permissions:

========================  ============  ==================================
folder                    owner         contact
========================  ============  ==================================
to owner                  list get del  put
to contact                all           list get delete
========================  ============  ==================================

Only the node changes contacts and folders, so it caches them in memory. The command line also changes the owners; their
folder is read again when it has changed. When an owner is removed, its contacts are removed too.

A file is on disk, complete, before ``put`` returns: it is written under a temporary name, synced and renamed. The next
start removes leftovers of a killed node.
"""

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

from waystation.core.errors import HostError, LocalError
from waystation.server.box.limits import BoxLimits
from waystation.server.box.refusals import BoxRefusal, BoxRefusedError
from waystation.server.home import write_whole

__all__ = [
    "FILE_BYTES_MAX",
    "TOKEN_BYTES",
    "Action",
    "BoxStore",
    "Contact",
    "FileEntry",
    "Holder",
    "NewContact",
    "add_owner",
    "owner_names",
    "remove_owner",
]

FILE_BYTES_MAX: Final = 1_048_576
"""A bsp file's default size (bsp 5)."""
TOKEN_BYTES: Final = 32
DEFAULT_LIMITS: Final = BoxLimits()
BYTES_MAX: Final = 1 << 30
"""Unless the configuration says otherwise (``bsp.box_mib_max``)."""
_ID: Final = re.compile(r"[0-9a-f]{64}")
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_EXIT_PERMISSION: Final = 4


class Action(Enum):
    """What can be done with a folder."""

    PUT = "put"
    READ = "read"
    """List, get and delete."""


class Contact(NamedTuple):
    """Somebody whom an owner exchanges files with."""

    owner: str
    """SHA-256 of the owner's token."""
    token_sha256: str
    to_owner: str
    """Folder that the contact puts into; also the contact's name in the API."""
    to_contact: str
    """Folder that the owner puts into."""


class NewContact(NamedTuple):
    """What an owner hands to a contact; the token is shown this once."""

    token: str
    to_owner: str
    to_contact: str


class Holder(NamedTuple):
    """Whom a token belongs to."""

    owner: str
    """SHA-256 of the owner's token."""
    contact: Contact | None
    """None for the owner."""


class FileEntry(NamedTuple):
    """One file of a folder."""

    file_id: str
    size_bytes: int


@dataclass(slots=True)
class _Folder:
    contact: Contact
    files: dict[str, int] = field(default_factory=dict)
    """Size by name, oldest first."""
    size_bytes: int = 0


class BoxStore:
    """The box of one node; methods block for as long as the disk does, and may be called from several threads.

    Every method raises HostError when the disk refuses.
    """

    def __init__(self, path: Path, limits: BoxLimits = DEFAULT_LIMITS, *, bytes_max: int = BYTES_MAX) -> None:
        """Open the box at ``path``, which is made if absent, and put away what is left of a killed node.

        Args:
            path: A folder of its own.
            limits: ``use_limits`` replaces them.
            bytes_max: Most bytes of all files.
        """
        self._path = path
        self.limits = limits
        """In force now."""
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._owners: dict[str, str] = {}
        self._owners_seen = -1
        self._contacts: dict[str, Contact] = {}
        self._tokens: dict[str, Holder] = {}
        self._folders: dict[str, _Folder] = {}
        self._size_bytes = 0
        self._files_count = 0
        with _disk(f"cannot open the box {path}"):
            for folder in (path, path / "owners", path / "contacts", path / "folders"):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._load()

    def use_limits(self, limits: BoxLimits, bytes_max: int) -> None:
        """Hold everybody to these limits from now on; no file is removed."""
        self.limits, self._bytes_max = limits, bytes_max

    def sizes(self) -> dict[str, int]:
        """Return how much there is, for metrics."""
        return {
            "owners": len(self._owners),
            "contacts": len(self._contacts),
            "files": self._files_count,
            "bytes": self._size_bytes,
        }

    # Who

    def find(self, token: str) -> Holder | None:
        """Return the holder of a token, None for an unknown one.

        The hash of the token is looked up, of which no client can choose a part, and compared in constant time.
        """
        self._look_for_owners()
        found = _sha256_hex(bytes.fromhex(token)) if _ID.fullmatch(token) else ""
        holder = self._tokens.get(found)
        if holder is None:
            return None
        kept = holder.owner if holder.contact is None else holder.contact.token_sha256
        return holder if secrets.compare_digest(kept, found) else None

    def contacts(self, owner: str) -> list[Contact]:
        """Return an owner's contacts, oldest first."""
        return [contact for contact in list(self._contacts.values()) if contact.owner == owner]

    def add_contact(self, owner: str) -> NewContact:
        """Make a contact with its two folders; it is on disk when this returns.

        Raises:
            BoxRefusedError: The owner has as many as it may.
        """
        with self._lock, _disk("cannot keep a contact"):
            if len(self.contacts(owner)) >= self.limits.contacts_max:
                raise BoxRefusedError(BoxRefusal.CONTACTS_FULL)
            token, to_owner, to_contact = (secrets.token_bytes(TOKEN_BYTES) for _ in range(3))
            contact = Contact(owner, _sha256_hex(token), to_owner.hex(), to_contact.hex())
            for folder in (contact.to_owner, contact.to_contact):
                (self._path / "folders" / folder).mkdir(mode=0o700)
            _sync(self._path / "folders")
            write_whole(self._contact_path(contact), json.dumps(contact._asdict()).encode())
            self._take_in(contact)
        return NewContact(token.hex(), contact.to_owner, contact.to_contact)

    def remove_contact(self, owner: str, to_owner: str) -> None:
        """Forget a contact, its token and all its files.

        Raises:
            BoxRefusedError: The owner has no such contact.
        """
        with self._lock, _disk("cannot forget a contact"):
            contact = self._contacts.get(to_owner)
            if contact is None or contact.owner != owner:
                raise BoxRefusedError(BoxRefusal.UNKNOWN_CONTACT)
            self._put_out(contact)

    def check(self, holder: Holder, folder_id: str, action: Action) -> None:
        """Return when the holder of a token may do this.

        Raises:
            BoxRefusedError: The folder is not the holder's, or is, and not for this.
        """
        folder = self._folders.get(folder_id)
        if folder is None or folder.contact.owner != holder.owner:
            raise BoxRefusedError(BoxRefusal.UNKNOWN_FOLDER)
        contact, leads_to_owner = folder.contact, folder_id == folder.contact.to_owner
        if holder.contact is None:
            allowed = not leads_to_owner or action is Action.READ
        elif holder.contact != contact:
            raise BoxRefusedError(BoxRefusal.UNKNOWN_FOLDER)
        else:
            allowed = leads_to_owner == (action is Action.PUT)
        if not allowed:
            raise BoxRefusedError(BoxRefusal.NOT_ALLOWED)

    # Files

    def put(self, folder_id: str, file_id: str, data: bytes) -> bool:
        """Keep a file; it is on disk when this returns. False when it was there already.

        Raises:
            BoxRefusedError: Its name is not the hash of its bytes, it is empty or too large, or there is no room.
        """
        _check_file(file_id, data)
        with self._lock, _disk("cannot keep a file"):
            folder = self._folder(folder_id)
            if file_id in folder.files:
                return False
            self._check_room(folder, len(data))
            write_whole(self._path / "folders" / folder_id / file_id, data)
            self._count(folder, file_id, len(data))
        return True

    def files(self, folder_id: str) -> list[FileEntry]:
        """Return what lies in a folder, oldest first.

        Raises:
            BoxRefusedError: There is no such folder.
        """
        return [FileEntry(*entry) for entry in list(self._folder(folder_id).files.items())]

    def get(self, folder_id: str, file_id: str) -> bytes:
        """Return a file.

        Raises:
            BoxRefusedError: There is no such file.
        """
        if file_id not in self._folder(folder_id).files:
            raise BoxRefusedError(BoxRefusal.UNKNOWN_FILE)
        with _disk("cannot read a file"):
            try:
                return (self._path / "folders" / folder_id / file_id).read_bytes()
            except FileNotFoundError as error:  # deleted meanwhile
                raise BoxRefusedError(BoxRefusal.UNKNOWN_FILE) from error

    def delete(self, folder_id: str, file_id: str) -> None:
        """Forget a file; it does not come back after a power cut.

        Raises:
            BoxRefusedError: There is no such file.
        """
        with self._lock, _disk("cannot delete a file"):
            folder = self._folder(folder_id)
            if file_id not in folder.files:
                raise BoxRefusedError(BoxRefusal.UNKNOWN_FILE)
            place = self._path / "folders" / folder_id
            (place / file_id).unlink(missing_ok=True)
            _sync(place)
            self._count(folder, file_id, -folder.files[file_id])

    # Inside

    def _folder(self, folder_id: str) -> _Folder:
        folder = self._folders.get(folder_id)
        if folder is None:
            raise BoxRefusedError(BoxRefusal.UNKNOWN_FOLDER)
        return folder

    def _check_room(self, folder: _Folder, size_bytes: int) -> None:
        limits = self.limits
        if len(folder.files) >= limits.folder_files_max or folder.size_bytes + size_bytes > limits.folder_bytes_max:
            raise BoxRefusedError(BoxRefusal.FOLDER_FULL)
        if self._files_count >= limits.files_max or self._size_bytes + size_bytes > self._bytes_max:
            raise BoxRefusedError(BoxRefusal.BOX_FULL)

    def _count(self, folder: _Folder, file_id: str, size_bytes: int) -> None:
        """Note that a file is there, or that it is gone when the size is negative."""
        if size_bytes > 0:
            folder.files[file_id] = size_bytes
        else:
            del folder.files[file_id]
        folder.size_bytes += size_bytes
        self._size_bytes += size_bytes
        self._files_count += 1 if size_bytes > 0 else -1

    def _take_in(self, contact: Contact) -> None:
        self._contacts[contact.to_owner] = contact
        self._tokens[contact.token_sha256] = Holder(contact.owner, contact)
        for folder_id in (contact.to_owner, contact.to_contact):
            self._folders[folder_id] = _Folder(contact)

    def _put_out(self, contact: Contact) -> None:
        """Forget a contact: first its record, so that folders without one are what a killed node leaves."""
        del self._contacts[contact.to_owner], self._tokens[contact.token_sha256]
        for folder_id in (contact.to_owner, contact.to_contact):
            folder = self._folders.pop(folder_id)
            self._size_bytes -= folder.size_bytes
            self._files_count -= len(folder.files)
        self._contact_path(contact).unlink(missing_ok=True)
        _sync(self._path / "contacts")
        for folder_id in (contact.to_owner, contact.to_contact):
            _remove_folder(self._path / "folders" / folder_id)

    def _contact_path(self, contact: Contact) -> Path:
        return self._path / "contacts" / f"{contact.to_owner}.json"

    def _look_for_owners(self) -> None:
        """Read the list of owners again if it has changed, and forget the contacts of those who left it."""
        place = self._path / "owners"
        with _disk(f"cannot read {place}"):
            changed_at = place.stat().st_mtime_ns
            if changed_at == self._owners_seen:
                return
            with self._lock:
                fresh = {digest: name for name, digest in _read_owners(place)}
                gone = [contact for contact in self._contacts.values() if contact.owner not in fresh]
                for digest in self._owners.keys() - fresh.keys():
                    del self._tokens[digest]
                for digest in fresh:
                    self._tokens[digest] = Holder(digest, None)
                self._owners, self._owners_seen = fresh, changed_at
                for contact in gone:
                    self._put_out(contact)

    def _load(self) -> None:
        for path in sorted((self._path / "contacts").iterdir(), key=_age):
            if path.name.startswith("."):
                path.unlink()
            elif path.suffix == ".json":
                self._take_in(_read_contact(path))
        for place in (self._path / "folders").iterdir():
            folder = self._folders.get(place.name)
            if folder is None:
                _remove_folder(place)
            else:
                self._load_folder(folder, place)
        for lost in self._folders.keys() - {place.name for place in (self._path / "folders").iterdir()}:
            (self._path / "folders" / lost).mkdir(mode=0o700)
        self._look_for_owners()

    def _load_folder(self, folder: _Folder, place: Path) -> None:
        for path in sorted(place.iterdir(), key=_age):
            if not _ID.fullmatch(path.name):
                path.unlink()
            elif size_bytes := path.stat().st_size:
                self._count(folder, path.name, size_bytes)


# The list of owners


def add_owner(path: Path, name: str) -> str:
    """Add an owner to the box at ``path``, and return the new token: 64 hexadecimal digits, kept nowhere.

    Args:
        path: The box; made if absent.
        name: For the operator: 1 to 32 of a-z, 0-9, - and _.

    Raises:
        LocalError: The name is not of that form, or taken.
        HostError: The disk refused.
    """
    place = _owner_path(path, name)
    token = secrets.token_bytes(TOKEN_BYTES)
    with _disk(f"cannot write {place}"):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if place.exists():
            raise LocalError(f"there is an owner {name!r} already; forget it first, or choose another name")
        write_whole(place, f"{_sha256_hex(token)}\n".encode())
    return token.hex()


def remove_owner(path: Path, name: str) -> None:
    """Take an owner from the list; the node removes its contacts and files when it sees that.

    Raises:
        LocalError: There is no such owner.
        HostError: The disk refused.
    """
    place = _owner_path(path, name)
    with _disk(f"cannot remove {place}"):
        try:
            place.unlink()
        except FileNotFoundError as error:
            raise LocalError(f"there is no owner {name!r} at {path}") from error
        _sync(place.parent)


def owner_names(path: Path) -> list[str]:
    """Return who may use the box at ``path``."""
    with _disk(f"cannot read {path}"):
        place = path / "owners"
        return sorted(name for name, _ in _read_owners(place)) if place.is_dir() else []


def _owner_path(path: Path, name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise LocalError(f"{name!r} is no name for an owner: 1 to 32 of a-z, 0-9, - and _")
    return path / "owners" / name


def _read_owners(place: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(place.iterdir()):
        if not _NAME.fullmatch(path.name):
            continue
        try:
            digest = path.read_text(encoding="ascii", errors="replace").strip()
        except FileNotFoundError:
            continue  # forgotten meanwhile
        if not _ID.fullmatch(digest):
            raise HostError(f"{path} holds no SHA-256 of a token; remove it")
        yield path.name, digest


def _read_contact(path: Path) -> Contact:
    try:
        document: dict[str, Any] = json.loads(path.read_bytes())
        contact = Contact(**document)
    except (ValueError, TypeError) as error:
        raise HostError(f"{path} is damaged; remove it to forget this contact") from error
    if path.name != f"{contact.to_owner}.json" or not all(_ID.fullmatch(str(part)) for part in contact):
        raise HostError(f"{path} is damaged; remove it to forget this contact")
    return contact


def _check_file(file_id: str, data: bytes) -> None:
    if not _ID.fullmatch(file_id):
        raise BoxRefusedError(BoxRefusal.BAD_NAME)
    if not data:
        raise BoxRefusedError(BoxRefusal.FILE_EMPTY)
    if len(data) > FILE_BYTES_MAX:
        raise BoxRefusedError(BoxRefusal.FILE_TOO_LARGE)
    if _sha256_hex(data) != file_id:
        raise BoxRefusedError(BoxRefusal.OTHER_BYTES)


def _sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _age(path: Path) -> tuple[int, str]:
    return path.stat().st_mtime_ns, path.name


def _remove_folder(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def _sync(place: Path) -> None:
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _disk(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        code = _EXIT_PERMISSION if isinstance(error, PermissionError) else 1
        raise HostError(f"{what}: {error.strerror or error}", exit_code=code) from error
