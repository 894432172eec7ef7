"""Laws of protocols.lprp.tenancy, as a client's owner and its host see them."""

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.protocols.lprp.build_client import EASY, HOST, PEER, WALL_MS, Stage
from waystation.core.effects import Peer
from waystation.protocols.lprp.client.events import (
    HostAnswered,
    LeaseDoubted,
    LeaseGranted,
    LeaseRefused,
    PacketDropped,
    RequestOutcome,
    WorkOver,
    WorkWanted,
)
from waystation.protocols.lprp.client.settings import ClientSettings
from waystation.protocols.lprp.client.tenancy import ASK_AGAIN_MS_MAX, EXTRA_HEARTBEAT_MS, PROBES_MAX
from waystation.protocols.lprp.messages import Command, Kind
from waystation.protocols.lprp.refusals import Refusal

LEASE_MS = EASY.lease_ms
BEAT_MS = EASY.heartbeat_ms
DOUBT_MS = BEAT_MS + 4_500
PROBE_MS = 5_000
SHORT = ClientSettings(work_first_bits=2, lease_ms=400_000, bits_max=8)


def asked():
    """A stage whose client has asked for a lease, and the 104."""
    stage = Stage()
    stage.client.ask_lease(stage.now)
    return stage, stage.said()


def tenant(settings=EASY):
    """A stage whose client holds a lease that it worked for, and has sent nothing since."""
    stage = Stage(settings)
    stage.client.ask_lease(stage.now)
    ask = stage.said()
    stage.reply(Command.LEASE_DEMANDS_WORK, ask)
    stage.solve()
    stage.said()
    stage.reply(Command.LEASE_GRANTED, ask)
    stage.told()
    return stage


def with_host(stage, duration_ms):
    """Let time pass while the host answers each heartbeat within half a second; return what was said."""
    said = []
    for _ in range(0, duration_ms, 500):
        new = stage.pass_ms(500)
        if Command.HEARTBEAT in [packet.command for _, packet in new]:
            stage.reply(Command.HEARTBEAT_ANSWER, None)
        said += new
    return said


def commands(said):
    return [(at, packet.command) for at, packet in said]


def test_asking_is_as_long_as_its_answer():
    """A 104 carries 64 bytes, so that its answer is no longer."""
    _, ask = asked()

    assert (ask.command, ask.recipient, len(ask.data)) == (Command.ASK_LEASE, HOST.public, 208)


def test_lease_granted_lasts_from_when_it_was_asked_for():
    """The owner learns the earliest end: a lease's length after the packet that asked, on our clock."""
    stage, ask = asked()
    stage.now_ms = 500
    stage.reply(Command.LEASE_GRANTED, ask)

    assert stage.told() == [LeaseGranted(WALL_MS, WALL_MS + LEASE_MS)]
    assert stage.client.lease_until_ms == WALL_MS + LEASE_MS


def test_lease_may_cost_work():
    """604, search, 101, 204: the lease is granted under the 104's signature."""
    stage, ask = asked()
    demand = stage.reply(Command.LEASE_DEMANDS_WORK, ask)
    assert stage.solve() == WorkWanted(demand.data, Kind.LEASE, 0, 2)
    stage.said()
    stage.reply(Command.LEASE_GRANTED, ask)

    assert stage.told() == [LeaseGranted(WALL_MS, WALL_MS + LEASE_MS)]
    assert stage.client.bits == {Kind.LEASE: 2}


def test_heartbeats_begin_with_the_lease():
    """None before it is granted; then one every 25 s, each answered by a 200."""
    stage = tenant()
    said = []
    for _ in range(3):
        said += stage.pass_ms(BEAT_MS)
        stage.reply(Command.HEARTBEAT_ANSWER, None)

    assert commands(said) == [(at, Command.HEARTBEAT) for at in (25_000, 50_000, 75_000)]
    assert stage.told() == [HostAnswered(WALL_MS + at) for at in (25_000, 50_000, 75_000)]


