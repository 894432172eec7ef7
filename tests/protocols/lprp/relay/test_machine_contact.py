"""Where a tenant is: which packets say so, which replays do not, and what an address has proved."""

import pytest

from tests.protocols.lprp.build import SENDER, VISITOR
from tests.protocols.lprp.build_relay import (
    AFAR,
    AT_HOME,
    ELSEWHERE,
    Host,
    Person,
    commands,
    friends,
    weak_solution,
    world,
)
from waystation.protocols.lprp.messages import Command
from waystation.protocols.lprp.refusals import Refusal
from waystation.store.memory import MemoryStore

# Contact: LPRP-D4, LPRP-D13, LPRP-C3


def test_replayed_heartbeat_does_not_move_the_mail():
    """The queue stays with the first port when its heartbeat is replayed from a second one; a newer one moves it."""
    host, tenant, sender = friends()
    old = tenant.packet(Command.HEARTBEAT)
    tenant.repeat(old)
    replayed = tenant.repeat(old, at=ELSEWHERE)
    sender.mail(tenant)
    first = [address for address, packet in host.sent if packet.command is Command.RELAY]
    host.pass_ms(2_001)
    tenant.beat(at=ELSEWHERE)
    host.sent.clear()
    sender.mail(tenant)

    assert replayed == [] and host.refused[Refusal.REBIND_CONFLICT.value] == 1
    assert first == [AT_HOME]
    assert [address for address, packet in host.sent if packet.command is Command.RELAY] == [ELSEWHERE]


def test_repeated_heartbeat_gets_the_same_answer():
    """The last accepted 100, byte for byte, gets the same 200 while the host knows it; an older one gets nothing."""
    host, tenant, _ = world()
    older, last = tenant.packet(Command.HEARTBEAT), tenant.packet(Command.HEARTBEAT)
    (answer,) = tenant.repeat(last)
    host.pass_ms(10)
    (again,) = tenant.repeat(last)
    too_old = tenant.repeat(older)
    host.relay.expel(tenant.public, host.now)
    when_nobody_is_known_there = tenant.repeat(last)

    assert again.data == answer.data
    assert answer.command is Command.HEARTBEAT_ANSWER and len(answer.data) == 144
    assert too_old == when_nobody_is_known_there == [] and host.refused[Refusal.NOT_NEWER.value] == 2


class Asked(tuple):  # noqa: SLOT001 - a tuple takes no slot
    """An address that knows which of the host's own addresses was asked, as ``UdpSocket`` hands it over."""

    def __new__(cls, place, own):
        asked = super().__new__(cls, place)
        asked.own = own
        return asked


def test_answers_and_mail_leave_from_the_address_that_was_asked():
    """NODE-PKTINFO: each answer gives back its packet's address object; mail takes that of the newest valid packet."""
    host, tenant, sender = friends()
    first, second, forged = Asked(AT_HOME, "192.0.2.1"), Asked(AT_HOME, "192.0.2.2"), Asked(AT_HOME, "192.0.2.3")
    tenant.beat(at=first)
    beat = tenant.packet(Command.HEARTBEAT)
    tenant.repeat(beat, at=second)
    tenant.repeat(beat, at=first)
    spoofed = bytearray(tenant.packet(Command.HEARTBEAT).data)
    spoofed[-1] ^= 1
    host.give((bytes(spoofed), forged))
    answered = [address.own for address, packet in host.sent if packet.command is Command.HEARTBEAT_ANSWER]
    host.sent.clear()
    sender.mail(tenant, at=Asked(AFAR, "192.0.2.4"))
    left = {packet.command: address.own for address, packet in host.sent}

    assert answered == ["192.0.2.1", "192.0.2.2", "192.0.2.1"]
    assert (left[Command.RELAY], left[Command.RELAY_ACCEPTED]) == ("192.0.2.2", "192.0.2.4")


def test_mail_after_a_restart_leaves_by_routing():
    """NODE-PKTINFO: no address of ours is in the store, and a tenant without contact gets nothing."""
    host, tenant, sender = friends()
    tenant.beat(at=Asked(AT_HOME, "192.0.2.1"))
    host.restart()
    sender.mail(tenant)
    before = [packet for _, packet in host.sent if packet.command is Command.RELAY]
    host.sent.clear()
    tenant.beat(at=AT_HOME)
    (address,) = [address for address, packet in host.sent if packet.command is Command.RELAY]

    assert before == []
    assert (address, hasattr(address, "own")) == (AT_HOME, False)


def test_heartbeats_of_visitors_are_dropped():
    """Who holds no lease gets no 200, whatever it sends that is a tenant's to send."""
    host, tenant, sender = world()
    visitor = Person(host, VISITOR)
    letter = sender.letter(tenant)
    says = (visitor.beat, visitor.clear, visitor.compare, lambda: visitor.confirm(letter))
    answers = [say() for say in says]

    assert answers == [[]] * 4
    assert host.refused[Refusal.NOT_A_TENANT.value] == 4 and host.checks_count == 2  # the lease's own two


