"""The mailbox of a program's device: it keeps groups for owners over every way that reaches it, as a node does (bsp 6).

The home's tables say what the device itself is a member of, and ``Tables`` sees to that; ``Hosting`` beside it joins
and shares what owners have it keep, by commands that come in their control groups. Neither touches what is the other's:
a group of the home is kept for nobody, and a group that is kept can be joined once it was dropped.

Without owners there is no mailbox. What was kept stays on disk as it is then, is handed to nobody, and is served again
by the next program that names the owner.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from waystation.core.errors import HostError, LocalError
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.protocols.bsp.device import BspDevice
from waystation.protocols.bsp.events import DeviceEvent
from waystation.protocols.bsp.machine import BspMachine, PeerDown, PeerUp
from waystation.protocols.bsp.mailbox import Mailbox
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.settings import BspSettings
from waystation.sdk.bsp_home import BspHome, HomePeer
from waystation.sdk.bsp_tables import Tables
from waystation.sdk.link import now

__all__ = ["SETTINGS", "Hosting"]

SETTINGS: Final = BspSettings()
"""What each owner may use: as much as at a node that nobody has configured."""


class Hosting:
    """What one device keeps for owners; of a device without any it is nothing."""

    def __init__(self, home: BspHome, owners: Collection[PublicKey]) -> None:
        """Describe it; ``begin`` gives it the device, and the first ``look`` reads what is kept.

        Args:
            home: Of the device.
            owners: Who may have groups kept, each within the quota of ``SETTINGS``.

        Raises:
            LocalError: The device itself is one of them.
        """
        if home.key in owners:
            raise LocalError("an owner is another device than its mailbox; this is our own key")
        self._home = home
        self._owners = tuple(owners)
        self._mailbox: Mailbox | None = None
        self._is_loaded = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(
        self,
        device: BspDevice,
        machine: BspMachine,
        tables: Tables,
        *,
        changed: Callable[[], None],
        on_failure: Callable[[HostError], None],
    ) -> None:
        """Work for a device that is about to start.

        Args:
            device: Asks ``admits``.
            machine: Its connections.
            tables: What the home says of the device.
            changed: Called behind what changed the device.
            on_failure: Told that the disk says no.
        """
        self._device = device
        self._machine = machine
        self._tables = tables
        self._changed = changed
        self._on_failure = on_failure
        if self._owners:
            tables.others = self.peers
            home = self._home
            self._mailbox = Mailbox(device, home.key_pair, self._owners, SETTINGS, home.store, part=self._part)

    def close(self) -> None:
        """Look at nothing any more; what is kept stays on disk."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._mailbox = None, None

    # What happens

    def admits(self, group_id: bytes, size_bytes: int) -> Refusal | None:
        """Return why a new message of a peer is not taken; None when it is, or its group is kept for nobody."""
        return self._mailbox.admits(group_id, size_bytes) if self._mailbox is not None else None

    def look(self, at: Instant, wall_us: int) -> None:
        """Say what the wall clock shows, and do what is due; first when the device is as its tables say.

        Raises:
            HostError: What the store has is damaged, or cannot be read.
        """
        if self._mailbox is None:
            return
        self._mailbox.set_wall(at, wall_us)
        if not self._is_loaded:
            self._is_loaded = True
            self._mailbox.load(at)
        self._mailbox.wake(at)
        self._set_timer()

    def on_event(self, event: DeviceEvent | PeerUp | PeerDown) -> None:
        """Take an event of the device: a command to carry out, or word of a message that may go."""
        if self._mailbox is None or isinstance(event, PeerUp | PeerDown):
            return
        try:
            self._mailbox.on_event(event, now())
        except HostError as error:
            self._on_failure(error)
            return
        if self._device.must_commit:
            self._changed()
        self._set_timer()

    def _set_timer(self) -> None:
        due = self._mailbox.deadline() if self._mailbox is not None else None
        at_s = due / MICROSECONDS_PER_SECOND if due is not None else None
        if self._timer is not None:
            if at_s is not None and self._timer.when() <= at_s:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(at_s, self._wake) if at_s is not None else None

    def _wake(self) -> None:
        self._timer = None
        if self._mailbox is None:
            return
        try:
            self._mailbox.wake(now())
        except HostError as error:
            self._on_failure(error)
            return
        self._changed()
        self._set_timer()

    # Whom it needs

    def peers(self) -> list[PublicKey]:
        """Return owners and members of what is kept."""
        return self._mailbox.peers() if self._mailbox is not None else []

    def guests(self) -> list[HomePeer]:
        """Return those of them whom the home does not name."""
        named = {entry.key for entry in self._home.peers()} if self._mailbox is not None else set()
        return [HomePeer("", key, "") for key in self.peers() if key not in named]

    def sizes(self) -> dict[str, int]:
        """Return how much of each bounded thing there is; nothing without owners."""
        return self._mailbox.sizes() if self._mailbox is not None else {}

    def _part(self, peer: PublicKey, at: Instant) -> None:
        """Forget a peer that nothing kept needs any more, unless the home names it."""
        if not self._tables.wants(peer):
            self._machine.expel(peer, at)
            self._device.part(peer)