def test_heartbeat_without_an_answer_is_repeated():
    """The same bytes go again after 1, 2, 3 and 4 s."""
    stage = tenant()
    (first, *again) = stage.pass_ms(DOUBT_MS - 1)

    assert [at for at, _ in again] == [26_000, 27_000, 28_000, 29_000]
    assert {packet.data for _, packet in again} == {first[1].data}


def test_answer_stops_the_repeats():
    """A heartbeat that was answered is not sent again."""
    stage = tenant()
    stage.pass_ms(BEAT_MS)
    stage.reply(Command.HEARTBEAT_ANSWER, None)

    assert stage.pass_ms(BEAT_MS - 1) == []


def test_five_missed_answers_raise_doubt():
    """NODE-SILENCE: within 30 s of its last answer a host that is gone is doubted, and the lease is asked for again."""
    stage = tenant()
    stage.pass_ms(DOUBT_MS - 1)
    assert stage.told() == []
    said = stage.pass_ms(1)

    assert DOUBT_MS < 30_000
    assert stage.told() == [LeaseDoubted()]
    assert commands(said) == [(DOUBT_MS, Command.ASK_LEASE)]
    assert stage.client.is_doubted


@pytest.mark.parametrize(
    ("limit_ms", "least_ms"), [(1_000, 950), (5_000, 4_800), (30_000, 29_500), (3_600_000, 141_600)]
)
def test_host_is_in_doubt_within_the_limit_of_silence(limit_ms, least_ms):
    """NODE-SILENCE: and not much sooner, for up to 144 s."""
    stage = tenant(replace(ClientSettings.of_silence(limit_ms), work_first_bits=2, work_step_bits=2, bits_max=8))
    stage.pass_ms(least_ms - 1)
    assert not stage.client.is_doubted
    stage.pass_ms(min(limit_ms, 141_700) - least_ms + 1)

    assert stage.client.is_doubted


def test_four_missed_and_one_answered_raise_none():
    """Any answer ends the wait, however late it is."""
    stage = tenant()
    for _ in range(4):
        stage.pass_ms(DOUBT_MS - 4_500 + EXTRA_HEARTBEAT_MS)
        stage.reply(Command.HEARTBEAT_ANSWER, None)

    assert stage.told(LeaseDoubted) == []


def test_heartbeat_answered_after_all_ends_the_doubt():
    """The host is back and knows us: the request for a new lease and its work are dropped."""
    stage = tenant()
    said = stage.pass_ms(DOUBT_MS)
    demand = stage.reply(Command.LEASE_DEMANDS_WORK, said[-1][1])
    stage.told()
    stage.reply(Command.HEARTBEAT_ANSWER, None)

    assert stage.told() == [HostAnswered(WALL_MS + DOUBT_MS), WorkOver(demand.signature)]
    assert not stage.client.is_doubted
    assert Command.ASK_LEASE not in [command for _, command in commands(with_host(stage, 60_000))]


def test_doubt_that_ended_before_its_turn_asks_for_nothing():
    """The 104 waited for another change to end; meanwhile the host answered a heartbeat."""
    stage = Stage(known_whitelist=frozenset())
    stage.lease()
    stage.client.want_whitelist([b"k" * 32], stage.now)
    update = stage.sent()[0]
    stage.reply(Command.WHITELIST_DEMANDS_WORK, update)
    stage.pass_ms(4 * BEAT_MS)
    assert stage.client.is_doubted
    stage.reply(Command.HEARTBEAT_ANSWER, None)
    stage.reply(Command.WHITELIST_DONE, update)

    assert Command.ASK_LEASE not in [packet.command for packet in stage.sent()]


def test_doubt_that_ended_plans_no_further_asking():
    """A 404 had put the next 104 off; with the heartbeat answered there is none."""
    stage = Stage()
    stage.client.hold_lease(stage.now)
    said = stage.pass_ms(DOUBT_MS - BEAT_MS)
    stage.reply(Command.LEASE_REFUSED, said[-1][1])
    stage.reply(Command.HEARTBEAT_ANSWER, None)

    assert commands(stage.pass_ms(EXTRA_HEARTBEAT_MS)) == [(4_500 + EXTRA_HEARTBEAT_MS, Command.HEARTBEAT)]
    assert {command for _, command in commands(with_host(stage, BEAT_MS))} == {Command.HEARTBEAT}


