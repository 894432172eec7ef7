"""Laws of server.strata.documents: DIDs are resolved by documents that others point to, over real sockets."""

import asyncio
import random

from tests.protocols.strata.build import ALICE, NOW, did
from tests.protocols.strata.build_keys import NAMED, OWN, document, verification_method
from tests.protocols.strata.client.test_bootstrap import KEEPERS, PINNED
from tests.protocols.strata.client.test_bootstrap import document as bootstrap
from tests.transport.build import Site
from waystation.core.instant import Instant
from waystation.crypto.signing import KeyPair
from waystation.protocols.strata.canonical import document_hash
from waystation.protocols.strata.client.bootstrap import check_document
from waystation.protocols.strata.relay.machine import StrataRelay
from waystation.protocols.strata.settings import StrataSettings, Upstream
from waystation.server.strata.documents import DocumentFetcher
from waystation.store.memory import MemoryStore

FIRST = document("one")
SECOND = document("one", "two", prev_did_doc_hash=document_hash(FIRST))
TAKEN = document(did=OWN) | {"verification_method": [verification_method(each, OWN) for each in ("own", "thief")]}


def relay_with(*documents):
    """Return a relay whose operator has placed documents."""
    return StrataRelay(
        StrataSettings(), KeyPair.from_seed(b"o" * 32), MemoryStore(), random.Random(1), documents=documents
    )


def fetched(theirs, bootstrap_of=None):
    """Return a relay after one round at a relay that it reads from, ``theirs``."""
    ours = relay_with()

    async def main():
        async with Site(answer=lambda path, address, _host: theirs.answer(path, address, Instant(0))) as site:
            url = f"ws://127.0.0.1:{site.listener.port}/strata"
            found = bootstrap_of(url) if bootstrap_of is not None else None
            upstreams = () if found is not None else (Upstream(url, did(ALICE), "FULL_ARCHIVE"),)
            await DocumentFetcher(ours, upstreams, found).fetch()

    asyncio.run(main())
    return ours


def methods_of(relay, name):
    """Return the key ids of a DID, newest first; None when it is not resolved."""
    ring = relay.directory.ring(name, NOW)
    return None if ring is None else {method.key_id.partition("#")[2] for method in ring.methods}


def test_name_is_resolved_by_the_manifest_of_an_upstream():
    """The document that its manifest points to, and those before it, are fetched by hash."""
    assert methods_of(relay_with(), NAMED) is None
    assert methods_of(fetched(relay_with(FIRST, SECOND)), NAMED) == {"one", "two"}


def test_upstream_adds_no_key_to_a_did_that_is_one():
    """Whoever points to a document for it could have put a key of its own in (STRATA-POINTERS)."""
    assert methods_of(fetched(relay_with(TAKEN)), OWN) == {"keys-1"}


def test_bootstrap_document_points_for_every_did():
    """Its gatekeepers vouch for the pointer; the relays that it names have the document."""

    def named(url):
        pointers = [{"did": OWN, "did_doc_hash": document_hash(TAKEN), "priority": 1}]
        relays = [{"id": did(ALICE), "url": url}]
        return check_document(bootstrap(*KEEPERS, did_docs=pointers, relays=relays), PINNED, NOW)

    assert methods_of(fetched(relay_with(TAKEN), named), OWN) == {"own", "thief"}


def test_replication_begins_after_the_first_round():
    """Documents are there, or are late, when upstreams are dialled; with nobody to ask it begins at once."""
    known = []

    async def main():
        theirs, ours = relay_with(FIRST), relay_with()
        async with Site(answer=lambda path, address, _host: theirs.answer(path, address, Instant(0))) as site:
            upstream = Upstream(f"ws://127.0.0.1:{site.listener.port}/strata", did(ALICE), "FULL_ARCHIVE")
            begun = asyncio.Event()
            fetcher = DocumentFetcher(ours, (upstream,), None)
            fetcher.start(begun.set)
            async with asyncio.timeout(5):
                await begun.wait()
            known.append(methods_of(ours, NAMED))
            fetcher.close()
        alone = asyncio.Event()
        DocumentFetcher(ours, (), None).start(alone.set)
        known.append(alone.is_set())

    asyncio.run(main())
    assert known == [{"one"}, True]


def test_relay_that_is_not_there_changes_nothing():
    """A round at nobody ends, and what is known stays."""
    ours = relay_with(FIRST)
    upstream = Upstream("ws://127.0.0.1:1/strata", did(ALICE), "FULL_ARCHIVE")
    asyncio.run(DocumentFetcher(ours, (upstream,), None).fetch())

    assert methods_of(ours, NAMED) == {"one"}
