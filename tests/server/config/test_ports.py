"""Laws of server.config.ports."""

import pytest

from tests.server.build_node import configured
from waystation.core.errors import ConfigError
from waystation.server.config.ports import named_listeners


def test_listeners_that_are_on_are_named(tmp_path):
    """By their settings; a shared web port once, and nothing that is off."""
    config = configured(tmp_path, merk__ws="127.0.0.1:9", strata__ws="127.0.0.1:9", lprp__udp="127.0.0.1:9")

    assert named_listeners(config).keys() == {"bhumi.plain", "lprp.udp", "merk.ws"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"bhumi__tls": "127.0.0.1:9911"}, {"merk__ws": "127.0.0.1:9911"}),
        ({"bhumi__tls": "*:9911"}, {"bsp__tls": "127.0.0.1:9911"}),
        ({"bsp__tls": "0.0.0.0:9911"}, {"admin__listen": "127.0.0.1:9911"}),
    ],
)
def test_two_listeners_of_one_port_are_refused(tmp_path, one, other):
    """Both settings are named; the system would say that the port is taken, as if by another program."""
    with pytest.raises(ConfigError, match=r"want one port") as caught:
        configured(tmp_path, **one, **other)
    for name in (*one, *other):
        assert name.replace("__", ".") in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"merk__ws": "127.0.0.1:9911", "strata__ws": "127.0.0.1:9911"},
        {"bhumi__tls": "127.0.0.1:9911", "lprp__udp": "127.0.0.1:9911"},
        {"bhumi__tls": "127.0.0.1:9911", "bsp__tls": "127.0.0.2:9911"},
        {"bhumi__tls": "127.0.0.1:0", "bsp__tls": "127.0.0.1:0"},
        {"bhumi__tls": "127.0.0.1:9911", "bsp__tls": "127.0.0.1:9911", "bsp__enabled": "false"},
    ],
)
def test_ports_that_may_be_alike_are_allowed(tmp_path, settings):
    """A shared web port, UDP beside TCP, other addresses, port 0, and what is off."""
    assert configured(tmp_path, **settings)
