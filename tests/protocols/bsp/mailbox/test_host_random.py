"""A mailbox against a dictionary: random owners, commands, good and odd, messages, meetings, restarts and days."""

import random
from collections import Counter

import pytest
from nacl.bindings import crypto_core_ed25519_is_valid_point

from fuzz.mutate import mutate_bytes
from tests.protocols.bsp.build_mailbox import CLIENT_ID, DAY_MS, Clock, MailboxParty, Owner, key_pair, meet
from waystation.core.ids import PublicKey
from waystation.protocols.bsp.device.events import Delivered
from waystation.protocols.bsp.graph.formats import deps_v1_body
from waystation.protocols.bsp.mailbox.commands import (
    Amounts,
    AnswerStatus,
    ChangeMembers,
    Done,
    Drop,
    Host,
    State,
    Status,
    decode,
    encode,
    is_answer,
)
from waystation.protocols.bsp.mailbox.host import control_group
from waystation.protocols.bsp.profile import SEED
from waystation.protocols.bsp.refusals import MalformedError

M = key_pair(1).public
GROUPS = [SEED.group(CLIENT_ID, b"%d" % number, ("opaque", "deps_v1")[number % 2]) for number in range(4)]
GROUPS_MAX = 2
NUMBERS = (2, 3, 4)
"""Of the devices; the first two are owners."""
KEYS = [key_pair(number).public for number in NUMBERS]
CONTROLS = {control_group(SEED, key, M).group_id: key for key in KEYS[:2]}
CONTENT_BYTES_MAX = 30_000
WEAK = [PublicKey(bytes((first, *bytes(30), last))) for first, last in ((0, 0), (1, 0), (2, 0), (0, 255))]
FIRST, OTHER = (
    Host(group.group_id, group.client_id, group.descriptor, tuple(KEYS), group.format) for group in GROUPS[:2]
)
ODD = [
    encode(each)
    for each in (
        FIRST,
        OTHER,
        FIRST._replace(format="deps_v1", keep_ms=5_000),
        FIRST._replace(group_id=OTHER.group_id),
        FIRST._replace(members=tuple(WEAK[:1])),
        FIRST._replace(members=(M, *KEYS)),
        ChangeMembers(FIRST.group_id, tuple(WEAK[1:]), ()),
        ChangeMembers(FIRST.group_id, (), tuple(WEAK)),
        *(ChangeMembers(each.group_id, tuple(KEYS[1:]), tuple(KEYS[:1])) for each in (FIRST, OTHER)),
        *(
            Host(control.group_id, control.client_id, control.descriptor, tuple(KEYS))
            for control in [control_group(SEED, KEYS[0], M)]
        ),
        Status(),
        Status(FIRST.group_id),
        Done(AnswerStatus.DONE),
        State(Amounts(1, 2, 3, 4), Amounts(0, 0, 0, 0), False, ()),
    )
]
"""What an owner may say that is not as it should be; and what is an answer."""
CAN_GET = {"DONE", "GROUPS_FULL", "NOT_HOSTED", "OTHER_FORMAT", "SERVED", "TAKEN", "WEAK_KEY", "WRONG_GROUP_ID"}


class Model:
    """What the answers must be and whom each group must be shared with, by the shortest rules that say it."""

    def __init__(self):
        self.hosted = {}

    def answer(self, owner, command):
        """Return the status of a command, and remember what it changes."""
        owner_of, members, form = self.hosted.get(command.group_id, (None, set(), ""))
        if isinstance(command, Host):
            wrong = self.wrong(owner, command, owner_of, members)
            if wrong is not None:
                return wrong
            if owner_of is not None and form != command.format:
                return AnswerStatus.OTHER_FORMAT
            members, form = set(command.members), command.format
        elif owner_of != owner:
            return AnswerStatus.NOT_HOSTED
        elif isinstance(command, Drop):
            del self.hosted[command.group_id]
            return AnswerStatus.DONE
        elif not all(map(crypto_core_ed25519_is_valid_point, command.add)):
            return AnswerStatus.WEAK_KEY
        else:
            members = (members | set(command.add)) - set(command.remove)
        self.hosted[command.group_id] = (owner, members - {M}, form)
        return AnswerStatus.DONE

    def wrong(self, owner, command, owner_of, members):
        """Return why a group is not hosted, or not for this owner; None when nothing stands against it."""
        if len(command.client_id) != 32 or SEED.group_id(command.client_id, command.descriptor) != command.group_id:
            return AnswerStatus.WRONG_GROUP_ID
        if not all(map(crypto_core_ed25519_is_valid_point, command.members)):
            return AnswerStatus.WEAK_KEY
        if command.group_id in CONTROLS:
            return AnswerStatus.SERVED if CONTROLS[command.group_id] == owner else AnswerStatus.TAKEN
        if owner_of not in {None, owner}:
            return AnswerStatus.SERVED if owner in members else AnswerStatus.TAKEN
        if owner_of is None and sum(each == owner for each, _, _ in self.hosted.values()) >= GROUPS_MAX:
            return AnswerStatus.GROUPS_FULL
        return None


