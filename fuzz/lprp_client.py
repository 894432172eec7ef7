"""Target: an LPRP client, with a host and a network that may say anything.

An input is what arrives: its first byte chooses what the user does between the datagrams, the rest is datagrams, each
behind two bytes of length. They are answers of the real host to the requests that this user makes, packets of others,
and either of them bent. A length of zero stands for the newest request's own answer: the run builds it from what the
client has just said, and the two bytes behind it choose which.
"""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Final

from fuzz.target import expect
from waystation.core.effects import Peer, Send
from waystation.core.instant import Instant
from waystation.crypto.signing import KeyPair, verify
from waystation.protocols.lprp.client import LprpClient
from waystation.protocols.lprp.client_events import (
    PacketArrived,
    RelayFinished,
    WorkOver,
    WorkWanted,
)
from waystation.protocols.lprp.client_settings import ClientSettings
from waystation.protocols.lprp.messages import Command, Packet
from waystation.protocols.lprp.wire import REQUESTS, Codec, packet_sizes, signed_part
from waystation.protocols.lprp.work import search

__all__ = ["LprpClientTarget"]

_US: Final = KeyPair.from_seed(b"\x01" * 32)
_HOST: Final = KeyPair.from_seed(b"\x02" * 32)
_FRIEND: Final = KeyPair.from_seed(b"\x03" * 32)
_PEER: Final = Peer(0)
_CODEC: Final = Codec()
_WALL_MS: Final = 1_760_000_000_000
_SETTINGS: Final = ClientSettings(
    work_first_bits=1, bits_max=4, in_flight_max=4, waiting_max=8, heartbeat_ms=5_000, lease_ms=60_000, tries=4
)
_DATAGRAMS_MAX: Final = 24
_COUNTERS_MAX: Final = 4_096
_SIGNERS: Final = (_HOST, _HOST, _HOST, _HOST, _FRIEND, _US)


def _packet(rng: random.Random, reference: bytes) -> bytes:
    """One signed packet that may come to the client, of any command."""
    command = rng.choice((*Command,))
    size = rng.choice(sorted(packet_sizes(command))) - 144
    payload = (reference + rng.randbytes(size))[:size]
    time_ms = _WALL_MS + rng.choice((0, 1, 500, -(1 << 19), 1 << 19, (1 << 19) + 1, -10_000_000))
    recipient = _US.public if rng.random() < 0.9 else _FRIEND.public
    return _CODEC.seal(rng.choice(_SIGNERS), recipient, command, payload, time_ms).data


_POOL: Final = [_packet(random.Random(number), bytes(64)) for number in range(400)]


class _Watch:
    """What the client has said and told so far."""

    def __init__(self, client: LprpClient) -> None:
        self.client = client
        self.requests: list[Packet] = []
        self.finished: Counter[bytes] = Counter()
        self.arrived: Counter[bytes] = Counter()
        self.unconfirmed: list[bytes] = []
        self.searches: dict[bytes, WorkWanted] = {}
        self.now = Instant(0)
        self._known: set[bytes] = set()

    def look(self) -> None:
        """Check what has come out since the last look."""
        for effect in self.client.take():
            expect(isinstance(effect, Send), f"a client wants {effect!r}")
            assert isinstance(effect, Send)
            expect(effect.peer == _PEER, "sent to somebody else")
            self._look_at(_CODEC.read(effect.data))
        for event in self.client.take_events():
            self._hear(event)
        sizes = self.client.sizes()
        expect(sizes["in_flight"] <= _SETTINGS.in_flight_max, "too many in flight")
        expect(sizes["waiting"] <= _SETTINGS.waiting_max + _SETTINGS.in_flight_max, "too many wait")
        expect(sizes["searching"] == len(self.searches) <= 4, f"{sizes['searching']} searches, told {self.searches}")
        expect(sizes["unconfirmed"] == len(self.unconfirmed), "the inbox counts otherwise")

    def _look_at(self, packet: Packet) -> None:
        expect(packet.sender == _US.public and packet.command in REQUESTS, "we speak as somebody else")
        expect(verify(_US.public, signed_part(packet.data), packet.signature), "our own signature is wrong")
        is_relay = packet.command is Command.RELAY
        expect(packet.recipient == (_FRIEND.public if is_relay else _HOST.public), "a packet for nobody we know")
        if packet.data not in self._known:
            self._known.add(packet.data)
            self.requests.append(packet)

    def _hear(self, event: object) -> None:
        if isinstance(event, RelayFinished):
            self.finished[event.signature] += 1
            expect(self.finished[event.signature] == 1, "a packet ended twice")
        elif isinstance(event, PacketArrived):
            packet = event.packet
            self.arrived[packet.signature] += 1
            expect(self.arrived[packet.signature] == 1, "a packet was told twice")
            expect(packet.recipient == _US.public, "somebody else's packet was told")
            expect(verify(packet.sender, signed_part(packet.data), packet.signature), "a forged packet was told")
            self.unconfirmed.append(packet.signature)
        elif isinstance(event, WorkWanted):
            expect(event.bits <= _SETTINGS.bits_max, "more work than we do")
            challenge = _CODEC.read(event.challenge)
            expect(challenge.sender == _HOST.public and challenge.recipient == _US.public, "not the host's challenge")
            expect(verify(_HOST.public, signed_part(challenge.data), challenge.signature), "a forged challenge")
            self.searches[event.challenge_signature] = event
        elif isinstance(event, WorkOver):
            expect(self.searches.pop(event.challenge_signature, None), "a search ended that nobody began")


