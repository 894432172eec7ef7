"""A node that keeps groups for others: the mailbox of devices that are never online together. Spec: bsp 6.

An *owner* is a key of the configuration. It and the node share a control group in which the owner's messages are
commands and the node's are answers (``mailbox_commands``). The node joins the groups that it is told to host, shares
them with the members it is told of, and never writes into them. It sees sizes, times, members, and bodies unless the
application encrypts them.

A body goes when every member holds the message, or ``keep_ms`` after it came here (BSP-KEEP); the message stays known,
so nobody hands it over again. A group without members keeps its bodies until then. A member who is added later gets
what is left. At an owner's quota new messages of its groups are refused without an acknowledgement: their authors keep
them.

A command is carried out once (BSP-CONTROL): its answer, what it changed, and the removal of its body are one commit, so
a command that still has its body after a restart has not been carried out. Who says very many commands waits for them
(BSP-PACE, ``mailbox_queue``); those of a banned owner wait for the end of the ban.

A group has one owner (BSP-TAKEN). Whoever hosts it decides who gets its messages, and somebody who merely knows its
identifiers must not add himself; a second owner is told that the group is taken, and whether it is served already.

An owner who is banned is suspended: members get and leave nothing until the ban is lifted. An owner who is taken from
the configuration is forgotten with its groups 14 days later, in case it was a slip; until then nothing is handed out,
and bodies go at their ``keep_ms`` (BSP-GONE).
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_MS, Instant, after_ms
from waystation.core.records import Store
from waystation.crypto.hashing import blake2s_256
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.device import BspDevice
from waystation.protocols.bsp.events import (
    Delivered,
    DeviceEvent,
    Dropped,
    Invalidated,
    PeerHolds,
    Settled,
    Stored,
)
from waystation.protocols.bsp.formats import deps_v1_body, deps_v1_content
from waystation.protocols.bsp.graph import State as MessageState
from waystation.protocols.bsp.groups import Group
from waystation.protocols.bsp.hearing import MESSAGES_MAX
from waystation.protocols.bsp.links import Visibility
from waystation.protocols.bsp.mailbox_commands import (
    KEEP_DEFAULT_MS,
    MEMBERS_MAX,
    ROWS_MAX,
    Amounts,
    Answer,
    AnswerStatus,
    ChangeMembers,
    Done,
    Drop,
    Host,
    HostedRow,
    State,
    Status,
    decode,
    encode,
    is_answer,
)
from waystation.protocols.bsp.mailbox_groups import HostedGroups
from waystation.protocols.bsp.mailbox_hosting import (
    COPIES_MAX,
    RESERVE,
    Hosting,
    is_weak,
    owner_record,
    quota_of,
    read_kept,
)
from waystation.protocols.bsp.mailbox_queue import CommandQueue
from waystation.protocols.bsp.mailbox_rounds import Rounds
from waystation.protocols.bsp.profile import Profile
from waystation.protocols.bsp.refusals import MalformedError, Refusal
from waystation.protocols.bsp.settings import BspSettings

__all__ = ["CONTROL_LABEL", "HOSTED_MESSAGES_MAX", "Mailbox", "control_group"]

CONTROL_LABEL: Final = b"waystation mailbox control 1"
HOSTED_MESSAGES_MAX: Final = MESSAGES_MAX * 4 // 5
"""Messages of the device up to which hosted groups are served: the rest is for the operator's own (BSP-RESERVE)."""
_NOTHING: Final = Amounts(0, 0, 0, 0)
_ROUND_MS: Final = 60_000  # how often every body is looked at; most have gone by then, at the event that let them
_STEP_MS: Final = 1_000
_STEP_MESSAGES: Final = 1_000  # looked at in one step: one or two milliseconds


def control_group(profile: Profile, owner: PublicKey, mailbox: PublicKey) -> Group:
    """Return the group in which an owner and its mailbox talk.

    Its client identifier is the hash of ``CONTROL_LABEL``; profile briar names its clients in UTF-8, so there it is the
    label itself.
    """
    client_id = CONTROL_LABEL if profile.is_layered else blake2s_256(CONTROL_LABEL)
    return profile.group(client_id, owner + mailbox, "deps_v1")


