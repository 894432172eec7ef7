"""Fetches the DID documents that bootstrap data and the relays we read from point to.

``StrataHost`` starts it. A round asks each upstream for its manifest, hands the pointers to the relay's directory, and
fetches what the directory then wants, by hash, from upstreams and from the relays of the Bootstrap Document. What comes
is believed by its hash alone, so it does not matter who sends it.

Spec: RFC-0001 3.3; specs/strata.md 4, 16; decision STRATA-POINTERS.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import structlog

from waystation.core.dids import key_of_did
from waystation.core.errors import HostError, LocalError
from waystation.protocols.strata.canonical import parse
from waystation.protocols.strata.client.bootstrap import BootstrapDocument, read_pointers
from waystation.protocols.strata.refusals import RefusedError
from waystation.protocols.strata.relay.documents import DOCUMENT_BYTES_MAX, DOCUMENTS_MAX
from waystation.protocols.strata.relay.machine import StrataRelay
from waystation.protocols.strata.relay_uri import http_base_of
from waystation.protocols.strata.settings import Upstream
from waystation.transport.http_get import TlsContext, http_get
from waystation.transport.tls import client_context

__all__ = ["DocumentFetcher"]

ROUND_S: Final = 600.0
FIRST_ROUND_S: Final = 5.0
FETCHES_PER_ROUND_MAX: Final = 1_024
MANIFEST_BYTES_MAX: Final = 1_048_576
_MANIFEST: Final = "/.well-known/strata-relay.json"
_DOCUMENTS: Final = "/strata/did-docs/"
_OK: Final = 200

_log = structlog.get_logger("waystation.server")


class DocumentFetcher:
    """Resolves DIDs by the documents that others point to."""

    def __init__(self, relay: StrataRelay, upstreams: Sequence[Upstream], bootstrap: BootstrapDocument | None) -> None:
        """Prepare; ``start`` begins.

        Args:
            relay: Its directory learns pointers and documents.
            upstreams: Their manifests count for names that are no keys.
            bootstrap: Its pointers count for every DID, and before those of upstreams.
        """
        self._relay = relay
        self._upstreams = upstreams
        self._bootstrap = bootstrap
        self._task: asyncio.Task[None] | None = None
        self._fetches = 0

    def start(self, then: Callable[[], None]) -> None:
        """Begin, and call ``then`` after the first round, at the latest after ``FIRST_ROUND_S``.

        Replication waits for it: a packet of an author that cannot be resolved yet is refused and not read again.
        """
        if self._upstreams or (self._bootstrap is not None and self._bootstrap.did_docs):
            self._task = asyncio.get_running_loop().create_task(self._keep(then))
        else:
            then()

    def close(self) -> None:
        """Fetch nothing more."""
        if self._task is not None:
            self._task.cancel()

    async def fetch(self) -> None:
        """Do one round."""
        self._fetches = 0
        sources = {http_base_of(each.url): _context_of(each) for each in self._upstreams}
        named: dict[str, str] = {}
        for base, context in sources.items():
            manifest = await self._get(base + _MANIFEST, context, MANIFEST_BYTES_MAX)
            # STRATA-POINTERS: whoever names a document for a key could add a key of its own to it.
            pointers = read_pointers(manifest.get("did_docs") if isinstance(manifest, dict) else None)
            named = {did: value for did, value in pointers.items() if key_of_did(did) is None} | named
        if self._bootstrap is not None:
            named |= self._bootstrap.did_docs
            sources |= {http_base_of(each.url): None for each in self._bootstrap.relays if each.url}
        self._relay.directory.set_pointers(named)
        for did in self._relay.directory.pointed:
            await self._resolve(did, sources)

    async def _keep(self, then: Callable[[], None]) -> None:
        try:
            async with asyncio.timeout(FIRST_ROUND_S):
                await self.fetch()
        except TimeoutError:
            _log.warning("strata.documents_late", seconds=FIRST_ROUND_S)
        then()
        while True:
            await asyncio.sleep(ROUND_S)
            await self.fetch()

    async def _resolve(self, did: str, sources: Mapping[str, TlsContext | None]) -> None:
        """Fetch the documents that are wanted for a DID, the newest and then those before it."""
        for _ in range(DOCUMENTS_MAX):
            wanted = self._relay.directory.wanted(did)
            if not wanted or not await self._fetch_one(wanted[0], sources):
                return

    async def _fetch_one(self, document_hash: str, sources: Mapping[str, TlsContext | None]) -> bool:
        """Fetch a document from the first source that has it; return whether there was one."""
        for base, context in sources.items():
            if self._fetches >= FETCHES_PER_ROUND_MAX:
                return False
            document = await self._get(f"{base}{_DOCUMENTS}{document_hash}", context, 2 * DOCUMENT_BYTES_MAX)
            try:
                if isinstance(document, dict) and self._relay.directory.add_document(document):
                    return True
            except RefusedError as error:
                _log.warning("strata.document_refused", source=base, document=document_hash, why=str(error))
        return False

    async def _get(self, url: str, context: TlsContext | None, bytes_max: int) -> Any:
        """Return the JSON at an address, or None."""
        self._fetches += 1
        try:
            reply = await http_get(url, context=context, body_bytes_max=bytes_max)
            return parse(reply.body) if reply.status == _OK else None
        except (HostError, LocalError, RefusedError) as error:
            _log.debug("strata.document_unreachable", url=url, error=str(error))
            return None


def _context_of(upstream: Upstream) -> TlsContext | None:
    try:
        return client_context(Path(upstream.ca)) if upstream.ca else None
    except HostError as error:  # ``upstreams`` says so with each dial
        _log.debug("strata.document_unreachable", url=upstream.url, error=str(error))
        return None
