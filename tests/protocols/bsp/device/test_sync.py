"""Laws of protocols.bsp.device: groups, peers, how far they are shared, and what a device owes its owner."""

import pytest

from tests.protocols.bsp.build import GROUP, ids
from tests.protocols.bsp.build_device import (
    KEPT,
    LIVE,
    START,
    Bench,
    Flags,
    P,
    Q,
    R,
    audit,
    carry,
    damage,
    kept_rows,
    only,
    told,
)
from waystation.core.errors import HostError, LocalError
from waystation.core.records import Record
from waystation.protocols.bsp.device.links import Mode, Visibility
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.device.uncommitted import MESSAGE_BYTES
from waystation.protocols.bsp.graph.formats import deps_v1_body
from waystation.protocols.bsp.messages import Ack, Offer, Request
from waystation.protocols.bsp.profile import BRIAR, SEED
from waystation.store.memory import MemoryStore

# Groups


def test_group_needs_a_known_format():
    """A group whose messages nothing reads is refused by name; joining twice is no matter."""
    bench = Bench()
    strange = SEED.group(bytes(32), b"", "chess")

    with pytest.raises(LocalError, match="no format 'chess' here; known: deps_v1, judging, opaque"):
        bench.device.join(strange, bench.now)

    bench.device.join(bench.groups[0], bench.now)
    assert bench.device.groups() == bench.groups


def test_group_that_is_left_is_forgotten_in_memory_and_on_disk():
    """Messages, flags, rows, acknowledgements and events of it are gone; the other group stays."""
    bench = Bench()
    bench.hear(bench.message(b"theirs"), Offer(ids(1)))
    bench.added(b"mine")
    stays = bench.added(b"other", group_id=bench.other_id)
    bench.up()

    bench.device.leave(bench.group_id)
    audit(bench.device)
    bench.device.leave(bench.group_id)
    bench.commit()

    assert [key[:32] for key in kept_rows(bench.store, "bsp_messages")] == [bench.other_id]
    assert kept_rows(bench.store, "bsp_flags") == {}
    assert told(bench.say()) == [("Request", ids(1)), ("Offer", (stays,))]
    with pytest.raises(LocalError, match="no member of the group"):
        bench.vertex(stays)
    audit(bench.device)


@pytest.mark.parametrize("moment", ["gathered", "under way"])
def test_group_that_is_left_before_the_disk_knows_it_leaves_nothing(moment):
    """Messages whose commit was not done when their group was left are removed again behind it."""
    bench = Bench()
    bench.hear(bench.message())
    bench.up(Q)
    if moment == "under way":
        bench.begin()

    bench.device.leave(bench.group_id)
    audit(bench.device)
    if moment == "under way":
        bench.finish()
    bench.commit()

    assert kept_rows(bench.store, "bsp_messages") == kept_rows(bench.store, "bsp_flags") == {}
    assert bench.say(Q) == []
    audit(bench.device)


@pytest.mark.parametrize("moment", ["saved", "gathered", "under way", "left under way"])
def test_group_that_is_joined_again_starts_empty(moment):
    """What the store has until the next commit is not read back; what comes anew is kept."""
    bench = Bench()
    old, new = bench.message(b"old"), bench.message(b"new")
    bench.hear(old, new)
    if moment != "gathered":
        bench.begin()
        if moment != "under way":
            bench.finish()
    bench.device.leave(bench.group_id)
    if moment == "left under way":
        bench.begin()

    bench.device.join(bench.groups[0], bench.now)
    bench.device.share(bench.group_id, P, bench.now)
    audit(bench.device)
    bench.hear(new)
    if bench.pending is not None:
        bench.finish()
    bench.commit()

    assert [vertex.message_id for vertex in bench.device.messages(bench.group_id)] == [bench.id_of(new)]
    assert bench.flags(bench.id_of(new)) == Flags(hold=True, ack=True)
    audit(bench.device)
    bench.restart()
    assert [vertex.message_id for vertex in bench.device.messages(bench.group_id)] == [bench.id_of(new)]
    assert bench.flags(bench.id_of(new)) == Flags(hold=True, ack=True)


