"""Laws of protocols.lprp.settings."""

import dataclasses

import pytest

from waystation.core.errors import LocalError
from waystation.core.settings import check
from waystation.protocols.lprp.settings import BITS_MAX, LprpSettings


def test_defaults_are_those_of_the_digest():
    """specs/lprp.md 5, 7 and 8: big-endian, leases of 2**29 ms, five tries two seconds apart, work of 16, 20 and 16."""
    assert dataclasses.asdict(LprpSettings()) == {
        "byte_order": "big",
        "pow_base_bits_relay": 16,
        "pow_base_bits_lease": 20,
        "pow_base_bits_whitelist": 16,
        "pow_adaptive": True,
        "retry_ms": 2_000,
        "retries": 5,
        "lease_ms": 2**29,
        "tenants_max": 65_536,
        "leases": "open",
        "rebind_on_relay": False,
    }
    assert BITS_MAX == 26


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(LprpSettings)])
def test_defaults_pass_their_own_check(field):
    """What we ship is allowed."""
    check(LprpSettings, field, getattr(LprpSettings(), field))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("byte_order", "little"),
        ("pow_base_bits_relay", 0),
        ("pow_base_bits_lease", 26),
        ("pow_base_bits_whitelist", 8),
        ("pow_adaptive", False),
        ("retry_ms", 100),
        ("retries", 3),
        ("tenants_max", 0),
        ("leases", "closed"),
        ("rebind_on_relay", True),
    ],
)
def test_values_that_the_digest_names_are_allowed(field, value):
    """Work of 8 bits, c1 of 100 ms, c2 of 3, and a table of none that makes 404 reachable (specs/lprp.md 8 to 10)."""
    check(LprpSettings, field, value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("byte_order", "middle"),
        ("pow_base_bits_relay", 27),
        ("pow_base_bits_lease", -1),
        ("pow_base_bits_whitelist", True),
        ("pow_adaptive", 1),
        ("retry_ms", 9),
        ("retries", 0),
        ("lease_ms", 999),
        ("tenants_max", -1),
        ("leases", "half"),
        ("rebind_on_relay", "no"),
    ],
)
def test_values_outside_are_refused(field, value):
    """A bound that is declared holds."""
    with pytest.raises(LocalError, match="allowed"):
        check(LprpSettings, field, value)
