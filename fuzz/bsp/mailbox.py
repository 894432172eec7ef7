"""Fuzz target: a BSP mailbox that receives arbitrary commands from its owner, one message at a time.

Each script step becomes one message of the owner in the control group of a new mailbox. The answers and effects of the
mailbox are compared with a dictionary model.
"""

import random
from typing import Final

from nacl.bindings import crypto_core_ed25519_is_valid_point

from fuzz.conversation import Do, Step, read_script, write_script
from fuzz.mutate import mutate_bytes
from fuzz.target import expect
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.graph.formats import deps_v1_body, deps_v1_content
from waystation.protocols.bsp.mailbox.commands import (
    Amounts,
    Answer,
    AnswerStatus,
    ChangeMembers,
    Command,
    Done,
    Drop,
    Host,
    State,
    Status,
    decode,
    encode,
    is_answer,
)
from waystation.protocols.bsp.mailbox.host import Mailbox, control_group
from waystation.protocols.bsp.messages import BODY_BYTES_MAX, Message
from waystation.protocols.bsp.profile import SEED
from waystation.protocols.bsp.refusals import MalformedError
from waystation.protocols.bsp.settings import BspSettings
from waystation.store.memory import MemoryStore

_MAILBOX, _OWNER = (KeyPair.from_seed(bytes((number,)) * 32) for number in (1, 2))
_CONTROL: Final = control_group(SEED, _OWNER.public, _MAILBOX.public)
_SETTINGS: Final = BspSettings(owner_groups_max=1)
_MEMBERS: Final = tuple(KeyPair.from_seed(bytes((number,)) * 32).public for number in range(1, 6))
_GROUPS: Final = tuple(SEED.group(bytes(32), bytes((number,)), "opaque") for number in range(3))
_WEAK: Final = tuple(PublicKey(bytes((first, *bytes(30), last))) for first, last in ((0, 0), (1, 0), (2, 0), (0, 255)))
_HOSTS: Final = tuple(Host(group.group_id, group.client_id, group.descriptor, _MEMBERS[1:3]) for group in _GROUPS)
_MESSAGES: Final[tuple[Command | Answer, ...]] = (
    *_HOSTS,
    _HOSTS[0]._replace(format="deps_v1", keep_ms=5_000),
    _HOSTS[1]._replace(group_id=_GROUPS[0].group_id),
    _HOSTS[0]._replace(members=_WEAK[:1]),
    ChangeMembers(_GROUPS[0].group_id, _WEAK[1:], _MEMBERS[:1]),
    ChangeMembers(_GROUPS[0].group_id, (), _WEAK),
    Host(_CONTROL.group_id, _CONTROL.client_id, _CONTROL.descriptor, _MEMBERS),
    *(ChangeMembers(group.group_id, _MEMBERS[2:], _MEMBERS[:2]) for group in _GROUPS),
    *(Drop(group.group_id) for group in (*_GROUPS, _CONTROL)),
    Status(),
    Status(_GROUPS[0].group_id),
    Done(AnswerStatus.DONE),
    State(Amounts(1, 2, 3, 4), Amounts(0, 0, 0, 0), False, ()),
)
_CORPUS: Final = tuple(map(encode, _MESSAGES))
_CONTENTS_MAX: Final = 16


class BspMailboxTarget:
    """Commands as they should be, mutated, and repeated."""

    name = "bsp_mailbox"

    def make(self, rng: random.Random) -> bytes:
        """Return some contents, of which some are mutated."""
        contents = [rng.choice(_CORPUS) for _ in range(rng.randrange(1, 9))]
        for at in range(len(contents)):
            if not rng.randrange(3):
                contents[at] = mutate_bytes(rng, contents[at], _CORPUS)[:BODY_BYTES_MAX]
        return write_script(Step(Do.SEND, 0, content) for content in contents)

    def run(self, data: bytes) -> str:
        """Send the contents; each gets the one answer that the rules give, and the groups are those of the rules."""
        hosting = _Hosting()
        outcomes: dict[str, None] = {}
        for step in read_script(data)[1][:_CONTENTS_MAX]:
            outcomes[hosting.send(step.data)] = None
        hosting.check()
        return " ".join(sorted(outcomes)) or "nothing"


