"""A client on a stage: its clock, what it says, what it tells, and a host whose every word the test chooses."""

import random

from waystation.core.effects import Peer, Send
from waystation.core.instant import Instant
from waystation.crypto.signing import KeyPair
from waystation.protocols.lprp.client.events import WorkWanted
from waystation.protocols.lprp.client.machine import LprpClient
from waystation.protocols.lprp.client.settings import ClientSettings
from waystation.protocols.lprp.messages import Command, Packet
from waystation.protocols.lprp.wire import Codec
from waystation.protocols.lprp.work import search

HOST = KeyPair.from_seed(b"\x01" * 32)
US = KeyPair.from_seed(b"\x02" * 32)
FRIEND = KeyPair.from_seed(b"\x03" * 32)
STRANGER = KeyPair.from_seed(b"\x04" * 32)
WALL_MS = 1_760_000_000_000
PEER = Peer(0)
CODEC = Codec()
EASY = ClientSettings(work_first_bits=2, work_step_bits=2, bits_max=8)


class Stage:
    """Time begins at 0, which is ``WALL_MS``; the host's clock is right unless a packet says otherwise."""

    def __init__(self, settings=EASY, *, connected=True, **options):
        self.now_ms = 0
        self.client = LprpClient(US, HOST.public, random.Random(7), settings=settings, **options)
        self.client.set_wall(Instant(0), WALL_MS * 1_000)
        if connected:
            self.client.connect(PEER, Instant(0))

    @property
    def now(self):
        return Instant(self.now_ms * 1_000)

    def sent(self):
        """What the client has said since the last look, read."""
        effects = self.client.take()
        assert all(isinstance(effect, Send) and effect.peer == PEER for effect in effects)
        return [CODEC.read(effect.data) for effect in effects]

    def said(self):
        """The one packet said since the last look."""
        (packet,) = self.sent()
        return packet

    def told(self, kind=object):
        """Events of a kind since the last look; the others are gone, too."""
        return [event for event in self.client.take_events() if isinstance(event, kind)]

    def pass_ms(self, duration_ms):
        """Let time go by, waking the client whenever it asks; return (ms, packet) for all that it said."""
        out = []
        end = self.now_ms + duration_ms
        for _ in range(100_000):
            due = self.client.deadline()
            at = end if due is None else min(end, max(self.now_ms, -(-due // 1_000)))
            self.now_ms = at
            self.client.wake(self.now)
            out += [(at, packet) for packet in self.sent()]
            if at == end and (self.client.deadline() is None or self.client.deadline() > self.now):
                return out
        raise AssertionError("the client wants to be woken for ever")

    def hear(self, data):
        """Let a datagram arrive."""
        self.client.receive(PEER, data.data if isinstance(data, Packet) else data, self.now)

    def answer(self, command, request, *, host=HOST, to=US.public, time_ms=None):
        """A packet of the host that names ``request``, or nothing for a 200."""
        payload = request.signature if request is not None else b""
        return CODEC.seal(host, to, command, payload, WALL_MS + self.now_ms if time_ms is None else time_ms)

    def reply(self, command, request, **how):
        """Let the host answer."""
        packet = self.answer(command, request, **how)
        self.hear(packet)
        return packet

    def solve(self):
        """Do the work wanted since the last look and return the WorkWanted; other events are gone."""
        (wanted,) = self.told(WorkWanted)
        self.client.work_found(wanted.challenge_signature, counter_of(wanted), self.now)
        return wanted

    def lease(self):
        """Become a tenant without work."""
        self.client.ask_lease(self.now)
        self.reply(Command.LEASE_GRANTED, self.said())
        self.told()


def counter_of(wanted):
    """The first counter that is enough."""
    counter = search(wanted.challenge, wanted.bits, wanted.start, 1 << 20)
    assert counter is not None
    return counter


def mail(payload=b"hello", *, sender=FRIEND, to=US.public, time_ms=WALL_MS):
    """A 102 to us."""
    return CODEC.seal(sender, to, Command.RELAY, payload, time_ms)
