"""A relay in one hand: connections, their clients' ends, a clock, and the part of a server that matters.

``World`` does what a server does with effects: it hands bytes over, stops reading while held, confirms receipts, and
closes. ``Line`` is one client's end. Nothing here decides anything; tests read as conversations.
"""

import hashlib
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from waystation.core.effects import Close, Hold, Peer, Send
from waystation.core.facts import DeliveryFinished, Refused
from waystation.core.instant import Instant
from waystation.core.settings import InForce
from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.bhumi import extension_wire, messages, wire
from waystation.protocols.bhumi.limits import DEFAULT_LIMITS, BhumiLimits
from waystation.protocols.bhumi.messages import Feature, FrameType
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.relay.machine import BhumiRelay
from waystation.protocols.bhumi.settings import BhumiSettings

SECOND = 1_000_000
START = Instant(1_000 * SECOND)
VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "bhumi.json").read_text())
KEYS = [KeyPair.from_seed(hashlib.sha256(b"device %d" % number).digest()) for number in range(12)]
ALICE, BOB, CAROL = KEYS[:3]


def preimage(number: int) -> bytes:
    """Return the 32-byte preimage called ``number``."""
    return hashlib.sha256(b"preimage %d" % number).digest()


def commit(number: int) -> bytes:
    """Return the commit of ``preimage(number)``."""
    return hashlib.sha256(preimage(number)).digest()


def vector(name: str) -> bytes:
    """Return the frame called ``name`` in the vectors."""
    both = VECTORS["deterministic"] + VECTORS["spec_letter_only"]
    return bytes.fromhex(next(entry["hex"] for entry in both if entry["name"] == name))


def send(to: KeyPair, number: int, payload: bytes = b"ask") -> messages.Send:
    """Return a SEND to ``to`` with the preimage called ``number``."""
    return messages.Send(to.public, preimage(number), payload)


def i_am(
    key: KeyPair, nonce: int, commits: Iterable[int] = (), responses: Iterable[tuple[int, bytes]] = ()
) -> messages.IAm:
    """Return a valid I_AM for ``nonce``."""
    carried = tuple(messages.RecentResponse(preimage(number), response) for number, response in responses)
    signature = sign(key, wire.signed_bytes(nonce, key.public))
    return messages.IAm(key.public, signature, tuple(commit(number) for number in commits), carried)


def raw(frame_type: int, payload: bytes = b"", length: int | None = None) -> bytes:
    """Return a frame of any type, with a length that may lie."""
    size = len(payload) if length is None else length
    return frame_type.to_bytes(2, "big") + size.to_bytes(4, "big") + payload


def decode(frame_type: int, payload: bytes, *, with_preimage: bool) -> messages.Message:
    """Return what the relay said in one frame."""
    if frame_type == FrameType.DELIVER:
        return wire.decode_deliver(payload, with_preimage=with_preimage)
    if frame_type == FrameType.KEEPALIVE:
        assert not payload
        return messages.Keepalive()
    decoders = {
        FrameType.HELLO: wire.decode_hello,
        FrameType.SEND_RESULT: wire.decode_send_result,
        FrameType.OPTIONS: wire.decode_options,
        FrameType.WATCHED: extension_wire.decode_watched,
        FrameType.AUTHORITY: extension_wire.decode_authority,
    }
    return decoders[FrameType(frame_type)](payload)


def limits_of(**limits: int) -> InForce[BhumiLimits]:
    """Return limits in force, the defaults but for these."""
    return InForce(BhumiLimits(**limits))


REMEMBERED = ("remembered_recipients", "own_addresses", "gossip_addresses", "local_relays")
"""Tables of a relay that outlive the connections that filled them, as far as their limits go."""


def left_over(relay: BhumiRelay) -> dict[str, int]:
    """Return what a relay still has of connections that are over."""
    return {name: size for name, size in relay.sizes().items() if size and name not in REMEMBERED}


class Line:
    """One client's end of a connection."""

    def __init__(self, world: "World", peer: Peer) -> None:
        self.world = world
        self.peer = peer
        self.with_preimage = world.settings.deliver_layout == "preimage"
        self.frames = wire.FrameBuffer(wire.client_frame_limits(world.settings.max_payload_bytes))
        self.heard: list[messages.Message] = []
        self.unread = b""
        self.held = False
        self.closed: Any = None
        self.aborted = False
        self.out_bytes = 0
        self.nonce = 0
        self.congested = False

    def say(self, *spoken: messages.Message) -> "Line":
        """Send whole messages in one piece."""
        return self.say_bytes(b"".join(wire.encode(message) for message in spoken))

    def say_bytes(self, data: bytes, chunks: Iterable[int] = ()) -> "Line":
        """Send bytes, cut after each of the sizes in ``chunks``."""
        for size in chunks:
            self._pass(data[:size])
            data = data[size:]
        self._pass(data)
        return self

    def _pass(self, data: bytes) -> None:
        if self.closed is not None:
            return
        if self.held:
            self.unread += data
            return
        self.world.relay.receive(self.peer, data, self.world.now)
        self.world.settle()

    def hear(self) -> list[messages.Message]:
        """Return and forget what has arrived."""
        heard, self.heard = self.heard, []
        return heard

    def statuses(self) -> list[int]:
        """Return and forget what has arrived, results only, as statuses."""
        return [message.status for message in self.hear() if isinstance(message, messages.SendResult)]

    def answer(self, payload: bytes = b"reply") -> "Line":
        """Acknowledge every DELIVER that has arrived."""
        for message in self.hear():
            assert isinstance(message, messages.Deliver)
            self.say(messages.Ack(message.message_id, payload))
        return self

    def hang_up(self) -> None:
        """End the connection from the client's side."""
        self.closed = "hung up"
        self.world.relay.disconnect(self.peer, self.world.now)
        self.world.settle()

    def session(self) -> Any:
        """Return the relay's side of this connection."""
        return self.world.relay._sessions[self.peer]


