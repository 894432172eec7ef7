"""Laws of protocols.bhumi.relay: retries, the cache, late answers, and joining."""

import pytest

from tests.protocols.bhumi.build import ALICE, BOB, World, commit, i_am, send
from waystation.protocols.bhumi import wire
from waystation.protocols.bhumi.limits import BhumiLimits
from waystation.protocols.bhumi.messages import Ack, Feature, Keepalive, SendResult, UpdateCommits

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
    device, sender = world.device(commits=[1]), world.connect()
    sender.say(send(ALICE, 1))
    world.pass_ms(30_000)
    device.answer(b"late")
    sender.say(send(ALICE, 1))

    assert sender.hear() == [SendResult(3), SendResult(0, b"late")]


def test_repeat_after_a_timeout_waits_for_the_late_answer():
    """A device that works for 40 s is asked once, and its answer reaches who repeats (BHUMI-C9)."""
    world = World()
    device, sender, other = world.device(commits=[1]), world.connect(), world.connect()
    sender.say(send(ALICE, 1))
    world.pass_ms(30_000)
    sender.say(send(ALICE, 1))
    world.pass_ms(9_000)
    other.say(send(ALICE, 1))
    still_waiting = other.hear()
    world.pass_ms(1_000)
    device.answer(b"after 40 s")

    assert still_waiting == []
    assert sender.hear() == [SendResult(3), SendResult(0, b"after 40 s")]
    assert other.hear() == [SendResult(0, b"after 40 s")]
    assert len(device.heard) == 0


def test_repeat_after_a_timeout_gets_3_again_and_never_2_while_an_answer_may_come():
    """Every 30 s the truth as it stands, for as long as the cache keeps answers; only then is the preimage used."""
    world = World(ack_timeout_ms=1_000, response_ttl_ms=4_500)
    device, sender = world.device(commits=[1]), world.connect()
    for _ in range(6):
        device.say(Keepalive())
        sender.say(send(ALICE, 1))
        world.pass_ms(1_000)
    sender.say(send(ALICE, 1))

    assert sender.statuses() == [3, 3, 3, 3, 3, 3, 2]
    assert world.relay.sizes()["late_acks"] == 0


def test_repeat_for_a_device_that_left_gets_4_and_not_that_nothing_was_delivered():
    """Status 1 and 2 would both be false: it was delivered, and the device is not here."""
    world = World()
    device, sender = world.device(commits=[1]), world.connect()
    sender.say(send(ALICE, 1))
    device.hang_up()
    sender.say(send(ALICE, 1))

    assert sender.statuses() == [4, 4]


def test_device_that_names_the_commit_on_its_next_connection_gets_the_repeat():
    """It has no answer, so it does not know the request or works on it still; both take a second DELIVER."""
    world = World()
    device, sender = world.device(commits=[1]), world.connect()
    sender.say(send(ALICE, 1))
    device.hang_up()
    again = world.device(commits=[1])
    sender.say(send(ALICE, 1))
    again.answer(b"second delivery")

    assert sender.hear() == [SendResult(4), SendResult(0, b"second delivery")]


def test_whoever_waits_learns_at_once_that_the_commit_was_named_again():
    """A device that comes back without the commit may name it later; nobody waits 30 s for nothing."""
    world = World()
    device, sender = world.device(commits=[1]), world.connect()
    sender.say(send(ALICE, 1))
    device.hang_up()
    again = world.device()
    sender.say(send(ALICE, 1))
    waiting = sender.statuses()
    again.say(UpdateCommits((commit(1),)))

    assert waiting == [4]
    assert sender.statuses() == [4]


@pytest.mark.parametrize("by_update", [False, True])
@pytest.mark.parametrize("is_late", [False, True])
def test_commit_of_a_delivery_without_an_answer_is_not_armed_again_on_its_connection(by_update, is_late):
    """A refresh of I_AM during the delivery re-arms nothing (BHUMI-C9); after the answer it may."""
    world = World()
    device, sender = world.device(commits=[1]), world.connect()
    sender.say(send(ALICE, 1))
    world.pass_ms(30_000 if is_late else 10)
    again = UpdateCommits((commit(1),)) if by_update else i_am(ALICE, device.nonce, [1])
    device.say(again)
    before = world.relay.sizes()["commits"]
    device.answer(b"")
    device.say(again)

    assert (before, world.relay.sizes()["commits"]) == (0, 1)


def test_carried_answer_reaches_whoever_waits_for_it():
    """The device came back and brings the answer: it is given out at once, and the exchange is over (BHUMI-C3)."""
    world = World()
    device, sender = world.device(commits=[1]), world.connect()
    sender.say(send(ALICE, 1))
    device.hang_up()
    again = world.device()
    sender.say(send(ALICE, 1))
    again.say(i_am(ALICE, again.nonce, [], [(1, b"carried")]))

    assert sender.hear() == [SendResult(4), SendResult(0, b"carried")]
    assert world.relay.sizes()["late_acks"] == 0


def test_late_ack_after_the_cache_s_lifetime_is_ignored():
    """What nobody could ask for any more is not kept, and costs no strike beyond its kind."""
    world = World(ack_timeout_ms=1_000, response_ttl_ms=2_000)
    device, sender = world.device(commits=[1]), world.connect()
    sender.say(send(ALICE, 1))
    world.pass_ms(3_000)
    device.answer(b"too late")

    assert world.relay.sizes()["cached_responses"] == 0
    assert world.relay.sizes()["late_acks"] == 0


def test_late_ack_on_the_device_s_new_connection_is_kept_as_long_as_answers_are():
    """The device came back with its answers (BHUMI-22, BHUMI-C9)."""
    world = World()
    device, sender = world.device(commits=[1, 2]), world.connect()
    sender.say(send(ALICE, 1), send(ALICE, 2))
    one, two = device.hear()
    again = world.device()
    again.say(Ack(one.message_id, b"moved"))
    world.pass_ms(59_000)
    again.say(Ack(two.message_id, b"later"))
    sender.say(send(ALICE, 1), send(ALICE, 2))

    assert sender.hear() == [SendResult(4), SendResult(4), SendResult(0, b"moved"), SendResult(0, b"later")]
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
    world.pass_ms(30_000)

    assert sender.hear() == [SendResult(3), SendResult(3)]
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
    """Any number of repeats while the first is under way is delivered once (BHUMI-A4, BHUMI-C9)."""
    world = World()
    device = world.device(commits=[1])
    senders = [world.connect().say(send(ALICE, 1)) for _ in range(100)]
    delivered = len(device.heard)
    device.answer(b"one for all")

    assert delivered == 1
    assert [sender.hear() for sender in senders] == [[SendResult(0, b"one for all")]] * 100
    assert world.facts[-1].tries == 100
    assert world.refusals() == {}


def test_one_joiner_too_many_learns_that_the_request_is_in_doubt():
    """The limit is no reason to say that the preimage is used: 3 at once, counted."""
    world = World(limits=BhumiLimits(joiners=4))
    device = world.device(commits=[1])
    senders = [world.connect().say(send(ALICE, 1)) for _ in range(7)]
    device.answer(b"one for five")

    assert [sender.statuses() for sender in senders] == [[0]] * 5 + [[3]] * 2
    assert world.refusals() == {"too_many_joiners": 2}


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
