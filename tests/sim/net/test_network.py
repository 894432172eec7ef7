"""A network without connections carries what it is given, as faulty as it is told to be."""

import random

from waystation.core.instant import Instant
from waystation.sim.net.datagram import DatagramSettings
from waystation.sim.net.network import Network
from waystation.sim.schedule import Schedule

HERE, THERE, ELSEWHERE = ("10.0.0.1", 1), ("10.0.0.2", 2), ("10.0.0.3", 3)
SECOND = 1_000_000


def make(settings=None):
    """Return a clock, a network, and what arrives at THERE."""
    schedule, got = Schedule(), []
    network = Network(schedule, random.Random(1), settings or DatagramSettings(latency_us=1_000, jitter_us=0))
    network.bind(THERE, lambda data, source: got.append((schedule.now, data, source)))
    return schedule, network, got


def test_datagram_arrives_with_the_source_it_claims():
    """One latency later the receiver has the bytes, and the address that the sender named."""
    schedule, network, got = make()

    network.send(ELSEWHERE, THERE, b"forged")
    schedule.run(Instant(SECOND))

    assert got == [(1_000, b"forged", ELSEWHERE)]


def test_nobody_hears_what_goes_to_nobody():
    """What is sent to an address that nobody has, or has no more, is lost."""
    schedule, network, got = make()

    network.send(HERE, ELSEWHERE, b"to nobody")
    network.send(HERE, THERE, b"too late")
    network.unbind(THERE)
    network.unbind(ELSEWHERE)
    schedule.run(Instant(SECOND))

    assert got == []


def test_address_belongs_to_whoever_took_it_last():
    """A second owner of an address hears what the first one would have."""
    schedule, network, got = make()
    others = []

    network.bind(THERE, lambda data, _source: others.append(data))
    network.send(HERE, THERE, b"for the new one")
    schedule.run(Instant(SECOND))

    assert (got, others) == ([], [b"for the new one"])


def test_cut_address_neither_sends_nor_receives():
    """While an address is cut off nothing leaves it and nothing reaches it, until it is healed."""
    schedule, network, got = make()

    for address in (HERE, THERE):
        network.cut(address)
        network.send(HERE, THERE, b"lost")
        network.heal(address)
    network.send(HERE, THERE, b"healed")
    schedule.run(Instant(SECOND))

    assert [data for _, data, _ in got] == [b"healed"]


def test_calm_ends_faults_and_cuts():
    """After the calm every path is as good as it says."""
    schedule, network, got = make(DatagramSettings(latency_us=1_000, jitter_us=0, loss=1.0))
    network.cut(HERE)

    network.send(HERE, THERE, b"lost")
    network.change_to(DatagramSettings(latency_us=2_000, jitter_us=0))
    network.send(HERE, THERE, b"calm")
    schedule.run(Instant(SECOND))

    assert got == [(2_000, b"calm", HERE)]


def test_paths_do_not_disturb_each_other():
    """Each pair of addresses has faults of its own: traffic on another path changes nothing on this one."""
    fates = []
    for crowd in (0, 50):
        schedule, network, got = make(DatagramSettings(latency_us=1_000, jitter_us=0, loss=0.5))
        network.send(HERE, THERE, b"first")
        for _ in range(crowd):
            network.send(ELSEWHERE, HERE, b"crowd")
        for number in range(20):
            network.send(HERE, THERE, bytes([number]))
        schedule.run(Instant(SECOND))
        fates.append([data for _, data, _ in got])

    assert fates[0] == fates[1]
    assert 0 < len(fates[0]) < 21
