"""Fuzz targets: the clients of Bhumi (device, sender, anonymous client), with a relay that sends arbitrary bytes."""

import random
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, TypeVar

from fuzz.conversation import Dialogue
from fuzz.corpus import COMMITS, DEVICE_HEARS, HELLO, KEYS, PREIMAGES, RELAY_FRAMES, SENDER_HEARS
from fuzz.mutate import cut, mutate_frames
from fuzz.target import expect
from waystation.protocols.bhumi import extension_messages, extension_wire, messages, wire
from waystation.protocols.bhumi.client.base import Greeted
from waystation.protocols.bhumi.client.device import (
    DEVICE_FEATURES,
    PROBES_MAX,
    Delivered,
    DeviceClient,
    ProbeAsked,
    Registered,
    RelayNamed,
    RelaysReceived,
)
from waystation.protocols.bhumi.client.guide import Found, GuideClient, NoGuide, RelaysListed
from waystation.protocols.bhumi.client.sender import OUTSTANDING_MAX, Answered, Lost, SenderClient
from waystation.protocols.bhumi.messages import Feature
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.signed_records import sign_advert, sign_presence

C = TypeVar("C", bound=DeviceClient | SenderClient | GuideClient)
_WALL_S: Final = 1_700_000_000
_WHOM: Final = KEYS[1].public
_PRESENCE: Final = sign_presence(KEYS[1], KEYS[2].public, _WALL_S, 300)
_ADVERT: Final = sign_advert(KEYS[2], "tls://relay.example:8443", _WALL_S, 600)


def _frames(*sent: extension_messages.ExtensionMessage) -> list[bytes]:
    options = [wire.encode(messages.Options(Feature(bits))) for bits in (0, 0x3D, 0x04, 0x3F, 0xBD)]
    return [*options, *(extension_wire.encode_extension(message) for message in sent)]


_DEVICE_HEARS: Final = (
    *DEVICE_HEARS,
    *_frames(
        extension_messages.BindChallenge(KEYS[2].public, bytes(32)),
        extension_messages.BindChallenge(KEYS[1].public, b"\x01" * 32),
        extension_messages.IAmOk(2, 1),
        extension_messages.Relays((_ADVERT, _ADVERT)),
        extension_messages.Relays(),
        extension_messages.QaRequest(7, "tls://other.example:1", 60),
        extension_messages.QaRequest(8, "tcp://127.0.0.1:22", 0),
    ),
)
_GUEST_HEARS: Final = (
    HELLO,
    wire.encode(messages.Keepalive()),
    *_frames(
        extension_messages.WhereResult(_WHOM, (extension_messages.WhereEntry(_PRESENCE, "tls://relay.example:1"),)),
        extension_messages.WhereResult(_WHOM),
        extension_messages.WhereResult(KEYS[0].public),
        extension_messages.Relays((_ADVERT,)),
        extension_messages.Relays(),
    ),
)


class _Client(Dialogue[C]):
    """A client on one connection to a relay."""

    reasons = Refusal
    effects_per_frame = 4
    late_us = 700_000
    hears: ClassVar[Sequence[bytes]]

    def __init__(self, machine: C, choice: int) -> None:
        super().__init__(machine, choice)
        machine.connect(self.connection.peer, self.now)
        self.settle()

    @classmethod
    def draw_frames(cls, rng: random.Random, choice: int) -> Iterator[bytes]:  # noqa: ARG003 - its base has it
        """Return a relay's side of a conversation, mutated, and cut as a stream may be."""
        corpus = RELAY_FRAMES if rng.random() < 0.1 else cls.hears
        hello = [HELLO] if rng.random() < 0.9 else []
        frames = hello + mutate_frames(rng, rng.choices(corpus, k=rng.randrange(8)), corpus)
        return cut(rng, b"".join(frames))

    def finish(self) -> str:
        """A client keeps nothing of a connection that ended."""
        outcome = super().finish()
        expect(not self.machine.is_open, "open after its end")
        expect(self.machine.deadline() is None, "a deadline after its end")
        return outcome


