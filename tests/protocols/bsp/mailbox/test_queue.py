"""Laws of protocols.bsp.mailbox_queue, and of the mailbox whose owner says more than it is worth."""

import pytest

from tests.protocols.bsp.build_mailbox import (
    CLIENT_ID,
    DAY_MS,
    TERMS,
    Clock,
    MailboxParty,
    Owner,
    key_pair,
    meet,
)
from waystation.core.instant import Instant, after_ms
from waystation.core.settings import InForce
from waystation.protocols.bsp.device.links import Visibility
from waystation.protocols.bsp.graph.formats import deps_v1_body
from waystation.protocols.bsp.limits import DEFAULT_LIMITS, BspLimits
from waystation.protocols.bsp.mailbox import queue as mailbox_queue
from waystation.protocols.bsp.mailbox.commands import (
    AnswerStatus,
    ChangeMembers,
    Done,
    Drop,
    Host,
    State,
    Status,
    encode,
)
from waystation.protocols.bsp.mailbox.hosting import Hosting, quota_of
from waystation.protocols.bsp.mailbox.queue import (
    COST_BYTES,
    CommandQueue,
)
from waystation.protocols.bsp.profile import SEED
from waystation.protocols.bsp.settings import BspSettings
from waystation.protocols.bsp.wire import RecordReader

M, A, B, C = (key_pair(number).public for number in (1, 2, 3, 4))
DONE = Done(AnswerStatus.DONE)
GROUP = SEED.group(CLIENT_ID, b"friends", "opaque")
BURST, PER_SECOND = DEFAULT_LIMITS.commands_burst, DEFAULT_LIMITS.commands_per_second
FEW_ANSWERS, QUOTA = BspLimits(answers_bytes=500), quota_of(BspSettings())
STEP_MS = 1_000 // PER_SECOND
NOBODIES = (
    bytes(32),
    b"\xff" * 32,
    b"\x01" + bytes(31),
    b"\xec" + b"\xff" * 30 + b"\x7f",
    (2).to_bytes(32, "little"),
    (2**255 - 19 + 3).to_bytes(32, "little"),
)
"""Small order thrice, no point of the curve or of its main subgroup, and not canonical."""


def host(*members):
    """Return the command that hosts the group."""
    return Host(GROUP.group_id, GROUP.client_id, GROUP.descriptor, members or (A,), GROUP.format)


@pytest.fixture
def clock():
    """Return the time."""
    return Clock()


@pytest.fixture
def mailbox(clock):
    """Return a mailbox whose owners are A and C."""
    return MailboxParty(clock, 1, [A, C])


@pytest.fixture
def owner(clock):
    """Return A."""
    return Owner(clock, 2, M)


def queue_at(now=0):
    """Return an empty queue."""
    control = SEED.group(CLIENT_ID, b"control", "deps_v1")
    return CommandQueue(
        Hosting(A, Host(control.group_id, CLIENT_ID, b"control", (A,)), 0, is_control=True),
        Instant(now),
        InForce(DEFAULT_LIMITS),
    )


def flood(owner, mailbox, count=BURST + 10, command=None):
    """Let the mailbox hear many commands at once; return their identifiers."""
    said = [owner.say(command or Status()) for _ in range(count)]
    hear(owner, mailbox)
    return said


def hear(owner, mailbox):
    """Let the mailbox hear and store what its owner has to say, without an answer getting through."""
    link = owner.device.link_up(M, TERMS, owner.clock.now)
    while said := owner.device.send_due(M, owner.clock.now):
        for record in RecordReader(SEED).feed(b"".join(said)):
            mailbox.device.receive(owner.key, record, owner.clock.now)
    owner.device.link_down(link, owner.clock.now)
    mailbox.commit()


def done(mailbox):
    """Return how many commands were carried out, and how many wait."""
    sizes = mailbox.mailbox.sizes()
    return sizes["commands"], sizes["commands_waiting"]


# The queue


