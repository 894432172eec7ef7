"""Laws of engine.bans."""

import contextlib

import pytest

from waystation.core.dids import encode_did
from waystation.core.errors import LocalError
from waystation.core.ids import encode_id52
from waystation.crypto.signing import KeyPair
from waystation.engine import bans
from waystation.engine.bans import Ban, BanList, parse_subject
from waystation.store.memory import MemoryStore

KEY = KeyPair.from_seed(bytes(32)).public


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        (KEY.hex(), f"id:{KEY.hex()}"),
        (KEY.hex().upper(), f"id:{KEY.hex()}"),
        (encode_id52(KEY), f"id:{KEY.hex()}"),
        (f"id:{encode_id52(KEY)}", f"id:{KEY.hex()}"),
        (encode_did(KEY), f"id:{KEY.hex()}"),
        ("192.0.2.9", "address:192.0.2.9"),
        ("address:192.0.2.9", "address:192.0.2.9"),
        ("2001:db8::77", "address:2001:db8::/64"),
    ],
)
def test_subject_has_one_form(text, subject):
    """However people write an identity or an address, the list knows it under one name."""
    assert parse_subject(text) == subject


@pytest.mark.parametrize("text", ["", "nobody", "id:192.0.2.9", KEY.hex()[:-1], "z" * 52, "id:"])
def test_anything_else_is_refused_in_words(text):
    """Who mistypes is told, not ignored."""
    with pytest.raises(LocalError, match="neither"):
        parse_subject(text)


@pytest.mark.parametrize(("expires_us", "at", "refuses"), [(None, 10**18, True), (100, 99, True), (100, 100, False)])
def test_ban_holds_until_it_expires(expires_us, at, refuses):
    """For good without an end, to the microsecond with one."""
    listed = BanList(MemoryStore())
    listed.add(Ban("address:192.0.2.9", "spam", 1, expires_us))

    assert listed.refuses("address:192.0.2.9", at) is refuses
    assert not listed.refuses("address:192.0.2.8", at)


def test_list_survives_in_its_records():
    """What add and lift return, committed, is the list of the next start; pages are no limit."""
    store = MemoryStore()
    listed = BanList(store)
    for number in range(1_500):
        store.commit([listed.add(Ban(f"address:{number}", "why not", number, None))])
    store.commit([listed.lift("address:7")])
    again = BanList(store)

    assert len(again) == 1_499
    assert list(again) == list(listed)
    assert not again.refuses("address:7", 0)


def test_lifting_nobody_is_nothing():
    """There is no record for a change that was none."""
    assert BanList(MemoryStore()).lift("address:192.0.2.9") is None


@pytest.mark.parametrize("reason", ["", "x" * 201])
def test_reason_has_words_and_an_end(reason):
    """A ban without a reason cannot be judged later."""
    with pytest.raises(LocalError):
        BanList(MemoryStore()).add(Ban("address:192.0.2.9", reason, 1, None))


def test_list_has_an_end(monkeypatch):
    """A full list says so, and still takes a change of an entry that it has."""
    monkeypatch.setattr(bans, "BANS_MAX", 1)
    listed = BanList(MemoryStore())
    listed.add(Ban("address:1", "first", 1, None))
    listed.add(Ban("address:1", "changed", 2, None))

    with pytest.raises(LocalError, match="at most 1"):
        listed.add(Ban("address:2", "second", 1, None))
    assert [ban.reason for ban in listed] == ["changed"]


def test_ban_that_cannot_be_kept_is_not_in_force():
    """What no record can hold is refused before it enters the list."""
    listed = BanList(MemoryStore())
    with pytest.raises(UnicodeEncodeError):
        listed.add(Ban("address:\ud800", "not text", 1, None))

    assert len(listed) == 0


@pytest.mark.parametrize(("lasts_us", "taken"), [(315_360_000 * 10**6, 1), (315_360_000 * 10**6 + 1, 0)])
def test_end_of_a_ban_is_at_most_ten_years_away(lasts_us, taken):
    """Ten years to the microsecond are taken, more is refused in words."""
    listed = BanList(MemoryStore())
    with contextlib.nullcontext() if taken else pytest.raises(LocalError, match="at most 315360000 seconds"):
        listed.add(Ban("address:192.0.2.9", "spam", 5, 5 + lasts_us))

    assert len(listed) == taken


def test_addresses_are_counted_by_themselves():
    """Entries of both kinds come and go, are replaced, and are read from the store; only addresses count."""
    store = MemoryStore()
    listed = BanList(store)
    counts = []
    for step in (
        lambda: listed.add(Ban("address:192.0.2.9", "spam", 1, None)),
        lambda: listed.add(Ban("address:192.0.2.9", "more spam", 2, 3)),
        lambda: listed.add(Ban(f"id:{'00' * 32}", "spam", 1, None)),
        lambda: listed.add(Ban("address:192.0.2.10", "spam", 1, None)),
        lambda: listed.lift(f"id:{'00' * 32}"),
        lambda: listed.lift("address:192.0.2.9"),
        lambda: listed.lift("address:192.0.2.9"),
    ):
        if (record := step()) is not None:
            store.commit([record])
        counts.append(listed.addresses)

    assert counts == [1, 1, 1, 2, 2, 1, 1]
    assert BanList(store).addresses == 1
