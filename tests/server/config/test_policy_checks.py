"""Laws of server.policy_checks: what [policy] may say."""

import pytest

from waystation.core.dids import encode_did
from waystation.core.errors import ConfigError, LocalError
from waystation.core.ids import encode_id52
from waystation.server.config.load import load_config
from waystation.server.config.policy_checks import check_allowed, check_policy_key

KEY = bytes(range(32))


def test_good_values_pass():
    """No key, a key; nobody, and everybody that can be named."""
    check_policy_key("")
    check_policy_key(KEY.hex())
    check_allowed([])
    check_allowed([KEY.hex(), encode_id52(KEY), encode_did(KEY), "did:web:example.org", "192.0.2.1", "2001:db8::1"])


def test_bad_values_name_their_key():
    """What is neither a key nor a name is refused in words."""
    with pytest.raises(LocalError, match=r"^key: not a key in hexadecimal: 'x'; allowed: 64 hexadecimal digits"):
        check_policy_key("x")
    with pytest.raises(LocalError, match=r"^allow: 'somebody' is neither an IP address"):
        check_allowed(["192.0.2.1", "somebody"])


def test_configuration_refuses_them_where_they_came_from():
    """The place is named."""
    with pytest.raises(ConfigError, match=r"^flag policy\.allow: policy\.allow: 'x' is neither"):
        load_config(None, {}, {"policy.allow": "x"})
    with pytest.raises(ConfigError, match=r"^flag policy\.key: policy\.key: "):
        load_config(None, {}, {"policy.key": "00"})
