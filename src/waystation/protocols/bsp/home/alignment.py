"""Makes a running BSP device match the tables of its home, and carries out orders that other programs wrote there.

``BspPeer`` of the SDK calls it every second: the tables (``home.tables``) say which groups and peers the user wants,
and a command line may change them while the device runs. What cannot be done is reported as an event.
"""

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
        # Called every second; nearly always nothing has changed.
        if wanted == self._done and not self._is_any_free():
            return
        groups, peers, shares = wanted
        # In this order: a share needs both its group and its peer.
        self._align_groups(groups, now)
        self._align_peers(peers, now)
        self._align_shares(shares, now)
        # Last: after a failure the next call does everything again.
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
            # Messages are the device's; everything else is a change of tables, which ``align`` then follows.
            carry_out_on_message(self._device, order, now)
        else:
            self._change_tables(order)

    def _change_tables(self, order: Join | Leave | Meet | Part | ShareGroup) -> None:
        home = self._home
        if isinstance(order, Join):
            group = home.profile.group(order.client_id, order.descriptor, order.format)
            # A group that is hosted for an owner is not joined for the home as well.
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
            # In the device's next commit, which also removes the order: each is executed once.
            self._device.keep(record)

    # One table each

    def _align_groups(self, groups: list[HomeGroup], now: Instant) -> None:
        wanted = {entry.group.group_id for entry in groups}
        # Sorted: the order of a set must not reach the disk or a trace.
        for group_id in sorted(self._joined - wanted):
            self._device.leave(group_id)
        self._joined &= wanted
        # Forgotten with its row, so that it is reported again when it comes back.
        self.left_out = {group_id: left_out for group_id, left_out in self.left_out.items() if group_id in wanted}
        for entry in groups:
            # A group that was left out is tried each time: what stood in its way may be gone.
            if entry.group.group_id not in self._joined:
                self._join(entry, now)

    def _join(self, entry: HomeGroup, now: Instant) -> None:
        group_id = entry.group.group_id
        # A member, but not by us: the mailbox has it for an owner.
        if self._device.is_member(group_id):
            self._leave_out(GroupLeftOut(group_id, entry.name, _KEPT, is_others=True))
            return
        try:
            self._device.join(entry.group, now)
        # Such as a format that this program does not have: the other groups are joined all the same.
        except LocalError as error:
            self._leave_out(GroupLeftOut(group_id, entry.name, str(error)))
        else:
            self._joined.add(group_id)
            self.left_out.pop(group_id, None)

    def _leave_out(self, left_out: GroupLeftOut) -> None:
        is_new = left_out.group_id not in self.left_out
        self.left_out[left_out.group_id] = left_out
        # Once for each group, though it is tried again every second.
        if is_new:
            self._on_left_out(left_out)

    def _align_peers(self, peers: list[HomePeer], now: Instant) -> None:
        wanted = {entry.key for entry in peers}
        # Owners and members of hosted groups are peers without a row in the tables.
        others = set(self.others())
        for key in sorted(self._met - wanted):
            self._asked.pop(key, None)
            if key not in others:
                # Before the device forgets the peer: an open connection must not speak for an unknown one.
                self._machine.expel(key, now)
                self._device.part(key)
        self._met = wanted
        for entry in peers:
            self._device.meet(entry.key)
        # A peer without an address is known and dials us, or comes by a carrier.
        self._dialled = {entry.key: entry.url for entry in peers if entry.url and self._dials}
        self._redial()

    def _align_shares(self, shares: list[HomeShare], now: Instant) -> None:
        wanted = {(share.group_id, share.peer): share.visibility for share in shares}
        for group_id in sorted(self._joined):
            for peer in self._device.audience(group_id):
                if (group_id, peer) not in wanted:
                    # Sharing ends before it begins anew, so that no peer has more than the tables say in between.
                    self._device.share(group_id, peer, now, Visibility.INVISIBLE)
        for (group_id, peer), visibility in wanted.items():
            # A share may name a group that was left out; it takes effect once that is joined.
            if group_id in self._joined and self._device.knows(peer):
                self._device.share(group_id, peer, now, visibility)

    def _redial(self) -> None:
        # What the program asked for wins over the table: it may have a newer address.
        wanted = {**self._dialled, **self._asked}
        for key in [key for key in self._machine_dials if key not in wanted]:
            self._machine.undial(key)
        for key, url in wanted.items():
            if self._machine_dials.get(key) != url:
                self._machine.dial(key, url)
        self._machine_dials = wanted
