"""STRATA-KEYS: what a reader does about a signature of a key that it does not know."""

import pytest

from tests.protocols.strata.build import ALICE, NOW, did, key, packet_of, signed, unsigned
from tests.protocols.strata.build_client import Talk, event
from waystation.core.dids import encode_key_multibase
from waystation.core.errors import LocalError
from waystation.protocols.strata.client.events import (
    ClientEnd,
    CursorLost,
    HistoryEnded,
    Limited,
    PacketArrived,
    PacketDropped,
    Violation,
)
from waystation.protocols.strata.client.key_book import KeyBook
from waystation.protocols.strata.client.key_fetch import FETCH_ID
from waystation.protocols.strata.client.subscriptions import KEYS_WAIT_MS, SUBSCRIPTIONS_MAX
from waystation.protocols.strata.messages import Filters


class Author:
    """An author who has rotated his key ``count`` times."""

    def __init__(self, number, count=1):
        keys = [key(1_000 * number + index) for index in range(count + 1)]
        self.did = did(keys[0])
        self.rotations = [self._rotation(*keys[index : index + 2], index) for index in range(count)]
        self._key = keys[-1]

    def _rotation(self, old, new, index):
        content = {"type": "KEY_EVENT", "event": "ROTATE", "key_id": f"{self.did}#k{index + 1}"}
        content |= {"public_key_multibase": encode_key_multibase(new.public), "valid_from": NOW - 1_000}
        content |= {"replaces": f"{self.did}#" + (f"k{index}" if index else "keys-1")}
        return packet_of(signed(unsigned(content, author_id=self.did), old))

    def post(self, text="x"):
        return packet_of(signed(unsigned({"type": "POST", "text": text}, author_id=self.did), self._key))


def reader(**options):
    """Return a client that reads everything and knows no key events."""
    return Talk(book=KeyBook(**options)).subscribe()


def asked(talk):
    """Return the authors whose key events the client has just asked for."""
    talk.told = talk.take()
    return [
        each["filters"]["authors"]
        for each in talk.sent
        if each.get("subscription_id") == FETCH_ID and "filters" in each
    ]


def fetched(talk, *packets):
    """Answer for key events; they come one day before everything else."""
    events = [
        event(each, NOW - 500, cursor=f"k{index}") | {"subscription_id": FETCH_ID} for index, each in enumerate(packets)
    ]
    return talk.hear(*events, end(FETCH_ID)).take()


def end(subscription_id="s"):
    return {"type": "EOSE", "subscription_id": subscription_id, "cursor": "end", "has_more": False}


def arrived(told):
    return [each.packet for each in told if isinstance(each, PacketArrived) and each.subscription_id == "s"]


def test_keys_are_fetched_when_a_signature_does_not_verify():
    """Nothing is asked for an author whose first key signs; the others are judged again, in order, with their keys."""
    one, other, plain = Author(1, 3), Author(2), packet_of(signed(unsigned(author_id=did(ALICE)), ALICE))
    packets = [plain, one.post("1"), one.post("2"), other.post(), one.post("3")]
    talk = reader()
    talk.hear(*(event(each, cursor=str(index)) for index, each in enumerate(packets)), end())
    first = asked(talk)
    before = arrived(talk.told)
    told = fetched(talk, *one.rotations)
    second = [each["filters"]["authors"] for each in talk.sent if "filters" in each]
    told += fetched(talk, *other.rotations)

    assert (first, second) == ([[one.did]], [[other.did]])
    assert before == [plain]
    assert arrived(told) == packets[1:]
    assert [each for each in told if isinstance(each, HistoryEnded)] == [HistoryEnded("s", "end", has_more=False)]
    assert not [each for each in told if isinstance(each, Violation | PacketDropped)]


def test_authors_of_a_page_are_fetched_together():
    """While one batch is under way the others are gathered, so that 40 authors cost two requests."""
    authors = [Author(number) for number in range(40)]
    talk = reader()
    talk.hear(*(event(each.post()) for each in authors), end())
    first = asked(talk)
    told = fetched(talk, *authors[0].rotations)
    second = [set(each["filters"]["authors"]) for each in talk.sent if "filters" in each]
    told += fetched(talk, *(rotation for each in authors[1:] for rotation in each.rotations))

    assert first == [[authors[0].did]]
    assert second == [{each.did for each in authors[1:]}]
    assert [each.author_id for each in arrived(told)] == [each.did for each in authors]


def test_live_packets_stay_behind_the_end_of_history():
    """What waits is settled in the order in which it came, the end of history with it."""
    one, plain = Author(1), packet_of(signed(unsigned(author_id=did(ALICE)), ALICE))
    talk = reader()
    talk.hear(event(one.post()), end(), event(plain))
    asked(talk)
    told = fetched(talk, *one.rotations)

    assert [type(each) for each in told if getattr(each, "subscription_id", "") == "s"] == [
        PacketArrived,
        HistoryEnded,
        PacketArrived,
    ]


def test_key_that_comes_while_keys_are_fetched_is_looked_for_once_more():
    """The author rotates again and writes behind the moment up to which the relay has answered."""
    one = Author(1, 2)
    early = packet_of(signed(unsigned({"type": "POST", "text": "early"}, author_id=one.did), key(1_001)))
    talk = reader()
    talk.client.subscribe("t", Filters(), talk.now)
    talk.take()
    talk.hear(event(early))
    asked(talk)
    talk.hear(event(one.post()) | {"subscription_id": "t"})
    told = fetched(talk, one.rotations[0])
    again = [each["filters"]["authors"] for each in talk.sent if "filters" in each]
    told += fetched(talk, *one.rotations)

    assert again == [[one.did]]
    assert [each.packet for each in told if isinstance(each, PacketArrived) and each.subscription_id != FETCH_ID] == [
        early,
        one.post(),
    ]
    assert talk.closes == []