@pytest.mark.parametrize("moves", [False, True])
def test_relayed_packet_in_its_recipients_hands(moves):
    """A 102 replayed by its recipient leaves its sender's address alone, unless a setting says so."""
    host, tenant, sender = world(rebind_on_relay=moves)
    sender.lease()
    letter = sender.letter(tenant)
    host.give((letter.data, ELSEWHERE))

    assert host.view(sender)["address"] == "{}:{}".format(*(ELSEWHERE if moves else AFAR))


def test_relayed_packet_replayed_at_a_second_host():
    """At another host, where its sender is a tenant too, it moves nobody either."""
    _, tenant, sender = world()
    second = Host(store=MemoryStore())
    abroad = Person(second, SENDER, AFAR).lease()
    second.give((sender.letter(tenant).data, ELSEWHERE))

    assert second.view(abroad)["address"] == "{}:{}".format(*AFAR)


@pytest.mark.parametrize(("at", "refreshes"), [(AT_HOME, True), (ELSEWHERE, False)])
def test_relay_refreshes_only_the_address_on_file(at, refreshes):
    """A tenant's own 102 from where it is known counts as a sign of life; from anywhere else it does not."""
    host, tenant, _ = world()
    host.pass_ms(100_000)
    tenant.mail(tenant, at=at)
    host.pass_ms(100_000)

    assert (host.view(tenant)["state"] != "inactive") == refreshes


def test_old_relay_is_no_sign_of_life():
    """A 102 older than the newest contact refreshes nothing, though it comes from the address on file."""
    host, tenant, _ = world()
    old = tenant.letter(tenant)
    tenant.beat()
    host.pass_ms(100_000)
    tenant.repeat(old)
    host.pass_ms(100_000)

    assert host.view(tenant)["state"] == "inactive"


def test_same_time_from_a_second_address_loses():
    """Of two packets with one time the first decides where the tenant is, and the other is counted."""
    host, tenant, _ = world()
    at_ms = host.wall_ms + 50
    tenant.beat(time_ms=at_ms)
    answers = tenant.compare(time_ms=at_ms, at=ELSEWHERE)

    assert host.view(tenant)["address"] == "{}:{}".format(*AT_HOME)
    assert host.refused[Refusal.REBIND_CONFLICT.value] == 1
    assert commands(answers) == [Command.WHITELIST_DONE]


def test_every_other_packet_of_a_tenant_notes_contact():
    """Heartbeats, work, updates, clearings, confirmations and lease requests move the mail to where they come from."""
    host, tenant, sender = friends()
    says = [
        lambda at: tenant.beat(at=at),
        lambda at: tenant.compare(at=at),
        lambda at: tenant.clear(at=at),
        lambda at: tenant.confirm(sender.letter(tenant), at=at),
        lambda at: tenant.say(Command.ASK_LEASE, bytes(64), at=at),
        lambda at: tenant.say(Command.WORK, bytes(64), at=at),
    ]
    places = [("192.0.2.10", 5_000 + number) for number in range(len(says))]
    found = []
    for say, place in zip(says, places, strict=True):
        say(place)
        found.append(host.view(tenant)["address"])

    assert found == [f"192.0.2.10:{port}" for _, port in places]


# Proof and credit: LPRP-D17, LPRP-D18, LPRP-C1


def test_short_first_packet_is_answered_with_its_retransmission():
    """A stranger's 102 of 144 bytes earns no answer of 208; its second copy gets the stored one (LPRP-D17)."""
    host, tenant, sender = world()
    letter = sender.letter(tenant, b"")
    first, second = sender.repeat(letter), sender.repeat(letter)

    assert first == [] and host.refused[Refusal.NO_CREDIT.value] == 1
    assert commands(second) == [Command.RELAY_DEMANDS_WORK]
    assert host.sizes["challenges"] == 1


def test_mail_to_an_unproved_address_is_four_times_what_came():
    """Answers go first; what is left of four times the bytes received goes to mail, and no byte more (LPRP-D18)."""
    host, tenant, sender = friends()
    host.restart()
    letters = [sender.letter(tenant, bytes([number]) * 106) for number in range(8)]  # 250 bytes each
    host.give(*[(letter.data, AFAR) for letter in letters])
    out = []
    for _ in range(3):
        left = tenant.beat()
        out.append((commands(left).count(Command.RELAY), commands(left).count(Command.HEARTBEAT_ANSWER)))

    # 4 * 144 - 144 = 432: one letter of 250 and 182 left; then 614: two and 114 left; then 546: two.
    assert out == [(1, 1), (2, 1), (2, 1)]


