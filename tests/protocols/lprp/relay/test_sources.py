"""Laws of lprp.sources: credit, the factor of four, standing, and who is forgotten."""

import random
from collections import defaultdict
from dataclasses import replace

import pytest

from tests.protocols.lprp.build_parts import limits_of
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant, after_ms
from waystation.protocols.lprp.limits import DEFAULT_LIMITS as LIMITS
from waystation.protocols.lprp.messages import Command
from waystation.protocols.lprp.relay.sources import ROOM_UNLIMITED, SCORE_MAX, Prefix, Source, Sources, prefix_key

NOW = Instant(3_000_000)
HOME = ("192.0.2.7", 4810)
NEIGHBOUR = ("192.0.2.200", 9)
ABROAD = ("198.51.100.1", 4810)
STALE_MS = 131_072
TENANT = PublicKey(b"t" * 32)
OTHER_TENANT = PublicKey(b"o" * 32)


def place(number):
    """Return one address of its own prefix for each number."""
    return (f"10.{number >> 8}.{number & 0xFF}.1", 4810)


def heard(*addresses, sources=None, size=144, now=NOW):
    sources = sources or Sources(limits_of())
    return sources, [sources.receive(address, size, now) for address in addresses]


def drain(bucket, now):
    """Return how many tokens a bucket gives at once."""
    taken = 0
    while bucket.take(now):
        taken += 1
    return taken


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("192.0.2.7", "192.0.2.0/24"),
        ("192.0.2.255", "192.0.2.0/24"),
        ("192.0.20.7", "192.0.20.0/24"),
        ("::ffff:192.0.2.7", "192.0.2.0/24"),
        ("::ffff:c000:207", "192.0.2.0/24"),
        ("2001:db8:1:2ff::5", "2001:db8:1:200::/56"),
        ("2001:db8:1:2ff:1:2:3:4", "2001:db8:1:200::/56"),
        ("2001:0DB8:0001:02FF:1::4", "2001:db8:1:200::/56"),
        ("2001:db8:1:300::5", "2001:db8:1:300::/56"),
        ("2001:db8:1:ff::5", "2001:db8:1:0::/56"),
        ("2001:db8:1::5", "2001:db8:1:0::/56"),
        ("2001:db8::5", "2001:db8:0:0::/56"),
        ("::1", "0:0:0:0::/56"),
        ("::2:3:4:5:6", "0:0:0:0::/56"),
        ("fe80::1%eth0", "fe80:0:0:0::/56"),
    ],
)
def test_prefix_of_an_address(host, key):
    """Addresses are counted by /24 and /56, however they are written; a mapped address counts as IPv4."""
    assert prefix_key(host) == key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost",
        "a.b",
        "1.2.3.4.5",
        ":",
        "::",
        ":::",
        "a:b",
        "a:b:c:d:e",
        "g::1",
        "%",
        "::%",
        "::ffff:1.2",
        "é:1",
    ],
)
def test_no_text_is_too_strange_for_a_prefix(text):
    """What is no address is a network of its own and raises nothing."""
    assert prefix_key(text) in {text, "0:0:0:0::/56", "a:b:c:0::/56"}


def test_any_text_has_a_prefix():
    """A thousand texts of the characters of addresses are all answered."""
    seed = 11
    rng = random.Random(seed)
    for _ in range(1_000):
        text = "".join(rng.choices("0123456789abcdefFx.:%/ -_", k=rng.randrange(30)))

        assert isinstance(prefix_key(text), str), f"seed {seed}: {text!r}"


def test_bounds_are_those_of_the_text():
    """65,536 prefixes, and as many sources."""
    assert (LIMITS.sources, LIMITS.networks) == (65_536, 65_536)


