"""Laws of strata.replica: what comes from other relays, in which order it counts as read, and what it costs to lie."""

import pytest

from tests.protocols.strata.build import ALICE, BOB, NOW, did, in_force, key, post
from tests.protocols.strata.pair import Link, Node, Script, event, join, reads, replayed, run
from waystation.core.facts import PeerIdentified, PeerLeft
from waystation.protocols.strata.limits import StrataLimits
from waystation.protocols.strata.relay import replication as module

DAY = 86_400
UP = key(1)


def upstream(**fields):
    """Return a relay called UP that lets Node's usual identity read it."""
    return Node(key=UP, **{"replicate_allow": [did(key(0))]} | fields)


def reader(store=None, of=UP, **fields):
    """Return a relay that reads another one."""
    return Node(store, key=key(0), upstreams=reads(of), **fields)


def ids_of(posts):
    """Return ids as EVENTs have them."""
    return [each.body["packet_id"] for each in posts]


def posts_of(count, **fields):
    """Return so many packets of nobody in particular."""
    return [post(f"{number}", **fields) for number in range(count)]


def events_of(posts, received_at=NOW):
    """Return EVENTs with cursors, as a relay would send them."""
    return [event(each, received_at, f"k{number}") for number, each in enumerate(posts)]


def test_row_35_everything_is_replicated_page_by_page():
    """A relay with the capability reads all of history and follows; ids, bytes and order are the upstream's."""
    up, down = upstream(), reader()
    posts = up.fill(620)
    link = join(down, up)
    later = up.fill(5, BOB)
    run(link)

    assert down.ids() == up.ids() == ids_of(posts + later)
    assert [row.canonical for row in down.rows()] == [row.canonical for row in up.rows()]
    assert {row.source for row in down.rows()} == {did(UP)}


def test_row_35_without_the_capability_nothing_comes():
    """An upstream that does not list us refuses; the connection ends, and each new one asks again."""
    up, down = upstream(replicate_allow=[]), reader()
    up.fill(3)
    link = join(down, up)
    assert (down.ids(), link.end()) == ([], ("upstream_failed", 1000))
    assert "replicate_allow" in down.relay.upstreams(down.now)[did(UP)].trouble
    assert [entry.did for entry in up.relay.authorizer.rejected] == [down.relay.relay_id]
    listed = upstream(store=up.store)
    join(down, listed)

    assert down.ids() == up.ids()


def test_a_refused_profile_ends_the_connection():
    """An upstream that does not offer the profile is left, not waited for; it is no violation."""
    up = upstream()
    down = Node(key=key(0), upstreams=reads(UP, profile="HIGH_TRUST_ONLY"))
    up.fill(1)
    link = join(down, up)

    assert (down.ids(), link.end()) == ([], ("upstream_failed", 1000))
    assert down.rest_of(UP) == 0


def test_row_36_hostile_upstream_gets_nothing_stored():
    """Packets whose signature is another's are dropped, the connection ends with 1008, and the score falls."""
    first, second = posts_of(2)
    down = reader()
    join(down, Script(UP)).cut()
    before = down.score_of(UP)[0]
    forged = first.body | {"signature": second.body["signature"]}
    link = join(down, Script(UP, event(forged, NOW, "k")))

    assert (down.ids(), link.end()) == ([], ("integrity_violation", 1008))
    assert down.score_of(UP)[0] < before


@pytest.mark.parametrize(
    "change",
    [
        {"content": {"type": "POST", "text": "never said"}},
        {"signature": "0x" + "11" * 64},
        {"version": "one"},
        {"author_id": did(BOB)},
    ],
    ids=["text", "signature", "malformed", "author"],
)
def test_row_36_hostile_upstream_is_banned_at_the_third_violation(change):
    """Three tampered packets in a day, whatever is wrong with them, and the upstream is left alone for an hour."""
    down = reader()
    states = []
    for number in range(3):
        tampered = post(f"{number}").body | change
        link = join(down, Script(UP, event(tampered, NOW)))
        states.append((link.end()[0], down.score_of(UP)[1]))
        down.wall_s += 10

    assert states == [("integrity_violation", state) for state in ("probation", "probation", "blacklisted")]
    assert down.rest_of(UP) == 3_600 - 10
    assert down.ids() == []


