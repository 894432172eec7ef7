"""Laws of protocols.bsp.mailbox about owners who want too much, or what is not theirs."""

import pytest

from tests.protocols.bsp.build_mailbox import CLIENT_ID, DAY_MS, Clock, MailboxParty, Owner, Party, key_pair, meet
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.device.events import Dropped
from waystation.protocols.bsp.graph.formats import deps_v1_body
from waystation.protocols.bsp.limits import BspLimits
from waystation.protocols.bsp.mailbox.commands import (
    MEMBERS_MAX,
    ROWS_MAX,
    AnswerStatus,
    ChangeMembers,
    Done,
    Drop,
    Host,
    Status,
    encode,
)
from waystation.protocols.bsp.profile import SEED
from waystation.protocols.bsp.refusals import Refusal

M, A, B, C = (key_pair(number).public for number in (1, 2, 3, 4))
DONE = Done(AnswerStatus.DONE)


def group_at(number, form="opaque"):
    """Return one of many groups."""
    return SEED.group(CLIENT_ID, b"%d" % number, form)


GROUP, OTHER = group_at(0), group_at(1)


def host(group=GROUP, *members, keep_ms=0):
    """Return the command that hosts a group."""
    return Host(group.group_id, group.client_id, group.descriptor, members or (A, B), group.format, keep_ms)


@pytest.fixture
def clock():
    """Return the time."""
    return Clock()


@pytest.fixture
def owner(clock):
    """Return A, who shares two groups with the mailbox."""
    owner = Owner(clock, 2, M)
    for group in (GROUP, OTHER):
        owner.join(group, M)
    return owner


@pytest.fixture
def stranger(clock):
    """Return C, another owner."""
    owner = Owner(clock, 4, M)
    owner.join(GROUP, M)
    return owner


def refusals(mailbox):
    """Return why messages were not taken."""
    return [event.refusal for event in mailbox.events if isinstance(event, Dropped)]


def fill(owner, mailbox, sizes, group=GROUP):
    """Add messages of these sizes, meet the mailbox, and return how many of the owner's it took."""
    before = mailbox.device.usage(group.group_id).live_count
    for number, size in enumerate(sizes):
        owner.device.add(group.group_id, number + owner.clock.now, bytes(size), owner.clock.now)
    meet(owner, mailbox)
    return mailbox.device.usage(group.group_id).live_count - before


@pytest.mark.parametrize(("wanted", "taken"), [(9, 9), (10, 10), (11, 10)])
def test_live_messages_have_a_bound(clock, owner, wanted, taken):
    """One below the bound and at it all are taken, one above is refused without an acknowledgement."""
    mailbox = MailboxParty(clock, 1, [A], owner_messages_max=10)
    owner.ask(mailbox, host())

    assert fill(owner, mailbox, [1] * wanted) == taken
    assert refusals(mailbox) == [Refusal.QUOTA_FULL] * (wanted - taken)
    assert owner.device.owes(M) == wanted - taken


@pytest.mark.parametrize(("bound", "taken"), [(20, 10), (21, 10), (19, 9)])
def test_messages_times_members_have_a_bound(clock, owner, bound, taken):
    """Each message counts once for every member it is kept for (BSP-COPIES)."""
    mailbox = MailboxParty(clock, 1, [A], limits=BspLimits(owner_copies=bound))
    owner.ask(mailbox, host())

    assert fill(owner, mailbox, [1] * 10) == taken
    assert refusals(mailbox) == [Refusal.QUOTA_FULL] * (10 - taken)


