"""Laws of protocols.bhumi.relay: what a conversation leads to.

Retries: test_relay_retry; order and the model: test_relay_order; holds and timers: test_relay_limits.
"""

import hashlib

import pytest

from tests.protocols.bhumi.build import ALICE, BOB, World, commit, i_am, left_over, preimage, raw, send
from waystation.core.facts import DeliveryFinished, PeerIdentified, PeerLeft
from waystation.protocols.bhumi import messages
from waystation.protocols.bhumi.messages import Ack, Deliver, Feature, Keepalive, Options, SendResult, UpdateCommits
from waystation.protocols.bhumi.refusals import Refusal

ASKS = Feature.DELIVER_WITH_PREIMAGE


def exchange(world, device, sender, number, to=ALICE):
    """Let one SEND be answered and return what the sender heard."""
    sender.say(send(to, number))
    device.answer(b"reply %d" % number)
    return sender.hear()


# Greeting and identity


def test_hello_comes_at_once_with_nonce_version_and_limit():
    """The relay speaks first (spec section 3)."""
    line = World(max_payload_bytes=4_096).connect_raw()
    (hello,) = line.hear()

    assert (hello.protocol_version, hello.max_payload_bytes) == (1, 4_096)


def test_every_connection_gets_its_own_nonce():
    """A signature made for one connection says nothing on another."""
    world = World()

    assert len({world.connect().nonce for _ in range(50)}) == 50


def test_i_am_is_not_answered():
    """A device learns of success by silence alone (BHUMI-M)."""
    world = World()
    device = world.device(commits=[1])

    assert device.hear() == []
    assert world.relay.sizes() | {"alarms": 0} == {
        "connections": 1,
        "identities": 1,
        "commits": 1,
        "exchanges": 0,
        "late_acks": 0,
        "remembered_recipients": 1,
        "unproven_bytes": 0,
        "cached_responses": 0,
        "cached_bytes": 0,
        "watches": 0,
        "alarms": 0,
    }
    assert [fact.identity for fact in world.facts if isinstance(fact, PeerIdentified)] == [ALICE.public]


def test_second_i_am_replaces_the_commits():
    """A refresh of the same identity is a new set, not an addition (6.4)."""
    world = World()
    device = world.device(commits=[1, 2])
    sender = world.connect()
    device.say(i_am(ALICE, device.nonce, [2, 3]))
    sender.say(send(ALICE, 1), send(ALICE, 2), send(ALICE, 3))

    assert len(device.hear()) == 2
    assert sender.statuses() == [2]  # the first; the others wait for their answers
    assert sum(isinstance(fact, PeerIdentified) for fact in world.facts) == 1


def test_other_identity_on_the_same_connection_closes():
    """One connection, one role (BHUMI-8); the first identity is gone with it."""
    world = World()
    device = world.device(commits=[1])
    device.say(i_am(BOB, device.nonce))

    assert device.closed is Refusal.OTHER_IDENTITY
    assert world.relay.sizes()["identities"] == 0


def test_banned_identity_is_closed():
    """An identity that proved itself but is not welcome gets no binding."""
    world = World()
    world.banned.add(ALICE.public)
    line = world.connect()
    line.say(i_am(ALICE, line.nonce, [1]))

    assert line.closed is Refusal.IDENTITY_BANNED
    assert world.relay.sizes()["identities"] == 0


def test_expel_closes_the_identity_and_nobody_else():
    """A ban in force ends the connection, and who waits for it gets 4."""
    world = World()
    device, other, sender = world.device(commits=[1]), world.device(BOB), world.connect()
    sender.say(send(ALICE, 1))
    world.relay.expel(ALICE.public, world.now)
    world.relay.expel(ALICE.public, world.now)
    world.settle()

    assert device.closed is Refusal.IDENTITY_BANNED
    assert other.closed is None
    assert sender.hear() == [SendResult(4)]


# One exchange


def test_request_and_response_in_one_round_trip():
    """SEND becomes DELIVER, ACK becomes SEND_RESULT, both payloads untouched (spec 8.2)."""
    world = World()
    device, sender = world.device(commits=[1]), world.connect()
    sender.say(send(ALICE, 1, b"\x00request\xff"))
    (deliver,) = device.hear()
    device.say(Ack(deliver.message_id, b"\x00response\xff"))

    assert deliver == Deliver(deliver.message_id, b"\x00request\xff")
    assert sender.hear() == [SendResult(0, b"\x00response\xff")]


def test_exchange_is_noted_without_its_sender():
    """One fact names recipient, sizes, latency and outcome; the sender's number is not in it."""
    world = World()
    device, sender = world.device(commits=[1]), world.connect()
    sender.say(send(ALICE, 1, b"four"))
    world.pass_ms(7)
    device.answer(b"seventy")
    finished = world.facts[-1]

    assert finished == DeliveryFinished("bhumi", 1, ALICE.public, finished.outcome, 7_000, 4 + 7, 1)
    assert finished.outcome.value == "ok"


