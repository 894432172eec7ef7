"""The mailbox function of a program's BSP device: it keeps groups for owners, as a node's mailbox does (bsp 6).

``BspPeer`` makes one where ``owners`` are named. ``Tables`` joins and shares the groups that the home's tables list.
``Hosting`` joins and shares the groups that owners request. Owners send commands in a control group, which each owner
shares with the mailbox. A group of the home is not hosted for an owner. The home can join a hosted group only after its
owner dropped it.

Without owners there is no mailbox. Groups hosted earlier then stay on disk and are sent to no peer. The next program
that names their owner serves them again.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from waystation.core.errors import HostError
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.protocols.bsp.device.events import DeviceEvent
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.home.alignment import Tables
from waystation.protocols.bsp.mailbox.host import Mailbox
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.settings import BspSettings
from waystation.protocols.bsp.stream.machine import BspMachine, PeerDown, PeerUp
from waystation.sdk.bsp.home import BspHome, HomePeer
from waystation.sdk.bsp.news import PeerUnreachable
from waystation.sdk.connection import now

__all__ = ["SETTINGS", "Hosting"]

SETTINGS: Final = BspSettings()
"""What each owner may use: as much as at a node without settings."""


class Hosting:
    """What one device keeps for owners; of a device without any it is nothing."""

    def __init__(
        self,
        home: BspHome,
        owners: Collection[PublicKey],
        device: BspDevice,
        machine: BspMachine,
        tables: Tables,
        *,
        changed: Callable[[], None],
        on_failure: Callable[[HostError], None],
    ) -> None:
        """Work for a device that is about to start; the first ``look`` reads what is kept.

        Args:
            home: Of the device.
            owners: Who may have groups kept, each within the quota of ``SETTINGS``; others than the device.
            device: Asks ``admits``.
            machine: Its connections.
            tables: What the home says of the device.
            changed: Called after what changed the device.
            on_failure: Called when a commit fails.
        """
        self._home = home
        self._mailbox: Mailbox | None = None
        self._is_loaded = False
        self._timer: asyncio.TimerHandle | None = None
        self._device = device
        self._machine = machine
        self._tables = tables
        self._changed = changed
        self._on_failure = on_failure
        if owners:
            tables.others = self.peers
            self._mailbox = Mailbox(device, home.key_pair, tuple(owners), SETTINGS, home.store, part=self._part)

    def close(self) -> None:
        """Look at nothing any more; what is kept stays on disk."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._mailbox = None, None

    # What happens

    def admits(self, group_id: bytes, size_bytes: int) -> Refusal | None:
        """Return why a new message of a peer is not taken; None when it is, or its group is kept for no owner."""
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

    def on_event(self, event: DeviceEvent | PeerUp | PeerDown | PeerUnreachable) -> None:
        """Take an event of the device: a command to carry out, or word of a message that may go."""
        if self._mailbox is None or isinstance(event, PeerUp | PeerDown | PeerUnreachable):
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

    def unnamed(self) -> list[HomePeer]:
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
