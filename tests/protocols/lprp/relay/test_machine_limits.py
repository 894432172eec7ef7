"""Every limit of the host, exactly at its bound and one beyond it. Spec: lprp 7."""

import pytest

from tests.protocols.lprp.build import HOST, VISITOR
from tests.protocols.lprp.build_relay import (
    AFAR,
    AT_HOME,
    ELSEWHERE,
    Host,
    Person,
    address_of,
    commands,
    friends,
    key_of,
    weak_solution,
    world,
)
from waystation.protocols.lprp.limits import DEFAULT_LIMITS as LIMITS
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS, Command
from waystation.protocols.lprp.refusals import Refusal

ACCEPTED, REFUSED, DEMAND = Command.RELAY_ACCEPTED, Command.RELAY_REFUSED, Command.RELAY_DEMANDS_WORK


def work_in(stranger, tenant, number=0):
    """Let a stranger mail a tenant and do the work; return the answer to it."""
    stranger.host.pass_ms(100)
    (first,) = [p for p in stranger.mail(tenant, b"%4d" % number * 16) if p.command in {DEMAND, REFUSED}]
    if first.command is REFUSED:
        return REFUSED
    return next(p.command for p in stranger.solve(first) if p.command in {ACCEPTED, REFUSED})


def strangers(host, count):
    """Return people whom nobody knows, each in a prefix of its own."""
    return [Person(host, key_of(500 + number), address_of(number)) for number in range(count)]


# Tenants


def test_table_of_tenants():
    """The last place is given, the next newcomer is refused without work, and who holds a lease may renew it."""
    host = Host(tenants_max=2)
    first, second = Person(host, VISITOR, AT_HOME).lease(), Person(host, key_of(1), AFAR).lease()
    third = Person(host, key_of(2), ELSEWHERE)

    assert commands(third.say(Command.ASK_LEASE, bytes(64))) == [Command.LEASE_REFUSED]
    assert host.refused[Refusal.TENANTS_FULL.value] == 1
    assert commands(first.say(Command.ASK_LEASE, bytes(64))) == [Command.LEASE_DEMANDS_WORK]
    assert host.view(first) and host.view(second)


def test_leases_that_are_over_take_no_place():
    """Kept mail of expired leases leaves room for newcomers; of these leases no more are kept than may live."""
    host = Host(tenants_max=2, lease_ms=60_000)
    people = [Person(host, key_of(number), address_of(number)) for number in range(6)]
    counts = []
    for person in people:
        person.lease()
        counts.append((host.sizes["tenants"], host.sizes["leases_kept"]))
        host.pass_ms(31_000)

    assert max(live for live, _ in counts) == 2 and max(kept for _, kept in counts) == 2
    assert host.view(people[0]) is None and host.view(people[-1])["state"] == "active"


def test_a_table_without_room_serves_nobody():
    """A host with no places refuses every lease."""
    host = Host(tenants_max=0)

    assert commands(Person(host, VISITOR).say(Command.ASK_LEASE, bytes(64))) == [Command.LEASE_REFUSED]


# Queues


def test_queue_of_one_tenant():
    """The 256th letter is taken, the 257th refused with 402; a confirmed one makes room for one."""
    host, tenant, sender = friends()
    letters = [sender.letter(tenant, number.to_bytes(64, "big")) for number in range(LIMITS.queue_packets + 1)]
    answers = [packet.command for _, packet in host.give(*[(letter.data, AFAR) for letter in letters[:-1]])]
    refused = commands(sender.repeat(letters[-1]))
    tenant.confirm(letters[0])

    assert answers.count(ACCEPTED) == LIMITS.queue_packets and refused == [REFUSED]
    assert host.refused[Refusal.QUEUE_FULL.value] == 1 and host.sizes["packets"] == LIMITS.queue_packets - 1
    assert ACCEPTED in commands(sender.repeat(letters[-1]))


def test_queue_full_of_large_letters():
    """256 letters of 508 bytes fit: the queue's bound counts letters, not bytes (LPRP-C9)."""
    host, tenant, sender = friends()
    letters = [sender.letter(tenant, number.to_bytes(364, "big")) for number in range(LIMITS.queue_packets)]
    answers = [packet.command for _, packet in host.give(*[(letter.data, AFAR) for letter in letters])]

    assert answers.count(ACCEPTED) == LIMITS.queue_packets
    assert host.sizes["packet_bytes"] == LIMITS.queue_packets * 508


