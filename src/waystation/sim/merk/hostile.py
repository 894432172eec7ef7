"""Hostile clients of a simulated MERK mesh, with one attack each.

``MerkScenario`` starts them. A forged frame must never arrive. Floods of look-ups must not prevent others from being
found. A client that never reads must be disconnected.
"""

import random
from collections.abc import Callable
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.crypto.signing import sign
from waystation.protocols.merk import messages
from waystation.protocols.merk.messages import (
    ZERO_KEY,
    ZERO_SIGNATURE,
    Frame,
    Info,
    MessageType,
    Role,
)
from waystation.protocols.merk.payload.sealing import data_frame
from waystation.protocols.merk.wire import decode_frame, encode_frame, encode_info_frame, frame_hash, make_advert
from waystation.sim.chance import spread
from waystation.sim.hostile import HostileClient
from waystation.sim.merk import observations as seen
from waystation.sim.merk.context import CARRIED, MerkContext
from waystation.sim.net.link import Port
from waystation.sim.site import draw_key_pair

__all__ = ["Hostile", "draw_garbage", "draw_lie"]

NEXT_US: Final = 2 * MICROSECONDS_PER_SECOND
NEXT_FLOOD_US: Final = 20 * MICROSECONDS_PER_SECOND
FLOOD_FRAMES: Final = 150
ALL_FEATURES: Final = 0xFFFF_FFFF


class Hostile(HostileClient[MerkContext]):
    """One client with one trick, see ``merk_plan.HOSTILE_CLIENTS``."""

    def __init__(self, context: MerkContext, rng: random.Random, host: str, kind: str) -> None:
        """Make a client; see ``HostileClient``."""
        super().__init__(context, rng, host, kind)
        self._key_pair = draw_key_pair(rng)
        context.hostile_keys.append(self._key_pair.public)
        tricks: dict[str, Callable[[], list[bytes]]] = {
            "impostor": self._pretend,
            "searcher": self._search,
            "garbage": lambda: [draw_garbage(rng)],
            "meddler": self._meddle,
            "deaf": lambda: [self._say(messages.RequestServers())],
            "relayer": self._relay,
        }
        self._victim = b""
        """Whose answer to the challenge was had, by passing it on."""
        self._node = 0
        self._trick = tricks.get(kind, list)
        self._is_known = False

    def leave(self) -> None:
        """Go for good."""
        super().leave()
        if self._port is not None:
            self._presence.over(self._context.schedule.now)

    def ended(self) -> None:
        """Come back later."""
        self._presence.over(self._context.schedule.now)
        super().ended()

    def received(self, data: bytes) -> None:
        """Answer the challenge, rightly or not, and begin once that is confirmed."""
        frame = decode_frame(data)
        port = self._port
        assert port is not None
        if frame.kind in CARRIED and self._victim:
            self._on_drawn(data)
        if frame.kind == MessageType.HANDSHAKE and len(frame.payload) == messages.CHALLENGE_BYTES:
            answers = self._misanswer(frame) if self._kind == "squatter" else [self._answer(frame)]
            for answer in answers:
                port.write(answer)
        elif frame.kind == MessageType.HANDSHAKE and not self._is_known:
            self._is_known = True
            if self._kind == "deaf":
                port.pause()
                self._watch(port)
            self._play(port)

    def _on_dialled(self, node: int, port: Port) -> None:
        self._is_known = False
        self._node = node
        self._presence = self._context.presences.add_client(self._key_pair.public, node, port.stream, is_honest=False)

    def _play(self, port: Port) -> None:
        """Play the trick, again and again while the connection stands."""
        if not port.is_open:
            return
        for message in self._trick():
            port.write(message)
        next_us = NEXT_FLOOD_US if self._kind == "searcher" else NEXT_US
        self._context.schedule.after(spread(self._rng, next_us), lambda: self._play(port))

    # Tricks

    def _answer(self, challenge: Frame) -> bytes:
        signers = self._context.signers
        if self._kind == "relayer" and signers:
            self._victim = self._rng.choice(list(signers))
            signature = signers[self._victim](challenge.payload)
            return encode_frame(MessageType.HANDSHAKE, challenge.payload, sender=self._victim, signature=signature)
        signature = sign(self._key_pair, challenge.payload)
        return encode_frame(MessageType.HANDSHAKE, challenge.payload, sender=self._key_pair.public, signature=signature)

    def _misanswer(self, challenge: Frame) -> list[bytes]:
        """Answer with somebody else's key, no key, other bytes, twice, too early a frame, or not at all."""
        own, unknown = self._key_pair.public, self._somebody()
        right, payload = self._answer(challenge), challenge.payload
        signature = sign(self._key_pair, payload)
        ways: tuple[list[bytes], ...] = (
            [encode_frame(MessageType.HANDSHAKE, payload, sender=unknown, signature=signature)],
            [encode_frame(MessageType.HANDSHAKE, payload, sender=ZERO_KEY, signature=ZERO_SIGNATURE)],
            [encode_frame(MessageType.HANDSHAKE, payload[::-1], sender=own, signature=signature)],
            [right, right],
            [self._forged_frame(unknown)],
            [self._say(messages.QueryClient(unknown)), right],
            [],
        )
        return self._rng.choice(ways)

    def _relay(self) -> list[bytes]:
        """Do with the victim's login what can be done without its key: greet, ask, write, and show a forged AUTH."""
        if not self._victim:
            return []
        hello = messages.Hello(ALL_FEATURES, Role.CLIENT, self._victim, self._rng.randbytes(32), "")
        said: tuple[Info, ...] = (hello, messages.RequestServers(), messages.KeyQuery(self._victim))
        frames = [encode_info_frame(self._rng.choice(said), self._victim)]
        if self._rng.random() < 1 / 16:
            frames.append(encode_info_frame(messages.Auth(self._rng.randbytes(64)), self._victim))
        return frames

    def _on_drawn(self, frame: bytes) -> None:
        """Note what was meant for the victim."""
        context, name = self._context, frame_hash(frame)
        life_began = context.lives.get(self._node, Instant(0))
        is_known = context.presences.proved_at(self._victim, self._node, life_began)
        context.observe(seen.Drawn(self._node, name, is_known))
        context.observe(seen.Stolen(name))

    def _pretend(self) -> list[bytes]:
        """Write in somebody's name."""
        return [self._forged_frame(self._somebody()) for _ in range(self._rng.randint(1, 3))]

    def _search(self) -> list[bytes]:
        """Look for very many who are not there."""
        frames = []
        for _ in range(self._rng.randint(1, FLOOD_FRAMES)):
            nobody = self._rng.randbytes(32)
            frame = data_frame(self._key_pair, nobody, b"where are you", header_signature=False)
            self._context.note_sent(nobody, len(frame))
            self._context.make(frame, "client")
            frames.append(frame)
        return frames

    def _meddle(self) -> list[bytes]:
        """Say what only nodes may say, and name addresses."""
        own, somebody = self._key_pair.public, self._somebody()
        if self._rng.random() < 1 / 2:
            return [self._say(draw_lie(self._context, self._rng, own))]
        address = f"ws://named-by-client-{self._rng.randrange(100)}.sim"
        self._context.named_by_clients.add(address)
        advert = make_advert(self._key_pair, self._rng.randbytes(32), self._context.wall_ms())
        forged = messages.KeyAdvert(somebody, advert.agreement_key, advert.time_ms, advert.signature)
        hello = messages.Hello(ALL_FEATURES, Role.CLIENT, somebody, self._rng.randbytes(32), "")
        entry = messages.ServerEntry(self._rng.randbytes(32), address)
        choices: tuple[Info, ...] = (
            messages.AddServer(address),
            messages.Servers((entry,)),
            messages.QueryClient(somebody),
            messages.KeyQuery(somebody),
            forged,
            hello,
        )
        return [self._say(self._rng.choice(choices))]

    def _forged_frame(self, sender: bytes) -> bytes:
        """Return a frame of ours in somebody else's name."""
        content = b"forged " + self._rng.randbytes(8)
        frame = data_frame(self._key_pair, self._somebody(), content, header_signature=self._rng.random() < 1 / 2)
        forged = frame[: messages.HEADER_BYTES - 96] + sender + frame[messages.HEADER_BYTES - 64 :]
        self._context.make(forged, "client")
        return forged

    def _somebody(self) -> bytes:
        return self._rng.choice(list(self._context.agreement_keys))

    def _say(self, info: Info) -> bytes:
        return encode_info_frame(info, self._key_pair.public)