class _Hosting:
    """A mailbox, and what it hosts by the rules."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.device = BspDevice(SEED, self.store)
        self.mailbox = Mailbox(self.device, _MAILBOX, [_OWNER.public], _SETTINGS, self.store)
        self.hosted: dict[bytes, Host] = {}
        self.now = Instant(1_000_000)
        self.timestamp = 0
        self.mailbox.set_wall(self.now, self.now)
        self.mailbox.load(self.now)
        self._commit()

    def send(self, content: bytes) -> str:
        """Send one content, check its answer, and return a word for it."""
        self.timestamp += 1
        body = deps_v1_body((), content)
        if len(body) > BODY_BYTES_MAX:
            return "too_long"
        sent_id = SEED.message_id(_CONTROL.group_id, self.timestamp, body)
        self.device.receive(_OWNER.public, Message(_CONTROL.group_id, self.timestamp, body), self.now)
        self._commit()
        answers = [
            decode(deps_v1_content(self.device.body(_CONTROL.group_id, each.message_id) or b""))
            for each in self.device.messages(_CONTROL.group_id)
            if sent_id in each.dependencies
        ]
        if is_answer(content):
            expect(not answers, "answers an answer")
            return "ignored"
        expect(len(answers) == 1, f"{len(answers)} answers")
        return self._compare(content, answers[0])

    def check(self) -> None:
        """The device is in the groups that are hosted and in no other, and shares each with its members."""
        groups = {group.group_id for group in self.device.groups()}
        expect(groups == {_CONTROL.group_id, *self.hosted}, "other groups than those that are hosted")
        for group_id, host in self.hosted.items():
            expect(set(self.device.audience(group_id)) == set(host.members), "other members")
            expect(not self.device.messages(group_id), "writes into a hosted group")

    def _compare(self, content: bytes, answer: object) -> str:
        try:
            command = decode(content)
        except MalformedError:
            expect(answer == Done(AnswerStatus.UNREADABLE), "answers what cannot be read")
            return "unreadable"
        if isinstance(command, Status):
            rows = sorted(group_id for group_id in self.hosted if group_id > command.after)
            expect(isinstance(answer, State) and [row.group_id for row in answer.rows] == rows, "another state")
            return "state"
        assert isinstance(command, Host | ChangeMembers | Drop)
        status = self._status(command)
        expect(answer == Done(status), f"{answer} instead of {status.name}")
        return status.name.lower()

    def _status(self, command: Command) -> AnswerStatus:
        """Return what becomes of a command by the rules, and remember it."""
        assert not isinstance(command, Status)
        found = self.hosted.get(command.group_id)
        if isinstance(command, Host):
            if len(command.client_id) != 32 or SEED.group_id(command.client_id, command.descriptor) != command.group_id:
                return AnswerStatus.WRONG_GROUP_ID
            if not _are_points(command.members):
                return AnswerStatus.WEAK_KEY
            if command.group_id == _CONTROL.group_id:
                return AnswerStatus.SERVED
            if found is None and len(self.hosted) >= _SETTINGS.owner_groups_max:
                return AnswerStatus.GROUPS_FULL
            if found is not None and found.format != command.format:
                return AnswerStatus.OTHER_FORMAT
            self._keep(command, command.members)
            return AnswerStatus.DONE
        if found is None:
            return AnswerStatus.NOT_HOSTED
        if isinstance(command, ChangeMembers) and not _are_points(command.add):
            return AnswerStatus.WEAK_KEY
        if isinstance(command, Drop):
            del self.hosted[command.group_id]
        else:
            self._keep(found, tuple(key for key in (*found.members, *command.add) if key not in command.remove))
        return AnswerStatus.DONE

    def _keep(self, host: Host, members: tuple[PublicKey, ...]) -> None:
        kept = tuple(key for key in dict.fromkeys(members) if key != _MAILBOX.public)
        self.hosted[host.group_id] = host._replace(members=kept)

    def _commit(self) -> None:
        while self.device.must_commit:
            self.store.commit(self.device.changes())
            self.device.committed(self.now)
            for event in self.device.take_events():
                self.mailbox.on_event(event, self.now)


def _are_points(keys: tuple[PublicKey, ...]) -> bool:
    return all(crypto_core_ed25519_is_valid_point(key) for key in keys)