def test_row_36_hostile_upstream_stays_banned_over_a_restart():
    """The ban is on the disk with the packets; when it is over the upstream is on probation again."""
    down = reader()
    for number in range(3):
        join(down, Script(UP, event(post(f"{number}").body | {"version": "one"}, NOW)))
    again = reader(down.store)
    rests = again.rest_of(UP)
    again.pass_time(3_600)

    assert rests == 3_600
    assert (again.rest_of(UP), again.score_of(UP)[1]) == (0, "probation")


def test_row_36_violations_more_than_a_day_apart_do_not_ban():
    """Only three within 24 hours do."""
    down = reader()
    for number in range(3):
        tampered = post(f"{number}").body | {"version": "one"}
        join(down, Script(UP, event(tampered, down.wall_s)))
        down.wall_s += DAY // 2 + 1

    assert (down.score_of(UP)[1], down.rest_of(UP)) == ("probation", 0)


def test_what_came_before_a_tampered_packet_is_kept():
    """Good packets of an upstream are good, whoever sent them."""
    good, bad = posts_of(2)
    down = reader()
    join(down, Script(UP, event(good, NOW, "a"), event(bad.body | {"version": "one"}, NOW, "b")))

    assert down.ids() == ids_of([good])
    assert down.kept_of(UP)["cursor"] == "a"


def test_row_37_the_earlier_witness_wins():
    """Two relays got a packet at two times: both end with the smaller, and its place in history stays."""
    first = Node(key=UP, replicate_allow=[did(key(2))], upstreams=reads(key(2)))
    second = Node(key=key(2), replicate_allow=[did(UP)], upstreams=reads(UP))
    shared = post()
    second.wall_s += 40
    first.publish(first.connect(), shared)
    second.publish(second.connect(), shared)
    run(Link(first, second), Link(second, first))

    assert [row.received_at for row in first.rows()] == [NOW]
    assert [(row.received_at, row.order_at) for row in second.rows()] == [(NOW, NOW + 40)]


def test_row_37_our_own_time_is_kept_apart():
    """A replica is served with the upstream's time, and retention counts from ours."""
    up, down = upstream(), reader()
    up.fill(1)
    down.wall_s += 500
    join(down, up)

    assert [(row.received_at, row.stored_at) for row in down.rows()] == [(NOW, NOW + 500)]


def test_row_38_invalid_cursor_falls_back_to_time_without_a_gap():
    """A cursor damaged on the disk is given up; an old packet that came late to the upstream is read all the same."""
    up, down = upstream(), reader()
    up.fill(5)
    join(down, up).cut()
    kept = down.kept_of(UP)
    late = post("late", timestamp=NOW - 5 * DAY)
    up.replicate(late, NOW - 5 * DAY)
    new = up.fill(2, BOB)
    down.damage(UP, module.msgspec.msgpack.encode(kept | {"cursor": "A" * len(kept["cursor"])}))
    again = reader(down.store)
    lost = join(again, up)
    join(again, up)

    assert lost.end() == ("upstream_failed", 1000)
    assert set(again.ids()) == set(up.ids()) >= set(ids_of([late, *new]))
    assert again.kept_of(UP)["since"] == NOW - 604_800 - 300


