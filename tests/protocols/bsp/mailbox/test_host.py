"""Laws of protocols.bsp.mailbox: what it keeps, for whom and for how long."""

import hashlib

import pytest

from tests.protocols.bsp.build_mailbox import (
    CLIENT_ID,
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
from waystation.protocols.bsp.device.events import Delivered, Dropped, Settled, Stored
from waystation.protocols.bsp.graph.formats import deps_v1_body
from waystation.protocols.bsp.mailbox.commands import (
    AnswerStatus,
    ChangeMembers,
    Done,
    Drop,
    State,
    Status,
)
from waystation.protocols.bsp.mailbox.host import control_group
from waystation.protocols.bsp.profile import BRIAR, SEED
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.wire import RecordReader

GRAPH = SEED.group(CLIENT_ID, b"a graph", "deps_v1")


@pytest.fixture
def owner(clock):
    """Return A, who shares both groups with the mailbox."""
    return member(Owner(clock, 2, M))


def member(party):
    """Share both groups with the mailbox."""
    for group in (FRIENDS, GRAPH):
        party.join(group, M)
    return party


@pytest.fixture
def friend(clock):
    """Return B, likewise."""
    return member(Party(clock, 3))


def restarted(mailbox, owners=(A,), **options):
    """Return the mailbox's next life on the same store."""
    return MailboxParty(mailbox.clock, 1, list(owners), mailbox.store, **options)


@pytest.mark.parametrize("group", [FRIENDS, GRAPH], ids=["opaque", "deps_v1"])
def test_two_who_never_meet_have_everything(clock, mailbox, owner, friend, group):
    """A and B take turns with the mailbox, three windows each: both have all, in causal order, and it keeps nothing."""
    assert owner.ask(mailbox, host(group)) == DONE
    said, last = [], ()
    for turn in range(6):
        party = (owner, friend)[turn % 2]
        meet(party, mailbox)
        for number in range(5):
            content = b"%d %d" % (turn, number)
            body = deps_v1_body(last, content) if group is GRAPH else content
            found = party.add(group, body, clock.now)
            said.append(body)
            last = (found,) if number % 2 else (*last, found)[-2:]
            clock.advance(1)
        meet(party, mailbox)
        clock.advance(DAY_MS)
    for party in (owner, friend, owner):
        meet(party, mailbox)

    assert owner.bodies(group) == friend.bodies(group) == said
    assert mailbox.live(group) == 0
    assert mailbox.device.usage(group.group_id).tombstones == len(said)
    assert not [event for event in mailbox.events if isinstance(event, Dropped)]


def test_nothing_is_said_twice_once_all_hold(clock, mailbox, owner, friend):
    """After a body is gone, the mailbox has nothing to say to anybody, however long it waits."""
    owner.ask(mailbox, host())
    owner.add(FRIENDS, b"x")
    for party in (owner, friend, owner):
        meet(party, mailbox)
    clock.advance(100 * DAY_MS)

    assert mailbox.live(FRIENDS) == 0
    for party in (owner, friend):
        link = mailbox.device.link_up(party.key, TERMS, clock.now)
        assert mailbox.device.send_due(party.key, clock.now) == []
        mailbox.device.link_down(link, clock.now)


def test_body_waits_for_the_last_member(clock, mailbox, owner, friend):
    """As long as one member lacks a message its body stays; the owner is one only if it stands in the list."""
    third = member(Party(clock, 4))
    owner.ask(mailbox, host(FRIENDS, A, B, C))
    owner.add(FRIENDS, b"x")
    left = []
    for party in (owner, friend, third):
        meet(party, mailbox)
        left.append(mailbox.live(FRIENDS))

    assert left == [1, 1, 0]
    assert third.bodies(FRIENDS) == [b"x"]


def test_owner_who_is_no_member_is_not_waited_for(clock, mailbox, owner, friend):
    """Who hosts a group for others neither gets its messages nor keeps them there."""
    third = member(Party(clock, 4))
    owner.ask(mailbox, host(FRIENDS, B, C))
    friend.add(FRIENDS, b"x")
    for party in (friend, owner, third):
        meet(party, mailbox)

    assert (owner.bodies(FRIENDS), third.bodies(FRIENDS), mailbox.live(FRIENDS)) == ([], [b"x"], 0)


def test_hold_learnt_from_an_offer_counts(clock, mailbox, owner, friend):
    """A member who has the message from elsewhere and offers it needs no copy: the next round lets the body go."""
    owner.ask(mailbox, host())
    for party in (owner, friend):
        party.add(FRIENDS, b"x")
        meet(party, mailbox)
    mailbox.sweep()

    assert mailbox.live(FRIENDS) == 0


def test_who_is_in_both_lists_is_not_served(clock, mailbox, owner):
    """Removing wins."""
    owner.ask(mailbox, host(FRIENDS, A))
    owner.ask(mailbox, ChangeMembers(FRIENDS.group_id, (B, C), (B,)))

    assert list(mailbox.device.audience(FRIENDS.group_id)) == [A, C]


def test_mailbox_is_no_member_of_its_own(clock, mailbox, owner):
    """Its own key in a list of members is passed over."""
    owner.ask(mailbox, host(FRIENDS, A, M))
    hosted = list(mailbox.device.audience(FRIENDS.group_id))
    owner.ask(mailbox, ChangeMembers(FRIENDS.group_id, (M,)))

    assert hosted == list(mailbox.device.audience(FRIENDS.group_id)) == [A]


def test_mailbox_never_writes_into_hosted_groups(clock, mailbox, owner, friend):
    """Every message of a hosted group came from a member."""
    owner.ask(mailbox, host())
    owner.add(FRIENDS, b"x")
    for party in (owner, friend):
        meet(party, mailbox)
    owner.ask(mailbox, Status())

    stored = [event for event in mailbox.events if isinstance(event, Stored) and event.group_id == FRIENDS.group_id]
    assert [event.peer for event in stored] == [A]
    assert len(mailbox.device.messages(FRIENDS.group_id)) == 1


def test_commands_are_carried_out_in_their_order(clock, mailbox, owner):
    """Three commands said before the mailbox is met have the effect of the last, and an answer each."""
    said = [owner.say(command) for command in (host(), Drop(FRIENDS.group_id), Drop(FRIENDS.group_id))]
    meet(owner, mailbox)

    assert [owner.answer_to(each) for each in said] == [DONE, DONE, Done(AnswerStatus.NOT_HOSTED)]
    assert not mailbox.mailbox.hosts(FRIENDS.group_id)


def test_command_is_carried_out_once(clock, mailbox, owner):
    """Neither repeats nor restarts do it again: its body is gone with the commit of its answer."""
    said = owner.say(host())
    meet(owner, mailbox)
    owner.ask(mailbox, Drop(FRIENDS.group_id))
    again = restarted(mailbox)
    meet(owner, again)

    assert not again.mailbox.hosts(FRIENDS.group_id)
    assert not again.device.vertex(owner.control.group_id, said).body_present
    assert again.mailbox.sizes()["commands"] == 0


def test_command_that_was_stored_but_not_done_is_done_by_the_next_life(clock, mailbox, owner):
    """A node killed between storing a command and carrying it out does so when it starts."""
    said = owner.say(host())
    link = owner.device.link_up(M, TERMS, clock.now)
    for record in RecordReader(SEED).feed(b"".join(owner.device.send_due(M, clock.now))):
        mailbox.device.receive(A, record, clock.now)
    mailbox.store.commit(mailbox.device.changes())
    owner.device.link_down(link, clock.now)
    again = restarted(mailbox)
    meet(owner, again)

    assert owner.answer_to(said) == DONE
    assert again.mailbox.hosts(FRIENDS.group_id)


def test_everything_is_as_before_after_a_restart(clock, mailbox, owner, friend):
    """Hosted groups, members, times, bodies and what members hold are found again."""
    owner.ask(mailbox, host(FRIENDS, A, B, keep_ms=100_000))
    owner.add(FRIENDS, b"x")
    meet(owner, mailbox)
    before = owner.ask(mailbox, Status())
    again = restarted(mailbox)
    after = owner.ask(again, Status())
    meet(friend, again)

    assert after.rows == before.rows
    assert friend.bodies(FRIENDS) == [b"x"]
    assert again.live(FRIENDS) == 0


def test_nothing_of_answers_stays_once_read(clock, mailbox, owner):
    """The control group has no bodies when the owner has its answers."""
    owner.ask(mailbox, host())
    owner.ask(mailbox, Status())

    assert mailbox.live(owner.control) == 0


def test_status_tells_what_there_is(clock, mailbox, owner):
    """Quota, use and one row per group, in the order of their identifiers."""
    owner.ask(mailbox, host(FRIENDS, A, B, keep_ms=60_000))
    owner.ask(mailbox, host(GRAPH, A, B, C))
    owner.add(FRIENDS, b"12345")
    meet(owner, mailbox)
    clock.advance(7_500)
    state = owner.ask(mailbox, Status())
    rows = {row.group_id: row for row in state.rows}

    assert state.allows == (64, 64 << 20, 50_000, 500_000)
    assert (state.uses.groups, state.more) == (2, False)
    assert list(rows) == sorted([FRIENDS.group_id, GRAPH.group_id])
    assert rows[FRIENDS.group_id] == (FRIENDS.group_id, 2, 60_000, 5, 1, 0, 2, 7)
    assert rows[GRAPH.group_id] == (GRAPH.group_id, 3, 14 * DAY_MS, 0, 0, 0, 1, 0)


def test_dropped_group_is_forgotten_to_the_last_row(clock, mailbox, owner, friend):
    """Drop removes messages, flags, members and the group's row; who is still needed stays known."""
    owner.ask(mailbox, host(FRIENDS, A, B))
    owner.ask(mailbox, host(GRAPH, A, C))
    owner.add(FRIENDS, b"x")
    meet(owner, mailbox)

    assert owner.ask(mailbox, Drop(FRIENDS.group_id)) == DONE
    kept = [
        key
        for table in ("bsp_messages", "bsp_flags", "bsp_hosted")
        for key, _ in mailbox.store.scan(table)
        if FRIENDS.group_id in key
    ]
    assert not kept
    assert (mailbox.device.knows(A), mailbox.device.knows(B), mailbox.device.knows(C)) == (True, False, True)
    meet(friend, mailbox)
    assert friend.bodies(FRIENDS) == []


def test_peers_of_the_configuration_are_not_parted(clock, owner):
    """Who stands there is known whether or not a hosted group needs him."""
    mailbox = MailboxParty(clock, 1, [A], stays=[B])
    mailbox.device.meet(B)
    owner.ask(mailbox, host(FRIENDS, A, B))
    known = mailbox.mailbox.peers()
    owner.ask(mailbox, Drop(FRIENDS.group_id))

    assert known == [A, B]
    assert mailbox.device.knows(B)


def test_briars_profile_has_a_control_group_too():
    """Its client identifier is UTF-8 there, the hash of the label else."""
    assert control_group(BRIAR, A, M).client_id == b"waystation mailbox control 1"
    assert control_group(SEED, A, M).client_id == hashlib.blake2s(b"waystation mailbox control 1").digest()
    assert control_group(SEED, A, M).descriptor == A + M


def test_without_owners_nothing_is_asked_for(clock):
    """A node that hosts for nobody has no groups and no peers of the mailbox's."""
    mailbox = MailboxParty(clock, 1, [])

    assert mailbox.mailbox.peers() == []
    assert mailbox.device.groups() == []
    assert mailbox.mailbox.admits(FRIENDS.group_id, 1) is None


def test_refused_is_counted(clock, mailbox, owner):
    """Commands, and how many of them were refused, are told to metrics."""
    owner.ask(mailbox, host())
    owner.ask(mailbox, Drop(GRAPH.group_id))
    sizes = mailbox.mailbox.sizes()

    assert (sizes["owners"], sizes["hosted"], sizes["commands"], sizes["commands_refused"]) == (1, 1, 2, 1)
    assert isinstance(owner.ask(mailbox, Status()), State)


@pytest.mark.parametrize("later", [0, 10_000])
def test_group_that_is_dropped_and_hosted_in_one_breath(clock, mailbox, owner, friend, later):
    """What was stored before the drop went with it, whatever is told of it then; its author says it again."""
    owner.ask(mailbox, host())
    owner.device.add(FRIENDS.group_id, clock.now + later, b"not acknowledged", clock.now)
    said = [owner.say(command) for command in (Drop(FRIENDS.group_id), host())]
    meet(owner, mailbox)
    hosting = mailbox.mailbox._groups.hostings[FRIENDS.group_id]
    row = mailbox.mailbox._groups._row(hosting, mailbox.mailbox._wall_ms(clock.now))
    for party in (owner, friend, owner):
        meet(party, mailbox)
    mailbox.sweep()

    assert [owner.answer_to(each) for each in said] == [DONE, DONE]
    assert (row.live_messages, row.tombstones, row.oldest_s) == (0, 0, 0)
    assert friend.bodies(FRIENDS) == [b"not acknowledged"]
    assert (mailbox.live(FRIENDS), hosting.live) == (0, {})


def test_word_of_what_is_gone_is_no_trouble(clock, mailbox, owner):
    """A message that went with a drop may still be told of: status works, and the next round forgets it."""
    owner.ask(mailbox, host())
    hosting = mailbox.mailbox._groups.hostings[FRIENDS.group_id]
    for event in (
        Stored(FRIENDS.group_id, b"?" * 32, A),
        Dropped(FRIENDS.group_id, A, Refusal.QUOTA_FULL),
        Settled(A),
        Delivered(FRIENDS.group_id, b"!" * 32, 0, 1),
    ):
        mailbox.mailbox.on_event(event, clock.now)
    told = list(hosting.live)
    state = owner.ask(mailbox, Status())
    mailbox.sweep()

    assert (told, state.rows[0].oldest_s, hosting.live) == ([b"?" * 32], 0, {})
