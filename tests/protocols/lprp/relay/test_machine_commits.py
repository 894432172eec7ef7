"""Every commit is a place to go on from: random lives of a host, begun anew after each commit of theirs."""

import random

import pytest

from tests.protocols.lprp.build import HOST, TENANT, VISITOR
from tests.protocols.lprp.build_relay import AT_HOME, ELSEWHERE, Host, Person, commands, key_of
from waystation.protocols.lprp.messages import Command
from waystation.protocols.lprp.relay.machine import LprpRelay
from waystation.protocols.lprp.whitelist import whitelist_hash
from waystation.store.memory import MemoryStore

AHEAD_MS = 1_000
"""How far ahead of itself a tenant's newest time may stand on disk (LPRP-AHEAD)."""


def rows(store, table):
    """Return how many rows a table has."""
    return len(list(store.scan(table, count_max=100_000)))


def queue_of(relay, key, wall_ms):
    """Return the packets that wait for a tenant, oldest first."""
    return [letter.data for letter in relay._tenants.find(key, wall_ms).mailbox]


class Run:
    """A random life of a host: two tenants, three senders, everything that the store has to know."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.host = Host(retry_ms=10_000)
        self.tenants = [Person(self.host, TENANT, AT_HOME).lease(), Person(self.host, VISITOR, ELSEWHERE).lease()]
        self.senders = [Person(self.host, key_of(number), ("198.51.100.7", number)) for number in range(3)]
        self.lists = {tenant.public: frozenset() for tenant in self.tenants}
        self.waiting = {tenant.public: {} for tenant in self.tenants}
        """Letters that were accepted and not confirmed, by tenant."""
        for tenant in self.tenants:
            self.toggle(tenant, [sender.public for sender in self.senders])
        self.log = []
        """(commits so far, what was told)."""
        self.note_all()

    def note_all(self):
        """Write down what holds now, with how many commits it took."""
        waiting = {tenant.public: list(self.waiting_of(tenant)) for tenant in self.tenants}
        times = {tenant.public: tenant.last_ms for tenant in self.tenants}
        self.log.append((len(self.host.commits), waiting, dict(self.lists), times))

    def waiting_of(self, tenant):
        """Return what the sent packets say is waiting: accepted, and not confirmed."""
        return self.waiting[tenant.public]

    def toggle(self, tenant, keys):
        """Change a whitelist by work if it has to be."""
        wanted = self.lists[tenant.public] ^ frozenset(keys)
        answers = tenant.say(Command.UPDATE_WHITELIST, whitelist_hash(wanted) + b"".join(keys))
        for challenge in [p for p in answers if p.command is Command.WHITELIST_DEMANDS_WORK]:
            answers += tenant.solve(challenge)
        if Command.WHITELIST_DONE in commands(answers):
            self.lists[tenant.public] = wanted

    def mail(self, tenant):
        """Send a batch of letters and note those that were accepted."""
        sender = self.rng.choice(self.senders)
        count = self.rng.choice((1, 1, 3, 12, 20))
        letters = [sender.letter(tenant, self.rng.randbytes(self.rng.randint(64, 300))) for _ in range(count)]
        left = self.host.give(*[(letter.data, sender.address) for letter in letters])
        accepted = {packet.reference for _, packet in left if packet.command is Command.RELAY_ACCEPTED}
        for letter in letters:
            if letter.signature in accepted:
                self.waiting_of(tenant)[letter.data] = None

    def confirm(self, tenant):
        """Confirm some of what waits, in any order, in one batch."""
        waiting = list(self.waiting_of(tenant))
        done = self.rng.sample(waiting, self.rng.randint(0, len(waiting)))
        self.host.give(*[(tenant.packet(Command.DELIVERED, data[:64]).data, tenant.address) for data in done])
        for data in done:
            del self.waiting_of(tenant)[data]

    def step(self):
        """Do one thing and note what holds after it."""
        tenant = self.rng.choice(self.tenants)
        act = self.rng.choices(("mail", "confirm", "beat", "toggle", "lease", "time"), (5, 5, 2, 1, 1, 2))[0]
        if act == "mail":
            self.mail(tenant)
        elif act == "confirm":
            self.confirm(tenant)
        elif act == "beat":
            tenant.beat()
        elif act == "toggle":
            self.toggle(tenant, [key_of(self.rng.randrange(50, 60)).public])
        elif act == "lease":
            tenant.lease()
        else:
            self.host.pass_ms(self.rng.randrange(3_000))
        self.note_all()


@pytest.mark.parametrize("seed", range(6))
def test_every_commit_is_a_place_to_go_on_from(seed):
    """From the store as each commit left it: exactly the letters, lists and times that were told by then."""
    run = Run(seed)
    for _ in range(60):
        run.step()
    store = MemoryStore()
    told = {count: rest for count, *rest in run.log}  # the last that was noted at each number of commits
    checked = 0
    for count, changes in enumerate(run.host.commits, 1):
        store.commit(changes)
        life = LprpRelay(run.host.settings, HOST, store)
        life.set_wall(run.host.now, run.host.wall_ms * 1_000)
        life.take()
        if count not in told:
            continue
        waiting, lists, times = told[count]
        checked += 1
        for tenant in run.tenants:
            key = tenant.public
            assert sorted(queue_of(life, key, run.host.wall_ms)) == sorted(waiting[key])
            found = life._tenants.find(key, run.host.wall_ms)
            assert found.whitelist == lists[key]
            assert times[key] <= found.last_ts <= times[key] + AHEAD_MS
        assert life.sizes()["bundles"] == rows(store, "lprp_packets") >= rows(store, "lprp_done")

    assert checked >= 30


@pytest.mark.parametrize("seed", range(6))
def test_times_and_leases_never_go_back(seed):
    """Whatever commit one goes on from, neither last times nor the beginnings of leases are older than before."""
    run = Run(100 + seed)
    for _ in range(40):
        run.step()
    store, newest = MemoryStore(), {}
    for changes in run.host.commits:
        store.commit(changes)
        for key, value in store.scan("lprp_tenants"):
            times = [int.from_bytes(value[at : at + 8], "big") for at in (1, 9, 17, 25)]
            assert all(map(int.__le__, newest.get(key, times), times))
            newest[key] = times

    assert len(newest) == 2


@pytest.mark.parametrize("seed", range(4))
def test_lives_in_a_row_lose_nothing(seed):
    """A host that starts anew after every few steps ends with what one that never stopped would have."""
    run = Run(200 + seed)
    for _ in range(40):
        run.step()
        if run.rng.random() < 0.3:
            run.host.restart()
            run.host.holds_commits = False

    for tenant in run.tenants:
        assert sorted(queue_of(run.host.relay, tenant.public, run.host.wall_ms)) == sorted(run.waiting_of(tenant))
        assert run.host.view(tenant)["whitelist"] == len(run.lists[tenant.public])