class Town:
    """Three devices and a mailbox."""

    def __init__(self, seed):
        self.rng, self.clock, self.model = random.Random(seed), Clock(), Model()
        self.devices = [Owner(self.clock, number, M) for number in NUMBERS]
        self.keys = [device.key for device in self.devices]
        self.mailbox = self.start(None)
        self.said = Counter()
        self.words = set()
        """Answers that were given."""
        self.last = {}
        for device in self.devices:
            for group in GROUPS:
                device.join(group, M)

    def start(self, store):
        """Return a life of the mailbox."""
        return MailboxParty(self.clock, 1, self.keys[:2], store, owner_groups_max=GROUPS_MAX)

    def step(self):
        """Let one thing happen."""
        self.clock.advance(self.rng.choice((1, 1_000, DAY_MS // 4)))
        doing = (self.command, self.command, self.content, self.add, self.add, self.meet, self.meet, self.restart)
        self.rng.choice(doing)()
        self.mailbox.mailbox.wake(self.clock.now)
        self.mailbox.commit()

    def command(self):
        """An owner asks for something, and must get the model's answer."""
        owner, group = self.rng.choice(self.devices[:2]), self.rng.choice(GROUPS)
        some = tuple(self.rng.sample(self.keys, self.rng.randrange(4)))
        more = tuple(self.rng.sample(self.keys, self.rng.randrange(3)))
        command = self.rng.choice(
            (
                Host(group.group_id, group.client_id, group.descriptor, some, group.format),
                ChangeMembers(group.group_id, some, more),
                Drop(group.group_id),
            )
        )
        self.ask(owner, encode(command))

    def content(self):
        """An owner says something odd, often mutated, and must get the answer to what can be read of it."""
        content = self.rng.choice(ODD)
        if self.rng.random() < 0.5:
            content = mutate_bytes(self.rng, content, ODD)[:CONTENT_BYTES_MAX]
        self.ask(self.rng.choice(self.devices[:2]), content)

    def ask(self, owner, content):
        """See that a content gets the one answer that the model gives."""
        answer = owner.ask(self.mailbox, content)
        if is_answer(content):
            assert answer is None
            return
        try:
            command = decode(content)
        except MalformedError:
            assert answer == Done(AnswerStatus.UNREADABLE)
            return
        if isinstance(command, Status):
            owned = sorted(group for group, row in self.model.hosted.items() if row[0] == owner.key)
            assert [row.group_id for row in answer.rows] == [group for group in owned if group > command.after]
            self.words.add("STATE")
            return
        expected = self.model.answer(owner.key, command)
        self.words.add(expected.name)
        assert answer == Done(expected)

    def add(self):
        """Somebody says something in a group, depending on what it heard last."""
        device, group = self.rng.choice(self.devices), self.rng.choice(GROUPS)
        heard = [event for event in device.events if isinstance(event, Delivered) and event.group_id == group.group_id]
        self.said[group.group_id] += 1
        text = b"%d" % self.said.total()
        last = [each.message_id for each in heard[-2:]]
        body = deps_v1_body(last, text) if group.format == "deps_v1" else text
        device.add(group, body, self.clock.now)

    def meet(self):
        """A device is online for a moment."""
        meet(self.rng.choice(self.devices), self.mailbox)

    def restart(self):
        """The mailbox ends and begins again."""
        self.mailbox = self.start(self.mailbox.store)

    def check(self):
        """Whatever happened, this holds."""
        device = self.mailbox.device
        joined = {group.group_id for group in device.groups()} - {owner.control.group_id for owner in self.devices}
        assert joined == self.model.hosted.keys()
        for group_id, (_, members, _) in self.model.hosted.items():
            assert set(device.audience(group_id)) == members
        members = {key for _, members, _ in self.model.hosted.values() for key in members}
        assert set(device.peers()) == members | set(self.keys[:2])
        for party in self.devices:
            counts = Counter(event.message_id for event in party.events if isinstance(event, Delivered))
            assert set(counts.values()) <= {1}


@pytest.mark.parametrize("seed", range(20))
def test_mailbox_does_what_a_dictionary_would(seed):
    """Answers, membership, peers and single deliveries agree with the model after every step."""
    town = Town(seed)
    for _ in range(60):
        town.step()
        town.check()

    town.ask(town.devices[0], encode(Status()))


def test_chance_reaches_every_answer():
    """Random commands get every answer that owners can get."""
    towns = [Town(seed) for seed in range(40, 52)]
    for town in towns:
        for _ in range(60):
            town.step()

    words = set().union(*(town.words for town in towns))
    assert words >= {"STATE", *(each.name for each in AnswerStatus if each.name in CAN_GET)}


@pytest.mark.parametrize("seed", range(20, 30))
def test_members_end_with_everything_and_the_mailbox_with_nothing(seed):
    """Once a group is hosted for all three and all have come by, all have the same, and no body is left."""
    town = Town(seed)
    owner = town.devices[0]
    for group in GROUPS[:GROUPS_MAX]:
        host = Host(group.group_id, group.client_id, group.descriptor, tuple(town.keys), group.format)
        assert owner.ask(town.mailbox, host) == Done(AnswerStatus.DONE)
    for _ in range(60):
        town.clock.advance(1_000)
        town.rng.choice((town.add, town.meet, town.meet, town.restart))()
    for device in (*town.devices, *town.devices, *town.devices):
        town.clock.advance(DAY_MS)
        meet(device, town.mailbox)
    town.mailbox.sweep()

    for group in GROUPS[:GROUPS_MAX]:
        first, *others = [sorted(device.bodies(group)) for device in town.devices]
        assert others == [first, first]
        assert len(first) == town.said[group.group_id]
        assert town.mailbox.live(group) == 0
