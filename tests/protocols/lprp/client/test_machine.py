"""Laws of protocols.lprp.client: what every state does with every packet, and what gets through a bad network."""

import random
from itertools import product

import pytest

from tests.protocols.lprp.build_client import (
    CODEC,
    EASY,
    FRIEND,
    HOST,
    PEER,
    STRANGER,
    US,
    WALL_MS,
    Stage,
    counter_of,
    mail,
)
from tests.protocols.lprp.build_dumb_host import DumbHost, Net
from waystation.core.effects import Peer
from waystation.core.instant import Instant
from waystation.protocols.lprp.client.clock import PacketClock
from waystation.protocols.lprp.client.events import (
    HostAnswered,
    LeaseDoubted,
    LeaseGranted,
    LeaseRefused,
    PacketArrived,
    PacketDropped,
    RelayFinished,
    RequestOutcome,
    WhitelistAgreed,
    WorkOver,
    WorkWanted,
)
from waystation.protocols.lprp.client.settings import ClientSettings
from waystation.protocols.lprp.messages import Command, Kind
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.wire import REQUESTS

KEYS = frozenset({FRIEND.public})


def idle(stage):
    return None


def asking_lease(stage):
    stage.client.ask_lease(stage.now)
    return stage.said()


def updating(stage):
    stage.client._whitelist.agreed = frozenset()
    stage.client.want_whitelist(KEYS, stage.now)
    return stage.said()


def clearing(stage):
    stage.client.clear_whitelist(stage.now)
    return stage.said()


def relaying(stage):
    stage.client.send(b"hi", FRIEND.public, stage.now)
    return stage.said()


def beating(stage):
    stage.client.hold_lease(stage.now)
    return stage.said()


def searching(begin, demand):
    def prepare(stage):
        request = begin(stage)
        stage.reply(demand, request)
        return request

    return prepare


def proving(begin, demand):
    def prepare(stage):
        searching(begin, demand)(stage)
        stage.solve()
        return stage.said()

    return prepare


C = Command
DEMANDS = {asking_lease: C.LEASE_DEMANDS_WORK, updating: C.WHITELIST_DEMANDS_WORK, relaying: C.RELAY_DEMANDS_WORK}
ENDS = {
    asking_lease: (C.LEASE_GRANTED, C.LEASE_REFUSED),
    updating: (C.WHITELIST_DONE, C.WHITELIST_DIFFERS),
    relaying: (C.RELAY_ACCEPTED, C.RELAY_REFUSED),
}
STATES = {
    "idle": (idle, ()),
    "beating": (beating, (C.HEARTBEAT_ANSWER,)),
    "clearing": (clearing, (C.WHITELIST_DONE,)),
    **{f"{begin.__name__} asking": (begin, (*ENDS[begin], DEMANDS[begin])) for begin in ENDS},
    **{
        f"{begin.__name__} searching": (searching(begin, DEMANDS[begin]), (*ENDS[begin], DEMANDS[begin]))
        for begin in ENDS
    },
    **{f"{begin.__name__} proving": (proving(begin, DEMANDS[begin]), (C.WORK_REFUSED,)) for begin in ENDS},
}
"""What the host may say in each state to the packet sent last."""


@pytest.mark.parametrize(("state", "command"), list(product(STATES, Command)))
def test_every_state_takes_what_was_asked_for_and_nothing_else(state, command):
    """Each command in each state: an answer that was asked for moves it on, all else is dropped and changes nothing."""
    prepare, wanted = STATES[state]
    stage = Stage(ClientSettings(work_first_bits=1, bits_max=8))
    last = prepare(stage)
    stage.told()
    stage.now_ms += 5
    before = (stage.client.sizes(), stage.client.deadline())
    size = 208 if command not in (C.HEARTBEAT, C.HEARTBEAT_ANSWER) else 144
    payload = b"" if size == 144 else (last.signature if last is not None else bytes(64))
    stage.hear(CODEC.seal(HOST, US.public, command, payload, WALL_MS + stage.now_ms))
    events = stage.told()

    if command in wanted:
        assert not [event for event in events if isinstance(event, PacketDropped)]
        assert events or stage.sent() or (stage.client.sizes(), stage.client.deadline()) != before
        return
    if command is C.RELAY:
        assert [type(event) for event in events] == [PacketArrived]  # the host writing to us as anybody may
        return
    refusal = Refusal.WRONG_DIRECTION if command in REQUESTS else Refusal.UNASKED_ANSWER
    assert events == [PacketDropped(refusal, HOST.public)]
    assert stage.sent() == []
    assert (stage.client.sizes(), stage.client.deadline()) == before


