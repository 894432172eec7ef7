"""Laws of protocols.bhumi.session: one connection's states, holds and timers."""

import itertools

import pytest

from tests.protocols.bhumi.build import ALICE, SECOND, START, World, i_am, limits_of, preimage, raw, send
from waystation.core.effects import Peer
from waystation.core.instant import Instant, after_ms
from waystation.core.limits import TokenBucket
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.messages import Feature, FrameType
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.relay.cache import CacheEntry
from waystation.protocols.bhumi.session import TRANSITIONS, SentNumbers, Session, Slot, State

CLIENT_TYPES = (2, 3, 5, 6, 8, 0x40)
RELAY_TYPES = (1, 4, 7)


def lone(bucket=None):
    """Return a session of its own."""
    session = Session(Peer(1), 7, wire.relay_frame_limits(65_536), limits_of(), START, rate_limits=False)
    session.bucket = bucket
    return session


def body(line, frame_type):
    """Return a valid frame of a client, as if the connection were anonymous."""
    spoken = {
        2: i_am(ALICE, line.nonce),
        3: send(ALICE, 1),
        5: messages.Ack(1, b""),
        6: messages.Keepalive(),
        8: messages.UpdateCommits(()),
        0x40: messages.Options(Feature(1)),
    }
    return wire.encode(spoken[frame_type])


@pytest.mark.parametrize(("state", "frame_type"), list(itertools.product(State, FrameType)))
def test_table_says_what_every_pair_leads_to(state, frame_type):
    """Open states take every client frame, I_AM leads to IDENTIFIED, CLOSED takes nothing, relay frames are nowhere."""
    expected = None
    if state is not State.CLOSED and frame_type in CLIENT_TYPES:
        expected = State.IDENTIFIED if frame_type == FrameType.I_AM else state

    assert TRANSITIONS.get((state, frame_type)) is expected


@pytest.mark.parametrize("identified", [False, True])
@pytest.mark.parametrize("frame_type", CLIENT_TYPES)
def test_relay_takes_what_the_table_allows(identified, frame_type):
    """Each legal pair leaves the connection open, in the state that the table names."""
    world = World()
    line = world.device() if identified else world.connect()
    before = line.session().state
    line.say_bytes(body(line, frame_type))

    assert line.closed is None
    assert line.session().state is TRANSITIONS[before, FrameType(frame_type)]


@pytest.mark.parametrize("identified", [False, True])
@pytest.mark.parametrize("frame_type", [*RELAY_TYPES, 0x00, 0x09, 0x3F])
def test_relay_refuses_what_the_table_does_not_name(identified, frame_type):
    """Each illegal pair ends the connection with a documented reason."""
    world = World()
    line = world.device() if identified else world.connect()
    line.say_bytes(raw(frame_type, b"\x00" * 9))

    assert line.closed in {Refusal.WRONG_DIRECTION, Refusal.UNKNOWN_TYPE}
    assert world.relay.sizes()["connections"] == 0


@pytest.mark.parametrize("frame_type", [*CLIENT_TYPES, *RELAY_TYPES])
def test_nothing_moves_a_closed_connection(frame_type):
    """After its close a connection's bytes are ignored without an effect."""
    world = World()
    line = world.connect()
    data = body(line, frame_type) if frame_type in CLIENT_TYPES else raw(frame_type)
    line.say_bytes(raw(0x09))
    world.relay.receive(line.peer, data, world.now)

    assert world.relay.take() == []


def test_closed_session_lets_go_of_what_is_large():
    """A SEND under way may keep the object, but not its commits and half a frame."""
    one = lone()
    one.commits = {preimage(1)}
    one.frames.feed(raw(2, bytes(500), 900))
    one.close()

    assert one.state is State.CLOSED
    assert not one.commits
    assert one.frames.waiting == 0


def test_full_row_of_sends_holds_reading():
    """16 SENDs without a result stop reading, 15 do not (BHUMI-9)."""
    one = lone()
    one.outstanding.extend(Slot(one) for _ in range(15))
    before = one.must_hold()
    one.outstanding.append(Slot(one))

    assert (before, one.must_hold()) == (False, True)


