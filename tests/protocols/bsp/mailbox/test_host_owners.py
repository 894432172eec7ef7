"""Laws of protocols.bsp.mailbox about owners who are banned or taken from the configuration."""

import pytest

from tests.protocols.bsp.build_mailbox import (
    CLIENT_ID,
    DAY_MS,
    TERMS,
    Clock,
    MailboxParty,
    Owner,
    Party,
    key_pair,
    meet,
)
from waystation.protocols.bsp.mailbox.commands import Host, Status
from waystation.protocols.bsp.profile import SEED
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.wire import RecordReader

M, A, B = (key_pair(number).public for number in (1, 2, 3))
GROUP = SEED.group(CLIENT_ID, b"friends", "opaque")
HOST = Host(GROUP.group_id, GROUP.client_id, GROUP.descriptor, (A, B))


@pytest.fixture
def clock():
    """Return the time."""
    return Clock()


@pytest.fixture
def banned():
    """Return the set of banned keys."""
    return set()


@pytest.fixture
def mailbox(clock, banned, owner):
    """Return a mailbox that hosts a group of A's with one message for B."""
    mailbox = MailboxParty(clock, 1, [A], allows=lambda key: key not in banned)
    owner.ask(mailbox, HOST)
    owner.add(GROUP, b"x")
    meet(owner, mailbox)
    return mailbox


@pytest.fixture
def owner(clock):
    """Return A."""
    owner = Owner(clock, 2, M)
    owner.join(GROUP, M)
    return owner


@pytest.fixture
def friend(clock):
    """Return B."""
    friend = Party(clock, 3)
    friend.join(GROUP, M)
    return friend


def next_life(mailbox, owners, **options):
    """Return the mailbox's next life."""
    return MailboxParty(mailbox.clock, 1, owners, mailbox.store, **options)


def test_banned_owner_is_suspended_and_served_again(clock, mailbox, owner, friend, banned):
    """While it is banned its members get and leave nothing; afterwards everything is where it was."""
    banned.add(A)
    mailbox.mailbox.review(clock.now)
    friend.add(GROUP, b"y")
    meet(friend, mailbox)
    meanwhile = (friend.bodies(GROUP), mailbox.live(GROUP), mailbox.mailbox.admits(GROUP.group_id, 1))
    banned.clear()
    mailbox.sweep()
    clock.advance(DAY_MS)
    for party in (friend, owner):
        meet(party, mailbox)

    assert meanwhile == ([b"y"], 1, Refusal.IDENTITY_BANNED)
    assert sorted(friend.bodies(GROUP)) == sorted(owner.bodies(GROUP)) == [b"x", b"y"]
    assert mailbox.live(GROUP) == 0


def test_ban_holds_over_a_restart(clock, mailbox, friend, banned):
    """A node that starts with a banned owner hands out nothing of it."""
    banned.add(A)
    again = next_life(mailbox, [A], allows=lambda key: key not in banned)
    meet(friend, again)

    assert friend.bodies(GROUP) == []
    assert again.live(GROUP) == 1


def test_owner_who_comes_back_finds_everything(clock, mailbox, owner, friend):
    """Taken from the list for 13 days: nothing is handed out meanwhile, and nothing is lost."""
    without = next_life(mailbox, [])
    knows = without.device.knows(B)
    meet(friend, without)
    clock.advance(13 * DAY_MS)
    without.sweep()
    back = next_life(without, [A])
    state = owner.ask(back, Status())
    meet(friend, back)

    assert not knows
    assert [row.group_id for row in state.rows] == [GROUP.group_id]
    assert friend.bodies(GROUP) == [b"x"]


def test_owner_who_stays_away_is_forgotten(clock, mailbox, owner):
    """After 14 days no row of it is left, however often the node restarted meanwhile."""
    life = next_life(mailbox, [])
    clock.advance(7 * DAY_MS)
    life = next_life(life, [])
    life.sweep(7 * DAY_MS - 1)
    before = life.mailbox.sizes()["hosted"]
    life.sweep(60_000)

    assert (before, life.mailbox.sizes()["hosted"]) == (1, 0)
    assert not [key for table in ("bsp_messages", "bsp_flags", "bsp_hosted") for key, _ in life.store.scan(table)]
    assert life.device.groups() == []


def test_time_begins_anew_with_every_slip(clock, mailbox):
    """Coming back resets the 14 days."""
    life = next_life(mailbox, [])
    life.sweep(10 * DAY_MS)
    life = next_life(next_life(life, [A]), [])
    life.sweep(10 * DAY_MS)

    assert life.mailbox.sizes()["hosted"] == 1


def test_commands_of_the_gone_wait(clock, mailbox, owner):
    """What an owner said before it was taken from the list and that was not carried out, is when it comes back."""
    said = owner.say(Status())
    data = b"".join(speak_once(owner))
    hear_without_events(mailbox, data)
    without = next_life(mailbox, [])
    commands = without.mailbox.sizes()["commands"]
    back = next_life(without, [A])
    meet(owner, back)

    assert commands == 0
    assert owner.answer_to(said).uses.groups == 1


def speak_once(owner):
    """Return what an owner says to the mailbox over a connection that then breaks."""
    link = owner.device.link_up(M, TERMS, owner.clock.now)
    said = owner.device.send_due(M, owner.clock.now)
    owner.device.link_down(link, owner.clock.now)
    return said


def hear_without_events(mailbox, data):
    """Let the mailbox store what it hears, and end before it does anything about it."""
    for record in RecordReader(SEED).feed(data):
        mailbox.device.receive(A, record, mailbox.clock.now)
    mailbox.store.commit(mailbox.device.changes())
