"""A tenant, a sender and a small host of LPRP, written from the seed text and its digest alone.

Nothing here comes from waystation: packets are packed by `struct`, signed by PyNaCl, hashed by `hashlib`. So what both
sides take for the protocol has two witnesses. ``Party`` talks over a blocking socket, as a small program would, and
``Host`` lives in an event loop. Neither defends itself against anybody.
"""

import asyncio
import collections
import functools
import hashlib
import itertools
import socket
import struct
import time
from typing import NamedTuple

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

HEAD = struct.Struct(">64sQ32s32sQ")
BODY = struct.Struct(">Q32s32sQ")
WINDOW_MS = 2**19
NO_KEY = bytes(32)
PADDING = bytes(64)

HEARTBEAT, WORK, RELAY, LEASE, WHITELIST, CLEAR, DELIVERED = 0x100, 0x101, 0x102, 0x104, 0x108, 0x808, 0x802
ALIVE, ACCEPTED, GRANTED, DONE = 0x200, 0x202, 0x204, 0x208
WORK_REFUSED, RELAY_REFUSED, LEASE_REFUSED, DIFFERS = 0x401, 0x402, 0x404, 0x408
RELAY_WORK, LEASE_WORK, WHITELIST_WORK = 0x602, 0x604, 0x608
DEMANDS = (RELAY_WORK, LEASE_WORK, WHITELIST_WORK)

PATIENCE_S = 10.0
REPEAT_S = 0.1


class Heard(NamedTuple):
    """A packet taken apart; nothing about it is believed yet."""

    data: bytes
    signature: bytes
    time_ms: int
    first: bytes
    second: bytes
    command: int
    payload: bytes


def unpack(data):
    """Return the parts of a packet, or None when its length is not a packet's."""
    return Heard(data, *HEAD.unpack_from(data), data[HEAD.size :]) if HEAD.size <= len(data) <= 508 else None


def pack(signer, first, second, command, payload=b"", time_ms=None):
    """Return a packet with any two keys in front, signed by ``signer``."""
    body = BODY.pack(now_ms() if time_ms is None else time_ms, first, second, command) + payload
    return signer.sign(body).signature + body


def now_ms():
    """Return the wall clock."""
    return time.time_ns() // 1_000_000


def is_signed_by(key, data):
    """Return whether a packet is signed by the holder of ``key``."""
    try:
        VerifyKey(key).verify(data[64:], data[:64])
    except BadSignatureError:
        return False
    return True


def zero_bits(challenge, solution):
    """Return how many zero bits the hash of a challenge and its solution begins with."""
    digest = hashlib.blake2b(challenge + solution, digest_size=32).digest()
    return 256 - int.from_bytes(digest, "big").bit_length()


def hash_of(keys):
    """Return the hash of a whitelist."""
    return hashlib.blake2b(b"".join(sorted(keys)), digest_size=32).digest()


def in_a_thread(function):
    """Make a function of a ``Party`` awaitable, so that it can talk with a host of the same loop."""

    @functools.wraps(function)
    async def run(*arguments, **named):
        return await asyncio.to_thread(function, *arguments, **named)

    return run