def test_bytes_count_at_the_endpoint_and_at_the_prefix():
    """Two sources of one /24 share its credit and nothing else."""
    sources, (home, _) = heard(HOME, NEIGHBOUR)
    sources.receive(HOME, 208, NOW)

    assert (home.bytes_in, sources.find(NEIGHBOUR).bytes_in) == (352, 144)
    assert home.prefix is sources.find(NEIGHBOUR).prefix
    assert home.prefix.credit == 496
    assert sources.sizes() == {"sources": 2, "prefixes": 1}


def test_ports_of_one_address_are_two_sources():
    """What one port has proved is worth nothing at another."""
    _, (home, other) = heard(HOME, (HOME[0], 4811))
    home.prove(TENANT)

    assert other.proved_by is None
    assert other.tenant_room(TENANT) == 576


def test_find_neither_hears_nor_invents():
    """An address that was never heard is unknown, and looking for one counts nothing."""
    sources, (home,) = heard(HOME)

    assert sources.find(ABROAD) is None
    assert sources.find(HOME) is home
    assert home.bytes_in == 144


def test_stranger_is_answered_with_what_came_in_and_no_byte_more():
    """208 bytes in allow an answer of 208, 207 do not, and what was sent is gone."""
    _, (home,) = heard(HOME, size=207)
    assert not home.may_answer_visitor(208)
    home.prefix.credit += 1
    assert home.may_answer_visitor(208)
    home.sent_to_visitor(208)

    assert home.prefix.credit == 0
    assert not home.may_answer_visitor(1)


def test_short_question_is_answered_with_its_retransmission():
    """144 bytes do not pay for an answer of 208, twice 144 do."""
    sources, (home,) = heard(HOME)
    assert not home.may_answer_visitor(208)
    sources.receive(HOME, 144, NOW)

    assert home.may_answer_visitor(208)


def test_answers_to_strangers_obey_the_factor_of_four_too():
    """Credit that neighbours brought in does not raise what an unproved source may be sent; a proof does."""
    _, (home, _) = heard(HOME, NEIGHBOUR)
    home.sent_to_tenant(576 - 207)
    assert not home.may_answer_visitor(208)
    assert home.may_answer_visitor(207)
    home.prove(TENANT)

    assert home.may_answer_visitor(208)


def test_answer_without_credit_is_a_mistake_of_ours():
    """Credit is asked for before it is spent; it cannot go below zero."""
    _, (home,) = heard(HOME)

    with pytest.raises(AssertionError):
        home.sent_to_visitor(145)
    assert home.prefix.credit == 144


def test_room_of_an_unproved_tenant_is_four_times_what_came_in():
    """576 bytes for a heartbeat; answers to strangers and to tenants both take from it; it ends at nothing."""
    _, (home,) = heard(HOME)
    assert home.tenant_room(TENANT) == 576
    home.sent_to_visitor(144)
    assert home.tenant_room(TENANT) == 432
    home.sent_to_tenant(432)
    assert home.tenant_room(TENANT) == 0
    home.sent_to_tenant(144)

    assert home.tenant_room(TENANT) == 0


def test_mail_of_tenants_takes_no_credit_of_strangers():
    """What goes to a tenant leaves the prefix's credit alone."""
    _, (home,) = heard(HOME)
    home.sent_to_tenant(500)

    assert home.prefix.credit == 144


def test_proved_source_has_all_room():
    """Once a source has shown that it hears, only windows limit what it is sent."""
    _, (home,) = heard(HOME)
    home.prove(TENANT)
    home.sent_to_tenant(1 << 40)

    assert home.tenant_room(TENANT) == ROOM_UNLIMITED >= 1 << 60


