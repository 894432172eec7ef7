"""The folder of one BSP device: its key, its message store, and the user's groups, peers and shares.

``BspPeer`` and ``waystation bsp`` open it. ``bsp.key`` is the identity (32-byte seed in hexadecimal, mode 0600).
``bsp.db`` is a store of the same kind as a node's. It has the messages and flags of ``protocols.bsp.ledger``, and the
tables of ``protocols.bsp.home``, which are the wanted state. A running ``BspPeer`` reads them every second, so other
programs may change them.
"""

import datetime
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from waystation.core.errors import HostError, LocalError
from waystation.core.records import Change
from waystation.crypto.certificates import make_local_certificates
from waystation.protocols.bsp.home.tables import HomeGroup, HomePeer, HomeShare, HomeTables
from waystation.sdk.home_lock import is_held
from waystation.sdk.identity import owner_key
from waystation.sdk.private_database import EXIT_STORE, private_folder
from waystation.sdk.private_file import write_private
from waystation.store.sqlite import SqliteStore

__all__ = ["KEY_FILE", "LOCK_FILE", "STORE_FILE", "BspHome", "HomeGroup", "HomePeer", "HomeShare"]

KEY_FILE: Final = "bsp.key"
STORE_FILE: Final = "bsp.db"
LOCK_FILE: Final = "bsp.lock"
CERTIFICATE_FILE: Final = "bsp-tls.pem"
CERTIFICATE_KEY_FILE: Final = "bsp-tls-key.pem"

_FOREIGN: Final = "messages and flags belong to one key: bring it back, or use another folder"


class BspHome(HomeTables):
    """One folder in use; close it when done."""

    def __init__(
        self, path: Path | str, *, makes: bool = True, profile: str | None = None, rng: random.Random | None = None
    ) -> None:
        """Open the folder.

        Args:
            path: The folder.
            makes: Make folder and identity if absent; else that is an error.
            profile: seed or briar; None means what the folder was made with, seed in a new one.
            rng: Source of a new key; anything but the default is for tests.

        Raises:
            LocalError: There is no home there and none is to be made, or it has another profile.
            HostError: A file cannot be used, others may read the key, or the store is that of another key.
        """
        self.path = Path(path)
        if not makes and not (self.path / KEY_FILE).exists():
            raise LocalError(f"{self.path} is no home of a BSP device yet; `waystation bsp group new` makes one there")
        with private_folder(self.path):
            self.key_pair = owner_key(self.path / KEY_FILE, self.path / STORE_FILE, _FOREIGN, rng)
        super().__init__(SqliteStore(self.path / STORE_FILE), self.key_pair.public)
        try:
            self._claim(profile)
        except BaseException:
            self.store.close()
            raise

    def close(self) -> None:
        """Release the store."""
        self.store.close()

    def commit(self, changes: Sequence[Change]) -> None:
        """Make changes durable; only for programs in which no ``BspPeer`` uses this home."""
        self.store.commit(changes)

    # Files

    def make_certificate(self, host: str, at_s: float) -> tuple[Path, Path]:
        """Write a certificate for a host name, and its key, and return where they are.

        It proves nothing by itself: our key signs for it in every handshake.

        Args:
            host: Name or address.
            at_s: Unix seconds from which it is good.

        Raises:
            HostError: The disk says no.
        """
        made = make_local_certificates([host], datetime.datetime.fromtimestamp(at_s, tz=datetime.UTC))
        paths = self.path / CERTIFICATE_FILE, self.path / CERTIFICATE_KEY_FILE
        for path, pem in zip(paths, (made.cert_pem, made.key_pem), strict=True):
            write_private(path, pem.decode())
        return paths

    @property
    def is_busy(self) -> bool:
        """Whether a ``BspPeer`` works with this home, here or in another program."""
        return is_held(self.path / LOCK_FILE)

    # Ours

    def _claim(self, profile: str | None) -> None:
        """Claim the store unless it belongs to another key."""
        if self.has_lost_its_facts:  # NODE-ROT: absent would mean a new home, of the profile that is the default
            lost = "is damaged: whose it is, or its profile, is lost; restore a copy"
            raise HostError(f"the store {self.path / STORE_FILE} {lost}", exit_code=EXIT_STORE)
        if self.owner is None:
            self.store.commit(self.put_owner(profile or "seed"))
        elif self.owner != self.key:
            raise HostError(f"{self.path / KEY_FILE} holds another key; {_FOREIGN}", exit_code=EXIT_STORE)
        if profile is not None and profile != self.profile.name:
            raise LocalError(f"{self.path} was made for profile {self.profile.name}, not {profile}")