def test_one_stranger_holds_16():
    """A stranger's 16th letter is taken, the 17th refused without work; other strangers have room."""
    host, tenant, sender = world()
    (other,) = strangers(host, 1)
    answers = [work_in(sender, tenant, number) for number in range(LIMITS.unlisted_packets_per_sender + 1)]

    assert answers == [ACCEPTED] * LIMITS.unlisted_packets_per_sender + [REFUSED]
    assert work_in(other, tenant) is ACCEPTED
    assert host.refused[Refusal.STRANGERS_FULL.value] == 1


def test_all_strangers_hold_64():
    """A quarter of the queue is the strangers' together; whom the tenant knows still has the rest."""
    host, tenant, _ = world()
    people = strangers(host, 5)
    answers = [work_in(person, tenant, number) for person in people for number in range(LIMITS.unlisted_packets // 4)]
    friend = Person(host, key_of(9), AFAR)
    tenant.toggle(friend.public)

    assert answers == [ACCEPTED] * LIMITS.unlisted_packets + [REFUSED] * (LIMITS.unlisted_packets // 4)
    assert ACCEPTED in commands(friend.mail(tenant)) and ACCEPTED in commands(tenant.mail(tenant))


def test_work_for_room_that_is_gone():
    """Who did the work when the strangers' room was taken meanwhile hears 402, and again for the same 101."""
    host, tenant, sender = world()
    (late,) = sender.mail(tenant)
    for person in strangers(host, 4):
        for number in range(LIMITS.unlisted_packets // 4):
            work_in(person, tenant, number)
    work = sender.solution(late)

    assert commands(sender.repeat(work)) == commands(sender.repeat(work)) == [REFUSED]


def test_confirmed_letters_free_a_strangers_place():
    """What the tenant has confirmed no longer counts for its sender."""
    host, tenant, sender = world()
    for number in range(LIMITS.unlisted_packets_per_sender):
        work_in(sender, tenant, number)
    letter = next(packet for _, packet in host.sent if packet.command is Command.RELAY)
    tenant.confirm(letter)

    assert [work_in(sender, tenant, number) for number in (98, 99)] == [ACCEPTED, REFUSED]


@pytest.mark.parametrize(("left", "answer"), [(208, ACCEPTED), (207, REFUSED)])
def test_mail_of_all_queues_together(left, answer):
    """When 512 MiB wait, nothing more is taken; the last byte may be used.

    The count itself is set here; that it is the sum of what waits, ``test_queue_full_of_large_letters`` says.
    """
    host, tenant, sender = friends()
    host.relay._relaying.mail_bytes = LIMITS.mail_bytes - left
    answers = sender.mail(tenant)

    assert answer in commands(answers)
    assert host.refused[Refusal.STORE_FULL.value] == (answer is REFUSED)


# Challenges


def test_four_challenges_per_key():
    """A fifth demand to one key pushes its oldest out; work for that one is unknown, and its 102 is judged anew."""
    host, tenant, sender = world()
    letters = [sender.letter(tenant, bytes([number]) * 64) for number in range(LIMITS.challenges_per_key + 1)]
    challenges = [sender.repeat(letter)[0] for letter in letters]
    gone = sender.solve(challenges[0])
    host.pass_ms(1)
    anew = sender.repeat(letters[0])

    assert host.sizes["challenges"] == LIMITS.challenges_per_key
    assert gone == [] and commands(anew) == [DEMAND] and anew[0] != challenges[0]
    assert ACCEPTED in commands(sender.solve(challenges[2]))


def test_challenges_per_prefix():
    """One network has 32; the 33rd pushes out its own oldest, and nobody else's."""
    host, tenant, sender = world()
    (elsewhere,) = sender.mail(tenant)
    people = [
        Person(host, key_of(600 + number), ("203.0.113.1", 100 + number))
        for number in range(LIMITS.challenges_per_network + 1)
    ]
    challenges = [person.mail(tenant)[0] for person in people]

    assert host.sizes["challenges"] == LIMITS.challenges_per_network + 1
    assert people[0].solve(challenges[0]) == []
    assert ACCEPTED in commands(sender.solve(elsewhere)) and ACCEPTED in commands(people[1].solve(challenges[1]))


def test_challenges_per_recipient():
    """For one tenant's mail 64 wait; one more pushes out the oldest of the network that has most."""
    host, tenant, _ = world()
    crowd = [Person(host, key_of(700 + number), ("203.0.113.1", 100 + number)) for number in range(8)]
    first = [person.mail(tenant)[0] for person in crowd]
    people = strangers(host, LIMITS.challenges_per_recipient - 7)
    challenges = [person.mail(tenant)[0] for person in people]

    assert host.sizes["challenges"] == LIMITS.challenges_per_recipient
    assert crowd[0].solve(first[0]) == []
    assert ACCEPTED in commands(people[0].solve(challenges[0]))


# Refusals and stored answers


def test_ten_refusals_per_second_and_prefix():
    """The eleventh 402 within a second is not sent; a tenth of a second later there is one more, elsewhere at once."""
    host, _, sender = world()
    visitor = Person(host, VISITOR)
    answers = [commands(sender.mail(visitor, bytes([number]) * 64)) for number in range(11)]
    silent = host.refused[Refusal.REFUSAL_RATE.value]
    other = Person(host, key_of(3), address_of(3)).mail(visitor)
    host.pass_ms(100)

    assert answers == [[REFUSED]] * 10 + [[]] and silent == 1
    assert commands(other) == [REFUSED]
    assert commands(sender.mail(visitor)) == [REFUSED] and sender.mail(visitor, b"x" * 64) == []


def test_each_refusal_has_its_own_ration():
    """Ten 401s, ten 402s and ten 404s a second: none of them uses up what another needs."""
    host, tenant, sender = world(pow_base_bits_relay=8, tenants_max=1)
    (challenge,) = sender.mail(tenant)
    weak, visitor = weak_solution(challenge, 2), Person(host, VISITOR)
    says = {
        Command.WORK_REFUSED: lambda _: sender.say(Command.WORK, challenge.signature + weak),
        REFUSED: lambda number: sender.mail(visitor, bytes([number]) * 64),
        Command.LEASE_REFUSED: lambda number: sender.say(Command.ASK_LEASE, bytes(64 + number)),
    }
    answers = {command: [commands(say(number)) for number in range(11)] for command, say in says.items()}

    assert answers == {command: [[command]] * 10 + [[]] for command in says}


def test_accepting_is_not_rationed():
    """Answers that say yes are limited by nothing but what they cost."""
    _, tenant, sender = friends()
    answers = [commands(sender.mail(tenant, bytes([number]) * 64)) for number in range(40)]

    assert sum(answer.count(ACCEPTED) for answer in answers) == 40


@pytest.mark.parametrize(("after_ms", "answered"), [(2 * CLOCK_WINDOW_MS, True), (2 * CLOCK_WINDOW_MS + 1, False)])
def test_life_of_a_stored_answer(after_ms, answered):
    """An answer is given again for as long as its packet can be heard at all: until 2 * 2**19 ms at most."""
    host, tenant, _ = world()
    clearing = tenant.packet(Command.CLEAR_WHITELIST, bytes(64), time_ms=host.wall_ms + CLOCK_WINDOW_MS)
    (answer,) = tenant.repeat(clearing)
    host.pass_ms(after_ms)

    assert tenant.repeat(clearing) == ([answer] if answered else [])


def test_repeats_are_charged_too():
    """A stored answer to a short packet is sent only as far as its copies have paid for it."""
    _, tenant, sender = world(sender_at=address_of(4))
    letter = sender.letter(tenant, b"")
    sent = sum(len(sender.repeat(letter)) for _ in range(13))

    assert sent == 13 * 144 // 208


def test_limits_hold_without_rate_limits():
    """With the node's rate limits off, every credit and every cap here still holds (LPRP-C8)."""
    host, tenant, sender = world(rate_limits=False, sender_at=address_of(4))
    short = sender.repeat(sender.letter(tenant, b""))
    answers = [commands(sender.mail(Person(host, HOST), bytes([number]) * 64)) for number in range(11)]

    assert short == [] and answers[:10] == [[REFUSED]] * 10 and answers[10] == []