def test_commands_come_out_in_order_and_once():
    """First in, first out, at once while the burst lasts."""
    queue = queue_at()
    for number in range(3):
        queue.add(b"%d" % number, 40)

    assert [queue.take(Instant(0)) for _ in range(4)] == [b"0", b"1", b"2", None]
    assert (len(queue), queue.ready_at()) == (0, None)


def test_rate_of_commands():
    """The burst at once, then one every 50 ms, not a microsecond earlier."""
    queue = queue_at()
    for _ in range(BURST + 2):
        queue.add(b"x", 40)
    burst = 0
    while queue.take(Instant(0)) is not None:
        burst += 1
    ready_at = queue.ready_at()

    assert (burst, ready_at) == (BURST, after_ms(Instant(0), STEP_MS))
    assert queue.take(Instant(ready_at - 1)) is None
    assert queue.take(ready_at) == b"x"
    assert queue.ready_at() == after_ms(ready_at, STEP_MS)


@pytest.mark.parametrize(("size", "count"), [(COST_BYTES - 1, 64), (COST_BYTES, 32), (8_300, 3), (32_768, 1)])
def test_long_commands_cost_more(size, count):
    """One more for every 512 bytes, and never more than there can be."""
    queue = queue_at()
    for _ in range(BURST + 1):
        queue.add(b"x", size)
    burst = 0
    while queue.take(Instant(0)) is not None:
        burst += 1

    assert burst == count


def test_answers_that_nobody_takes_stop_the_queue():
    """From 1 MiB of answers on nothing is taken until some of them are gone; the same answer counts once."""
    queue = queue_at()
    queue.add(b"x", 40)
    for _ in range(2):
        queue.answer(b"a", DEFAULT_LIMITS.answers_bytes - 1)
    before = queue.ready_at()
    queue.answer(b"b", 1)
    full = queue.take(Instant(0)), queue.ready_at()
    queue.forget(b"c")
    queue.forget(b"b")

    assert (before, full) == (Instant(0), (None, None))
    assert (queue.is_answer(b"a"), queue.is_answer(b"b")) == (True, False)
    assert queue.take(Instant(0)) == b"x"


# The mailbox


def test_flood_is_carried_out_at_a_rate(clock, mailbox, owner):
    """Every command of a flood gets its one answer, the burst at once and then twenty a second."""
    said = flood(owner, mailbox, BURST + 10)
    steps = [done(mailbox)]
    mailbox.mailbox.wake(clock.now)
    steps.append(done(mailbox))
    for _ in range(10):
        assert mailbox.mailbox.deadline() == after_ms(clock.now, STEP_MS)
        mailbox.sweep(STEP_MS)
        steps.append(done(mailbox))
    clock.advance(1_000)
    meet(owner, mailbox)

    assert steps == [
        (BURST, 10),
        *((BURST + number, 10 - number) for number in range(11)),
    ]
    assert all(isinstance(owner.answer_to(each), State) for each in said)
    assert mailbox.live(owner.control) == 0


def test_flood_of_one_owner_does_not_delay_another(clock, mailbox, owner):
    """Each has a rate of its own."""
    flood(owner, mailbox)
    other = Owner(clock, 4, M)

    assert isinstance(other.ask(mailbox, Status()), State)


def test_order_holds_while_commands_wait(clock, mailbox, owner):
    """What waits is carried out in the order in which it was said."""
    flood(owner, mailbox)
    said = [owner.say(command) for command in (host(), Drop(GROUP.group_id), host(B), Drop(C), Drop(GROUP.group_id))]
    meet(owner, mailbox)
    mailbox.catch_up()
    clock.advance(1_000)
    meet(owner, mailbox)

    not_hosted = Done(AnswerStatus.NOT_HOSTED)
    assert [owner.answer_to(each) for each in said] == [DONE, DONE, DONE, not_hosted, DONE]
    assert not mailbox.mailbox.hosts(GROUP.group_id)


