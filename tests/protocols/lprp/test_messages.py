"""Laws of protocols.lprp.messages."""

import pytest

from tests.protocols.lprp.build import LENGTHS, VECTORS, vector
from waystation.protocols.lprp import messages
from waystation.protocols.lprp.messages import Command, Kind
from waystation.protocols.lprp.wire import Codec


def test_codes_are_those_of_the_digest():
    """Eighteen commands and no more (specs/lprp.md 3)."""
    assert {int(command) for command in Command} == set(LENGTHS)
    assert len(Command) == 18


def test_code_is_one_class_and_one_family():
    """Every code is one class over one family bit, so that an answer shows what it answers."""
    assert {command & ~0xFF for command in Command} == {0x100, 0x200, 0x400, 0x600, 0x800}
    assert {command & 0xFF for command in Command} == {0, 1, 2, 4, 8}


@pytest.mark.parametrize("command", [command for command in Command if command & ~0xFF in {0x200, 0x400, 0x600}])
def test_name_of_an_answer_follows_its_class(command):
    """A demand is called one, and a refusal has no name of consent."""
    demands, refuses = command & ~0xFF == 0x600, command & ~0xFF == 0x400

    assert ("DEMANDS_WORK" in command.name) == demands
    assert command.name.endswith(("_REFUSED", "_DIFFERS")) == refuses


def test_kind_demands_by_the_command_of_its_family():
    """Work is demanded with 602, 604 and 608."""
    assert {kind: int(kind.demand) for kind in Kind} == {Kind.RELAY: 0x602, Kind.LEASE: 0x604, Kind.WHITELIST: 0x608}


def test_numbers_are_those_of_the_digest():
    """Header 144, packet up to 508, payload up to 364, S up to 300, an answer 208 (specs/lprp.md 2 and 3)."""
    assert messages.HEADER_BYTES == messages.PACKET_BYTES_MIN == 64 + 8 + 32 + 32 + 8 == 144
    assert (messages.PACKET_BYTES_MAX, messages.PAYLOAD_BYTES_MAX) == (508, 364)
    assert (messages.REFERENCE_BYTES, messages.REPLY_BYTES, messages.SOLUTION_BYTES_MAX) == (64, 208, 300)
    assert messages.REPLY_BYTES + messages.SOLUTION_BYTES_MAX == messages.PACKET_BYTES_MAX
    assert messages.UPDATE_KEYS_MAX == 10


def test_times_are_those_of_the_digest():
    """The window is that of the vectors; challenge, stale address and mail of an expired lease have powers of two."""
    assert messages.CLOCK_WINDOW_MS == VECTORS["profile"]["window_ms"] == 2**19
    assert messages.CHALLENGE_LIFE_MS == 2**19
    assert (messages.STALE_ADDRESS_MS, messages.KEEP_AFTER_LEASE_MS) == (2**17, 2**25)
    assert (messages.C1_DEFAULT_MS, messages.WINDOW_PACKETS) == (2_000, 16)


def test_reference_is_the_front_of_the_payload():
    """A 101 names its challenge in front of its solution, an answer names its request with all it has."""
    work, answer, empty = (Codec().read(vector(name)) for name in ("lease_work", "lease_accepted", "relay_empty"))

    assert work.reference == vector("lease_demand_work")[:64]
    assert answer.reference == answer.payload == vector("lease_request")[:64]
    assert empty.reference == b""


def test_packet_cannot_change():
    """A packet that was read stays what was read."""
    packet = Codec().read(vector("heartbeat"))

    with pytest.raises(AttributeError):
        packet.time_ms = 0