def test_row_38_the_fallback_asks_for_what_could_still_be_accepted():
    """It reaches back as far as backfill does from the last time heard of, and to the beginning when there is none."""
    asked = []
    for events in ([event(post(), NOW - 7, "k")], []):
        down, good = reader(), Script(UP, *events)
        join(down, good).cut()
        bad = Script(UP)
        bad.on["SUBSCRIBE"] = lambda message: [
            {"type": "ERROR", "code": "invalid_cursor", "subscription_id": message["subscription_id"], "reason": "?"}
        ]
        join(down, bad)
        join(down, good)
        asked.append(good.asked()[-1])

    assert asked == [
        {"limit": 500, "order": "asc", "since": NOW - 7 - 604_800 - 300},
        {"limit": 500, "order": "asc"},
    ]


def test_row_38_after_a_fallback_cursors_count_again():
    """The filter is kept with its cursor, so the next start reads only what is new."""
    up, down = upstream(), reader()
    up.fill(5)
    join(down, up).cut()
    down.damage(UP, module.msgspec.msgpack.encode(down.kept_of(UP) | {"cursor": "AAAA"}))
    again = reader(down.store)
    join(again, up)
    join(again, up).cut()
    third = reader(again.store)
    new = up.fill(1, BOB)
    link = join(third, up)

    events = [got for got in up.got[link.up_peer] if got["type"] == "EVENT"]
    assert [each["packet"]["packet_id"] for each in events] == ids_of(new)
    assert link.is_open


@pytest.mark.parametrize("value", [b"", b"\xff\xff", b"\x80", b"\xa3abc"])
def test_damaged_record_begins_afresh(value):
    """Bytes that are no record cost reading again, not the node."""
    up, down = upstream(), reader()
    up.fill(3)
    down.damage(UP, value)
    again = reader(down.store)
    join(again, up)

    assert again.ids() == up.ids()


def test_damaged_score_leaves_the_cursor():
    """Quality and cursor are damaged apart."""
    up, down = upstream(), reader()
    up.fill(3)
    join(down, up).cut()
    down.damage(UP, module.msgspec.msgpack.encode(down.kept_of(UP) | {"repute": b"\xc1"}))
    link = join(reader(down.store), up)

    assert [got["type"] for got in up.got[link.up_peer]].count("EVENT") == 0


def test_a_cursor_never_skips_what_had_no_verdict():
    """After a crash behind any commit of ours, going on from the disk gives every packet."""
    up, down = upstream(), reader()
    posts = up.fill(6)
    down.hold_commits = True
    link = join(down, up)
    up.fill(3, BOB)
    run(link)
    commits = []
    while down.commits:
        commits.append(down.commits.pop(0))
        down._commit(commits[-1])
        down.settle()

    assert len(commits) >= 3
    for crashed_after in range(len(commits) + 1):
        again = reader(replayed(commits[:crashed_after]))
        join(again, up)
        assert sorted(again.ids()) == sorted(up.ids()), crashed_after
    assert set(ids_of(posts)) < set(up.ids())


def test_the_cursor_waits_for_the_oldest_verdict():
    """Packets behind one that is on its way to the disk do not move the cursor past it."""
    first, *others = posts_of(3)
    down = reader()
    down.hold_commits = True
    script = Script(UP)
    link = join(down, script)
    script.say(link.up_peer, {"type": "EVENT", "subscription_id": "replica"} | event(first, NOW, "first"))
    run(link)
    refused = event(post(timestamp=NOW - 8 * DAY), NOW, "too old")
    script.say(link.up_peer, {"type": "EVENT", "subscription_id": "replica"} | refused)
    run(link)
    written = [change for commit in down.commits for change in commit.changes if "strata_upstreams" in str(change)]
    assert not [each for each in written if b"too old" in each.value or b"first" in each.value]
    down.commit_held()

    assert down.kept_of(UP)["cursor"] == "too old"
    assert others


