"""Laws of protocols.bhumi.relay: retries, the cache, late answers, and joining."""

import pytest

from tests.protocols.bhumi.build import ALICE, BOB, World, send
from waystation.protocols.bhumi import wire
from waystation.protocols.bhumi.messages import Ack, Feature, Keepalive, SendResult

ASKS = Feature.DELIVER_WITH_PREIMAGE


def exchange(world, device, sender, number, to=ALICE):
    """Let one SEND be answered and return what the sender heard."""
    sender.say(send(to, number))
    device.answer(b"reply %d" % number)
    return sender.hear()


# Retry, cache and late answers


def test_retry_after_a_lost_connection_is_answered_from_the_cache():
    """The device is not bothered twice (spec 8.3)."""
    world = World()
    device, sender = world.device(commits=[1]), world.connect()
    sender.say(send(ALICE, 1))
    sender.hang_up()
    device.answer(b"kept")
    retry = world.connect().say(send(ALICE, 1))

    assert retry.hear() == [SendResult(0, b"kept")]
    assert device.hear() == []
    assert world.outcomes() == ["ok", "cached"]


def test_cached_answer_survives_the_device_and_comes_before_the_check_whether_it_is_there():
    """The cache is asked first (spec 5.3 step 1)."""
    world = World()
    device, sender = world.device(commits=[1]), world.connect()
    exchange(world, device, sender, 1)
    device.hang_up()
    sender.say(send(ALICE, 1))

    assert sender.hear() == [SendResult(0, b"reply 1")]


def test_cached_answer_lives_as_long_as_configured():
    """300 s after the ACK it is gone, and the preimage is used up."""
    world = World()
    device, sender = world.device(commits=[1]), world.connect()
    exchange(world, device, sender, 1)
    for _ in range(3):
        device.say(Keepalive())
        world.pass_ms(99_999)
    late = world.connect()
    device.say(Keepalive())
    world.pass_ms(3)
    late.say(send(ALICE, 1))

    assert late.hear() == [SendResult(2)]
    world.pass_ms(1_000)
    assert world.relay.sizes()["cached_bytes"] == 0


def test_evicted_only_once_the_bytes_have_left():
    """A result that waits in our buffers may be asked for again (BHUMI-18); a delivered one may not."""
    world = World(prompt=False)
    device, sender, other = world.device(commits=[1]), world.connect(), world.connect()
    exchange(world, device, sender, 1)
    sender.say(send(ALICE, 1))
    other.say(send(ALICE, 1))
    world.drain(sender)
    last = world.connect().say(send(ALICE, 1))

    assert sender.hear()[-1] == other.hear()[-1] == SendResult(0, b"reply 1")
    assert last.hear() == [SendResult(2)]


def test_result_lost_with_its_connection_can_be_asked_for_again():
    """Without a receipt the entry stands, with its old expiry."""
    world = World(prompt=False)
    device, sender = world.device(commits=[1]), world.connect()
    exchange(world, device, sender, 1)
    world.connect().say(send(ALICE, 1)).hang_up()
    again = world.connect().say(send(ALICE, 1))

    assert again.hear() == [SendResult(0, b"reply 1")]


def test_receipt_for_older_bytes_evicts_nothing_that_has_not_left_the_outbox():
    """``drained`` speaks of what was taken; a result still in the outbox keeps its entry."""
    world = World(prompt=False)
    device, sender = world.device(commits=[1]), world.connect()
    exchange(world, device, sender, 1)
    world.relay.receive(sender.peer, wire.encode(send(ALICE, 1)), world.now)
    world.relay.drained(sender.peer, world.now)
    kept = world.relay.sizes()["cached_responses"]
    world.settle()
    world.drain(sender)

    assert (kept, world.relay.sizes()["cached_responses"]) == (1, 0)


def test_late_ack_after_a_timeout_is_kept():
    """The sender got 3, its retry gets the answer (BHUMI-19), until the cache would have forgotten it."""
    world = World()
    device, sender = world.device(commits=[1, 2]), world.connect()
    sender.say(send(ALICE, 1), send(ALICE, 2))
    world.pass_ms(30_000)
    one, two = device.hear()
    device.say(Ack(one.message_id, b"late"))
    sender.say(send(ALICE, 1), send(ALICE, 2))

    assert sender.hear() == [SendResult(3), SendResult(3), SendResult(0, b"late"), SendResult(2)]
    assert two.message_id != one.message_id


def test_late_ack_after_the_cache_s_lifetime_is_ignored():
    """What nobody could ask for any more is not kept, and costs no strike beyond its kind."""
    world = World(ack_timeout_ms=1_000, response_ttl_ms=2_000)
    device, sender = world.device(commits=[1]), world.connect()
    sender.say(send(ALICE, 1))
    world.pass_ms(3_000)
    device.answer(b"too late")

    assert world.relay.sizes()["cached_responses"] == 0
    assert world.relay.sizes()["late_acks"] == 0


