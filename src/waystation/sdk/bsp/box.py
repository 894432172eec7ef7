"""A client of the blind box: it uploads and downloads sealed bsp files at a node that cannot read them.

::

    owner = BoxClient("https://node.example:7444", token)       # waystation bsp box setup, at the node
    contact = await owner.add_contact()                         # contact.token goes to somebody, once

    friend = BoxClient("https://node.example:7444", contact.token)
    await friend.put(contact.to_owner, Path("to-alice.bsp").read_bytes())
    for entry in await owner.files(contact.to_owner):
        data = await owner.get(contact.to_owner, entry.file_id)
        ...                                                     # BspPeer.import_file, then
        await owner.delete(contact.to_owner, entry.file_id)

A file is named after the SHA-256 of its bytes. A second upload changes nothing, and every download is verified.
"""

import ipaddress
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

from waystation.core.errors import LocalError, RemoteError
from waystation.crypto.hashing import sha256
from waystation.sdk.errors import BoxRefusedError
from waystation.transport.http_get import HttpReply, TlsContext, http_request

__all__ = ["FILE_BYTES_MAX", "BoxClient", "BoxContact", "BoxFile", "BoxFolders", "NewBoxContact"]

FILE_BYTES_MAX: Final = 1_048_576
"""What a box takes."""
_TOKEN_DIGITS: Final = 64
_ID: Final = re.compile("[0-9a-f]{64}")
_TIMEOUT_S: Final = 60.0  # 1 MiB over a slow line
_Found = TypeVar("_Found")


class BoxFolders(NamedTuple):
    """The two folders of a contact; identifiers of 64 hexadecimal digits."""

    to_owner: str
    """What the contact puts there is for the owner."""
    to_contact: str
    """What the owner puts there is for the contact."""


class NewBoxContact(NamedTuple):
    """What an owner hands to a contact."""

    token: str
    """64 hexadecimal digits; the box shows it this once."""
    to_owner: str
    to_contact: str


class BoxContact(NamedTuple):
    """One contact as its owner sees it."""

    to_owner: str
    to_contact: str
    files_count: int
    """In both folders."""
    size_bytes: int


class BoxFile(NamedTuple):
    """One file that waits."""

    file_id: str
    """SHA-256 of its bytes, 64 hexadecimal digits."""
    size_bytes: int