class Party:
    """A key, a socket and one host: sender and tenant alike."""

    def __init__(self, seed, host_key, address, *, first_bits=4):
        self.signer = SigningKey(seed)
        self.key = bytes(self.signer.verify_key)
        self.host_key = host_key
        self.socket = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect(address)
        self.bits = first_bits
        """What the next work begins with; the host never says what it wants."""
        self.failures = 0
        """Answers 401 so far."""
        self.mail = collections.deque()
        """Packets for us that came while something else was waited for."""
        self._last_ms = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def packet(self, command, payload=b"", to=None):
        """Return a packet to the host, or to somebody else by way of it, with a time of its own."""
        return pack(self.signer, self.key, self.host_key if to is None else to, command, payload, self._tick())

    def say(self, data):
        """Send a packet once."""
        self.socket.send(data)

    def hear(self, within_s=PATIENCE_S):
        """Return the next packet whatever it is, or None after a while."""
        self.socket.settimeout(within_s)
        try:
            return unpack(self.socket.recv(2_048))
        except TimeoutError:
            return None

    def ask(self, data, *more):
        """Send a packet until something refers to it, or to one of ``more``; return that."""
        ends_at = time.monotonic() + PATIENCE_S
        while time.monotonic() < ends_at:
            self.say(data)
            repeat_at = time.monotonic() + REPEAT_S
            while (left := repeat_at - time.monotonic()) > 0:
                heard = self.hear(left)
                if heard is None:
                    break
                if heard.command == RELAY:
                    self.mail.append(heard)
                elif self._is_answer(heard, data, *more):
                    return heard
        raise TimeoutError("the host does not answer")

    def settle(self, data):
        """Send a request and do all work it takes; return the last answer."""
        answer = self.ask(data)
        return self.work_off(answer) if answer.command in DEMANDS else answer

    def work_off(self, demand):
        """Answer a demand with more and more work, never more than it says, and return what comes of it."""
        for counter in itertools.count():
            solution = b"%d" % counter
            # Exactly as many: a lucky hash would spare a 401, and what a test sees would be a matter of chance.
            if zero_bits(demand.data, solution) == self.bits:
                proof = self.packet(WORK, demand.signature + solution)
                answer = self.ask(proof, demand.payload)
                if answer.command != WORK_REFUSED:
                    return answer
                self.failures += 1
                self.bits += 1
        raise AssertionError("numbers do not end")

    def lease(self):
        """Ask for a lease and work for it; return the last answer's command."""
        return self.settle(self.packet(LEASE, PADDING)).command

    def beat(self):
        """Say that we are here; return the answer's command."""
        data = self.packet(HEARTBEAT)
        return self.ask(data).command

    def toggle(self, before, *keys):
        """Move keys in or out of a whitelist that holds ``before``; return the last answer's command."""
        after = set(before).symmetric_difference(keys)
        return self.settle(self.packet(WHITELIST, hash_of(after) + b"".join(keys))).command

    def compare(self, keys):
        """Ask whether the host's whitelist is ``keys``; return the answer's command."""
        return self.settle(self.packet(WHITELIST, hash_of(keys) + NO_KEY)).command

    def clear(self):
        """Empty the whitelist; return the answer's command."""
        return self.settle(self.packet(CLEAR, PADDING)).command

    def relay(self, recipient, payload):
        """Send mail and work for it where that is asked for; return its packet and the last answer's command."""
        data = self.packet(RELAY, payload, recipient)
        return data, self.settle(data).command

    def receive(self, within_s=PATIENCE_S):
        """Return the next mail, whose sender signed it, or None after a while."""
        while not self.mail:
            heard = self.hear(within_s)
            if heard is None:
                return None
            if heard.command == RELAY:
                self.mail.append(heard)
        mail = self.mail.popleft()
        assert mail.second == self.key
        assert is_signed_by(mail.first, mail.data)
        return mail

    def confirm(self, mail, *, literally=False):
        """Say that a packet is here for good, with the two keys in the order of the text or in ours."""
        if literally:
            self.say(pack(self.signer, self.host_key, self.key, DELIVERED, mail.signature, self._tick()))
        else:
            self.say(self.packet(DELIVERED, mail.signature))

    def _tick(self):
        self._last_ms = max(now_ms(), self._last_ms + 1)
        return self._last_ms

    def _is_answer(self, heard, data, *more):
        refers = heard.payload in (data[:64], *more) or (heard.command, data[136:144]) == (ALIVE, _code(HEARTBEAT))
        if refers:
            assert (heard.first, heard.second) == (self.host_key, self.key)
            assert is_signed_by(self.host_key, heard.data)
            assert abs(heard.time_ms - now_ms()) <= WINDOW_MS
        return refers


def _code(command):
    return command.to_bytes(8, "big")


class Tenancy:
    """What a host knows of a tenant."""

    def __init__(self):
        self.address = None
        self.whitelist = set()
        self.updated_ms = None
        self.queue = {}
        """Packets by signature."""