@pytest.mark.parametrize("state", [name for name, (_, wanted) in STATES.items() if wanted])
@pytest.mark.parametrize("forger", [STRANGER, US, FRIEND])
def test_no_state_listens_to_another_key(state, forger):
    """Whoever signs as himself is not the host; whoever signs as the host does not hold its key."""
    prepare, wanted = STATES[state]
    stage = Stage(ClientSettings(work_first_bits=1, bits_max=8))
    last = prepare(stage)
    stage.told()
    before = (stage.client.sizes(), stage.client.deadline())
    for command in wanted:
        payload = b"" if command is C.HEARTBEAT_ANSWER else last.signature
        own = CODEC.seal(forger, US.public, command, payload, WALL_MS + 5)
        stage.hear(own)
        stage.hear(own.data[:72] + HOST.public + own.data[104:])

    refusals = [event.refusal for event in stage.told(PacketDropped)]
    assert refusals == [Refusal.WRONG_HOST, Refusal.BAD_SIGNATURE] * len(wanted)
    assert (stage.client.sizes(), stage.client.deadline()) == before
    assert stage.sent() == []


@pytest.mark.parametrize(
    ("data", "refusal"),
    [
        (b"", Refusal.LENGTH),
        (bytes(143), Refusal.LENGTH),
        (bytes(509), Refusal.LENGTH),
        (bytes(65_507), Refusal.LENGTH),
        (bytes(144), Refusal.UNKNOWN_COMMAND),
        (mail().data[:136] + (0x202).to_bytes(8, "big") + bytes(63), Refusal.COMMAND_LENGTH),
    ],
)
def test_datagram_of_no_good_form_is_dropped(data, refusal):
    """Any bytes may arrive; what they are not is told, and nothing else happens."""
    stage = Stage()
    stage.hear(data)

    assert stage.told() == [PacketDropped(refusal, None)]
    assert stage.sent() == []


def test_ten_thousand_random_datagrams_change_nothing():
    """Noise of 0 to 600 bytes: no answer, no event but drops, no deadline."""
    stage, rng = Stage(), random.Random(3)
    for _ in range(10_000):
        stage.hear(rng.randbytes(rng.randrange(600)))

    assert {type(event) for event in stage.told()} == {PacketDropped}
    assert stage.sent() == []
    assert stage.client.deadline() is None


def test_nothing_is_said_unasked():
    """A new client that is connected keeps silent."""
    stage = Stage()

    assert stage.sent() == []
    assert stage.client.deadline() is None
    assert stage.told() == []


def test_other_connections_are_not_listened_to():
    """A datagram over a way that is no longer ours is not looked at."""
    stage = Stage()
    stage.client.receive(Peer(5), mail().data, stage.now)

    assert stage.told() == []


def test_without_a_way_to_the_host_time_goes_on():
    """What is sent meanwhile is lost as datagrams are; with a new way the next try goes out over it."""
    stage = Stage(connected=False)
    stage.client.send(b"hi", FRIEND.public, stage.now)
    assert stage.pass_ms(2_999) == []
    stage.client.connect(PEER, stage.now)

    ((at, packet),) = stage.pass_ms(1)
    assert (at, packet.command) == (3_000, Command.RELAY)


def test_disconnect_of_another_way_changes_nothing():
    """An old way that ends late does not take the new one along."""
    stage = Stage()
    stage.client.disconnect(Peer(5), stage.now)
    stage.client.send(b"hi", FRIEND.public, stage.now)

    assert stage.said().command is Command.RELAY
    stage.client.disconnect(PEER, stage.now)
    assert stage.pass_ms(5_000) == []


