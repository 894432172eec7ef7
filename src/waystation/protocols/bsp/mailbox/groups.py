"""Joins, shares, suspends and forgets the groups that a mailbox hosts.

The mailbox (``host``) calls it with an owner's command. ``host`` decides which groups are hosted for which owner; this
module changes the device and writes both in one commit.
"""

from collections.abc import Callable, Collection, Sequence

from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.core.settings import InForce
from waystation.protocols.bsp.device.groups import Group
from waystation.protocols.bsp.device.links import Visibility
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.limits import BspLimits
from waystation.protocols.bsp.mailbox.commands import ROWS_MAX, Amounts, Host, HostedRow, State
from waystation.protocols.bsp.mailbox.hosting import Account, Hosting, hosting_record, no_record

__all__ = ["HostedGroups"]


class HostedGroups:
    """Every hosted group and control group of a device, and the account of each owner."""

    def __init__(
        self,
        device: BspDevice,
        quota: Amounts,
        stays: Collection[PublicKey],
        part: Callable[[PublicKey, Instant], None] | None,
        limits: InForce[BspLimits],
    ) -> None:
        """Begin with none.

        Args:
            device: The device whose groups and peers are changed.
            quota: The amounts of each owner.
            stays: Peers that the device keeps when no hosted group needs them.
            part: Called with a peer that no group needs any more; None makes the device forget it.
            limits: What there may be of one owner besides its quota.
        """
        self._device = device
        self.quota = quota
        self._limits = limits
        self._stays = frozenset(stays)
        self._part_with = part if part is not None else self._forget_peer
        self.hostings: dict[bytes, Hosting] = {}
        """By group; read it, never write it."""
        self.accounts: dict[PublicKey, Account] = {}
        """By owner; as ``hostings``."""
        self.gone: dict[PublicKey, int] = {}
        """Owners that are no longer configured, with the wall clock's milliseconds since which they are missing."""
        self.suspended: dict[PublicKey, None] = {}
        """Owners that are banned; read it, never write it."""

    def use_quota(self, quota: Amounts) -> None:
        """Hold every owner to this quota from now on; nothing that is kept is deleted."""
        self.quota = quota
        for account in self.accounts.values():
            account.use_quota(quota)

    def open(self, owner: PublicKey, hostings: Sequence[Hosting], now: Instant, *, suspended: bool) -> None:
        """Open the groups that an owner hosts, with its control group."""
        self.accounts[owner] = Account(self._device, self.quota, self._limits)
        if suspended:
            self.suspended[owner] = None
        for hosting in hostings:
            self.hostings[hosting.host.group_id] = hosting
            # BSP-TAKEN: a group of the configuration is the operator's; the row stays in case it is taken out again.
            hosting.is_active = not self.is_member(hosting.host.group_id)
            if hosting.is_active:
                self._join(hosting, now)

    def add(self, hosting: Hosting, now: Instant) -> None:
        """Host a group that the device is no member of."""
        self.hostings[hosting.host.group_id] = hosting
        self._join(hosting, now)
        # BSP-CONTROL: the row, the answer and the removal of the command are one commit.
        self._device.keep(hosting_record(hosting))

    def change(self, hosting: Hosting, wanted: Host, now: Instant) -> None:
        """Change a hosted group: other members, another time."""
        before, hosting.host = hosting.host, wanted
        self._device.keep(hosting_record(hosting))
        if not hosting.is_active:
            return
        for member in before.members:
            # Spec 2: group no longer shared with the peer: all of it forgotten.
            if member not in wanted.members:
                self._device.share(wanted.group_id, member, now, Visibility.INVISIBLE)
                self._part(member, now)
        self._share(hosting, now)

    def forget(self, hosting: Hosting, now: Instant) -> None:
        """Forget a group with its messages, in memory and on disk."""
        group_id = hosting.host.group_id
        del self.hostings[group_id]
        # A control group has no row: it follows from the owner's key.
        if not hosting.is_control:
            self._device.keep(no_record(hosting.owner, group_id))
        if hosting.is_active:
            del self.accounts[hosting.owner].groups[group_id]
            self._device.leave(group_id)
            for member in hosting.host.members:
                self._part(member, now)

    def forget_owner(self, owner: PublicKey, now: Instant) -> None:
        """Forget an owner that is gone, and all that it hosts."""
        for hosting in [each for each in self.hostings.values() if each.owner == owner]:
            self.forget(hosting, now)
        # BSP-GONE: 14 days after it was taken from the configuration nothing of an owner is left.
        del self.gone[owner], self.accounts[owner]
        self._device.keep(no_record(owner))

    def suspend(self, owner: PublicKey, now: Instant, *, suspended: bool) -> None:
        """Stop to serve an owner's groups, in both directions, or serve them again."""
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
        """Return whether the device is in a group, hosted or its own."""
        return self._device.is_member(group_id)

    def state(self, owner: PublicKey, after: bytes, wall_ms: int) -> State:
        """Return the answer to ``Status``: the quota, its use, and the rows after a group."""
        account = self.accounts[owner]
        # Spec 6: rows ascend and begin after the group that the owner names; control groups are not listed.
        later = sorted(each for each, hosting in account.groups.items() if each > after and not hosting.is_control)
        rows = tuple(self._row(account.groups[group_id], wall_ms) for group_id in later[:ROWS_MAX])
        # Spec 6: ``more`` asks the owner to send another status for the rest.
        return State(self.quota, account.uses(), len(later) > ROWS_MAX, rows)

    def _row(self, hosting: Hosting, wall_ms: int) -> HostedRow:
        group_id = hosting.host.group_id
        usage, graph = self._device.usage(group_id), self._device.graph(group_id)
        found = (graph.vertices.get(each) for each in hosting.live)
        oldest = next((vertex for vertex in found if vertex is not None and vertex.body_present), None)
        oldest_ms = wall_ms - oldest.stored_ms if oldest is not None else 0
        return HostedRow(
            group_id,
            len(hosting.host.members),
            hosting.keep_ms,
            usage.live_bytes,
            usage.live_count,
            usage.tombstones,
            graph.next_order,
            # The wall clock may have been set back since the body came.
            max(0, oldest_ms // 1_000),
        )

    def _join(self, hosting: Hosting, now: Instant) -> None:
        """Become a member of a group, and share it with its members."""
        host, account = hosting.host, self.accounts[hosting.owner]
        self._device.join(Group(host.group_id, host.client_id, host.descriptor, host.format), now)
        account.groups[host.group_id] = hosting
        # Bodies that the group had before now count towards the quota.
        account.recount()
        here = [each for each in self._device.graph(host.group_id).vertices.values() if each.body_present]
        # In the order in which they came: the oldest body is the first of ``live``.
        here.sort(key=lambda vertex: (vertex.stored_ms, vertex.seq))
        hosting.live = dict.fromkeys(vertex.message_id for vertex in here)
        self._share(hosting, now)

    def _share(self, hosting: Hosting, now: Instant) -> None:
        """Share a group with its members, as far as its owner is configured and not banned."""
        # BSP-GONE: of an owner that is taken from the configuration nothing is handed out.
        if hosting.owner in self.gone:
            return
        # Spec 6: while the owner is banned members get nothing; ``Mailbox.admits`` refuses what they send.
        visibility = Visibility.VISIBLE if hosting.owner in self.suspended else Visibility.SHARED
        for member in hosting.host.members:
            self._device.meet(member)
            self._device.share(hosting.host.group_id, member, now, visibility)

    def _part(self, peer: PublicKey, now: Instant) -> None:
        """Let the device forget a peer that no group needs any more."""
        # A peer of another hosted group, an owner or a configured peer stays in the table.
        if peer not in self._stays and not any(peer in each.host.members for each in self.hostings.values()):
            self._part_with(peer, now)

    def _forget_peer(self, peer: PublicKey, _now: Instant) -> None:
        self._device.part(peer)
