from waystation.protocols.strata.client.key_book import KEY_EVENT_TYPES, KeyBook
from waystation.protocols.strata.client.key_fetch import HELD_BYTES_MAX, HELD_MAX, KeyFetch
from waystation.protocols.strata.messages import Filters


def wanting(count, **options):
    """Return a fetch that wants so many authors."""
    fetch = KeyFetch(KeyBook(**options))
    for number in range(count):
        fetch.want(f"did:strata:{number}")
    return fetch


def test_one_batch_at_a_time():
    """The next one begins when the one before has ended, and an author who is wanted twice is in it once."""
    fetch = wanting(2)
    first, meanwhile = fetch.begin(), fetch.begin()
    fetch.want("did:strata:9")
    fetch.want("did:strata:9")

    assert first == Filters(("did:strata:0", "did:strata:1"), KEY_EVENT_TYPES)
    assert meanwhile is None
    assert fetch.end() == {"did:strata:0", "did:strata:1"}
    assert fetch.begin() == Filters(("did:strata:9",), KEY_EVENT_TYPES)


def test_batch_leaves_room_in_the_book_and_in_the_filter():
    """1 000 authors, and an eighth of a small book, so that what is fetched is there when it is judged."""
    assert len(wanting(1_500).begin().authors) == 1_000
    assert len(wanting(40, authors_max=80).begin().authors) == 10
    assert len(wanting(3, authors_max=1).begin().authors) == 1


def test_room_is_bounded_by_number_and_bytes():
    """What does not wait any more makes room, and the end of the connection makes all of it."""
    few, large = wanting(0), wanting(0)
    for _ in range(HELD_MAX):
        assert few.hold(1)

    assert not few.hold(1)
    assert large.hold(HELD_BYTES_MAX)
    assert not large.hold(1)
    large.release(1)
    large.release(1)
    assert large.hold(1)
    few.reset()
    assert few.hold(1)
    assert not few.is_under_way
