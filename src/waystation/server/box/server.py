"""The HTTP API of the blind box, which stores sealed BSP files for recipients, after Briar's mailbox (BSP-BOX).

The node sees addresses, times and sizes, never the content. The operator adds an owner (``waystation bsp box setup``).
The owner adds contacts, each with a token and a folder in each direction (``server.box.store``). Tokens are sent as
``Authorization: Bearer`` and 64 hexadecimal digits.

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
``{"ok": false, "refusal": word, "error": sentence, "status": code}``, see ``server.box.refusals``. An address that
sends more than ``bad_tokens_per_minute`` wrong tokens gets 429 for further wrong ones. A valid token is always
admitted, because it cannot be guessed (256 bits) and several users may share an address. A token may have
``uploads_max`` uploads at once. ``server.http.connection`` limits the connections.
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
from waystation.core.limits import TokenBucket, surplus
from waystation.engine.admission import address_key
from waystation.server.box.refusals import BoxRefusal, BoxRefusedError
from waystation.server.box.store import FILE_BYTES_MAX, Action, BoxStore, Holder
from waystation.server.http.connection import HttpLimits, LateAnswer
from waystation.server.http.port import HttpPort
from waystation.server.proxies.rules import ProxyRules

__all__ = ["box_application", "box_port"]

UPLOAD_S: Final = 60.0  # 17 KiB/s for the largest file
_WINDOW_S: Final = 60
_PREFIX: Final = "Bearer "

_Handler = Callable[[Request, Holder], Awaitable[Response]]


def box_port(
    store: BoxStore,
    clock: Callable[[], Instant],
    proxies: ProxyRules | None = None,
    *,
    limited: bool = True,
    refuses: Callable[[str], bool] = lambda _host: False,
    note: Callable[[BoxRefusal, str], None] | None = None,
) -> HttpPort:
    """Return the port that serves ``store``.

    Args:
        store: The files.
        clock: Monotonic time.
        proxies: Who may name the client of a request.
        limited: False lets one address have as many connections as there are.
        refuses: Whether the operator refuses an address.
        note: Called with each refusal and the address that met it.
    """
    late = LateAnswer(BoxRefusal.SLOW_HEAD.document)
    return HttpPort(
        box_application(store, clock, refuses, note), late, HttpLimits(per_address=limited), proxies, "bsp.box"
    )


def box_application(
    store: BoxStore,
    clock: Callable[[], Instant],
    refuses: Callable[[str], bool] = lambda _host: False,
    note: Callable[[BoxRefusal, str], None] | None = None,
) -> Starlette:
    """Return what answers requests for ``store``, but not those of an address that ``refuses`` names."""
    return _Api(store, clock, refuses, note).application()


class _Api:
    def __init__(
        self,
        store: BoxStore,
        clock: Callable[[], Instant],
        refuses: Callable[[str], bool] = lambda _host: False,
        note: Callable[[BoxRefusal, str], None] | None = None,
    ) -> None:
        self._note = note
        self._store = store
        self._clock = clock
        self._refuses = refuses
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
            except ClientDisconnect:  # an upload was broken off: no client reads an answer
                return Response()

        return Route(path, answer, methods=[method])

    # Who asks

    def _holder(self, request: Request) -> Holder:
        if self._refuses(_host_of(request)):
            raise BoxRefusedError(BoxRefusal.ADDRESS_REFUSED)
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
        address = address_key(_host_of(request))
        bucket, limits = self._bad.get(address), self._store.limits
        rate = limits.bad_tokens_per_minute
        if bucket is None:
            for _ in range(surplus(len(self._bad) + 1, limits.bad_token_addresses)):
                self._bad.popitem(last=False)
            bucket = self._bad[address] = TokenBucket(rate, rate, self._clock(), period_s=_WINDOW_S)
        bucket.change(rate, rate)  # a reload has replaced it, perhaps
        self._bad.move_to_end(address)
        return bucket

    def _refusal(self, refusal: BoxRefusal, request: Request) -> Response:
        if self._note is not None:
            self._note(refusal, _host_of(request))
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
        if self._uploads[holder] >= self._store.limits.uploads_max:
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


def _host_of(request: Request) -> str:
    return request.client.host if request.client is not None else ""


async def _body(request: Request) -> bytes:
    """Return a request's body; one that says that it is too long is not read at all."""
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or len(length) > 9 or int(length) > FILE_BYTES_MAX:
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
