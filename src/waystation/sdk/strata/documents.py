"""Fetches the DID documents that bootstrap data points to, so that a client knows keys that a DID does not contain.

An application calls it with the ``book`` of its client and a checked Bootstrap Document. What comes is believed by its
hash alone, so it does not matter which relay sends it. Spec: RFC-0001 3.3; specs/strata.md 4, 16 (STRATA-POINTERS).
"""

from collections.abc import Iterable, Mapping
from typing import Final

from waystation.core.errors import HostError
from waystation.protocols.strata.canonical import parse
from waystation.protocols.strata.client.key_book import KeyBook
from waystation.protocols.strata.refusals import RefusedError
from waystation.protocols.strata.relay.documents import DOCUMENT_BYTES_MAX, DOCUMENTS_MAX
from waystation.transport.http_get import TlsContext, http_get

__all__ = ["fetch_documents"]

_OK: Final = 200


async def fetch_documents(
    book: KeyBook, pointers: Mapping[str, str], http_bases: Iterable[str], *, tls: TlsContext | None = None
) -> list[str]:
    """Return the DIDs whose documents are all there now; those of a relay that cannot be reached come from the next.

    Args:
        book: Learns the documents.
        pointers: DID -> hash of its newest document, ``did_docs`` of a checked Bootstrap Document.
        http_bases: Relays to ask, ``https://host``, in this order.
        tls: Context for ``https``.
    """
    bases = tuple(http_bases)
    book.directory.set_pointers(pointers)
    for did in pointers:
        for _ in range(DOCUMENTS_MAX):
            wanted = book.directory.wanted(did)
            if not wanted or not await _fetch(book, wanted[0], bases, tls):
                break
    return [did for did in pointers if not book.directory.wanted(did)]


async def _fetch(book: KeyBook, document_hash: str, bases: Iterable[str], tls: TlsContext | None) -> bool:
    """Fetch a document from the first relay that has it; return whether there was one."""
    for base in bases:
        try:
            url = f"{base}/strata/did-docs/{document_hash}"
            status, raw = await http_get(url, context=tls, body_bytes_max=2 * DOCUMENT_BYTES_MAX)
            body = parse(raw) if status == _OK else None
            if isinstance(body, dict) and book.directory.add_document(body):
                return True
        except (HostError, RefusedError):  # the next relay may have it
            continue
    return False
