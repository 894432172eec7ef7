"""What the tests of the microcontroller client share: both interpreters, device folders, and a relay that measures."""

import contextlib
import copy
import json
import queue
import random
import socket
import ssl
import struct
import subprocess
import sys
import threading
from pathlib import Path

from waystation.cli.mcu.folder import STATE_FILE, Relay, write_folder
from waystation.cli.mcu.package import copy_package, device_module, micropython
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.payload.contents import (
    ContentType,
    DeviceMessage,
    MessageResponse,
    decode_payload,
    encode_payload,
)
from waystation.protocols.bhumi.payload.pairing import (
    PairedSuite,
    open_answer,
    open_request,
    request_tag_of,
    root_with,
    seal_answer,
    seal_request,
)
from waystation.protocols.bhumi.payload.suites import Direction, SharedSecrets, open_static, seal_static

HERE = Path(__file__).parent
CPYTHON = "cpython"
MICROPYTHON = "micropython"
INTERPRETERS = [CPYTHON] if micropython() is None else [CPYTHON, MICROPYTHON]
"""tests/conftest.py says in the report when the second one is missing."""
ESP32_HEAP = "56wK"
DEADLINE_S = 180


def words_of(interpreter, heap="4M"):
    """Return the words that start an interpreter."""
    return [sys.executable] if interpreter == CPYTHON else [*micropython(), "-X", f"heapsize={heap}"]


