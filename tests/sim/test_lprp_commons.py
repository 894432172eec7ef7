"""What the people of an LPRP town share."""

from tests.sim.build_lprp import ALICE, BOB, WALL_MS, Quarter, packet
from waystation.sim import lprp_observations as seen
from waystation.sim.lprp_commons import host_address


def test_every_host_has_a_network_of_its_own():
    """Hosts stand in different /24s, so that nothing earned at one is taken for earned at another."""
    assert len({host_address(number)[0].rpartition(".")[0] for number in range(3)}) == 3


def test_clocks_agree_but_for_what_they_are_off():
    """The wall stands where the simulation begins, goes on with its time, and may be off by anything."""
    quarter = Quarter()
    quarter.run(2)

    assert quarter.commons.wall_ms() == WALL_MS + 2_000
    assert quarter.commons.wall_ms(-500) == WALL_MS + 1_500


def test_only_what_is_signed_counts_as_made():
    """A 102 is noted with its bytes; a bent copy of it, and anything else, is not."""
    quarter = Quarter()
    mail = packet(ALICE, 0x102, b"hello", recipient=BOB.public)
    for data in (mail.data, mail.data[:-1] + b"x", packet(ALICE, 0x104, bytes(64)).data, b"noise"):
        quarter.commons.made(data)

    assert quarter.of(seen.Made) == [seen.Made(mail.signature, mail.data)]
