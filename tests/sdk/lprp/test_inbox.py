"""Laws of what becomes of packets: kept before they are confirmed, and what they hold understood."""

import asyncio
import sqlite3

import pytest

from tests.sdk.lprp.build import run
from waystation.core.errors import HostError
from waystation.crypto.signing import KeyPair
from waystation.protocols.lprp.messages import Command
from waystation.protocols.lprp.payload.fragments import Fragment, cut, read_fragment
from waystation.protocols.lprp.payload.sealing import ONE_TIME_PLAINTEXT_MAX, seal_once
from waystation.protocols.lprp.wire import Codec
from waystation.sdk.lprp.inbox import Inbox
from waystation.sdk.lprp.mail import Mail
from waystation.sdk.lprp.state import LprpState

BOB = KeyPair.from_seed(b"b" * 32)
ID = b"i" * 16
LIFE_MS = 100_000


class Rig:
    """An inbox over a folder, and what it tells."""

    def __init__(self, home):
        self.state = LprpState(home)
        self.mail = Mail(self.state, life_ms=LIFE_MS)
        self.confirmed = []
        self.handed_back = []
        self.refusals = []
        self.inbox = Inbox(
            self.state,
            self.mail,
            confirm=lambda signatures: self.confirmed.append((list(signatures), self.mail.positions())),
            hand_back=self.handed_back.extend,
            refused=self.refusals.append,
        )

    def packet(self, payload):
        """Return a packet of Bob to the owner of the folder."""
        return Codec().seal(BOB, self.state.identity, Command.RELAY, payload, self.state.now_ms())

    def seal(self, plaintext):
        """Return a payload that only the owner reads."""
        return seal_once(plaintext, BOB.public, self.state.identity, ephemeral_secret=b"e" * 32)

    async def settle(self):
        """Let everything that is due in this turn and the next happen."""
        for _ in range(3):
            await asyncio.sleep(0)


@pytest.fixture
def in_rig(tmp_path):
    """Run a scenario with a rig in a loop."""

    def run_in(scenario):
        async def with_rig():
            rig = Rig(tmp_path)
            try:
                return await scenario(rig)
            finally:
                rig.inbox.end()
                rig.state.close()

        return run(with_rig)

    return run_in


def test_packets_of_one_turn_are_on_disk_before_they_are_confirmed_together(in_rig):
    """When a confirmation goes out, the message is there already; one turn is one confirmation."""

    async def scenario(rig):
        packets = [rig.packet(bytes([number]) * 70) for number in range(3)]
        for packet in packets:
            rig.inbox.take(packet)
        at_once = list(rig.confirmed)
        await rig.settle()
        return at_once, rig.confirmed, [packet.signature for packet in packets], rig.mail.has(packets[0].signature)

    at_once, confirmed, signatures, known = in_rig(scenario)

    assert at_once == []
    assert confirmed == [(signatures, [1, 2, 3])]
    assert known


def test_parts_are_confirmed_as_they_come_and_make_one_message(in_rig):
    """Every part is kept by itself; in any order and twice they make the message once."""

    async def scenario(rig):
        parts = cut(b"x" * 700, ONE_TIME_PLAINTEXT_MAX, ID)
        for part in [*reversed(parts), *parts]:
            rig.inbox.take(rig.packet(rig.seal(part)))
        await rig.settle()
        (position,) = rig.mail.positions()
        return len(rig.confirmed[0][0]), rig.mail.message(position), rig.mail.parts.parts_count

    count, message, parts = in_rig(scenario)

    assert count == 6
    assert (message.data, message.id, message.sealed) == (b"x" * 700, ID, True)
    assert parts == 0


def test_parts_of_before_a_restart_count(tmp_path):
    """What one life has confirmed and the next one completes is one message."""
    parts = cut(b"x" * 700, ONE_TIME_PLAINTEXT_MAX, ID)

    async def life(some):
        rig = Rig(tmp_path)
        try:
            for part in some:
                rig.inbox.take(rig.packet(rig.seal(part)))
            await rig.settle()
            return [rig.mail.message(position).data for position in rig.mail.positions()]
        finally:
            rig.inbox.end()
            rig.state.close()

    assert run(lambda: life(parts[:2])) == []
    assert run(lambda: life(parts[2:])) == [b"x" * 700]


def test_message_that_lies_whole_in_parts_comes_at_the_start(tmp_path):
    """Parts that are all here make their message, whoever has put them there without doing so."""
    state = LprpState(tmp_path)
    held = Mail(state, life_ms=LIFE_MS).parts
    with state.transaction():
        for part in cut(b"x" * 700, ONE_TIME_PLAINTEXT_MAX, ID):
            held.put(BOB.public, read_fragment(part))
    state.close()

    async def scenario():
        rig = Rig(tmp_path)
        (position,) = rig.mail.positions()
        found = (rig.mail.message(position).data, rig.mail.waiting_count, rig.mail.parts.parts_count)
        rig.state.close()
        return found

    assert run(scenario) == (b"x" * 700, 1, 0)


