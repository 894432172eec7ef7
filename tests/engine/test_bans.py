"""Laws of engine.bans."""

import contextlib

import pytest

from tests.store.build_rot import lose
from waystation.core.dids import encode_did
from waystation.core.errors import LocalError
from waystation.core.ids import encode_id52
from waystation.core.network_set import place_of
from waystation.crypto.signing import KeyPair
from waystation.engine import bans
from waystation.engine.bans import DAMAGED_REASON, TABLE, Ban, BanList, parse_subject, why_force
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
        ("2001:db8::77/128", "address:2001:db8::/64"),
        ("address:2001:db8::/64", "address:2001:db8::/64"),
        ("192.0.2.9/32", "address:192.0.2.9"),
        ("192.0.2.0/24", "network:192.0.2.0/24"),
        ("network:192.0.2.0/24", "network:192.0.2.0/24"),
        ("2001:DB8::/32", "network:2001:db8::/32"),
        ("::ffff:192.0.2.0/120", "network:192.0.2.0/24"),
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


@pytest.mark.parametrize("reason", ["", "x" * 201, "\ud800", "two\nlines", "\x1b[2J", "\u202eback"])
def test_reason_is_one_line_that_can_be_shown(reason):
    """A ban without a reason cannot be judged later, and one that cannot be encoded would end every listing."""
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


@pytest.mark.parametrize(
    ("text", "why"),
    [("192.0.2.1/24", "host bits"), ("2001:db8::/96", "one household"), ("192.0.2.0/33", "no network")],
)
def test_networks_that_are_none_are_refused_in_words(text, why):
    """Bits of a host, and less than a household, are slips."""
    with pytest.raises(LocalError, match=why):
        parse_subject(text)


def test_network_bans_all_its_addresses():
    """Each address of it, until the end, and none beside it; other entries stay as they are."""
    listed = BanList(MemoryStore())
    listed.add(Ban("network:203.0.113.0/24", "abuse", 1, 100))
    listed.add(Ban("address:203.0.113.7", "abuse", 1, None))
    listed.add(Ban("network:2001:db8::/32", "abuse", 1, None))
    listed.add(Ban("address:2001:db9::/64", "abuse", 1, None))

    def banned(wall_us):
        hosts = ("203.0.113.1", "203.0.113.7", "203.0.114.1", "2001:db8:5::1", "2001:db9::9", "2001:dba::1")
        return [listed.refuses_place(place_of(host), wall_us) for host in hosts]

    assert banned(99) == [True, True, False, True, True, False]
    assert banned(100) == [False, True, False, True, True, False]
    assert listed.addresses == 4


def test_lifted_network_is_gone_whole():
    """Its prefix length is not even looked at any more; what it covered by itself stays banned."""
    store = MemoryStore()
    listed = BanList(store)
    for subject in ("network:203.0.113.0/24", "address:203.0.113.7"):
        store.commit([listed.add(Ban(subject, "abuse", 1, None))])
    store.commit([listed.lift("network:203.0.113.0/24")])

    for each in (listed, BanList(store)):
        assert each.refuses_place(place_of("203.0.113.7"), 5)
        assert not each.refuses_place(place_of("203.0.113.8"), 5)
        assert len(each._networks) == 1


@pytest.mark.parametrize(
    ("subject", "asks"),
    [
        ("0.0.0.0/0", True),
        ("::/0", True),
        ("127.0.0.1", True),
        ("126.0.0.0/7", True),
        ("::1", True),
        ("192.0.2.0/24", False),
        ("2001:db8::1", False),
        (KEY.hex(), False),
    ],
)
def test_bans_that_are_slips_ask_for_force(subject, asks):
    """Everybody, and this machine itself with the proxy on it."""
    assert (why_force(parse_subject(subject)) is not None) is asks


def test_damaged_ban_goes_on():
    """Who is banned is known, how long is not: it holds until the operator lifts it (NODE-ROT)."""
    store = MemoryStore()
    bans_kept = BanList(store)
    store.commit([bans_kept.add(Ban(subject, "spam", 1, 2)) for subject in ("address:192.0.2.9", "address:192.0.2.10")])
    lose(store, TABLE, b"address:192.0.2.9")
    lose(store, TABLE, b"addrexx:192.0.2.10", key_is_good=False)
    again = BanList(store)

    assert again.refuses("address:192.0.2.9", 1 << 60)
    assert again.refuses_place(place_of("192.0.2.9"), 1 << 60)
    assert [(ban.subject, ban.reason) for ban in again if ban.expires_us is None] == [
        ("address:192.0.2.9", DAMAGED_REASON)
    ]
    store.commit([again.lift("address:192.0.2.9")])
    assert not again.refuses("address:192.0.2.9", 1 << 60)
