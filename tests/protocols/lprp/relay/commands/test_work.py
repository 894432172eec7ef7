"""Challenges at the host: what is demanded, and what becomes of an answer."""

import pytest

from tests.protocols.lprp.build import BIG, FRIENDS, HOST, NOW_MS, SENDER, TENANT, VISITOR, sealed
from tests.protocols.lprp.build_parts import LEASE_MS, Parts
from tests.protocols.lprp.build_relay import AFAR, AT_HOME, BITS, ELSEWHERE, START, weak_solution
from waystation.core.facts import WorkJudged
from waystation.core.instant import after_ms
from waystation.protocols.lprp.limits import DEFAULT_LIMITS as LIMITS
from waystation.protocols.lprp.messages import CHALLENGE_LIFE_MS, CLOCK_WINDOW_MS, Command, Kind
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.relay.commands.work import MADE_MAX
from waystation.protocols.lprp.relay.replies import Demand, Reply
from waystation.protocols.lprp.settings import BITS_MAX
from waystation.protocols.lprp.whitelist import whitelist_hash

ASKED = sealed(VISITOR, HOST, Command.ASK_LEASE, bytes(64))
UPDATE = sealed(TENANT, HOST, Command.UPDATE_WHITELIST, whitelist_hash(FRIENDS) + b"".join(FRIENDS), NOW_MS + 1)
MAIL = sealed(SENDER, TENANT, Command.RELAY, bytes(64))


class Job:
    """One challenge and its answers."""

    def __init__(self, kind=Kind.LEASE, about=ASKED, *, parts=None, address=AT_HOME, occupancy=0.0, **settings):
        self.parts = parts or Parts(**settings)
        self.source = self.parts.hear(address)
        demand = Demand(kind, about, about.recipient, occupancy)
        self.packet = BIG.read(self.parts.working.demand(demand, self.source, START, NOW_MS))
        self.challenge = self.parts.challenges.find(self.packet.signature)
        self.worker = {each.public: each for each in (VISITOR, TENANT, SENDER)}[about.sender]

    def answer(self, bits=BITS, *, key=None, address=AT_HOME, after=0, payload=None):
        """Let somebody answer with a solution of exactly so many bits."""
        payload = weak_solution(self.packet, bits) if payload is None else payload
        work = sealed(key or self.worker, HOST, Command.WORK, self.packet.signature + payload, NOW_MS + 2)
        self.work = work
        arrival = self.parts.arrival(work, address)
        return self.parts.working.worked(arrival, after_ms(START, after), NOW_MS + after)


@pytest.mark.parametrize(("kind", "about"), [(Kind.LEASE, ASKED), (Kind.WHITELIST, UPDATE), (Kind.RELAY, MAIL)])
def test_demand(kind, about):
    """A demand is signed by the host, names what it is about, waits for one worker, and is what copies get."""
    job = Job(kind, about)

    assert (job.packet.command, job.packet.reference) == (kind.demand, about.signature)
    assert (job.packet.sender, job.packet.recipient, job.packet.time_ms) == (HOST.public, about.sender, NOW_MS)
    assert (job.challenge.worker, job.challenge.address, job.challenge.bits) == (about.sender, AT_HOME, BITS)
    assert job.parts.answers.find(about.data) == job.packet.data
    assert job.source.prefix.issued(START) == 0


def test_difficulty_is_fixed_with_the_demand():
    """Occupancy and the challenges of a prefix that were answered raise the demand; it is stored with the challenge."""
    parts = Parts(pow_adaptive=True)
    bits = [Job(parts=parts, occupancy=1.0).challenge.bits]
    for number in range(9):
        about = sealed(VISITOR, HOST, Command.ASK_LEASE, bytes(64), NOW_MS + 1 + number)
        job = Job(parts=parts, about=about)
        job.answer(0)
        bits.append(job.challenge.bits)

    assert bits == [BITS + 8] + [BITS] * 8 + [BITS + 1]


@pytest.mark.parametrize(("address", "issued"), [(AT_HOME, 1), (ELSEWHERE, 0), (AFAR, 0)])
def test_answered_challenges_count_once_and_for_their_prefix(address, issued):
    """The first answer from where a challenge went shows that somebody is there (LPRP-ISSUED, LPRP-FULLEST)."""
    job = Job()
    before = job.challenge.tried_at, job.source.prefix.issued(START)
    for _ in range(3):
        job.answer(0, address=address)

    assert before == (None, 0)
    assert (job.challenge.tried_at, job.source.prefix.issued(START)) == (START if issued else None, issued)


