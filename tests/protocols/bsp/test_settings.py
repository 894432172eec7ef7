"""Laws of protocols.bsp.settings."""

import dataclasses

import pytest

from waystation.core.errors import LocalError
from waystation.core.ids import encode_id52
from waystation.core.settings import check
from waystation.protocols.bsp.graph.formats import FORMATS
from waystation.protocols.bsp.profile import PROFILES
from waystation.protocols.bsp.settings import (
    BspSettings,
    GroupEntry,
    PeerEntry,
    read_groups,
    read_owners,
    read_peers,
)

ANNA, BERTA = (bytes((number,)) * 32 for number in (1, 2))
GROUP = {"client_id": "ab" * 32, "descriptor": "0102", "format": "deps_v1", "share_with": [ANNA.hex()], "name": "town"}
PEER = {"key": ANNA.hex(), "url": "bsp+tls://node.example:7443", "name": "anna"}


def test_defaults_are_those_of_the_digest():
    """specs/bsp.md 1, 3 and 6: the seed's bytes, the cheaper mode, 64 groups, 64 MiB, 50,000 and 500,000 messages."""
    assert dataclasses.asdict(BspSettings()) == {
        "profile": "seed",
        "mode": "auto",
        "plain_peer": "",
        "groups": [],
        "peers": [],
        "owners": [],
        "owner_groups_max": 64,
        "owner_mib_max": 64,
        "group_messages_max": 250_000,
        "owner_messages_max": 50_000,
        "owner_tombstones_max": 500_000,
        "terminator_certificate": "",
    }


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(BspSettings)])
def test_defaults_pass_their_own_check(field):
    """What we ship is allowed."""
    check(BspSettings, field, getattr(BspSettings(), field))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("profile", name) for name in PROFILES),
        ("mode", "interactive"),
        ("mode", "batch"),
        ("groups", [GROUP]),
        ("peers", [PEER]),
        ("owners", [ANNA.hex()]),
        ("owner_groups_max", 1),
        ("owner_tombstones_max", 10_000_000),
    ],
)
def test_values_that_the_digest_names_are_allowed(field, value):
    """Both profiles, three modes, tables of groups and peers."""
    check(BspSettings, field, value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("profile", "mvds"),
        ("mode", "lazy"),
        ("plain_peer", 1),
        ("groups", "x"),
        ("groups", [1]),
        ("peers", [{"key": 1}]),
        ("owners", [1]),
        ("owner_groups_max", 0),
        ("owner_mib_max", 0),
        ("owner_messages_max", 1_000_001),
        ("owner_tombstones_max", True),
    ],
)
def test_values_outside_are_refused(field, value):
    """A bound that is declared holds."""
    with pytest.raises(LocalError, match="allowed"):
        check(BspSettings, field, value)


# Groups


def test_group_is_read_as_it_stands():
    """All five entries."""
    assert read_groups([GROUP]) == (GroupEntry(b"\xab" * 32, b"\1\2", "deps_v1", (ANNA,), "town"),)


def test_group_needs_little():
    """No format is opaque, nobody to share with is nobody, no name is none; its bounds are the profile's to judge."""
    assert read_groups([{"client_id": "63"}]) == (GroupEntry(b"c", b"", "opaque", (), ""),)
    assert read_groups([]) == ()


def test_formats_of_groups_are_those_that_there_are():
    """Whatever a device can read may be named."""
    assert [read_groups([GROUP | {"format": name}])[0].format for name in FORMATS] == list(FORMATS)


