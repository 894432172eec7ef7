"""The blind box: HTTP for sealed bsp files that wait for somebody, as Briar's mailbox has it (BSP-BOX).

The node sees who puts and takes how much and when, never what. The operator lets an owner in (``waystation bsp box
setup``); the owner makes contacts, each with a token and a folder in each direction (``server.box_store``). Tokens are
sent as ``Authorization: Bearer`` and 64 hexadecimal digits.

===========================================  ========  =======================================================
request                                      who       answer
===========================================  ========  =======================================================
GET /v1/contacts                             owner     200, ``contacts``: to_owner, to_contact, files, bytes
POST /v1/contacts                            owner     201, ``token`` (shown this once), to_owner, to_contact
DELETE /v1/contacts/TO_OWNER                 owner     200
GET /v1/folders                              contact   200, its to_owner and to_contact
GET /v1/folders/FOLDER/files                 reader    200, ``files``: id, bytes; oldest first
PUT /v1/folders/FOLDER/files/FILE            writer    201 once it is on disk, 200 when it was there
GET /v1/folders/FOLDER/files/FILE            reader    200, the bytes
DELETE /v1/folders/FOLDER/files/FILE         reader    200
===========================================  ========  =======================================================

``FILE`` is the SHA-256 of the bytes, so a repeated or garbled upload is noticed. Refusals are
``{"ok": false, "refusal": word, "error": sentence, "status": code}``, see ``server.box_refusals``. An address that
sends more than 10 wrong tokens a minute gets 429 for those; a right token is always let in, since nobody finds one of
2**256 by trying, and several people may share an address. A token has 4 uploads at once, and connections are bounded
as ``server.http_connection`` says.
"""

import asyncio
import contextlib
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from waystation.core.errors import HostError
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.core.limits import TokenBucket
from waystation.engine.admission import address_key
from waystation.server.box_refusals import BoxRefusal, BoxRefusedError
from waystation.server.box_store import FILE_BYTES_MAX, Action, BoxStore, Holder
from waystation.server.http_connection import HttpLimits, LateAnswer
from waystation.server.http_port import HttpPort, TlsFiles
from waystation.server.settings import Address

__all__ = ["BAD_TOKENS_PER_MINUTE", "UPLOADS_MAX", "BoxServer", "box_application"]

BAD_TOKENS_PER_MINUTE: Final = 10
ADDRESSES_MAX: Final = 4_096  # of which wrong tokens are counted; the longest silent is forgotten for the next one
UPLOADS_MAX: Final = 4  # at once with one token, each with 1 MiB at most: one line is full with fewer
UPLOAD_S: Final = 60.0  # 17 KiB/s for the largest file
_WINDOW_S: Final = 60
_PREFIX: Final = "Bearer "

_Handler = Callable[[Request, Holder], Awaitable[Response]]


class BoxServer:
    """The box on its own port."""

    def __init__(self, store: BoxStore, clock: Callable[[], Instant], *, limited: bool = True) -> None:
        """Serve ``store``.

        Args:
            store: What lies there.
            clock: Monotonic time.
            limited: False lets one address have as many connections as there are.
        """
        late = LateAnswer(BoxRefusal.SLOW_HEAD.document)
        self._port = HttpPort(box_application(store, clock), late, HttpLimits(per_address=limited))

    @property
    def url(self) -> str:
        """Return where it is once open, else an empty text."""
        return self._port.url

    async def open(self, address: Address, tls: TlsFiles) -> None:
        """Bind and serve: over TLS unless only programs of this machine can come.

        Raises:
            HostError: The port is taken or not ours to take (exit code 4), or the certificate cannot be used.
        """
        await self._port.open(address, None if address.is_loopback else tls)

    def reload_certificate(self, tls: TlsFiles) -> None:
        """Use a new certificate from the next handshake on; nothing happens on loopback.

        Raises:
            HostError: The new pair cannot be used; the old one stays in force.
        """
        self._port.reload_certificate(tls)

    async def close(self) -> None:
        """Stop serving; takes a few seconds at most, whatever clients do."""
        await self._port.close()


def box_application(store: BoxStore, clock: Callable[[], Instant]) -> Starlette:
    """Return what answers requests for ``store``."""
    return _Api(store, clock).application()