def test_doubt_may_come_again():
    """A doubt that ended is no reason not to ask the next time."""
    stage = tenant()
    for _ in range(2):
        said = stage.pass_ms(4 * BEAT_MS)
        assert Command.ASK_LEASE in [command for _, command in commands(said)]
        stage.reply(Command.HEARTBEAT_ANSWER, None)

    assert len(stage.told(LeaseDoubted)) == 2


def test_doubt_goes_on_beating_and_is_told_once():
    """While the host is away heartbeats go every 5 s, after ten minutes every 25 s; doubt is told once."""
    stage = tenant()
    stage.pass_ms(DOUBT_MS)
    beats = [at for at, packet in stage.pass_ms(700_000) if packet.command is Command.HEARTBEAT]

    assert beats[:3] == [DOUBT_MS + PROBE_MS * number for number in (1, 2, 3)]
    assert {later - at for at, later in pairwise(beats)} == {PROBE_MS, BEAT_MS}
    assert beats.index(DOUBT_MS + 600_000) == PROBES_MAX - 1
    assert len(stage.told(LeaseDoubted)) == 1


def test_host_that_is_back_gets_the_usual_heartbeats():
    """An answer in doubt ends the questions every 5 s."""
    stage = tenant()
    stage.pass_ms(DOUBT_MS + PROBE_MS)
    stage.reply(Command.HEARTBEAT_ANSWER, None)

    assert [at for at, _ in stage.pass_ms(BEAT_MS)] == [DOUBT_MS + PROBE_MS + BEAT_MS]


def test_new_lease_ends_the_doubt():
    """204 after doubt: we are a tenant again, and the next heartbeat would have to go unanswered for another doubt."""
    stage = tenant()
    said = stage.pass_ms(DOUBT_MS)
    stage.reply(Command.LEASE_GRANTED, said[-1][1])
    stage.told()
    stage.pass_ms(DOUBT_MS - 1)

    assert not stage.client.is_doubted
    assert stage.told() == []


def test_lease_is_renewed_at_three_quarters():
    """With a quarter of the lease left it is asked for again, while heartbeats go on."""
    stage = tenant(SHORT)
    asks = []
    asks += [(at, p) for at, p in with_host(stage, 400_000) if p.command is Command.ASK_LEASE]

    assert asks[0][0] == 300_000
    assert len({packet.signature for _, packet in asks[:8]}) == 1
    assert stage.told(LeaseDoubted) == []


def test_renewal_moves_the_end():
    """A renewal granted counts from its own 104, and the next one is planned from there."""
    stage = tenant(SHORT)
    expected = []
    for _ in range(2):
        asks = []
        while not asks:
            asks = [p for _, p in with_host(stage, 1_000) if p.command is Command.ASK_LEASE]
        stage.reply(Command.LEASE_GRANTED, asks[0])
        expected.append(LeaseGranted(asks[0].time_ms, asks[0].time_ms + SHORT.lease_ms))

    assert stage.told(LeaseGranted) == expected
    assert expected[1].asked_ms - expected[0].asked_ms == pytest.approx(300_000, abs=1)


def test_renewal_does_not_put_off_the_next_heartbeat():
    """A lease granted anew between two heartbeats leaves them where they are."""
    stage = tenant()
    stage.pass_ms(10_000)
    stage.lease()

    assert commands(stage.pass_ms(BEAT_MS - 10_000)) == [(BEAT_MS, Command.HEARTBEAT)]


def test_refused_lease_is_asked_for_again_less_and_less_often():
    """404: told, then asked again after 25, 50, 100 s and so on, at most an hour apart."""
    stage, ask = asked()
    waits = []
    for _ in range(12):
        stage.reply(Command.LEASE_REFUSED, ask)
        began = stage.now_ms
        while True:
            said = stage.pass_ms(25_000)
            if said:
                break
        waits.append(said[0][0] - began)
        ask = said[0][1]

    assert waits == [min(25_000 << count, ASK_AGAIN_MS_MAX) for count in range(12)]
    assert set(stage.told()) == {LeaseRefused(RequestOutcome.REFUSED)}


