"""The mailbox of a node: it hosts groups for devices that are rarely online together. Spec: bsp 6.

The relay and ``sdk.bsp.hosting`` run it. An *owner* is a key of the configuration. It shares a control group with the
node, in which it writes commands and the node answers (``commands``). The node joins the groups that an owner asks it
to host, and shares them with the members that it names. It sees sizes, times, members and bodies, and writes none.

A body is deleted when every member holds the message, or ``keep_ms`` after it arrived (BSP-KEEP). The message stays
known, so no peer sends it again. A group without members keeps its bodies until ``keep_ms``. A member added later gets
the remaining bodies. At an owner's quota, new messages of its groups are refused without an acknowledgement, so their
authors keep them.

A command is executed once (BSP-CONTROL): its answer, its changes, and the removal of its body are one commit. A command
that still has its body after a restart was not executed. Commands above the owner's rate are queued (BSP-PACE,
``queue``); those of a banned owner wait for the end of the ban.

A group has one owner (BSP-TAKEN), because a device that merely knows its identifiers must not add itself as a member. A
second owner gets the answer that the group is taken.

A banned owner is suspended: members get nothing, and their messages are refused until the ban is lifted. An owner that
is removed from the configuration is forgotten with its groups 14 days later. Until then nothing is sent to members, and
bodies are deleted at their ``keep_ms`` (BSP-GONE).
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_MS, Instant, after_ms
from waystation.core.records import Store
from waystation.core.settings import InForce
from waystation.crypto.hashing import blake2s_256
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.device.events import (
    Delivered,
    DeviceEvent,
    Dropped,
    Invalidated,
    PeerHolds,
    Settled,
    Stored,
)
from waystation.protocols.bsp.device.groups import Group
from waystation.protocols.bsp.device.links import Visibility
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.graph.formats import deps_v1_body, deps_v1_content
from waystation.protocols.bsp.graph.order import State as MessageState
from waystation.protocols.bsp.limits import DEFAULT_LIMITS, BspLimits
from waystation.protocols.bsp.mailbox.commands import (
    KEEP_DEFAULT_MS,
    MEMBERS_MAX,
    Amounts,
    Answer,
    AnswerStatus,
    ChangeMembers,
    Done,
    Drop,
    Host,
    Status,
    decode,
    encode,
    is_answer,
)
from waystation.protocols.bsp.mailbox.groups import HostedGroups
from waystation.protocols.bsp.mailbox.hosting import (
    RESERVE,
    Hosting,
    is_weak,
    owner_record,
    quota_of,
    read_kept,
)
from waystation.protocols.bsp.mailbox.queue import CommandQueue
from waystation.protocols.bsp.mailbox.sweep import Sweep
from waystation.protocols.bsp.profile import Profile
from waystation.protocols.bsp.refusals import MalformedError, Refusal
from waystation.protocols.bsp.settings import BspSettings

__all__ = ["CONTROL_LABEL", "Mailbox", "control_group"]

CONTROL_LABEL: Final = b"waystation mailbox control 1"
_NOTHING: Final = Amounts(0, 0, 0, 0)
_SWEEP_MS: Final = 60_000  # how often every body is checked; most are deleted before, at the event that allows it
_STEP_MS: Final = 1_000
_STEP_MESSAGES: Final = 1_000  # checked in one step: one or two milliseconds


def control_group(profile: Profile, owner: PublicKey, mailbox: PublicKey) -> Group:
    """Return the control group of an owner and its mailbox.

    Its client identifier is the hash of ``CONTROL_LABEL``; profile briar names its clients in UTF-8, so there it is the
    label itself.
    """
    # Spec 6: client = BLAKE2s-256 of the label (profile briar: the text itself), descriptor = both keys.
    client_id = CONTROL_LABEL if profile.is_layered else blake2s_256(CONTROL_LABEL)
    return profile.group(client_id, owner + mailbox, "deps_v1")


class Mailbox:
    """The mailbox of one device. The device's owner passes every event on, and the wall clock.

    Cost: O(members) per event; ``wake`` looks at 1,000 messages at most.
    """

    def __init__(
        self,
        device: BspDevice,
        key_pair: KeyPair,
        owners: Sequence[PublicKey],
        settings: BspSettings,
        store: Store,
        *,
        allows: Callable[[PublicKey], bool] = lambda _owner: True,
        stays: Collection[PublicKey] = (),
        part: Callable[[PublicKey, Instant], None] | None = None,
        limits: InForce[BspLimits] | None = None,
    ) -> None:
        """Start empty; ``load`` reads the hosted groups.

        Args:
            device: The device whose groups and peers the mailbox changes.
            key_pair: The device's own.
            owners: Keys whose commands are carried out.
            settings: Quotas of an owner.
            store: Has the table ``bsp_hosted``; written through the device's commits.
            allows: Whether an owner is not banned; asked again every minute, and by ``review``.
            stays: Peers that the device keeps when no hosted group needs them.
            part: Called with a peer that no group needs any more, to close its connection and make the device
                forget it; None only makes the device forget it.
            limits: What owners may have besides their quotas; None for the defaults.
        """
        self._device = device
        self._key = key_pair.public
        self._owners = tuple(dict.fromkeys(owners))
        self._store = store
        self._allows = allows
        self._limits = limits or InForce(DEFAULT_LIMITS)
        self._groups = HostedGroups(device, quota_of(settings), (*stays, *owners), part, self._limits)
        self.use_quota = self._groups.use_quota
        self._wall_offset_us = 0
        self._sweep = Sweep()
        self._sweep_at = Instant(0)
        self._look_at: Instant | None = None
        self._queues: dict[PublicKey, CommandQueue] = {}
        self._waiting: dict[PublicKey, CommandQueue] = {}
        """Those of the queues in which a command waits."""
        self._commands_count = 0
        self._refused_count = 0

    def set_wall(self, now: Instant, wall_us: int) -> None:
        """Set the wall clock, in Unix microseconds; before ``load``, and whenever it may have changed."""
        self._wall_offset_us = wall_us - now

    def load(self, now: Instant) -> None:
        """Join and share the hosted groups, and carry out commands that came before the last stop.

        The device is a member of every configured group by now: those are not hosted for an owner.

        Raises:
            HostError: The store's table is damaged (exit code 5).
        """
        kept = read_kept(self._store)
        for owner in self._owners:
            before = kept.pop(owner, None)
            # BSP-GONE: the owner is back in the configuration before its 14 days are over.
            if before is None or before.left_ms:
                self._device.keep(owner_record(owner, 0))
            self._open(owner, before.hosted if before is not None else [], now)
        for owner, gone in kept.items():
            # BSP-GONE: missing for the first time: its 14 days begin.
            if not gone.left_ms:
                self._device.keep(owner_record(owner, self._wall_ms(now)))
            self._groups.gone[owner] = gone.left_ms or self._wall_ms(now)
            self._open(owner, gone.hosted, now)
        self._sweep_at = self._look_at = now
        for queue in self._queues.values():
            self._queue_up(queue, now)

    def admits(self, group_id: bytes, size_bytes: int) -> Refusal | None:
        """Return why a new message is refused, None when it is admitted; called by ``BspDevice``.

        Args:
            group_id: Any group of the device; groups that are not hosted are admitted.
            size_bytes: Length of the body.
        """
        hosting = self._groups.active(group_id)
        if hosting is None:
            return None
        # Spec 6: everything of a banned owner waits; without an acknowledgement its authors keep their messages.
        if hosting.owner in self._groups.suspended or hosting.owner in self._groups.gone:
            return Refusal.IDENTITY_BANNED
        # BSP-RESERVE: hosted groups must not lock out the groups of the configuration.
        if not hosting.is_control and self._device.messages_count >= self._limits.now.hosted_messages_in_force:
            return Refusal.QUOTA_FULL
        # BSP-CONTROL: an owner at its quota can still send a drop.
        reserve, copies = (RESERVE, 0) if hosting.is_control else (_NOTHING, len(hosting.host.members))
        account = self._groups.accounts[hosting.owner]
        # Spec 6: at a quota a message is not acknowledged: its author keeps it.
        return None if account.admits(size_bytes, reserve, copies) else Refusal.QUOTA_FULL

    def on_event(self, event: DeviceEvent, now: Instant) -> None:
        """Take one event of the device; events of other groups are ignored."""
        if isinstance(event, Dropped | Settled):
            return
        group_id, message_id = event[:2]
        hosting = self._groups.active(group_id)
        if hosting is None:
            return
        match event:
            case Stored():
                hosting.live[message_id] = None
            case Invalidated():
                hosting.live.pop(message_id, None)
                self._groups.accounts[hosting.owner].freed()
            case Delivered() if hosting.is_control:
                self._receive(hosting, message_id, now)
                if hosting.owner in self._queues:
                    self._carry_on(self._queues[hosting.owner], now)
            case Delivered() | PeerHolds():
                # BSP-KEEP: a body may go when a member turns out to hold it.
                self._consider(hosting, message_id, now)

    def review(self, now: Instant) -> None:
        """Check every owner for a ban: suspend its groups, or serve them again."""
        for owner in self._owners:
            allowed = self._allows(owner)
            # A ban is seen within a minute, and at once where the node reports it.
            if allowed == (owner in self._groups.suspended):
                self._groups.suspend(owner, now, suspended=not allowed)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` must be called next, None before ``load`` and after ``retire``."""
        if self._look_at is None:
            return None
        suspended = self._groups.suspended
        times = [queue.ready_at() for owner, queue in self._waiting.items() if owner not in suspended]
        return min(at for at in (self._look_at, *times) if at is not None)

    def wake(self, now: Instant) -> None:
        """Carry out waiting commands, and sweep for bodies to delete; early calls do nothing."""
        if self._look_at is None:
            return
        for queue in list(self._waiting.values()):
            self._carry_on(queue, now)
        if now < self._look_at:
            return
        groups = self._groups
        if self._sweep_at <= now and not self._sweep.is_whole:
            self._sweep_at = after_ms(now, _SWEEP_MS)
            self.review(now)
            # BSP-GONE: forgotten with its groups after 14 days.
            for owner in [each for each, left_ms in groups.gone.items() if self._is_over(left_ms, now)]:
                groups.forget_owner(owner, now)
            for account in groups.accounts.values():
                account.freed()
            self._sweep.begin(list(groups.hostings))
        # BSP-KEEP: 1,000 messages in a step, so that other work does not wait for a sweep.
        self._sweep.step(_STEP_MESSAGES, self._live, lambda group_id, each: self._look(group_id, each, now))
        self._look_at = self._sweep_at if self._sweep.is_over else after_ms(now, _STEP_MS)

    def retire(self) -> None:
        """Carry out nothing more: commands wait for the next start."""
        self._look_at = None

    def hosts(self, group_id: bytes) -> bool:
        """Return whether a group is hosted."""
        hosting = self._groups.hostings.get(group_id)
        return hosting is not None and not hosting.is_control

    def peers(self) -> list[PublicKey]:
        """Return owners and members: the peers that the device must know."""
        found: dict[PublicKey, None] = dict.fromkeys(self._owners)
        for hosting in self._groups.hostings.values():
            if hosting.owner not in self._groups.gone:
                found.update(dict.fromkeys(hosting.host.members))
        return list(found)

    def sizes(self) -> dict[str, int]:
        """Return how much of each bounded thing there is."""
        hosted = [hosting for hosting in self._groups.hostings.values() if not hosting.is_control]
        return {
            "owners": len(self._owners),
            "hosted": len(hosted),
            "hosted_bodies": sum(len(hosting.live) for hosting in hosted),
            "commands": self._commands_count,
            "commands_waiting": sum(map(len, self._waiting.values())),
            "commands_refused": self._refused_count,
        }

    def _open(self, owner: PublicKey, hosted: Sequence[Hosting], now: Instant) -> None:
        """Open an owner's control group and the groups that it hosts."""
        group = control_group(self._device.profile, owner, self._key)
        host = Host(group.group_id, group.client_id, group.descriptor, (owner,), group.format)
        control = Hosting(owner, host, self._wall_ms(now), is_control=True)
        is_gone = owner in self._groups.gone
        self._groups.open(owner, (control, *hosted), now, suspended=not is_gone and not self._allows(owner))
        if not is_gone:
            self._queues[owner] = CommandQueue(control, now, self._limits)

    # Commands

    def _queue_up(self, queue: CommandQueue, now: Instant) -> None:
        """Queue the commands that were not carried out before a restart, in the order of their delivery."""
        control = queue.control
        found = (self._device.vertex(control.host.group_id, each) for each in control.live)
        delivered = [vertex for vertex in found if vertex is not None and vertex.state is MessageState.DELIVERED]
        for vertex in sorted(delivered, key=lambda vertex: vertex.order):
            self._receive(control, vertex.message_id, now)
        self._carry_on(queue, now)  # not before every answer is counted that still waits for the owner

    def _receive(self, control: Hosting, message_id: bytes, now: Instant) -> None:
        """Take a message of a control group: a command waits for the earlier ones."""
        queue, body = self._queues.get(control.owner), self._device.body(control.host.group_id, message_id)
        if queue is None or body is None:
            self._consider(control, message_id, now)
        # Spec 6: an answer depends on its command alone and goes when its owner holds it.
        elif is_answer(deps_v1_content(body)):
            queue.answer(message_id, len(body))
            self._consider(control, message_id, now)
        else:
            queue.add(message_id, len(body))

    def _carry_on(self, queue: CommandQueue, now: Instant) -> None:
        """Carry out the commands that may be carried out now."""
        owner = queue.control.owner
        # Spec 6: commands wait while the owner is banned, and over a restart.
        while self._look_at is not None and owner not in self._groups.suspended:
            message_id = queue.take(now)
            if message_id is None:
                break
            self._carry_out(queue, message_id, now)
        if queue:
            self._waiting[owner] = queue
        else:
            self._waiting.pop(owner, None)

    def _carry_out(self, queue: CommandQueue, message_id: bytes, now: Instant) -> None:
        """Carry out one command; its body is deleted, and the answer stays until the owner holds it."""
        control = queue.control
        owner, group_id, live = control.owner, control.host.group_id, control.live
        command_body = self._device.body(group_id, message_id)
        if command_body is None:
            return
        self._commands_count += 1
        answer = self._answer(owner, deps_v1_content(command_body), now)
        self._refused_count += isinstance(answer, Done) and answer.status is not AnswerStatus.DONE
        # BSP-CONTROL: removal of the command, its effect and the answer are one commit.
        self._device.delete(group_id, message_id)
        live.pop(message_id, None)
        # Spec 6: an answer depends on its command alone.
        body = deps_v1_body((message_id,), encode(answer))
        answer_id = self._device.add(group_id, self._wall_ms(now), body, now)
        live[answer_id] = None
        queue.answer(answer_id, len(body))
        self._groups.accounts[owner].recount()

    def _answer(self, owner: PublicKey, content: bytes, now: Instant) -> Answer:
        try:
            command = decode(content)
        except MalformedError:
            # Spec 6: 1, not to be read.
            return Done(AnswerStatus.UNREADABLE)
        match command:
            case Host():
                return Done(self._host(owner, command, now))
            case ChangeMembers():
                return Done(self._change_members(owner, command, now))
            case Drop(group_id):
                return Done(self._drop(owner, group_id, now))
            case _:
                assert isinstance(command, Status), "answers are not carried out"
                return self._groups.state(owner, command.after, self._wall_ms(now))

    def _host(self, owner: PublicKey, wanted: Host, now: Instant) -> AnswerStatus:
        groups = self._groups
        # Spec 6: 2, client and descriptor give another group.
        if not self._is_right(wanted):
            return AnswerStatus.WRONG_GROUP_ID
        # Spec 6: 9, one of the keys cannot be held by a device.
        if self._has_weak(wanted.members):
            return AnswerStatus.WEAK_KEY
        # The mailbox itself is a member of every hosted group already.
        wanted = wanted._replace(members=tuple(each for each in wanted.members if each != self._key))
        if not groups.is_member(wanted.group_id):
            # Spec 6: 3, no more groups for this owner.
            if groups.accounts[owner].uses().groups >= groups.quota.groups:
                return AnswerStatus.GROUPS_FULL
            groups.add(Hosting(owner, wanted, self._wall_ms(now)), now)
            return AnswerStatus.DONE
        hosting = groups.hosted_for(owner, wanted.group_id)
        if hosting is None or not hosting.is_active:
            # Spec 6: 6 taken by another owner or the configuration, 7 likewise and this owner is served already.
            return AnswerStatus.SERVED if self._serves(wanted.group_id, owner) else AnswerStatus.TAKEN
        # Spec 6: 8, the stored messages were parsed with the other format.
        if hosting.host.format != wanted.format:
            return AnswerStatus.OTHER_FORMAT
        # Spec 6: 4, messages times members above 400,000.
        if not self._has_room(hosting, len(wanted.members)):
            return AnswerStatus.MEMBERS_FULL
        self._change(hosting, wanted, now)
        return AnswerStatus.DONE

    def _change(self, hosting: Hosting, wanted: Host, now: Instant) -> None:
        """Change a hosted group, and sweep it at once for bodies to delete."""
        self._groups.change(hosting, wanted, now)
        self._sweep.add(wanted.group_id)
        self._look_at = now

    def _is_right(self, wanted: Host) -> bool:
        try:
            return self._device.profile.group_id(wanted.client_id, wanted.descriptor) == wanted.group_id
        except LocalError:
            return False

    def _serves(self, group_id: bytes, peer: PublicKey) -> bool:
        return self._device.audience(group_id).get(peer) is Visibility.SHARED

    def _change_members(self, owner: PublicKey, command: ChangeMembers, now: Instant) -> AnswerStatus:
        hosting = self._groups.hosted_for(owner, command.group_id)
        if hosting is None:
            # Spec 6: 5; BSP-TAKEN: another owner's group is answered like an unknown one.
            return AnswerStatus.NOT_HOSTED
        if self._has_weak(command.add):
            return AnswerStatus.WEAK_KEY
        wanted = dict.fromkeys((*hosting.host.members, *command.add))
        for member in (*command.remove, self._key):
            wanted.pop(member, None)
        # Spec 6: 4, more than 256 members, or too many messages times members.
        if len(wanted) > MEMBERS_MAX or not self._has_room(hosting, len(wanted)):
            return AnswerStatus.MEMBERS_FULL
        self._change(hosting, hosting.host._replace(members=tuple(wanted)), now)
        return AnswerStatus.DONE

    def _has_weak(self, keys: Sequence[PublicKey]) -> bool:
        """Return whether one of the keys is weak; keys that the device knows already need no check."""
        return any(is_weak(key) for key in keys if not self._device.knows(key))

    def _has_room(self, hosting: Hosting, members: int) -> bool:
        """Return whether a group may have so many members, given the messages that it keeps."""
        more = members - len(hosting.host.members)
        if more <= 0 or not hosting.is_active:
            return True
        live = self._device.usage(hosting.host.group_id).live_count
        return self._groups.accounts[hosting.owner].copies() + more * live <= self._limits.now.owner_copies

    def _drop(self, owner: PublicKey, group_id: bytes, now: Instant) -> AnswerStatus:
        hosting = self._groups.hosted_for(owner, group_id)
        if hosting is None:
            return AnswerStatus.NOT_HOSTED
        self._groups.forget(hosting, now)
        return AnswerStatus.DONE

    # Bodies

    def _consider(self, hosting: Hosting, message_id: bytes, now: Instant) -> None:
        """Delete the body of a message that need not be kept."""
        group_id = hosting.host.group_id
        vertex = self._device.vertex(group_id, message_id)
        if vertex is not None and vertex.body_present:
            came_ms = vertex.stored_ms or hosting.since_ms
            # BSP-KEEP: a body goes when all current members hold it, or ``keep_ms`` after it came.
            is_needed = self._is_command(hosting, message_id) or not self._all_hold(hosting, message_id)
            if is_needed and self._wall_ms(now) < came_ms + hosting.keep_ms:
                return
            self._device.delete(group_id, message_id)
            self._groups.accounts[hosting.owner].freed()
        hosting.live.pop(message_id, None)
        if hosting.is_control and (queue := self._queues.get(hosting.owner)) is not None:
            queue.forget(message_id)

    def _is_command(self, hosting: Hosting, message_id: bytes) -> bool:
        """Return whether a message is still to be carried out, now or when its dependencies have come."""
        if not hosting.is_control:
            return False
        queue = self._queues.get(hosting.owner)
        return queue is None or not queue.is_answer(message_id)

    def _all_hold(self, hosting: Hosting, message_id: bytes) -> bool:
        host = hosting.host
        # BSP-KEEP: a group without members keeps its bodies: no member is not every member.
        return bool(host.members) and all(
            self._device.holds(member, host.group_id, message_id) for member in host.members
        )

    def _live(self, group_id: bytes) -> list[bytes]:
        """Return the messages of a group that have their body."""
        hosting = self._groups.active(group_id)
        return list(hosting.live) if hosting is not None else []

    def _look(self, group_id: bytes, message_id: bytes, now: Instant) -> None:
        """Check one message in a sweep."""
        hosting = self._groups.active(group_id)
        if hosting is not None:
            self._consider(hosting, message_id, now)

    def _is_over(self, left_ms: int, now: Instant) -> bool:
        return self._wall_ms(now) >= left_ms + KEEP_DEFAULT_MS

    def _wall_ms(self, now: Instant) -> int:
        return max(0, (now + self._wall_offset_us) // MICROSECONDS_PER_MS)
