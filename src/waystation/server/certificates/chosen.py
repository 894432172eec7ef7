"""Which listeners speak TLS, and which files of a certificate and its key each of them shows.

Given the configuration and the home, it returns paths for ``in_force``, which loads them, and for the checks and
reports of the operator.
"""

from waystation.server.config.values import Config
from waystation.server.home import Home, TlsFiles
from waystation.server.registry import protocol_table, protocol_tables

__all__ = ["certificate_files", "certificate_setting", "tls_listeners"]


def tls_listeners(config: Config) -> dict[str, str]:
    """Return the table whose certificate it shows for each listener that speaks TLS, by the setting of its address."""
    found: dict[str, str] = {}
    for table in protocol_tables():
        listen = config.of(table.listen)
        if listen.enabled:
            found |= {f"{table.name}.{name}": table.name for name in table.tls_listeners(listen)}
        port = table.web_port(config)
        if port is not None and port.tls:
            found[f"{port.table}.ws"] = port.table
    return found


def certificate_files(config: Config, home: Home, table: str) -> TlsFiles:
    """Return the certificate of a protocol's TLS listeners: that of its table, else of ``[node]``, else of the home."""
    named = (config.of(protocol_table(table).listen), config.node)
    cert, key = next(((part.cert, part.key) for part in named if part.cert), ("", ""))
    return home.tls_files(cert, key)


def certificate_setting(config: Config, table: str) -> str:
    """Return the setting that names the certificate of a table, "" where it is the home's."""
    return f"{table}.cert" if config.of(protocol_table(table).listen).cert else "node.cert" if config.node.cert else ""
