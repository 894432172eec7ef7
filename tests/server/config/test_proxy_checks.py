"""Laws of server.config.proxy_checks; tests/server/proxies/test_rules.py has what a bad file gets."""

from waystation.server.config.proxy_checks import tcp_listeners
from waystation.server.registry import protocol_tables


def test_tcp_listeners_are_all_addresses_but_those_of_datagrams():
    """Every protocol's listener of connections may stand behind a proxy."""
    names = [name for table in protocol_tables() for name in tcp_listeners(table.name, table.listen)]

    assert {"bhumi.tls", "bsp.tls", "bsp.box", "merk.ws", "strata.ws"} <= set(names)
    assert "lprp.udp" not in names
