"""A client for mailboxes: it makes a node or device keep groups for members that are never online together.

::

    async with BspPeer(Path("me")) as peer:
        node = await peer.meet(node_key, "mailbox", url="bsp+tls://node.example:7443")
        mailbox = MailboxOwner(peer, node)
        await mailbox.host("talk", ["bob", "carol"])       # and ourselves
        state = await mailbox.status()

Our key must be in ``[bsp] owners`` of the node, or in ``owners`` of the ``BspPeer`` that is the mailbox. ``host`` also
shares the group with the mailbox from here. Every other member must meet the mailbox and share the group itself. The
mailbox sees sizes, times, members and bodies: encrypt what it must not read.

A command without an answer in time is stored and carried out when the node receives it; its answer is stored as well.
"""

import asyncio
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey
from waystation.protocols.bsp.device.groups import Group
from waystation.protocols.bsp.device.links import Visibility
from waystation.protocols.bsp.mailbox.commands import (
    START,
    Amounts,
    Answer,
    AnswerStatus,
    ChangeMembers,
    Command,
    Done,
    Drop,
    Host,
    HostedRow,
    Status,
)
from waystation.protocols.bsp.mailbox.host import control_group
from waystation.protocols.bsp.mailbox.owner import answers, change_members, command_body, host
from waystation.sdk.bsp.peer import BspPeer
from waystation.sdk.errors import MailboxRefusedError, MailboxSilentError

__all__ = ["MailboxOwner", "MailboxState"]

TIMEOUT_S: Final = 30.0
_SENTENCES: Final = {
    AnswerStatus.UNREADABLE: "it does not understand the command; is it older than this program?",
    AnswerStatus.WRONG_GROUP_ID: "client identifier and descriptor give another group there; has it another profile?",
    AnswerStatus.GROUPS_FULL: "it hosts as many groups for us as we may have; drop one first",
    AnswerStatus.MEMBERS_FULL: "the group would have more members than it serves",
    AnswerStatus.NOT_HOSTED: "it hosts no such group for us",
    AnswerStatus.TAKEN: "it is in this group for somebody else, who decides whom it serves",
    AnswerStatus.OTHER_FORMAT: "it hosts the group with another format; drop it first",
    AnswerStatus.WEAK_KEY: "one of the keys is nobody's: no device could ever prove to hold it",
}


class MailboxState(NamedTuple):
    """What a mailbox hosts for us, and how much room that takes."""

    allows: Amounts
    """The quota."""
    uses: Amounts
    """What is used of it, commands included."""
    groups: tuple[HostedRow, ...]
    """By identifier."""


