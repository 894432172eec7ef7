"""Laws of transport.proxies: a client that is no trusted proxy cannot name an address, its own or another's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.core.network_set import parse_network
from waystation.transport.proxies import FORWARDED, HOPS_MAX, X_FORWARDED_FOR, Proxies

PROXY, INNER, CLIENT = "127.0.0.1", "10.0.0.2", "203.0.113.7"
NETWORKS = [parse_network("127.0.0.1"), parse_network("10.0.0.0/8")]
X, F = Proxies(NETWORKS, X_FORWARDED_FOR), Proxies(NETWORKS, FORWARDED)


@pytest.mark.parametrize(
    ("values", "client"),
    [
        ([CLIENT], CLIENT),
        ([f"198.51.100.1, {CLIENT}"], CLIENT),
        ([f"198.51.100.1, {CLIENT}, {INNER}"], CLIENT),
        ([f"198.51.100.1, {CLIENT}", INNER], CLIENT),
        ([f"{CLIENT}:4711"], CLIENT),
        (["2001:DB8::7"], "2001:db8::7"),
        (["[2001:db8::7]:4711"], "2001:db8::7"),
        ([f"::ffff:{CLIENT}"], CLIENT),
        ([f"198.51.100.1, nonsense, {INNER}"], INNER),
        ([f"{CLIENT}, "], PROXY),
        (["unknown"], PROXY),
        (["fe80::1%eth0"], PROXY),
        ([], PROXY),
        ([f"{CLIENT}, " + ", ".join([INNER] * HOPS_MAX)], INNER),
    ],
)
def test_client_is_the_rightmost_address_that_is_no_proxy(values, client):
    """What stands further left was sent by that client, who may write anything there."""
    assert X.client_of(PROXY, values) == client


@pytest.mark.parametrize(
    ("values", "client"),
    [
        ([f"for={CLIENT}"], CLIENT),
        ([f'For="{CLIENT}:4711";proto=https;by=10.0.0.2'], CLIENT),
        (['proto=https; FOR="[2001:db8::7]:4711"'], "2001:db8::7"),
        ([f"for=198.51.100.1, for={CLIENT}", f"for={INNER}"], CLIENT),
        ([f'for="198.51.100.1, for={CLIENT}'], CLIENT),
        (["for=unknown"], PROXY),
        (["for=_hidden"], PROXY),
        ([f"for={CLIENT};for=198.51.100.1"], PROXY),
        ([f"by={CLIENT}"], PROXY),
        ([f"xfor={CLIENT}"], PROXY),
    ],
)
def test_client_of_the_standard_header(values, client):
    """RFC 7239: an element has one for, quoted or not, among its other pairs."""
    assert F.client_of(PROXY, values) == client


@given(st.lists(st.text(max_size=60), max_size=4), st.sampled_from([X, F]))
def test_client_that_is_no_proxy_cannot_name_an_address(values, proxies):
    """Whatever header it sends, it is the address that its connection comes from."""
    assert proxies.client_of(CLIENT, [*values, "198.51.100.1", "for=198.51.100.1"]) == CLIENT


@given(st.text(max_size=200))
def test_client_behind_a_proxy_cannot_name_an_address(sent):
    """What it sends stands to the left of what the proxy appends."""
    assert X.client_of(PROXY, [f"{sent}, {CLIENT}"]) == CLIENT
    assert F.client_of(PROXY, [f"{sent}, for={CLIENT}"]) == CLIENT


def test_nobody_is_trusted_by_default():
    """Without the setting a header changes nothing, also from this very machine."""
    assert Proxies().client_of(PROXY, [CLIENT]) == PROXY
    assert not Proxies().trusts(PROXY)


def test_long_list_is_cut_at_its_left():
    """A client may send a megabyte; its right end decides."""
    assert X.client_of(PROXY, ["1.2.3.4," * 100_000 + CLIENT]) == CLIENT
