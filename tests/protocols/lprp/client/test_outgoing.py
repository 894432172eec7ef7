"""Laws of protocols.lprp.outgoing, as a client's owner and its host see them."""

import pytest

from tests.protocols.lprp.build_client import EASY, FRIEND, STRANGER, Stage
from waystation.core.errors import LocalError
from waystation.protocols.lprp.client.events import RelayFinished, RequestOutcome, WorkOver, WorkWanted
from waystation.protocols.lprp.client.outgoing import CAUTIOUS_MAX, OPEN_RECIPIENTS_MAX, WAITING_MS_MAX
from waystation.protocols.lprp.client.settings import ClientSettings
from waystation.protocols.lprp.messages import Command

FEW = ClientSettings(in_flight_max=8, waiting_max=10, work_first_bits=0, bits_max=4)


def sends(stage, count, recipient=FRIEND.public):
    """Send so many packets and return what went out at once."""
    for number in range(count):
        stage.client.send(b"%d" % number, recipient, stage.now)
    return stage.sent()


def opened(settings=FEW, recipient=FRIEND.public):
    """A stage whose friend is known to take packets without work."""
    stage = Stage(settings)
    (first,) = sends(stage, 1, recipient)
    stage.reply(Command.RELAY_ACCEPTED, first)
    stage.told()
    return stage


def test_ticket_is_the_signature_of_what_goes_out():
    """``send`` names the packet before anybody has it."""
    stage = Stage()
    ticket = stage.client.send(b"hi", FRIEND.public, stage.now)

    assert stage.said().signature == ticket


def test_few_go_to_a_recipient_who_may_demand_work():
    """Three at once, the rest one by one as those end, in their order."""
    stage = Stage()
    first = sends(stage, 5)
    assert len(first) == CAUTIOUS_MAX
    assert stage.client.sizes() == {"waiting": 2, "in_flight": 3, "searching": 0, "unconfirmed": 0}
    stage.reply(Command.RELAY_REFUSED, first[0])

    assert [packet.payload for packet in stage.sent()] == [b"3"]


def test_many_go_to_a_recipient_who_took_one_without_work():
    """A 202 without a 602 opens the way for the others that wait."""
    stage = Stage()
    first = sends(stage, 40)
    stage.reply(Command.RELAY_ACCEPTED, first[0])

    assert len(stage.sent()) == 37


def test_in_flight_bound_holds_for_open_recipients():
    """Of eight in flight, three are kept for the others; with an answer the next one goes."""
    stage = opened()
    out = sends(stage, 9)
    assert len(out) == 5
    stage.reply(Command.RELAY_ACCEPTED, out[0])

    assert len(stage.sent()) == 1
    assert len(sends(stage, 4, STRANGER.public)) == 3


def test_open_recipient_does_not_wait_behind_a_closed_one():
    """Whoever demands work holds up nobody else."""
    stage = opened()
    sends(stage, 5, STRANGER.public)

    assert [packet.recipient for packet in sends(stage, 1)] == [FRIEND.public]


def test_accepted_with_work_keeps_its_recipient_cautious():
    """Work done once buys nothing for the next packet."""
    stage = Stage(FEW)
    out = sends(stage, 6)
    stage.reply(Command.RELAY_DEMANDS_WORK, out[0])
    stage.solve()
    stage.sent()
    stage.reply(Command.RELAY_ACCEPTED, out[0])

    assert len(stage.sent()) == 1


def test_recipient_who_closes_lets_packets_wait_for_their_turn():
    """Taken off a list in mid-stream: three go on with work, the others wait and go again later, each once."""
    stage = opened()
    out = sends(stage, 5)
    for packet in out:
        stage.reply(Command.RELAY_DEMANDS_WORK, packet)
    assert len(stage.told(WorkWanted)) == CAUTIOUS_MAX
    assert stage.client.sizes()["waiting"] == 2
    for packet in out[:3]:
        stage.reply(Command.RELAY_REFUSED, packet)

    assert sorted(packet.payload for packet in stage.sent()) == [b"3", b"4"]
    assert len(stage.told(RelayFinished)) == 3