def test_status_1_when_nobody_is_there_and_the_commit_stays():
    """Connected comes before commit (BHUMI-16)."""
    world = World()
    sender = world.connect()
    sender.say(send(ALICE, 1))
    device = world.device(commits=[1])
    sender.say(send(ALICE, 1))

    assert sender.hear() == [SendResult(1)]
    assert len(device.hear()) == 1
    assert world.outcomes() == ["offline"]


@pytest.mark.parametrize("number", [2, 1], ids=["unknown", "of another device"])
def test_status_2_for_a_preimage_without_a_commit(number):
    """Unknown and foreign capabilities look the same (BHUMI-14)."""
    world = World()
    world.device(BOB, commits=[1])
    device, sender = world.device(ALICE), world.connect()
    sender.say(send(ALICE, number))

    assert sender.hear() == [SendResult(2)]
    assert device.hear() == []
    assert world.outcomes() == ["bad_capability"]


def test_status_2_for_a_used_preimage_once_the_cache_is_empty():
    """A capability serves exactly one message (6.5); its cached answer is given once more, then it is gone."""
    world = World()
    device, sender = world.device(commits=[1]), world.connect()
    first = exchange(world, device, sender, 1)
    sender.say(send(ALICE, 1), send(ALICE, 1))
    world.settle()

    assert first == [SendResult(0, b"reply 1")]
    assert sender.hear() == [SendResult(0, b"reply 1"), SendResult(0, b"reply 1")]
    sender.say(send(ALICE, 1))
    assert sender.hear() == [SendResult(2)]
    assert device.hear() == []


def test_status_3_when_the_device_is_silent():
    """30 s from the SEND, to the microsecond; never earlier."""
    world = World()
    world.device(commits=[1])
    sender = world.connect()
    sender.say(send(ALICE, 1))
    world.pass_ms(29_999)
    before = sender.hear()
    world.pass_ms(1)

    assert (before, sender.hear()) == ([], [SendResult(3)])
    assert world.outcomes() == ["timeout"]


def test_status_4_at_once_when_the_device_leaves():
    """The sender does not wait for a timeout (BHUMI-21); the commit stays consumed."""
    world = World()
    device, sender = world.device(commits=[1]), world.connect()
    sender.say(send(ALICE, 1))
    device.hang_up()

    assert sender.hear() == [SendResult(4)]
    assert world.outcomes() == ["gone"]


def test_results_carry_a_payload_only_with_status_0():
    """Every refusal is empty (spec 5.7)."""
    world = World()
    device, sender = world.device(commits=[1, 2]), world.connect()
    sender.say(send(BOB, 1), send(ALICE, 9), send(ALICE, 1))
    world.pass_ms(30_000)
    sender.say(send(ALICE, 2))
    device.hang_up()

    assert sender.hear() == [SendResult(1), SendResult(2), SendResult(3), SendResult(4)]


def test_self_send_works_on_one_connection():
    """The reader never blocks, so a device may ask itself (BHUMI-9)."""
    world = World()
    device = world.device(commits=[1])
    device.say(send(ALICE, 1))
    (deliver,) = device.hear()
    device.say(Ack(deliver.message_id, b"me"))

    assert device.hear() == [SendResult(0, b"me")]


def test_identified_connections_may_send_to_each_other():
    """An identity does not forbid SEND (BHUMI-7)."""
    world = World()
    alice, bob = world.device(ALICE, commits=[1]), world.device(BOB, commits=[2])
    alice.say(send(BOB, 2))
    bob.say(send(ALICE, 1))
    alice_heard, bob_heard = alice.hear(), bob.hear()
    alice.say(Ack(alice_heard[0].message_id, b"a"))
    bob.say(Ack(bob_heard[0].message_id, b"b"))

    assert alice.hear() == [SendResult(0, b"b")]
    assert bob.hear() == [SendResult(0, b"a")]


# Layouts and OPTIONS


def test_options_answer_is_the_accepted_subset_before_anything_else():
    """Features that a relay without a key has not come back unset, the version as ours (BHUMI-C8)."""
    world = World()
    line = world.connect()
    line.say(Options(Feature(0xFFFFFFFF), 9), Keepalive())

    assert line.hear() == [Options(ASKS | Feature.I_AM_OK | Feature.WATCH | Feature.AUTHORITY, 1), Keepalive()]


@pytest.mark.parametrize("layout", ["seed", "preimage"])
@pytest.mark.parametrize("asks", [False, True])
def test_deliver_layout_is_the_listener_s_or_what_was_asked_for(layout, asks):
    """The preimage is shown to whom asked for it, or to all of a listener configured so (BHUMI-2)."""
    world = World(deliver_layout=layout)
    device = world.device(commits=[1], features=ASKS if asks else Feature(0))
    world.connect().say(send(ALICE, 1))
    (deliver,) = device.hear()

    assert deliver.preimage == (preimage(1) if asks or layout == "preimage" else None)


def test_deliver_layout_belongs_to_the_connection_not_to_the_identity():
    """A device that comes back without asking gets the seed's layout again."""
    world = World()
    world.device(commits=[1], features=ASKS)
    again = world.device(commits=[1])
    world.connect().say(send(ALICE, 1))

    assert again.hear()[0].preimage is None