def test_congestion_means_nothing():
    """A datagram waits nowhere that the machine would care about."""
    stage = Stage()
    stage.client.congested(PEER, stage.now)
    stage.client.drained(PEER, stage.now)

    assert stage.sent() == []
    assert stage.told() == []


def test_changes_go_one_at_a_time():
    """A 108 waits for the 104 before it: the host takes such a change only if it is newer than the last (LPRP-D14)."""
    stage = Stage(known_whitelist=frozenset())
    stage.client.ask_lease(stage.now)
    ask = stage.said()
    stage.client.want_whitelist(KEYS, stage.now)
    assert stage.sent() == []
    stage.reply(Command.LEASE_GRANTED, ask)

    asked_for = [packet for packet in stage.sent() if packet.command is not Command.HEARTBEAT]
    assert [packet.command for packet in asked_for] == [Command.UPDATE_WHITELIST]
    assert asked_for[0].time_ms > ask.time_ms


@pytest.mark.parametrize("begin", ["want", "clear", "compare"])
def test_lease_comes_before_a_change_under_way(begin):
    """A 104 takes the place of a 108 or 808 that the host may drop in silence; behind the lease it is gone on with."""
    stage = Stage(known_whitelist=frozenset())
    commands = {
        "want": lambda: stage.client.want_whitelist(KEYS, stage.now),
        "clear": lambda: stage.client.clear_whitelist(stage.now),
        "compare": lambda: stage.client.compare_whitelist(stage.now),
    }
    commands[begin]()
    change = stage.said()
    stage.client.ask_lease(stage.now)
    ask = stage.said()
    stage.reply(Command.WHITELIST_DONE, change)
    dropped = [event.refusal for event in stage.told(PacketDropped)]
    stage.reply(Command.LEASE_GRANTED, ask)

    assert ask.command is Command.ASK_LEASE
    assert dropped == [Refusal.UNASKED_ANSWER]
    assert [packet.command for packet in stage.sent()] == [Command.UPDATE_WHITELIST]


def test_work_is_remembered_per_kind():
    """What an earlier client learned is where this one begins."""
    stage = Stage(ClientSettings(bits_max=8), bits={Kind.LEASE: 5})
    stage.reply(Command.LEASE_DEMANDS_WORK, asking_lease(stage))

    assert [event.bits for event in stage.told(WorkWanted)] == [5]


def test_clock_of_an_earlier_client_goes_on():
    """A shared clock gives the next client later times, even with the wall clock set back."""
    clock = PacketClock(WALL_MS + 9_999)
    packet = relaying(Stage(clock=clock))

    assert packet.time_ms == WALL_MS + 10_000
    assert clock.last_ms == WALL_MS + 10_000


def test_wall_clock_before_the_epoch_is_survived():
    """A machine whose clock says 1960 still makes packets, which hosts will drop."""
    stage = Stage()
    stage.client.set_wall(stage.now, -10_000_000_000)

    assert relaying(stage).time_ms == 1


def test_one_seed_gives_one_run():
    """The same inputs give the same bytes, twice."""

    def run():
        net = Net(DumbHost(charges=True), seed=5, loss=0.2, doubling=0.1, delay_ms=300)
        net.stage.client.ask_lease(net.stage.now)
        net.stage.client.want_whitelist(KEYS, net.stage.now)
        for number in range(10):
            net.stage.client.send(b"%d" % number, FRIEND.public, net.stage.now)
        net.run(60_000, step_ms=100)
        return net.events, net.said_count

    assert run() == run()


@pytest.mark.parametrize("seed", range(3))
def test_packets_get_through_a_bad_network(seed):
    """Loss, doubling and reordering both ways: each packet accepted is at the host once, and all are accepted."""
    net = Net(DumbHost(), seed=seed, loss=0.2, doubling=0.1, delay_ms=300, settings=EASY)
    tickets = [net.stage.client.send(b"%d" % number, FRIEND.public, net.stage.now) for number in range(40)]
    net.run(200_000, step_ms=100)

    assert [event.outcome for event in net.told(RelayFinished)] == [RequestOutcome.ACCEPTED] * 40
    assert sorted(packet.signature for packet in net.host.accepted) == sorted(tickets)


