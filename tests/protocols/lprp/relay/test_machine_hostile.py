"""What strangers try at the host: junk, floods, forgeries, reflection; each told as what comes of it."""

import random

import pytest

from tests.protocols.lprp.build import (
    HOST,
    LITTLE,
    NEUTRAL_KEY,
    OTHER_HOST,
    SENDER,
    TENANT,
    UNIVERSAL_SIGNATURE,
    VISITOR,
    changed,
    malleable,
    signed_by_hand,
)
from tests.protocols.lprp.build_relay import (
    AFAR,
    AT_HOME,
    ELSEWHERE,
    Host,
    Person,
    address_of,
    at_time,
    commands,
    friends,
    key_of,
    world,
)
from waystation.core.instant import after_ms
from waystation.protocols.lprp.limits import DEFAULT_LIMITS as LIMITS
from waystation.protocols.lprp.messages import Command
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.wire import REQUESTS, packet_sizes

STATE = ("tenants", "packets", "packet_bytes", "bundles", "deliveries", "challenges", "answers", "seen", "under_way")


def state_of(host):
    """Return everything of a host that only a signed packet may change."""
    return [host.sizes[each] for each in STATE], host.relay.tenants(host.now), len(host.commits), len(host.sent)


def forged(tenant, at, count, start=10):
    """Return so many well-formed heartbeats of a tenant, each badly signed, from the places that ``at`` returns."""
    beat, now_ms = tenant.packet(Command.HEARTBEAT), tenant.host.wall_ms
    return [(at_time(beat, now_ms + number), at(number)) for number in range(start, start + count)]


# Junk


def test_random_datagrams_get_nothing():
    """10,000 datagrams of 0 to 2,000 random bytes raise nothing, change nothing and are answered with nothing."""
    rng = random.Random(1)
    host, _, _ = friends()
    before = state_of(host)
    for _ in range(100):
        host.give(*[(rng.randbytes(rng.randint(0, 2_000)), address_of(rng.randrange(9))) for _ in range(100)])

    assert state_of(host) == before
    assert sum(host.refused.values()) == 10_000 and set(host.refused) <= {"length", "clock"}


@pytest.mark.parametrize("command", sorted(REQUESTS))
def test_random_packets_of_good_form_get_nothing(command):
    """Neither do random bytes behind a good clock, a good command and a good length, whoever they name."""
    rng = random.Random(command)
    host, *_ = friends()
    before = state_of(host)
    keys = (HOST.public, TENANT.public, SENDER.public, VISITOR.public)
    for _ in range(40):
        size = rng.choice(sorted(packet_sizes(command)))
        time = (host.wall_ms + rng.randint(-500_000, 500_000)).to_bytes(8, "big")
        head = time + rng.choice(keys) + rng.choice(keys) + command.to_bytes(8, "big")
        host.give((rng.randbytes(64) + head + rng.randbytes(size - 144), rng.choice((AT_HOME, AFAR))))

    assert state_of(host) == before
    assert sum(host.refused.values()) == 40


def test_every_cut_and_every_flipped_byte_of_good_packets_is_silent():
    """Of no packet can a byte be missing or bent."""
    host, tenant, _ = friends()
    packets = [tenant.packet(Command.HEARTBEAT), tenant.packet(Command.CLEAR_WHITELIST, bytes(64))]
    before = state_of(host)
    for packet in packets:
        host.give(*[(packet.data[:size], AT_HOME) for size in range(len(packet.data))])
        host.give(*[(changed(packet.data, at, 0x80), AT_HOME) for at in range(len(packet.data))])

    assert state_of(host) == before


@pytest.mark.parametrize("command", sorted(set(Command) - REQUESTS))
def test_answers_are_not_heard(command):
    """What only hosts say is dropped at a host, signed by whomever."""
    host, tenant, _ = friends()
    before = state_of(host)
    payload = b"" if command is Command.HEARTBEAT_ANSWER else bytes(64)
    tenant.say(command, payload)

    assert state_of(host) == before and host.refused[Refusal.WRONG_DIRECTION.value] == 1


def test_other_byte_order():
    """A host of the other order serves packets of that order, and drops the rest for their clock."""
    host, tenant, sender = friends(codec=LITTLE, byte_order="little")
    big = Person(Host(), TENANT).packet(Command.HEARTBEAT)
    dropped = host.give((big.data, AT_HOME))

    assert dropped == [] and host.refused[Refusal.CLOCK.value] == 1
    assert {Command.RELAY, Command.RELAY_ACCEPTED} <= set(commands(sender.mail(tenant)))


# Keys and hosts


