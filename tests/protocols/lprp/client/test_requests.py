"""Laws of protocols.lprp.client_requests, as a client's owner and its host see them."""

from dataclasses import replace

import pytest

from tests.protocols.lprp.build_client import EASY, FRIEND, HOST, STRANGER, US, WALL_MS, Stage, counter_of
from waystation.protocols.lprp.client.events import (
    PacketDropped,
    RelayFinished,
    RequestOutcome,
    WorkOver,
    WorkWanted,
)
from waystation.protocols.lprp.client.requests import DEMANDS_MAX
from waystation.protocols.lprp.client.settings import ClientSettings
from waystation.protocols.lprp.messages import CHALLENGE_LIFE_MS, CLOCK_WINDOW_MS, Command, Kind
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.work import is_enough


def begun(settings=EASY):
    """A stage whose client has sent one packet, and that packet."""
    stage = Stage(settings)
    stage.client.send(b"hi", FRIEND.public, stage.now)
    return stage, stage.said()


def demanded():
    """One whose host wants work for it."""
    stage, packet = begun()
    demand = stage.reply(Command.RELAY_DEMANDS_WORK, packet)
    return stage, packet, demand


def proving():
    """One that has sent its 101."""
    stage, packet, demand = demanded()
    stage.solve()
    return stage, packet, demand, stage.said()


def outcomes(stage):
    return [event.outcome for event in stage.told(RelayFinished)]


def test_schedule_of_a_request_without_an_answer():
    """The same bytes go at 0, 1, 3, 7, 15, 31, 47 and 63 s; after 79 s nobody has answered."""
    stage, first = begun()
    again = stage.pass_ms(78_999)
    assert outcomes(stage) == []
    stage.pass_ms(1)

    assert [at for at, _ in again] == [1_000, 3_000, 7_000, 15_000, 31_000, 47_000, 63_000]
    assert {packet.data for _, packet in again} == {first.data}
    assert outcomes(stage) == [RequestOutcome.UNANSWERED]
    assert stage.client.deadline() is None


def test_request_is_not_sent_beyond_the_clock_window():
    """A packet older than the window would be dropped, so it is not sent again."""
    stage, _ = begun(ClientSettings(retry_ms=16_000, tries=64))
    again = stage.pass_ms(2 * CLOCK_WINDOW_MS)

    assert [at for at, _ in again] == list(range(16_000, CLOCK_WINDOW_MS + 1, 16_000))
    assert outcomes(stage) == [RequestOutcome.UNANSWERED]


@pytest.mark.parametrize(
    ("command", "outcome"),
    [(Command.RELAY_ACCEPTED, RequestOutcome.ACCEPTED), (Command.RELAY_REFUSED, RequestOutcome.REFUSED)],
)
@pytest.mark.parametrize("prepare", [begun, demanded, proving])
def test_host_may_end_a_request_in_every_phase(prepare, command, outcome):
    """202 and 402 end it while it asks, searches or proves; then nothing is sent or wanted any more."""
    stage, packet, *rest = prepare()
    stage.told()
    stage.reply(command, packet)

    events = stage.told()
    assert events[-1] == RelayFinished(packet.signature, outcome)
    assert events[:-1] == ([WorkOver(rest[0].signature)] if prepare is demanded else [])
    assert stage.client.deadline() is None
    assert stage.sent() == []


def test_demand_starts_a_search():
    """A 602 asks the owner for work and stops the packet from being sent again."""
    stage, _packet, demand = demanded()

    assert stage.told() == [WorkWanted(demand.data, Kind.RELAY, 0, 2)]
    assert stage.client.sizes()["searching"] == 1
    assert stage.pass_ms(100_000) == []


def test_work_goes_out_at_once_and_again():
    """The 101 names the challenge, holds the solution, and goes at 0, 1, 3 and 7 s; then the request again."""
    stage, packet, demand = demanded()
    wanted = stage.solve()
    work = stage.said()
    again = stage.pass_ms(18_000)

    assert (work.command, work.reference, work.recipient) == (Command.WORK, demand.signature, HOST.public)
    assert is_enough(demand.data, work.payload[64:], wanted.bits)
    assert again == [(1_000, work), (3_000, work), (7_000, work), *((at, packet) for at in (15_000, 16_000, 18_000))]