@pytest.mark.parametrize("seed", range(10))
def test_credit_and_factor_hold_on_any_walk(seed):
    """Whatever is heard and sent, strangers of a prefix get at most what came in, unproved sources four times that."""
    rng = random.Random(seed)
    sources, now = Sources(limits_of()), NOW
    came, went, strangers = defaultdict(int), defaultdict(int), defaultdict(int)
    places = [(f"192.0.{network}.{host}", 1) for network in range(2) for host in range(3)]
    for _ in range(600):
        now = after_ms(now, rng.choice([0, 1, 1_000, 70_000, STALE_MS + 1]))
        address, size = rng.choice(places), rng.randrange(144, 509)
        source, prefix = sources.receive(address, size, now), address[0][:7]
        came[address] += size
        came[prefix] += size
        for _ in range(rng.randrange(4)):
            size = rng.randrange(144, 509)
            if rng.random() < 0.5 and source.may_answer_visitor(size):
                source.sent_to_visitor(size)
                strangers[prefix] += size
                went[address] += size
            elif source.tenant_room(TENANT) >= size:
                source.sent_to_tenant(size)
                went[address] += size

        assert source.prefix.credit == came[prefix] - strangers[prefix] >= 0, f"seed {seed}"
        assert went[address] <= 4 * came[address], f"seed {seed}"
    assert sum(went.values()) > sum(came[address] for address in places), f"seed {seed}: the walk tried little"


def test_source_is_stale_after_its_time_and_not_before():
    """2**17 ms of silence are bearable, a microsecond more is not; hearing it ends the silence."""
    sources, (home,) = heard(HOME)
    last = after_ms(NOW, STALE_MS)
    assert not home.is_stale(last)
    assert home.is_stale(Instant(last + 1))
    sources.receive(HOME, 144, last)

    assert not home.is_stale(Instant(last + 1))


@pytest.mark.parametrize(("late_us", "anew"), [(0, False), (1, True)])
def test_silent_source_begins_anew(late_us, anew):
    """After more than 2**17 ms bytes, proof and standing are gone; whoever holds the source sees that too."""
    sources, (home,) = heard(HOME)
    home.sent_to_tenant(100)
    home.prove(TENANT)
    home.note_accepted()
    again = sources.receive(HOME, 208, Instant(after_ms(NOW, STALE_MS) + late_us))

    assert again is home
    assert (home.bytes_in, home.bytes_out) == ((208, 0) if anew else (352, 100))
    assert (home.proved_by is not None, home.trusted) == (not anew, not anew)


def test_silence_costs_the_prefix_nothing():
    """Credit belongs to the network, which is still the same one."""
    sources, (home,) = heard(HOME)
    sources.receive(HOME, 144, after_ms(NOW, 10 * STALE_MS))

    assert home.prefix.credit == 288


def test_standing_grows_by_eight_and_sinks_by_one():
    """A good signature is worth eight bad ones; 64 is the most and 0 the least."""
    _, (home,) = heard(HOME)
    assert not home.trusted
    home.note_forged()
    assert home.score == 0
    home.note_accepted()
    assert (home.score, home.trusted) == (8, True)
    for _ in range(8):
        home.note_accepted()
    assert home.score == SCORE_MAX == 64
    for _ in range(63):
        home.note_forged()
    assert home.trusted
    home.note_forged()

    assert (home.score, home.trusted) == (0, False)


@pytest.mark.parametrize(("ration", "burst", "per_second"), [("failures", 256, 100), ("checks", 4_000, 4_000)])
def test_rations_of_a_prefix(ration, burst, per_second):
    """Each ration begins full, gives its burst and no more, and as much again as its rate says."""
    prefix = Prefix("192.0.2.0/24", limits_of(), NOW)
    assert drain(getattr(prefix, ration), NOW) == burst
    assert drain(getattr(prefix, ration), after_ms(NOW, 1_000)) == per_second

    assert not getattr(prefix, ration).take(after_ms(NOW, 1_000))