def test_part_without_room_is_handed_back_and_the_rest_of_its_batch_kept(in_rig, monkeypatch):
    """A part beyond the limit stays with the host, and is taken when there is room again."""
    monkeypatch.setattr("waystation.sdk.lprp.parts.PARTS_MAX", 1)

    async def scenario(rig):
        (first, second), other = cut(b"x" * 400, ONE_TIME_PLAINTEXT_MAX, ID), rig.packet(b"y" * 70)
        packets = [rig.packet(rig.seal(first)), rig.packet(rig.seal(second)), other]
        for packet in packets:
            rig.inbox.take(packet)
        await rig.settle()
        told = (rig.handed_back == [packets[1].signature], rig.mail.has(packets[1].signature), rig.confirmed[0][0])
        monkeypatch.setattr("waystation.sdk.lprp.parts.PARTS_MAX", 2)
        rig.inbox.take(packets[1])
        await rig.settle()
        return told, [packets[0].signature, other.signature], [rig.mail.message(at).data for at in rig.mail.positions()]

    (handed_back, known, confirmed), kept, bodies = in_rig(scenario)

    assert handed_back and not known
    assert confirmed == kept
    assert bodies == [b"y" * 70, b"x" * 400]


def test_many_tiny_liars_cost_a_long_message_nothing(in_rig):
    """First parts of messages that never come, by the thousand, of many senders: the honest one arrives whole."""

    async def scenario(rig):
        parts = cut(b"x" * 60_000, ONE_TIME_PLAINTEXT_MAX, ID)
        with rig.state.transaction():
            for part in parts[:-1]:
                rig.mail.parts.put(BOB.public, read_fragment(part))
            for number in range(2_000):
                rig.mail.parts.put(number.to_bytes(32, "big"), Fragment(ID, 0, 1_024, b""))
        rig.inbox.take(rig.packet(rig.seal(parts[-1])))
        await rig.settle()
        return [rig.mail.message(position).data for position in rig.mail.positions()]

    assert in_rig(scenario) == [b"x" * 60_000]


def test_sealed_text_that_is_no_fragment_is_a_message_by_itself(in_rig):
    """What another program has sealed is handed on as it is."""

    async def scenario(rig):
        packet = rig.packet(rig.seal(b"something else altogether"))
        rig.inbox.take(packet)
        await rig.settle()
        return packet.signature, rig.mail.message(1)

    signature, message = in_rig(scenario)

    assert (message.data, message.sealed, message.id) == (b"something else altogether", True, signature[:16])


def test_full_mailbox_hands_back(in_rig, monkeypatch):
    """What there is no room for is neither kept nor confirmed."""
    monkeypatch.setattr("waystation.sdk.lprp.mail.INBOX_COUNT_MAX", 0)

    async def scenario(rig):
        packet = rig.packet(b"x" * 70)
        rig.inbox.take(packet)
        await rig.settle()
        return rig.handed_back == [packet.signature], rig.confirmed, rig.mail.positions()

    assert in_rig(scenario) == (True, [], [])


def test_large_batches_leave_the_loop_free(in_rig):
    """Of many packets so many are kept at a time, and all in the end."""

    async def scenario(rig):
        for number in range(150):
            rig.inbox.take(rig.packet(number.to_bytes(2, "big") * 35))
        await rig.settle()
        return [len(signatures) for signatures, _ in rig.confirmed]

    assert in_rig(scenario) == [64, 64, 22]


def test_batch_that_the_disk_refuses_waits_and_is_confirmed_once_kept(in_rig):
    """Nothing of it is confirmed or handed back; ``store`` keeps it and what came behind, and counts are right."""

    async def scenario(rig):
        packets = [rig.packet(bytes([number]) * 70) for number in range(3)]
        other = sqlite3.connect(rig.state.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        for packet in packets[:2]:
            rig.inbox.take(packet)
            await rig.settle()
        rig.inbox.take(packets[2])
        await rig.settle()
        with pytest.raises(HostError, match="locked"):
            rig.inbox.store()
        meanwhile = (list(rig.confirmed), list(rig.handed_back), len(rig.refusals))
        other.close()
        rig.inbox.store()
        await rig.settle()
        signatures = [packet.signature for packet in packets]
        return meanwhile, [found for found, _ in rig.confirmed] == [signatures], rig.mail.waiting_count

    assert in_rig(scenario) == (([], [], 1), True, 3)