def draw_lie(context: MerkContext, rng: random.Random, own: bytes) -> Info:
    """Return something about somebody honest that nobody asked for and that is not so.

    Args:
        context: Knows who is honest.
        rng: Draws what.
        own: The key that it is sent with.
    """
    somebody, server = rng.choice(list(context.agreement_keys)), rng.choice((own, rng.randbytes(32)))
    code = rng.randrange(6)
    choices: tuple[Info, ...] = (
        messages.ClientFound(somebody, server),
        messages.ClientAbsent(somebody),
        messages.Gone(somebody),
        messages.Delivery(code, somebody, rng.choice(context.recent_frames())),
        messages.Deliveries(code, tuple(rng.randbytes(16) for _ in range(rng.randint(1, messages.DELIVERIES_MAX)))),
        messages.Forward(1, rng.randbytes(16), server, b"X" * 200),
        messages.ForwardRun(1, server, ((rng.randbytes(16), b"X" * 200),) * rng.randint(1, 3)),
        messages.Auth(rng.randbytes(64)),
        messages.KeyUnknown(somebody),
    )
    return rng.choice(choices)


def draw_garbage(rng: random.Random) -> bytes:
    """Return bytes that are no frame, or one that makes no sense."""
    right = encode_frame(MessageType.NODE_INFO, b"\x05" + rng.randbytes(32), sender=rng.randbytes(32))
    cut = rng.randrange(1, len(right))
    choices = (
        b"\x00",
        rng.randbytes(rng.randint(1, 300)),
        right[:cut],
        right + b"!",
        b"\x59" + right[1:],
        right[:1] + b"\x02" + right[2:],
        right[:2] + bytes((rng.randrange(256),)) + right[3:],
        right[:4] + rng.randbytes(4) + right[8:],
        encode_frame(MessageType.NODE_INFO, rng.randbytes(rng.randint(0, 80)), sender=right[24:56]),
    )
    return rng.choice(choices)
