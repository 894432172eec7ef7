import pytest

from tests.protocols.strata.build import ALICE, did, post
from waystation.protocols.strata.canonical import parse
from waystation.protocols.strata.client.wire import (
    downgrade_of,
    encode_auth,
    encode_publish,
    encode_subscribe,
    encode_unsubscribe,
    hash_in,
    integer_in,
    text_in,
    texts_in,
)
from waystation.protocols.strata.messages import Auth, Filters, Subscribe, Unsubscribe
from waystation.protocols.strata.wire import read_message


def test_relay_reads_what_the_client_writes():
    """Every message passes the relay's own reader unchanged."""
    filters = Filters((did(ALICE),), ("POST",), 1, 2, descending=True)
    subscribe = read_message(parse(encode_subscribe("s", filters, 7, "c", "FULL_ARCHIVE", "m")))
    auth = read_message(parse(encode_auth(did(ALICE), "q" * 44, b"\1" * 64, ("publish",), "m")))

    assert subscribe == Subscribe("s", filters, 7, "c", "FULL_ARCHIVE", want_eose=True, client_msg_id="m")
    assert auth == Auth(did(ALICE), "q" * 44, b"\1" * 64, ("publish",), "m")
    assert read_message(parse(encode_unsubscribe("s"))) == Unsubscribe("s")


def test_publish_carries_its_bytes_as_they_are():
    """The packet is spliced, not written again."""
    assert post().canonical in encode_publish(post().canonical, 'm"')
    assert parse(encode_publish(post().canonical, 'm"'), 65)["client_msg_id"] == 'm"'


@pytest.mark.parametrize("value", [None, True, "1", [], {}, -1, 2**53, 1.5, float("inf"), float("nan")])
def test_what_is_no_count_is_left_out(value):
    """Only whole numbers from 0 to 2^53-1 are read."""
    assert integer_in({"n": value}, "n") is None


def test_counts_are_read_in_any_spelling():
    """1.7e9 is the integer it looks like."""
    assert integer_in(parse(b'{"n":1.7e9}'), "n") == 1_700_000_000


def test_texts_are_bounded():
    """Too long, another type, or absent: None."""
    assert text_in({"t": "x" * 1_025}, "t") is None
    assert text_in({"t": 1}, "t") is None
    assert text_in({}, "t") is None
    assert texts_in({"t": ["a", 1, "b"] + ["c"] * 100}, "t")[:2] == ("a", "b")
    assert texts_in({"t": "a"}, "t") == ()
    assert hash_in({"h": "0x12"}, "h") is None


def test_downgrade_is_three_texts():
    """Whatever else stands there is not carried on."""
    assert downgrade_of({}) is None
    assert downgrade_of({"provenance_downgrade": {"claimed": "X", "reason": 1, "other": "y"}}) == {
        "claimed": "X",
        "origin_type": "",
        "reason": "",
    }
