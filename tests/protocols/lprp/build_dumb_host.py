"""A host in one page, as the text describes it and no more: the oracle for what a client must cope with.

It keeps everything for ever, checks only what a test needs, and answers at once. ``Net`` loses, doubles and delays what
goes between the two.
"""

import hashlib
import random

from tests.protocols.lprp.build_client import CODEC, HOST, PEER, US, WALL_MS, Stage, counter_of
from waystation.core.ids import PublicKey
from waystation.crypto.signing import verify
from waystation.protocols.lprp.client.events import PacketArrived, WorkWanted
from waystation.protocols.lprp.messages import Command
from waystation.protocols.lprp.wire import signed_part
from waystation.protocols.lprp.work import is_enough

ZERO = bytes(32)


class DumbHost:
    """Demands ``bits`` for leases and strangers, and for whitelist updates when ``charges``."""

    def __init__(self, *, bits=3, charges=False, open_to=()):
        self.bits, self.charges, self.open_to = bits, charges, set(open_to)
        self.tenants, self.whitelist = set(), frozenset()
        self.accepted, self.queue, self.answers, self.challenges = [], {}, {}, {}
        self.changed_ms = -1

    def restart(self):
        """Forget what a host need not keep."""
        self.answers, self.challenges = {}, {}

    def hear(self, data, wall_ms):
        """Return what it says to a datagram."""
        packet = CODEC.read(data)
        assert packet.sender == US.public
        assert verify(packet.sender, signed_part(data), packet.signature)
        assert abs(packet.time_ms - wall_ms) <= 1 << 19
        if data not in self.answers:
            answers = self._judge(packet, wall_ms)
            if not answers or CODEC.read(answers[0]).command is Command.RELAY_REFUSED:
                return answers
            self.answers[data] = answers
        return self.answers[data]

    def _say(self, command, reference, wall_ms):
        return [CODEC.seal(HOST, US.public, command, reference, wall_ms).data]

    def _judge(self, packet, wall_ms):
        is_tenant = US.public in self.tenants
        match packet.command:
            case Command.HEARTBEAT:
                return self._say(Command.HEARTBEAT_ANSWER, b"", wall_ms) if is_tenant else []
            case Command.DELIVERED:
                self.queue.pop(packet.reference, None)
                return []
            case Command.WORK:
                return self._on_work(packet, wall_ms)
            case Command.RELAY:
                if packet.recipient in self.open_to or packet in self.accepted:
                    return self._do(packet, wall_ms)
                return self._demand(Command.RELAY_DEMANDS_WORK, packet, wall_ms)
            case Command.ASK_LEASE:
                return self._demand(Command.LEASE_DEMANDS_WORK, packet, wall_ms)
        if not is_tenant or (packet.time_ms <= self.changed_ms and packet.payload[32:] != ZERO):
            return []
        if self.charges and packet.command is Command.UPDATE_WHITELIST and packet.payload[32:] != ZERO:
            return self._demand(Command.WHITELIST_DEMANDS_WORK, packet, wall_ms)
        return self._do(packet, wall_ms)

    def _demand(self, command, packet, wall_ms):
        answer = self._say(command, packet.signature, wall_ms)
        self.challenges[answer[0][:64]] = (answer[0], packet)
        return answer

    def _on_work(self, packet, wall_ms):
        challenge, asked = self.challenges.get(packet.reference, (None, None))
        if challenge is None:
            return []
        if not is_enough(challenge, packet.payload[64:], self.bits):
            return self._say(Command.WORK_REFUSED, packet.signature, wall_ms)
        del self.challenges[packet.reference]
        return self._do(asked, wall_ms)

    def _do(self, packet, wall_ms):
        if packet.command is Command.RELAY:
            if packet not in self.accepted:
                self.accepted.append(packet)
            return self._say(Command.RELAY_ACCEPTED, packet.signature, wall_ms)
        if packet.command is Command.ASK_LEASE:
            self.tenants.add(US.public)
            return self._say(Command.LEASE_GRANTED, packet.signature, wall_ms)
        wanted, keys = packet.payload[:32], [packet.payload[at : at + 32] for at in range(32, len(packet.payload), 32)]
        after = frozenset() if packet.command is Command.CLEAR_WHITELIST else self._toggled(keys)
        if packet.command is Command.UPDATE_WHITELIST and self._hash(after) != wanted:
            return self._say(Command.WHITELIST_DIFFERS, packet.signature, wall_ms)
        if keys != [ZERO]:
            self.changed_ms = packet.time_ms
        self.whitelist = after
        return self._say(Command.WHITELIST_DONE, packet.signature, wall_ms)

    def _toggled(self, keys):
        after = set(self.whitelist)
        for key in keys if keys != [ZERO] else []:
            after ^= {PublicKey(key)}
        return frozenset(after)

    @staticmethod
    def _hash(keys):
        return hashlib.blake2b(b"".join(sorted(keys)), digest_size=32).digest()


class Net:
    """Host, client, and a network between them that loses, doubles and delays."""

    def __init__(self, host, *, seed=1, loss=0.0, doubling=0.0, delay_ms=40, settings=None, **options):
        self.host, self.rng = host, random.Random(seed)
        self.loss, self.doubling, self.delay_ms = loss, doubling, delay_ms
        self.stage = Stage(settings, **options) if settings else Stage(**options)
        self.under_way = []
        self.events = []
        self.confirms = True
        self.said_count = 0

    def _carry(self, to_host, data):
        copies = 0 if self.rng.random() < self.loss else 1 + (self.rng.random() < self.doubling)
        for _ in range(copies):
            at = self.stage.now_ms + 1 + self.rng.randrange(self.delay_ms)
            self.under_way.append((at, self.rng.random(), to_host, data))

    def deliver_mail(self, packet):
        """Let the host keep a packet for us and send it until it hears 802."""
        self.host.queue[packet.signature] = packet.data

    def run(self, duration_ms, step_ms=20):
        """Let time go by; work is done at once, packets are confirmed at once while ``confirms``."""
        stage, end = self.stage, self.stage.now_ms + duration_ms
        while stage.now_ms < end:
            stage.now_ms += step_ms
            due = sorted(entry for entry in self.under_way if entry[0] <= stage.now_ms)
            self.under_way = [entry for entry in self.under_way if entry[0] > stage.now_ms]
            for _, _, to_host, data in due:
                if to_host:
                    for answer in self.host.hear(data, WALL_MS + stage.now_ms):
                        self._carry(False, answer)
                else:
                    stage.client.receive(PEER, data, stage.now)
            if stage.now_ms % 2_000 == 0:
                for data in self.host.queue.values():
                    self._carry(False, data)
            stage.client.wake(stage.now)
            self._serve()

    def _serve(self):
        stage = self.stage
        for event in stage.told():
            self.events.append(event)
            if isinstance(event, WorkWanted):
                stage.client.work_found(event.challenge_signature, counter_of(event), stage.now)
            elif isinstance(event, PacketArrived) and self.confirms:
                stage.client.confirm(event.packet.signature, stage.now)
        for packet in stage.sent():
            self.said_count += 1
            self._carry(True, packet.data)

    def told(self, kind):
        """Events of a kind since the beginning."""
        return [event for event in self.events if isinstance(event, kind)]
