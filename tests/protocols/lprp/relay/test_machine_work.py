"""Work at the host: what is enough, what is too little, too late, or somebody else's."""

import pytest

from tests.protocols.lprp.build import TENANT, VISITOR
from tests.protocols.lprp.build_relay import AFAR, ELSEWHERE, Host, Person, commands, weak_solution, world
from waystation.core.facts import WorkJudged
from waystation.protocols.lprp.messages import Command
from waystation.protocols.lprp.whitelist import comparison
from waystation.store.memory import MemoryStore

# Work: LPRP-D6, LPRP-D7, section 9


def test_bits_decide():
    """One bit short is refused, exactly enough is taken; the same 101 again gets the same stored answer."""
    host, tenant, sender = world(pow_base_bits_relay=6)
    (challenge,) = sender.mail(tenant)
    weak = sender.packet(Command.WORK, challenge.signature + weak_solution(challenge, 5))
    strong = sender.packet(Command.WORK, challenge.signature + weak_solution(challenge, 6))
    refused = sender.repeat(weak)
    host.pass_ms(2)
    refused_again = sender.repeat(weak)
    taken = [packet for packet in sender.repeat(strong) if packet.command is Command.RELAY_ACCEPTED]
    host.pass_ms(2)

    assert commands(refused) == [Command.WORK_REFUSED] and refused == refused_again
    assert refused[0].reference == weak.signature
    assert len(taken) == 1 and sender.repeat(strong) == taken
    assert [fact.verdict for fact in host.facts_of(WorkJudged)][-2:] == ["too_few_bits", "accepted"]


def test_work_by_another_key_is_nothing():
    """A correct solution signed by another key gets no answer; its owner's still counts."""
    host, tenant, sender = world()
    (challenge,) = sender.mail(tenant)
    thief = Person(host, VISITOR, ELSEWHERE)
    stolen = thief.solve(challenge)
    tenants_own = tenant.solve(challenge)

    assert stolen == tenants_own == []
    assert Command.RELAY_ACCEPTED in commands(sender.solve(challenge))


@pytest.mark.parametrize(
    ("age_ms", "answer"), [(1 << 19, Command.RELAY_ACCEPTED), ((1 << 19) + 1, Command.WORK_REFUSED)]
)
def test_work_comes_too_late(age_ms, answer):
    """Work is taken until its challenge is exactly 2**19 ms old; after that a 401 says so."""
    host, tenant, sender = world()
    (challenge,) = sender.mail(tenant)
    host.pass_ms(age_ms)

    assert answer in commands(sender.solve(challenge))
    assert host.sizes["challenges"] == 0


@pytest.mark.parametrize(("more_ms", "answers"), [(0, [Command.WORK_REFUSED]), (1, [])])
def test_expired_challenges_are_kept_for_the_401(more_ms, answers):
    """For another 2**19 ms work that is too late hears so; then the challenge is unknown (LPRP-C5)."""
    host, tenant, sender = world()
    (challenge,) = sender.mail(tenant)
    host.pass_ms((2 << 19) + more_ms)

    assert commands(sender.solve(challenge)) == answers


def test_33rd_refusal_is_silent():
    """Thirty-two solutions are refused; the next gets nothing, and nobody can answer that challenge any more."""
    host, tenant, sender = world(pow_base_bits_relay=12)
    (challenge,) = sender.mail(tenant)
    answers = []
    for number in range(33):
        host.pass_ms(1_000)
        answers.append(commands(sender.say(Command.WORK, challenge.signature + b"no%d" % number)))

    assert answers == [[Command.WORK_REFUSED]] * 32 + [[]]
    assert sender.solve(challenge, bits=12) == []


def test_work_for_a_lease_that_filled_up():
    """When the table filled up while somebody worked, the answer is a 404."""
    host = Host(tenants_max=1)
    late, early = Person(host, VISITOR, AFAR), Person(host, TENANT)
    (challenge,) = late.say(Command.ASK_LEASE, bytes(64))
    early.lease()

    assert commands(late.solve(challenge)) == [Command.LEASE_REFUSED]
    assert commands(late.say(Command.ASK_LEASE, bytes(64))) == [Command.LEASE_REFUSED]


