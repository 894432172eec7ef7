"""Checks that several protocols' tables share; each raises ConfigError with the source of the bad value.

Each ``server/<protocol>/tables.py`` calls them with the loaded configuration.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from waystation.core.errors import LocalError
from waystation.server.config.settings import Address
from waystation.server.config.values import Config

__all__ = ["check_path", "check_plain", "check_tls_files", "run_checks"]

_PATH: Final = re.compile(r"/[!-\"$->@-~]*")


def run_checks(config: Config, table: str, checks: Mapping[str, Callable[[], object]]) -> None:
    """Run what reads the values of a table, by key; each may raise LocalError, whose text begins with its key."""
    for name, check in checks.items():
        try:
            check()
        except LocalError as error:
            raise config.origin(f"{table}.{name}").refuse(f"{table}.{error}") from error


def check_plain(config: Config, name: str, address: Address | None) -> None:
    """Check that a listener without encryption is reached from this machine only."""
    if address is not None and not address.is_loopback:
        raise config.origin(name).refuse(
            f'{name} = "{address}" carries no encryption, so it takes only a loopback address; '
            'allowed: 127.0.0.1:port, [::1]:port, localhost:port, or "" for off'
        )


def check_tls_files(config: Config, table: str, listen: Any) -> None:
    """Check that certificate and key are named together."""
    if bool(listen.cert) != bool(listen.key):
        given = f"{table}.cert" if listen.cert else f"{table}.key"
        raise config.origin(given).refuse(f"{table}.cert and {table}.key come together: give both, or neither")


def check_path(config: Config, name: str, path: str) -> None:
    """Check that a text is the path of a URL."""
    if not _PATH.fullmatch(path):
        raise config.origin(name).refuse(
            f"{name} = {path!r} is no path; allowed: text that begins with a slash, of printable ASCII characters "
            "without ? and #"
        )
