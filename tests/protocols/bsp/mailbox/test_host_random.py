"""A mailbox against a dictionary: random owners, commands, messages, meetings, restarts and days."""

import random
from collections import Counter

import pytest

from tests.protocols.bsp.build_mailbox import CLIENT_ID, DAY_MS, Clock, MailboxParty, Owner, key_pair, meet
from waystation.protocols.bsp.device.events import Delivered
from waystation.protocols.bsp.graph.formats import deps_v1_body
from waystation.protocols.bsp.mailbox.commands import AnswerStatus, ChangeMembers, Done, Drop, Host, Status
from waystation.protocols.bsp.profile import SEED

M = key_pair(1).public
GROUPS = [SEED.group(CLIENT_ID, b"%d" % number, ("opaque", "deps_v1")[number % 2]) for number in range(4)]
GROUPS_MAX = 2
NUMBERS = (2, 3, 4)
"""Of the devices; the first two are owners."""


class Model:
    """What the answers must be and whom each group must be shared with, by the shortest rules that say it."""

    def __init__(self):
        self.hosted = {}

    def answer(self, owner, command):
        """Return the status of a command, and remember what it changes."""
        found = self.hosted.get(command.group_id)
        is_ours = found is not None and found[0] == owner
        if isinstance(command, Host) and not is_ours:
            if found is not None:
                return AnswerStatus.SERVED if owner in found[1] else AnswerStatus.TAKEN
            if sum(each == owner for each, _ in self.hosted.values()) >= GROUPS_MAX:
                return AnswerStatus.GROUPS_FULL
        elif not is_ours:
            return AnswerStatus.NOT_HOSTED
        if isinstance(command, Drop):
            del self.hosted[command.group_id]
        elif isinstance(command, Host):
            self.hosted[command.group_id] = (owner, set(command.members))
        else:
            self.hosted[command.group_id] = (owner, (found[1] | set(command.add)) - set(command.remove))
        return AnswerStatus.DONE


class Town:
    """Three devices and a mailbox."""

    def __init__(self, seed):
        self.rng, self.clock, self.model = random.Random(seed), Clock(), Model()
        self.devices = [Owner(self.clock, number, M) for number in NUMBERS]
        self.keys = [device.key for device in self.devices]
        self.mailbox = self.start(None)
        self.said = Counter()
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
        what = self.rng.choice((self.command, self.command, self.add, self.add, self.meet, self.meet, self.restart))
        what()
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
        expected = self.model.answer(owner.key, command)
        assert owner.ask(self.mailbox, command) == Done(expected)

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
        for group_id, (_, members) in self.model.hosted.items():
            assert set(device.audience(group_id)) == members
        members = {key for _, members in self.model.hosted.values() for key in members}
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

    state = town.devices[0].ask(town.mailbox, Status())
    owned = sorted(group for group, (owner, _) in town.model.hosted.items() if owner == town.keys[0])
    assert [row.group_id for row in state.rows] == owned


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