def test_peer_named_twice_in_a_group_is_one():
    """In either writing, and the order stays."""
    entry = GROUP | {"share_with": [BERTA.hex(), ANNA.hex(), encode_id52(BERTA)]}

    assert read_groups([entry])[0].share_with == (BERTA, ANNA)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"client_id": "xy"}, "client_id = .* not hexadecimal"),
        ({"descriptor": "0"}, "descriptor = .* not hexadecimal"),
        ({"descriptor": ["00"]}, "descriptor = .* not a text"),
        ({"format": "deps_v2"}, "allowed: opaque, deps_v1"),
        ({"share_with": ANNA.hex()}, "not a list of keys"),
        ({"share_with": ["00"]}, "share_with"),
        ({"shared_with": []}, "unknown key shared_with"),
        ({"name": ["x"]}, "name = .* not a text"),
    ],
)
def test_group_that_is_none_is_refused_by_name(change, words):
    """The text says which entry an operator has to look at."""
    with pytest.raises(LocalError, match=f"^groups: .*{words}|^groups: {words}"):
        read_groups([GROUP | change])


def test_group_that_stands_twice_is_refused():
    """Client and descriptor make it one, whatever its name; another descriptor makes another."""
    with pytest.raises(LocalError, match="one group is listed twice"):
        read_groups([GROUP, GROUP | {"name": "village"}])

    assert len(read_groups([GROUP, GROUP | {"descriptor": "03"}])) == 2


# Peers and owners


def test_peer_is_read_as_it_stands():
    """Key, address and name; one that comes to us has no address."""
    assert read_peers([PEER, {"key": BERTA.hex()}]) == (
        PeerEntry(ANNA, "bsp+tls://node.example:7443", "anna"),
        PeerEntry(BERTA, "", ""),
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"url": "https://node.example"}, "bsp.tls:// or bsp.wss://"),
        ({"url": "bsp+tcp://127.0.0.1:1"}, "bsp.tls:// or bsp.wss://"),
        ({"key": "00"}, "key"),
        ({"address": "x"}, "unknown key address"),
    ],
)
def test_peer_that_is_none_is_refused_by_name(change, words):
    """Bare records are not dialled from a configuration: they prove nothing."""
    with pytest.raises(LocalError, match=f"^peers: .*{words}"):
        read_peers([PEER | change])


@pytest.mark.parametrize("named", [ANNA.hex(), ANNA.hex().upper(), encode_id52(ANNA)])
@pytest.mark.parametrize("place", ["node.example:7443", "[::1]", "node.example/bsp?a=b@c"])
def test_address_may_name_the_key_of_its_entry(named, place):
    """So a node's public document and `waystation bsp listen` write it; what is dialled has no key."""
    scheme = "bsp+wss" if "/" in place else "bsp+tls"

    assert read_peers([PEER | {"url": f"{scheme}://{named}@{place}"}]) == (
        PeerEntry(ANNA, f"{scheme}://{place}", "anna"),
    )


def test_at_sign_in_a_path_names_no_key():
    """Only what stands before the host does."""
    url = "bsp+wss://node.example/bsp@home"

    assert read_peers([PEER | {"url": url}])[0].url == url


@pytest.mark.parametrize(
    ("named", "words"),
    [(BERTA.hex(), "another key than key"), (encode_id52(BERTA), "another key"), ("anna", "key"), ("", "key")],
)
def test_address_of_somebody_else_is_refused(named, words):
    """Two keys in one entry are a mistake, and so is a name that is no key."""
    with pytest.raises(LocalError, match=f"^peers: url.*{words}"):
        read_peers([PEER | {"url": f"bsp+tls://{named}@node.example"}])


def test_peer_without_a_key_is_refused():
    """An address alone proves nobody."""
    with pytest.raises(LocalError, match=r"^peers: key"):
        read_peers([{"url": "bsp+wss://node.example/bsp"}])


def test_peer_that_stands_twice_is_refused():
    """In either writing."""
    with pytest.raises(LocalError, match="one key is listed twice"):
        read_peers([PEER, {"key": encode_id52(ANNA)}])


def test_owners_are_read_once_each():
    """The same key twice is one owner."""
    assert read_owners([ANNA.hex(), BERTA.hex(), encode_id52(ANNA)]) == (ANNA, BERTA)
    with pytest.raises(LocalError, match=r"^owners: "):
        read_owners(["00"])
