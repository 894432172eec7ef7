"""The host of LPRP told as the vectors tell it, byte for byte, and what the node asks of it."""

import random

import pytest

from tests.protocols.lprp.build import (
    FRIENDS,
    HOST,
    NEGATIVE,
    NOW_MS,
    SENDER,
    TENANT,
    VECTORS,
    VISITOR,
    changed,
    vector,
)
from tests.protocols.lprp.build_relay import (
    AFAR,
    AT_HOME,
    BITS,
    ELSEWHERE,
    Host,
    Person,
    commands,
    friends,
    key_of,
    settings_of,
    world,
)
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS, Command
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.relay.machine import LprpRelay
from waystation.store.memory import MemoryStore

STORY_BITS = {"pow_base_bits_lease": 14, "pow_base_bits_relay": 12, "pow_base_bits_whitelist": 12}
"""What the vectors' own work was searched for."""


class Story:
    """A host with the vectors' key, whose clock stands where each of its answers was signed."""

    def __init__(self, **settings):
        self.host = Host(**STORY_BITS, **settings)
        self.places = {"tenant": AT_HOME, "sender": AFAR}

    def tell(self, name, answer, *, who="tenant"):
        """Give a packet of the vectors and expect one of them, at that one's time, as the only thing sent there."""
        expected = vector(answer) if answer else None
        at_ms = int.from_bytes((expected or vector(name))[64:72], "big")
        self.host.pass_ms(at_ms - self.host.wall_ms)
        left = self.host.give((vector(name), self.places[who]))

        said = [packet.data for address, packet in left if address == self.places[who]]
        assert said == ([expected] if expected else [])
        return left


@pytest.fixture(scope="module")
def leased():
    """Return the first act of the story on a store, for the acts that come after it."""
    store = MemoryStore()
    story = Story()
    story.host.store = store
    story.host.start()
    story.tell("lease_request", "lease_demand_work")
    story.tell("lease_work", "lease_accepted")
    return story.host.commits


def after_lease(leased):
    """Return a story in which the tenant has its lease."""
    story = Story()
    for changes in leased:
        story.host.store.commit(changes)
    story.host.start()
    return story


# The vectors


def test_story_of_a_lease():
    """A lease costs work; too little is refused, and every answer is the vectors', byte for byte."""
    story = Story()
    story.tell("lease_request", "lease_demand_work")
    story.tell("lease_work_too_easy", "work_rejected")
    story.tell("lease_work", "lease_accepted")
    story.tell("heartbeat", "heartbeat_reply")

    view = story.host.view(Person(story.host, TENANT))
    assert (view["state"], view["queue"], view["whitelist"]) == ("active", 0, 0)
    assert view["lease_ms_left"] == story.host.settings.lease_ms - (1002 - 905)


def test_story_of_a_full_table():
    """With no room for a lease the request is refused at once, without work."""
    story = Story(tenants_max=0)
    story.tell("lease_request", "lease_rejected")

    assert story.host.sizes["challenges"] == 0


@pytest.mark.parametrize("confirmed_by", ["relay_done", "relay_done_literal_order"])
def test_story_of_a_relay(leased, confirmed_by):
    """A stranger works for one packet; it arrives byte for byte as it was signed, and either layout of 802 ends it."""
    story = after_lease(leased)
    story.tell("heartbeat", "heartbeat_reply")
    story.tell("relay_stranger", "relay_demand_work", who="sender")
    left = story.tell("relay_work", "relay_accepted", who="sender")
    queued = story.host.sizes["packets"]
    story.tell(confirmed_by, None)

    assert [packet.data for address, packet in left if address == AT_HOME] == [vector("relay_forwarded")]
    assert (queued, story.host.sizes["packets"]) == (1, 0)


def test_story_of_a_refused_relay():
    """Without a lease at the other end there is nobody to relay to."""
    story = Story()
    story.tell("relay_stranger", "relay_refused", who="sender")

    assert story.host.sizes["packets"] == story.host.sizes["challenges"] == 0


