"""Laws of sdk.strata.documents."""

from tests.protocols.strata.build import NOW
from tests.protocols.strata.build_keys import NAMED, document, key
from tests.sdk.strata.build import ScriptedServer
from tests.sdk.strata.test_relay import scenario
from waystation.protocols.strata.canonical import document_hash
from waystation.protocols.strata.client.key_book import KeyBook
from waystation.sdk.strata.documents import fetch_documents

FIRST = document("one")
SECOND = document("one", "two", prev_did_doc_hash=document_hash(FIRST))
DEAD = "http://127.0.0.1:1"


@scenario
async def test_documents_are_fetched_by_their_hash():
    """From the first relay that has each; another text under that hash is not believed."""
    pointers, book = {NAMED: document_hash(SECOND)}, KeyBook()
    async with ScriptedServer(lambda _message: []) as server:
        base = server.url.replace("ws://", "http://").removesuffix("/strata")
        server.pages[f"/strata/did-docs/{document_hash(SECOND)}"] = (200, FIRST)
        unbelieved = await fetch_documents(book, pointers, [DEAD, base])
        unknown = book.keys_of(NAMED, NOW)
        server.pages |= {f"/strata/did-docs/{document_hash(each)}": (200, each) for each in (FIRST, SECOND)}
        found = await fetch_documents(book, pointers, [DEAD, base])

    assert (unbelieved, unknown) == ([], None)
    assert found == [NAMED]
    assert set(book.keys_of(NAMED, NOW)) == {key("one"), key("two")}
