"""Laws of protocols.bhumi.relay: holds, timers, congestion, and that nothing is left behind."""

import random

import pytest

from tests.protocols.bhumi.build import ALICE, BOB, CAROL, KEYS, World, commit, i_am, left_over, raw, send
from waystation.protocols.bhumi import wire
from waystation.protocols.bhumi.messages import Ack, Deliver, Keepalive, SendResult, UpdateCommits
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.relay.machine import UPSTREAM_ENDPOINT

# Holds


def test_seventeenth_send_is_held_and_not_lost():
    """16 wait for results, the rest waits unread, and goes on result by result (BHUMI-9)."""
    world = World()
    device = world.device(commits=range(40))
    sender = world.connect().say(*(send(ALICE, number, b"%d" % number) for number in range(20)))
    delivered = device.hear()
    held = sender.held
    device.say(Ack(delivered[0].message_id, b"a0"))
    delivered += device.hear()
    still = sender.held
    for deliver in delivered[1:]:
        device.say(Ack(deliver.message_id, b"a" + deliver.payload))
    device.answer(b"rest")

    assert (held, still, sender.held) == (True, True, False)
    assert len(delivered) == 17
    assert sender.statuses() == [0] * 20


def test_bytes_that_arrive_while_held_wait():
    """A server may hand over what it had read already; it is not lost and not taken early."""
    world = World()
    device = world.device(commits=range(40))
    sender = world.connect().say(*(send(ALICE, number) for number in range(16)))
    for at in range(0, 2 * len(wire.encode(send(ALICE, 16))), 5):
        piece = (wire.encode(send(ALICE, 16)) + wire.encode(send(ALICE, 17)))[at : at + 5]
        world.relay.receive(sender.peer, piece, world.now)
    world.settle()
    before = len(device.heard)
    device.answer()
    device.answer()

    assert before == 16
    assert sender.statuses() == [0] * 18


@pytest.mark.parametrize("how", ["timeout", "gone"])
def test_held_sender_goes_on_after_every_kind_of_outcome(how):
    """Whatever ends a row of 16 lets the 17th in."""
    world = World()
    device = world.device(commits=range(20))
    sender = world.connect().say(*(send(ALICE, number) for number in range(17)))
    if how == "gone":
        device.hang_up()
    else:
        world.pass_ms(30_000)

    assert sender.statuses() == ([4] * 16 + [1] if how == "gone" else [3] * 16)
    assert not sender.held


def test_token_bucket_holds_and_goes_on_at_its_rate():
    """400 SENDs at once, then 200 a second; nothing is refused and nothing lost (BHUMI-A11)."""
    world = World()
    sender = world.connect()
    sender.say(*(send(ALICE, 1) for _ in range(1_000)))
    at_once = len(sender.statuses())
    world.pass_ms(1_000)
    in_a_second = len(sender.statuses())
    world.pass_ms(2_005)

    assert (at_once, in_a_second, len(sender.statuses())) == (400, 200, 400)
    assert not sender.held
    assert sender.closed is None


def test_exempt_identity_has_no_bucket():
    """Once it has proved itself (NODE-ACCESS); another identity and a sender that proves none keep theirs."""
    world = World()
    world.unlimited.add(ALICE.public)
    exempt, other, sender = world.device(ALICE), world.device(BOB), world.connect()
    for line in (exempt, other, sender):
        line.say(*(send(CAROL, 1) for _ in range(1_000)))

    assert len(exempt.statuses()) == 1_000
    assert len(other.statuses()) < 401
    assert len(sender.statuses()) == 400


def test_review_closes_whom_the_operator_refuses_now():
    """Nobody else: others and those without an identity stay."""
    world = World()
    alice, bob, sender = world.device(ALICE), world.device(BOB), world.connect()
    world.banned.add(ALICE.public)
    world.relay.review(world.now)
    world.settle()

    assert [line.closed for line in (alice, bob, sender)] == [Refusal.IDENTITY_BANNED, None, None]


def test_lifted_limits_lift_the_bucket_only():
    """Without rate limits a thousand pass, and the row of 16 stays (BHUMI-C6)."""
    world = World(rate_limits=False)
    device = world.device(commits=range(20))
    sender = world.connect()
    sender.say(*(send(BOB, 1) for _ in range(1_000)))
    other = world.connect().say(*(send(ALICE, number) for number in range(17)))

    assert len(sender.statuses()) == 1_000
    assert other.held
    assert len(device.hear()) == 16