def test_small_book_blames_nobody():
    """With room for two authors all packets of 30 in turn arrive, each after its keys were fetched again."""
    authors = [Author(number) for number in range(6)]
    talk, packets = reader(authors_max=2), [each.post(str(turn)) for turn in range(5) for each in authors]
    rotations = {each.did: each.rotations for each in authors}
    talk.hear(*(event(each) for each in packets), end())
    wanted, told = asked(talk), []
    while wanted:
        told += fetched(talk, *(each for author in wanted[0] for each in rotations[author]))
        wanted = [each["filters"]["authors"] for each in talk.sent if "filters" in each]

    assert arrived(told) == packets
    assert not [each for each in told if isinstance(each, Violation | PacketDropped)]


def test_forged_packet_is_blamed_once_the_keys_are_there():
    """The relay's own key events do not make the signature good, so it has passed on a forgery."""
    forged = packet_of(signed(unsigned(author_id=Author(1).did), key(77)))
    talk = reader()
    talk.hear(event(forged))
    asked(talk)
    before = talk.told
    [violation] = fetched(talk)

    assert before == []
    assert (violation.reason, violation.packet_id) == ("signature", forged.packet_id)
    assert [each.reason for each in talk.closes] == [ClientEnd.SIGNATURE]


def test_position_is_never_behind_what_waits():
    """A connection that ends while keys are fetched is read again from before the packet, with keys asked for anew."""
    one, plain = Author(1), packet_of(signed(unsigned(author_id=did(ALICE)), ALICE))
    talk = reader()
    talk.hear(event(plain, cursor="1"), event(one.post(), cursor="2"), event(one.post("y"), cursor="3"))
    asked(talk)
    talk.drop().open().take()
    again = talk.sent[0]["filters"]["cursor"]
    talk.hear(event(one.post(), cursor="2"), event(one.post("y"), cursor="3"))

    assert again == "1"
    assert asked(talk) == [[one.did]]
    assert arrived(fetched(talk, *one.rotations)) == [one.post(), one.post("y")]


def test_limited_fetch_is_asked_for_as_long_as_it_takes():
    """However often the relay says that it is too much, nothing is dropped."""
    one = Author(1)
    talk = reader()
    talk.hear(end(), event(one.post()))
    asked(talk)
    told = []
    for _ in range(12):
        refusal = {"type": "ERROR", "code": "rate_limited", "retry_after": 30, "subscription_id": FETCH_ID}
        told += talk.hear(refusal).wait(60).take()
    told += fetched(talk, *one.rotations)

    assert sum(isinstance(each, Limited) for each in told) == 12
    assert arrived(told) == [one.post()]


@pytest.mark.parametrize("is_mute", [False, True])
def test_relay_that_has_no_key_events_to_give_is_not_blamed(is_mute):
    """It refuses, or says nothing for a minute: the packet is left out, which is said, and reading goes on."""
    one, plain = Author(1), packet_of(signed(unsigned(author_id=did(ALICE)), ALICE))
    talk = reader()
    talk.hear(event(plain), end())  # it knows EOSE
    talk.hear(event(one.post()), event(packet_of(signed(unsigned(nonce="n"), ALICE))))
    asked(talk)
    if is_mute:
        talk.wait(KEYS_WAIT_MS / 1_000)
    else:
        talk.hear({"type": "ERROR", "code": "internal_error", "subscription_id": FETCH_ID})
    told = talk.take()

    assert told[0] == PacketDropped("s", one.post().packet_id, "signature")
    assert len(arrived(told)) == 1
    assert talk.closes == []


def test_what_waits_for_keys_is_bounded(monkeypatch):
    """Beyond the limit the connection ends, and the next one reads from where the position is."""
    monkeypatch.setattr("waystation.protocols.strata.client.key_fetch.HELD_MAX", 10)
    one = Author(1)
    talk = reader()
    talk.hear(*(event(one.post(str(index)), cursor=str(index)) for index in range(11)))
    talk.take()

    assert [each.reason for each in talk.closes] == [ClientEnd.KEYS_PENDING]


def test_subscription_that_waits_can_be_ended():
    """Keys that come for it then matter to nobody, and the place of what waited is free again."""
    one = Author(1)
    talk = reader()
    talk.hear(event(one.post()))
    asked(talk)
    talk.client.unsubscribe("s")

    assert arrived(fetched(talk, *one.rotations)) == []


def test_one_place_is_left_for_key_events():
    """A relay allows 32 subscriptions; a program has all but one."""
    talk = reader()
    for number in range(SUBSCRIPTIONS_MAX - 1):
        talk.client.subscribe(f"n{number}", Filters(), talk.now)
    with pytest.raises(LocalError, match="at most 31 subscriptions"):
        talk.client.subscribe("more", Filters(), talk.now)
    talk.hear(event(Author(1).post()))

    assert asked(talk) == [[Author(1).did]]


def test_lost_cursor_is_still_reported_while_keys_are_fetched():
    """A refusal of the subscription itself is no answer about keys."""
    one = Author(1)
    talk = reader()
    talk.hear(event(one.post(), cursor="1"))
    asked(talk)
    told = fetched(talk, *one.rotations)
    told += talk.hear({"type": "ERROR", "code": "invalid_cursor", "subscription_id": "s"}).take()

    assert [type(each) for each in told] == [PacketArrived, CursorLost]