def test_damaged_messages_are_told_and_leave_nothing_half_open():
    """A group with a row that is not ours is not joined (exit code 5); the others are."""
    bench = Bench()
    bench.added()
    damage(bench.store, "bsp_messages", lambda value: b"?" + value[1:])
    device = BspDevice(SEED, bench.store)

    with pytest.raises(HostError, match="damaged"):
        device.join(bench.groups[0], bench.now)

    device.join(bench.groups[1], bench.now)
    assert device.groups() == bench.groups[1:]
    audit(device)


def test_damaged_flags_are_told_and_leave_nothing_half_open():
    """A group with a row of flags that is not ours is not shared (exit code 5)."""
    bench = Bench(peers=(P,))
    bench.hear(bench.message())
    bench.commit()
    damage(bench.store, "bsp_flags", lambda value: value[:2])

    bench.start(shares=False)
    with pytest.raises(HostError, match="damaged"):
        bench.device.share(bench.group_id, P, bench.now)

    assert bench.device.audience(bench.group_id) == {}
    audit(bench.device)


# Peers


def test_peer_that_is_met_again_changes_nothing():
    """The table of peers keeps its order and state."""
    bench = Bench()
    message_id = bench.added()
    bench.hear(Ack((message_id,)))

    bench.device.meet(P)

    assert bench.device.peers() == [P, Q]
    assert bench.device.knows(P) and not bench.device.knows(R)
    assert bench.flags(message_id).hold


def test_peer_that_is_parted_with_is_forgotten():
    """Its ways, flags and alarms go; it is heard and spoken to no more; twice is no matter."""
    bench = Bench()
    message_id = bench.added()
    link = bench.up()
    bench.say()
    bench.hear(bench.message(b"theirs"))
    bench.commit()

    bench.device.part(P)
    bench.device.part(P)
    audit(bench.device)
    bench.commit()
    bench.device.link_down(link, bench.now)
    bench.pass_ms(5_000)

    assert (bench.device.peers(), bench.device.link_of(P), bench.device.take_dirty()) == ([Q], None, [Q])
    assert bench.say() == [] and not bench.device.is_due(P, bench.now)
    assert list(bench.device.audience(bench.group_id)) == [Q]
    assert all(key[32:64] != P for key in kept_rows(bench.store, "bsp_flags"))
    bench.device.meet(P)
    bench.device.share(bench.group_id, P, bench.now)
    assert bench.flags(message_id) == Flags()
    audit(bench.device)


@pytest.mark.parametrize("end", ["unshare", "part", "leave"])
@pytest.mark.parametrize("moment", ["gathered", "under way", "saved", "drafted"])
def test_sharing_that_ends_owes_nothing_more(end, moment):
    """Rows, acknowledgements, drafts and commits that are under way bring nothing back."""
    bench = Bench(mode=Mode.BATCH)
    bench.up()
    bench.hear(bench.message(b"theirs"))
    bench.add(b"mine")
    draft = None
    if moment != "gathered":
        bench.begin()
    if moment in {"saved", "drafted"}:
        bench.finish()
    if moment == "drafted":
        draft = bench.device.draft(P, KEPT, bench.now)
        assert len(draft.records) == 2

    if end == "unshare":
        bench.device.share(bench.group_id, P, bench.now, Visibility.INVISIBLE)
    elif end == "part":
        bench.device.part(P)
    else:
        bench.device.leave(bench.group_id)
    if draft is not None:
        bench.device.sent(draft, bench.now)
    if bench.pending is not None:
        bench.finish()
    audit(bench.device)
    bench.commit()
    bench.pass_ms(10_000)
    bench.commit()

    assert bench.say() == []
    assert all(key[32:64] != P for key in kept_rows(bench.store, "bsp_flags"))
    audit(bench.device)


def test_sent_draft_of_an_ended_sharing_does_not_touch_the_next():
    """An acknowledgement that an old draft carried is not taken for one of the new sharing."""
    bench = Bench(mode=Mode.BATCH)
    message = bench.message(b"theirs")
    bench.up()
    bench.hear(message)
    bench.commit()
    draft = bench.device.draft(P, LIVE, bench.now)

    bench.device.share(bench.group_id, P, bench.now, Visibility.INVISIBLE)
    bench.device.share(bench.group_id, P, bench.now)
    bench.hear(message)
    bench.device.sent(draft, bench.now)
    bench.commit()

    assert told(bench.say()) == only("Ack", bench.id_of(message))
    audit(bench.device)


