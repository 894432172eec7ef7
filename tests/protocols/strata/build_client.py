"""A client of Strata in one hand: what a relay says to it, and what it does about that."""

import random

import orjson

from tests.protocols.strata.build import (
    ALICE,
    NOW,
    RELAY,
    did,
)
from waystation.core.effects import Close, Peer, Send
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.protocols.strata.client.events import (
    PacketArrived,
)
from waystation.protocols.strata.client.machine import StrataClient
from waystation.protocols.strata.messages import Filters

EVERYTHING = Filters()
CHALLENGE = "q" * 43 + "="


def at(seconds):
    """Return an instant."""
    return Instant(int(seconds * MICROSECONDS_PER_SECOND))


class Talk:
    """A client and the messages of a relay; ``sent``, ``closes`` and ``told`` hold what it did since the last look."""

    def __init__(self, *, opened=True, **options):
        self.client = StrataClient(random.Random(1), **options)
        self._now = Instant(0)
        self.peer = Peer(0)
        if opened:
            self.open()

    @property
    def now(self):
        return self._now

    def open(self):
        self.peer = Peer(self.peer + 1)
        self.client.set_wall(Instant(0), NOW * MICROSECONDS_PER_SECOND)
        self.client.connect(self.peer, self.now)
        return self

    def drop(self):
        self.client.disconnect(self.peer, self.now)
        return self

    def hear(self, *messages):
        for message in messages:
            data = message if isinstance(message, bytes) else orjson.dumps(message)
            self.client.receive(self.peer, data, self.now)
        return self

    @property
    def s(self):
        return self._now / MICROSECONDS_PER_SECOND

    def wait(self, seconds):
        end = Instant(self._now + at(seconds))
        while (due := self.client.deadline()) is not None and due <= end:
            self._now = max(self._now, due)
            self.client.wake(self.now)
        self._now = end
        return self

    def take(self):
        effects = self.client.take()
        self.sent = [orjson.loads(effect.data) for effect in effects if isinstance(effect, Send)]
        self.closes = [effect for effect in effects if isinstance(effect, Close)]
        self.told = self.client.take_events()
        return self.told

    def subscribe(self, filters=EVERYTHING, **options):
        self.client.subscribe("s", filters, self.now, **options)
        self.take()
        return self


def event(packet, received_at=NOW, **fields):
    """Return an EVENT of subscription s."""
    body = packet if isinstance(packet, dict) else packet.body
    return {"type": "EVENT", "subscription_id": "s", "packet": body, "received_at": received_at} | fields


def ok(talk, packet, **fields):
    """Return an OK for the last PUBLISH sent."""
    msg_id = talk.sent[-1]["client_msg_id"]
    return {"type": "OK", "client_msg_id": msg_id, "packet_id": packet.body["packet_id"], "status": "ACCEPTED"} | fields


def challenge(server=RELAY, text=CHALLENGE):
    """Return an AUTH_CHALLENGE."""
    return {"type": "AUTH_CHALLENGE", "challenge": text, "server_id": did(server), "expires_at": NOW + 120}


def authenticating(**options):
    """Return a talk in which AUTH has just been sent."""
    talk = Talk(key_pair=ALICE, **options).hear(challenge())
    talk.take()
    return talk


class Pair:
    """A client and the node's relay, joined without a network."""

    def __init__(self, drive, **options):
        self.drive = drive
        self.client = StrataClient(random.Random(2), **options)
        self.told = []
        self.peer = None

    def open(self):
        self.peer = self.drive.connect()
        self._heard = 0
        self.client.set_wall(self.drive.now, self.drive.wall_s * MICROSECONDS_PER_SECOND)
        self.client.connect(Peer(self.peer), self.drive.now)
        return self.run()

    def close(self):
        self.drive.drop(self.peer)
        self.client.disconnect(Peer(self.peer), self.drive.now)
        return self.run()

    def run(self):
        while True:
            effects = self.client.take()
            self.told += self.client.take_events()
            heard = self.drive.got[self.peer][self._heard :]
            self._heard += len(heard)
            if not effects and not heard:
                return self
            for message in heard:
                self.client.receive(Peer(self.peer), orjson.dumps(message), self.drive.now)
            for effect in effects:
                if isinstance(effect, Send):
                    self.drive.relay.receive(Peer(self.peer), effect.data, self.drive.now)
                    self.drive.settle()

    def packets(self):
        return [each.packet for each in self.told if isinstance(each, PacketArrived)]
