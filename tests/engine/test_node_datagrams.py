"""Laws of engine.node about protocols without connections."""

import random

import pytest

from tests.engine.build import KEY, SECOND, WALL
from waystation.core.effects import Commit, SendTo, SignatureCheck, Verify
from waystation.core.facts import Refused
from waystation.core.instant import Instant
from waystation.core.network_set import place_of
from waystation.crypto.hashing import keyed_reference
from waystation.engine import access as module
from waystation.engine.admission import Admission
from waystation.engine.bans import Ban, BanList
from waystation.engine.node import Node
from waystation.engine.policy import Policy, Stance
from waystation.engine.recorder import Recorder
from waystation.rules.policy import Action, Mode, PolicyRule, PolicyTable
from waystation.store.memory import MemoryStore

HERE = ("192.0.2.1", 5_000)
THERE = ("2001:db8::1", 6_000)
NOW = Instant(50 * SECOND)


class Saying:
    """A host without connections that says everything back, and keeps what it was told."""

    def __init__(self):
        self.told = []
        self.effects = []
        self.deadline_at = None

    def receive_datagrams(self, datagrams, now):
        self.told.append(("datagrams", list(datagrams), now))
        self.effects += [SendTo(data + b"!", address) for data, address in datagrams]

    def committed(self, ticket, now):
        self.told.append(("committed", ticket))

    def not_committed(self, ticket, now):
        self.told.append(("not_committed", ticket))

    def verified(self, ticket, answers, now):
        self.told.append(("verified", ticket, answers))

    def wake(self, now):
        self.told.append(("wake", now))

    def deadline(self):
        return self.deadline_at

    def take(self):
        effects, self.effects = self.effects, []
        return effects

    def retire(self):
        self.told.append(("retire",))

    def settled(self):
        return not self.effects

    def shut(self, now):
        self.told.append(("shut", now))

    def expel(self, identity, now):
        self.told.append(("expel", identity))

    def review(self, now):
        self.told.append(("review", None))

    def sizes(self):
        return {"things": 3}


def rig():
    """Return a node over one such host, the host, the list of bans and the recorder."""
    host, bans = Saying(), BanList(MemoryStore())
    recorder = Recorder(lambda _event: None, random.Random(1))
    recorder.set_wall(NOW, WALL)
    recorder.use_key(KEY)
    policy = Policy(Stance.ENFORCE)
    policy.set_wall(NOW, WALL)
    policy.use_key(KEY)
    return Node({"saying": host}, Admission(), bans, recorder, policy), host, bans, recorder


def heard(host):
    """Return the datagrams that a host was given, one list per call."""
    return [entry[1] for entry in host.told if entry[0] == "datagrams"]


def test_datagrams_go_in_at_once_and_answers_come_out_in_order():
    """One call is one call of the host; what it says leaves as it is."""
    node, host, _, _ = rig()
    node.receive_datagrams("saying", [(b"a", HERE), (b"b", THERE)], WALL, NOW)

    assert host.told == [("datagrams", [(b"a", HERE), (b"b", THERE)], NOW)]
    assert list(node.take(NOW)) == [("saying", [SendTo(b"a!", HERE), SendTo(b"b!", THERE)])]
    assert list(node.take(NOW)) == []


def test_facts_stay_and_questions_pass():
    """The server sees datagrams, commits and checks; facts go to the recorder."""
    node, host, _, recorder = rig()
    questions = [Commit(1, ()), Verify(2, (SignatureCheck((bytes(32),), b"", bytes(64)),))]
    host.effects = [Refused("saying", None, "length", 5), *questions]

    assert list(node.take(NOW)) == [("saying", questions)]
    assert recorder.totals()["refusals"] == {("saying", "length"): 5}


def test_bytes_are_counted_both_ways():
    """What arrives counts, banned or not, and so does what leaves; nothing else does."""
    node, _, bans, _ = rig()
    bans.add(Ban("address:192.0.2.1", "abuse", WALL, None))
    node.receive_datagrams("saying", [(bytes(10), HERE), (bytes(20), THERE)], WALL, NOW)
    list(node.take(NOW))

    assert node.traffic() == {"saying": {"in": 30, "out": 21}}


@pytest.mark.parametrize(
    ("subject", "host"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1", "::ffff:192.0.2.1"),
        ("2001:db8::/64", "2001:db8::77"),
        ("fe80::/64", "fe80::1%2"),
    ],
)
def test_banned_address_is_not_heard(subject, host):
    """Its datagrams are left out and counted, those around them are heard in order; another port is no way out."""
    node, relay, bans, recorder = rig()
    bans.add(Ban(f"address:{subject}", "abuse", WALL, WALL + SECOND))
    banned = [(b"x", (host, 1)), (b"y", (host, 2))]
    mixed = [(b"a", ("198.51.100.1", 1)), banned[0], (b"b", ("198.51.100.1", 2)), banned[1]]
    node.receive_datagrams("saying", mixed, WALL, NOW)
    node.receive_datagrams("saying", banned, WALL, NOW)
    node.receive_datagrams("saying", banned[:1], WALL + SECOND, NOW)

    assert [[data for data, _ in datagrams] for datagrams in heard(relay)] == [[b"a", b"b"], [b"x"]]
    assert recorder.totals()["refusals"] == {("saying", "address_banned"): 4}