@pytest.mark.parametrize(("bound", "status"), [(30, AnswerStatus.DONE), (29, AnswerStatus.MEMBERS_FULL)])
@pytest.mark.parametrize(
    "command", [ChangeMembers(GROUP.group_id, (C,)), host(GROUP, A, B, C)], ids=["members", "host"]
)
def test_members_of_a_full_group_have_a_bound(clock, owner, command, bound, status):
    """A member more would multiply what is there; one member less is always possible."""
    box = MailboxParty(clock, 1, [A], limits=BspLimits(owner_copies=bound))
    owner.ask(box, host())
    fill(owner, box, [1] * 10)

    assert owner.ask(box, command) == Done(status)
    assert owner.ask(box, ChangeMembers(GROUP.group_id, (), (B,))) == DONE


@pytest.mark.parametrize(("last", "taken"), [(1, 33), (1_024, 33), (1_025, 32)])
def test_bytes_have_a_bound(clock, owner, last, taken):
    """The sum of bodies may be the quota and not a byte more."""
    mailbox = MailboxParty(clock, 1, [A], owner_mib_max=1)
    owner.ask(mailbox, host())

    assert fill(owner, mailbox, [32_736] * 32 + [last]) == taken
    assert refusals(mailbox) == [Refusal.QUOTA_FULL] * (33 - taken)


@pytest.mark.parametrize(("messages", "hosted", "room"), [(20, 800_000, 16), (20, 10, 10), (21, 19, 16)])
def test_a_fifth_of_the_device_is_for_its_own_groups(clock, owner, messages, hosted, room):
    """Owners cannot fill a device whose limit was lowered below what hosted groups may have by themselves."""
    mailbox = MailboxParty(clock, 1, [A], limits=BspLimits(messages=messages, hosted_messages=hosted))
    owner.ask(mailbox, host())
    before = mailbox.device.messages_count

    assert fill(owner, mailbox, [1] * messages) == room - before
    assert refusals(mailbox) == [Refusal.QUOTA_FULL] * (messages - room + before)


@pytest.mark.parametrize(("before", "taken"), [(9, 1), (10, 0)])
def test_tombstones_have_a_bound(clock, owner, before, taken):
    """At the bound nothing new is taken, one below it is; those of answers and commands count."""
    mailbox = MailboxParty(clock, 1, [A], owner_tombstones_max=12)
    owner.ask(mailbox, host(GROUP, A))
    fill(owner, mailbox, [1] * before)
    gone = mailbox.device.usage(GROUP.group_id).tombstones + mailbox.device.usage(owner.control.group_id).tombstones
    owner.add(GROUP, b"one more", clock.now + 99)
    meet(owner, mailbox)

    assert gone == before + 2
    assert mailbox.device.usage(GROUP.group_id).tombstones - before == taken


def test_commands_use_up_the_quota_too(clock, owner):
    """Each leaves two tombstones, its own and its answer's."""
    mailbox = MailboxParty(clock, 1, [A], owner_tombstones_max=12)
    owner.ask(mailbox, host())
    for _ in range(4):
        owner.ask(mailbox, Status())
    before = fill(owner, mailbox, [1])
    owner.ask(mailbox, Status())

    assert (before, fill(owner, mailbox, [2])) == (1, 0)


def test_room_that_was_made_can_be_used(clock, owner):
    """What was refused comes by itself once bodies have gone: no loss, only a delay."""
    friend = Party(clock, 3)
    friend.join(GROUP, M)
    mailbox = MailboxParty(clock, 1, [A], owner_messages_max=10)
    owner.ask(mailbox, host())
    fill(owner, mailbox, [1] * 25)
    for _ in range(3):
        meet(friend, mailbox)
        clock.advance(DAY_MS)
        meet(owner, mailbox)
    meet(friend, mailbox)

    assert len(friend.bodies(GROUP)) == 25
    assert mailbox.device.usage(GROUP.group_id).live_count == 0


def test_quota_is_of_the_owner_not_of_the_group(clock, owner):
    """Groups of one owner share its quota."""
    mailbox = MailboxParty(clock, 1, [A], owner_messages_max=10)
    owner.ask(mailbox, host())
    owner.ask(mailbox, host(OTHER))

    assert fill(owner, mailbox, [1] * 6) == 6
    assert fill(owner, mailbox, [1] * 6, OTHER) == 4