@pytest.mark.parametrize(
    ("back_ms", "made_ms"),
    [(1, NOW_MS), (CLOCK_WINDOW_MS // 2, NOW_MS), (CLOCK_WINDOW_MS // 2 + 1, NOW_MS - CLOCK_WINDOW_MS // 2 - 1)],
)
def test_time_of_demands(back_ms, made_ms):
    """With a clock set back demands keep the newest time, so that none is made twice; far back they follow it."""
    job = Job()
    demand = Demand(Kind.LEASE, ASKED, VISITOR.public, 0.0)
    again = BIG.read(job.parts.working.demand(demand, job.source, START, NOW_MS - back_ms))
    challenge = job.parts.challenges.find(again.signature)

    assert again.time_ms == made_ms
    assert (challenge.address is None) == (again == job.packet) == (made_ms == NOW_MS)


def test_a_clock_that_stands_still_fills_no_memory():
    """Behind 1,024 demands of one millisecond comes the next one, whatever the clock says, so none is made twice."""
    parts = Parts()
    job = Job(parts=parts)
    times = [job.packet.time_ms]
    for number in range(1, 2 * MADE_MAX + 1):
        about = sealed(VISITOR, HOST, Command.ASK_LEASE, bytes(64), NOW_MS + number)
        demand = Demand(Kind.LEASE, about, VISITOR.public, 0.0)
        times.append(BIG.read(parts.working.demand(demand, job.source, START, NOW_MS)).time_ms)

    assert [times.count(NOW_MS + later) for later in range(3)] == [MADE_MAX, MADE_MAX, 1]


def test_challenge_that_is_pushed_out_is_made_anew():
    """A packet whose challenge is gone has no stored demand any more."""
    parts = Parts()
    packets = [
        sealed(VISITOR, HOST, Command.ASK_LEASE, bytes(64), NOW_MS + n) for n in range(LIMITS.challenges_per_key + 1)
    ]
    for packet in packets:
        Job(parts=parts, about=packet)

    assert [parts.answers.find(packet.data) is None for packet in packets] == [
        True,
        *[False] * LIMITS.challenges_per_key,
    ]


@pytest.mark.parametrize(("bits", "enough"), [(BITS - 1, False), (BITS, True), (BITS + 1, True)])
def test_bits(bits, enough):
    """One bit short is refused, exactly enough is enough."""
    job = Job()
    reply = job.answer(bits)

    assert reply == (
        Reply(Command.LEASE_GRANTED, ASKED) if enough else Reply(Command.WORK_REFUSED, job.work, Refusal.TOO_FEW_BITS)
    )
    assert (job.parts.challenges.find(job.packet.signature) is None) == enough
    assert (job.parts.answers.find(ASKED.data) is None) == enough


def test_challenge_is_used_once():
    """After good work the challenge is gone, also for its own worker."""
    job = Job()
    job.answer()

    assert job.answer() is Refusal.UNKNOWN_CHALLENGE


@pytest.mark.parametrize("key", [TENANT, SENDER])
def test_other_workers(key):
    """Another key's answer leaves the challenge as it was, and proves nothing."""
    job = Job()

    assert job.answer(key=key) is Refusal.UNKNOWN_CHALLENGE
    assert job.challenge.refusals == 0 and job.source.proved_by is None
    assert job.answer().command is Command.LEASE_GRANTED


@pytest.mark.parametrize(
    ("after", "command"), [(CHALLENGE_LIFE_MS, Command.LEASE_GRANTED), (CHALLENGE_LIFE_MS + 1, Command.WORK_REFUSED)]
)
def test_age(after, command):
    """At exactly 2**19 ms work is taken; later it is lost, and the challenge with it."""
    job = Job()
    reply = job.answer(after=after)

    assert reply.command is command
    assert job.parts.challenges.find(job.packet.signature) is None
    assert reply.refusal is (Refusal.CHALLENGE_EXPIRED if command is Command.WORK_REFUSED else None)


def test_too_few_bits_of_an_old_challenge():
    """Too little work is refused as such, however old the challenge; it stays until it is forgotten."""
    job = Job()

    assert job.answer(0, after=CHALLENGE_LIFE_MS + 1).refusal is Refusal.TOO_FEW_BITS
    assert job.parts.challenges.find(job.packet.signature) is job.challenge


def test_refusals_of_one_challenge():
    """After 32 refusals the next wrong answer is silent and ends the challenge (LPRP-D6)."""
    job = Job()
    replies = [job.answer(0) for _ in range(LIMITS.work_refusals_per_challenge + 1)]

    assert all(reply.command is Command.WORK_REFUSED for reply in replies[:-1])
    assert replies[-1] is Refusal.TOO_FEW_BITS
    assert job.parts.challenges.find(job.packet.signature) is None and job.parts.answers.find(ASKED.data) is None


@pytest.mark.parametrize("bits", [0, BITS])
@pytest.mark.parametrize(("address", "proved"), [(AT_HOME, True), (ELSEWHERE, False), (AFAR, False)])
def test_proof(bits, address, proved):
    """An answer from where the challenge went proves that address, enough bits or not; others prove none (LPRP-D18)."""
    job = Job()
    job.answer(bits, address=address)

    assert job.parts.sources.find(address).proved_by == (VISITOR.public if proved else None)
    assert (job.source.proved_by is not None) == proved


def test_doubted_challenge_proves_nothing():
    """A challenge that went to two addresses proves neither."""
    job = Job()
    job.challenge.address = None

    assert job.answer().command is Command.LEASE_GRANTED
    assert job.source.proved_by is None


def test_relay_is_carried_out():
    """Work for a 602 queues the 102 it was made for, and the answer is about that one."""
    parts = Parts()
    tenant = parts.tenant()
    job = Job(Kind.RELAY, MAIL, parts=parts)

    assert job.answer() == Reply(Command.RELAY_ACCEPTED, MAIL)
    assert MAIL.signature in tenant.mailbox


def test_update_is_carried_out():
    """Work for a 608 applies the 108 it was made for."""
    parts = Parts()
    tenant = parts.tenant()
    tenant.whitelist_at_ms = NOW_MS
    job = Job(Kind.WHITELIST, UPDATE, parts=parts)

    assert job.answer() == Reply(Command.WHITELIST_DONE, UPDATE)
    assert tenant.whitelist == frozenset(FRIENDS)


def test_update_of_a_lease_that_is_over():
    """A 108 whose tenant is none any more is void."""
    parts = Parts()
    parts.tenant(wall_ms=NOW_MS - LEASE_MS)
    job = Job(Kind.WHITELIST, UPDATE, parts=parts)

    assert job.answer(after=1) == Reply(Command.WHITELIST_DIFFERS, UPDATE, Refusal.OVERTAKEN)


def test_relay_to_nobody_any_more():
    """Good work for mail that cannot be delivered is answered with 402, and its challenge is used up."""
    job = Job(Kind.RELAY, MAIL)

    assert job.answer() == Reply(Command.RELAY_REFUSED, MAIL, Refusal.NO_LEASE)
    assert job.parts.challenges.find(job.packet.signature) is None


def test_facts_of_work():
    """Every judgement of a worker's own answer is told with the bits demanded and the time it took."""
    job = Job()
    job.answer(0, after=5)
    job.answer(after=9)
    late = Job(about=sealed(VISITOR, HOST, Command.ASK_LEASE, bytes(65)))
    late.answer(after=CHALLENGE_LIFE_MS + 1)
    told = [fact for fact in job.parts.facts + late.parts.facts if isinstance(fact, WorkJudged)]

    assert [(fact.work, fact.worker, fact.bits) for fact in told] == [("lease", VISITOR.public, BITS)] * 3
    assert [(fact.verdict, fact.latency_us) for fact in told] == [
        ("too_few_bits", 5_000),
        ("accepted", 9_000),
        ("challenge_expired", (CHALLENGE_LIFE_MS + 1) * 1_000),
    ]


@pytest.mark.parametrize("accepts", [True, False])
def test_only_what_was_accepted_raises_the_rate(accepts):
    """The mean that raises the demand counts what work brought, not work that brought nothing."""
    parts = Parts(pow_adaptive=True, tenants_max=100 if accepts else 0)
    for number in range(61):
        about = sealed(VISITOR, HOST, Command.ASK_LEASE, bytes(64), NOW_MS + 1 + number)
        job = Job(parts=parts, about=about, address=(f"10.9.{number}.1", 1))
        job.answer(job.challenge.bits, address=(f"10.9.{number}.1", 1))

    assert Job(parts=parts, address=AFAR).challenge.bits == BITS + accepts


def test_published_rule_makes_work_harder():
    """For whom it names, whatever the difficulty adapts to, and never beyond what may be demanded at all."""
    parts = Parts()
    parts.extra_bits = {VISITOR.public: 3, SENDER.public: 99}

    assert Job(parts=parts).challenge.bits == BITS + 3
    assert Job(Kind.WHITELIST, UPDATE, parts=parts).challenge.bits == BITS
    assert Job(Kind.RELAY, MAIL, parts=parts).challenge.bits == BITS_MAX