class MailboxOwner:
    """One mailbox that we own, at a peer that runs.

    Every method waits for the mailbox's answer, and raises ``MailboxSilentError`` when there is none in time,
    ``MailboxRefusedError`` when it is no.
    """

    def __init__(self, peer: BspPeer, mailbox: bytes | str, *, timeout_s: float = TIMEOUT_S) -> None:
        """Describe an owner.

        Args:
            peer: Our device; it must run, and know the mailbox.
            mailbox: Its key, or its name in our home.
            timeout_s: How long to wait for an answer.
        """
        self._peer = peer
        self._named = mailbox
        self._timeout_s = timeout_s
        self._turn = asyncio.Lock()

    async def host(
        self, group: Group | bytes | str, members: Iterable[bytes | str] = (), *, keep_ms: int = 0
    ) -> AnswerStatus:
        """Have a group kept for its members, or change members and time of one that is; share it with the mailbox.

        Args:
            group: One of ours.
            members: Keys, or names in our home, of those besides us whom it is kept for.
            keep_ms: How long a message waits for those who do not come, 1 s to 365 days; 0 for 14 days.

        Returns:
            ``DONE``, or ``SERVED`` when somebody else has it hosted there, for us too.

        Raises:
            LocalError: A peer is unknown, or the group does not fit into a command.
        """
        found = self._peer.group(group)
        keys = (self._peer.key, *(self._peer.peer(member) for member in members))
        status = await self._do(host(found, keys, keep_ms=keep_ms), AnswerStatus.SERVED)
        await self._peer.share(found, self._key)
        return status

    async def members(
        self, group: Group | bytes | str, add: Iterable[bytes | str] = (), remove: Iterable[bytes | str] = ()
    ) -> None:
        """Change for whom a group is kept; who is new gets what is still there.

        Raises:
            LocalError: A peer is unknown.
        """
        keys = ([self._peer.peer(member) for member in members] for members in (add, remove))
        await self._do(change_members(self._peer.group(group).group_id, *keys))

    async def drop(self, group: Group | bytes | str) -> None:
        """Have a group forgotten with all its messages there, and share it with the mailbox no more.

        Raises:
            LocalError: The group is unknown.
        """
        found = self._peer.group(group)
        await self._do(Drop(found.group_id))
        await self._peer.share(found, self._key, Visibility.INVISIBLE)

    async def status(self) -> MailboxState:
        """Return what is hosted for us."""
        rows: list[HostedRow] = []
        after = START
        while True:
            answer = await self._ask(Status(after))
            if isinstance(answer, Done):
                raise MailboxRefusedError(answer.status, _SENTENCES[answer.status])
            rows += answer.rows
            if not answer.more or not answer.rows or answer.rows[-1].group_id <= after:
                return MailboxState(answer.allows, answer.uses, tuple(rows))
            after = answer.rows[-1].group_id

    @property
    def _key(self) -> PublicKey:
        return self._peer.peer(self._named)

    async def _do(self, command: Host | ChangeMembers | Drop, *also_good: AnswerStatus) -> AnswerStatus:
        answer = await self._ask(command)
        if not isinstance(answer, Done):
            raise MailboxRefusedError(AnswerStatus.UNREADABLE, _SENTENCES[AnswerStatus.UNREADABLE])
        if answer.status not in (AnswerStatus.DONE, *also_good):
            raise MailboxRefusedError(answer.status, _SENTENCES[answer.status])
        return answer.status

    async def _ask(self, command: Command) -> Answer:
        async with self._turn:
            control = await self._join()
            messages = self._peer.messages(control)
            try:
                said = self._peer.history(control)
                body = command_body(command, said, int(time.time() * 1_000))
                asked = (await self._peer.send(control, body)).message
                async with asyncio.timeout(self._timeout_s):
                    async for _ in messages:
                        answer = await self._take_answers(control, asked.message_id)
                        if answer is not None:
                            return answer
            except TimeoutError as error:
                named = next((each.name for each in self._peer.home.groups() if each.group == control), "")
                kept = f"the command is kept, and carried out when it gets there, unless you leave the group {named!r}"
                if isinstance(command, Status):  # the caller waits no more
                    await self._peer.delete(control, asked.message_id)
                    kept = "the question is withdrawn"
                raise MailboxSilentError(
                    f"the mailbox did not answer within {self._timeout_s:g} s; {kept}"
                    " (does it run, do we reach it, and are we one of its owners?)"
                ) from error
            finally:
                await messages.aclose()
            raise LocalError("the device was closed before the mailbox answered; the command is kept")

    async def _join(self) -> Group:
        """Share the control group with the mailbox, and return it."""
        key = self._key
        control = control_group(self._peer.home.profile, self._peer.key, key)
        name = next((entry.name for entry in self._peer.home.peers() if entry.key == key), "")
        await self._peer.join(control, f"mailbox {name or key.hex()[:8]}")
        await self._peer.share(control, key)
        return control

    async def _take_answers(self, control: Group, command_id: bytes) -> Answer | None:
        """Return the answer to a command once it is there; what was answered needs no bodies any more."""
        wanted: Answer | None = None
        for found in answers(self._peer.history(control)):
            if found.command_id == command_id:
                wanted = found.answer
            await self._peer.delete(control, found.command_id)
            await self._peer.delete(control, found.answer_id)
        return wanted