@pytest.mark.parametrize("command", [Command.WORK_REFUSED, Command.RELAY_REFUSED, Command.LEASE_REFUSED])
def test_refusals_of_a_prefix(command):
    """A network gets ten refusals of a kind in a second, and ten more in the next; other kinds are not touched."""
    prefix = Prefix("192.0.2.0/24", limits_of(), NOW)
    at_once = [prefix.take_refusal(command, NOW) for _ in range(11)]
    a_second_later = [prefix.take_refusal(command, after_ms(NOW, 1_000)) for _ in range(11)]
    others = {Command.WORK_REFUSED, Command.RELAY_REFUSED, Command.LEASE_REFUSED} - {command}

    assert at_once == a_second_later == [True] * 10 + [False]
    assert all(prefix.take_refusal(other, NOW) for other in others)


def test_rations_are_those_of_the_prefix():
    """Who sends from many addresses of one network gets no second ration, another network has its own."""
    _, (home, neighbour, abroad) = heard(HOME, NEIGHBOUR, ABROAD)
    drain(home.prefix.failures, NOW)

    assert not neighbour.prefix.failures.take(NOW)
    assert abroad.prefix.failures.take(NOW)
    assert neighbour.prefix.checks.take(NOW)


def test_proof_is_of_one_key():
    """A tenant cannot have its mail poured on an address that another key has proved; the last to prove it counts."""
    _, (home,) = heard(HOME)
    home.prove(TENANT)
    rooms = home.tenant_room(TENANT), home.tenant_room(OTHER_TENANT)
    home.prove(OTHER_TENANT)

    assert rooms == (ROOM_UNLIMITED, 576)
    assert (home.tenant_room(TENANT), home.tenant_room(OTHER_TENANT)) == (576, ROOM_UNLIMITED)


def test_challenges_of_a_prefix_are_counted_for_their_life():
    """Eighths of 2**19 ms: counted for seven full ones at least, for 2**19 ms at most."""
    prefix, start = Prefix("192.0.2.0/24", limits_of(), NOW), Instant(0)
    assert prefix.issued(start) == 0
    prefix.issue(start)
    prefix.issue(after_ms(start, 65_535))
    prefix.issue(after_ms(start, 65_536))

    assert prefix.issued(Instant(after_ms(start, 524_288) - 1)) == 3
    assert prefix.issued(after_ms(start, 524_288)) == 1
    assert prefix.issued(after_ms(start, 524_288 + 65_536)) == 0


def test_source_not_heard_for_longest_is_forgotten():
    """A full table gives up the one that was silent longest, and hearing one keeps it."""
    sources = Sources(limits_of(sources=3, networks=3))
    heard(place(1), place(2), place(3), place(1), place(4), sources=sources)

    assert sources.find(place(2)) is None
    assert [sources.find(place(number)).bytes_in for number in (1, 3, 4)] == [288, 144, 144]


def test_forgotten_prefix_has_no_credit():
    """A network that fell out of the table begins with what it sends then."""
    sources = Sources(limits_of(sources=2, networks=2))
    heard(place(1), place(1), place(2), place(3), sources=sources)
    assert sources.sizes() == {"sources": 2, "prefixes": 2}
    _, (again,) = heard(place(1), sources=sources, size=150)

    assert (again.prefix.credit, again.bytes_in) == (150, 150)


def test_prefix_outlives_its_forgotten_source():
    """Credit stays while the network is remembered, though the address is not."""
    sources = Sources(limits_of(sources=1, networks=8))
    heard(HOME, ABROAD, sources=sources)
    assert sources.find(HOME) is None
    _, (neighbour,) = heard(NEIGHBOUR, sources=sources)

    assert neighbour.prefix.credit == 288


@pytest.mark.parametrize("earn", [lambda source: source.prove(TENANT), Source.note_accepted], ids=["prove", "accepted"])
def test_flood_of_new_addresses_does_not_displace_who_earned_his_place(earn):
    """While it speaks now and then, a proved or trusted source survives any number of strangers."""
    sources = Sources(limits_of(sources=64, networks=64))
    _, (home,) = heard(HOME, sources=sources)
    earn(home)
    heard(*(place(number) for number in range(3_000)), sources=sources)

    assert sources.find(HOME) is home
    assert sources.receive(HOME, 144, NOW) is home
    assert home.prefix.credit == 288