def test_options_may_be_withdrawn():
    """The last OPTIONS counts, from its answer on."""
    world = World()
    device = world.device(commits=[1], features=ASKS)
    device.say(Options(Feature(0)))
    device.with_preimage = False
    world.connect().say(send(ALICE, 1))

    assert [type(message) for message in device.hear()] == [Options, Deliver]


@pytest.mark.parametrize("frame_type", [0x41, 0x42, 0x43, 0x47, 0x4A, 0x5F, 0x80, 0xFFFF])
def test_unknown_extension_is_ignored_and_counted(frame_type):
    """The connection goes on as if nothing had been said (BHUMI-24)."""
    world = World()
    line = world.connect()
    line.say_bytes(raw(frame_type, b"whatever") * 3)
    line.say(Keepalive())

    assert line.hear() == [Keepalive()]
    assert world.refusals() == {"unknown_extension": 3}


# UPDATE_COMMITS


def test_update_adds_to_the_set():
    """What was registered before stays (BHUMI-M)."""
    world = World()
    device, sender = world.device(commits=[1]), world.connect()
    device.say(UpdateCommits((commit(2), commit(2))))
    sender.say(send(ALICE, 1), send(ALICE, 2))

    assert len(device.hear()) == 2
    assert world.relay.sizes()["commits"] == 0


def test_update_is_not_answered():
    """No frame comes back, with or without an identity."""
    world = World()
    for line in (world.device(), world.connect()):
        line.say(UpdateCommits((commit(1),)))
        assert line.hear() == []
        assert line.closed is None


def test_update_without_identity_is_ignored_and_counted():
    """There is nobody to keep the commits for (BHUMI-C4)."""
    world = World()
    line = world.connect()
    line.say(UpdateCommits((commit(1),)))
    line.say(i_am(ALICE, line.nonce))
    world.connect().say(send(ALICE, 1))

    assert world.refusals() == {"commits_without_identity": 1}
    assert line.hear() == []


# Ends


def test_disconnect_leaves_nothing_of_a_device():
    """Binding and commits go with the connection (BHUMI-20)."""
    world = World()
    world.device(commits=range(9)).hang_up()

    assert left_over(world.relay) == {}
    assert isinstance(world.facts[-1], PeerLeft)


def test_end_inside_a_frame_is_counted():
    """A stream that stops halfway was malformed (BHUMI-C4); one that stops between frames was not."""
    world = World()
    world.connect().say_bytes(raw(6)[:5]).hang_up()
    world.connect().say_bytes(raw(6)).hang_up()

    assert world.refusals() == {"end_inside_frame": 1}


def test_whole_frames_that_we_held_are_not_an_end_inside_a_frame():
    """What waited for us was complete."""
    world = World()
    world.device(commits=range(20))
    sender = world.connect().say(*(send(ALICE, number) for number in range(17)))
    held = sender.held
    sender.hang_up()

    assert held
    assert world.refusals() == {}


def test_retired_relay_takes_no_new_work_and_finishes_the_old():
    """1 without consuming (BHUMI-28); what is under way ends, what is cached is given."""
    world = World()
    device, sender = world.device(commits=[1, 2, 3]), world.connect()
    exchange(world, device, sender, 1)
    sender.say(send(ALICE, 2))
    world.relay.retire()
    busy = world.relay.settled()
    other = world.connect().say(send(ALICE, 3), send(ALICE, 1))
    commits = world.relay.sizes()["commits"]
    device.answer(b"last")

    assert other.hear() == [SendResult(1), SendResult(0, b"reply 1")]
    assert sender.hear() == [SendResult(0, b"last")]
    assert (busy, world.relay.settled(), commits) == (False, True, 1)


def test_shut_closes_everybody_without_a_refusal():
    """Every connection ends by the relay's own wish, and nothing is left."""
    world = World()
    lines = [world.device(commits=[1]), world.connect(), world.connect()]
    world.relay.shut(world.now)
    world.settle()

    assert [line.closed for line in lines] == [Refusal.SHUTDOWN] * 3
    assert left_over(world.relay) == {}
    assert world.refusals() == {}


def test_unknown_peers_are_ignored():
    """Inputs for a connection the relay has forgotten do nothing (core.machine)."""
    world = World()
    line = world.connect()
    line.say_bytes(raw(9))
    for call in (world.relay.disconnect, world.relay.congested, world.relay.drained):
        call(line.peer, world.now)

    assert world.relay.take() == []


def test_commit_is_the_sha256_of_the_preimage():
    """H is SHA-256 over the raw 32 bytes (BHUMI-3)."""
    world = World()
    line = world.connect()
    secret = b"\x10" * 32
    signed = i_am(ALICE, line.nonce)
    line.say(messages.IAm(ALICE.public, signed.signature, (hashlib.sha256(secret).digest(),)))
    world.connect().say(messages.Send(ALICE.public, secret, b"x"))

    assert [message.payload for message in line.hear()] == [b"x"]