@pytest.mark.parametrize("command", sorted(REQUESTS))
def test_small_order_keys_are_never_asked(command):
    """The neutral point, whose one signature fits every message, is dropped before any check (LPRP-D15)."""
    host, *_ = world()
    checks = host.checks_count
    payload = bytes(min(packet_sizes(command)) - 144)
    body = signed_by_hand(TENANT, NEUTRAL_KEY, HOST.public, command, payload, host.wall_ms)[64:]
    left = host.give((UNIVERSAL_SIGNATURE + body, AFAR))

    assert left == [] and host.checks_count == checks
    assert host.refused[Refusal.SMALL_ORDER_KEY.value] == 1


def test_small_order_key_in_the_literal_order():
    """It does not get in through the other layout of 802 either."""
    host, _, _ = world()
    body = signed_by_hand(HOST, HOST.public, NEUTRAL_KEY, Command.DELIVERED, bytes(64), host.wall_ms)[64:]
    host.give((UNIVERSAL_SIGNATURE + body, AFAR))

    assert host.refused[Refusal.SMALL_ORDER_KEY.value] == 1


def test_second_spelling_of_a_signature():
    """A signature whose S was raised by the order of the group is a bad one: a packet has one signature only."""
    host, tenant, sender = friends()
    letter = sender.letter(tenant)
    left = host.give((malleable(letter.data), AFAR))

    assert left == [] and host.refused[Refusal.BAD_SIGNATURE.value] == 1


@pytest.mark.parametrize("command", sorted(REQUESTS - {Command.RELAY}))
def test_packets_for_other_hosts_are_dropped(command):
    """What is signed for one host means nothing at another (LPRP-D5)."""
    host, tenant, _ = world()
    payload = bytes(min(packet_sizes(command)) - 144)
    answers = tenant.say(command, payload, to=OTHER_HOST, at=ELSEWHERE)

    assert answers == [] and host.refused[Refusal.WRONG_HOST.value] == 1
    assert host.view(tenant)["address"] == "{}:{}".format(*AT_HOME)


def test_literal_confirmation_by_somebody_else():
    """In the literal order the key behind the host's has to have signed, and its own queue is touched (LPRP-D16)."""
    host, tenant, sender = friends()
    letter = sender.letter(tenant)
    sender.repeat(letter)
    thief = Person(host, VISITOR, ELSEWHERE).lease()
    for signer, named in ((thief, tenant), (tenant, thief), (thief, thief)):
        host.give(
            (
                signed_by_hand(
                    signer.key, HOST.public, named.public, Command.DELIVERED, letter.signature, host.wall_ms + 9
                ),
                ELSEWHERE,
            )
        )

    assert host.sizes["packets"] == 1
    assert host.refused[Refusal.BAD_SIGNATURE.value] == 2 and host.refused[Refusal.UNKNOWN_RELAY.value] == 1


def test_confirmation_in_the_name_of_the_host():
    """An 802 that has the host on both sides is nobody's."""
    host, tenant, sender = friends()
    letter = sender.letter(tenant)
    sender.repeat(letter)
    both = signed_by_hand(TENANT, HOST.public, HOST.public, Command.DELIVERED, letter.signature, host.wall_ms)

    assert host.give((both, AT_HOME)) == [] and host.sizes["packets"] == 1


# Rations of signature checks


def test_failures_of_a_prefix():
    """A prefix without standing may fail 256 checks at once and 100 a second; what comes beyond is not looked at."""
    host, tenant, _ = world()
    before = host.checks_count
    for start in range(10, 1_000, 100):
        host.give(*forged(tenant, lambda number: ("203.0.113.1", number), 100, start=start))
    at_once = host.checks_count - before
    host.now = after_ms(host.now, 1_000)
    for start in range(10, 1_000, 100):
        host.give(*forged(tenant, lambda number: ("203.0.113.1", number), 100, start=start))

    assert at_once == LIMITS.bad_signatures_burst
    assert host.checks_count - before == LIMITS.bad_signatures_burst + LIMITS.bad_signatures_per_second
    assert (
        host.refused[Refusal.VERIFY_FAILURES.value]
        == 2_000 - LIMITS.bad_signatures_burst - LIMITS.bad_signatures_per_second
    )


@pytest.mark.parametrize("flood_from", ["other prefixes", "its own prefix"])
def test_trusted_sources_work_under_a_flood(flood_from):
    """A source of which packets were accepted is served while forgeries arrive, from its own network too."""
    host, tenant, _ = friends()
    places = {"its own prefix": lambda n: ("192.0.2.77", n), "other prefixes": lambda n: (f"10.0.{n % 99}.1", n)}
    answers = []
    for second in range(3):
        beat = tenant.packet(Command.HEARTBEAT, time_ms=host.wall_ms + 5_000 * (second + 1))
        left = host.give(*forged(tenant, places[flood_from], 1_000), (beat.data, AT_HOME))
        answers.append([packet.command for _, packet in left])
        host.now = after_ms(host.now, 500)

    assert answers == [[Command.HEARTBEAT_ANSWER]] * 3


