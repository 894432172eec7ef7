"""Laws of the listener for nodes of the original, tried with stand-ins that do on the wire what the originals do.

The stand-ins write type, length and body one by one with Nagle on, send no KEEPALIVE and no OPTIONS, take any frame but
DELIVER for an error, and add the next preimage, 32 raw bytes, behind the JSON of an answer (BHUMI-ORIGINAL, BHUMI-D).
"""

import contextlib
import hashlib
import json
import socket
import threading
import time

import pytest

from tests.server.build import Client, NodeProcess, key_pair
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.messages import FrameType, Status

ALICE = key_pair(1)
COMMAND = json.dumps({"cmd": "toggle", "args": {"ü": [0.5, None]}}).encode()


class Original(Client):
    """A client that writes as the original does."""

    def __init__(self, url):
        super().__init__(url)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)

    def say(self, message):
        """Send a message in three writes."""
        frame = wire.encode(message)
        for piece in (frame[:2], frame[2:6], frame[6:]):
            if piece:
                self.socket.sendall(piece)


def preimage(number):
    """Return the preimage of one exchange."""
    return hashlib.sha256(b"original %d" % number).digest()


def commit(number):
    """Return its commit."""
    return hashlib.sha256(preimage(number)).digest()


class OriginalDevice(threading.Thread):
    """Answers every DELIVER and counts them; ends with the connection."""

    def __init__(self, url):
        super().__init__(daemon=True)
        self.client = Original(url)
        self.client.socket.settimeout(None)
        self.client.identify(ALICE, preimage(0))
        self.handled = []
        self.trouble = None

    def run(self):
        """Serve until the socket ends."""
        try:
            while True:
                frame_type, payload = self.client.frame()
                if frame_type != FrameType.DELIVER:
                    self.trouble = f"frame {frame_type:#x}"
                    return
                deliver = wire.decode_deliver(payload, with_preimage=True)
                self.handled.append(deliver.payload)
                number = len(self.handled)
                answer = json.dumps({"ok": True, "data": number}).encode() + preimage(number)
                self.client.say(messages.UpdateCommits((commit(number),)))
                self.client.say(messages.Ack(deliver.message_id, answer))
        except OSError as error:
            self.trouble = repr(error)

    def stop(self):
        """End the connection and the thread."""
        with contextlib.suppress(OSError):
            self.client.socket.shutdown(socket.SHUT_RDWR)
        self.join()
        self.client.close()


@contextlib.contextmanager
def originals(home):
    """Run a node with a device and a sender of the original."""
    node = NodeProcess(home, bhumi__upstream_listen="127.0.0.1:0", limits__enabled="false")
    node.start()
    try:
        device = OriginalDevice(node.url("bhumi_upstream"))
        device.start()
        with Original(node.url("bhumi_upstream")) as sender:
            sender.socket.settimeout(60)
            yield device, sender
        device.stop()
    finally:
        node.stop()


def exchange(sender, number):
    """Send one command and return the number of the answer; the next preimage must stand behind it."""
    sender.say(messages.Send(ALICE.public, preimage(number), COMMAND))
    frame_type, payload = sender.frame()
    assert frame_type == FrameType.SEND_RESULT
    result = wire.decode_send_result(payload)
    assert result.status == Status.OK
    assert result.payload[-32:] == preimage(number + 1)
    return json.loads(result.payload[:-32])["data"]


@pytest.mark.parametrize("count", [100, pytest.param(1_000, marks=pytest.mark.slow)])
def test_exchanges_of_originals_are_all_answered(tmp_path, count):
    """Nothing is lost, nothing handled twice, nothing closed, and no exchange waits for a delayed ACK of ours."""
    with originals(tmp_path / "node") as (device, sender):
        began = time.monotonic()
        answers = [exchange(sender, number) for number in range(count)]
        duration_s = time.monotonic() - began
        handled, trouble = device.handled[:], device.trouble

    assert answers == list(range(1, count + 1))
    assert handled == [COMMAND] * count
    assert trouble is None
    assert duration_s < count * 0.08  # the original's own relay takes 88 ms for each (interop)


@pytest.mark.slow
def test_pair_of_originals_is_idle_for_ten_minutes(tmp_path):
    """Neither side says anything for ten minutes, and the next exchange works on the same connections."""
    with originals(tmp_path / "node") as (device, sender):
        exchange(sender, 0)
        time.sleep(600)
        answer = exchange(sender, 1)
        trouble = device.trouble

    assert (answer, trouble) == (2, None)
