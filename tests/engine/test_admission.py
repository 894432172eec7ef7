"""Laws of engine.admission."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.engine.admission import (
    ADDRESSLESS_MAX,
    CONNECTIONS_MAX,
    HANDSHAKES_MAX,
    HANDSHAKES_PER_ADDRESS_MAX,
    PER_ADDRESS_MAX,
    Admission,
    AdmissionRefusal,
    Handshakes,
    address_key,
)


def test_ceilings_are_those_of_the_digest():
    """10 000 in all, 64 an address, 256 without one (section 4)."""
    assert (CONNECTIONS_MAX, PER_ADDRESS_MAX, ADDRESSLESS_MAX) == (10_000, 64, 256)


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
    refused = [handshakes.begin("192.0.2.1") for _ in range(HANDSHAKES_PER_ADDRESS_MAX + 1)]
    other = handshakes.begin("192.0.2.2")
    handshakes.end("192.0.2.1")

    assert refused == [None] * HANDSHAKES_PER_ADDRESS_MAX + [AdmissionRefusal.ADDRESS_HANDSHAKES_FULL]
    assert other is None
    assert handshakes.begin("192.0.2.1") is None


@pytest.mark.parametrize("per_address", [True, False])
def test_pool_of_handshakes_is_bounded_whoever_begins_them(per_address):
    """256 are the end for everybody, with and without rate limits (BHUMI-POOL)."""
    handshakes = Handshakes(per_address=per_address)
    for number in range(HANDSHAKES_MAX):
        assert handshakes.begin(f"198.51.100.{number}") is None

    assert handshakes.begin("203.0.113.1") is AdmissionRefusal.HANDSHAKES_FULL
    assert handshakes.total == HANDSHAKES_MAX


def test_ceilings_can_be_others():
    """A smaller place has smaller ones, on the total and on each address."""
    admission = Admission(connections_max=3, per_address_max=2)
    fill(admission, "192.0.2.1", 2)
    second = admission.admit("192.0.2.1")
    fill(admission, "192.0.2.2", 1)
    third = admission.admit("192.0.2.3")

    assert (second, third) == (AdmissionRefusal.ADDRESS_FULL, AdmissionRefusal.FULL)