def test_forgeries_in_a_trusted_name_cost_it_its_trust_slowly():
    """64 forgeries in its name take a source's trust, and one good packet for seven of them keeps it."""
    host, tenant, _ = world()
    source = host.relay._sources.find(AT_HOME)
    for _ in range(30):
        tenant.beat()
        host.give(*forged(tenant, lambda _: AT_HOME, 7, start=100))
    kept = source.trusted
    host.give(*forged(tenant, lambda _: AT_HOME, 64, start=1_000))

    assert kept and not source.trusted


def test_checks_of_a_prefix():
    """Even good signatures are checked at 4,000 a second and prefix; without rate limits there is no such number."""
    counts = []
    for rate_limits in (True, False):
        host, tenant, _ = world(rate_limits=rate_limits)
        tenant.beat()
        host.believes_all = True
        for start in range(10, LIMITS.checks_per_second + 10, 500):
            host.give(*forged(tenant, lambda _: AT_HOME, 500, start=start))
        host.give(*forged(tenant, lambda _: AT_HOME, 50, start=9_000))
        counts.append(host.refused[Refusal.VERIFY_RATE.value])

    assert 50 <= counts[0] <= 60 and counts[1] == 0


def test_backlog_of_checks():
    """While signatures wait, strangers fill their part of 4,096 places, a trusted network finds a quarter of them."""
    host, tenant, _ = world(rate_limits=False)
    host.holds_checks = True
    host.give(*forged(tenant, lambda number: address_of(number % 500), LIMITS.checks_waiting_untrusted + 40))
    strangers = host.sizes["under_way"]
    host.give(*forged(tenant, lambda _: AT_HOME, LIMITS.checks_waiting_per_network + 7, start=5_000))

    assert strangers == LIMITS.checks_waiting_untrusted
    assert host.sizes["under_way"] == LIMITS.checks_waiting_untrusted + LIMITS.checks_waiting_per_network
    assert host.refused[Refusal.VERIFY_BACKLOG.value] == 40 + 7


def test_busy_tenants_do_not_shut_out_newcomers():
    """The room of unknown sources is theirs: what waits of tenants, for a check or for the disk, takes none of it."""
    host, tenant, sender = world(rate_limits=False)
    host.holds_commits = host.believes_all = True
    host.give(*forged(tenant, lambda _: AT_HOME, 2 * LIMITS.checks_waiting_untrusted))

    assert commands(sender.mail(tenant)) == [Command.RELAY_DEMANDS_WORK]


def test_slow_disk_bounds_what_waits():
    """While a commit takes its time, no more than 4,096 packets wait for their check or for it."""
    host, tenant, _ = world(rate_limits=False)
    host.holds_commits = host.believes_all = True
    for start in range(10, 5_000, 1_000):
        host.give(*forged(tenant, lambda _: AT_HOME, 1_000, start=start))
    waiting = host.sizes["under_way"]
    left = host.release()

    assert (
        waiting == LIMITS.checks_waiting and host.refused[Refusal.VERIFY_BACKLOG.value] == 5_000 - LIMITS.checks_waiting
    )
    assert len(left) == LIMITS.checks_waiting and host.sizes["under_way"] == 0


def test_forged_packet_does_not_block_the_true_one():
    """A packet with a bad signature is forgotten with its check: the real one is heard, also in the same batch."""
    host, tenant, _ = world()
    beat = tenant.packet(Command.HEARTBEAT)
    left = host.give((changed(beat.data, 5), ELSEWHERE), (beat.data, AT_HOME))

    assert [(address, packet.command) for address, packet in left] == [(AT_HOME, Command.HEARTBEAT_ANSWER)]


# Floods and sizes


def test_flood_of_demands_for_one_recipient_is_bounded():
    """Whoever asks for mail to one tenant, 64 challenges wait; those pushed out take their stored answers along."""
    host, tenant, _ = world()
    before = host.sizes["answers"]
    people = [Person(host, key_of(number), address_of(number % 7)) for number in range(40)]
    for number in range(200):
        people[number % 40].mail(tenant, number.to_bytes(64, "big"))

    assert host.sizes["challenges"] == LIMITS.challenges_per_recipient
    assert host.sizes["answers"] == before + LIMITS.challenges_per_recipient


