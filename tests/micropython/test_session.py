"""A whole session in MicroPython with the memory of an ESP32."""

import json
import random
import statistics
import struct
import time

import pytest

from tests.micropython.build import ESP32_HEAP, MICROPYTHON, Board, HandRelay, described
from waystation.cli.mcu_package import device_module
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.payloads import ContentType, DeviceMessage, decode_payload, encode_payload
from waystation.protocols.bhumi.suites import Direction, SharedSecrets, Suite, open_static, seal_static
from waystation.server.home import Home
from waystation.transport.tls import authority_der

REQUESTS = 200
ECHOES = 200
SIZE = 256
LEFT_BYTES_MIN = 30 * 1024
SLOWER_MAX = 3

MAIN = f"""
import gc
import settings
from bhumi.device import Device
from bhumi.state import State

count = 0

def answer(request):
    global count
    count += 1
    return "x" * 64

device = Device(State("bhumi.state"), settings.RELAYS, answer, on_event=lambda kind, text: None)
while count < {REQUESTS}:
    device.step()
gc.collect()
left = gc.mem_free()

# The transport alone: the same connection, the same reading and writing, and nothing between them.
link, room = device._link, memoryview(bytearray({SIZE}))
for _ in range({ECHOES}):
    got = 0
    while got < {SIZE}:
        link.poll(1000)
        got += max(0, link.read_into(room[got:]))
    link.write(room)
print("left", left)
"""


class Asker:
    """A peer that the device knows already, with 16 preimages; writes requests and reads answers."""

    def __init__(self, folder):
        self._rng = random.Random(1)
        key_pair = KeyPair.from_seed(bytes([7]) * 32)
        state = device_module("state").State(str(folder / "bhumi.state"))
        root = device_module("suites").root_with(state.seed, key_pair.public)
        peer = device_module("state").Peer(key_pair.public, root, 2, "bob")
        peer.issued = [self._rng.randbytes(32) for _ in range(16)]
        state.peers.append(peer)
        state.invites = []
        state.save()
        self.preimages = list(peer.issued)
        self._shared = SharedSecrets(key_pair).with_peer(state.identity)

    def request(self, number):
        """Return a DELIVER of 256 opaque bytes."""
        self._preimage = self.preimages.pop(0)
        plain = encode_payload(DeviceMessage(ContentType.BINARY, bytes(SIZE - 37 - 8)))
        sealed = seal_static(Suite.AES_CTR, self._shared, Direction.REQUEST, self._preimage, plain, self._rng)
        assert len(sealed) == SIZE
        return struct.pack(">I", number) + self._preimage + struct.pack(">I", len(sealed)) + sealed

    def answered(self, ack, number):
        """Read an ACK; the preimage in it is the next to be used."""
        assert struct.unpack(">II", ack[:8]) == (number, len(ack) - 8)
        plain = open_static(Suite.AES_CTR, self._shared, Direction.ANSWER, self._preimage, ack[8:])
        response = decode_payload(plain)
        assert (response.status, response.content) == (0, b"x" * 64)
        self.preimages.append(response.next_preimage)


@pytest.mark.micropython
def test_session_fits_an_esp32(tmp_path, record_property):
    """TLS, I_AM with 16 commits and 200 requests leave 30 KB free, and an answer takes at most three round trips."""
    home = Home(tmp_path / "node")
    home.ensure()
    relay = HandRelay(home.tls_path)
    board = Board(tmp_path / "device", MICROPYTHON, described(relay, authority_der(home.ca_path)), MAIN, heap=ESP32_HEAP)
    asker = Asker(board.folder)
    answers, echoes = [], []
    with board:
        relay.accept()
        introduced = relay.welcome()
        for number in range(REQUESTS):
            delivered = asker.request(number)
            begun = time.perf_counter()
            relay.say(FrameType.DELIVER, delivered)
            ack = relay.until(FrameType.ACK)
            answers.append(time.perf_counter() - begun)
            asker.answered(ack, number)
        for _ in range(ECHOES):
            begun = time.perf_counter()
            relay.line.sendall(bytes(SIZE))
            relay.take(SIZE)
            echoes.append(time.perf_counter() - begun)
        left = int(board.until("left").split()[1])
        code = board.end()
    relay.close()

    answer_us, echo_us = (round(statistics.median(times) * 1_000_000) for times in (answers, echoes))
    record_property("measured", json.dumps({"left": left, "answer_us": answer_us, "echo_us": echo_us}))
    print(left, answer_us, echo_us)
    assert code == 0
    assert struct.unpack(">H", introduced[96:98]) == (16,)
    assert left >= LEFT_BYTES_MIN
    assert answer_us <= SLOWER_MAX * echo_us
