"""Laws of server.lprp.tables: what ``[lprp]`` refuses, and where the refusal points."""

import pytest

from waystation.core.errors import ConfigError
from waystation.protocols.lprp.settings import LprpSettings
from waystation.server.config.load import load_config
from waystation.server.lprp.tables import LprpListenSettings


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("[lprp]\nudp = 4810\n", 2, 'text "host:port"'),
        ('[lprp]\nbyte_order = "middle"\n', 2, 'allowed: one of "big", "little"'),
        ("[lprp]\npow_base_bits_relay = 27\n", 2, "allowed: a whole number from 0 to 26 (bits)"),
    ],
)
def test_bad_table_is_refused_with_its_line(tmp_path, text, line, says):
    """The error begins with file and line and tells what would have been right."""
    path = tmp_path / "node.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path, {}, {})

    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert says in str(caught.value)


def test_lprp_has_a_port_and_rules_of_its_own(tmp_path):
    """Both parts of its table are read; an empty address is off, and the default is the port of the specification."""
    path = tmp_path / "node.toml"
    path.write_text('[lprp]\nudp = "[::]:4811"\nleases = "closed"\n')
    config = load_config(path, {"WAYSTATION_LPRP__POW_BASE_BITS_LEASE": "12"}, {})

    listen, rules = config.of(LprpListenSettings), config.of(LprpSettings)

    assert str(LprpListenSettings().udp) == "*:4810"
    assert (str(listen.udp), rules.leases, rules.pow_base_bits_lease) == ("[::]:4811", "closed", 12)
    assert load_config(path, {}, {"lprp.udp": ""}).of(LprpListenSettings).udp is None