class _Api:
    def __init__(self, store: BoxStore, clock: Callable[[], Instant]) -> None:
        self._store = store
        self._clock = clock
        self._bad: OrderedDict[str, TokenBucket] = OrderedDict()
        self._uploads: Counter[Holder] = Counter()
        """How many files are on their way, by who sends them."""

    def application(self) -> Starlette:
        """Return the routes."""
        file = "/v1/folders/{folder}/files/{file}"
        return Starlette(
            routes=[
                self._route("/v1/contacts", "GET", self._contacts),
                self._route("/v1/contacts", "POST", self._add_contact),
                self._route("/v1/contacts/{contact}", "DELETE", self._remove_contact),
                self._route("/v1/folders", "GET", self._folders),
                self._route("/v1/folders/{folder}/files", "GET", self._list),
                self._route(file, "PUT", self._put),
                self._route(file, "GET", self._get),
                self._route(file, "DELETE", self._delete),
            ]
        )

    def _route(self, path: str, method: str, handler: _Handler) -> Route:
        async def answer(request: Request) -> Response:
            try:
                return await handler(request, self._holder(request))
            except BoxRefusedError as error:
                return self._refusal(error.refusal, request)
            except HostError:
                return self._refusal(BoxRefusal.DISK, request)
            except ClientDisconnect:  # an upload was broken off: nobody is there to read an answer
                return Response()

        return Route(path, answer, methods=[method])

    # Who asks

    def _holder(self, request: Request) -> Holder:
        given = request.headers.get("authorization", "")
        if not given.startswith(_PREFIX):
            raise BoxRefusedError(BoxRefusal.NO_TOKEN)
        holder = self._store.find(given.removeprefix(_PREFIX).strip())
        if holder is None:
            spent = not self._bucket(request).take(self._clock())
            raise BoxRefusedError(BoxRefusal.TOO_MANY_BAD_TOKENS if spent else BoxRefusal.BAD_TOKEN)
        return holder

    def _bucket(self, request: Request) -> TokenBucket:
        """Return how many wrong tokens an address has left."""
        address = address_key(request.client.host if request.client is not None else "")
        bucket = self._bad.get(address)
        if bucket is None:
            if len(self._bad) >= ADDRESSES_MAX:
                self._bad.popitem(last=False)
            rate = BAD_TOKENS_PER_MINUTE
            bucket = self._bad[address] = TokenBucket(rate, rate, self._clock(), period_s=_WINDOW_S)
        self._bad.move_to_end(address)
        return bucket

    def _refusal(self, refusal: BoxRefusal, request: Request) -> Response:
        headers = {}
        if refusal is BoxRefusal.TOO_MANY_BAD_TOKENS:
            wait_us = self._bucket(request).ready_at() - self._clock()
            headers = {"Retry-After": str(max(1, -(-wait_us // MICROSECONDS_PER_SECOND)))}
        if refusal.status == 401:
            headers = {"WWW-Authenticate": "Bearer"}
        return JSONResponse(refusal.document, status_code=refusal.status, headers=headers)

    # Owners

    async def _contacts(self, _request: Request, holder: Holder) -> Response:
        found = []
        for contact in self._store.contacts(_owner(holder)):
            files = {name: self._store.files(name) for name in (contact.to_owner, contact.to_contact)}
            found.append(
                {
                    "to_owner": contact.to_owner,
                    "to_contact": contact.to_contact,
                    "files": sum(map(len, files.values())),
                    "bytes": sum(entry.size_bytes for entries in files.values() for entry in entries),
                }
            )
        return JSONResponse({"ok": True, "contacts": found})

    async def _add_contact(self, _request: Request, holder: Holder) -> Response:
        fresh = await asyncio.to_thread(self._store.add_contact, _owner(holder))
        return JSONResponse({"ok": True, **fresh._asdict()}, status_code=201)

    async def _remove_contact(self, request: Request, holder: Holder) -> Response:
        await asyncio.to_thread(self._store.remove_contact, _owner(holder), request.path_params["contact"])
        return JSONResponse({"ok": True})

    # Folders

    async def _folders(self, _request: Request, holder: Holder) -> Response:
        if holder.contact is None:
            raise BoxRefusedError(BoxRefusal.NOT_ALLOWED)
        folders = {"to_owner": holder.contact.to_owner, "to_contact": holder.contact.to_contact}
        return JSONResponse({"ok": True, **folders})

    async def _list(self, request: Request, holder: Holder) -> Response:
        folder = self._checked(request, holder, Action.READ)
        files = [{"id": entry.file_id, "bytes": entry.size_bytes} for entry in self._store.files(folder)]
        return JSONResponse({"ok": True, "files": files})

    async def _put(self, request: Request, holder: Holder) -> Response:
        folder = self._checked(request, holder, Action.PUT)
        with self._upload(holder):
            data = await _body(request)
            is_new = await asyncio.to_thread(self._store.put, folder, request.path_params["file"], data)
        return JSONResponse({"ok": True}, status_code=201 if is_new else 200)

    @contextlib.contextmanager
    def _upload(self, holder: Holder) -> Iterator[None]:
        """Count an upload for as long as its bytes are in memory."""
        if self._uploads[holder] >= UPLOADS_MAX:
            raise BoxRefusedError(BoxRefusal.TOO_MANY_UPLOADS)
        self._uploads[holder] += 1
        try:
            yield
        finally:
            self._uploads[holder] -= 1
            if not self._uploads[holder]:
                del self._uploads[holder]

    async def _get(self, request: Request, holder: Holder) -> Response:
        folder = self._checked(request, holder, Action.READ)
        data = await asyncio.to_thread(self._store.get, folder, request.path_params["file"])
        return Response(data, media_type="application/octet-stream")

    async def _delete(self, request: Request, holder: Holder) -> Response:
        folder = self._checked(request, holder, Action.READ)
        await asyncio.to_thread(self._store.delete, folder, request.path_params["file"])
        return JSONResponse({"ok": True})

    def _checked(self, request: Request, holder: Holder, action: Action) -> str:
        folder: str = request.path_params["folder"]
        self._store.check(holder, folder, action)
        return folder


def _owner(holder: Holder) -> str:
    if holder.contact is not None:
        raise BoxRefusedError(BoxRefusal.NOT_ALLOWED)
    return holder.owner


async def _body(request: Request) -> bytes:
    """Return a request's body; one that says that it is too long is not read at all."""
    told = request.headers.get("content-length", "0")
    if not told.isdigit() or len(told) > 9 or int(told) > FILE_BYTES_MAX:
        raise BoxRefusedError(BoxRefusal.FILE_TOO_LARGE)
    data = bytearray()
    try:
        async with asyncio.timeout(UPLOAD_S):
            async for chunk in request.stream():
                data += chunk
                if len(data) > FILE_BYTES_MAX:
                    raise BoxRefusedError(BoxRefusal.FILE_TOO_LARGE)
    except TimeoutError as error:
        raise BoxRefusedError(BoxRefusal.SLOW) from error
    return bytes(data)