def test_cached_answers_in_flight_hold_reading():
    """One kept answer asked for a hundred times leaves 16 times before somebody says it has left."""
    world = World(prompt=False)
    device, sender = world.device(commits=[1]), world.connect()
    sender.say(send(ALICE, 1))
    device.answer(b"z" * 60_000)
    sender.hear()
    sender.say(*(send(ALICE, 1) for _ in range(100)))
    while_unread = len(sender.hear())
    world.drain(sender)

    assert while_unread == 16
    assert sender.statuses() == [2] * 84
    assert not sender.held


def test_client_that_never_reads_is_not_read_either():
    """Replies to a congested peer are bounded, and go on when it has read."""
    world = World()
    line = world.connect()
    world.congest(line)
    line.say(*(Keepalive() for _ in range(100)))
    while_congested = len(line.hear())
    held = line.held
    world.drain(line)

    assert (while_congested, held) == (16, True)
    assert len(line.hear()) == 84
    assert not line.held


# Timers


@pytest.mark.parametrize("identified", [False, True])
def test_idle_connection_is_closed(identified):
    """60 s without identity, 120 s with one, counted from the last byte."""
    world = World()
    line = world.device() if identified else world.connect()
    idle_ms = 120_000 if identified else 60_000
    world.pass_ms(1_000)
    line.say(Keepalive())
    world.pass_ms(idle_ms - 1)
    before = line.closed
    world.pass_ms(1)

    assert (before, line.closed) == (None, Refusal.IDLE_TIMEOUT)


def test_keepalive_is_echoed_and_keeps_the_connection():
    """A device that says something every 100 s stays for ever."""
    world = World()
    device = world.device()
    for _ in range(5):
        world.pass_ms(100_000)
        device.say(Keepalive())

    assert device.hear() == [Keepalive()] * 5
    assert device.closed is None


@pytest.mark.parametrize("identified", [False, True])
def test_quiet_node_of_the_original_is_never_closed(identified):
    """It sends no KEEPALIVE and waits for years (BHUMI-ORIGINAL); half a frame still ends it."""
    world = World()
    line = world.connect_raw(UPSTREAM_ENDPOINT)
    if identified:
        line.say(i_am(ALICE, line.nonce, [1]))
    world.pass_ms(400 * 86_400_000)
    open_still = line.closed is None
    line.say_bytes(b"\x00")
    world.pass_ms(10_000)

    assert open_still
    assert line.closed is Refusal.FRAME_TIMEOUT


def test_anonymous_that_waits_for_a_result_is_not_idle():
    """60 s count only with nothing outstanding (BHUMI-L)."""
    world = World(ack_timeout_ms=90_000)
    world.device(commits=[1])
    sender = world.connect().say(send(ALICE, 1))
    world.pass_ms(90_000)
    got = sender.hear()
    world.pass_ms(59_999)
    before = sender.closed
    world.pass_ms(1)

    assert got == [SendResult(3)]
    assert (before, sender.closed) == (None, Refusal.IDLE_TIMEOUT)


def test_frame_must_be_whole_within_ten_seconds():
    """One byte a second keeps nobody's place; the timer runs from the frame's first byte."""
    world = World()
    line = world.connect()
    for byte in raw(3, bytes(500))[:10]:
        line.say_bytes(bytes([byte]))
        world.pass_ms(999)
    before = line.closed
    world.pass_ms(10)

    assert (before, line.closed) == (None, Refusal.FRAME_TIMEOUT)


def test_frame_timer_does_not_run_while_we_do_not_read():
    """A SEND half read behind a full row starts its 10 s when the row moves (BHUMI-C6)."""
    world = World()
    device = world.device(commits=range(20))
    frames = b"".join(wire.encode(send(ALICE, number)) for number in range(17))
    sender = world.connect().say_bytes(frames[:-1])
    world.pass_ms(25_000)
    before = sender.closed
    device.answer()
    world.pass_ms(9_999)
    during = sender.closed
    world.pass_ms(1)

    assert (before, during, sender.closed) == (None, None, Refusal.FRAME_TIMEOUT)