@pytest.mark.parametrize("seed", range(3))
def test_mail_arrives_once_over_a_bad_network(seed):
    """Loss, doubling and reordering both ways: each packet is told once, and the host's queue ends empty."""
    net = Net(DumbHost(), seed=seed, loss=0.2, doubling=0.2, delay_ms=900, settings=EASY)
    packets = [mail(b"%d" % number) for number in range(60)]
    for packet in packets:
        net.deliver_mail(packet)
    net.run(60_000, step_ms=100)

    assert sorted(event.packet for event in net.told(PacketArrived)) == sorted(packets)
    assert net.host.queue == {}


def test_lease_and_list_come_to_be_over_a_bad_network():
    """From nothing to a tenant with a list, with a third of all datagrams lost."""
    net = Net(DumbHost(charges=True), seed=2, loss=0.3, delay_ms=300, settings=EASY)
    net.stage.client.ask_lease(net.stage.now)
    net.stage.client.want_whitelist(KEYS, net.stage.now)
    net.run(200_000, step_ms=100)

    assert len(net.told(LeaseGranted)) == 1
    assert net.told(WhitelistAgreed) == [WhitelistAgreed(KEYS)]
    assert net.told(HostAnswered)


def test_host_that_restarts_in_the_middle_of_work_gets_new_work():
    """The challenge is gone with the host's memory: the request is asked again and ends well."""
    net = Net(DumbHost(), seed=4, settings=EASY)
    hear = net.host.hear

    def forgetful(data, wall_ms):
        answers = hear(data, wall_ms)
        if wall_ms < WALL_MS + 10_000:
            net.host.restart()
        return answers

    net.host.hear = forgetful
    net.stage.client.ask_lease(net.stage.now)
    net.stage.client.send(b"hi", FRIEND.public, net.stage.now)
    net.run(40_000)

    assert [event.outcome for event in net.told(RelayFinished)] == [RequestOutcome.ACCEPTED]
    assert len(net.told(LeaseGranted)) == 1
    assert net.told(LeaseRefused) == []


def test_host_away_for_minutes_is_found_again():
    """A host that restarts slowly is doubted, and believed again with its first answer."""
    net = Net(DumbHost(), settings=EASY)
    net.stage.client.ask_lease(net.stage.now)
    net.run(30_000)
    hear, net.host.hear = net.host.hear, lambda data, wall_ms: []
    net.run(200_000)
    assert len(net.told(LeaseDoubted)) == 1
    net.host.hear = hear
    net.events.clear()
    net.run(30_000)

    assert net.told(HostAnswered)
    assert not net.stage.client.is_doubted


def test_hostile_host_gets_bounded_work():
    """A host that answers everything with a demand or a 401 gets a bounded number of searches and of datagrams."""
    stage = Stage(EASY)
    stage.client.ask_lease(stage.now)
    stage.client.send(b"hi", FRIEND.public, stage.now)
    searches = said = 0
    for _ in range(2_000):
        stage.now_ms += 1_000
        stage.client.wake(stage.now)
        for packet in stage.sent():
            said += 1
            if packet.command is Command.WORK:
                stage.reply(Command.WORK_REFUSED, packet)
            elif packet.command in (Command.RELAY, Command.ASK_LEASE):
                is_relay = packet.command is Command.RELAY
                stage.reply(Command.RELAY_DEMANDS_WORK if is_relay else Command.LEASE_DEMANDS_WORK, packet)
        for event in stage.told():
            if isinstance(event, WorkWanted):
                searches += 1
                assert event.bits <= EASY.bits_max
                stage.client.work_found(event.challenge_signature, counter_of(event), stage.now)
            assert not isinstance(event, WorkOver)

    # 2, 4, 6, 8 bits for the packet and for each lease asked for, which is done less and less often.
    assert searches <= 4 * 9
    assert said <= 2 * 5 * 9


def test_what_was_never_asked_is_refused_loudly():
    """A client asks neither for commits nor for checks."""
    client = Stage().client
    with pytest.raises(AssertionError):
        client.committed(1, Instant(0))
    with pytest.raises(AssertionError):
        client.verified(1, [0], Instant(0))