def test_what_waits_is_carried_out_after_a_restart_at_the_same_rate(clock, mailbox, owner):
    """Once, in order, not all at once, and nothing of it that was carried out before."""
    said = [owner.say(host(A, B) if number % 2 else Drop(GROUP.group_id)) for number in range(2 * BURST + 10)]
    hear(owner, mailbox)
    before = done(mailbox)
    again = MailboxParty(clock, 1, [A, C], mailbox.store)
    then = done(again)
    again.catch_up()
    clock.advance(1_000)
    meet(owner, again)
    third = MailboxParty(clock, 1, [A, C], mailbox.store)

    assert (before, then) == (
        (BURST, BURST + 10),
        (BURST, 10),
    )
    assert [owner.answer_to(each) for each in said] == [Done(AnswerStatus.NOT_HOSTED), *([DONE] * (len(said) - 1))]
    assert done(third) == (0, 0)
    assert third.mailbox.hosts(GROUP.group_id)


def test_order_of_delivery_holds_over_a_restart(clock, mailbox, owner):
    """Commands that came in another order than they depend on are carried out in theirs by the next life, too."""
    first, second = owner.say(host()), owner.say(Drop(GROUP.group_id))
    hear_backwards(owner, mailbox)
    again = MailboxParty(clock, 1, [A, C], mailbox.store)
    clock.advance(1_000)
    meet(owner, again)

    assert [owner.answer_to(first), owner.answer_to(second)] == [DONE, DONE]


def hear_backwards(owner, mailbox):
    """Let the mailbox store the last word first, and end before it does anything about it."""
    link = owner.device.link_up(M, TERMS, owner.clock.now)
    for record in reversed(RecordReader(SEED).feed(b"".join(owner.device.send_due(M, owner.clock.now)))):
        mailbox.clock.advance(1)
        mailbox.device.receive(A, record, owner.clock.now)
    owner.device.link_down(link, owner.clock.now)
    mailbox.store.commit(mailbox.device.changes())


def test_command_that_waits_for_another_is_kept(clock, mailbox, owner):
    """A command whose dependency has not come outlives the rounds, and is carried out behind it."""
    first = owner.say(host())
    second = owner.say(Drop(GROUP.group_id))
    records = RecordReader(SEED).feed(b"".join(spoken(owner)))
    mailbox.device.receive(A, records[1], clock.now)
    mailbox.commit()
    for _ in range(3):
        mailbox.sweep()
    mailbox.device.receive(A, records[0], clock.now)
    mailbox.commit()
    clock.advance(1_000)
    meet(owner, mailbox)

    assert [owner.answer_to(first), owner.answer_to(second)] == [DONE, DONE]


def spoken(owner):
    """Return what an owner says over a connection that then breaks."""
    link = owner.device.link_up(M, TERMS, owner.clock.now)
    said = owner.device.send_due(M, owner.clock.now)
    owner.device.link_down(link, owner.clock.now)
    return said


def test_rounds_carry_out_nothing(clock, mailbox, owner, monkeypatch):
    """Looking at every body makes no command come sooner, and removes none that waits."""
    flood(owner, mailbox)
    before = done(mailbox)
    monkeypatch.setattr(mailbox_queue.CommandQueue, "take", lambda queue, now: None)
    mailbox.sweep()
    mailbox.sweep()

    assert before == done(mailbox) == (BURST, 10)
    assert mailbox.live(owner.control) == BURST + 10


def test_answers_that_are_not_fetched_let_commands_wait(clock, mailbox, owner):
    """An owner that only asks gets no more than so many bytes of answers, and the others when it has taken them."""
    mailbox.limits.now = FEW_ANSWERS
    said = flood(owner, mailbox, 30)
    before = done(mailbox)
    mailbox.sweep(10_000)
    due_at, later = mailbox.mailbox.deadline(), done(mailbox)
    rested = after_ms(clock.now, 60_000)
    for _ in range(10):
        clock.advance(1_000)
        meet(owner, mailbox)
        mailbox.sweep(0)
    clock.advance(1_000)
    meet(owner, mailbox)

    assert 0 < before[0] < 30
    assert (later, due_at) == (before, rested)
    assert all(isinstance(owner.answer_to(each), State) for each in said)


