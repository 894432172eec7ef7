"""The groups that a mailbox hosts, as its device knows them: joined, shared, suspended, forgotten.

``mailbox`` decides what shall be hosted for whom; here it is done, and written down in the same commit.
"""

from collections.abc import Callable, Collection, Sequence

from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.protocols.bsp.device import BspDevice
from waystation.protocols.bsp.groups import Group
from waystation.protocols.bsp.links import Visibility
from waystation.protocols.bsp.mailbox_commands import Amounts, Host
from waystation.protocols.bsp.mailbox_hosting import Account, Hosting, hosting_record, no_record

__all__ = ["HostedGroups"]


class HostedGroups:
    """Every hosted group and control group of a device, and the account of each owner."""

    def __init__(
        self,
        device: BspDevice,
        quota: Amounts,
        stays: Collection[PublicKey],
        part: Callable[[PublicKey, Instant], None] | None,
    ) -> None:
        """Begin with none.

        Args:
            device: Whose groups and peers are changed.
            quota: What each owner may use.
            stays: Peers that the device keeps when no hosted group needs them.
            part: Called with a peer that nothing needs any more; None makes the device forget it.
        """
        self._device = device
        self._quota = quota
        self._stays = frozenset(stays)
        self._part_with = part if part is not None else self._forget_peer
        self.hostings: dict[bytes, Hosting] = {}
        """By group; read it, never write it."""
        self.accounts: dict[PublicKey, Account] = {}
        """By owner; as ``hostings``."""
        self.gone: dict[PublicKey, int] = {}
        """Owners who are no longer configured, with the wall clock's milliseconds since which they are missing."""
        self.suspended: dict[PublicKey, None] = {}
        """Owners who are banned; read it, never write it."""

    def open(self, owner: PublicKey, hostings: Sequence[Hosting], now: Instant, *, suspended: bool) -> None:
        """Take in what an owner hosts, the control group with it."""
        self.accounts[owner] = Account(self._device, self._quota)
        if suspended:
            self.suspended[owner] = None
        for hosting in hostings:
            self.hostings[hosting.host.group_id] = hosting
            hosting.is_active = not self.is_member(hosting.host.group_id)
            if hosting.is_active:
                self._join(hosting, now)

    def add(self, hosting: Hosting, now: Instant) -> None:
        """Host a group that the device is no member of."""
        self.hostings[hosting.host.group_id] = hosting
        self._join(hosting, now)
        self._device.keep(hosting_record(hosting))

    def change(self, hosting: Hosting, wanted: Host, now: Instant) -> None:
        """Make a hosted group what is wanted: other members, another time."""
        before, hosting.host = hosting.host, wanted
        self._device.keep(hosting_record(hosting))
        if not hosting.is_active:
            return
        for member in before.members:
            if member not in wanted.members:
                self._device.share(wanted.group_id, member, now, Visibility.INVISIBLE)
                self._part(member, now)
        self._share(hosting, now)

    def forget(self, hosting: Hosting, now: Instant) -> None:
        """Forget a group with its messages, in memory and on disk."""
        group_id = hosting.host.group_id
        del self.hostings[group_id]
        if not hosting.is_control:
            self._device.keep(no_record(hosting.owner, group_id))
        if hosting.is_active:
            del self.accounts[hosting.owner].groups[group_id]
            self._device.leave(group_id)
            for member in hosting.host.members:
                self._part(member, now)

    def forget_owner(self, owner: PublicKey, now: Instant) -> None:
        """Forget an owner who is gone, and all that it hosts."""
        for hosting in [each for each in self.hostings.values() if each.owner == owner]:
            self.forget(hosting, now)
        del self.gone[owner], self.accounts[owner]
        self._device.keep(no_record(owner))

    def suspend(self, owner: PublicKey, now: Instant, *, suspended: bool) -> None:
        """Hand out nothing of an owner's groups and take nothing, or serve them again."""
        if suspended:
            self.suspended[owner] = None
        else:
            self.suspended.pop(owner, None)
        for hosting in self.accounts[owner].groups.values():
            self._share(hosting, now)

    def active(self, group_id: bytes) -> Hosting | None:
        """Return a hosted or control group, None for every other."""
        hosting = self.hostings.get(group_id)
        return hosting if hosting is not None and hosting.is_active else None

    def hosted_for(self, owner: PublicKey, group_id: bytes) -> Hosting | None:
        """Return a group that an owner may change, None when it hosts none of this identifier."""
        hosting = self.hostings.get(group_id)
        return hosting if hosting is not None and hosting.owner == owner and not hosting.is_control else None

    def is_member(self, group_id: bytes) -> bool:
        """Return whether the device is in a group, for whomever."""
        return self._device.is_member(group_id)

    def _join(self, hosting: Hosting, now: Instant) -> None:
        """Become a member of a group, and share it with those whom it is for."""
        host, account = hosting.host, self.accounts[hosting.owner]
        self._device.join(Group(host.group_id, host.client_id, host.descriptor, host.format), now)
        account.groups[host.group_id] = hosting
        account.recount()
        here = [each for each in self._device.graph(host.group_id).vertices.values() if each.body_present]
        here.sort(key=lambda vertex: (vertex.stored_ms, vertex.seq))
        hosting.live = dict.fromkeys(vertex.message_id for vertex in here)
        self._share(hosting, now)

    def _share(self, hosting: Hosting, now: Instant) -> None:
        """Share a group with its members, as far as its owner stands."""
        if hosting.owner in self.gone:
            return
        visibility = Visibility.VISIBLE if hosting.owner in self.suspended else Visibility.SHARED
        for member in hosting.host.members:
            self._device.meet(member)
            self._device.share(hosting.host.group_id, member, now, visibility)

    def _part(self, peer: PublicKey, now: Instant) -> None:
        """Let the device forget a peer that no group needs any more."""
        if peer not in self._stays and not any(peer in each.host.members for each in self.hostings.values()):
            self._part_with(peer, now)

    def _forget_peer(self, peer: PublicKey, _now: Instant) -> None:
        self._device.part(peer)