def on_board(interpreter, tmp_path, calls, heap="4M"):
    """Return what each call of a function of the package gives in an interpreter.

    A call is a module, a function and arguments; bytes go and come as they are, an exception comes back as its name.
    """
    package = tmp_path / interpreter / "bhumi"
    if not package.exists():
        copy_package(package, sources=interpreter == CPYTHON)
    path = tmp_path / "calls.json"
    path.write_text(json.dumps([[module, function, _to_json(given)] for module, function, *given in calls]))
    words = [*words_of(interpreter, heap), str(HERE / "remote.py"), str(package.parent), str(path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return [_from_json(json.loads(line)) for line in done.stdout.splitlines()]


def _to_json(value):
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    return [_to_json(each) for each in value] if isinstance(value, list | tuple) else value


def _from_json(value):
    if isinstance(value, dict) and set(value) == {"hex"}:
        return bytes.fromhex(value["hex"])
    return [_from_json(each) for each in value] if isinstance(value, list) else value


class Board:
    """A device's folder with its program in a process; what it prints is read line by line."""

    def __init__(self, folder, interpreter, relays, main, *, heap="4M", legacy=False):
        self.folder = folder
        self._interpreter = interpreter
        self._heap = heap
        self.lines = []
        self.token = ""
        if not folder.exists():
            sources = interpreter == CPYTHON
            _, self.token = write_folder(folder, relays, alias="bob", main=main, sources=sources, legacy=legacy)

    def start(self):
        """Run main.py."""
        self.process = subprocess.Popen(
            [*words_of(self._interpreter, self._heap), "-u", "main.py"]
            if self._interpreter == CPYTHON
            else [*words_of(self._interpreter, self._heap), "main.py"],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.PIPE,
            text=True,
        )
        self._printed = queue.Queue()
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reader.start()
        return self

    def _read(self, stream):
        with stream:
            for line in stream:
                self._printed.put(line.rstrip("\n"))
        self._printed.put(None)

    def until(self, begin):
        """Return the next line that begins so; fails when the program ends without one."""
        while True:
            try:
                line = self._printed.get(timeout=DEADLINE_S)
            except queue.Empty:
                raise AssertionError(f"never came to {begin!r}: {self.lines}") from None
            assert line is not None, f"ended without {begin!r}: {self.lines}"
            self.lines.append(line)
            if line.startswith(begin):
                return line

    def printed(self, begin):
        """Return every line so far that begins so; waits for none."""
        with contextlib.suppress(queue.Empty):
            while (line := self._printed.get_nowait()) is not None:
                self.lines.append(line)
        return [line for line in self.lines if line.startswith(begin)]

    def tell(self, line):
        """Write a line that the program reads."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self):
        """Cut the power."""
        self.process.kill()
        self.end()

    def end(self):
        """Wait until the program has ended and return its exit code."""
        code = self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        self.process.stdin.close()
        while (line := self._printed.get(timeout=DEADLINE_S)) is not None:
            self.lines.append(line)
        return code

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()


class HandRelay:
    """One TLS connection at a time, on which a test says every byte."""

    def __init__(self, tls_folder, host="127.0.0.1", port=0):
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(tls_folder / "cert.pem", tls_folder / "key.pem")
        self._listener = socket.create_server((host, port))
        self._listener.settimeout(DEADLINE_S)
        name = "localhost" if host == "127.0.0.1" else host
        self.url = f"tls://{name}:{self._listener.getsockname()[1]}"
        self.line = None
        self._held = b""

    def accept(self, *, tls=True):
        """Take the next connection, and end the one before."""
        self.hang_up()
        line, _ = self._listener.accept()
        line.settimeout(DEADLINE_S)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._held = b""
        self.line = self._context.wrap_socket(line, server_side=True) if tls else line

    @contextlib.contextmanager
    def another(self, *, greets=True):
        """Give a second connection, which an anonymous sender makes beside the first; it ends with the block."""
        beside = copy.copy(self)
        beside.line = None
        beside.accept()
        try:
            if greets:
                beside.say(FrameType.HELLO, struct.pack(">BII", 1, 8, 65_536))
            yield beside
        finally:
            beside.hang_up()

    def frame(self):
        """Return type and payload of the next frame."""
        kind, size = struct.unpack(">HI", self.take(6))
        return kind, self.take(size)

    def until(self, wanted):
        """Return the payload of the next frame of a type; others are passed over."""
        while True:
            kind, payload = self.frame()
            if kind == wanted:
                return payload

    def take(self, count):
        """Return exactly so many bytes."""
        while len(self._held) < count:
            came = self.line.recv(65_536)
            assert came, "the device has ended the connection"
            self._held += came
        taken, self._held = self._held[:count], self._held[count:]
        return taken

    def ends(self):
        """Return once the device has ended the connection."""
        try:
            while self.line.recv(65_536):
                pass
        except OSError:
            return

    def say(self, kind, payload=b""):
        """Send a frame."""
        self.line.sendall(struct.pack(">HI", kind, len(payload)) + payload)

    def welcome(self, *, features=1):
        """Say HELLO, take OPTIONS and I_AM, accept the features, and return I_AM's payload."""
        self.say(FrameType.HELLO, struct.pack(">BII", 1, 7, 65_536))
        self.until(FrameType.OPTIONS)
        self.say(FrameType.OPTIONS, struct.pack(">HI", 1, features))
        introduced = self.until(FrameType.I_AM)
        self.until(FrameType.KEEPALIVE)
        self.say(FrameType.KEEPALIVE)
        return introduced

    def hang_up(self):
        """End the connection."""
        if self.line is not None:
            self.line.close()

    def close(self):
        """Listen no more."""
        self.hang_up()
        self._listener.close()


def described(relay, authority):
    """Return what a device is told of a relay."""
    return [Relay(relay if isinstance(relay, str) else relay.url, authority)]


SECRET = bytes(range(32))


class Asker:
    """A peer that the device knows already, with 16 preimages; writes requests and reads answers, and is notified."""

    def __init__(self, folder, suite=PairedSuite.AES_CTR, *, listens=False, number=7, alias="bob"):
        self.suite = suite
        self.rng = random.Random(number)
        self.key_pair = KeyPair.from_seed(bytes([number]) * 32)
        state = device_module("state").State(str(folder / STATE_FILE))
        self._secrets = SharedSecrets(self.key_pair)
        self.is_paired = isinstance(suite, PairedSuite)
        self.root = device_module("suites").root_with(
            state.seed, self.key_pair.public, None, SECRET if self.is_paired else b""
        )
        peer = device_module("state").Peer(self.key_pair.public, self.root, suite.value, alias)
        peer.manages = not state.peers
        peer.issued = self.rng.randbytes(32 * 16)
        self.granted = []
        if listens:
            self.granted = [self.rng.randbytes(32)]
            peer.gains(self.granted[0])
        state.peers.append(peer)
        state.save()
        self.identity = state.identity
        if self.is_paired:
            assert self.root == root_with(self._secrets, state.identity, SECRET)
        self.preimages = list(peer.preimages())
        self.preimage = b""
        self.tag = b""

    def sealed(self, content, content_type=ContentType.TEXT):
        """Return the opaque bytes of the next request."""
        self.preimage = self.preimages.pop(0)
        plain = encode_payload(DeviceMessage(content_type, content))
        if not self.is_paired:
            shared = self._secrets.with_peer(self.identity)
            return seal_static(self.suite, shared, Direction.REQUEST, self.preimage, plain, self.rng)
        sealed = seal_request(self.suite, self.root, self.preimage, plain, self.rng)
        self.tag = request_tag_of(sealed)
        return sealed

    def delivery(self, message_id, content, content_type=ContentType.TEXT):
        """Return the payload of a DELIVER with the next request."""
        sealed = self.sealed(content, content_type)
        return delivery_of(message_id, self.preimage, sealed)

    def opened(self, ack):
        """Return id and answer of an ACK; the preimage in it is used from now on."""
        message_id, size = struct.unpack(">II", ack[:8])
        assert size == len(ack) - 8
        if self.is_paired:
            plain = open_answer(self.suite, self.root, self.preimage, self.tag, ack[8:])
        else:
            shared = self._secrets.with_peer(self.identity)
            plain = open_static(self.suite, shared, Direction.ANSWER, self.preimage, ack[8:])
        assert plain is not None, "the answer is not for this request"
        answer = decode_payload(plain)
        self.preimages.append(answer.next_preimage)
        return message_id, answer

    def told(self, send):
        """Return the message that a SEND of the device holds for this peer, its preimage and its opaque bytes."""
        recipient, preimage, sealed = send[:32], send[32:64], send[68:]
        assert recipient == self.key_pair.public and struct.unpack(">I", send[64:68]) == (len(sealed),)
        plain = open_request(self.suite, self.root, preimage, sealed)
        assert plain is not None, "the notice is not for this peer"
        return decode_payload(plain), preimage, sealed

    def reply(self, send, content=b"", status=0, url="", next_preimage=None):
        """Return the payload of a SEND_RESULT that answers a SEND, with one more permission."""
        _, preimage, sealed = self.told(send)
        given = self.rng.randbytes(32) if next_preimage is None else next_preimage
        plain = encode_payload(MessageResponse(status, given, content, url))
        answer = seal_answer(self.suite, self.root, preimage, request_tag_of(sealed), plain, self.rng)
        self.granted.append(given)
        return b"\0" + struct.pack(">I", len(answer)) + answer


def delivery_of(message_id, preimage, sealed):
    """Return the payload of a DELIVER that names the preimage."""
    return struct.pack(">I", message_id) + preimage + struct.pack(">I", len(sealed)) + sealed


def connected(board, relay, peer=None, **options):
    """Return a peer of a device that has come to the relay."""
    asker = Asker(board.folder, **(peer or {}))
    board.start()
    relay.accept()
    relay.welcome(**options)
    board.until("listening")
    return asker


def ask(relay, asker, content, content_type=ContentType.TEXT, message_id=1):
    """Return the answer to a request."""
    relay.say(FrameType.DELIVER, asker.delivery(message_id, content, content_type))
    answered, answer = asker.opened(relay.until(FrameType.ACK))
    assert answered == message_id
    return answer