def test_nothing_leaves_for_a_banned_address():
    """What a relay still has for it stays here until the ban is over; others get theirs."""
    node, relay, bans, _ = rig()
    bans.add(Ban("address:192.0.2.1", "abuse", WALL, WALL + SECOND))
    banned, other = ("192.0.2.1", 7), ("198.51.100.1", 7)
    left = []
    for wall_us in (WALL, WALL + SECOND):
        node.receive_datagrams("saying", [(b"a", other)], wall_us, NOW)
        relay.effects[:] = [SendTo(b"mail", banned), SendTo(b"mail", other)]
        left.append([effect.address for _, effects in node.take(NOW) for effect in effects])

    assert left == [[other], [banned, other]]


def test_lifted_ban_is_over_at_once():
    """What was remembered about an address does not outlast the ban, nor hide a new one."""
    node, relay, bans, _ = rig()
    for change in (
        None,
        lambda: bans.add(Ban("address:192.0.2.1", "abuse", WALL, None)),
        lambda: bans.lift("address:192.0.2.1"),
    ):
        if change is not None:
            change()
        node.receive_datagrams("saying", [(b"a", HERE)], WALL, NOW)

    assert len(heard(relay)) == 2


def test_without_banned_addresses_nobody_is_looked_up(monkeypatch):
    """Bans of identities cost a datagram nothing, and hosts are looked at once while there are bans of addresses."""
    node, relay, bans, _ = rig()
    looked = []
    monkeypatch.setattr(module, "place_of", lambda host: looked.append(host) or place_of(host))
    bans.add(Ban(f"id:{'00' * 32}", "abuse", WALL, None))
    node.receive_datagrams("saying", [(b"a", HERE)], WALL, NOW)
    before = list(looked)
    bans.add(Ban("address:198.51.100.1", "abuse", WALL, None))
    for _ in range(3):
        node.receive_datagrams("saying", [(b"a", HERE), (b"b", HERE)], WALL, NOW)

    assert (before, looked) == ([], ["192.0.2.1"])
    assert len(heard(relay)) == 4


def test_memory_of_hosts_is_bounded(monkeypatch):
    """However many addresses speak, at most so many are remembered."""
    monkeypatch.setattr(module, "PLACES_MAX", 4)
    node, _, bans, _ = rig()
    bans.add(Ban("address:198.51.100.1", "abuse", WALL, None))
    node.receive_datagrams("saying", [(b"a", (f"192.0.2.{number}", 1)) for number in range(11)], WALL, NOW)

    assert len(node._access._places) <= 4


def test_it_is_a_relay_in_everything_else():
    """Answers, deadlines and commands reach it as they reach the others."""
    node, host, _, _ = rig()
    host.deadline_at = Instant(NOW + 7)
    node.committed("saying", 1, NOW)
    node.verified("saying", 2, [0], NOW)
    node.wake(NOW)
    node.retire()
    node.expel(bytes(32), NOW)
    node.shut(NOW)

    assert host.told == [
        ("committed", 1),
        ("verified", 2, [0]),
        ("wake", NOW),
        ("retire",),
        ("expel", bytes(32)),
        ("shut", NOW),
    ]
    assert node.deadline() == NOW + 7
    assert node.sizes()["saying"] == {"things": 3}
    assert node.settled()
    host.effects.append(SendTo(b"", HERE))
    assert not node.settled()


def test_datagrams_that_a_published_rule_refuses_go_no_further():
    """A rate counts none, since nothing proves where they come from; a block drops them, counted once per call."""
    node, host, _, recorder = rig()
    network = keyed_reference(KEY, b"net:192.0.2.0/24")
    sent = [*((b"%d" % n, HERE) for n in range(5)), (b"x", THERE)]
    for action, amount in ((Action.RATE, 2), (Action.BLOCK, 0)):
        rule = PolicyRule("source", network, action, amount, "burst", WALL, WALL + SECOND, "1", Mode.ENFORCE)
        node._policy.use(PolicyTable([rule], WALL + SECOND), {})
        node.receive_datagrams("saying", sent, WALL, NOW)

    assert heard(host) == [sent, [(b"x", THERE)]]
    assert recorder.totals()["refusals"] == {("saying", "policy_blocked"): 5}
