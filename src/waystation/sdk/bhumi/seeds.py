"""The relays that a participant begins with where neither program, invitation nor home names one (BHUMI-SEEDS).

Ours is an empty list: nobody is sent to a relay that they have not chosen. Who ships a program or a home puts a file
beside its key, or names one in the environment.
"""

import json
import os
from pathlib import Path
from typing import Final

from waystation.core.errors import LocalError
from waystation.transport.dial import RelayUrl

__all__ = ["SEEDS", "SEEDS_FILE", "SEEDS_MAX", "SEEDS_VARIABLE", "seed_relays"]

SEEDS: Final[tuple[str, ...]] = ()
"""What this SDK ships."""
SEEDS_FILE: Final = "relays.json"
"""In the folder of an identity: a JSON array of addresses, the preferred one first."""
SEEDS_VARIABLE: Final = "WAYSTATION_BHUMI_SEEDS"
"""Environment variable: path of such a file, for all identities; the one in a folder wins."""
SEEDS_MAX: Final = 64
_BYTES_MAX: Final = 65_536


def seed_relays(home: Path) -> list[str]:
    """Return the seed relays of an identity in their full spelling; none unless somebody has shipped some.

    Raises:
        LocalError: There is a list that cannot be read, or it is none of at most 64 addresses.
    """
    place = home / SEEDS_FILE
    named = os.environ.get(SEEDS_VARIABLE, "")
    path = place if place.exists() or not named else Path(named)
    if not path.exists() and not named:
        return list(SEEDS)
    try:
        with path.open("rb") as file:
            listed = json.loads(file.read(_BYTES_MAX + 1))
    except (OSError, ValueError) as error:
        raise LocalError(f"the seed relays in {path} cannot be read: {error}") from error
    if not isinstance(listed, list) or len(listed) > SEEDS_MAX or not all(isinstance(each, str) for each in listed):
        raise LocalError(f'{path} is no list of at most {SEEDS_MAX} relays, as ["tls://relay.example:8443"]')
    try:
        return [str(RelayUrl.parse(each)) for each in listed]
    except LocalError as error:
        raise LocalError(f"{path}: {error}") from error
