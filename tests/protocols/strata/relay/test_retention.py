"""Laws of protocols.strata.upkeep."""

from tests.protocols.strata.build import ALICE, ALICE_KEY_2, BOB, NOW, did, key, post, signed, unsigned
from tests.protocols.strata.drive import Drive
from tests.store.build_rot import lose
from waystation.core.dids import encode_key_multibase
from waystation.protocols.strata.relay.directory import StaticKey
from waystation.protocols.strata.relay.retention import CHECKS_PER_STEP_MAX, SCANS_TABLE

DAY = 86_400
RECOVERING = "did:strata:recovering"
TWO_KEYS = {did(ALICE): [StaticKey(ALICE.public), StaticKey(ALICE_KEY_2.public)]}


def key_event(event, fragment, by, pair=None, author=None, **fields):
    """Return a KEY_EVENT about an author's key, signed by ``by``."""
    author = author or did(ALICE)
    timestamp = fields.pop("timestamp", NOW)
    content = {"type": "KEY_EVENT", "event": event, "key_id": f"{author}#{fragment}"} | fields
    if pair is not None:
        content |= {"public_key_multibase": encode_key_multibase(pair.public), "valid_from": NOW - 100}
    return signed(unsigned(content, author_id=author, timestamp=timestamp), by)


def accept(drive, *bodies):
    """Publish bodies, all of which must be accepted."""
    peer = drive.connect(f"publisher {drive._peers}")
    for body in bodies:
        assert drive.publish(peer, body)["type"] == "OK"


def signed_by(pair, *texts, author=ALICE, timestamp=NOW):
    """Return posts of an author, signed by one of its keys."""
    return [signed(unsigned({"type": "POST", "text": text}, author, timestamp=timestamp), pair) for text in texts]


def shown(drive):
    """Return the ids of everything that is served."""
    return {f"0x{row.packet_id.hex()}" for row in drive.rows()}


def rest(drive):
    """Let everything that is due happen, in steps of a second."""
    for _ in range(20):
        drive.pass_time(1)


def test_old_packets_are_dropped_and_key_events_are_not():
    """Retention goes by when we took a packet in; key events stay for ever, and by id the rest is unknown."""
    drive = Drive(retention_days=7)
    add = key_event("ADD", "two", ALICE, ALICE_KEY_2)
    old = post("old")
    accept(drive, add, old.body)
    drive.pass_time(5 * DAY)
    young = signed(unsigned(timestamp=drive.wall_s))
    accept(drive, young)
    drive.pass_time(2 * DAY)
    assert shown(drive) == {add["packet_id"], old.body["packet_id"], young["packet_id"]}
    drive.pass_time(60)

    assert shown(drive) == {add["packet_id"], young["packet_id"]}
    assert drive.get(f"/strata/packets/{old.body['packet_id']}")[0] == 404


def test_expired_packets_are_gone_for_a_day_and_then_unknown():
    """410 while anybody may still ask, 404 when it has been dropped."""
    drive = Drive()
    brief = post(expires_at=NOW + 10)
    accept(drive, brief.body)
    path = f"/strata/packets/{brief.body['packet_id']}"
    drive.pass_time(11)
    gone = drive.get(path)[0]
    drive.pass_time(DAY + 60)

    assert (gone, drive.get(path)[0]) == (410, 404)
    assert drive.store.packets.known(brief.packet_id)


def test_space_is_kept_by_dropping_the_oldest():
    """Over the limit, only as many go as free what is too much."""
    drive = Drive(retention_mib=1)
    posts = [post("x" * 200_000 + f"{number}") for number in range(7)]
    accept(drive, *[each.body for each in posts])
    drive.pass_time(60)

    assert drive.store.packets.bytes_kept() <= 1_048_576
    assert shown(drive) == {each.body["packet_id"] for each in posts[2:]}


def test_many_are_dropped_in_steps():
    """However much is due, a step drops 512 and the next one comes soon."""
    drive = Drive(rate_limits=False, retention_days=7)
    drive.fill(600)
    drive.wall_s += 8 * DAY
    drive.relay.wake(drive.now)
    drive.settle()
    assert len(drive.rows()) == 88
    assert drive.relay.deadline() == drive.now + 50_000
    drive.pass_time(1)

    assert drive.rows() == []


def test_nothing_is_due_on_an_empty_store():
    """A relay at rest asks to be woken once a minute."""
    drive = Drive()
    drive.pass_time(0)

    assert drive.relay.deadline() == 60_000_000


def test_a_back_dated_revoke_hides_what_the_key_signed_since():
    """Packets received later than revoked_at and skew go, by id they are gone; earlier ones and other keys' stay."""
    drive = Drive(static_dids=TWO_KEYS)
    early = signed_by(ALICE_KEY_2, "early")
    accept(drive, *early)
    drive.pass_time(1_000)
    late, other = signed_by(ALICE_KEY_2, "late"), signed_by(ALICE, "other key")
    accept(drive, *late, *other)
    revoke = key_event("REVOKE", "static-2", ALICE, revoked_at=NOW + 100)
    accept(drive, revoke)
    rest(drive)

    assert shown(drive) == {early[0]["packet_id"], other[0]["packet_id"], revoke["packet_id"]}
    assert drive.get(f"/strata/packets/{late[0]['packet_id']}")[0] == 410
    reader = drive.connect()
    drive.subscribe(reader)
    assert {event["packet"]["packet_id"] for event in drive.events(reader)} == shown(drive)


