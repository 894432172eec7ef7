"""Fuzz target: an LPRP client with a host and a network that may send anything.

The client receives the real host's answers to its requests, packets of other senders, and mutations of both. A step
``_ANSWER`` answers one of the newest requests. The target builds that answer from what the client just sent; the two
bytes of the step choose the request.
"""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from fuzz.conversation import Connection, Dialogue, Do, Step
from fuzz.mutate import flip_or_cut
from fuzz.target import expect
from waystation.core.effects import Send
from waystation.crypto.signing import KeyPair, verify
from waystation.protocols.lprp.client.events import PacketArrived, RelayFinished, WorkOver, WorkWanted
from waystation.protocols.lprp.client.machine import LprpClient
from waystation.protocols.lprp.client.settings import ClientSettings
from waystation.protocols.lprp.messages import Command, Packet
from waystation.protocols.lprp.wire import REQUESTS, Codec, packet_sizes, signed_part
from waystation.protocols.lprp.work import search

_US: Final = KeyPair.from_seed(b"\x01" * 32)
_HOST: Final = KeyPair.from_seed(b"\x02" * 32)
_FRIEND: Final = KeyPair.from_seed(b"\x03" * 32)
_CODEC: Final = Codec()
_WALL_MS: Final = 1_760_000_000_000
_SETTINGS: Final = ClientSettings(
    work_first_bits=1, bits_max=4, in_flight_max=4, waiting_max=8, heartbeat_ms=5_000, lease_ms=60_000, tries=4
)
_ANSWER: Final = len(Do)
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