def test_asking_anew_forgets_the_waiting():
    """The owner who asks again is not made to wait for the next turn, and refusals count from there."""
    stage, ask = asked()
    for _ in range(3):
        stage.reply(Command.LEASE_REFUSED, ask)
        stage.client.ask_lease(stage.now)
        ask = stage.said()
        assert ask.command is Command.ASK_LEASE
    stage.reply(Command.LEASE_REFUSED, ask)

    assert commands(stage.pass_ms(BEAT_MS)) == [(BEAT_MS, Command.ASK_LEASE)]


def test_asking_twice_asks_once():
    """A second wish while a 104 is under way brings no second 104, not even later."""
    stage, ask = asked()
    stage.client.ask_lease(stage.now)
    stage.reply(Command.LEASE_GRANTED, ask)

    assert stage.sent() == []
    assert commands(stage.pass_ms(BEAT_MS)) == [(BEAT_MS, Command.HEARTBEAT)]


def test_unanswered_lease_is_told_and_tried_again():
    """Nobody at home: told after 79 s, and asked again 25 s later."""
    stage, first = asked()
    stage.pass_ms(79_000)
    assert stage.told() == [LeaseRefused(RequestOutcome.UNANSWERED)]
    ((at, again),) = stage.pass_ms(BEAT_MS)

    assert at == 79_000 + BEAT_MS
    assert again.signature != first.signature


def test_hold_beats_at_once():
    """A client with a lease of an earlier start says where it is, and asks for nothing."""
    stage = Stage()
    stage.client.hold_lease(stage.now)

    assert stage.said().command is Command.HEARTBEAT


def test_who_has_not_worked_here_pays_for_mail_with_heartbeats():
    """Three when it comes, two each 25 s, each 20 ms behind the answer to the last (LPRP-GREETING)."""
    stage = Stage()
    stage.client.hold_lease(stage.now)
    times = [0]
    stage.said()
    while times[-1] < 2 * BEAT_MS:
        stage.reply(Command.HEARTBEAT_ANSWER, None)
        (at, packet), *_ = stage.pass_ms(EXTRA_HEARTBEAT_MS) or stage.pass_ms(BEAT_MS - EXTRA_HEARTBEAT_MS)
        assert packet.command is Command.HEARTBEAT
        times.append(at)

    gaps = [later - at for at, later in pairwise(times)]
    assert gaps == [EXTRA_HEARTBEAT_MS, EXTRA_HEARTBEAT_MS, BEAT_MS, EXTRA_HEARTBEAT_MS, BEAT_MS]


def test_greetings_wait_for_answers():
    """A host that is not there gets one heartbeat and its repeats, not three."""
    stage = Stage()
    stage.client.hold_lease(stage.now)

    assert len({packet.data for packet in stage.sent()} | {packet.data for _, packet in stage.pass_ms(4_499)}) == 1


def test_new_way_to_the_host_is_unproved_again():
    """Who worked from another address greets as one who has not: the host counts what it sends there."""
    stage = tenant()
    stage.client.disconnect(PEER, stage.now)
    stage.client.connect(PEER, stage.now)
    said = stage.sent()
    for _ in range(4):
        stage.reply(Command.HEARTBEAT_ANSWER, None)
        said += [packet for _, packet in stage.pass_ms(EXTRA_HEARTBEAT_MS)]

    assert [packet.command for packet in said] == [Command.HEARTBEAT] * 3


@pytest.mark.parametrize(("left_ms", "at"), [(150_000, 50_000), (100_000, 0), (-5, 0)])
def test_hold_knows_when_to_renew(left_ms, at):
    """With the end given, the lease is renewed when a quarter of its length is left, at once if that is past."""
    stage = Stage(SHORT)
    stage.client.hold_lease(stage.now, WALL_MS + left_ms)
    said = [(0, packet) for packet in stage.sent()]
    stage.reply(Command.HEARTBEAT_ANSWER, None)
    said += with_host(stage, 60_000)

    assert next(when for when, packet in said if packet.command is Command.ASK_LEASE) == at