def test_relays_that_read_each_other_come_to_rest():
    """In a ring of three, packets go round once; nobody gets one twice, and the talk ends."""
    keys = [key(1), key(2), key(3)]
    ring = [
        Node(key=own, upstreams=reads(keys[number - 1]), replicate_allow=[did(each) for each in keys])
        for number, own in enumerate(keys)
    ]
    links = [Link(node, ring[number - 1]) for number, node in enumerate(ring)]
    for number, node in enumerate(ring):
        node.fill(4, key(10 + number))
    run(*links)

    assert len({tuple(sorted(node.ids())) for node in ring}) == 1
    assert all(len(set(node.ids())) == len(node.ids()) == 12 for node in ring)
    events = [[got for got in link.up.got[link.up_peer] if got["type"] == "EVENT"] for link in links]
    assert [len(each) for each in events] == [12, 12, 12]


def test_a_flood_is_held_and_read_on():
    """With so many packets under way an upstream is not read, and once half have their verdict it is again."""
    posts = posts_of(20)
    down = reader(limits=StrataLimits(upstream_packets=8))
    down.hold_commits = True
    link = join(down, Script(UP, *events_of(posts)))
    assert down.held == {link.peer: True}
    assert len(link.up.out[link.up_peer]) == 20 + 1 - 8
    while len(down.relay._replication._replicas[did(UP)].places) > 5:
        down._commit(down.commits.pop(0))
        down.settle()
    assert down.held == {link.peer: True}
    while down.commits:
        down.commit_held()
        run(link)

    assert down.held == {link.peer: False}
    assert down.ids() == ids_of(posts)


def test_a_flood_of_bytes_is_held():
    """Large packets count by their bytes."""
    down = reader(limits=StrataLimits(upstream_bytes=5_000))
    down.hold_commits = True
    large = [post("x" * 2_000 + f"{number}") for number in range(6)]
    link = join(down, Script(UP, *events_of(large)))

    assert down.held == {link.peer: True}
    assert len(link.up.out[link.up_peer]) == 6 + 1 - 3


def test_an_upstream_that_is_held_hears_of_its_end():
    """A connection that is not read is read again before it is closed, or its end would not be noticed."""
    first, *others = posts_of(9)
    down = reader(limits=StrataLimits(upstream_packets=4))
    down.hold_commits = True
    forged = [each.body | {"signature": first.body["signature"]} for each in others[:1]]
    link = join(down, Script(UP, *events_of(others[1:]), *[event(each, NOW) for each in forged]))
    assert down.held == {link.peer: True}
    down.relay.shut(down.now)
    down.settle()

    assert down.held == {link.peer: False}
    assert link.peer in down.closed


def test_a_time_from_the_future_is_not_resumed_from():
    """What an upstream claims to have received tomorrow is not where we go on when its cursor is lost."""
    down = reader()
    join(down, Script(UP, event(post(), NOW + 10 * DAY, "k"))).cut()

    assert down.kept_of(UP)["received_at"] == NOW
    assert [row.received_at for row in down.rows()] == [NOW]


def test_a_cursor_of_the_end_of_history_is_kept():
    """EOSE moves the place too, so that an empty or all known history is not asked for again."""
    down = reader()
    script = Script(UP)
    join(down, script)

    assert down.kept_of(UP)["cursor"] == "c2"
    again = reader(down.store)
    later = Script(UP)
    join(again, later)
    assert [filters.get("cursor") for filters in later.asked()] == ["c2"]


def test_upstreams_are_told_of_as_peers():
    """The journal hears who it was and that it left."""
    down = reader()
    join(down, Script(UP)).cut()

    told = [fact for fact in down.facts if isinstance(fact, PeerIdentified | PeerLeft)]
    assert [(type(fact), fact.identity) for fact in told] == [
        (PeerIdentified, did(UP).encode()),
        (PeerLeft, did(UP).encode()),
    ]


def test_without_upstreams_nothing_is_due():
    """A relay that reads nobody asks for no wake-up on their account."""
    replication = module.Replication((), ALICE, Node().store, None, lambda *_: None, in_force())

    assert (len(replication), replication.deadlines(), replication.changes()) == (0, [], [])