def test_late_ack_on_the_device_s_new_connection_is_kept_within_the_ack_timeout():
    """The device came back with its answer (BHUMI-22, BHUMI-C5)."""
    world = World()
    device, sender = world.device(commits=[1, 2]), world.connect()
    sender.say(send(ALICE, 1), send(ALICE, 2))
    one, two = device.hear()
    again = world.device()
    again.say(Ack(one.message_id, b"moved"))
    world.pass_ms(30_000)
    again.say(Ack(two.message_id, b"over"))
    sender.say(send(ALICE, 1), send(ALICE, 2))

    assert sender.hear() == [SendResult(4), SendResult(4), SendResult(0, b"moved"), SendResult(2)]
    assert again.session().strikes == 0


def test_late_ack_of_somebody_else_is_not():
    """Only the identity that got the DELIVER may answer it, however late."""
    world = World()
    device, sender, thief = world.device(commits=[1]), world.connect(), world.device(BOB)
    sender.say(send(ALICE, 1))
    world.pass_ms(30_000)
    (deliver,) = device.hear()
    thief.say(Ack(deliver.message_id, b"forged"))
    sender.say(send(ALICE, 1))

    assert sender.hear() == [SendResult(3), SendResult(2)]
    assert world.refusals() == {"unsolicited_ack": 1}


def test_carried_answer_serves_a_retry_at_a_new_relay():
    """The device brings its answers along (6.6); the sender need not know where it was before."""
    world = World()
    device = world.device(commits=[2], responses=[(1, b"carried")])
    sender = world.connect().say(send(ALICE, 1))

    assert sender.hear() == [SendResult(0, b"carried")]
    assert device.hear() == []


def test_carried_answer_consumes_its_commit():
    """That exchange is done (BHUMI-C3): once the answer was given, the preimage is used."""
    world = World()
    device = world.device(commits=[1], responses=[(1, b"carried")])
    commits = world.relay.sizes()["commits"]
    sender = world.connect().say(send(ALICE, 1))
    sender.say(send(ALICE, 1))

    assert commits == 0
    assert sender.hear() == [SendResult(0, b"carried"), SendResult(2)]
    assert device.hear() == []


# Joining


def test_same_preimage_in_flight_joins_and_gets_the_same_result():
    """A retry while the first is under way is not delivered twice (BHUMI-A4)."""
    world = World()
    device = world.device(commits=[1])
    senders = [world.connect().say(send(ALICE, 1)) for _ in range(5)]
    sixth = world.connect().say(send(ALICE, 1))
    delivered = len(device.heard)
    device.answer(b"one for all")

    assert delivered == 1
    assert sixth.hear() == [SendResult(2)]
    assert [sender.hear() for sender in senders] == [[SendResult(0, b"one for all")]] * 5
    assert world.facts[-1].tries == 5
    assert world.refusals() == {"too_many_joiners": 1}


def test_joiners_that_left_make_room():
    """A sender on a bad link reconnects as often as it must; only those who wait count."""
    world = World()
    device = world.device(commits=[1])
    for _ in range(20):
        world.connect().say(send(ALICE, 1)).hang_up()
    last = world.connect().say(send(ALICE, 1))
    device.answer(b"here")

    assert last.hear() == [SendResult(0, b"here")]


def test_same_preimage_to_another_device_does_not_join():
    """The recipient is part of what is in flight; the other one has no such commit."""
    world = World()
    world.device(commits=[1])
    world.device(BOB)
    world.connect().say(send(ALICE, 1))
    sender = world.connect().say(send(BOB, 1))

    assert sender.hear() == [SendResult(2)]


@pytest.mark.parametrize(("how", "status"), [("timeout", 3), ("gone", 4)])
def test_joiners_share_every_outcome(how, status):
    """Who joins a delivery joins its end."""
    world = World()
    device = world.device(commits=[1])
    senders = [world.connect().say(send(ALICE, 1)) for _ in range(3)]
    if how == "gone":
        device.hang_up()
    else:
        world.pass_ms(30_000)

    assert [sender.hear() for sender in senders] == [[SendResult(status)]] * 3


def test_retry_joins_what_is_under_way_even_while_the_relay_retires():
    """Status 1 promises that nothing was delivered (BHUMI-28), and this was."""
    world = World()
    device, first, second = world.device(commits=[1]), world.connect(), world.connect()
    first.say(send(ALICE, 1))
    world.relay.retire()
    second.say(send(ALICE, 1))
    device.answer(b"both")

    assert first.hear() == [SendResult(0, b"both")]
    assert second.hear() == [SendResult(0, b"both")]


@pytest.mark.parametrize("device_first", [True, False])
def test_shutting_down_tells_everybody_who_waits(device_first):
    """Each SEND gets its result before the connections close, in whatever order they came."""
    world = World()
    if device_first:
        device, sender = world.device(commits=[1]), world.connect()
    else:
        sender, device = world.connect(), world.device(commits=[1])
    sender.say(send(ALICE, 1))
    device.hear()
    world.relay.shut(world.now)
    world.settle()

    assert sender.hear() == [SendResult(4, b"")]
