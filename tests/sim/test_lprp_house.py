"""A host of a town is a real one, and everything on its wires is seen."""

from tests.sim.build_lprp import ALICE, HERE, QUIET, Quarter
from waystation.core.records import Record
from waystation.sim import lprp_observations as seen
from waystation.sim.lprp_house import WatchedStore
from waystation.sim.lprp_packets import make_packet, work_bits
from waystation.store.memory import MemoryStore

ASK, WORK, BEAT = 0x104, 0x101, 0x100


def ask(quarter, host, command, payload=b"", time_ms=None):
    """Send a packet of Alice's to a host, and give it time to answer; return what it said last."""
    wall_ms = quarter.commons.wall_ms() if time_ms is None else time_ms
    data = make_packet(ALICE, quarter.commons.host_keys[host], command, payload, wall_ms)
    quarter.commons.network.send(HERE, quarter.houses[host].address, data)
    quarter.run(1)
    said = quarter.of(seen.Said)
    return said[-1] if said else None


def lease(quarter, host=0):
    """Have Alice get a lease."""
    demand = ask(quarter, host, ASK, bytes(64)).packet
    counter = 0
    while work_bits(demand.data, counter.to_bytes(8, "big")) < QUIET.base_bits:
        counter += 1
    return ask(quarter, host, WORK, demand.signature + counter.to_bytes(8, "big"))


def test_host_demands_work_and_grants_a_lease():
    """The whole way from 104 to 204 stands in the observations, signed by the host."""
    quarter = Quarter()
    granted = lease(quarter)

    assert granted.packet.command == 0x204
    assert granted.is_signed
    assert granted.address == HERE
    assert [each.packet.command for each in quarter.of(seen.Heard)] == [ASK, WORK]


def test_noise_is_heard_as_noise():
    """What no host looks at further is observed without a packet, and answered by silence."""
    quarter = Quarter()
    quarter.commons.network.send(HERE, quarter.houses[0].address, bytes(300))
    quarter.run(1)

    assert [(each.size, each.packet) for each in quarter.of(seen.Heard)] == [(300, None)]
    assert quarter.of(seen.Said) == []


def test_lease_outlives_a_crash():
    """After a crash the host shows the lease that it granted, and begins another life."""
    quarter = Quarter()
    lease(quarter)
    quarter.houses[0].crash(1_000)
    quarter.run(1)
    began = [each for each in quarter.of(seen.HostBegan) if each.host == 0]

    assert [each.life for each in began] == [1, 2]
    assert list(began[1].views) == [ALICE.public]
    assert ask(quarter, 0, BEAT).packet.command == 0x200


def test_node_that_is_down_hears_nothing():
    """What arrives between two lives is lost, gathered or not."""
    quarter = Quarter()
    quarter.houses[0].crash(5_000_000)

    assert ask(quarter, 0, ASK, bytes(64)) is None
    assert quarter.of(seen.Heard) == []


def test_clock_of_a_host_can_be_wrong():
    """A step of the clock moves what is in time, and is set right again."""
    quarter = Quarter()
    house = quarter.houses[0]
    house.step(600_000)

    assert house.wall_ms == quarter.commons.wall_ms() + 600_000
    assert ask(quarter, 0, ASK, bytes(64)) is None

    house.right()
    assert ask(quarter, 0, ASK, bytes(64)).packet.command == 0x604
    assert [each.step_ms for each in quarter.of(seen.Clocked)] == [600_000, -600_000]


def test_hosts_are_different_hosts():
    """Each has its key, and a lease at one is none at the other."""
    quarter = Quarter()
    lease(quarter)
    for house in quarter.houses:
        house.measure("trouble")

    assert len(set(quarter.commons.host_keys)) == 2
    assert [list(each.views) for each in quarter.of(seen.Measured)] == [[ALICE.public], []]


def test_watched_store_knows_what_was_ever_written():
    """Whatever stood in a value is known after it was removed; what was never committed is not."""
    store = WatchedStore(MemoryStore())
    store.commit([Record("t", b"k", b"before the signature after")])
    store.commit([Record("t", b"k", None)])

    assert store.has_written(b"signature")
    assert not store.has_written(b"nothing")
    assert store.get("t", b"k") is None
    assert list(store.scan("t")) == []