class World:
    """A relay with its clock and its clients."""

    def __init__(
        self,
        *,
        seed: int = 1,
        rate_limits: bool = True,
        prompt: bool = True,
        limits: BhumiLimits = DEFAULT_LIMITS,
        **settings: Any,
    ) -> None:
        self.settings = BhumiSettings(**settings)
        self.banned: set[bytes] = set()
        self.unlimited: set[bytes] = set()
        self.relay = BhumiRelay(
            self.settings,
            random.Random(seed),
            limits=limits,
            rate_limits=rate_limits,
            admits=lambda key: key not in self.banned,
            is_unlimited=lambda key: key in self.unlimited,
        )
        self.now = START
        self.lines: dict[int, Line] = {}
        self.facts: list[Any] = []
        self.trace: list[Any] = []
        self.prompt = prompt
        """Whether what is sent leaves at once, so that receipts come at once."""

    def connect(self) -> Line:
        """Connect a client and read its HELLO."""
        line = self.connect_raw()
        (hello,) = line.hear()
        assert isinstance(hello, messages.Hello)
        return line

    def connect_raw(self, endpoint: str = "") -> Line:
        """Connect a client; HELLO stays to be heard."""
        peer = Peer(len(self.lines) + 1)
        line = self.lines[peer] = Line(self, peer)
        self.relay.connect_by(peer, endpoint, self.now)
        self.settle()
        line.nonce = line.heard[0].relay_nonce
        return line

    def device(
        self,
        key: KeyPair = ALICE,
        commits: Iterable[int] = (),
        responses: Iterable[tuple[int, bytes]] = (),
        *,
        features: Feature | None = None,
    ) -> Line:
        """Connect a client and identify it."""
        line = self.connect()
        if features:
            line.say(messages.Options(features))
            line.with_preimage = True
            assert line.hear() == [messages.Options(features)]
        line.say(i_am(key, line.nonce, commits, responses))
        assert line.closed is None
        return line

    def settle(self) -> None:
        """Do what the relay asks for until it asks for nothing."""
        while effects := self.relay.take():
            self.trace += effects
            receipts = [effect.peer for effect in effects if self._perform(effect)]
            if self.prompt:
                for peer in receipts:
                    if not self.lines[peer].congested:
                        self.relay.drained(peer, self.now)

    def _perform(self, effect: Any) -> bool:
        """Carry out one effect; True when it wants a receipt."""
        if not isinstance(effect, Send | Close | Hold):
            self.facts.append(effect)
            return False
        line = self.lines[effect.peer]
        if isinstance(effect, Send):
            assert line.closed is None or line.closed == "hung up"
            line.out_bytes += len(effect.data)
            line.frames.feed(effect.data)
            while (frame := line.frames.next_frame()) is not None:
                line.heard.append(decode(*frame, with_preimage=line.with_preimage))
            return effect.receipt
        if isinstance(effect, Close):
            line.closed, line.aborted = effect.reason, effect.abort
        if isinstance(effect, Hold):
            assert line.held is not effect.held
            line.held = effect.held
            if not line.held and line.unread:
                unread, line.unread = line.unread, b""
                self.relay.receive(line.peer, unread, self.now)
        return False

    def congest(self, line: Line) -> None:
        """Let the peer take nothing more, or tell of progress when it already does."""
        line.congested = True
        self.relay.congested(line.peer, self.now)
        self.settle()

    def drain(self, line: Line) -> None:
        """Let everything sent to this peer leave."""
        line.congested = False
        self.relay.drained(line.peer, self.now)
        self.settle()

    def pass_ms(self, duration_ms: int) -> None:
        """Let time pass, waking the relay at each of its deadlines."""
        until, wakes = Instant(self.now + duration_ms * 1_000), 0
        while (deadline := self.relay.deadline()) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            wakes += 1
            assert wakes < 20_000, "woken without end"
            self.relay.wake(self.now)
            self.settle()
        self.now = until

    def refusals(self) -> dict[str, int]:
        """Return how often each refusal was counted."""
        counts: dict[str, int] = {}
        for fact in self.facts:
            if isinstance(fact, Refused):
                counts[fact.reason] = counts.get(fact.reason, 0) + fact.times
        return counts

    def outcomes(self) -> list[str]:
        """Return the outcomes of all deliveries so far."""
        return [fact.outcome.value for fact in self.facts if isinstance(fact, DeliveryFinished)]


def is_refusal(closed: object) -> bool:
    """Return whether a connection ended by one of the documented refusals."""
    return isinstance(closed, Refusal)
