"""Laws of protocols.bsp.mailbox about time: how long bodies are kept, and when it looks for those that may go."""

import pytest

from tests.protocols.bsp.build_mailbox import (
    DAY_MS,
    DONE,
    FRIENDS,
    TERMS,
    A,
    B,
    C,
    M,
    MailboxParty,
    Owner,
    Party,
    host,
    meet,
)
from waystation.core.instant import after_ms
from waystation.protocols.bsp.mailbox import host as mailboxes
from waystation.protocols.bsp.mailbox.commands import ChangeMembers, Status
from waystation.protocols.bsp.mailbox.host import Mailbox
from waystation.protocols.bsp.profile import SEED
from waystation.protocols.bsp.settings import BspSettings
from waystation.protocols.bsp.wire import RecordReader
from waystation.store.memory import MemoryStore


@pytest.fixture
def owner(clock):
    """Return A, who shares the group with the mailbox."""
    return member(Owner(clock, 2, M))


def member(party):
    """Share the group with the mailbox."""
    party.join(FRIENDS, M)
    return party


@pytest.fixture
def friend(clock):
    """Return B, likewise."""
    return member(Party(clock, 3))


def test_keep_ms_is_the_longest(clock, mailbox, owner):
    """A body goes when its time is over, not a millisecond before, though a member lacks it."""
    owner.ask(mailbox, host(FRIENDS, A, B, keep_ms=100_000))
    owner.add(FRIENDS, b"x")
    meet(owner, mailbox)
    came_at = clock.now
    mailbox.sweep(99_999)
    before = mailbox.live(FRIENDS)
    clock.now = after_ms(came_at, 99_999)
    mailbox.sweep(60_000)

    assert (before, mailbox.live(FRIENDS)) == (1, 0)
    assert mailbox.device.usage(FRIENDS.group_id).tombstones == 1


def test_default_is_fourteen_days(clock, mailbox, owner):
    """An owner who names no time gets 14 days, and a later host command may change that."""
    owner.ask(mailbox, host())
    owner.add(FRIENDS, b"x")
    meet(owner, mailbox)
    mailbox.sweep(14 * DAY_MS - 1)
    before = mailbox.live(FRIENDS)
    mailbox.sweep(60_000)

    assert (before, mailbox.live(FRIENDS)) == (1, 0)


def test_shorter_time_is_acted_on_at_once(clock, mailbox, owner):
    """Hosting again with another time changes what is kept."""
    owner.ask(mailbox, host())
    owner.add(FRIENDS, b"x")
    meet(owner, mailbox)
    clock.advance(5_000)
    answer = owner.ask(mailbox, host(keep_ms=4_000))
    mailbox.mailbox.wake(clock.now)

    assert (answer, mailbox.live(FRIENDS)) == (DONE, 0)


def test_group_without_members_keeps_until_its_time(clock, mailbox, owner, friend):
    """Nobody is not everybody: with the last member gone, bodies wait for the next, and he gets what is left."""
    owner.ask(mailbox, host(FRIENDS, A))
    third = member(Party(clock, 4))
    assert owner.ask(mailbox, ChangeMembers(FRIENDS.group_id, (C,))) == DONE
    owner.add(FRIENDS, b"x")
    meet(owner, mailbox)
    owner.ask(mailbox, ChangeMembers(FRIENDS.group_id, (), (A, C)))
    mailbox.sweep()
    kept = mailbox.live(FRIENDS)
    meet(third, mailbox)
    owner.ask(mailbox, ChangeMembers(FRIENDS.group_id, (B,)))
    meet(friend, mailbox)

    assert (kept, third.bodies(FRIENDS), friend.bodies(FRIENDS)) == (1, [], [b"x"])
    assert mailbox.live(FRIENDS) == 0


def test_removed_member_is_not_waited_for(clock, mailbox, owner):
    """Taking out the one member that lacks a message lets its body go, at the next look."""
    owner.ask(mailbox, host(FRIENDS, A, B))
    owner.add(FRIENDS, b"x")
    meet(owner, mailbox)
    mailbox.mailbox.wake(clock.now)
    rested = mailbox.mailbox.deadline()
    owner.ask(mailbox, ChangeMembers(FRIENDS.group_id, (), (B,)))
    asked = mailbox.mailbox.deadline()
    mailbox.mailbox.wake(clock.now)

    assert (rested, asked) == (after_ms(clock.now, 60_000), clock.now)
    assert mailbox.live(FRIENDS) == 0
    assert not mailbox.device.knows(B)


def test_body_of_unknown_age_is_as_old_as_its_group(clock, mailbox, owner):
    """What was stored without a clock is kept as long as if it had come when the group was hosted."""
    owner.ask(mailbox, host(FRIENDS, A, B, keep_ms=100_000))
    said = owner.add(FRIENDS, b"x")
    meet(owner, mailbox)
    mailbox.device.vertex(FRIENDS.group_id, said).stored_ms = 0
    left = []
    for _ in range(2):
        mailbox.sweep()
        left.append(mailbox.live(FRIENDS))

    assert left == [1, 0]


def test_oldest_body_is_known_after_a_restart(clock, mailbox, owner):
    """However the store orders messages."""
    owner.ask(mailbox, host(FRIENDS, A, B))
    for number in range(10):
        owner.add(FRIENDS, b"%d" % number)
        meet(owner, mailbox)
        clock.advance(1_000)
    again = MailboxParty(clock, 1, [A], mailbox.store)

    assert owner.ask(again, Status()).rows[0].oldest_s == 10


def test_deadline_is_none_before_load(clock, mailbox):
    """The mailbox wants to be woken from its load on, a minute after each round."""
    fresh = Mailbox(mailbox.device, mailbox.keys, [A], BspSettings(), MemoryStore())
    mailbox.mailbox.wake(clock.now)

    assert fresh.deadline() is None
    assert mailbox.mailbox.deadline() == after_ms(clock.now, 60_000)


def test_round_takes_many_small_steps(clock, owner, monkeypatch):
    """So many bodies are looked at in a step; the round goes on a second later, and ends."""
    monkeypatch.setattr(mailboxes, "_STEP_MESSAGES", 10)
    mailbox = MailboxParty(clock, 1, [A])
    owner.ask(mailbox, host(FRIENDS, A, B, keep_ms=1_000))
    for number in range(25):
        owner.device.add(FRIENDS.group_id, number, b"", clock.now)
    meet(owner, mailbox)
    clock.advance(1_000)
    left = []
    for _ in range(4):
        clock.now = max(clock.now, mailbox.mailbox.deadline())
        mailbox.mailbox.wake(clock.now)
        left.append(mailbox.live(FRIENDS))

    assert [number - left[-1] for number in left[:3]] == [15, 5, 0]
    assert mailbox.mailbox.deadline() == after_ms(clock.now, 60_000)


def test_answers_wait_no_longer_than_bodies(clock, mailbox, owner):
    """An owner that never comes back for its answer does not fill the mailbox."""
    owner.say(host())
    meet_and_lose_the_answer(owner, mailbox)
    before = mailbox.live(owner.control)
    mailbox.sweep(14 * DAY_MS)

    assert (before, mailbox.live(owner.control)) == (1, 0)


def meet_and_lose_the_answer(owner, mailbox):
    """Let the mailbox hear the owner, and the owner hear nothing."""
    owner.device.link_up(M, TERMS, owner.clock.now)
    for record in RecordReader(SEED).feed(b"".join(owner.device.send_due(M, owner.clock.now))):
        mailbox.device.receive(A, record, owner.clock.now)
    mailbox.commit()