def test_hold_of_a_held_lease_only_learns_its_end():
    """Said again with an end, no heartbeat goes ahead of its turn, and the renewal is planned."""
    stage = Stage(SHORT)
    stage.client.hold_lease(stage.now)
    stage.said()
    stage.client.hold_lease(stage.now, WALL_MS + 110_000)

    assert stage.client.lease_until_ms == WALL_MS + 110_000
    assert stage.sent() == []
    stage.reply(Command.HEARTBEAT_ANSWER, None)
    assert (10_000, Command.ASK_LEASE) in commands(with_host(stage, 10_000))


def test_doubt_of_a_lease_whose_end_nobody_knows_ends_too():
    """A heartbeat answered after all: nothing is asked, and nothing is planned but heartbeats."""
    stage = Stage(SHORT)
    stage.client.hold_lease(stage.now)
    stage.pass_ms(3 * BEAT_MS)
    assert stage.client.is_doubted
    stage.reply(Command.HEARTBEAT_ANSWER, None)

    assert {command for _, command in commands(with_host(stage, BEAT_MS))} == {Command.HEARTBEAT}


@pytest.mark.parametrize("prepare", [asked, lambda: (tenant(), None)])
def test_let_go_ends_all_of_it(prepare):
    """No heartbeat, no renewal, no repeated 104: the lease ends by itself."""
    stage, _ = prepare()
    stage.client.let_go(stage.now)
    stage.told()

    assert stage.pass_ms(LEASE_MS) == []
    assert stage.told() == []


def test_let_go_stops_the_work_for_a_lease():
    """The owner need not search for what it no longer wants."""
    stage, ask = asked()
    demand = stage.reply(Command.LEASE_DEMANDS_WORK, ask)
    stage.told()
    stage.client.let_go(stage.now)

    assert stage.told() == [WorkOver(demand.signature)]
    stage.reply(Command.LEASE_GRANTED, ask)
    assert stage.told() == [PacketDropped(Refusal.UNASKED_ANSWER, HOST.public)]


def test_heartbeat_answer_that_nobody_waits_for_is_dropped():
    """A 200 names nothing, so it counts only while a heartbeat waits."""
    stage = tenant()
    stage.reply(Command.HEARTBEAT_ANSWER, None)

    assert stage.told() == [PacketDropped(Refusal.UNASKED_ANSWER, HOST.public)]


def test_replayed_heartbeat_answer_does_not_hide_that_the_host_is_gone():
    """An old 200 is no proof that the host is there now: only a newer one counts."""
    stage = tenant()
    stage.pass_ms(BEAT_MS)
    old = stage.reply(Command.HEARTBEAT_ANSWER, None)
    stage.told()
    for _ in range(4):
        stage.pass_ms(BEAT_MS)
        stage.hear(old)

    assert set(stage.told(PacketDropped)) == {PacketDropped(Refusal.NOT_NEWER, HOST.public)}
    assert stage.client.is_doubted


def test_answers_count_from_a_new_lease_when_the_hosts_clock_went_back():
    """A host whose clock was set back is doubted, grants anew, and is believed from there on."""
    stage = tenant()
    stage.pass_ms(BEAT_MS)
    stage.reply(Command.HEARTBEAT_ANSWER, None, time_ms=WALL_MS + 400_000)
    said = stage.pass_ms(4 * BEAT_MS)
    stage.reply(Command.LEASE_GRANTED, next(p for _, p in said if p.command is Command.ASK_LEASE))
    stage.told()
    stage.pass_ms(BEAT_MS)
    stage.reply(Command.HEARTBEAT_ANSWER, None)

    assert stage.told() == [HostAnswered(WALL_MS + stage.now_ms)]


def test_another_way_to_the_host_is_shown_at_once():
    """After a change of network the host learns our address without waiting for the next turn."""
    stage = tenant()
    stage.pass_ms(10_000)
    stage.client.disconnect(PEER, stage.now)
    stage.client.connect(Peer(9), stage.now)

    (effect,) = stage.client.take()
    assert effect.peer == Peer(9)
    assert Stage().client.take() == []