def test_stale_source_is_not_spared():
    """What was earned before a long silence keeps nobody's place."""
    sources = Sources(limits_of(sources=2, networks=2))
    _, (home,) = heard(HOME, sources=sources)
    home.prove(TENANT)
    heard(place(1), place(2), sources=sources, now=Instant(after_ms(NOW, STALE_MS) + 1))

    assert sources.find(HOME) is None


def test_table_of_earners_still_takes_newcomers():
    """When all have earned their place, four are passed over and the next one goes."""
    sources = Sources(limits_of(sources=6, networks=6))
    _, earners = heard(*(place(number) for number in range(6)), sources=sources)
    for source in earners:
        source.prove(TENANT)
    heard(HOME, sources=sources)

    assert sources.find(HOME) is not None
    assert [number for number in range(6) if sources.find(place(number)) is None] == [4]
    assert sources.sizes() == {"sources": 6, "prefixes": 6}


@pytest.mark.parametrize("seed", range(10))
def test_tables_agree_with_a_dumb_model(seed):
    """Any mixture of sources that earn and that do not: lists searched from end to end forget the same ones."""
    rng = random.Random(seed)
    sources, order, networks, earned = Sources(limits_of(sources=8, networks=10)), [], [], set()
    credit = defaultdict(int)
    for _ in range(1_500):
        address = (f"10.0.{rng.randrange(14)}.{rng.randrange(2)}", 1)
        network = prefix_key(address[0])
        if address not in order and len(order) == 8:
            for _ in range(4):
                if order[0] not in earned:
                    break
                networks.append(networks.pop(networks.index(prefix_key(order[0][0]))))
                order.append(order.pop(0))
            earned.discard(order.pop(0))
        order = [each for each in order if each != address] + [address]
        networks = [each for each in networks if each != network] + [network]
        if len(networks) > 10:
            del credit[networks.pop(0)]
        credit[network] += 144
        source = sources.receive(address, 144, NOW)
        if rng.random() < 0.1:
            source.prove(TENANT)
            earned.add(address)

        assert source.prefix.credit == credit[network], f"seed {seed}"
        assert list(sources._sources) == order, f"seed {seed}"
        assert list(sources._prefixes) == networks, f"seed {seed}"
        assert all(sources._prefixes[each.prefix.key] is each.prefix for each in sources._sources.values())


def test_lower_limit_never_parts_a_source_from_its_prefix():
    """After a reload to much smaller tables every source that is left finds its prefix, and both tables shrink."""
    limits = limits_of(sources=40, networks=40)
    sources = Sources(limits)
    for number in range(40):
        sources.receive((f"192.0.{number % 20}.{number}", 9), 144, NOW)
    limits.now = replace(limits.now, sources=4, networks=2)
    for number in range(100, 160):
        sources.receive((f"192.0.{number}.1", 9), 144, NOW)
        for host, port in list(sources._sources):
            sources.receive((host, port), 144, NOW)

    assert sources.sizes() == {"sources": 4, "prefixes": 4}


def test_new_limits_give_a_network_new_rations():
    """A raised rate counts for a network that met the old one, without waiting until it is forgotten."""
    limits = limits_of(refusals_per_second=1, checks_per_second=1, bad_signatures_burst=1)
    prefix = Prefix("192.0.2.0/24", limits, NOW)
    before = [prefix.take_refusal(Command.RELAY_REFUSED, NOW) for _ in range(2)] + [prefix.checks.take(NOW)]
    limits.now = replace(limits.now, refusals_per_second=2, checks_per_second=5, bad_signatures_burst=7)

    assert before == [True, False, True]
    assert [prefix.take_refusal(Command.RELAY_REFUSED, NOW) for _ in range(3)] == [True, True, False]
    assert (prefix.checks.left, prefix.failures.left) == (5, 7)
