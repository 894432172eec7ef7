"""The laws' own reading of packets agrees with the node's codec, which it does not use."""

import random

import pytest

from tests.sim.lprp.build import ALICE, BOB, HOST, WALL_MS, packet
from waystation.protocols.lprp.messages import Command
from waystation.protocols.lprp.whitelist import whitelist_hash
from waystation.protocols.lprp.wire import REQUESTS, Codec, packet_sizes
from waystation.protocols.lprp.work import leading_zero_bits, work_hash
from waystation.sim.lprp.packets import (
    ANSWERS,
    WINDOW_MS,
    is_fresh_request,
    make_packet,
    prefix_of,
    read_packet,
    set_hash,
    work_bits,
)


@pytest.mark.parametrize("command", list(Command))
def test_two_codecs_agree(command):
    """What is made here is what the node's codec makes, and is read back the same."""
    payload = bytes(min(packet_sizes(command)) - 144)
    ours = make_packet(ALICE, HOST.public, int(command), payload, WALL_MS)
    read = read_packet(ours)

    assert ours == Codec().seal(ALICE, HOST.public, command, payload, WALL_MS).data
    assert (read.sender, read.recipient, read.command, read.payload) == (ALICE.public, HOST.public, command, payload)
    assert read.is_signed_by(ALICE.public)
    assert not read.is_signed_by(BOB.public)


@pytest.mark.parametrize("size", [0, 143, 509, 2_000])
def test_nothing_is_read_from_the_wrong_length(size):
    """A datagram shorter or longer than any packet is none."""
    assert read_packet(bytes(size)) is None


def test_first_stage_is_that_of_the_host():
    """Over noise and good packets of every length, direction and time, both sides look further at the same ones."""
    rng, codec = random.Random(1), Codec()
    for _ in range(2_000):
        command = rng.choice([*map(int, Command), 7])
        size = rng.choice((0, 63, 64, 65, 96, 352, 353, 364, rng.randrange(365)))
        time_ms = WALL_MS + rng.choice((0, WINDOW_MS, -WINDOW_MS, WINDOW_MS + 1, -WINDOW_MS - 1))
        data = rng.randbytes(64) + time_ms.to_bytes(8, "big") + bytes(64) + command.to_bytes(8, "big") + bytes(size)

        assert is_fresh_request(read_packet(data), WALL_MS) == (codec.screen(data, WALL_MS) is None)


def test_every_answer_belongs_to_a_request():
    """Each command of a host but relayed mail names what it answers, and only requests are answered."""
    assert set(ANSWERS) == {int(command) for command in Command if command not in REQUESTS}
    assert {asked for each in ANSWERS.values() for asked in each} <= {int(command) for command in REQUESTS}


def test_work_and_whitelists_are_hashed_alike():
    """Bits of work and hashes of lists are those that the node computes."""
    rng = random.Random(2)
    demand = packet(HOST, 0x604, rng.randbytes(64), recipient=ALICE.public)
    keys = frozenset(rng.randbytes(32) for _ in range(9))
    for size in (0, 8, 300):
        solution = rng.randbytes(size)
        assert work_bits(demand.data, solution) == leading_zero_bits(work_hash(demand.data, solution))

    assert set_hash(keys) == whitelist_hash(keys)
    assert set_hash(frozenset()) == whitelist_hash([])


def test_prefixes_are_networks():
    """IPv4 counts by /24, IPv6 by /56, and IPv4 inside IPv6 as IPv4."""
    assert prefix_of("10.1.2.3") == prefix_of("10.1.2.255") == prefix_of("::ffff:10.1.2.4") != prefix_of("10.1.3.3")
    assert prefix_of("2001:db8::1") == prefix_of("2001:db8:0:ff::9") != prefix_of("2001:db8:0:100::1")
    assert prefix_of("::1") != prefix_of("0.0.0.1")
