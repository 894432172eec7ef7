"""Laws of engine.access."""

import pytest

from tests.engine.build import WALL, Rig
from tests.protocols.bhumi.build import ALICE, i_am
from waystation.core.dids import encode_did
from waystation.core.effects import Close
from waystation.core.errors import LocalError
from waystation.core.ids import encode_id52
from waystation.crypto.signing import KeyPair
from waystation.engine.access import Access, parse_access
from waystation.engine.admission import AdmissionRefusal
from waystation.engine.bans import Ban, BanList
from waystation.protocols.bhumi import wire
from waystation.store.memory import MemoryStore

FRIEND, OTHER = (KeyPair.from_seed(bytes([number]) * 32).public for number in (1, 2))
OF_ANOTHER_METHOD = "did:web:example.org"
NOW = 1_700_000_000_000_000


def access_of(allow=(), deny=(), unlimited=(), bans=()):
    """Return what answers by these lists and bans."""
    listed = BanList(MemoryStore())
    for subject in bans:
        listed.add(Ban(subject, "abuse", NOW, None))
    return Access(listed, parse_access(allow, deny, unlimited))


def test_empty_lists_refuse_nobody():
    """NODE-ACCESS: a node takes anybody by default, and says so cheaply."""
    access = access_of()

    assert not access.judges_addresses
    assert not access.demands_identity
    assert access.refuses_address("192.0.2.1", NOW) is None
    assert not access.refuses_identity(OTHER, NOW)
    assert not access.is_unlimited(OTHER)


@pytest.mark.parametrize("spelling", [FRIEND.hex(), encode_id52(FRIEND), encode_did(FRIEND)])
def test_identity_in_allow_shuts_out_the_others(spelling):
    """However it is written; addresses are not judged by it."""
    access = access_of(allow=[spelling])

    assert (access.refuses_identity(FRIEND, NOW), access.refuses_identity(OTHER, NOW)) == (False, True)
    assert access.demands_identity
    assert access.refuses_address("192.0.2.1", NOW) is None


def test_networks_in_allow_shut_out_other_addresses():
    """An address without a form is in no network; identities are not judged by it."""
    access = access_of(allow=["192.0.2.0/24", "2001:db8::/32", "198.51.100.7"])

    admitted = ["192.0.2.200", "2001:db8:1::7", "198.51.100.7", "::ffff:192.0.2.1"]
    refused = ["192.0.3.1", "2001:db9::1", "198.51.100.8", "", "nonsense"]
    assert [access.refuses_address(host, NOW) for host in admitted] == [None] * 4
    assert {access.refuses_address(host, NOW) for host in refused} == {AdmissionRefusal.NOT_ALLOWED}
    assert not access.demands_identity
    assert not access.refuses_identity(OTHER, NOW)


def test_both_kinds_demand_both():
    """NODE-ACCESS: each kind narrows its own."""
    access = access_of(allow=["192.0.2.0/24", FRIEND.hex()])

    assert access.refuses_address("203.0.113.1", NOW) is AdmissionRefusal.NOT_ALLOWED
    assert access.refuses_identity(OTHER, NOW)


def test_deny_wins_over_allow_and_a_ban_over_both():
    """The refusal is that of the strongest list."""
    access = access_of(
        allow=["192.0.2.0/24", FRIEND.hex(), OTHER.hex()],
        deny=["192.0.2.128/25", OTHER.hex()],
        bans=["address:192.0.2.129", f"id:{FRIEND.hex()}"],
    )

    assert access.refuses_address("192.0.2.1", NOW) is None
    assert access.refuses_address("192.0.2.130", NOW) is AdmissionRefusal.DENIED
    assert access.refuses_address("192.0.2.129", NOW) is AdmissionRefusal.ADDRESS_BANNED
    assert access.refuses_identity(OTHER, NOW)
    assert access.refuses_identity(FRIEND, NOW)


def test_address_key_is_judged_as_the_address():
    """What a connection is counted under finds the same networks as its address."""
    access = access_of(deny=["2001:db8:7::/48", "203.0.113.9"])

    assert access.refuses_address("2001:db8:7:1::/64", NOW) is AdmissionRefusal.DENIED
    assert access.refuses_address("203.0.113.9", NOW) is AdmissionRefusal.DENIED
    assert access.refuses_address("2001:db8:8::/64", NOW) is None


def test_ipv6_address_stands_for_its_household():
    """One /64 is one household, in lists as in bans and ceilings."""
    access = access_of(deny=["2001:db8::5"])

    assert access.refuses_address("2001:db8::6", NOW) is AdmissionRefusal.DENIED