# Sharing


def test_sharing_needs_a_group_and_a_peer():
    """Who is not in the table, and what we are no member of, cannot be shared."""
    bench = Bench()

    with pytest.raises(LocalError, match="not in the table of peers"):
        bench.device.share(bench.group_id, R, bench.now)
    with pytest.raises(LocalError, match="no member of the group"):
        bench.device.share(bytes(32), P, bench.now)
    with pytest.raises(LocalError, match="not in the table of peers"):
        bench.device.link_up(R, LIVE, bench.now)
    with pytest.raises(LocalError, match="not in the table of peers"):
        bench.device.draft(R, LIVE, bench.now)


def test_group_newly_shared_hands_over_what_there_is():
    """Group newly shared with p: rows {0,0,0,0,0} for every shared message; sharing it again changes nothing."""
    bench = Bench(shares_delivered=False)
    shared = [bench.added(bytes([n]), n, group_id=bench.other_id, share=n > 0) for n in range(3)]
    bench.up(Q)
    bench.device.take_dirty()

    bench.device.share(bench.other_id, Q, bench.now)
    bench.device.share(bench.other_id, Q, bench.now)

    assert bench.device.take_dirty() == [Q]
    assert told(bench.say(Q)) == only("Offer", *shared[1:])
    audit(bench.device)


@pytest.mark.parametrize("moment", ["gathered", "under way"])
def test_group_shared_while_its_messages_are_not_on_disk_is_handed_over_behind_them(moment):
    """Nothing is said before the commit, and nothing is lost: the peer is stirred by it."""
    bench = Bench(peers=(P, Q, R))
    message_id = bench.add(group_id=bench.other_id)
    bench.up(R)
    if moment == "under way":
        bench.begin()

    bench.device.share(bench.other_id, R, bench.now)
    bench.device.take_dirty()
    assert bench.say(R) == []
    audit(bench.device)
    if moment == "gathered":
        bench.begin()
    bench.finish()

    assert R in bench.device.take_dirty()
    assert told(bench.say(R)) == only("Offer", message_id)
    audit(bench.device)


def test_sharing_that_ends_and_begins_again_before_a_commit_forgets_what_was_known():
    """Flags that the disk still has are not read back."""
    bench = Bench()
    message_id = bench.added()
    bench.hear(Ack((message_id,)))
    bench.commit()

    bench.device.share(bench.group_id, P, bench.now, Visibility.INVISIBLE)
    bench.device.share(bench.group_id, P, bench.now)
    bench.begin()
    bench.device.share(bench.group_id, P, bench.now, Visibility.INVISIBLE)
    bench.device.share(bench.group_id, P, bench.now)
    bench.finish()
    bench.commit()

    assert not bench.device.holds(P, bench.group_id, message_id)
    bench.restart()
    assert not bench.device.holds(P, bench.group_id, message_id)
    audit(bench.device)


def test_group_that_becomes_visible_takes_and_does_not_send():
    """VISIBLE: messages are stored and acknowledged, none is offered; what is known of the peer stays."""
    bench = Bench()
    held, lacked = bench.added(b"held"), bench.added(b"lacked")
    bench.hear(Ack((held,)))
    bench.up()

    bench.device.share(bench.group_id, P, bench.now, Visibility.VISIBLE)
    theirs = bench.message(b"theirs")
    bench.hear(theirs, Offer((lacked,)), Request((held,)))
    bench.commit()

    assert told(bench.say()) == only("Ack", lacked, bench.id_of(theirs))
    assert bench.device.owes(P) == 0
    audit(bench.device)


def test_group_that_is_shared_after_visible_hands_over_what_is_not_held():
    """SHARED again: what the peer does not hold goes out at once."""
    bench = Bench(profile=BRIAR)
    held, lacked = bench.added(b"held"), bench.added(b"lacked")
    bench.up()
    bench.say()
    bench.hear(Ack((held,)))
    bench.device.share(bench.group_id, P, bench.now, Visibility.VISIBLE)
    assert bench.say() == []
    assert bench.device.audience(bench.group_id) == {P: Visibility.VISIBLE, Q: Visibility.SHARED}

    bench.device.share(bench.group_id, P, bench.now)

    assert told(bench.say()) == only("Offer", lacked)
    audit(bench.device)