def test_full_row_of_leases_holds_reading():
    """A cached result is outstanding until it has left, so a cached answer cannot be multiplied without bound."""
    one = lone()
    entry = CacheEntry((b"", preimage(1)), b"x", START, None)
    one.leases.extend((0, entry) for _ in range(15))
    before = one.must_hold()
    one.leases.append((0, entry))

    assert (before, one.must_hold()) == (False, True)


def test_peer_that_does_not_read_is_not_read():
    """16 replies to a peer for whom bytes wait stop reading; a peer that takes everything is never held for it."""
    one = lone()
    one.unread_replies = 99
    free = one.must_hold()
    one.note_congested(START)
    fresh = one.must_hold()
    one.unread_replies = 16

    assert (free, fresh, one.must_hold()) == (False, False, True)


def test_empty_bucket_holds_reading_until_its_next_token():
    """The deadline of a held session is the instant at which it may go on."""
    bucket = TokenBucket(200, 1, START)
    one = lone(bucket)
    bucket.take(START)
    one.held = one.must_hold()

    assert one.held
    assert one.deadline() == START + SECOND // 200


def test_frame_timer_runs_from_the_first_byte_of_a_frame():
    """More bytes of the same frame do not move it; the last byte stops it; the next frame's first byte starts it."""
    one = lone()
    one.frames.feed(b"\x00")
    one.watch_frame(START, progressed=False)
    one.frames.feed(b"\x06")
    one.watch_frame(Instant(START + 5), progressed=False)
    first = one.frame_since
    one.frames.feed(bytes(4) + b"\x00")
    assert one.frames.next_frame() == (6, b"")
    assert one.frames.next_frame() is None
    one.watch_frame(Instant(START + 9), progressed=True)
    second = one.frame_since
    one.frames.feed(b"\x06" + bytes(4))
    assert one.frames.next_frame() == (6, b"")
    one.watch_frame(Instant(START + 12), progressed=True)

    assert (first, second, one.frame_since) == (START, START + 9, None)


def test_frame_timer_stands_still_while_we_do_not_read():
    """A pause of ours is not the peer's slowness (BHUMI-C6)."""
    one = lone()
    one.frames.feed(b"\x00")
    one.held = True
    one.watch_frame(START, progressed=False)

    assert one.frame_since is None


@pytest.mark.parametrize(
    ("state", "idle_ms"), [(State.ANONYMOUS, 60_000), (State.IDENTIFIED, 120_000)], ids=["anonymous", "identified"]
)
def test_idle_time_depends_on_the_state(state, idle_ms):
    """60 s for those without an identity, 120 s for those with one (BHUMI-L)."""
    one = lone()
    one.state = state

    assert one.deadline() == after_ms(START, idle_ms)
    assert one.overdue(Instant(after_ms(START, idle_ms) - 1)) is None
    assert one.overdue(after_ms(START, idle_ms)) is Refusal.IDLE_TIMEOUT


def test_write_timer_is_renewed_by_progress_and_ended_by_drain():
    """10 s without any byte taken is too long, 10 s between bytes is not."""
    one = lone()
    one.note_congested(START)
    one.note_congested(after_ms(START, 9_000))

    assert one.overdue(after_ms(START, 18_999)) is None
    assert one.overdue(after_ms(START, 19_000)) is Refusal.WRITE_TIMEOUT


def test_trace_shows_state_and_rows():
    """A failing test names the connection in words."""
    assert repr(lone()) == "<Session 1 anonymous, 0 out, 0 in>"


def test_sent_numbers_are_remembered_up_to_a_bound():
    """The last ones are known, and never more than twice the bound."""
    numbers = SentNumbers()
    for number in range(100):
        numbers.note(number, 3)
        assert all(recent in numbers for recent in range(max(0, number - 2), number + 1))

    assert sum(number in numbers for number in range(100)) <= 6
