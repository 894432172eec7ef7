"""Laws of the tables of a device's home."""

import pytest

from waystation.core.errors import LocalError
from waystation.core.ids import encode_id52
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.device.links import Visibility
from waystation.protocols.bsp.home.tables import HomeShare, HomeTables
from waystation.protocols.bsp.profile import SEED
from waystation.store.memory import MemoryStore

PEER = KeyPair.from_seed(bytes(32)).public
OTHER = KeyPair.from_seed(b"\x01" * 32).public
OWN = KeyPair.from_seed(b"\x02" * 32).public
GROUP = SEED.group(bytes(32), b"one", "deps_v1")
SECOND = SEED.group(bytes(32), b"two", "opaque")


@pytest.fixture
def home():
    """Tables of a new device."""
    return HomeTables(MemoryStore(), OWN)


def test_group_and_peer_are_found_by_name_and_beginning(home):
    """A name, an identifier and four digits of it lead to the same entry, in either spelling of a key."""
    home.store.commit([home.put_group("talk", GROUP), home.put_group("", SECOND), home.put_peer("bob", PEER)])
    groups = [home.group(text).group for text in ("talk", GROUP.group_id.hex(), GROUP.group_id.hex()[:4])]
    peers = [home.peer(text).key for text in ("bob", PEER.hex(), PEER.hex()[:6].upper(), encode_id52(PEER)[:9])]

    assert groups == [GROUP] * 3
    assert peers == [PEER] * 4


@pytest.mark.parametrize("text", ["nobody", "3b6", ""])
def test_unknown_name_is_told_with_those_known(home, text):
    """Whoever is not found, or by too few digits, is told who is known."""
    home.store.commit([home.put_peer("bob", PEER)])

    with pytest.raises(LocalError, match="known: bob"):
        home.peer(text)


def test_name_of_two_is_refused(home):
    """Two entries of one name are told apart by identifier only."""
    home.store.commit([home.put_peer("bob", PEER), home.put_peer("bob", OTHER)])

    with pytest.raises(LocalError, match="more than one peer"):
        home.peer("bob")
    assert home.peer(OTHER.hex()[:8]).key == OTHER


def test_leaving_takes_the_shares_along(home):
    """A group or peer that is removed leaves no share behind, and others' shares stay."""
    pairs = [(group.group_id, peer) for group in (GROUP, SECOND) for peer in (PEER, OTHER)]
    home.store.commit([home.put_share(*pair, Visibility.SHARED) for pair in pairs])
    home.store.commit(home.remove_group(GROUP.group_id))
    home.store.commit(home.remove_peer(PEER))
    left = home.shares()
    home.store.commit([home.put_share(SECOND.group_id, OTHER, Visibility.INVISIBLE)])

    assert left == [HomeShare(SECOND.group_id, OTHER, Visibility.SHARED)]
    assert home.shares() == []


@pytest.mark.parametrize(
    ("name", "key", "url", "why"),
    [
        ("x" * 65, PEER, "", "at most 64"),
        ("a\nb", PEER, "", "printable"),
        ("bob", PEER, "https://x", "not the address"),
        ("me", None, "", "our own key"),
    ],
)
def test_bad_peer_is_refused(home, name, key, url, why):
    """Names that steer terminals, foreign addresses and our own key make no peer."""
    with pytest.raises(LocalError, match=why):
        home.put_peer(name, key or home.key, url)


def test_file_numbers_grow_with_time_and_never_repeat(home):
    """A number is the time of day, or one more than the last where the clock stands or goes back."""
    numbers = []
    for wall_ms in (1_000, 1_000, 500, 2_000):
        number, record = home.next_file_number(wall_ms)
        home.store.commit([record])
        numbers.append(number)

    assert numbers == [1_000, 1_001, 1_002, 2_000]


def test_group_keeps_its_format(home):
    """A group that is ours cannot become one of another format: its messages would mean something else here alone."""
    home.store.commit([home.put_group("talk", GROUP)])
    other = GROUP._replace(format="opaque")

    with pytest.raises(LocalError, match="format deps_v1 instead of opaque"):
        home.put_group("talk", other)
    assert home.put_group("renamed", GROUP).key == GROUP.group_id


def test_store_says_whose_it_is_and_how_it_is_written(home):
    """A new store is nobody's and of profile seed; what is put down is read again."""
    before = home.owner, home.profile.name
    home.store.commit(home.put_owner("briar"))

    assert before == (None, "seed")
    assert (home.owner, home.profile.name, home.has_lost_its_facts) == (OWN, "briar", False)