class BoxClient:
    """One token at one box. Every method raises HostError when the box cannot be reached."""

    def __init__(
        self, url: str, token: str, *, context: TlsContext | None = None, timeout_s: float = _TIMEOUT_S
    ) -> None:
        """Describe a client; nothing is connected yet.

        Args:
            url: ``https://host:port``, or ``http://`` on the same machine.
            token: An owner's or a contact's, 64 hexadecimal digits.
            context: TLS context (None means the system's authorities).
            timeout_s: For each request.

        Raises:
            LocalError: The token is not of its form, or would be sent to another machine in the clear.
        """
        if urlsplit(url).scheme == "http" and not _is_loopback(url):
            raise LocalError(f"{url} would show your token to everybody on the way; a box elsewhere has https://")
        if not _ID.fullmatch(token.strip()):
            raise LocalError(f"a token of a box has {_TOKEN_DIGITS} hexadecimal digits in lower case")
        self._url = url.rstrip("/")
        self._token = token.strip()
        self._context = context
        self._timeout_s = timeout_s

    # Owners

    async def contacts(self) -> list[BoxContact]:
        """Return an owner's contacts, oldest first.

        Raises:
            BoxRefusedError: The token is no owner's.
        """
        document = await self._ask("GET", "/v1/contacts")
        return _read(
            lambda: [
                BoxContact(_id(entry["to_owner"]), _id(entry["to_contact"]), int(entry["files"]), int(entry["bytes"]))
                for entry in document["contacts"]
            ]
        )

    async def add_contact(self) -> NewBoxContact:
        """Make a contact with its two folders.

        Raises:
            BoxRefusedError: The token is no owner's, or it has as many as it may.
        """
        document = await self._ask("POST", "/v1/contacts")
        return _read(lambda: NewBoxContact(*(_id(document[name]) for name in NewBoxContact._fields)))

    async def remove_contact(self, to_owner: str) -> None:
        """Forget a contact, its token and all its files.

        Raises:
            BoxRefusedError: There is no such contact.
        """
        await self._ask("DELETE", f"/v1/contacts/{_checked(to_owner)}")

    # Contacts

    async def folders(self) -> BoxFolders:
        """Return a contact's own folders.

        Raises:
            BoxRefusedError: The token is no contact's.
        """
        document = await self._ask("GET", "/v1/folders")
        return _read(lambda: BoxFolders(*(_id(document[name]) for name in BoxFolders._fields)))

    # Files

    async def put(self, folder: str, data: bytes) -> BoxFile:
        """Leave a file; it is on the box's disk when this returns, and leaving it twice keeps it once.

        Raises:
            LocalError: It is empty or longer than 1 MiB, or the folder's identifier is not of its form.
            BoxRefusedError: The folder is not ours to write, or full.
        """
        if not 0 < len(data) <= FILE_BYTES_MAX:
            raise LocalError(f"a box takes files of 1 to {FILE_BYTES_MAX:,} bytes, this has {_size(data)}")
        entry = BoxFile(sha256(data).hex(), len(data))
        await self._ask("PUT", self._file(folder, entry.file_id), data)
        return entry

    async def files(self, folder: str) -> list[BoxFile]:
        """Return what waits in a folder, oldest first.

        Raises:
            LocalError: The folder's identifier is not of its form.
            BoxRefusedError: The folder is not ours to read.
        """
        document = await self._ask("GET", f"/v1/folders/{_checked(folder)}/files")
        return _read(lambda: [BoxFile(_id(entry["id"]), int(entry["bytes"])) for entry in document["files"]])

    async def get(self, folder: str, file_id: str) -> bytes:
        """Return a file.

        Raises:
            LocalError: An identifier is not of its form.
            BoxRefusedError: There is no such file for us.
            RemoteError: The box gave other bytes than those that were left there.
        """
        reply = await self._send("GET", self._file(folder, file_id), None)
        if sha256(reply.body).hex() != file_id:
            raise RemoteError(f"the box gave other bytes for {file_id} than were left there")
        return reply.body

    async def delete(self, folder: str, file_id: str) -> None:
        """Remove a file, once what was in it is safe.

        Raises:
            LocalError: An identifier is not of its form.
            BoxRefusedError: There is no such file for us.
        """
        await self._ask("DELETE", self._file(folder, file_id))

    def _file(self, folder: str, file_id: str) -> str:
        return f"/v1/folders/{_checked(folder)}/files/{_checked(file_id)}"

    async def _ask(self, method: str, path: str, body: bytes | None = None) -> Mapping[str, Any]:
        return _document(await self._send(method, path, body))

    async def _send(self, method: str, path: str, body: bytes | None) -> HttpReply:
        headers = {"Authorization": f"Bearer {self._token}"}
        url = self._url + path
        reply = await http_request(method, url, body, headers, context=self._context, timeout_s=self._timeout_s)
        if reply.status not in {200, 201}:
            raise _refusal(reply)
        return reply


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _refusal(reply: HttpReply) -> BoxRefusedError:
    try:
        document = _document(reply)
    except RemoteError:
        document = {}
    word, sentence = (str(document.get(name, "")) for name in ("refusal", "error"))
    return BoxRefusedError(reply.status, word, sentence or f"HTTP {reply.status}; is this the address of a box?")


def _document(reply: HttpReply) -> Mapping[str, Any]:
    document = _read(lambda: json.loads(reply.body))
    if not isinstance(document, dict):
        raise RemoteError("the answer is none of a box")
    return document


def _read(make: Callable[[], _Found]) -> _Found:
    try:
        return make()
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise RemoteError("the answer is none of a box") from error


def _id(text: str) -> str:
    if not _ID.fullmatch(text):  # raises TypeError for what is no text
        raise ValueError(text)
    return text


def _checked(text: str) -> str:
    if not _ID.fullmatch(text):
        raise LocalError(f"folders and files of a box have {_TOKEN_DIGITS} hexadecimal digits in lower case: {text!r}")
    return text


def _size(data: bytes) -> str:
    return f"{len(data)}" if len(data) <= FILE_BYTES_MAX else "more"  # no client reads on after the bound