def test_owners_do_not_share_a_quota(clock, owner, stranger):
    """One owner at its bound takes nothing from another."""
    mailbox = MailboxParty(clock, 1, [A, C], owner_messages_max=10)
    stranger.join(OTHER, M)
    owner.ask(mailbox, host())
    stranger.ask(mailbox, host(OTHER, C, B))

    assert fill(owner, mailbox, [1] * 11) == 10
    assert fill(stranger, mailbox, [1] * 11, OTHER) == 10


def test_quota_counts_what_an_earlier_life_took(clock, owner):
    """A restart makes no room."""
    mailbox = MailboxParty(clock, 1, [A], owner_messages_max=10)
    owner.ask(mailbox, host())
    fill(owner, mailbox, [1] * 8)
    again = MailboxParty(clock, 1, [A], mailbox.store, owner_messages_max=10)

    assert fill(owner, again, [2] * 8) == 2


def test_owner_at_its_bound_can_still_drop(clock, owner):
    """Commands have a reserve."""
    mailbox = MailboxParty(clock, 1, [A], owner_messages_max=10)
    owner.ask(mailbox, host())
    fill(owner, mailbox, [1] * 11)

    assert owner.ask(mailbox, Drop(GROUP.group_id)) == DONE


def test_reserve_has_a_bound_too(clock, owner):
    """Commands that wait for one that never comes fill quota and reserve, and no more."""
    mailbox = MailboxParty(clock, 1, [A], owner_messages_max=1)
    liar = pretend(owner)
    for number in range(1_003):
        liar.device.add(owner.control.group_id, number, deps_v1_body((b"?" * 32,), b""), clock.now)
    meet(liar, mailbox)

    assert mailbox.live(owner.control) == 1_001
    assert refusals(mailbox) == [Refusal.QUOTA_FULL] * 2


def pretend(owner):
    """Return a device of the owner's that writes into the control group whatever it likes."""
    liar = Party(owner.clock, 2)
    liar.join(SEED.group(owner.control.client_id, owner.control.descriptor, "opaque"), M)
    return liar


@pytest.mark.parametrize(("count", "status"), [(63, DONE), (64, DONE), (65, Done(AnswerStatus.GROUPS_FULL))])
def test_sixty_four_groups(clock, owner, count, status):
    """An owner gets 64 groups, and is told at the 65th; one that is dropped makes room."""
    mailbox = MailboxParty(clock, 1, [A])
    said = [owner.say(host(group_at(number))) for number in range(count)]
    meet(owner, mailbox)
    mailbox.catch_up()
    clock.advance(1_000)
    meet(owner, mailbox)

    assert owner.answer_to(said[-1]) == status
    assert {owner.answer_to(each) for each in said[:-1]} == {DONE}
    assert owner.ask(mailbox, host(group_at(0), A)) == DONE
    assert owner.ask(mailbox, Drop(group_at(3).group_id)) == DONE
    assert owner.ask(mailbox, host(group_at(100))) == DONE


def test_status_is_told_in_pages(clock, owner):
    """An answer has 256 rows; the next begins behind the last."""
    mailbox = MailboxParty(clock, 1, [A], owner_groups_max=300)
    for number in range(ROWS_MAX + 1):
        owner.say(host(group_at(number), A))
    meet(owner, mailbox)
    mailbox.catch_up()
    clock.advance(1_000)
    first = owner.ask(mailbox, Status())
    second = owner.ask(mailbox, Status(first.rows[-1].group_id))

    assert (len(first.rows), first.more, len(second.rows), second.more) == (ROWS_MAX, True, 1, False)
    assert first.rows[-1].group_id < second.rows[0].group_id


