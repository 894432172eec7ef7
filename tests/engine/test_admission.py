"""Laws of engine.admission."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.core.settings import InForce
from waystation.engine.admission import (
    DEFAULT_LIMITS,
    KNOWN_MAX,
    Admission,
    AdmissionLimits,
    AdmissionRefusal,
    Handshakes,
    address_key,
)


def test_ceilings_are_those_of_the_digest():
    """10 000 in all, 64 an address, 256 without one (section 4)."""
    limits = DEFAULT_LIMITS
    assert (limits.connections, limits.connections_per_address, limits.connections_addressless) == (10_000, 64, 256)
    assert (limits.handshakes, limits.handshakes_per_address) == (256, 16)


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:DB8:1:2::9", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::9", "2001:db8:1:3::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("unix socket", ""),
        ("192.0.2.256", ""),
    ],
)
def test_address_is_counted_by_who_can_have_it(host, key):
    """An IPv4 address counts alone, an IPv6 one by its /64, a mapped one as the IPv4 that it is."""
    assert address_key(host) == key


def fill(admission, key, count):
    """Admit ``count`` connections of one key."""
    assert [admission.admit(key) for _ in range(count)] == [None] * count


def test_one_address_has_64_connections():
    """The 65th is refused, another address is not, and a release gives room."""
    admission = Admission()
    fill(admission, "192.0.2.1", 64)
    refused = admission.admit("192.0.2.1")
    other = admission.admit("192.0.2.2")
    admission.release("192.0.2.1")

    assert (refused, other) == (AdmissionRefusal.ADDRESS_FULL, None)
    assert admission.admit("192.0.2.1") is None
    assert admission.total == 65


def test_connections_without_an_address_share_one_pool():
    """256, then no more; those with an address are not concerned."""
    admission = Admission()
    fill(admission, "", 256)

    assert admission.admit("") is AdmissionRefusal.ADDRESSLESS_FULL
    assert admission.admit("192.0.2.1") is None


@pytest.mark.parametrize("per_address", [True, False])
def test_total_holds_whatever_is_lifted(per_address):
    """10 000 is a table limit, and stays without rate limits (BHUMI-C6)."""
    admission = Admission(per_address=per_address)
    for number in range(10_000):
        assert admission.admit(f"10.0.{number // 250}.{number % 250}") is None

    assert admission.admit("192.0.2.1") is AdmissionRefusal.FULL


def test_lifted_limits_lift_the_ceilings_per_address():
    """A load test comes from one address, or from none."""
    admission = Admission(per_address=False)
    fill(admission, "192.0.2.1", 1_000)
    fill(admission, "", 1_000)

    assert admission.total == 2_000


@given(st.lists(st.tuples(st.sampled_from(["", "a", "b"]), st.booleans()), max_size=400))
def test_counts_are_those_of_a_plain_list(steps):
    """Whatever comes and goes, the total is who is in, and nothing is kept of who is not."""
    admission, inside = Admission(), []
    for key, comes in steps:
        if comes and admission.admit(key) is None:
            inside.append(key)
        elif not comes and key in inside:
            inside.remove(key)
            admission.release(key)
        assert admission.total == len(inside)
        assert set(admission._counts) == set(inside)


def test_one_address_gets_a_share_of_the_handshakes():
    """16 silent handshakes of one address leave room for others, and one that ended makes room."""
    handshakes = Handshakes()
    refused = [handshakes.begin("192.0.2.1")[0] for _ in range(17)]
    other = handshakes.begin("192.0.2.2")
    handshakes.end("192.0.2.1")

    assert refused == [None] * 16 + [AdmissionRefusal.ADDRESS_HANDSHAKES_FULL]
    assert other == (None, None)
    assert handshakes.begin("192.0.2.1") == (None, None)


def spread(handshakes, count, network="10.{}.0.1"):
    """Begin handshakes, each of a network of its own; return whom they displaced."""
    return [handshakes.begin(network.format(number))[1] for number in range(count)]


@pytest.mark.parametrize("per_address", [True, False])
def test_pool_of_handshakes_is_bounded_whoever_begins_them(per_address):
    """Of unknown addresses 192 are under way at the most, with and without rate limits (BHUMI-POOL)."""
    handshakes = Handshakes(per_address=per_address)
    displaced = spread(handshakes, 192)

    assert displaced == [None] * 192
    assert handshakes.begin("203.0.113.1") == (None, "10.0.0.1")
    assert handshakes.total == 192


def test_largest_network_gives_way_first():
    """Sixteen addresses of one network with silent handshakes do not keep others out (NODE-HANDSHAKES)."""
    handshakes = Handshakes()
    early = handshakes.begin("198.51.100.1")
    for address in range(1, 17):
        for _ in range(12):
            handshakes.begin(f"203.0.113.{address}")
    later = [handshakes.begin(f"192.0.{number}.1")[1] for number in range(13)]

    assert early == (None, None)
    assert later == ["203.0.113.1"] * 11 + ["203.0.113.2"] * 2


def test_known_addresses_keep_a_reserve():
    """Those that completed a handshake before come in whoever else is waiting, and are not displaced by the others."""
    handshakes = Handshakes()
    for number in range(80):
        handshakes.begin(f"192.0.{number}.1")
        handshakes.end(f"192.0.{number}.1", established=True)
    spread(handshakes, 300)
    known = [handshakes.begin(f"192.0.{number}.1")[1] for number in range(64)]
    beyond = [handshakes.begin(f"192.0.{number}.1")[1] for number in range(64, 80)]
    unknown = handshakes.begin("203.0.113.1")

    assert known == [None] * 64
    assert all(each.startswith("10.") for each in [*beyond, unknown[1]])
    assert handshakes.total == 256


def test_unknown_address_is_refused_when_all_are_known():
    """Nobody who is known gives way to somebody who is not."""
    handshakes = Handshakes(InForce(AdmissionLimits(handshakes=16)))
    for number in range(17):
        handshakes.begin(f"192.0.{number}.1")
        handshakes.end(f"192.0.{number}.1", established=True)
    known = [handshakes.begin(f"192.0.{number}.1") for number in range(16)]

    assert known == [(None, None)] * 16
    assert handshakes.begin("203.0.113.1") == (AdmissionRefusal.HANDSHAKES_FULL, None)
    assert handshakes.begin("192.0.16.1") == (None, "192.0.0.1")


def test_known_addresses_are_bounded():
    """The one that completed a handshake longest ago is forgotten."""
    handshakes = Handshakes()
    for number in range(KNOWN_MAX + 1):
        address = f"10.{number // 256}.{number % 256}.1"
        handshakes.begin(address)
        handshakes.end(address, established=True)

    assert next(iter(handshakes._known)) == "10.0.1.1"
    assert len(handshakes._known) == KNOWN_MAX


@given(
    st.lists(st.tuples(st.sampled_from(["begin", "end", "established"]), st.integers(0, 11)), min_size=1, max_size=300)
)
def test_handshakes_are_counted_as_by_a_plain_list(steps):
    """Every begun one ends once, displaced or not; the count is those under way, and nothing is kept of the others."""
    handshakes = Handshakes(InForce(AdmissionLimits(handshakes=16, handshakes_per_address=4)))
    begun = []
    displaced = []
    for what, number in steps:
        address = f"10.{number // 3}.0.{number}"
        if what == "begin":
            refusal, gave_way = handshakes.begin(address)
            if refusal is None:
                begun.append(address)
            if gave_way is not None:
                displaced.append(gave_way)
        elif address in begun:
            begun.remove(address)
            if address in displaced:
                displaced.remove(address)
            handshakes.end(address, established=what == "established")
        assert handshakes.total == len(begun) - len(displaced) <= 16
    for address in begun:
        handshakes.end(address)
    assert handshakes.total == 0
    assert not (handshakes._entries or handshakes._displaced or handshakes._counts)
    assert handshakes._of_known.count == handshakes._of_others.count == 0


def test_ceilings_can_be_others():
    """A smaller place has smaller ones, on the total and on each address."""
    admission = Admission(AdmissionLimits(connections=3, connections_per_address=2))
    fill(admission, "192.0.2.1", 2)
    second = admission.admit("192.0.2.1")
    fill(admission, "192.0.2.2", 1)
    third = admission.admit("192.0.2.3")

    assert (second, third) == (AdmissionRefusal.ADDRESS_FULL, AdmissionRefusal.FULL)


def test_exempt_connection_counts_in_the_total_alone():
    """NODE-ACCESS: it leaves its place under the address to another one, and the total has its ceiling still."""
    admission = Admission(AdmissionLimits(connections=3, connections_per_address=2))
    fill(admission, "192.0.2.1", 2)
    admission.exempt("192.0.2.1")
    fill(admission, "192.0.2.1", 1)
    full = admission.admit("192.0.2.2")
    admission.release("192.0.2.1", is_exempt=True)
    for _ in range(2):
        admission.release("192.0.2.1")

    assert full is AdmissionRefusal.FULL
    assert (admission.total, admission._counts) == (0, {})