def test_work_proves_the_address_it_was_demanded_at():
    """Once a 101 answers a challenge that went to this address, the whole window leaves."""
    host, tenant, sender = friends()
    host.restart()
    letters = [sender.letter(tenant, bytes([number]) * 364) for number in range(20)]
    host.give(*[(letter.data, AFAR) for letter in letters])
    left = tenant.say(Command.ASK_LEASE, bytes(64))
    (challenge,) = [packet for packet in left if packet.command is Command.LEASE_DEMANDS_WORK]
    left += tenant.solve(challenge)

    assert [packet for packet in left if packet.command is Command.RELAY] == letters[:16]
    assert commands(left)[-1] is Command.LEASE_GRANTED


def test_work_from_elsewhere_proves_nobody():
    """A 101 from another address than its challenge went to is taken, and proves neither of them."""
    host, tenant, sender = friends()
    host.restart()
    letters = [sender.letter(tenant, bytes([number]) * 364) for number in range(20)]
    host.give(*[(letter.data, AFAR) for letter in letters])
    (challenge,) = [p for p in tenant.say(Command.ASK_LEASE, bytes(64)) if p.command is Command.LEASE_DEMANDS_WORK]
    left = tenant.solve(challenge, at=ELSEWHERE)

    assert Command.LEASE_GRANTED in commands(left)
    assert commands(left).count(Command.RELAY) <= 1
    assert host.books.proved == {}


def test_a_challenge_repeated_elsewhere_proves_nobody():
    """Whoever gets the same demand at a second address could forge the first one's answer: then it proves nothing."""
    host, tenant, sender = friends()
    host.restart()
    letters = [sender.letter(tenant, bytes([number]) * 364) for number in range(20)]
    host.give(*[(letter.data, AFAR) for letter in letters])
    asked = tenant.packet(Command.ASK_LEASE, bytes(64))
    victim = ("203.0.113.5", 53)
    tenant.repeat(asked, at=victim)
    (challenge,) = tenant.repeat(asked, at=ELSEWHERE)
    left = tenant.solve(challenge, at=victim)

    assert Command.LEASE_GRANTED in commands(left)
    assert commands(left).count(Command.RELAY) <= 3


def test_challenge_repeated_to_the_same_address_still_proves_it():
    """A copy of the demand that goes where the first went lets nobody else see it."""
    host, tenant, sender = friends()
    host.restart()
    letters = [sender.letter(tenant, bytes([number]) * 364) for number in range(16)]
    host.give(*[(letter.data, AFAR) for letter in letters])
    asked = tenant.packet(Command.ASK_LEASE, bytes(64))
    left = tenant.repeat(asked)
    (challenge,) = [packet for packet in tenant.repeat(asked) if packet.command is Command.LEASE_DEMANDS_WORK]
    left += tenant.solve(challenge)

    assert commands(left).count(Command.RELAY) == 16


def test_proof_is_the_workers_own():
    """A tenant that names the place another has proved gets its mail there for four times the bytes only (LPRP-D18)."""
    host, _, sender = friends()
    villain = Person(host, VISITOR, ELSEWHERE).lease()
    villain.toggle(sender.public)
    host.give(*[(sender.letter(villain, bytes([number]) * 364).data, AFAR) for number in range(16)])
    host.sent.clear()
    for _ in range(4):
        host.pass_ms(2_500)
        villain.beat(at=AT_HOME)

    got = [packet for address, packet in host.sent if address == AT_HOME]
    assert 0 < commands(got).count(Command.RELAY) < 16
    assert sum(len(packet.data) for packet in got) <= 4 * host.books.bytes_in[AT_HOME]


def test_answers_to_a_tenant_are_within_four_times_too():
    """When mail has used up what an unproved place was owed while a signature was checked, the answer waits."""
    host, tenant, sender = friends()
    host.restart()
    tenant.beat()
    host.holds_checks = True
    tenant.repeat(beat := tenant.packet(Command.HEARTBEAT))
    sender.mail(tenant, bytes(364))
    sender.mail(tenant, bytes(300))
    for check in reversed(host.checks_held):
        host.checks_held = []
        host.holds_checks = False
        host._do(check)
        host.run()
    answered = [packet.command for _, packet in host.sent].count(Command.HEARTBEAT_ANSWER)
    again = tenant.repeat(beat)

    assert (answered, host.refused[Refusal.NO_CREDIT.value]) == (1, 1)
    assert commands(again)[0] is Command.HEARTBEAT_ANSWER


def test_proof_ends_with_silence():
    """An address that said nothing for more than 2**17 ms has to prove itself again."""
    host, tenant, sender = friends()
    host.pass_ms((1 << 17) + 1)
    host.give(*[(sender.letter(tenant, bytes([number]) * 364).data, AFAR) for number in range(20)])
    left = tenant.beat()

    assert commands(left) == [Command.HEARTBEAT_ANSWER]


