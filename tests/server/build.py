"""Nodes for tests: a hub in this loop, ``waystation serve`` in a process, and a client that speaks frames."""

import asyncio
import contextlib
import http.client
import json
import os
import random
import socket
import ssl
import subprocess
import sys
import time
from urllib.parse import urlsplit

from tools.served import ServedNode
from waystation.core.effects import Close, Commit, Hold, Send, SendMany
from waystation.core.facts import PeerLeft
from waystation.core.instant import Instant
from waystation.core.records import Record
from waystation.crypto.hashing import sha256
from waystation.crypto.signing import KeyPair, sign
from waystation.engine.admission import Admission
from waystation.engine.bans import BanList
from waystation.engine.node import Node
from waystation.engine.recorder import Recorder
from waystation.protocols.bhumi import messages, wire
from waystation.server.commit import GroupCommit
from waystation.server.failures.log import FailureLog
from waystation.server.hub import Hub, monotonic_now
from waystation.server.sinks import ListenerSink
from waystation.store.memory import MemoryStore
from waystation.store.sqlite import SqliteStore
from waystation.transport.listen import Listener
from waystation.transport.tls import client_context

PATIENCE_S = 20.0
PREIMAGE = b"p" * 32


def until(holds, what="it"):
    """Return what ``holds`` returns once that is true; fail when it never is."""
    ends_at = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < ends_at, f"{what} did not happen within {PATIENCE_S:g} s"
        time.sleep(0.01)
    return found


async def eventually(holds, what="it"):
    """As ``until``, for tests in the loop that does the work."""
    ends_at = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < ends_at, f"{what} did not happen within {PATIENCE_S:g} s"
        await asyncio.sleep(0.002)
    return found


class Echo:
    """A durable relay of one idea: each line is kept, then said back; some lines are commands.

    ``big N`` sends N bytes at once, ``many N`` N small sends, ``run N`` N numbers as one
    effect, ``bye N`` N bytes and a close, ``cut`` aborts, ``bug``
    raises, ``ring N`` asks to be woken in N ms, ``receipt`` wants to know when its answer has left, ``hold`` stops
    reading.
    """

    def __init__(self, *, durable=True):
        self.outbox = []
        self.alarms = []
        self.rung = []
        """(asked for, came) of each alarm."""
        self.calls = []
        """(input, peer) of everything but bytes."""
        self.peers = []
        self.kept = []
        """Peer and line of each ticket, from 1."""
        self._partial = {}
        self._durable = durable

    def connect(self, peer, now, address=""):
        self.peers.append(peer)
        self._partial[peer] = b""

    def receive(self, peer, data, now):
        *lines, self._partial[peer] = (self._partial[peer] + data).split(b"\n")
        for line in lines:
            self._on_line(peer, line, now)

    def _on_line(self, peer, line, now):
        word, _, number = line.partition(b" ")
        if word == b"big":
            self._send(peer, b"x" * int(number))
        elif word in (b"many", b"run"):
            self._send_some(peer, int(number), together=word == b"run")
        elif word in (b"bye", b"cut"):
            self._send(peer, b"z" * int(number))
            self._forget(peer)
            self.outbox.append(Close(peer, messages.Status.GONE, abort=word == b"cut"))
        elif word == b"bug":
            raise RuntimeError("a bug of ours")
        elif word == b"ring":
            self.alarms.append(Instant(now + int(number) * 1_000))
        elif word == b"receipt":
            self.outbox.append(Send(peer, b"received\n", receipt=True))
        elif word == b"hold":
            self.outbox += [Hold(peer, held=True), Send(peer, b"held\n")]
        elif self._durable:
            self.kept.append((peer, line))
            self.outbox.append(Commit(len(self.kept), (Record("echo", line, b"kept"),)))
        else:
            self._send(peer, line + b"\n")

    def committed(self, ticket, now):
        """Say back what is on disk."""
        peer, line = self.kept[ticket - 1]
        if peer in self._partial:
            self._send(peer, line + b"\n")

    def not_committed(self, ticket, now):
        """Say that it is not."""
        peer, _ = self.kept[ticket - 1]
        if peer in self._partial:
            self._send(peer, b"refused\n")

    def _send_some(self, peer, count, *, together):
        if together:
            self.outbox.append(SendMany(peer, [b"%d," % each for each in range(count)]))
            self._send(peer, b"end")
        else:
            for _ in range(count):
                self._send(peer, b"y")

    def _send(self, peer, data):
        self.outbox.append(Send(peer, data))

    def _forget(self, peer):
        del self._partial[peer]
        self.outbox.append(PeerLeft("echo", peer, None, "said bye"))

    def disconnect(self, peer, now):
        self.calls.append(("disconnect", peer))
        self._forget(peer)

    def congested(self, peer, now):
        self.calls.append(("congested", peer))

    def drained(self, peer, now):
        self.calls.append(("drained", peer))

    def wake(self, now):
        self.rung += [(at, now) for at in self.alarms if at <= now]
        self.alarms = [at for at in self.alarms if at > now]

    def deadline(self):
        return min(self.alarms, default=None)

    def take(self):
        effects, self.outbox = self.outbox, []
        return effects

    def retire(self):
        pass

    def settled(self):
        return True

    def shut(self, now):
        for peer in list(self._partial):
            self._forget(peer)
            self.outbox.append(Close(peer, messages.Status.GONE))

    def expel(self, identity, now):
        pass

    def review(self, now):
        pass

    def sizes(self):
        return {"peers": len(self._partial)}