@pytest.mark.parametrize(("name", "size"), [("relay_empty", 144), ("relay_max", 508)])
def test_story_of_the_shortest_and_the_longest(leased, name, size):
    """A packet of 144 bytes and one of 508 are relayed to a tenant that knows the sender, unchanged."""
    story = after_lease(leased)
    tenant = Person(story.host, TENANT)
    story.host.pass_ms(2_300)
    tenant.toggle(SENDER.public)
    left = story.host.give((vector(name), AFAR))

    assert (AT_HOME, vector(name)) in [(address, packet.data) for address, packet in left]
    assert len(vector(name)) == size


def test_story_of_a_whitelist(leased):
    """Add three, remove one for work, differ, compare, too many, clear: all as in the vectors."""
    story = after_lease(leased)
    tenant = Person(story.host, TENANT)
    story.tell("whitelist_add3", "whitelist_ok")
    story.tell("whitelist_remove1", "whitelist_demand_work")
    story.tell("whitelist_work", "whitelist_ok2")
    after_work = story.host.view(tenant)["whitelist"]
    story.tell("whitelist_mismatch", "whitelist_bad")
    for name, answer in (
        ("whitelist_check_only", Command.WHITELIST_DONE),
        ("whitelist_max10", Command.WHITELIST_DIFFERS),
    ):
        story.host.pass_ms(100)
        assert [packet.command for _, packet in story.host.give((vector(name), AT_HOME))] == [answer]
    before_reset = story.host.view(tenant)["whitelist"]
    story.tell("whitelist_reset", "whitelist_reset_ok")

    assert (after_work, before_reset, story.host.view(tenant)["whitelist"]) == (2, 2, 0)


@pytest.mark.parametrize("solution", ["work_S_0", "work_S_300"])
def test_story_of_the_bounds_of_s(solution):
    """A solution of 0 or of 300 bytes is looked at like any other, and refused here for its bits alone."""
    story = Story()
    story.tell("lease_request", "lease_demand_work")
    left = story.host.give((vector(solution), AT_HOME))
    (answer,) = [packet for _, packet in left]

    assert answer.command is Command.WORK_REFUSED and answer.reference == vector(solution)[:64]


REFUSED_AT = {
    "length": Refusal.LENGTH,
    "clock": Refusal.CLOCK,
    "command length": Refusal.COMMAND_LENGTH,
    "host key": Refusal.WRONG_HOST,
    "signature": Refusal.BAD_SIGNATURE,
    "state": Refusal.UNKNOWN_CHALLENGE,
}
"""What a host counts at each stage that the vectors name."""


@pytest.mark.parametrize("name", sorted(NEGATIVE))
def test_negative_vectors_change_nothing(name):
    """What must be dropped is, at the stage the vector names: nothing is sent, stored, queued or granted for it."""
    stage = NEGATIVE[name]["stage"]
    # A signature is looked at when nothing newer is known of its tenant; work that nobody asked for would be contact.
    host, tenant, _ = world(wall_ms=NOW_MS - 10_000 if stage == "signature" else NOW_MS + 1_000)
    host.turn_clock(NEGATIVE[name]["now"])
    watched = ("tenants", "packets", "challenges", "answers", "seen", "bundles", "deliveries", "under_way")
    before = [host.sizes[each] for each in watched], host.view(tenant), len(host.commits)
    left = host.give((bytes.fromhex(NEGATIVE[name]["packet"]), ELSEWHERE))

    assert left == []
    assert ([host.sizes[each] for each in watched], host.view(tenant), len(host.commits)) == before
    assert host.refused == {REFUSED_AT[stage].value: 1}


