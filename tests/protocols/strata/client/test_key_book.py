from tests.protocols.strata.build import ALICE, ALICE_KEY_2, BOB, NOW, did, key, packet_of, post, signed, unsigned
from waystation.core.dids import encode_key_multibase
from waystation.protocols.strata.client.key_book import KeyBook
from waystation.protocols.strata.refusals import Code


def event(kind, key_pair=ALICE, public=ALICE_KEY_2.public, **fields):
    """Return a KEY_EVENT of alice signed by ``key_pair``."""
    content = {"type": "KEY_EVENT", "event": kind, "key_id": did(ALICE) + "#k2", "valid_from": NOW} | fields
    if kind != "REVOKE":
        content["public_key_multibase"] = encode_key_multibase(public)
    return packet_of(signed(unsigned(content), key_pair))


def test_own_key_is_known_from_the_start():
    """A self-certifying DID brings its key; a name brings nothing."""
    book = KeyBook()

    assert book.keys_of(did(ALICE), NOW) == (ALICE.public,)
    assert book.keys_of("did:strata:somebody", NOW) is None
    assert KeyBook({"did:strata:somebody": BOB.public}).keys_of("did:strata:somebody", NOW) == (BOB.public,)


def test_added_key_is_believed_after_its_event():
    """The event counts because a key known before signed it."""
    book = KeyBook()
    late = packet_of(signed(unsigned(), ALICE_KEY_2))

    assert book.learn(event("ADD"), NOW)
    assert set(book.keys_of(did(ALICE), NOW)) == {ALICE.public, ALICE_KEY_2.public}
    assert book.check(late, NOW) is None
    assert not book.learn(event("ADD"), NOW)


def test_foreign_or_broken_events_are_not_learnt():
    """Nobody adds a key to somebody else, and only key events are learnt."""
    book = KeyBook()

    assert not book.learn(event("ADD", BOB), NOW)
    assert not book.learn(post(), NOW)
    assert not book.learn(event("ADD", valid_from="soon"), NOW)
    assert book.keys_of(did(ALICE), NOW) == (ALICE.public,)


def test_packet_of_a_revoked_key_is_judged_without_blame():
    """The key is still named, so that no relay is called a liar; but the packet is not believed."""
    book = KeyBook()
    book.learn(event("ADD"), NOW)
    book.learn(event("REVOKE", revoked_at=NOW + 10), NOW + 10)
    late = packet_of(signed(unsigned(), ALICE_KEY_2))

    assert ALICE_KEY_2.public in book.keys_of(did(ALICE), NOW + 1_000)
    assert book.check(late, NOW + 1_000).code is Code.KEY_REVOKED
    assert book.check(late, NOW + 5) is None


def test_author_who_is_asked_for_stays():
    """With room for two authors the one not asked for longest goes, however late its key events were learnt."""
    book, people = KeyBook(authors_max=2), [key(number) for number in range(3)]

    def added(person):
        content = {"type": "KEY_EVENT", "event": "ADD", "key_id": did(person) + "#k2", "valid_from": NOW}
        content["public_key_multibase"] = encode_key_multibase(BOB.public)
        return packet_of(signed(unsigned(content, author_id=did(person)), person))

    book.learn(added(people[0]), NOW)
    book.learn(added(people[1]), NOW)
    book.keys_of(did(people[0]), NOW)
    book.learn(added(people[2]), NOW)

    assert [len(book.keys_of(did(each), NOW)) for each in people] == [2, 1, 2]
