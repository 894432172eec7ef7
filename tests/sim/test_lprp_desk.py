"""A desk drives one client machine, as its owner's computer would."""

import random

from tests.sim.build_lprp import ALICE, BOB, HERE, THERE, Quarter
from waystation.protocols.lprp.client_clock import PacketClock
from waystation.protocols.lprp.client_events import LeaseGranted, RelayFinished
from waystation.protocols.lprp.seen_packets import SeenInMemory
from waystation.sim import lprp_observations as seen
from waystation.sim.lprp_desk import Desk


class Owner:
    """Somebody with a desk, who notes what it tells."""

    def __init__(self, key=ALICE, address=HERE):
        self.quarter, self.events = Quarter(), []
        self.desk = Desk(
            self.quarter.commons,
            random.Random(4),
            key,
            0,
            PacketClock(),
            SeenInMemory(),
            lambda _desk, event: self.events.append(event),
        )
        self.desk.open(address, 0)

    def ask(self):
        """Ask for a lease and wait a while."""
        self.desk.machine.ask_lease(self.quarter.schedule.now)
        self.desk.settle()
        self.quarter.run(11)

    def commands(self):
        """Return what the host heard, as (command, source)."""
        return [(each.packet.command, each.address) for each in self.quarter.of(seen.Heard) if each.packet]


def test_desk_works_until_it_has_a_lease():
    """The desk searches for what the machine wants, and hands it in."""
    owner = Owner()
    owner.ask()

    assert [type(event) for event in owner.events if isinstance(event, LeaseGranted)] == [LeaseGranted]
    assert {command for command, _ in owner.commands()} >= {0x104, 0x101, 0x100}


def test_moved_desk_speaks_from_its_new_address():
    """After a move everything goes out from the new address and comes in at it."""
    owner = Owner()
    owner.ask()
    owner.desk.move(THERE)
    owner.quarter.run(20)
    sources = [address for command, address in owner.commands() if command == 0x100]

    assert sources[-1] == THERE
    assert owner.quarter.of(seen.Said)[-1].address == THERE


def test_sleeping_desk_says_nothing_and_goes_on_later():
    """While it sleeps nothing leaves and nothing comes in; afterwards the machine is the same."""
    owner = Owner()
    owner.ask()
    machine, count = owner.desk.machine, len(owner.commands())
    owner.desk.close_lid()
    owner.quarter.run(30)
    assert len(owner.commands()) == count

    owner.desk.open_lid()
    owner.quarter.run(1)
    assert len(owner.commands()) > count
    assert owner.desk.machine is machine


def test_closed_desk_is_gone_and_opens_anew():
    """A life ends with everything that was under way; the next one has another machine."""
    owner = Owner()
    machine = owner.desk.machine
    machine.send(b"payload", BOB.public, owner.quarter.schedule.now)
    owner.desk.close()
    owner.quarter.run(30)
    assert owner.commands() == []

    assert owner.desk.open(HERE, 0) is not machine
    assert owner.desk.life == 2


def test_later_is_for_this_life_only():
    """What was meant for one machine never reaches the next one."""
    owner, met = Owner(), []
    owner.desk.later(1_000, met.append)
    owner.desk.close()
    owner.desk.open(HERE, 0)
    owner.desk.later(2_000, met.append)
    owner.quarter.run(1)

    assert met == [owner.desk.machine]


def test_nobody_but_the_host_reaches_the_machine():
    """The socket is connected: what claims to come from elsewhere is not even looked at."""
    owner = Owner()
    owner.quarter.commons.network.send(THERE, HERE, bytes(208))
    owner.quarter.commons.network.send(owner.quarter.houses[0].address, HERE, bytes(20))
    owner.quarter.run(1)
    owner.desk.settle()

    assert [getattr(event, "refusal", None) is not None for event in owner.events] == [True]


def test_wrong_clock_is_not_understood():
    """A desk whose clock is off by more than the window hears no answer, until it is set right."""
    owner = Owner()
    owner.desk.step(600_000)
    ticket = owner.desk.machine.send(bytes(64), BOB.public, owner.quarter.schedule.now)
    owner.desk.settle()
    owner.quarter.run(2)
    assert owner.quarter.of(seen.Said) == []

    owner.desk.step(0)
    other = owner.desk.machine.send(bytes(64), BOB.public, owner.quarter.schedule.now)
    owner.desk.settle()
    owner.quarter.run(2)
    finished = [event.signature for event in owner.events if isinstance(event, RelayFinished)]
    assert ticket not in finished
    assert other in finished
