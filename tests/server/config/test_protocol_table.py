"""Laws of server.config.protocol_table: what a table has that declares nothing but its settings."""

from waystation.server.config.load import load_config
from waystation.server.config.protocol_table import ProtocolTable
from waystation.server.config.settings import LimitSettings, NodeSettings
from waystation.server.config.web_ports import shared_web_ports


def test_plain_table_has_no_web_port_and_is_no_guest():
    """A protocol over bare connections names neither."""
    config = load_config(None, {}, {})
    table = ProtocolTable("x", NodeSettings, LimitSettings, lambda _config: None)

    assert table.web_port(config) is None
    assert table.carried_path(config, shared_web_ports(config)[0][0]) == ""
