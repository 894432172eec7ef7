"""Finds the WebSocket ports of a configuration, and checks that protocols with the same address can share one.

``config.load`` checks, and ``server.listeners`` opens the groups that ``shared_web_ports`` returns.
"""

from itertools import combinations

from waystation.server.certificates.chosen import certificate_files
from waystation.server.config.protocol_table import WebPort
from waystation.server.config.values import Config
from waystation.server.home import Home
from waystation.server.registry import protocol_tables
from waystation.transport.addresses import EVERY_ADDRESS

__all__ = ["carried_paths", "check_web_ports", "shared_web_ports"]


def shared_web_ports(config: Config) -> list[list[WebPort]]:
    """Return the web ports that are on, those of one address together; port 0 is a port of its own."""
    groups: dict[object, list[WebPort]] = {}
    for table in protocol_tables():
        port = table.web_port(config)
        if port is not None:
            groups.setdefault(port.address if port.address.port else port.table, []).append(port)
    return list(groups.values())


def carried_paths(config: Config, port: WebPort) -> dict[str, str]:
    """Return the paths that other protocols take on a web port, by their table."""
    paths = {table.name: table.carried_path(config, port) for table in protocol_tables()}
    return {name: path for name, path in paths.items() if path}


def check_web_ports(config: Config) -> None:
    """Check that no two protocols claim one path, and that those of one port agree on TLS.

    Raises:
        ConfigError: They do not; names the setting.
    """
    groups = shared_web_ports(config)
    for group in groups:
        for first, second in combinations(group, 2):
            _check_pair(config, first, second)
    for first, second in combinations([group[0] for group in groups], 2):
        _check_apart(config, first, second)
    for port in (port for group in groups for port in group):
        for name, path in carried_paths(config, port).items():
            if path in port.paths:
                raise config.origin(f"{name}.path", *port.path_settings).refuse(
                    f"{name}.path = {path!r} is a path of [{port.table}] too, whose port carries {name}+wss"
                )


def _check_apart(config: Config, first: WebPort, second: WebPort) -> None:
    """Check that no port number is one of every address and of one address, which the system refuses (NODE-DUAL)."""
    one, other = first.address, second.address
    if one.port and one.port == other.port and EVERY_ADDRESS in (one.host, other.host):
        named = (f"{first.table}.ws", f"{second.table}.ws")
        raise config.origin(*named).refuse(
            f"{named[0]} = {one} and {named[1]} = {other} are two addresses of one port; write the same in both, "
            f"such as --set {named[0]}={one} --set {named[1]}={one}, or give one of them a port of its own"
        )


def _check_pair(config: Config, first: WebPort, second: WebPort) -> None:
    one, other, address = first.table, second.table, first.address
    for path in second.paths:
        if path in first.paths:
            settings = (*second.path_settings, *first.path_settings)
            raise config.origin(*settings).refuse(
                f"{settings[0]} = {path!r} is a path of [{one}] too, and both listen on {address}"
            )
    home = Home(config.node.home)
    files = [certificate_files(config, home, table) for table in (one, other)]
    if first.tls != second.tls or files[0] != files[1]:
        named = [f"{table}.{key}" for table in (one, other) for key in ("tls", "cert", "key")]
        raise config.origin(*named).refuse(
            f"{one} and {other} both listen on {address}, so tls, cert and key must be the same in both tables, "
            f"such as --set {one}.tls=true --set {other}.tls=true; or give one of them a port of its own, such as "
            f"--set {one}.ws='*:8082'"
        )