class BhumiSender(_Client[SenderClient]):
    """A sender that asks; each of its requests must have exactly one end."""

    name = "sender"
    hears = SENDER_HEARS

    def __init__(self, choice: int) -> None:
        self.asked: set[int] = set()
        super().__init__(SenderClient(result_timeout_ms=1_000 + choice), choice)

    def on_event(self, event: Any) -> None:
        """Strike out what has its outcome."""
        if isinstance(event, Answered | Lost):
            expect(event.token in self.asked, "a second outcome, or one of nothing")
            self.asked.discard(event.token)

    def use(self) -> None:
        """Ask again, most of the time."""
        if self.rng.random() < 0.7:
            token = self.machine.send(KEYS[0].public, self.rng.choice(PREIMAGES), b"ask", self.now)
            if isinstance(token, int):
                self.asked.add(token)
        expect(len(self.asked) <= OUTSTANDING_MAX + 1, "more asked than the window")

    def finish(self) -> str:
        """Each request has its outcome when the connection has ended."""
        outcome = super().finish()
        expect(not self.asked, f"{len(self.asked)} requests without an outcome")
        return outcome


class BhumiDevice(_Client[DeviceClient]):
    """Answers, asserts, asks and refuses; nothing that was not agreed on may leave.

    The choice says which layout it expects, which extensions it knows, often none, and whom it takes the relay for.
    """

    name = "bhumi_device"
    hears = _DEVICE_HEARS

    def __init__(self, choice: int) -> None:
        self.registered = self.named = self.asked = self.probes = 0
        features = (Feature(0), DEVICE_FEATURES, DEVICE_FEATURES & Feature(choice >> 2))[choice % 3]
        device = DeviceClient(
            KEYS[0],
            COMMITS,
            ask_preimage=bool(choice & 16),
            always_preimage=bool(choice & 32),
            features=features,
            relay_id=KEYS[2].public if choice & 2 else None,
        )
        super().__init__(device, choice)

    def on_event(self, event: Any) -> None:
        """Answer most deliveries, and one that never was; count what may come but once."""
        if isinstance(event, Delivered) and self.rng.random() < 0.8:
            self.machine.answer(event.message_id, b"reply")
            self.machine.answer(event.message_id ^ 1, b"reply")
        elif isinstance(event, ProbeAsked):
            self.probes += self.machine.refuse_probe(event.probe_id) is None
        elif isinstance(event, RelaysReceived):
            self.asked -= 1
            expect(self.asked >= 0, "an answer without a question")
        self.registered += isinstance(event, Registered)
        self.named += isinstance(event, RelayNamed)

    def use(self) -> None:
        expect(self.registered <= 1, "registered twice")
        expect(self.named <= 1, "bound twice")
        expect(self.probes <= PROBES_MAX, "more refusals than probes that may be asked for")
        if self.rng.random() < 0.3:
            left = self.machine.assert_presence(_PRESENCE) is None
            expect(not left or self.machine.accepts(Feature.PRESENCE), "presence was never agreed on")
        if self.rng.random() < 0.3:
            self.asked += self.machine.ask_relays() is None


class BhumiGuest(_Client[GuideClient]):
    """An anonymous client that asks where a device is, and for relays; it takes answers to what was asked."""

    name = "bhumi_guest"
    hears = _GUEST_HEARS

    def __init__(self, choice: int) -> None:
        self.question: type[Found | RelaysListed] | None = None
        self.hellos = 0
        super().__init__(GuideClient(answer_timeout_ms=1_000 + choice), choice)

    def on_event(self, event: Any) -> None:
        if isinstance(event, Greeted | NoGuide):
            self.hellos += 1
            return
        expect(type(event) is self.question, "an answer to another question, or to none")
        expect(not isinstance(event, Found) or event.identity == _WHOM, "an answer about another device")
        self.question = None

    def use(self) -> None:
        expect(self.hellos <= 1, "two handshakes")
        if self.rng.random() < 0.6:
            wants_device = self.rng.random() < 0.5
            refused = self.machine.where(_WHOM, self.now) if wants_device else self.machine.relays(self.now)
            expect(refused is not None or self.question is None, "two questions at once")
            if refused is None:
                self.question = Found if wants_device else RelaysListed