def test_closed_leases_are_renewed_only():
    """With leases closed a newcomer is refused at once; who has one may go on."""
    store = MemoryStore()
    Person(Host(store=store), TENANT).lease()
    host = Host(store=store, leases="closed")
    tenant, visitor = Person(host, TENANT), Person(host, VISITOR, AFAR)
    tenant.last_ms = host.wall_ms + 100

    assert commands(visitor.say(Command.ASK_LEASE, bytes(64))) == [Command.LEASE_REFUSED]
    assert commands(tenant.say(Command.ASK_LEASE, bytes(64))) == [Command.LEASE_DEMANDS_WORK]


def test_demand_that_nobody_can_meet_any_more_is_made_anew():
    """A 102 ahead of our clock can outlive its challenge: its copy then gets a new one, and work for it counts."""
    host, tenant, sender = world()
    letter = sender.letter(tenant, time_ms=host.wall_ms + 400_000)
    (old,) = sender.repeat(letter)
    host.pass_ms(1 << 19)
    (same,) = sender.repeat(letter)
    host.pass_ms(1)
    (new,) = sender.repeat(letter)

    assert same == old != new
    assert Command.RELAY_ACCEPTED in commands(sender.solve(new))


def test_challenge_that_is_made_again_proves_nobody():
    """Signatures are deterministic: a challenge made a second time within a millisecond may have been seen before."""
    host, tenant, sender = world()
    letters = [sender.letter(tenant, bytes([number]) * 64) for number in range(5)]
    first = [sender.repeat(letter, at=ELSEWHERE)[0] for letter in letters]
    (again,) = sender.repeat(letters[0])
    sender.solve(again)

    assert again == first[0]
    assert host.relay._sources.find(AFAR).proved_by is None


# Answers that are stored: LPRP-D10, LPRP-C4


def asked_and_answered(name):
    """Return somebody and a packet whose answer is this one."""
    host, tenant, sender = world(tenants_max=1)
    visitor = Person(host, VISITOR, ELSEWHERE)
    if name == "208":
        return tenant, tenant.update(sender.public)
    if name == "208 to a comparison":
        return tenant, tenant.packet(Command.UPDATE_WHITELIST, comparison(()))
    if name == "208 to a clearing":
        return tenant, tenant.packet(Command.CLEAR_WHITELIST, bytes(64))
    if name == "408":
        return tenant, tenant.update(sender.public, current=[visitor.public])
    if name == "404":
        return visitor, visitor.packet(Command.ASK_LEASE, bytes(64))
    if name == "602":
        return sender, sender.letter(tenant)
    if name == "604":
        return tenant, tenant.packet(Command.ASK_LEASE, bytes(64))
    if name == "608":
        tenant.clear()
        return tenant, tenant.update(sender.public)
    if name == "401":
        (challenge,) = sender.mail(tenant)
        return sender, sender.packet(Command.WORK, challenge.signature + weak_solution(challenge, 0))
    assert name == "204"
    (challenge,) = tenant.say(Command.ASK_LEASE, bytes(64))
    return tenant, tenant.solution(challenge)


@pytest.mark.parametrize(
    "name", ["204", "208", "208 to a comparison", "208 to a clearing", "401", "404", "408", "602", "604", "608"]
)
def test_stored_answers(name):
    """The same packet gets the same bytes again, much later too, and nothing else happens."""
    person, packet = asked_and_answered(name)
    host = person.host
    (answer,) = person.repeat(packet)
    commits, checks = len(host.commits), host.checks_count
    host.pass_ms(100_000)
    (again,) = person.repeat(packet)

    assert again == answer and f"{answer.command:x}" == name[:3]
    assert (len(host.commits), host.checks_count) == (commits, checks)


def test_both_packets_of_work_get_its_answer():
    """The 101 and the packet that the work was for have one answer, which names the latter."""
    _, tenant, sender = world()
    letter = sender.letter(tenant)
    (challenge,) = sender.repeat(letter)
    work = sender.solution(challenge)
    (answer,) = [packet for packet in sender.repeat(work) if packet.command is Command.RELAY_ACCEPTED]

    assert answer.reference == letter.signature
    assert sender.repeat(work) == sender.repeat(letter) == [answer]