@pytest.mark.parametrize(
    ("extra", "status"), [(0, DONE), (1, DONE), (2, Done(AnswerStatus.MEMBERS_FULL))], ids=["below", "at", "above"]
)
def test_members_have_a_bound(clock, owner, extra, status):
    """256 members are served; a command that would make it more changes nothing."""
    mailbox = MailboxParty(clock, 1, [A])
    keys = tuple(KeyPair.from_seed(number.to_bytes(32, "big")).public for number in range(MEMBERS_MAX + 1))
    owner.ask(mailbox, host(GROUP, *keys[: MEMBERS_MAX - 1]))
    answer = owner.ask(mailbox, ChangeMembers(GROUP.group_id, keys[MEMBERS_MAX - 1 :][:extra]))

    assert answer == status
    assert len(mailbox.device.audience(GROUP.group_id)) == MEMBERS_MAX - 1 + (extra if status is DONE else 0)


@pytest.mark.parametrize(
    "wrong",
    [
        host()._replace(group_id=OTHER.group_id),
        host()._replace(client_id=b"x" * 32),
        host()._replace(client_id=b"x" * 31),
        host()._replace(descriptor=b"another"),
    ],
)
def test_group_that_is_not_what_it_says_is_refused(clock, owner, wrong):
    """Client identifier and descriptor must give the group, and be what the profile allows."""
    mailbox = MailboxParty(clock, 1, [A])

    assert owner.ask(mailbox, wrong) == Done(AnswerStatus.WRONG_GROUP_ID)
    assert mailbox.mailbox.sizes()["hosted"] == 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x01",
        b"\x01\x05",
        b"\x02\x04" + bytes(32),
        encode(host())[:-1],
        encode(host()) + b"\x00",
        encode(host())[:76] + b"\xff" + encode(host())[77:],
        b"\x01\x02" + GROUP.group_id + b"\xff\xff",
    ],
)
def test_what_cannot_be_read_is_answered(clock, owner, content):
    """An unknown command, a length that lies: one answer, nothing changed, and the next command works."""
    mailbox = MailboxParty(clock, 1, [A])

    assert owner.ask(mailbox, content) == Done(AnswerStatus.UNREADABLE)
    assert owner.ask(mailbox, host()) == DONE


def test_lies_about_dependencies_are_no_commands(clock, owner):
    """A body that is no deps_v1 cannot be made by an honest device; from another it is invalid, and not answered."""
    mailbox = MailboxParty(clock, 1, [A])
    liar = pretend(owner)
    for body in (b"", b"\x01\xff\xff", b"\x02\x00\x00" + encode(host())):
        liar.add(owner.control, body)
    meet(liar, mailbox)

    assert len(mailbox.device.messages(owner.control.group_id)) == 3
    assert mailbox.live(owner.control) == 0
    assert mailbox.mailbox.sizes()["commands"] == 0


def test_answers_of_an_owner_are_not_answered(clock, owner):
    """An owner that writes answers talks to itself: nothing happens, and nothing of it is kept."""
    mailbox = MailboxParty(clock, 1, [A])
    for content in (encode(DONE), b"\x01\xff", b"\x01\x81"):
        assert owner.ask(mailbox, content) is None or owner.ask(mailbox, Status()) is not None
    mailbox.sweep()

    assert mailbox.live(owner.control) == 0


def test_group_of_another_owner_is_taken(clock, owner, stranger):
    """Who knows a group's identifiers cannot have himself served; who is served hears that he is."""
    mailbox = MailboxParty(clock, 1, [A, C])
    owner.ask(mailbox, host(GROUP, A, B))
    alien = stranger.ask(mailbox, host(GROUP, C))
    owner.ask(mailbox, ChangeMembers(GROUP.group_id, (C,)))

    assert alien == Done(AnswerStatus.TAKEN)
    assert stranger.ask(mailbox, host(GROUP, C)) == Done(AnswerStatus.SERVED)
    assert list(mailbox.device.audience(GROUP.group_id)) == [A, B, C]