def test_a_host_that_lost_the_challenge_may_demand_anew():
    """Nobody answers the 101: the request is asked again, and a new challenge is worked on."""
    stage, packet, _, first_work = proving()
    stage.pass_ms(15_000)
    fresh = stage.reply(Command.RELAY_DEMANDS_WORK, packet)
    stage.solve()
    work = stage.said()

    assert work.reference == fresh.signature != first_work.reference
    stage.reply(Command.RELAY_ACCEPTED, packet)
    assert outcomes(stage) == [RequestOutcome.ACCEPTED]


def test_the_same_challenge_again_counts_as_too_little_work():
    """A stored 602 after four unanswered 101s: the host may be kept from saying 401, so more is tried (LPRP-SILENT)."""
    stage, _packet, demand, work = proving()
    offered = stage.client.sizes()["searching"]
    stage.pass_ms(15_000)
    stage.told()
    stage.hear(demand)
    (wanted,) = stage.told(WorkWanted)

    assert offered == 0
    assert wanted.challenge == demand.data
    assert (wanted.bits, wanted.start) == (EASY.work_first_bits + 2, int.from_bytes(work.payload[-8:]) + 1)


def test_the_same_challenge_again_at_the_most_bits_sends_the_work_again():
    """Where more bits are not wanted, only our 101 can have been lost, and it goes once more."""
    stage, packet = begun(replace(EASY, work_first_bits=8))
    demand = stage.reply(Command.RELAY_DEMANDS_WORK, packet)
    stage.solve()
    work = stage.said()
    stage.pass_ms(15_000)
    stage.told()
    stage.hear(demand)

    assert stage.said() == work
    assert stage.told() == []


def test_a_host_cannot_demand_for_ever():
    """After the last demand allowed, unanswered work ends the request."""
    stage, packet = begun()
    for _ in range(DEMANDS_MAX):
        stage.reply(Command.RELAY_DEMANDS_WORK, packet)
        stage.solve()
        stage.pass_ms(15_000)

    assert outcomes(stage) == [RequestOutcome.UNANSWERED]
    stage.reply(Command.RELAY_DEMANDS_WORK, packet)
    assert stage.told() == [PacketDropped(Refusal.UNASKED_ANSWER, HOST.public)]


def test_newer_demands_replace_the_search_but_not_for_ever():
    """Each newer challenge stops the last search; the fifth is not wanted."""
    stage, packet = begun()
    demands = []
    for _ in range(DEMANDS_MAX + 1):
        stage.now_ms += 1
        demands.append(stage.reply(Command.RELAY_DEMANDS_WORK, packet))

    events = stage.told()
    assert [event.challenge for event in events if isinstance(event, WorkWanted)] == [d.data for d in demands[:-1]]
    assert [e.challenge_signature for e in events if isinstance(e, WorkOver)] == [d.signature for d in demands[:-2]]
    assert events[-1] == PacketDropped(Refusal.UNASKED_ANSWER, HOST.public)


def test_older_or_equal_challenge_changes_nothing():
    """A demand late on its way, or made in the same millisecond, does not take the place of the one worked on."""
    stage, packet, demand = demanded()
    stage.told()
    stage.reply(Command.RELAY_DEMANDS_WORK, packet, time_ms=demand.time_ms - 1)
    stage.hear(demand)

    assert stage.told() == [
        PacketDropped(Refusal.NOT_NEWER, HOST.public),
        PacketDropped(Refusal.DUPLICATE, HOST.public),
    ]


def test_refused_work_goes_on_with_more_bits():
    """After a 401 the search goes on behind the counter that was too few, with a step more."""
    stage, _, demand = demanded()
    (wanted,) = stage.told()
    counter = counter_of(wanted)
    stage.client.work_found(demand.signature, counter, stage.now)
    work = stage.said()
    stage.reply(Command.WORK_REFUSED, work)

    assert stage.told() == [WorkWanted(demand.data, Kind.RELAY, counter + 1, 4)]
    assert stage.pass_ms(1_000) == []


def test_work_escalates_to_the_most_and_no_further():
    """2, 4, 6, 8 bits are offered; when 8 are refused, the request has failed."""
    stage, _, _ = demanded()
    offered = []
    for _ in range(4):
        offered.append(stage.solve().bits)
        stage.reply(Command.WORK_REFUSED, stage.said())

    assert offered == [2, 4, 6, 8]
    assert outcomes(stage) == [RequestOutcome.WORK_FAILED]
    assert stage.client.deadline() is None