def test_packets_that_wait_for_an_open_recipient_become_careful_with_it():
    """When the recipient closes, those not sent yet go three at a time like any others, and none is lost."""
    stage = opened()
    out = sends(stage, 9)
    stage.reply(Command.RELAY_DEMANDS_WORK, out[0])
    for packet in out[1:]:
        stage.reply(Command.RELAY_REFUSED, packet)
    later = stage.sent()

    assert [packet.payload for packet in later] == [b"5", b"6"]
    assert stage.client.sizes() == {"waiting": 2, "in_flight": 3, "searching": 1, "unconfirmed": 0}


def test_packets_wait_up_to_a_bound():
    """Beyond it a packet is told as not sent, and nobody sees it."""
    stage = Stage(FEW)
    sends(stage, 3 + 10)
    assert stage.told() == []
    ticket = stage.client.send(b"too much", FRIEND.public, stage.now)

    assert stage.told() == [RelayFinished(ticket, RequestOutcome.NOT_SENT)]
    assert stage.sent() == []


def test_packet_that_waited_too_long_is_not_sent():
    """Its time would be too old before it could be sent twice."""
    stage = Stage()
    out = sends(stage, 5)
    for packet in out:
        stage.reply(Command.RELAY_DEMANDS_WORK, packet)
    stage.pass_ms(WAITING_MS_MAX + 10)
    stage.told()
    stage.client.work_stopped(stage.reply(Command.RELAY_DEMANDS_WORK, out[0]).signature, stage.now)

    events = stage.told(RelayFinished)
    assert [event.outcome for event in events] == [RequestOutcome.WORK_FAILED] + [RequestOutcome.NOT_SENT] * 2
    assert stage.sent() == []


def test_every_packet_gets_one_outcome():
    """Answers of all kinds, silence, and a full queue: as many outcomes as packets, each with its own name."""
    stage = Stage(FEW)
    tickets = [stage.client.send(b"%d" % number, FRIEND.public, stage.now) for number in range(20)]
    replies = [Command.RELAY_ACCEPTED, Command.RELAY_REFUSED, Command.RELAY_DEMANDS_WORK]
    events = []
    for number in range(60):
        for packet in stage.sent():
            if packet.command is Command.RELAY and number < 40:
                stage.reply(replies[number % 3], packet)
        stage.pass_ms(5_000)
        events += stage.told()
    events += [event for _ in range(60) for event in (stage.pass_ms(20_000), stage.told())[1]]

    assert sorted(event.signature for event in events if isinstance(event, RelayFinished)) == sorted(tickets)
    assert stage.client.sizes() == {"waiting": 0, "in_flight": 0, "searching": 0, "unconfirmed": 0}


def test_memory_of_open_recipients_is_bounded():
    """Beyond the bound the one used longest ago is forgotten, and gets care again."""
    stage = opened(EASY)
    for number in range(OPEN_RECIPIENTS_MAX):
        stage.client._outgoing._trust(b"%032d" % number)

    assert len(sends(stage, 5)) == CAUTIOUS_MAX
    assert len(sends(stage, 5, b"%032d" % 7)) == 5


@pytest.mark.parametrize(("payload", "recipient"), [(bytes(365), FRIEND.public), (b"", b"short"), (b"", bytes(33))])
def test_packet_that_cannot_be_is_refused_at_once(payload, recipient):
    """365 bytes, or a key of another length, is the caller's mistake."""
    with pytest.raises(LocalError):
        Stage().client.send(payload, recipient, Stage().now)


def test_longest_packet_goes_out_whole():
    """364 bytes make a packet of 508."""
    stage = Stage()
    stage.client.send(bytes(364), FRIEND.public, stage.now)

    assert len(stage.said().data) == 508


def test_search_of_a_packet_sent_back_to_wait_is_stopped():
    """A demand that comes for a packet which must wait starts no search, so none is left over."""
    stage = opened()
    for packet in sends(stage, 5):
        stage.reply(Command.RELAY_DEMANDS_WORK, packet)
    events = stage.told()

    assert not [event for event in events if isinstance(event, WorkOver)]
    assert stage.client.sizes()["searching"] == CAUTIOUS_MAX