def test_flood_of_lease_requests_is_bounded_per_network():
    """However many keys of a few networks ask for a lease, each network has its 32 challenges and no more answers."""
    host = Host()
    for number in range(200):
        Person(host, key_of(number), address_of(number % 4)).say(Command.ASK_LEASE, bytes(64))

    assert host.sizes["challenges"] == host.sizes["answers"] == 4 * LIMITS.challenges_per_network


def test_everything_ends():
    """When nobody speaks any more nothing but leases is left after half an hour, and nobody wants to be woken soon."""
    host, tenant, _ = friends()
    for number in range(20):
        Person(host, key_of(number), address_of(number)).mail(tenant)
    host.pass_ms(2 * (1 << 20))
    host.give((b"", AT_HOME))

    assert host.sizes["challenges"] == host.sizes["answers"] == host.sizes["deliveries"] == 0
    assert host.relay.deadline() > after_ms(host.now, 86_400_000)


# Bytes out against bytes in


class Town:
    """Tenants, strangers and a villain who repeats, bends and misaddresses whatever passes by."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.host = Host(retry_ms=500, retries=4)
        self.places = [(f"192.0.2.{n}", 1_000 + n) for n in range(4)] + [(f"10.{n}.0.1", 2_000) for n in range(4)]
        self.people = [Person(self.host, key_of(900 + number), self.rng.choice(self.places)) for number in range(6)]
        self.tenants = self.people[:3]
        for tenant in self.tenants:
            tenant.lease()
        for tenant in self.tenants:
            tenant.toggle(self.people[3].public, self.people[4].public)
        self.seen, self.challenges = [], []

    def packet(self):
        """Return something that somebody might sign."""
        rng = self.rng
        person, tenant = rng.choice(self.people), rng.choice(self.people)
        waiting = [p for _, p in self.host.sent[-30:] if p.command is Command.RELAY]
        what = rng.randrange(9)
        if what == 0 and self.challenges:
            worker, challenge = rng.choice(self.challenges[-8:])
            return worker.solution(challenge, rng.choice((1, 4)))
        if what == 1 and waiting:
            letter = rng.choice(waiting)
            return next(p for p in self.people if p.public == letter.recipient).packet(
                Command.DELIVERED, letter.signature
            )
        if what == 2:
            return person.packet(Command.ASK_LEASE, bytes(64))
        if what == 3:
            return person.update(rng.choice(self.people).public)
        if what == 4:
            return person.packet(Command.CLEAR_WHITELIST, bytes(64))
        if what <= 6:
            return person.packet(Command.HEARTBEAT)
        return person.letter(tenant, rng.randbytes(rng.choice((0, 0, 64, 364))))

    def step(self):
        """Send a batch; the host's accountant checks every answer."""
        rng, batch = self.rng, []
        for _ in range(rng.randint(1, 6)):
            data = rng.choice(self.seen) if self.seen and rng.random() < 0.3 else self.packet().data
            self.seen = [*self.seen[-60:], data]
            if rng.random() < 0.1:
                data = changed(data, rng.randrange(len(data)))
            batch.append((data, rng.choice(self.places)))
        for _, packet in self.host.give(*batch):
            if packet.command & 0x600 == 0x600:
                worker = next(p for p in self.people if p.public == packet.recipient)
                self.challenges.append((worker, packet))
        if rng.random() < 0.5:
            self.host.pass_ms(rng.choice((1, 300, 3_000, 40_000)))


@pytest.mark.parametrize("seed", range(24))
def test_nobody_is_sent_more_than_came(seed):
    """Unproved addresses are sent at most four times what came from them, strangers' networks at most once."""
    town = Town(seed)
    for _ in range(60):
        town.step()

    assert len(town.host.sent) > 20  # Accountant.left checked each of them


def test_reflection_by_a_tenant():
    """Forged heartbeats for a full queue bring their victim at most four times what the forger spent (LPRP-D18)."""
    host, tenant, sender = friends()
    host.give(*[(sender.letter(tenant, bytes([number]) * 364).data, AFAR) for number in range(200)])
    victim, spent = ("203.0.113.200", 53), 0
    for _ in range(40):
        tenant.beat(at=victim)
        spent += 144
        host.pass_ms(3_000)
    got = sum(len(packet.data) for address, packet in host.sent if address == victim)

    assert spent < got <= 4 * spent


def test_reflection_by_strangers():
    """Whatever short packets arrive in a victim's name, no more leaves for its network than came from there."""
    host, tenant, sender = world()
    victim = ("203.0.113.200", 53)
    letters = [sender.letter(tenant, b"") for _ in range(8)]
    for letter in letters * 6:
        host.give((letter.data, victim))
    got = sum(len(packet.data) for address, packet in host.sent if address == victim)

    assert 0 < got <= 144 * 48
