"""Finds the node of the folder that a command runs in, with the ports that it really has.

A client that is given no relay and remembers none takes this node. Its home is ``./waystation``, or that of
``WAYSTATION_NODE__HOME``. A home that cannot be read, or whose node does not run, is no node.
"""

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from waystation.core.errors import HostError
from waystation.core.ids import PublicKey

if TYPE_CHECKING:
    from waystation.server.home import Home

__all__ = ["local_home", "local_key", "local_url"]

_HOME: Final = Path("waystation")  # what `waystation serve` makes in the folder it runs in
_HOME_VARIABLE: Final = "WAYSTATION_NODE__HOME"


def local_home() -> Path:
    """Return the home that a node of this folder has, whether or not there is one."""
    return Path(os.environ.get(_HOME_VARIABLE) or _HOME)


def local_key() -> PublicKey | None:
    """Return the key of the node that has its home in this folder, running or not; None without one."""
    path = local_home() / "node.key"
    if not path.exists():
        return None
    from waystation.crypto.signing import SEED_BYTES, KeyPair  # noqa: PLC0415 - most commands end above

    with contextlib.suppress(OSError, ValueError):
        seed = bytes.fromhex(path.read_text().strip())
        if len(seed) == SEED_BYTES:
            return KeyPair.from_seed(seed).public
    return None


def local_url(*listeners: str) -> str | None:
    """Return where the first of these listeners is reached that the node of this folder has, None without one.

    Args:
        listeners: As the ready line names them, such as "bhumi" and then "bhumi_plain".
    """
    path = local_home()
    if not (path / "running.json").is_file():
        return None  # most commands end here, and have loaded nothing of the server
    from waystation.server.home import Home  # noqa: PLC0415 - as above

    urls = _urls(Home(path))
    return next((_reached(urls[name]) for name in listeners if name in urls), None)


def _urls(home: "Home") -> dict[str, str]:
    from waystation.server.http.running import read_running  # noqa: PLC0415 - as above

    try:
        running = read_running(home) if home.locked_by() is not None else None
    except HostError:
        return {}
    return dict(running.urls) if running is not None else {}


def _reached(url: str) -> str:
    """Return the address at which a listener of this machine is reached that listens at every address."""
    from waystation.transport.addresses import reached_host  # noqa: PLC0415 - as above

    parts = urlsplit(url)
    host = reached_host(parts.hostname or "")
    if host == parts.hostname:
        return url
    return parts._replace(netloc=f"[{host}]:{parts.port}" if ":" in host else f"{host}:{parts.port}").geturl()