class LprpClientTarget:
    """A client raises nothing, works within bounds, tells a packet once, and ends each of its own once."""

    name = "lprp_client"

    def make(self, rng: random.Random) -> bytes:
        """Return a conversation's other side, bent."""
        out = bytes([rng.randrange(256)])
        for _ in range(rng.randrange(_DATAGRAMS_MAX)):
            if rng.random() < 0.65:
                out += bytes(2) + rng.randbytes(2)
                continue
            data = rng.choice(_POOL)
            if rng.random() < 0.3:
                at = rng.randrange(len(data))
                data = (
                    data[:at]
                    if rng.random() < 0.2
                    else data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + (data[at + 1 :])
                )
            out += len(data).to_bytes(2, "big") + data
        return out

    def run(self, data: bytes) -> str:
        """Let the network speak while the user does this and that."""
        rng = random.Random(data[0] if data else 0)
        client = LprpClient(_US, _HOST.public, random.Random(1), settings=_SETTINGS)
        now = Instant(0)
        client.set_wall(now, _WALL_MS * 1_000)
        client.connect(_PEER, now)
        watch = _Watch(client)
        tickets: list[bytes] = []
        for datagram in self._datagrams(data, watch):
            self._use(client, watch, rng, now, tickets)
            watch.look()
            client.receive(_PEER, datagram, now)
            watch.look()
            now = Instant(now + rng.choice((0, 1_000, 700_000, 20_000_000)))
            client.wake(now)
            watch.now = now
            watch.look()
        self._end(client, watch, now)
        expect(sorted(watch.finished) == sorted(tickets), f"{len(watch.finished)} outcomes of {len(tickets)} packets")
        return f"{'arrived' if watch.arrived else 'quiet'}:{'worked' if client.bits else 'idle'}"

    def _use(self, client: LprpClient, watch: _Watch, rng: random.Random, now: Instant, tickets: list[bytes]) -> None:
        """Do one of the things that a user may do."""
        keys = [bytes([number]) * 32 for number in range(1, rng.randrange(2, 15))]
        choice = rng.choice((7, 7, 6)) if watch.searches and rng.random() < 0.7 else rng.randrange(6)
        if choice == 0:
            client.ask_lease(now)
        elif choice == 1:
            client.want_whitelist(keys, now)
        elif choice == 2:
            rng.choice((client.compare_whitelist, client.clear_whitelist, client.hold_lease, client.let_go))(now)
        elif choice in (3, 4):
            tickets += [client.send(b"hi", _FRIEND.public, now) for _ in range(rng.randrange(4))]
        elif choice == 5 and watch.unconfirmed:
            client.confirm(watch.unconfirmed.pop(), now)
        elif choice >= 6:
            signature, wanted = watch.searches.popitem()
            counter = search(wanted.challenge, wanted.bits, wanted.start, _COUNTERS_MAX)
            if counter is None or choice == 6:
                client.work_stopped(signature, now)
            else:
                client.work_found(signature, counter, now)

    def _datagrams(self, data: bytes, watch: _Watch) -> Iterator[bytes]:
        at = 1
        while at + 2 <= len(data):
            size = int.from_bytes(data[at : at + 2], "big")
            at += 2
            if size == 0:
                yield self._answer(watch, data[at : at + 2].ljust(2, b"\0"))
                at += 2
            else:
                yield data[at : at + size]
                at += size

    def _answer(self, watch: _Watch, choice: bytes) -> bytes:
        """What the host may say to one of the last requests: the second byte chooses the command, wrong ones too."""
        if not watch.requests:
            return b""
        request = watch.requests[-1 - choice[0] % min(6, len(watch.requests))]
        likely = _LIKELY[request.command]
        command = likely[choice[1] % len(likely)] if choice[1] < 240 else _ANSWERS[choice[1] % len(_ANSWERS)]
        payload = b"" if command is Command.HEARTBEAT_ANSWER else request.signature
        return _CODEC.seal(_HOST, _US.public, command, payload, _WALL_MS + watch.now // 1_000).data

    def _end(self, client: LprpClient, watch: _Watch, now: Instant) -> None:
        """Let go of everything and wait: all that was sent ends, and nothing wakes us any more."""
        client.let_go(now)
        for _ in range(2_000):
            due = client.deadline()
            if due is None:
                break
            now = max(now, due)
            client.wake(now)
            watch.look()
            for signature in list(watch.searches):
                del watch.searches[signature]
                client.work_stopped(signature, now)
        watch.look()
        expect(client.deadline() is None, "a client without anything to do wants to be woken")
        expect(client.sizes()["in_flight"] == client.sizes()["waiting"] == 0, "something is left over")


_ANSWERS: Final = tuple(command for command in Command if command not in REQUESTS)
_LIKELY: Final = {
    Command.HEARTBEAT: (Command.HEARTBEAT_ANSWER,),
    Command.WORK: (Command.WORK_REFUSED,),
    Command.DELIVERED: (Command.HEARTBEAT_ANSWER,),
    Command.RELAY: (Command.RELAY_ACCEPTED, Command.RELAY_REFUSED, *(Command.RELAY_DEMANDS_WORK,) * 4),
    Command.ASK_LEASE: (Command.LEASE_GRANTED, Command.LEASE_REFUSED, *(Command.LEASE_DEMANDS_WORK,) * 3),
    Command.UPDATE_WHITELIST: (
        Command.WHITELIST_DONE,
        Command.WHITELIST_DIFFERS,
        Command.WHITELIST_DEMANDS_WORK,
    ),
    Command.CLEAR_WHITELIST: (Command.WHITELIST_DONE,),
}