def test_did_of_another_method_is_compared_as_text():
    """Strata alone knows such identities."""
    access = access_of(allow=[OF_ANOTHER_METHOD], unlimited=[OF_ANOTHER_METHOD])

    assert access.admits_did(OF_ANOTHER_METHOD)
    assert not access.admits_did("did:web:example.net")
    assert access.is_unlimited(OF_ANOTHER_METHOD.encode())


@pytest.mark.parametrize("name", ["allow", "deny", "unlimited"])
def test_mistakes_name_their_list(name):
    """The text begins with the list and says what an entry may be."""
    with pytest.raises(LocalError, match=f"^{name}: 'bob' is neither"):
        parse_access(**{"allow": [], "deny": [], "unlimited": []} | {name: ["bob"]})


@pytest.mark.parametrize("text", ["192.0.2.0/24", "192.0.2.7"])
def test_addresses_are_never_unlimited(text):
    """Nothing proves who is behind an address."""
    with pytest.raises(LocalError, match=r"^unlimited: an address proves nobody"):
        parse_access([], [], [text])


def test_bans_and_lists_count_at_once():
    """A change needs no new object."""
    listed = BanList(MemoryStore())
    access = Access(listed)
    listed.add(Ban("network:203.0.113.0/24", "abuse", NOW, NOW + 5))
    during, after = (access.refuses_address("203.0.113.77", NOW + late) for late in (4, 5))
    access.use(parse_access([], ["192.0.2.1"], []))

    assert (during, after) == (AdmissionRefusal.ADDRESS_BANNED, None)
    assert access.refuses_address("192.0.2.1", NOW) is AdmissionRefusal.DENIED


@pytest.mark.parametrize("subject", ["address:192.0.2.1", "network:192.0.2.0/24"])
def test_banned_address_loses_the_connections_that_it_has(subject):
    """Each with the refusal of the ban, at once; other addresses keep theirs."""
    rig = Rig()
    peers = [rig.connect() for _ in range(2)]
    other = rig.connect("198.51.100.1")
    rig.bans.add(Ban(subject, "abuse", WALL, None))
    rig.node.review(WALL, rig.now)
    rig.settle()

    assert rig.closed == dict.fromkeys(peers, AdmissionRefusal.ADDRESS_BANNED)
    assert rig.admission.total == 1
    assert rig.recorder.totals()["refusals"] == {("bhumi", "address_banned"): 2}
    assert other not in rig.closed
    assert rig.node.sizes()["bhumi"]["connections"] == 1


@pytest.mark.parametrize("subject", ["address:203.0.113.9", f"id:{OTHER.hex()}", "network:192.0.2.0/24"])
def test_ban_is_announced_to_nobody(subject):
    """Who is banned loses its connections; no other peer gets a byte about it, and none is dialled."""
    rig = Rig()
    banned, other = rig.connect(), rig.connect("198.51.100.1")
    rig.settle()
    rig.bans.add(Ban(subject, "abuse", WALL, None))
    rig.node.review(WALL, rig.now)
    effects = [effect for _, effects in rig.node.take(rig.now) for effect in effects]

    assert all(isinstance(effect, Close) and effect.peer == banned for effect in effects)
    assert other not in rig.closed


def test_address_that_is_banned_in_its_handshake_gets_no_further():
    """What was opened before the ban is closed as soon as it stands."""
    rig = Rig()
    assert rig.node.open("bhumi", "192.0.2.1", WALL, rig.now)
    rig.bans.add(Ban("address:192.0.2.1", "abuse", WALL, None))
    rig.node.review(WALL, rig.now)
    peer = rig.node.connect("bhumi", "192.0.2.1", rig.now)
    rig.settle()

    assert rig.closed == {peer: AdmissionRefusal.ADDRESS_BANNED}
    assert rig.admission.total == 0


def test_exempt_identity_leaves_its_place_under_the_address():
    """Others of its address have all 64, and its own connection ends as any other."""
    rig = Rig()
    rig.node._access.use(parse_access([], [], [ALICE.public.hex()]))
    peers = [rig.connect() for _ in range(64)]
    nonce = int.from_bytes(rig.hear(peers[0])[7:11], "big")
    rig.say(peers[0], wire.encode(i_am(ALICE, nonce, ())))
    further = rig.connect()
    refused = not rig.node.open("bhumi", "192.0.2.1", WALL, rig.now)
    for peer in (*peers, further):
        rig.node.disconnect(peer, rig.now)

    assert refused
    assert (rig.admission.total, rig.admission._counts) == (0, {})