def test_bits_taken_are_offered_first_next_time():
    """A refusal, then an acceptance: the next packet's work begins where this one ended."""
    stage, packet, _ = demanded()
    stage.solve()
    stage.reply(Command.WORK_REFUSED, stage.said())
    stage.solve()
    stage.reply(Command.RELAY_ACCEPTED, packet)
    assert stage.client.bits == {Kind.RELAY: 4}
    stage.sent()
    stage.client.send(b"more", FRIEND.public, stage.now)
    stage.reply(Command.RELAY_DEMANDS_WORK, stage.said())

    assert [event.bits for event in stage.told(WorkWanted)] == [4]


def test_work_taken_after_refusals_is_not_offered_lower():
    """Only first offers taken in a row say that less might do."""
    stage = Stage(ClientSettings(work_first_bits=0, work_step_bits=1, bits_max=9))
    for number in range(8):
        stage.client.send(b"%d" % number, FRIEND.public, stage.now)
        packet = stage.said()
        stage.reply(Command.RELAY_DEMANDS_WORK, packet)
        stage.solve()
        stage.reply(Command.WORK_REFUSED, stage.said())
        stage.solve()
        stage.said()
        stage.reply(Command.RELAY_ACCEPTED, packet)

    assert stage.client.bits == {Kind.RELAY: 8}


def test_refusal_of_earlier_work_is_not_asked_for():
    """A 401 that comes twice moves the bits once."""
    stage, _, _ = demanded()
    stage.solve()
    refusal = stage.reply(Command.WORK_REFUSED, stage.said())
    stage.told()
    stage.hear(refusal)

    assert stage.told() == [PacketDropped(Refusal.UNASKED_ANSWER, HOST.public)]


def test_refusal_that_comes_while_the_request_is_asked_again_counts():
    """A late 401 still says that the work was too little."""
    stage, _, _demand, work = proving()
    stage.pass_ms(15_000)
    stage.told()
    stage.reply(Command.WORK_REFUSED, work)

    assert [event.bits for event in stage.told(WorkWanted)] == [4]


def test_refusal_from_before_the_demand_is_old_news():
    """A 402 said before the host demanded work does not end what the host has since reconsidered."""
    stage, packet, demand, _ = proving()
    stage.reply(Command.RELAY_REFUSED, packet, time_ms=demand.time_ms - 1)

    assert stage.told() == [PacketDropped(Refusal.NOT_NEWER, HOST.public)]


def test_search_ends_with_the_life_of_its_challenge():
    """Nobody finds anything for 2^19 ms: the owner is told to stop, and the request has failed."""
    stage, packet, demand = demanded()
    stage.told()
    stage.pass_ms(CHALLENGE_LIFE_MS - 1)
    assert stage.told() == []
    stage.pass_ms(1)

    assert stage.told() == [
        WorkOver(demand.signature),
        RelayFinished(packet.signature, RequestOutcome.WORK_FAILED),
    ]


def test_refusal_after_the_life_of_the_challenge_ends_the_request():
    """The challenge cannot be solved any more, whatever the bits."""
    stage, _, _demand = demanded()
    stage.pass_ms(CHALLENGE_LIFE_MS - 1)
    stage.solve()
    work = stage.said()
    stage.pass_ms(1)
    stage.reply(Command.WORK_REFUSED, work)

    assert outcomes(stage) == [RequestOutcome.WORK_FAILED]


def test_search_given_up_ends_the_request():
    """``work_stopped`` is the owner's no: no WorkOver comes back to it."""
    stage, packet, demand = demanded()
    stage.told()
    stage.client.work_stopped(demand.signature, stage.now)

    assert stage.told() == [RelayFinished(packet.signature, RequestOutcome.WORK_FAILED)]


@pytest.mark.parametrize("prepare", [begun, proving])
def test_work_that_nobody_waits_for_is_ignored(prepare):
    """A solution for an unknown challenge, or a second one, sends nothing; nor does stopping end anything."""
    stage, *rest = prepare()
    signature = rest[1].signature if prepare is proving else bytes(64)
    stage.told()
    stage.client.work_found(signature, 0, stage.now)
    stage.client.work_stopped(signature, stage.now)

    assert stage.sent() == []
    assert stage.told() == []