def test_work_of_another_key_leaves_the_challenge():
    """An answer by a key the challenge was not made for is dropped, and its owner can still answer."""
    story = Story()
    story.tell("lease_request", "lease_demand_work")
    other = story.host.give((bytes.fromhex(NEGATIVE["work_other_key"]["packet"]), ELSEWHERE))
    story.tell("lease_work", "lease_accepted")

    assert other == []
    assert story.host.refused[Refusal.UNKNOWN_CHALLENGE.value] == 1


@pytest.mark.parametrize("edge", VECTORS["window_edges"], ids=lambda edge: edge["name"])
def test_window_edges_of_the_vectors_pass(leased, edge):
    """Packets whose time is exactly 2**19 ms off are heard."""
    story = after_lease(leased)
    story.host.turn_clock(edge["now"])
    story.host.give((bytes.fromhex(edge["packet"]), AT_HOME))

    assert story.host.refused[Refusal.CLOCK.value] == 0
    assert story.host.checks_count + story.host.refused[Refusal.NOT_NEWER.value] == 1


@pytest.mark.parametrize(("off_ms", "heard"), [(CLOCK_WINDOW_MS, True), (CLOCK_WINDOW_MS + 1, False)])
@pytest.mark.parametrize("sign", [-1, 1])
def test_clock_window(off_ms, heard, sign):
    """The host hears whose clock is off by at most 2**19 ms, either way."""
    host = Host()
    person = Person(host, VISITOR)
    answers = person.say(Command.ASK_LEASE, bytes(64), time_ms=host.wall_ms + sign * off_ms)

    assert commands(answers) == ([Command.LEASE_DEMANDS_WORK] if heard else [])


# What the node asks


def test_retired_host_hears_nobody():
    """After ``retire`` nothing new is heard; what was heard gets its answer, and then the host is settled."""
    host, tenant, _ = world()
    host.holds_commits = True
    tenant.beat()
    host.relay.retire()
    unsettled = host.relay.settled()
    left = host.release()

    assert not unsettled and host.relay.settled()
    assert [packet.command for _, packet in left] == [Command.HEARTBEAT_ANSWER]
    assert tenant.beat() == []


def test_settled_waits_for_what_nobody_was_promised():
    """A host with changes that are not on disk is not settled, also when no answer waits for them."""
    host, tenant, sender = friends()
    letter = sender.letter(tenant)
    sender.repeat(letter)
    host.holds_commits = True
    tenant.beat()
    tenant.confirm(letter)
    (commit,) = host.held
    host.store.commit(commit.changes)
    host.relay.committed(commit.ticket, host.now)

    assert not host.relay.settled()


def test_expelled_tenant_is_sent_nothing():
    """An identity that is turned away while it holds a lease gets no more mail, and may not speak."""
    banned = set()
    host, tenant, sender = friends(admits=lambda key: key not in banned)
    sender.mail(tenant)
    banned.add(tenant.public)
    host.relay.expel(tenant.public, host.now)
    left = host.pass_ms(60_000)

    assert left == [] and tenant.beat() == []
    assert commands(sender.mail(tenant)) == [Command.RELAY_REFUSED]
    assert host.refused[Refusal.IDENTITY_BANNED.value] == 1
    assert commands(tenant.say(Command.ASK_LEASE, bytes(64))) == [Command.LEASE_REFUSED]


def test_expelled_tenant_is_nowhere_until_it_speaks():
    """Whoever is expelled and not banned has no address, and nothing rings for it, until its next packet."""
    host, tenant, sender = friends()
    sender.mail(tenant)
    host.relay.expel(tenant.public, host.now)
    ringing, state = host.sizes["deliveries"], host.view(tenant)["state"]
    answers = sender.mail(tenant, b"x" * 64)

    assert (ringing, state, host.view(tenant)["address"]) == (0, "inactive", "")
    assert commands(answers) == [Command.RELAY_ACCEPTED]
    assert commands(tenant.beat()).count(Command.RELAY) >= 1


def test_expelling_a_stranger_is_nothing():
    """Whoever holds no lease has nothing to lose, and ending the host closes no connection."""
    host, tenant, _ = world()
    host.relay.expel(key_of(77).public, host.now)
    host.relay.shut(host.now)

    assert host.run() == [] and host.view(tenant)["state"] == "active"


