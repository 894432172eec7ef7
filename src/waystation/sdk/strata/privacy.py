"""Privacy notices that a user must see, and the fallback of a privacy profile that cannot be met.

``waystation strata`` shows it once. Strata hides nothing from relays; no program may claim that it does. Spec: RFC-0004
5.3, RFC-0300; specs/strata.md 19.
"""

from pathlib import Path
from typing import Final

from waystation.core.errors import HostError

__all__ = ["METADATA_NOTICE", "notice_once"]

METADATA_NOTICE: Final = """\
Strata does not hide who talks to whom. A relay that you use, and whoever watches the network, can see:
  - the address you connect from (or your proxy's),
  - what you subscribe to: authors, types, times, limits,
  - each packet's id, author, time and type, also when its content is encrypted,
  - how large packets are, and when you send and receive them,
  - when you log in at a relay, and when it limits you.
A private network path, several relays and separate identities make this less; nothing makes it go away."""
"""The notice that RFC-0004 5.3 asks clients to show."""

_SHOWN: Final = "metadata-notice-shown"


def notice_once(home: Path) -> str | None:
    """Return the notice the first time it is asked for with this folder, None later.

    Raises:
        HostError: The folder cannot be written.
    """
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (home / _SHOWN).touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        return None
    except OSError as error:
        raise HostError(f"cannot use {home}: {error.strerror}", exit_code=4) from error
    return METADATA_NOTICE