# While signatures are being checked


def test_lease_that_ends_during_the_check():
    """A packet whose sender was a tenant when it came and is none when its signature is known does nothing."""
    host, tenant, _ = world(lease_ms=60_000)
    host.pass_ms(59_999)
    host.holds_checks = True
    tenant.beat()
    tenant.clear()
    host.pass_ms(10_000)
    left = host.release()

    assert left == [] and host.refused[Refusal.NOT_A_TENANT.value] == 2


def test_newer_packet_during_the_check():
    """Of two heartbeats that wait together only the newer counts, in whichever order they came."""
    host, tenant, _ = world()
    first, second = tenant.packet(Command.HEARTBEAT), tenant.packet(Command.HEARTBEAT)
    left = host.give((second.data, ELSEWHERE), (first.data, AT_HOME))

    assert [address for address, _ in left] == [ELSEWHERE] and host.refused[Refusal.NOT_NEWER.value] == 1


def test_two_answers_to_one_challenge_in_one_batch():
    """Two solutions that arrive together use their challenge once."""
    host, tenant, sender = world()
    (challenge,) = sender.mail(tenant)
    works = [sender.packet(Command.WORK, sender.solution(challenge).payload) for _ in range(2)]
    left = host.give(*[(work.data, AFAR) for work in works])

    assert [packet.command for _, packet in left].count(Command.RELAY_ACCEPTED) == 1
    assert host.sizes["packets"] == 1


def test_two_clearings_in_one_batch():
    """The later of two changes that arrive together may not be older than the first (LPRP-D14)."""
    host, tenant, _ = world()
    first = tenant.packet(Command.CLEAR_WHITELIST, bytes(64))
    second = tenant.packet(Command.CLEAR_WHITELIST, bytes(65))
    left = host.give((second.data, AT_HOME), (first.data, AT_HOME))

    assert [packet.reference for _, packet in left] == [second.signature]


# Networks


def test_tenant_over_ipv6():
    """Addresses of either family are kept as they are; refusals are counted by /56 there."""
    here, neighbour, other = ("2001:db8:0:aa01::1", 9), ("2001:db8:0:aaff::2", 9), ("2001:db8:0:ab00::1", 9)
    host, tenant, sender = friends(at=here)
    visitor = Person(host, VISITOR)
    refused = [len(sender.mail(visitor, bytes([number]) * 64, at=here)) for number in range(10)]

    assert host.view(tenant)["address"] == "[2001:db8:0:aa01::1]:9" and sum(refused) == 10
    assert sender.mail(visitor, b"x" * 64, at=neighbour) == []
    assert commands(sender.mail(visitor, b"y" * 64, at=other)) == [Command.RELAY_REFUSED]
    assert Command.RELAY in commands(sender.mail(tenant))


def test_mapped_addresses_count_as_ipv4():
    """An IPv4 address written in IPv6 shares its network's credit."""
    _, tenant, sender = world()
    letter = sender.letter(tenant, b"")
    sender.repeat(letter, at=("198.51.100.20", 1))
    (demand,) = sender.repeat(letter, at=("::ffff:198.51.100.21", 1))

    assert demand.command is Command.RELAY_DEMANDS_WORK


# Standing


def standing_of(host, address):
    """Return what a source's accepted packets have earned it."""
    return host.relay._sources.find(address).score


@pytest.mark.parametrize("what", ["beat", "clear", "mail", "confirm"])
def test_accepted_packets_earn_standing(what):
    """What a lease, a whitelist or work lets in earns its source standing, by which it is heard in a flood."""
    host, tenant, sender = friends()
    person = sender if what == "mail" else tenant
    letter = sender.letter(tenant)
    sender.repeat(letter)
    person.address = ("203.0.113.9", 9)
    {
        "confirm": lambda: tenant.confirm(letter),
        "beat": tenant.beat,
        "clear": tenant.clear,
        "mail": lambda: sender.mail(tenant),
    }[what]()

    assert standing_of(host, person.address) == 8


def test_signatures_alone_earn_none():
    """Demands, refusals and unknown work earn no standing: anybody can make a key and sign."""
    host, tenant, sender = world()
    visitor = Person(host, VISITOR, ("203.0.113.9", 9))
    visitor.say(Command.ASK_LEASE, bytes(64))
    (challenge,) = visitor.mail(tenant)
    visitor.mail(sender)
    visitor.say(Command.WORK, challenge.signature + weak_solution(challenge, 0))

    assert standing_of(host, visitor.address) == 0
    visitor.solve(challenge)
    assert standing_of(host, visitor.address) == 8
