"""Byzantine nodes of a simulated MERK mesh: they prove their keys correctly and then send false data.

``MerkScenario`` starts them. Any node may become a peer. Only the recipient can reject a frame that such a node forges.
A frame that it drops is lost, and the sender may get a false outcome. All other behaviour must be harmless.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.crypto.signing import sign
from waystation.protocols.merk import messages
from waystation.protocols.merk.messages import CHALLENGE_BYTES, CONFIRMATION, Feature, Frame, Info, MessageType, Role
from waystation.protocols.merk.payload.sealing import data_frame
from waystation.protocols.merk.relay.notices import DENIALS_MAX
from waystation.protocols.merk.wire import (
    auth_message,
    decode_frame,
    decode_info_frame,
    encode_frame,
    encode_header,
    encode_info_frame,
    frame_hash,
    header_message,
    make_advert,
    make_presence,
    target_of,
)
from waystation.sim import hostile
from waystation.sim.chance import fork, spread
from waystation.sim.merk import observations as seen
from waystation.sim.merk.context import MerkContext, address_of
from waystation.sim.merk.hostile import ALL_FEATURES, draw_garbage, draw_lie
from waystation.sim.merk.node import HOSTILE_NODE
from waystation.sim.merk.presences import Presence
from waystation.sim.site import draw_key_pair

__all__ = ["HostileNode"]

NEXT_US: Final = 2 * MICROSECONDS_PER_SECOND
NEXT_FLOOD_US: Final = 20 * MICROSECONDS_PER_SECOND
ASKED_US: Final = 6 * MICROSECONDS_PER_SECOND  # a little longer than a question is open
FLOOD_QUESTIONS: Final = 150
REPLAYS: Final = 3
NAMED_MAX: Final = 8
BUNDLED: Final = b"\x8b"  # subtype of a run of frames, which is read here without the code under test, too
GATHERED: Final = b"\x8a"  # subtype of a notice of many frames, which is read here without the code under test
THIEVES: Final = frozenset({"false_node", "replayer"})
"""Kinds that say they have everybody."""
PRIVATE: Final = (
    "ws://10.0.0.1:22",
    "ws://127.0.0.1:8081",
    "ws://169.254.169.254",
    "ws://[::1]:80",
    "ws://localhost:1",
)
NONSENSE: Final = ("http://example.org", "ws://", "ws://user@host.sim", "ws://white space", "x" * 255)


class HostileNode(hostile.HostileNode[MerkContext, "_Link"]):
    """One node with one trick, see ``merk_plan.HOSTILE_NODES``."""

    def __init__(self, context: MerkContext, rng: random.Random, place: int, kind: str) -> None:
        """Make a node with a trick of this kind; see ``hostile.HostileNode``."""
        super().__init__(context, rng, place, f"ws://evil-{place}.sim")
        self.kind = kind
        self.is_thief = kind in THIEVES
        self.client = draw_key_pair(rng)
        """A client of its own, whose presence it can show."""
        context.hostile_keys.append(self.client.public)
        if self.is_thief:
            context.thieves.add(self.url)

    def _make_link(self, *, is_dialler: bool) -> "_Link":
        return _Link(self, is_dialler=is_dialler)


class _Link(hostile.HostileLink):
    """One connection with a node that may take us for its peer."""

    def __init__(self, host: HostileNode, *, is_dialler: bool) -> None:
        super().__init__(is_dialler=is_dialler)
        self._host = host
        self._context = host.context
        self._rng = fork(host.rng)
        self._nonce = self._rng.randbytes(messages.NONCE_BYTES)
        self._stands = False
        # MERK-NOTICES: half of the links are with a node that knows only notices of one frame.
        self._features = int(ALL_FEATURES) & ~int(Feature.DELIVERIES) if self._rng.random() < 1 / 2 else ALL_FEATURES
        self._unanswered: Counter[bytes] = Counter()
        """Ids that were forwarded and have had no outcome."""
        self._peer_key = b""
        self._asked: dict[bytes, Instant] = {}
        self._claimed: dict[bytes, Instant] = {}
        self._answers: dict[type[Any], Callable[[Any], None]] = {
            messages.Hello: self._on_hello,
            messages.Auth: self._on_auth,
            messages.RequestServers: lambda _info: self._say(messages.Servers(())),
            messages.QueryClient: self._on_query,
            messages.KeyQuery: self._on_key_query,
            messages.Forward: self._on_forward,
        }
        self.presence: Presence | None = None
        """None for a connection that others dialled; they note it themselves."""

    def on_dialled(self, node: int) -> None:
        """Note the connection as one that hostile nodes have."""
        stream, is_thief = self.port.stream, self._host.is_thief
        presences = self._context.presences
        self.presence = presences.add_link(HOSTILE_NODE, node, stream, is_honest=False, is_thief=is_thief)

    def greet(self) -> None:
        """Ask who it is that has dialled us."""
        self.port.write(encode_frame(MessageType.HANDSHAKE, b"\x80" + self._rng.randbytes(CHALLENGE_BYTES - 1)))

    def received(self, data: bytes) -> None:
        """Go through the handshake, then answer as the trick has it."""
        frame = decode_frame(data)
        if frame.kind == MessageType.HANDSHAKE:
            self._on_handshake(frame)
            return
        if frame.payload[:1] == GATHERED:
            self._on_gathered(frame.payload)
            return
        if frame.payload[:1] == BUNDLED:
            self._on_bundled(frame.payload)
            return
        info = decode_info_frame(data)
        answer = self._answers.get(type(info))
        if answer is not None:
            answer(info)

    def ended(self) -> None:
        """Come back later, in ``come``."""
        if self.presence is not None:
            self.presence.over(self._context.schedule.now)

    def _on_handshake(self, frame: Frame) -> None:
        key_pair = self._host.key_pair
        if frame.payload == CONFIRMATION:
            self._say(self._hello())
        elif self._is_dialler:
            signature = sign(key_pair, frame.payload)
            self.port.write(
                encode_frame(MessageType.HANDSHAKE, frame.payload, sender=key_pair.public, signature=signature)
            )
        else:
            self.port.write(encode_frame(MessageType.HANDSHAKE, CONFIRMATION, sender=key_pair.public))

    def _on_gathered(self, payload: bytes) -> None:
        """Note whether every id is of a frame that was brought here and has had no outcome."""
        ids = [payload[at : at + 16] for at in range(2, len(payload), 16)]
        is_whole = len(payload) == 2 + 16 * len(ids) and 0 < len(ids) <= messages.DELIVERIES_MAX
        known = Counter(ids) & self._unanswered
        self._unanswered -= known
        is_right = is_whole and self._features == ALL_FEATURES and known.total() == len(ids)
        self._context.observe(seen.Gathered(self._context.node_keys.index(self._peer_key), is_right=is_right))

    def _on_bundled(self, payload: bytes) -> None:
        """Note whether a run of frames is whole and meant for who understands it; take its frames one by one."""
        forwards, at, count = [], 35, payload[34]
        for _ in range(count):
            size = int.from_bytes(payload[at + 16 : at + 20], "big")
            body = payload[at + 20 : at + 20 + size]
            forwards.append(messages.Forward(payload[1], payload[at : at + 16], payload[2:34], body))
            at += 20 + size
        is_whole = at == len(payload) and 0 < count <= messages.FORWARDS_MAX
        is_right = is_whole and self._features == ALL_FEATURES
        self._context.observe(seen.Bundled(self._context.node_keys.index(self._peer_key), is_right=is_right))
        for forward in forwards:
            self._on_forward(forward)

    def _hello(self) -> messages.Hello:
        return messages.Hello(self._features, Role.NODE, self._host.key_pair.public, self._nonce, self._host.url)

    def _on_hello(self, hello: messages.Hello) -> None:
        self._peer_key = hello.key
        if not self._is_dialler:
            self._say(self._hello())
        key_pair = self._host.key_pair
        signed = auth_message(key_pair.public, hello.key, self._nonce, hello.nonce, Role.NODE, Role.NODE)
        self._say(messages.Auth(sign(key_pair, signed)))
        if self._is_dialler:
            self._stand()

    def _on_auth(self, _auth: messages.Auth) -> None:
        if not self._is_dialler:
            self._stand()

    def _stand(self) -> None:
        """We are believed: begin."""
        if not self._stands:
            self._stands = True
            self._play()

    def _play(self) -> None:
        if not self.port.is_open or self._host.is_gone:
            return
        tricks: dict[str, Callable[[], None]] = {
            "forger": self._forge,
            "replayer": self._replay,
            "advertiser": self._advertise,
            "babbler": self._babble,
            "flooder": self._flood,
            "resigner": self._resign,
        }
        tricks.get(self._host.kind, lambda: None)()
        next_us = NEXT_FLOOD_US if self._host.kind == "flooder" else NEXT_US
        self._context.schedule.after(spread(self._rng, next_us), self._play)

    # Answers

    def _on_query(self, query: messages.QueryClient) -> None:
        self._asked[query.key] = self._context.schedule.now
        if query.key == self._host.client.public:
            self._claimed[query.key] = self._context.schedule.now
            self._say(self._true())
        elif self._host.is_thief:
            self._claimed[query.key] = self._context.schedule.now
            self._say(self._rng.choice((messages.ClientFound(query.key, self._draw_server()), self._false(query.key))))
        elif self._host.kind != "mute":
            self._say(messages.ClientAbsent(query.key))

    def _draw_server(self) -> bytes:
        return self._host.key_pair.public if self._rng.random() < 7 / 8 else self._rng.randbytes(32)

    def _true(self) -> messages.Presence:
        """Return the presence of our own client."""
        host, now_ms = self._host, self._context.wall_ms()
        kind = messages.PresenceKind.CONNECTED
        return make_presence(host.client, kind, host.key_pair.public, now_ms, now_ms + 600_000)

    def _false(self, client: bytes) -> messages.Presence:
        """Return a presence that the client has not signed: by our own key, or by nobody."""
        now_ms = self._context.wall_ms()
        own = make_presence(
            self._host.key_pair, messages.PresenceKind.CONNECTED, self._draw_server(), now_ms, now_ms + 600_000
        )
        signature = self._rng.choice((own.signature, self._rng.randbytes(64)))
        return replace(own, client=client, signature=signature)

    def _on_key_query(self, query: messages.KeyQuery) -> None:
        """Answer with an advert of our own making, or not at all."""
        if self._host.kind == "mute":
            return
        own = make_advert(self._host.key_pair, self._rng.randbytes(32), self._context.wall_ms())
        forged = messages.KeyAdvert(query.key, own.agreement_key, own.time_ms, own.signature)
        self._say(self._rng.choice((own, forged, messages.KeyUnknown(query.key))))

    def _on_forward(self, forward: messages.Forward) -> None:
        """Say that nobody is here, or keep the frame and say what we like."""
        name, target = frame_hash(forward.frame), target_of(forward.frame) or b""
        node = self._context.node_keys.index(self._peer_key)
        is_own = forward.origin == self._peer_key and self._context.presences.was_at(forward.frame[24:56], node)
        is_shown = target == self._host.client.public
        self._context.observe(seen.Forwarded(node, name, forward.hop, is_own, self._is_invited(target), is_shown))
        if not self._host.is_thief or self._rng.random() < 1 / 3:
            self._context.denied[name] += 1
            if self._context.denied[name] > DENIALS_MAX:
                self._context.observe(seen.Stolen(name))  # a frame is tried elsewhere so often, and not for ever
            self._report(messages.DeliveryCode.UNKNOWN_TARGET, forward)
            return
        self._context.observe(seen.Stolen(name))
        if self._rng.random() < 1 / 2:
            self._report(messages.DeliveryCode.DELIVERED, forward)

    def _report(self, code: int, forward: messages.Forward) -> None:
        """Say what became of a frame, now and then among ids that nobody knows, or twice."""
        if self._features != ALL_FEATURES:
            name, target = frame_hash(forward.frame), target_of(forward.frame) or b""
            self._say(messages.Delivery(code, target, name))
            return
        ids = [forward.message_id, *(self._rng.randbytes(16) for _ in range(self._rng.choice((0, 0, 1, 200))))]
        self._say(messages.Deliveries(code, tuple(ids[::-1])))
        if self._rng.random() < 1 / 4:
            self._say(messages.Deliveries(code, (forward.message_id, forward.message_id)))

    def _is_invited(self, target: bytes) -> bool:
        """Return whether we said about when we were asked that we have a client; a lie may cross the question."""
        asked_at, claimed_at = self._asked.get(target), self._claimed.get(target)
        return asked_at is not None and claimed_at is not None and abs(asked_at - claimed_at) < ASKED_US

    # Tricks

    def _forge(self) -> None:
        """Say what nobody asked, or forward what nobody wrote."""
        if self._rng.random() < 1 / 2:
            lie = draw_lie(self._context, self._rng, self._host.key_pair.public)
            if self._rng.random() < 1 / 4:
                lie = self._true()  # though nobody asked
            if isinstance(lie, messages.ClientFound):
                self._claimed[lie.key] = self._context.schedule.now
            self._say(lie)
            return
        people = list(self._context.agreement_keys)
        frame = data_frame(self._host.key_pair, self._rng.choice(people), self._rng.randbytes(9), header_signature=True)
        forged = frame[:24] + self._rng.choice(people) + frame[56:]
        self._context.make(forged, "peer")
        self._forward(forged)

    def _replay(self) -> None:
        """Forward what was overheard, several times under one number, or with a hop too many."""
        if not self._context.overheard:
            return
        frame, message_id = self._rng.choice(self._context.overheard), self._rng.randbytes(16)
        self._context.observe(seen.Injected(frame_hash(frame)))
        if self._features == ALL_FEATURES and self._rng.random() < 1 / 2:
            self._unanswered[message_id] += REPLAYS
            self._say(messages.ForwardRun(1, self._host.key_pair.public, ((message_id, frame),) * REPLAYS))
        else:
            for _ in range(REPLAYS):
                self._forward(frame, message_id)
        self._forward(frame, self._rng.randbytes(16), hop=self._rng.choice((0, 2, 255)))

    def _forward(self, frame: bytes, message_id: bytes = b"", hop: int = 1) -> None:
        message_id = message_id or self._rng.randbytes(16)
        self._unanswered[message_id] += 1
        self._say(messages.Forward(hop, message_id, self._host.key_pair.public, frame))

    def _resign(self) -> None:
        """Forward what was overheard as our own, or aimed at somebody else."""
        if not self._context.overheard:
            return
        frame, key_pair = self._rng.choice(self._context.overheard), self._host.key_pair
        kind, payload = frame[2], frame[messages.HEADER_BYTES :]
        if self._rng.random() < 1 / 2:
            payload = self._rng.choice(list(self._context.agreement_keys)) + payload[messages.KEY_BYTES :]
        header = encode_header(kind, len(payload), key_pair.public)
        covered = payload if kind == MessageType.ENCRYPTED_DATA else header_message(header, payload)
        resigned = header + sign(key_pair, covered) + payload
        self._context.make(resigned, "resigned")
        self._forward(resigned)

    def _advertise(self) -> None:
        """Name addresses: private ones, dead ones, nonsense, and dead ones for nodes that live elsewhere."""
        entries = []
        for _ in range(self._rng.randint(1, NAMED_MAX)):
            dead = f"ws://dead-{self._rng.randrange(100)}.sim"
            address = self._rng.choice((*PRIVATE, *NONSENSE, *[dead] * 10))
            honest = self._rng.choice(self._context.node_keys)
            entries.append(messages.ServerEntry(self._rng.choice((honest, self._rng.randbytes(32))), address))
        named: tuple[Info, ...] = (
            messages.Servers(tuple(entries)),
            messages.AddServer(entries[0].address),
            messages.AddServer(address_of(self._rng.randrange(self._context.plan.nodes))),
        )
        self._say(self._rng.choice(named))

    def _babble(self) -> None:
        """Send what makes no sense, or what came too late."""
        choices = (
            draw_garbage(self._rng),
            encode_frame(MessageType.HANDSHAKE, CONFIRMATION, sender=self._host.key_pair.public),
            encode_info_frame(self._hello(), self._host.key_pair.public),
            encode_info_frame(messages.Auth(bytes(64)), self._host.key_pair.public),
        )
        self.port.write(self._rng.choice(choices))

    def _flood(self) -> None:
        """Ask very much."""
        for _ in range(self._rng.randint(1, FLOOD_QUESTIONS)):
            key = self._rng.randbytes(32)
            question: Info = self._rng.choice(
                (messages.QueryClient(key), messages.KeyQuery(key), messages.RequestServers())
            )
            self._say(question)

    def _say(self, info: Info) -> None:
        self.port.write(encode_info_frame(info, self._host.key_pair.public))
