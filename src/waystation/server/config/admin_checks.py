"""Checks the settings of ``[admin]``: hosts are names without scheme and port.

``config.load`` calls it with ``admin.hosts``, the names that requests to the admin port may ask for.
"""

from collections.abc import Sequence
from typing import Final

from waystation.core.addresses import is_dns_name, is_ip
from waystation.core.errors import LocalError

__all__ = ["HOSTS_MAX", "check_hosts"]

HOSTS_MAX: Final = 64


def check_hosts(names: Sequence[str]) -> None:
    """Check ``admin.hosts``.

    Raises:
        LocalError: An entry is no name, or there are too many; begins with the name of the setting.
    """
    if len(names) > HOSTS_MAX:
        raise LocalError(f"hosts has {len(names)} entries, at most {HOSTS_MAX} are allowed")
    for name in names:
        if not (is_dns_name(name) or (is_ip(name) and "%" not in name)):
            raise LocalError(
                f"hosts: {name!r} is no host; allowed: a DNS name or an IP address, without scheme, port and brackets"
            )