def test_copies_in_files_are_forgotten_when_sending_stops():
    """VISIBLE, a restart, and SHARED: the old file holds nothing back."""
    bench = Bench(mode=Mode.BATCH)
    message_id = bench.added()
    bench.up(terms=KEPT)
    bench.say()
    bench.commit()

    bench.device.share(bench.group_id, P, bench.now, Visibility.VISIBLE)
    bench.pass_ms(2_000)
    bench.commit()
    bench.restart()

    assert bench.flags(message_id) == Flags()


def test_invisible_to_begin_with_is_nothing():
    """A group that was never shared can be hidden without effect."""
    bench = Bench()

    bench.device.share(bench.other_id, Q, bench.now, Visibility.INVISIBLE)

    assert list(bench.device.audience(bench.other_id)) == [P]
    assert not bench.device.must_commit


# Two devices


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("profile", [SEED, BRIAR])
def test_two_devices_agree_and_fall_silent(mode, profile):
    """What either has the other gets, each delivered once; then nothing is said for ever."""
    left, right = (Bench(mode=mode, profile=profile, peers=(P,)) for _ in range(2))
    for number in range(30):
        (left if number % 2 else right).added(bytes([number]) * number or b"-", number)
    left.up(), right.up()

    for _ in range(6):
        carry(left, right, P, P)
        carry(right, left, P, P)
        audit(left.device), audit(right.device)

    orders = [{vertex.message_id for vertex in one.device.messages(one.group_id)} for one in (left, right)]
    assert orders[0] == orders[1] and len(orders[0]) == 30
    for one in (left, right):
        assert one.device.owes(P) == 0
        one.pass_ms(600_000)
        assert one.say() == []
        one.commit()
        assert one.device.deadline() is None
        assert one.device._repository.peers[P].rows == {}


def test_sizes_tell_what_is_bounded():
    """One number for each bounded thing."""
    bench = Bench(format="deps_v1")
    bench.hear(bench.message(deps_v1_body(ids(1), b"12345")), Offer(ids(3)))
    bench.add(deps_v1_body((), b""))
    bench.up()

    sizes = bench.device.sizes()

    assert sizes == {
        "groups": 2,
        "messages": 2,
        "pending": 1,
        "peers": 2,
        "links": 1,
        "offered": 3,
        "unheld": 2,
        "unsaved_bytes": 3 + 32 + 5 + 3 + 2 * MESSAGE_BYTES,
    }


def test_records_of_the_owner_ride_with_the_next_commit():
    """``keep`` makes a commit necessary and puts the row behind the messages."""
    bench = Bench()
    row = Record("bsp_orders", b"k", b"v")

    bench.device.keep(row)
    assert bench.device.must_commit
    bench.add()

    assert bench.device.changes()[-1] is row


def test_early_wake_changes_nothing():
    """Neither a stir nor a commit."""
    bench = Bench()
    bench.added()
    bench.up()
    bench.say()
    bench.device.take_dirty()

    bench.pass_ms(999)

    assert bench.device.take_dirty() == [] and not bench.device.must_commit
    bench.pass_ms(1)
    assert bench.device.take_dirty() == [P]


def test_link_terms_are_known_while_the_way_is_up():
    """By its number."""
    bench = Bench()
    link = bench.up(terms=KEPT)
    known = bench.device.link_terms(link)

    bench.device.link_down(link, bench.now)

    assert (known, bench.device.link_terms(link)) == (KEPT, None)


def test_store_of_another_device_of_the_same_group_is_read_by_its_group():
    """A group is read whichever groups else the store has."""
    store = MemoryStore()
    device = BspDevice(SEED, store)
    device.join(GROUP, START)
    message_id = device.add(GROUP.group_id, 1, b"x", START)
    store.commit(device.changes())

    again = BspDevice(SEED, store)
    again.join(SEED.group(bytes(32), b"", "opaque"), START)
    again.join(GROUP, START)

    assert [vertex.message_id for vertex in again.messages(GROUP.group_id)] == [message_id]