class LprpClientTalk(Dialogue[LprpClient]):
    """A client raises nothing, works within bounds, reports a packet once, and ends each of its own once."""

    name = "lprp_client"
    effects = (Send,)
    kinds = _ANSWER + 1
    effects_per_frame = 40
    frame_bytes_min = 144

    def __init__(self, choice: int) -> None:
        super().__init__(LprpClient(_US, _HOST.public, random.Random(1), settings=_SETTINGS), choice)
        self.tickets: list[bytes] = []
        self.requests: list[Packet] = []
        self.known: set[bytes] = set()
        self.finished: Counter[bytes] = Counter()
        self.arrived: Counter[bytes] = Counter()
        self.unconfirmed: list[bytes] = []
        self.searches: dict[bytes, WorkWanted] = {}
        self.machine.set_wall(self.now, _WALL_MS * 1_000)
        self.machine.connect(self.connection.peer, self.now)
        self.settle()

    @classmethod
    def draw_steps(cls, rng: random.Random, choice: int) -> Iterator[Step]:  # noqa: ARG003 - its base has it
        """Yield packets, some of them mutated, and which request is answered and how."""
        for _ in range(rng.randrange(cls.steps_max)):
            if rng.random() < 0.65:
                yield Step(_ANSWER, 0, rng.randbytes(2))
            else:
                data = rng.choice(_POOL)
                yield Step(Do.SEND, 0, flip_or_cut(rng, data) if rng.random() < 0.3 else data)

    def act(self, step: Step) -> None:
        """Let the user act, something arrive, and time pass."""
        data = self._answer(step.data.ljust(2, b"\0")) if step.kind == _ANSWER else step.data
        self.use()
        self.settle()
        self.receive(self.connection, data)
        self.pass_time(self.rng.choice((0, 1_000, 700_000, 20_000_000)), late=True)

    def use(self) -> None:
        """Do one of the things that a user may do."""
        client, rng, now = self.machine, self.rng, self.now
        keys = [bytes([number]) * 32 for number in range(1, rng.randrange(2, 15))]
        choice = rng.choice((7, 7, 6)) if self.searches and rng.random() < 0.7 else rng.randrange(6)
        if choice == 0:
            client.ask_lease(now)
        elif choice == 1:
            client.want_whitelist(keys, now)
        elif choice == 2:
            rng.choice((client.compare_whitelist, client.clear_whitelist, client.hold_lease, client.let_go))(now)
        elif choice in (3, 4):
            self.tickets += [client.send(b"hi", _FRIEND.public, now) for _ in range(rng.randrange(4))]
        elif choice == 5 and self.unconfirmed:
            client.confirm(self.unconfirmed.pop(), now)
        elif choice >= 6:
            signature, wanted = self.searches.popitem()
            counter = search(wanted.challenge, wanted.bits, wanted.start, _COUNTERS_MAX)
            if counter is None or choice == 6:
                client.work_stopped(signature, now)
            else:
                client.work_found(signature, counter, now)

    def _answer(self, choice: bytes) -> bytes:
        """What the host may answer to one of the last requests: the second byte chooses the command, wrong ones too."""
        if not self.requests:
            return b""
        request = self.requests[-1 - choice[0] % min(6, len(self.requests))]
        likely = _LIKELY[request.command]
        command = likely[choice[1] % len(likely)] if choice[1] < 240 else _ANSWERS[choice[1] % len(_ANSWERS)]
        payload = b"" if command is Command.HEARTBEAT_ANSWER else request.signature
        return _CODEC.seal(_HOST, _US.public, command, payload, _WALL_MS + self.now // 1_000).data

    def on_send(self, connection: Connection, data: bytes, *, receipt: bool) -> None:  # noqa: ARG002 - its base has it
        """Every packet is our own, signed, and for the host or the allow-listed sender."""
        packet = _CODEC.read(data)
        expect(packet.sender == _US.public and packet.command in REQUESTS, "the client sends as somebody else")
        expect(verify(_US.public, signed_part(packet.data), packet.signature), "our own signature is wrong")
        is_relay = packet.command is Command.RELAY
        expect(packet.recipient == (_FRIEND.public if is_relay else _HOST.public), "a packet for an unknown recipient")
        if packet.data not in self.known:
            self.known.add(packet.data)
            self.requests.append(packet)

    def on_event(self, event: Any) -> None:
        """Everything that is reported is true, and reported once."""
        if isinstance(event, RelayFinished):
            self.finished[event.signature] += 1
            expect(self.finished[event.signature] == 1, "a packet ended twice")
        elif isinstance(event, PacketArrived):
            packet = event.packet
            self.arrived[packet.signature] += 1
            expect(self.arrived[packet.signature] == 1, "a packet was reported twice")
            expect(packet.recipient == _US.public, "a packet for another client was reported")
            expect(verify(packet.sender, signed_part(packet.data), packet.signature), "a forged packet was reported")
            self.unconfirmed.append(packet.signature)
        elif isinstance(event, WorkWanted):
            expect(event.bits <= _SETTINGS.bits_max, "more work than we do")
            challenge = _CODEC.read(event.challenge)
            expect(challenge.sender == _HOST.public and challenge.recipient == _US.public, "not the host's challenge")
            expect(verify(_HOST.public, signed_part(challenge.data), challenge.signature), "a forged challenge")
            self.searches[event.challenge_signature] = event
        elif isinstance(event, WorkOver):
            expect(self.searches.pop(event.challenge_signature, None), "a search ended that never began")

    def settle(self) -> None:
        """See that nothing exceeds the settings."""
        super().settle()
        sizes = self.machine.sizes()
        expect(sizes["in_flight"] <= _SETTINGS.in_flight_max, "too many in flight")
        expect(sizes["waiting"] <= _SETTINGS.waiting_max + _SETTINGS.in_flight_max, "too many wait")
        expect(sizes["searching"] == len(self.searches) <= 4, f"{sizes['searching']} searches, not {self.searches}")
        expect(sizes["unconfirmed"] == len(self.unconfirmed), "the inbox counts otherwise")

    def finish(self) -> str:
        """Let go of everything and wait: all that was sent ends, and no deadline is left."""
        self.machine.let_go(self.now)
        for _ in range(2_000):
            due = self.machine.deadline()
            if due is None:
                break
            self.now = max(self.now, due)
            self.settle()
            for signature in list(self.searches):
                del self.searches[signature]
                self.machine.work_stopped(signature, self.now)
        self.settle()
        expect(self.machine.deadline() is None, "a client without anything to do wants to be woken")
        expect(self.machine.sizes()["in_flight"] == self.machine.sizes()["waiting"] == 0, "something is left over")
        expect(
            sorted(self.finished) == sorted(self.tickets), f"{len(self.finished)} outcomes, {len(self.tickets)} sent"
        )
        return f"{'arrived' if self.arrived else 'quiet'}:{'worked' if self.machine.bits else 'idle'}"


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
