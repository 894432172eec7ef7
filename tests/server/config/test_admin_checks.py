"""Laws of server.config.admin_checks."""

import pytest

from waystation.core.errors import ConfigError, LocalError
from waystation.server.config.admin_checks import HOSTS_MAX, check_hosts
from waystation.server.config.load import load_config


def test_names_and_addresses_are_hosts():
    """As a browser shows them, without port."""
    check_hosts(["admin.example.org", "ADMIN", "192.0.2.1", "2001:db8::1", "a_b.c"])


@pytest.mark.parametrize(
    "name", ["", "a:80", "[::1]", "http://a", "a/b", "a b", "*.a", "a.", ".a", "fe80::1%lo", "u@a", "a" * 64, "é"]
)
def test_what_is_no_host_is_refused(name):
    """The sentence has the entry and what is allowed."""
    with pytest.raises(LocalError, match=r"^hosts: .* is no host; allowed: a DNS name or an IP address"):
        check_hosts([name])


def test_list_has_a_longest_length():
    """Each request is compared with all of them."""
    check_hosts(["a"] * HOSTS_MAX)
    with pytest.raises(LocalError, match="at most 64"):
        check_hosts(["a"] * (HOSTS_MAX + 1))


def test_configuration_is_refused_where_the_entry_stands(tmp_path):
    """With file and line."""
    path = tmp_path / "node.toml"
    path.write_text('[admin]\nhosts = ["http://a"]\n')
    with pytest.raises(ConfigError, match=r"node.toml:2: admin.hosts: 'http://a' is no host"):
        load_config(path, {}, {})