def test_answers_are_counted_again_after_a_restart(clock, mailbox, owner):
    """What the owner has not fetched stops the next life as well."""
    mailbox.limits.now = FEW_ANSWERS
    flood(owner, mailbox, 30)
    carried, _ = done(mailbox)
    again = MailboxParty(clock, 1, [A, C], mailbox.store, limits=FEW_ANSWERS)

    assert done(again) == (0, 30 - carried)


def test_commands_of_a_banned_owner_wait(clock, owner):
    """Nothing is carried out during a ban, nor is the mailbox woken for it; afterwards everything is."""
    banned = set()
    mailbox = MailboxParty(clock, 1, [A], allows=lambda key: key not in banned)
    flood(owner, mailbox)
    banned.add(A)
    mailbox.mailbox.review(clock.now)
    mailbox.sweep(10_000)
    due_at, during = mailbox.mailbox.deadline(), done(mailbox)
    banned.clear()
    mailbox.mailbox.review(clock.now)
    mailbox.catch_up()

    assert during == (BURST, 10)
    assert due_at > after_ms(clock.now, 1_000)
    assert done(mailbox) == (BURST + 10, 0)
    assert mailbox.device.audience(owner.control.group_id)[A] is Visibility.SHARED


def test_retired_mailbox_carries_out_nothing(clock, mailbox, owner):
    """What is heard behind it waits for the next life, and nothing is due."""
    flood(owner, mailbox)
    mailbox.mailbox.retire()
    due_at = mailbox.mailbox.deadline()
    mailbox.sweep(10_000)
    other = Owner(clock, 4, M)
    said = other.say(Status())
    meet(other, mailbox)
    again = MailboxParty(clock, 1, [A, C], mailbox.store)
    clock.advance(10_000)
    meet(other, again)

    assert due_at is None
    assert done(mailbox) == (BURST, 11)
    assert isinstance(other.answer_to(said), State)


def test_command_that_waits_too_long_is_forgotten(clock, mailbox, owner):
    """An owner that never fetches its answers does not fill the mailbox with commands either."""
    mailbox.limits.now = FEW_ANSWERS
    flood(owner, mailbox, 30)
    mailbox.sweep(14 * DAY_MS)
    mailbox.catch_up()

    assert mailbox.live(owner.control) == 0


def test_junk_that_claims_to_be_an_answer_goes(clock, mailbox, owner):
    """An owner's own answer is carried out by nobody, and kept by nobody."""
    owner.say(encode(Done(AnswerStatus.DONE)))
    meet(owner, mailbox)
    mailbox.sweep()

    assert (done(mailbox), mailbox.live(owner.control)) == ((0, 0), 0)


# Members who are nobody


@pytest.mark.parametrize("nobody", NOBODIES, ids=[each.hex()[:4] for each in NOBODIES])
def test_key_that_nobody_holds_is_no_member(mailbox, owner, nobody):
    """Whoever names one is told so, and nothing changes."""
    weak = Done(AnswerStatus.WEAK_KEY)

    assert owner.ask(mailbox, host(A, nobody)) == weak
    assert not mailbox.mailbox.hosts(GROUP.group_id)
    assert owner.ask(mailbox, host(A)) == DONE
    assert owner.ask(mailbox, ChangeMembers(GROUP.group_id, (B, nobody))) == weak
    assert owner.ask(mailbox, ChangeMembers(GROUP.group_id, (B,), (nobody,))) == DONE
    assert set(mailbox.device.audience(GROUP.group_id)) == {A, B}


def test_body_that_is_none_is_answered(clock, mailbox, owner):
    """What says nothing costs as much as what does."""
    said = owner.add(owner.control, deps_v1_body((), b"?"))
    meet(owner, mailbox)

    assert owner.answer_to(said) == Done(AnswerStatus.UNREADABLE)