def test_group_of_another_owner_is_not_even_there(clock, owner, stranger):
    """Changing or dropping what is another's gets the answer that nothing gets."""
    mailbox = MailboxParty(clock, 1, [A, C])
    owner.ask(mailbox, host(GROUP, A, B))
    commands = (ChangeMembers(GROUP.group_id, (C,)), Drop(GROUP.group_id), Drop(OTHER.group_id))

    assert {stranger.ask(mailbox, command) for command in commands} == {Done(AnswerStatus.NOT_HOSTED)}
    assert stranger.ask(mailbox, Status()).rows == ()
    assert list(mailbox.device.audience(GROUP.group_id)) == [A, B]


def test_control_groups_are_nobodys_to_host(clock, owner, stranger):
    """Neither one's own nor another's: the first is served, the second taken; neither can be changed or dropped."""
    mailbox = MailboxParty(clock, 1, [A, C])
    meet(owner, mailbox)
    own, others = owner.control, stranger.control
    answers = [owner.ask(mailbox, host(group, A)) for group in (own, others)]
    dropped = [owner.ask(mailbox, Drop(group.group_id)) for group in (own, others)]

    assert answers == [Done(AnswerStatus.SERVED), Done(AnswerStatus.TAKEN)]
    assert dropped == [Done(AnswerStatus.NOT_HOSTED)] * 2


def test_group_of_the_configuration_is_taken(clock, owner):
    """What the operator has for himself is not hosted."""
    mailbox = MailboxParty(clock, 1, [A], groups=[GROUP])

    assert owner.ask(mailbox, host()) == Done(AnswerStatus.TAKEN)
    assert mailbox.mailbox.admits(GROUP.group_id, 1) is None


def test_group_that_the_operator_took_over_is_his(clock, owner):
    """A hosted group that is configured later is no longer the mailbox's; its row can still be dropped."""
    mailbox = MailboxParty(clock, 1, [A])
    owner.ask(mailbox, host(GROUP, A, B))
    again = MailboxParty(clock, 1, [A], mailbox.store, groups=[GROUP])
    served = list(again.device.audience(GROUP.group_id))
    hosted = owner.ask(again, host())
    changed = owner.ask(again, ChangeMembers(GROUP.group_id, (C,)))
    dropped = owner.ask(again, Drop(GROUP.group_id))

    assert (served, hosted, changed, dropped) == ([], Done(AnswerStatus.TAKEN), DONE, DONE)
    assert GROUP in again.device.groups()
    assert owner.ask(again, Status()).uses.groups == 0


def test_other_format_needs_a_drop(clock, owner):
    """Messages were read in one format; they are not read again in another."""
    mailbox = MailboxParty(clock, 1, [A])
    owner.ask(mailbox, host())

    assert owner.ask(mailbox, host()._replace(format="deps_v1")) == Done(AnswerStatus.OTHER_FORMAT)


def test_who_is_no_owner_has_no_mailbox(clock, stranger):
    """A key that the operator did not name is unknown, and its control group too."""
    mailbox = MailboxParty(clock, 1, [A])
    mailbox.device.meet(C)

    assert stranger.ask(mailbox, host(GROUP, C)) is None
    assert mailbox.mailbox.sizes()["commands"] == 0


def test_changes_of_one_owner_do_not_put_off_others(clock, owner, stranger):
    """However often somebody changes members, every body is looked at once a minute."""
    mailbox = MailboxParty(clock, 1, [A, C])
    stranger.ask(mailbox, host(OTHER, C, B))
    owner.ask(mailbox, host(GROUP, A, B, keep_ms=50_000))
    fill(owner, mailbox, [1])
    left = []
    for _ in range(6):
        clock.advance(20_000)
        stranger.ask(mailbox, ChangeMembers(OTHER.group_id, (B,)))
        mailbox.mailbox.wake(clock.now)
        left.append(mailbox.live(GROUP))

    assert left[:2] == [1, 1]
    assert left[-1] == 0