class Host(asyncio.DatagramProtocol):
    """The host of the seed text: three kinds of work, whitelists, queues; mail goes out when its tenant speaks."""

    def __init__(self, seed, *, bits=6, swallow=lambda number: False):
        """Make a host that wants ``bits`` and does not hear the datagrams whose number ``swallow`` says."""
        self.signer = SigningKey(seed)
        self.key = bytes(self.signer.verify_key)
        self.bits = bits
        self.tenants = {}
        self.leases_open = True
        self.commands = collections.Counter()
        """What valid packets asked for."""
        self.faults = []
        """Packets that no client should send."""
        self.demanded = []
        """Commands of demands for work, in order."""
        self.confirmed = []
        """Signatures of 802s' packets, in order."""
        self._swallow = swallow
        self._numbers = itertools.count()
        self._demands = {}
        self._answers = {}

    async def __aenter__(self):
        loop = asyncio.get_running_loop()
        self.transport, _ = await loop.create_datagram_endpoint(lambda: self, ("127.0.0.1", 0))
        self.address = self.transport.get_extra_info("sockname")
        return self

    async def __aexit__(self, *_):
        self.transport.close()

    def datagram_received(self, data, address):
        """Take one packet."""
        if self._swallow(next(self._numbers)):
            return
        heard = unpack(data)
        if heard is None or abs(heard.time_ms - now_ms()) > WINDOW_MS:
            self.faults.append(data)
            return
        literal = heard.command == DELIVERED and heard.first == self.key
        signer = heard.second if literal else heard.first
        if not is_signed_by(signer, data):
            self.faults.append(data)
        elif data in self._answers:
            self.transport.sendto(self._answers[data], address)
        else:
            self._take(heard, signer, address)

    def deliver(self, tenancy):
        """Send what waits for a tenant that has an address."""
        for data in list(tenancy.queue.values())[:16]:
            self.transport.sendto(data, tenancy.address)

    def forget_addresses(self):
        """Behave as after a restart: leases and mail are there, addresses are not."""
        for tenancy in self.tenants.values():
            tenancy.address = None

    def _take(self, heard, signer, address):
        self.commands[heard.command] += 1
        tenancy = self.tenants.get(signer)
        if tenancy is not None and heard.command in (HEARTBEAT, DELIVERED, LEASE, WHITELIST, CLEAR, WORK):
            tenancy.address = address
        handler = {
            HEARTBEAT: self._on_heartbeat,
            WORK: self._on_work,
            RELAY: self._on_relay,
            DELIVERED: self._on_delivered,
            LEASE: self._on_lease,
            WHITELIST: self._on_whitelist,
            CLEAR: self._on_clear,
        }.get(heard.command)
        if handler is None:
            self.faults.append(heard.data)
        else:
            handler(heard, tenancy, address)

    def _on_heartbeat(self, heard, tenancy, address):
        if tenancy is not None:
            self.transport.sendto(pack(self.signer, self.key, heard.first, ALIVE), address)
            self.deliver(tenancy)

    def _on_relay(self, heard, _tenancy, address):
        recipient = self.tenants.get(heard.second)
        if recipient is None:
            self._answer(heard, RELAY_REFUSED, address, keep=False)
        elif heard.first in recipient.whitelist:
            self._queue(heard, address)
        else:
            self._demand(heard, RELAY_WORK, address)

    def _on_delivered(self, heard, tenancy, _address):
        if tenancy is not None and tenancy.queue.pop(heard.payload, None) is not None:
            self.confirmed.append(heard.payload)

    def _on_lease(self, heard, _tenancy, address):
        if self.leases_open:
            self._demand(heard, LEASE_WORK, address)
        else:
            self._answer(heard, LEASE_REFUSED, address)

    def _on_whitelist(self, heard, tenancy, address):
        if tenancy is None:
            return
        if heard.payload[32:] == NO_KEY:
            same = heard.payload[:32] == hash_of(tenancy.whitelist)
            self._answer(heard, DONE if same else DIFFERS, address)
        elif tenancy.updated_ms is not None and now_ms() - tenancy.updated_ms <= WINDOW_MS:
            self._demand(heard, WHITELIST_WORK, address)
        else:
            self._apply(heard, address)

    def _on_clear(self, heard, tenancy, address):
        if tenancy is not None:
            tenancy.whitelist, tenancy.updated_ms = set(), now_ms()
            self._answer(heard, DONE, address)

    def _on_work(self, heard, _tenancy, address):
        demand, asked = self._demands.get(heard.payload[:64], (None, None))
        if demand is None or asked.first != heard.first:
            return
        if zero_bits(demand, heard.payload[64:]) < self.bits:
            self._answer(heard, WORK_REFUSED, address)
            return
        del self._demands[heard.payload[:64]]
        if asked.command == RELAY:
            self._queue(asked, address, heard)
        elif asked.command == LEASE:
            self.tenants.setdefault(asked.first, Tenancy()).address = address
            self._answer(asked, GRANTED, address, heard)
            self.deliver(self.tenants[asked.first])
        else:
            self._apply(asked, address, heard)

    def _apply(self, asked, address, proof=None):
        tenancy = self.tenants[asked.first]
        keys = [asked.payload[at : at + 32] for at in range(32, len(asked.payload), 32)]
        after = set(tenancy.whitelist)
        for key in keys:
            after ^= {key}
        if hash_of(after) == asked.payload[:32]:
            tenancy.whitelist, tenancy.updated_ms = after, now_ms()
            self._answer(asked, DONE, address, proof)
        else:
            self._answer(asked, DIFFERS, address, proof)

    def _queue(self, asked, address, proof=None):
        tenancy = self.tenants[asked.second]
        tenancy.queue[asked.signature] = asked.data
        self._answer(asked, ACCEPTED, address, proof)
        if tenancy.address is not None:
            self.deliver(tenancy)

    def _demand(self, heard, command, address):
        demand = self._answer(heard, command, address)
        self._demands[demand[:64]] = (demand, heard)
        self.demanded.append(command)

    def _answer(self, asked, command, address, proof=None, *, keep=True):
        """Answer a request, or the proof of work that made it good; the same bytes get the same answer again."""
        answer = pack(self.signer, self.key, asked.first, command, asked.signature)
        if keep:
            self._answers[asked.data] = answer
            if proof is not None:
                self._answers[proof.data] = answer
        self.transport.sendto(answer, address)
        return answer