def test_solution_that_is_none_is_a_bug_of_the_solver():
    """Too few bits never leave: our own search must have found at least what was wanted."""
    stage, _, demand = demanded()
    bad = next(counter for counter in range(99) if not is_enough(demand.data, counter.to_bytes(8, "big"), 2))

    with pytest.raises(AssertionError):
        stage.client.work_found(demand.signature, bad, stage.now)


FOREIGN = [
    Command.HEARTBEAT_ANSWER,
    Command.LEASE_GRANTED,
    Command.LEASE_REFUSED,
    Command.LEASE_DEMANDS_WORK,
    Command.WHITELIST_DONE,
    Command.WHITELIST_DIFFERS,
    Command.WHITELIST_DEMANDS_WORK,
    Command.WORK_REFUSED,
]


@pytest.mark.parametrize("command", FOREIGN)
@pytest.mark.parametrize("prepare", [begun, demanded, proving])
def test_answers_of_another_family_are_not_asked_for(prepare, command):
    """Only 202, 402 and 602 answer a 102, and only its own 101 is refused by a 401."""
    stage, packet, *_ = prepare()
    stage.told()
    stage.reply(command, None if command is Command.HEARTBEAT_ANSWER else packet)

    assert stage.told() == [PacketDropped(Refusal.UNASKED_ANSWER, HOST.public)]


@pytest.mark.parametrize(
    ("how", "refusal"),
    [
        ({"host": STRANGER}, Refusal.WRONG_HOST),
        ({"to": FRIEND.public}, Refusal.NOT_FOR_US),
        ({"time_ms": WALL_MS - CLOCK_WINDOW_MS - 1}, Refusal.CLOCK),
        ({"time_ms": WALL_MS + CLOCK_WINDOW_MS + 1}, Refusal.CLOCK),
    ],
)
def test_answer_that_is_not_the_hosts_is_dropped(how, refusal):
    """Another signer, another recipient, or a time outside the window: nothing changes."""
    stage, packet = begun()
    stage.reply(Command.RELAY_ACCEPTED, packet, **how)

    assert stage.told() == [PacketDropped(refusal, (how.get("host") or HOST).public)]
    assert stage.client.sizes()["in_flight"] == 1


@pytest.mark.parametrize("offset_ms", [-CLOCK_WINDOW_MS, CLOCK_WINDOW_MS])
def test_answer_at_the_edge_of_the_window_is_taken(offset_ms):
    """Exactly 2^19 ms early or late passes."""
    stage, packet = begun()
    stage.reply(Command.RELAY_ACCEPTED, packet, time_ms=WALL_MS + offset_ms)

    assert outcomes(stage) == [RequestOutcome.ACCEPTED]


@pytest.mark.parametrize("at", [0, 63, 143, 207])
def test_changed_answer_is_dropped(at):
    """A bit changed in the signature, the command or the reference: dropped, and the packet still waits."""
    stage, packet = begun()
    data = bytearray(stage.answer(Command.RELAY_ACCEPTED, packet).data)
    data[at] ^= 1
    stage.hear(bytes(data))

    (dropped,) = stage.told()
    assert isinstance(dropped, PacketDropped)
    assert stage.client.sizes()["in_flight"] == 1


def test_answer_that_comes_twice_counts_once():
    """The request is over with the first 202; the second is not asked for."""
    stage, packet = begun()
    answer = stage.reply(Command.RELAY_ACCEPTED, packet)
    stage.hear(answer)

    assert stage.told() == [
        RelayFinished(packet.signature, RequestOutcome.ACCEPTED),
        PacketDropped(Refusal.UNASKED_ANSWER, HOST.public),
    ]


def test_answer_of_an_earlier_packet_does_not_serve_the_next():
    """The same text sent twice has two signatures, and a replayed 202 names only the first."""
    stage, packet = begun()
    answer = stage.reply(Command.RELAY_ACCEPTED, packet)
    stage.client.send(b"hi", FRIEND.public, stage.now)
    stage.told()
    stage.hear(answer)

    assert stage.told() == [PacketDropped(Refusal.UNASKED_ANSWER, HOST.public)]
    assert stage.said().time_ms > packet.time_ms


def test_request_is_ours_and_says_so():
    """A packet carries our key, its recipient's, our time, and the payload as it was given."""
    _, packet = begun()

    assert (packet.sender, packet.recipient, packet.time_ms) == (US.public, FRIEND.public, WALL_MS)
    assert (packet.command, packet.payload) == (Command.RELAY, b"hi")