class Mailbox:
    """The mailbox of one device. Whoever runs the device passes every event on, and the wall clock.

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
    ) -> None:
        """Begin with nothing; ``load`` brings what is hosted.

        Args:
            device: Whose groups and peers the mailbox changes.
            key_pair: The device's own.
            owners: Who may command.
            settings: Quotas of an owner.
            store: Has the table ``bsp_hosted``; written through the device's commits.
            allows: Whether an owner is not banned; asked again every minute, and by ``review``.
            stays: Peers that the device keeps when no hosted group needs them.
            part: Called with a peer that nothing needs any more, to close its connection and make the device forget it;
                None only makes the device forget it.
        """
        self._device = device
        self._key = key_pair.public
        self._owners = tuple(dict.fromkeys(owners))
        self._quota = quota_of(settings)
        self._store = store
        self._allows = allows
        self._groups = HostedGroups(device, self._quota, (*stays, *owners), part)
        self._wall_offset_us = 0
        self._rounds = Rounds()
        self._round_at = Instant(0)
        self._look_at: Instant | None = None
        self._queues: dict[PublicKey, CommandQueue] = {}
        self._waiting: dict[PublicKey, CommandQueue] = {}
        """Those of the queues in which a command waits."""
        self._commands_count = 0
        self._refused_count = 0

    def set_wall(self, now: Instant, wall_us: int) -> None:
        """Say what the wall clock shows, in Unix microseconds; before ``load``, and whenever it may have changed."""
        self._wall_offset_us = wall_us - now

    def load(self, now: Instant) -> None:
        """Join and share what is hosted, and carry out commands that came before the last end.

        The device is a member of every group that the operator named by now: those are not hosted for anybody.

        Raises:
            HostError: The store's table is damaged (exit code 5).
        """
        kept = read_kept(self._store)
        for owner in self._owners:
            before = kept.pop(owner, None)
            if before is None or before.left_ms:
                self._device.keep(owner_record(owner, 0))
            self._open(owner, before.hosted if before is not None else [], now)
        for owner, gone in kept.items():
            if not gone.left_ms:
                self._device.keep(owner_record(owner, self._wall_ms(now)))
            self._groups.gone[owner] = gone.left_ms or self._wall_ms(now)
            self._open(owner, gone.hosted, now)
        self._round_at = self._look_at = now
        for queue in self._queues.values():
            self._queue_up(queue, now)

    def admits(self, group_id: bytes, size_bytes: int) -> Refusal | None:
        """Return why a new message is not taken, None when it is; what ``BspDevice`` asks.

        Args:
            group_id: Any group of the device; those that are not hosted are none of ours.
            size_bytes: Length of the body.
        """
        hosting = self._groups.active(group_id)
        if hosting is None:
            return None
        if hosting.owner in self._groups.suspended or hosting.owner in self._groups.gone:
            return Refusal.IDENTITY_BANNED
        if not hosting.is_control and self._device.messages_count >= HOSTED_MESSAGES_MAX:
            return Refusal.QUOTA_FULL
        reserve = RESERVE if hosting.is_control else _NOTHING
        account, copies = self._groups.accounts[hosting.owner], len(hosting.host.members)
        return None if account.admits(size_bytes, reserve, copies) else Refusal.QUOTA_FULL

    def on_event(self, event: DeviceEvent, now: Instant) -> None:
        """Take one event of the device; those of other groups are nothing."""
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
                self._consider(hosting, message_id, now)

    def review(self, now: Instant) -> None:
        """Ask again who is banned: suspend the owner's groups, or serve them again."""
        for owner in self._owners:
            allowed = self._allows(owner)
            if allowed == (owner in self._groups.suspended):
                self._groups.suspend(owner, now, suspended=not allowed)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` must be called next, None before ``load`` and behind ``retire``."""
        if self._look_at is None:
            return None
        suspended = self._groups.suspended
        times = [queue.ready_at() for owner, queue in self._waiting.items() if owner not in suspended]
        return min(at for at in (self._look_at, *times) if at is not None)

    def wake(self, now: Instant) -> None:
        """Time has come for commands that wait, or to look for bodies that may go; early calls do nothing."""
        if self._look_at is None:
            return
        for queue in list(self._waiting.values()):
            self._carry_on(queue, now)
        if now < self._look_at:
            return
        groups = self._groups
        if self._round_at <= now and not self._rounds.is_whole:
            self._round_at = after_ms(now, _ROUND_MS)
            self.review(now)
            for owner in [each for each, left_ms in groups.gone.items() if self._is_over(left_ms, now)]:
                groups.forget_owner(owner, now)
            for account in groups.accounts.values():
                account.freed()
            self._rounds.begin(list(groups.hostings))
        self._rounds.step(_STEP_MESSAGES, self._live, lambda group_id, each: self._look(group_id, each, now))
        self._look_at = self._round_at if self._rounds.is_over else after_ms(now, _STEP_MS)

    def retire(self) -> None:
        """Begin nothing any more: commands wait for the next life."""
        self._look_at = None

    def hosts(self, group_id: bytes) -> bool:
        """Return whether a group is hosted."""
        hosting = self._groups.hostings.get(group_id)
        return hosting is not None and not hosting.is_control

    def peers(self) -> list[PublicKey]:
        """Return owners and members: those whom the device must know."""
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
        """Take in an owner's control group and what it hosts."""
        group = control_group(self._device.profile, owner, self._key)
        host = Host(group.group_id, group.client_id, group.descriptor, (owner,), group.format)
        control = Hosting(owner, host, self._wall_ms(now), is_control=True)
        is_gone = owner in self._groups.gone
        self._groups.open(owner, (control, *hosted), now, suspended=not is_gone and not self._allows(owner))
        if not is_gone:
            self._queues[owner] = CommandQueue(control, now)

    # Commands

    def _queue_up(self, queue: CommandQueue, now: Instant) -> None:
        """Receive what earlier lives have not carried out, in the order of its delivery."""
        control = queue.control
        found = (self._device.vertex(control.host.group_id, each) for each in control.live)
        delivered = [vertex for vertex in found if vertex is not None and vertex.state is MessageState.DELIVERED]
        for vertex in sorted(delivered, key=lambda vertex: vertex.order):
            self._receive(control, vertex.message_id, now)
        self._carry_on(queue, now)  # not before every answer is counted that still waits for the owner

    def _receive(self, control: Hosting, message_id: bytes, now: Instant) -> None:
        """Take a message of a control group: a command waits for those before it."""
        queue, body = self._queues.get(control.owner), self._device.body(control.host.group_id, message_id)
        if queue is None or body is None:
            self._consider(control, message_id, now)
        elif is_answer(deps_v1_content(body)):
            queue.answer(message_id, len(body))
            self._consider(control, message_id, now)
        else:
            queue.add(message_id, len(body))

    def _carry_on(self, queue: CommandQueue, now: Instant) -> None:
        """Carry out what is to be carried out now."""
        owner = queue.control.owner
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
        """Do what a message of a control group says; its body goes, and the answer stays until the owner has it."""
        control = queue.control
        owner, group_id, live = control.owner, control.host.group_id, control.live
        said = self._device.body(group_id, message_id)
        if said is None:
            return
        self._commands_count += 1
        answer = self._answer(owner, deps_v1_content(said), now)
        self._refused_count += isinstance(answer, Done) and answer.status is not AnswerStatus.DONE
        self._device.delete(group_id, message_id)
        live.pop(message_id, None)
        body = deps_v1_body((message_id,), encode(answer))
        answer_id = self._device.add(group_id, self._wall_ms(now), body, now)
        live[answer_id] = None
        queue.answer(answer_id, len(body))
        self._groups.accounts[owner].recount()

    def _answer(self, owner: PublicKey, content: bytes, now: Instant) -> Answer:
        try:
            command = decode(content)
        except MalformedError:
            return Done(AnswerStatus.UNREADABLE)
        match command:
            case Host():
                return Done(self._host(owner, command, now))
            case ChangeMembers():
                return Done(self._change_members(owner, command, now))
            case Drop(group_id):
                return Done(self._drop(owner, group_id, now))
            case _:
                assert isinstance(command, Status), "nobody carries out answers"
                return self._state(owner, command.after, now)

    def _host(self, owner: PublicKey, wanted: Host, now: Instant) -> AnswerStatus:
        groups = self._groups
        if not self._is_right(wanted):
            return AnswerStatus.WRONG_GROUP_ID
        if self._has_weak(wanted.members):
            return AnswerStatus.WEAK_KEY
        wanted = wanted._replace(members=tuple(each for each in wanted.members if each != self._key))
        if not groups.is_member(wanted.group_id):
            if groups.accounts[owner].uses().groups >= self._quota.groups:
                return AnswerStatus.GROUPS_FULL
            groups.add(Hosting(owner, wanted, self._wall_ms(now)), now)
            return AnswerStatus.DONE
        hosting = groups.hosted_for(owner, wanted.group_id)
        if hosting is None or not hosting.is_active:
            return AnswerStatus.SERVED if self._serves(wanted.group_id, owner) else AnswerStatus.TAKEN
        if hosting.host.format != wanted.format:
            return AnswerStatus.OTHER_FORMAT
        if not self._has_room(hosting, len(wanted.members)):
            return AnswerStatus.MEMBERS_FULL
        self._change(hosting, wanted, now)
        return AnswerStatus.DONE

    def _change(self, hosting: Hosting, wanted: Host, now: Instant) -> None:
        """Change a hosted group, and look at once which bodies may go now."""
        self._groups.change(hosting, wanted, now)
        self._rounds.add(wanted.group_id)
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
            return AnswerStatus.NOT_HOSTED
        if self._has_weak(command.add):
            return AnswerStatus.WEAK_KEY
        wanted = dict.fromkeys((*hosting.host.members, *command.add))
        for member in (*command.remove, self._key):
            wanted.pop(member, None)
        if len(wanted) > MEMBERS_MAX or not self._has_room(hosting, len(wanted)):
            return AnswerStatus.MEMBERS_FULL
        self._change(hosting, hosting.host._replace(members=tuple(wanted)), now)
        return AnswerStatus.DONE

    def _has_weak(self, keys: Sequence[PublicKey]) -> bool:
        """Return whether somebody among these could never come; whom the device knows already need not be looked at."""
        return any(is_weak(key) for key in keys if not self._device.knows(key))

    def _has_room(self, hosting: Hosting, members: int) -> bool:
        """Return whether a group may have so many members, for what is kept in it already."""
        more = members - len(hosting.host.members)
        if more <= 0 or not hosting.is_active:
            return True
        live = self._device.usage(hosting.host.group_id).live_count
        return self._groups.accounts[hosting.owner].copies() + more * live <= COPIES_MAX

    def _drop(self, owner: PublicKey, group_id: bytes, now: Instant) -> AnswerStatus:
        hosting = self._groups.hosted_for(owner, group_id)
        if hosting is None:
            return AnswerStatus.NOT_HOSTED
        self._groups.forget(hosting, now)
        return AnswerStatus.DONE

    def _state(self, owner: PublicKey, after: bytes, now: Instant) -> State:
        account = self._groups.accounts[owner]
        behind = sorted(each for each, hosting in account.groups.items() if each > after and not hosting.is_control)
        rows = tuple(self._row(account.groups[group_id], now) for group_id in behind[:ROWS_MAX])
        return State(self._quota, account.uses(), len(behind) > ROWS_MAX, rows)

    def _row(self, hosting: Hosting, now: Instant) -> HostedRow:
        group_id = hosting.host.group_id
        usage, graph = self._device.usage(group_id), self._device.graph(group_id)
        found = (graph.vertices.get(each) for each in hosting.live)
        oldest = next((vertex for vertex in found if vertex is not None and vertex.body_present), None)
        oldest_ms = self._wall_ms(now) - oldest.stored_ms if oldest is not None else 0
        return HostedRow(
            group_id,
            len(hosting.host.members),
            hosting.keep_ms,
            usage.live_bytes,
            usage.live_count,
            usage.tombstones,
            graph.next_order,
            max(0, oldest_ms // 1_000),
        )

    # Bodies

    def _consider(self, hosting: Hosting, message_id: bytes, now: Instant) -> None:
        """Remove the body of a message that need not be kept."""
        group_id = hosting.host.group_id
        vertex = self._device.vertex(group_id, message_id)
        if vertex is not None and vertex.body_present:
            came_ms = vertex.stored_ms or hosting.since_ms
            is_needed = self._is_command(hosting, message_id) or not self._all_hold(hosting, message_id)
            if is_needed and self._wall_ms(now) < came_ms + hosting.keep_ms:
                return
            self._device.delete(group_id, message_id)
            self._groups.accounts[hosting.owner].freed()
        hosting.live.pop(message_id, None)
        if hosting.is_control and (queue := self._queues.get(hosting.owner)) is not None:
            queue.forget(message_id)

    def _is_command(self, hosting: Hosting, message_id: bytes) -> bool:
        """Return whether a message is still to be carried out, now or when what it depends on has come."""
        if not hosting.is_control:
            return False
        queue = self._queues.get(hosting.owner)
        return queue is None or not queue.is_answer(message_id)

    def _all_hold(self, hosting: Hosting, message_id: bytes) -> bool:
        host = hosting.host
        return bool(host.members) and all(
            self._device.holds(member, host.group_id, message_id) for member in host.members
        )

    def _live(self, group_id: bytes) -> list[bytes]:
        """Return the messages of a group that have their body."""
        hosting = self._groups.active(group_id)
        return list(hosting.live) if hosting is not None else []

    def _look(self, group_id: bytes, message_id: bytes, now: Instant) -> None:
        """Look at one message in a round."""
        hosting = self._groups.active(group_id)
        if hosting is not None:
            self._consider(hosting, message_id, now)

    def _is_over(self, left_ms: int, now: Instant) -> bool:
        return self._wall_ms(now) >= left_ms + KEEP_DEFAULT_MS

    def _wall_ms(self, now: Instant) -> int:
        return max(0, (now + self._wall_offset_us) // MICROSECONDS_PER_MS)