def test_a_revoke_by_the_key_itself_stays_served():
    """The self-signed REVOKE is the news that everybody needs (clarification 8)."""
    drive = Drive(static_dids=TWO_KEYS)
    drive.pass_time(1_000)
    late = signed_by(ALICE_KEY_2, "late")
    revoke = key_event("REVOKE", "static-2", ALICE_KEY_2, revoked_at=NOW + 100)
    accept(drive, *late, revoke)
    rest(drive)

    assert shown(drive) == {revoke["packet_id"]}


def test_a_scan_goes_on_after_a_restart():
    """Where it stood is on the disk; when it is over, nothing of it is left there."""
    drive = Drive(static_dids=TWO_KEYS, rate_limits=False)
    drive.pass_time(1_000)
    many = signed_by(ALICE_KEY_2, *[f"{number}" for number in range(3 * CHECKS_PER_STEP_MAX)])
    accept(drive, *many, key_event("REVOKE", "static-2", ALICE, revoked_at=NOW))
    drive.relay.wake(drive.now)
    drive.settle()
    assert len(drive.rows()) == 2 * CHECKS_PER_STEP_MAX + 1
    assert list(drive.store.scan(SCANS_TABLE))
    again = drive.restarted(static_dids=TWO_KEYS)
    rest(again)

    assert len(again.rows()) == 1
    assert list(again.store.scan(SCANS_TABLE)) == []


def test_a_second_revoke_during_a_scan_starts_it_afresh():
    """Packets of the second key that the first scan has passed already are hidden too, restart or not."""
    pinned = {did(ALICE): [StaticKey(ALICE.public), StaticKey(ALICE_KEY_2.public), StaticKey(BOB.public)]}
    drive = Drive(static_dids=pinned, rate_limits=False)
    drive.pass_time(1_000)
    accept(drive, *signed_by(BOB, "by the third key"))
    accept(drive, *signed_by(ALICE_KEY_2, *[f"{number}" for number in range(3 * CHECKS_PER_STEP_MAX)]))
    accept(drive, key_event("REVOKE", "static-2", ALICE, revoked_at=NOW))
    drive.relay.wake(drive.now)
    drive.settle()
    accept(drive, key_event("REVOKE", "static-3", ALICE, revoked_at=NOW))
    drive.wall_s += 1
    drive.relay.wake(drive.now)
    drive.settle()
    again = drive.restarted(static_dids=pinned)
    rest(again)

    assert {row.content_type for row in again.rows()} == {"KEY_EVENT"}


def undone_chain(drive):
    """Publish a chain whose middle is revoked as of an earlier time; return what must stay and what must go."""
    third = key(3)
    add_two = key_event("ADD", "two", ALICE, ALICE_KEY_2)
    accept(drive, add_two)
    drive.pass_time(1_000)
    add_three = key_event("ADD", "three", ALICE_KEY_2, third)
    accept(drive, add_three)
    own = signed_by(ALICE, *[f"{number}" for number in range(2 * CHECKS_PER_STEP_MAX)])
    late = signed_by(third, "by the key of the thief")
    accept(drive, *own, *late)
    revoke = key_event("REVOKE", "two", ALICE, revoked_at=NOW)
    accept(drive, revoke)
    return {each["packet_id"] for each in (add_two, revoke, *own)}, {add_three["packet_id"], late[0]["packet_id"]}


def test_what_an_undone_key_signed_goes_too():
    """A key added by a key event that is undone never counted (clarification 8)."""
    drive = Drive(rate_limits=False)
    kept, _ = undone_chain(drive)
    rest(drive)

    assert shown(drive) == kept


def test_what_an_undone_key_signed_goes_also_after_a_restart():
    """The restart comes when the undone event is hidden already and its key's packets are not."""
    drive = Drive(rate_limits=False)
    kept, _ = undone_chain(drive)
    drive.relay.wake(drive.now)
    drive.settle()
    again = drive.restarted(rate_limits=False)
    rest(again)

    assert shown(again) == kept


def test_a_recovery_revoke_hides_when_it_comes_into_force():
    """A REVOKE that waits for its delay reaches back once it is applied, not before."""
    pinned = {RECOVERING: [StaticKey(ALICE.public), StaticKey(key(11).public, recovery=True)]}
    drive = Drive(static_dids=pinned)
    drive.pass_time(1_000)
    stolen = signed(unsigned(author_id=RECOVERING), ALICE)
    revoke = key_event("REVOKE", "static-1", key(11), author=RECOVERING, revoked_at=NOW)
    accept(drive, stolen, revoke)
    rest(drive)
    assert shown(drive) == {stolen["packet_id"], revoke["packet_id"]}
    drive.pass_time(DAY)
    rest(drive)

    assert shown(drive) == {revoke["packet_id"]}


def test_scan_whose_position_is_damaged_begins_again():
    """What a revoked key signed is hidden all the same (NODE-ROT)."""
    drive = Drive(static_dids=TWO_KEYS)
    accept(drive, *signed_by(ALICE_KEY_2, "one"))
    lose(drive.store, SCANS_TABLE, did(ALICE).encode())
    again = drive.restarted(static_dids=TWO_KEYS)

    assert list(again.relay._retention._scans) == [did(ALICE)]