def test_write_timeout_aborts_and_progress_renews_it():
    """10 s in which nothing leaves is the end, with no attempt to flush (BHUMI-A15)."""
    world = World()
    line = world.connect()
    world.congest(line)
    for _ in range(3):
        world.pass_ms(9_000)
        world.congest(line)
    world.pass_ms(9_999)
    before = line.closed
    world.pass_ms(1)

    assert (before, line.closed, line.aborted) == (None, Refusal.WRITE_TIMEOUT, True)


def test_drained_peer_has_no_write_timer():
    """Once everything has left, only idleness counts."""
    world = World()
    device = world.device()
    world.congest(device)
    world.pass_ms(5_000)
    world.drain(device)
    world.pass_ms(60_000)

    assert device.closed is None


def test_deadline_is_never_late_and_never_spins():
    """Waking at each deadline ends: a relay without work asks for no more than its timers."""
    world = World()
    device = world.device(commits=[1])
    world.connect().say(send(ALICE, 1)).hang_up()
    device.answer()
    wakes = 0
    while (deadline := world.relay.deadline()) is not None:
        assert deadline > world.now or wakes < 3
        world.now = max(world.now, deadline)
        world.relay.wake(world.now)
        world.settle()
        wakes += 1

    assert wakes < 12
    assert left_over(world.relay) == {}


def test_waking_early_does_nothing():
    """The contract allows early calls (core.machine)."""
    world = World()
    line = world.device(commits=[1])
    world.connect().say(send(ALICE, 1))
    line.hear()
    for _ in range(10):
        world.relay.wake(world.now)

    assert world.relay.take() == []


# Nothing is left


class Crowd:
    """Devices and senders that come, talk and go as a seed says."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.world = World(seed=seed, prompt=self.rng.random() < 0.7)
        self.lines = []
        self.habits = [self.join, self.identify, self.ask, self.ask, self.answer, self.leave, self.idle, self.update]
        self.habits += [self.world.congest, self.world.drain]

    def live(self):
        """Let them live, then let everybody go and let time pass."""
        for _ in range(self.rng.randrange(40, 90)):
            alive = [line for line in self.lines if line.closed is None]
            self.rng.choice(self.habits)(self.rng.choice(alive) if alive else self.join(None))
        for line in self.lines:
            if line.closed is None:
                line.hang_up()
        self.world.pass_ms(301_000)
        return self.world

    def join(self, _line):
        """One more connection."""
        self.lines.append(self.world.connect())
        return self.lines[-1]

    def identify(self, line):
        """Say I_AM, with a carried answer that is empty more often than not."""
        carried = [(self.rng.randrange(12), self.rng.randbytes(self.rng.choice([0, 0, 9])))]
        line.say(i_am(self.rng.choice(KEYS[:3]), line.nonce, self.rng.sample(range(12), 4), carried))

    def ask(self, line):
        """Send a row of messages to anybody."""
        row = self.rng.randrange(1, 20)
        line.say(*(send(self.rng.choice(KEYS[:3]), self.rng.randrange(12)) for _ in range(row)))

    def answer(self, line):
        """Acknowledge what was delivered."""
        for message in line.hear():
            if isinstance(message, Deliver):
                line.say(Ack(message.message_id, b"r"))

    def leave(self, line):
        """End the connection."""
        line.hang_up()

    def idle(self, _line):
        """Let time pass."""
        self.world.pass_ms(self.rng.choice([5, 900, 9_000, 31_000]))

    def update(self, line):
        """Add a commit and show signs of life."""
        line.say(UpdateCommits((commit(self.rng.randrange(12)),)), Keepalive())


@pytest.mark.parametrize("seed", range(25))
def test_nothing_is_left_of_a_random_crowd(seed):
    """When everybody has gone and time has passed, every table is empty: no leak survives any script."""
    world = Crowd(seed).live()
    relay = world.relay

    assert left_over(relay) == {}
    assert relay.deadline() is None
    exchanges = relay._deliveries.exchanges
    for table in (exchanges._by_preimage, exchanges._late_counts, relay._deliveries.cache._carried._shares):
        assert not table


@pytest.mark.parametrize("seed", range(3))
def test_same_seed_same_effects(seed):
    """The relay draws on nothing but its inputs: two runs leave the same trace, fact for fact."""
    assert Crowd(seed).live().trace == Crowd(seed).live().trace