class Rig:
    """A hub over one relay in this loop, with a plain listener on a free port."""

    def __init__(self, protocol, relay, store=None, dialler=None):
        self.relay = relay
        self.events = []
        self.store = store or MemoryStore()
        recorder = Recorder(self.events.append, random.Random(1))
        recorder.set_wall(monotonic_now(), time.time_ns() // 1_000)
        recorder.use_key(b"k" * 32)
        self.node = Node({protocol: relay}, Admission(), BanList(self.store), recorder)
        self.commits = GroupCommit(self.store, FailureLog(monotonic_now))
        self.hub = Hub(self.node, self.commits, dialler=dialler)
        self.sink = ListenerSink(self.hub, protocol)
        self._listener = Listener(self.sink, self.sink.admit, self.hub.release, None)
        self._dialled = []
        self.port = 0

    async def __aenter__(self):
        await self._listener.open("127.0.0.1", 0)
        self.port = self._listener.port
        return self

    async def __aexit__(self, *_):
        self._listener.close()
        self.hub.abort_all()
        for writer in self._dialled:
            writer.transport.abort()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        await eventually(self.hub.idle, "the end of all connections")
        await self.commits.close()
        self.store.close()

    async def dial(self, receive_buffer_bytes=None):
        """Return the streams of a new connection, with a small kernel buffer on request."""
        plain = socket.socket()
        if receive_buffer_bytes is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        plain.setblocking(False)
        await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", self.port))
        reader, writer = await asyncio.open_connection(sock=plain, limit=4_096)
        self._dialled.append(writer)
        return reader, writer


def serve_echo(path, said):
    """Run a durable echo node on the SQLite file ``path`` until killed; its port goes into ``said``."""

    async def main():
        async with Rig("echo", Echo(), SqliteStore(path)) as rig:
            said.send(rig.port)
            await asyncio.Event().wait()

    asyncio.run(main())


class NodeProcess(ServedNode):
    """``waystation serve`` with all protocols in a process of its own, on free ports."""

    def __init__(self, home, **settings):
        """Describe a node; settings are given as ``bhumi__plain="127.0.0.1:0"``."""
        listeners = ("bhumi__tls", "bhumi__plain", "bsp__tls", "lprp__udp", "merk__ws", "strata__ws", "admin__listen")
        super().__init__(home, **(dict.fromkeys(listeners, "127.0.0.1:0") | settings))

    def url(self, name="bhumi_plain"):
        """Return the address of a listener."""
        return self.address_of(name)

    def client(self, name="bhumi_plain", context=None):
        """Return a connected client."""
        return Client(
            self.url(name), context or (client_context(self.home / "tls/ca.pem") if name == "bhumi" else None)
        )

    def ask(self, method, path, body=None, token=None):
        """Ask the admin port with the home's token, another one, or "" for none; return status and parsed body."""
        place = urlsplit(self.url("admin"))
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=PATIENCE_S)
        try:
            token = self.token if token is None else token
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
            return answer.status, text if path == "/metrics" else json.loads(text)
        finally:
            connection.close()

    @property
    def token(self):
        """The bearer token of the admin port."""
        return (self.home / "admin.token").read_text().strip()

    def counted(self, reason):
        """Return how often a reason was refused, as /metrics tells."""
        wanted = f'waystation_refusals_total{{protocol="bhumi",reason="{reason}"}} '
        lines = self.ask("GET", "/metrics")[1].splitlines()
        return sum(float(line.removeprefix(wanted)) for line in lines if line.startswith(wanted))

    def journal(self):
        """Return every line of the journal as a dict."""
        files = sorted((self.home / "journal").glob("event_date=*/*.jsonl*"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def serve_command(home, settings=(), *more):
    """Return the command line of ``waystation serve``."""
    command = [sys.executable, "-m", "waystation", "serve", "--home", str(home), *more]
    for key, value in dict(settings).items():
        command += ["--set", f"{key}={value}"]
    return command


def run_serve(home, settings=(), *more):
    """Run ``waystation serve`` where it must end by itself; return the finished process."""
    return subprocess.run(
        serve_command(home, settings, *more),
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={key: value for key, value in os.environ.items() if not key.startswith("WAYSTATION_")},
    )


class Client:
    """A Bhumi client on a blocking socket."""

    def __init__(self, url, context=None):
        """Connect and read HELLO."""
        place = urlsplit(url)
        self.socket = socket.create_connection((place.hostname, place.port), timeout=PATIENCE_S)
        self._frames = wire.FrameBuffer(wire.client_frame_limits(65_536))
        try:
            if context is not None:
                self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
            frame_type, payload = self.frame()
        except OSError:
            self.socket.close()
            raise
        assert frame_type == messages.FrameType.HELLO
        self.hello = wire.decode_hello(payload)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """End the connection."""
        self.socket.close()

    def say(self, message):
        """Send a message, or bytes as they are."""
        self.socket.sendall(message if isinstance(message, bytes) else wire.encode(message))

    def frame(self):
        """Return type and payload of the next frame."""
        while (found := self._frames.next_frame()) is None:
            data = self.socket.recv(65_536)
            if not data:
                raise ConnectionResetError("the node closed the connection")
            self._frames.feed(data)
        return found

    def identify(self, pair, *preimages):
        """Say I_AM with the commits of these preimages, and wait until the relay has taken it."""
        self.say(i_am(pair, self.hello.relay_nonce, *preimages))
        self.say(messages.Keepalive())
        assert self.frame()[0] == messages.FrameType.KEEPALIVE

    def deliver(self):
        """Return the next DELIVER."""
        frame_type, payload = self.frame()
        assert frame_type == messages.FrameType.DELIVER
        return wire.decode_deliver(payload, with_preimage=False)

    def result(self):
        """Return the next SEND_RESULT."""
        frame_type, payload = self.frame()
        assert frame_type == messages.FrameType.SEND_RESULT
        return wire.decode_send_result(payload)

    def rest(self):
        """Return what is still said until the node ends the connection."""
        said = b""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while data := self.socket.recv(65_536):
                said += data
        return said


def key_pair(number=1):
    """Return a device's key."""
    return KeyPair.from_seed(number.to_bytes(32, "big"))


def i_am(pair, nonce, *preimages, signed_by=None):
    """Return I_AM with the commits of these preimages."""
    signature = sign(signed_by or pair, wire.signed_bytes(nonce, pair.public))
    return messages.IAm(pair.public, signature, tuple(commit_of(preimage) for preimage in preimages))


def commit_of(preimage):
    """Return the commit of a preimage."""
    return sha256(preimage)


def exchange(device, sender, pair, preimage, text=b"ping"):
    """Do one whole exchange and return what the sender gets."""
    sender.say(messages.Send(pair.public, preimage, text))
    delivered = device.deliver()
    assert delivered.payload == text
    device.say(messages.Ack(delivered.message_id, b"re: " + text))
    return sender.result()
