"""The owner's side of a mailbox: builds the messages of commands, and finds their answers. It sends nothing itself.

``sdk.bsp.mailbox`` sends what it builds. An owner keeps its commands in the control group until they are answered. A
new command depends on the last unanswered one, so the mailbox executes them in order even if they arrive separately.
Commands older than a day are ignored for this, because a mailbox that lost its store never receives them again
(BSP-OWNER).
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey
from waystation.protocols.bsp.device.groups import Group
from waystation.protocols.bsp.graph.formats import InvalidMessageError, deps_v1_body, deps_v1_content
from waystation.protocols.bsp.mailbox.commands import (
    CLIENT_ID_BYTES_MAX,
    COMMANDS,
    HOSTED_DESCRIPTOR_BYTES_MAX,
    KEEP_MAX_MS,
    KEEP_MIN_MS,
    MEMBERS_MAX,
    Answer,
    ChangeMembers,
    Command,
    Done,
    Host,
    State,
    decode,
    encode,
)
from waystation.protocols.bsp.refusals import MalformedError

__all__ = ["Answered", "ControlMessage", "answers", "change_members", "command_body", "host", "unanswered"]

WAITS_MS: Final = 86_400_000
"""How long a later command waits for an earlier one."""


class ControlMessage(Protocol):
    """One message of the control group."""

    @property
    def message_id(self) -> bytes:
        """Return 32 bytes."""

    @property
    def timestamp(self) -> int:
        """Return Unix milliseconds."""

    @property
    def dependencies(self) -> tuple[bytes, ...]:
        """Return what it depends on."""

    @property
    def body(self) -> bytes | None:
        """Return the body, None when it is gone."""


class Answered(NamedTuple):
    """A command and its answer."""

    command_id: bytes
    answer_id: bytes
    answer: Answer


def host(group: Group, members: Iterable[PublicKey], *, keep_ms: int = 0) -> Host:
    """Return the command that hosts a group.

    Args:
        group: As its members know it.
        members: Keys that the mailbox shall serve; the owner too if it is one.
        keep_ms: How long a body is kept for members that do not come, 0 for the mailbox's own 14 days.

    Raises:
        LocalError: The group or the list does not fit into a command, or the time is out of bounds.
    """
    if group.format not in {"opaque", "deps_v1"}:
        group = group._replace(format="opaque")  # the application's own format is none of the mailbox's business
    # Spec 6: a host command has no field for Briar's major version.
    if group.major:
        raise LocalError(f"a mailbox hosts groups of major version 0, this has {group.major}")
    if len(group.client_id) > CLIENT_ID_BYTES_MAX or len(group.descriptor) > HOSTED_DESCRIPTOR_BYTES_MAX:
        size = len(group.descriptor)
        raise LocalError(f"a mailbox takes descriptors of {HOSTED_DESCRIPTOR_BYTES_MAX} bytes at most, this has {size}")
    # Spec 6: keep_ms is 1 s to 365 days.
    if keep_ms and not KEEP_MIN_MS <= keep_ms <= KEEP_MAX_MS:
        raise LocalError("a mailbox keeps bodies for 1 second to 365 days")
    return Host(group.group_id, group.client_id, group.descriptor, _keys(members), group.format, keep_ms)


def change_members(group_id: bytes, add: Iterable[PublicKey] = (), remove: Iterable[PublicKey] = ()) -> ChangeMembers:
    """Return the command that changes the members that a mailbox serves.

    Raises:
        LocalError: There are too many keys for one command.
    """
    return ChangeMembers(group_id, _keys(add), _keys(remove))


def command_body(command: Command, messages: Sequence[ControlMessage], now_ms: int) -> bytes:
    """Return the body of the message of a command.

    Args:
        command: The command.
        messages: All messages of the control group, in delivery order.
        now_ms: Unix milliseconds.
    """
    # BSP-OWNER: a command that was not answered for a day does not hold up the next one.
    waiting = [each for each in unanswered(messages) if now_ms - each.timestamp <= WAITS_MS]
    # Spec 6: each command depends on the last.
    return deps_v1_body([each.message_id for each in waiting[-1:]], encode(command))


def unanswered(messages: Sequence[ControlMessage]) -> list[ControlMessage]:
    """Return the commands without an answer, in delivery order."""
    done = {
        dependency for each in messages if isinstance(_read(each), Done | State) for dependency in each.dependencies
    }
    return [each for each in messages if isinstance(_read(each), COMMANDS) and each.message_id not in done]


def answers(messages: Sequence[ControlMessage]) -> list[Answered]:
    """Return all answers that are there, with the command each is for."""
    found = []
    for each in messages:
        answer = _read(each)
        # Spec 6: an answer depends on its command alone.
        if isinstance(answer, Done | State) and len(each.dependencies) == 1:
            found.append(Answered(each.dependencies[0], each.message_id, answer))
    return found


def _keys(keys: Iterable[PublicKey]) -> tuple[PublicKey, ...]:
    found = tuple(dict.fromkeys(keys))
    if len(found) > MEMBERS_MAX:
        raise LocalError(f"a mailbox serves {MEMBERS_MAX} members of a group at most, these are {len(found)}")
    return found


def _read(message: ControlMessage) -> Command | Answer | None:
    """Return the command or answer of a message, None when its body is gone or has neither form."""
    if message.body is None:
        return None
    try:
        return decode(deps_v1_content(message.body))
    except (InvalidMessageError, MalformedError):
        return None
