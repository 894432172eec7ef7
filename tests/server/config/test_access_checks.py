"""Laws of server.config.access_checks."""

import pytest

from tests.server.build import key_pair
from waystation.core.errors import ConfigError
from waystation.core.ids import encode_id52
from waystation.server.config.access_checks import access_rules
from waystation.server.config.load import load_config

KEY = key_pair().public


def test_lists_are_read_in_every_spelling():
    """As a flag has them: an array, or texts joined by commas."""
    flags = {"access.allow": f'["{encode_id52(KEY)}", "192.0.2.0/24"]', "access.deny": f"{KEY.hex()},2001:db8::1"}
    rules = access_rules(load_config(None, {}, flags).access)

    assert rules.allow.identities == rules.deny.identities == {KEY}
    assert [str(network) for network in rules.allow.networks] == ["192.0.2.0/24"]
    assert [str(network) for network in rules.deny.networks] == ["2001:db8::/64"]


@pytest.mark.parametrize("name", ["allow", "deny", "unlimited"])
def test_mistake_names_setting_and_place(tmp_path, name):
    """File and line, and what is allowed."""
    file = tmp_path / "node.toml"
    file.write_text(f'[access]\n{name} = ["bob"]\n')
    with pytest.raises(ConfigError, match=f"access.{name}: 'bob' is neither an IP address, nor a network") as caught:
        load_config(file, {}, {})

    assert (caught.value.origin, caught.value.line) == (str(file), 2)


def test_addresses_are_never_unlimited():
    """Nothing proves who is behind one."""
    with pytest.raises(ConfigError, match=r"access.unlimited: an address proves nobody"):
        load_config(None, {}, {"access.unlimited": "192.0.2.1"})
