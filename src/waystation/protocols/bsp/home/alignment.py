"""Makes a running BSP device match the tables of its home, and carries out requests that other programs wrote there."""

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.protocols.bsp.device.links import Visibility
from waystation.protocols.bsp.device.orders import (
    AddMessage,
    DeleteMessage,
    Join,
    Leave,
    Meet,
    Order,
    Part,
    ShareGroup,
    ShareMessage,
    carry_out_on_message,
)
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.home.tables import HomeGroup, HomePeer, HomeShare, HomeTables
from waystation.protocols.bsp.stream.machine import BspMachine

__all__ = ["GroupLeftOut", "Tables"]

_Snapshot = tuple[list[HomeGroup], list[HomePeer], list[HomeShare]]
_VISIBILITIES: Final = tuple(each.value for each in Visibility)
_NOTHING: Final[_Snapshot] = ([], [], [])
_KEPT: Final = "this device keeps the group for an owner, as a mailbox; it can be joined here once it is dropped"


class GroupLeftOut(NamedTuple):
    """A group of the home cannot be joined by this program, and stays as it is: it is another application's."""

    group_id: bytes
    name: str
    """In the home; may be empty."""
    reason: str
    is_others: bool = False
    """Whether we are in it already for others, as their mailbox."""


class Tables:
    """Reads the home's tables, and makes the device be what they say."""

    def __init__(
        self,
        home: HomeTables,
        device: BspDevice,
        machine: BspMachine,
        *,
        dials: bool,
        on_left_out: Callable[[GroupLeftOut], None],
    ) -> None:
        """Begin; ``align`` does the work.

        Args:
            home: Whose tables.
            device: What is made to follow them.
            machine: Dials.
            dials: Whether peers of the home with an address are dialled.
            on_left_out: Called once with each group that the device cannot join.
        """
        self._home = home
        self._device = device
        self._machine = machine
        self._dials = dials
        self._on_left_out = on_left_out
        self.others: Callable[[], Collection[PublicKey]] = tuple
        """Asked for peers that the device needs besides those of the tables."""
        self._joined: set[bytes] = set()
        self._met: set[PublicKey] = set()
        self.left_out: dict[bytes, GroupLeftOut] = {}
        """Groups of the home that the device cannot join, by identifier: for their format, or as a mailbox."""
        self._done = _NOTHING
        self._dialled: dict[PublicKey, str] = {}
        self._asked: dict[PublicKey, str] = {}
        self._machine_dials: dict[PublicKey, str] = {}
        """Address of each peer that the machine dials."""

    def align(self, now: Instant) -> None:
        """Join, leave, meet, part, share and dial until everything is as the tables say.

        A group of a format that the device does not know is left out: a home may be used by several applications. So
        is one that the device is in for others, until they need it no more. What is others' is left alone.

        Raises:
            HostError: The store cannot be read.
        """
        wanted = self._home.groups(), self._home.peers(), self._home.shares()
        if wanted == self._done and not self._is_any_free():
            return
        groups, peers, shares = wanted
        self._align_groups(groups, now)
        self._align_peers(peers, now)
        self._align_shares(shares, now)
        self._done = wanted

    def dial(self, peer: PublicKey, url: str) -> None:
        """Dial a peer that is known, besides those of the tables, or elsewhere."""
        self._asked[peer] = url
        self._redial()

    def check_free(self, group_id: bytes) -> None:
        """Raise LocalError when the device is in a group for others."""
        if group_id not in self._joined and self._device.is_member(group_id):
            raise LocalError(_KEPT)

    def wants(self, peer: PublicKey) -> bool:
        """Return whether the tables have a peer, as of the last ``align``."""
        return peer in self._met

    def _is_any_free(self) -> bool:
        """Return whether the device is no longer in a group for others that was left out for them."""
        return any(each.is_others and not self._device.is_member(group_id) for group_id, each in self.left_out.items())

    # Orders

    def carry_out(self, order: Order, now: Instant) -> None:
        """Do what another program asked for; raises LocalError when that is impossible."""
        if isinstance(order, AddMessage | DeleteMessage | ShareMessage):
            carry_out_on_message(self._device, order, now)
        else:
            self._change_tables(order)

    def _change_tables(self, order: Join | Leave | Meet | Part | ShareGroup) -> None:
        home = self._home
        if isinstance(order, Join):
            group = home.profile.group(order.client_id, order.descriptor, order.format)
            self.check_free(group.group_id)
            records = [home.put_group(order.name, group)]
        elif isinstance(order, Leave):
            records = home.remove_group(order.group_id)
        elif isinstance(order, Meet):
            records = [home.put_peer(order.name, PublicKey(order.peer), order.url)]
        elif isinstance(order, Part):
            records = home.remove_peer(PublicKey(order.peer))
        else:
            if order.visibility not in _VISIBILITIES:
                raise LocalError(f"a group is {', '.join(_VISIBILITIES)}, not {order.visibility!r}")
            records = [home.put_share(order.group_id, PublicKey(order.peer), Visibility(order.visibility))]
        for record in records:
            self._device.keep(record)

    # One table each

    def _align_groups(self, groups: list[HomeGroup], now: Instant) -> None:
        wanted = {entry.group.group_id for entry in groups}
        for group_id in sorted(self._joined - wanted):
            self._device.leave(group_id)
        self._joined &= wanted
        self.left_out = {group_id: left_out for group_id, left_out in self.left_out.items() if group_id in wanted}
        for entry in groups:
            if entry.group.group_id not in self._joined:
                self._join(entry, now)

    def _join(self, entry: HomeGroup, now: Instant) -> None:
        group_id = entry.group.group_id
        if self._device.is_member(group_id):
            self._leave_out(GroupLeftOut(group_id, entry.name, _KEPT, is_others=True))
            return
        try:
            self._device.join(entry.group, now)
        except LocalError as error:
            self._leave_out(GroupLeftOut(group_id, entry.name, str(error)))
        else:
            self._joined.add(group_id)
            self.left_out.pop(group_id, None)

    def _leave_out(self, left_out: GroupLeftOut) -> None:
        is_new = left_out.group_id not in self.left_out
        self.left_out[left_out.group_id] = left_out
        if is_new:
            self._on_left_out(left_out)

    def _align_peers(self, peers: list[HomePeer], now: Instant) -> None:
        wanted = {entry.key for entry in peers}
        others = set(self.others())
        for key in sorted(self._met - wanted):
            self._asked.pop(key, None)
            if key not in others:
                self._machine.expel(key, now)
                self._device.part(key)
        self._met = wanted
        for entry in peers:
            self._device.meet(entry.key)
        self._dialled = {entry.key: entry.url for entry in peers if entry.url and self._dials}
        self._redial()

    def _align_shares(self, shares: list[HomeShare], now: Instant) -> None:
        wanted = {(share.group_id, share.peer): share.visibility for share in shares}
        for group_id in sorted(self._joined):
            for peer in self._device.audience(group_id):
                if (group_id, peer) not in wanted:
                    self._device.share(group_id, peer, now, Visibility.INVISIBLE)
        for (group_id, peer), visibility in wanted.items():
            if group_id in self._joined and self._device.knows(peer):
                self._device.share(group_id, peer, now, visibility)

    def _redial(self) -> None:
        wanted = {**self._dialled, **self._asked}
        for key in [key for key in self._machine_dials if key not in wanted]:
            self._machine.undial(key)
        for key, url in wanted.items():
            if self._machine_dials.get(key) != url:
                self._machine.dial(key, url)
        self._machine_dials = wanted