def test_info_is_what_clients_need():
    """The node's document names the key, the order of bytes, the lease, the retries and who gets a lease."""
    host = Host(lease_ms=1_234_000, retry_ms=100, retries=3, leases="closed")

    assert host.relay.info() == {
        "public_key": HOST.public.hex(),
        "byte_order": "big",
        "lease_ms": 1_234_000,
        "retry_ms": 100,
        "retries": 3,
        "leases": "closed",
    }


def test_signature_is_checked_before_anything_else_happens():
    """A flipped bit of the signature makes silence of every kind of packet."""
    host, tenant, sender = friends()
    packets = [
        tenant.packet(Command.HEARTBEAT),
        tenant.packet(Command.CLEAR_WHITELIST, bytes(64)),
        tenant.packet(Command.ASK_LEASE, bytes(64)),
        tenant.update(*FRIENDS, current=[sender.public]),
        sender.letter(tenant),
    ]
    before = host.view(tenant), len(host.commits)
    left = [host.give((changed(packet.data, at), AT_HOME)) for packet in packets for at in (0, 31, 40, 63)]

    assert left == [[]] * 20
    assert (host.view(tenant), len(host.commits)) == before
    assert host.refused[Refusal.BAD_SIGNATURE.value] == 20


def test_one_run_one_trace():
    """The same datagrams at the same times give the same bytes, whatever happens inside."""

    def run():
        rng = random.Random(7)
        host, tenant, sender = friends()
        for _ in range(60):
            rng.choice((tenant.beat, lambda: sender.mail(tenant), tenant.compare))()
            host.pass_ms(rng.randrange(900))
        return [(address, packet.data) for address, packet in host.sent], host.facts

    assert run() == run()


def test_default_settings_make_a_host():
    """A host stands on its settings alone, knows nobody, and wants nothing."""
    relay = LprpRelay(settings_of(), HOST, MemoryStore())
    relay.set_wall(0, NOW_MS * 1_000)

    assert relay.deadline() is None and relay.take() == [] and relay.settled()
    assert set(relay.sizes().values()) == {0}
    assert relay._settings.pow_base_bits_relay == BITS


def test_wakes_that_nobody_asked_for_change_nothing():
    """Being woken too early, at any time, leaves the trace of a run as it is."""

    def run(*, restless):
        rng = random.Random(3)
        host, tenant, sender = friends(retry_ms=300, retries=4)
        for _ in range(40):
            rng.choice((tenant.beat, lambda: sender.mail(tenant), lambda: None))()
            for _ in range(rng.randrange(5)):
                left = host.pass_ms(rng.randrange(150))
                if restless:
                    host.relay.wake(host.now)
                    host.run()
                assert all(packet.command is Command.RELAY for _, _, packet in left)
        return [(address, packet.data) for address, packet in host.sent]

    assert run(restless=True) == run(restless=False)


@pytest.mark.parametrize("by_ms", [-3_600_000, 3_600_000])
def test_clock_that_is_set(by_ms):
    """Setting the wall clock moves neither the tries of mail nor the life of challenges; leases follow it."""
    host, tenant, sender = friends()
    (challenge,) = Person(host, VISITOR, ELSEWHERE).mail(tenant)
    letter = sender.letter(tenant)
    sender.repeat(letter)
    lease = host.view(tenant)["lease_ms_left"]
    host.turn_clock(host.wall_ms + by_ms)
    left = [at for at, _, packet in host.pass_ms(40_000) if packet == letter]
    visitor = Person(host, VISITOR, ELSEWHERE)

    assert left == [2_000, 6_000, 12_000, 20_000]
    assert host.view(tenant)["lease_ms_left"] == lease - by_ms - 40_000
    assert Command.RELAY_ACCEPTED in commands(visitor.solve(challenge))
