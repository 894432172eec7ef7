"""Targets: a device's and a sender's side of a connection, with a relay that may say anything."""

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

from fuzz.corpus import COMMITS, DEVICE_HEARS, HELLO, KEYS, PREIMAGES, RELAY_FRAMES, SENDER_HEARS
from fuzz.mutate import cut, mutate_frames
from fuzz.target import expect
from waystation.core.effects import Close, Peer, Send
from waystation.core.instant import Instant
from waystation.protocols.bhumi.device_client import Delivered, DeviceClient
from waystation.protocols.bhumi.guide_client import GuideClient
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.sender_client import OUTSTANDING_MAX, Answered, Lost, SenderClient

__all__ = ["ClientTarget", "DeviceTarget", "Machine", "SenderTarget"]

Machine = DeviceClient | SenderClient | GuideClient
"""What can be under fire."""

_RELAY: Final = Peer(1)
_STEP_US: Final = 700_000


class ClientTarget(ABC):
    """The first byte of an input chooses chunking and what the user does; the rest is what the relay says."""

    name = ""
    hears: Sequence[bytes] = RELAY_FRAMES

    def make(self, rng: random.Random) -> bytes:
        """Return a relay's side of a conversation, bent."""
        corpus = RELAY_FRAMES if rng.random() < 0.1 else self.hears
        greeted = [HELLO] if rng.random() < 0.9 else []
        stream = greeted + mutate_frames(rng, rng.choices(corpus, k=rng.randrange(8)), corpus)
        return bytes([rng.randrange(256)]) + b"".join(stream)

    def run(self, data: bytes) -> str:
        """Let the relay speak in pieces while time passes and the user answers or asks."""
        choice, stream = (data[0] if data else 0), data[1:]
        rng = random.Random(choice)
        machine, now = self.machine(choice), Instant(0)
        machine.connect(_RELAY, now)
        events, effects = 0, 0
        outcome = "open"
        for piece in cut(rng, stream):
            machine.receive(_RELAY, piece, now)
            if rng.random() < 0.2:
                now = Instant(now + _STEP_US)
                machine.wake(now)
            happened = machine.take_events()
            events += len(happened)
            self.react(machine, happened, rng, now)
            wanted = machine.take()
            effects += len(wanted)
            outcome = _outcome(wanted, outcome)
        expect(events <= 2 * len(stream) // 6 + 40, f"{events} events")
        expect(effects <= 4 * len(stream) // 6 + 40, f"{effects} effects")
        machine.disconnect(_RELAY, now)
        events += len(machine.take_events())
        self.finish(machine)
        return outcome

    @abstractmethod
    def machine(self, choice: int) -> Machine:
        """Return the machine under fire."""

    @abstractmethod
    def react(self, machine: Machine, happened: list[Any], rng: random.Random, now: Instant) -> None:
        """Do what a user does about what happened."""

    @abstractmethod
    def finish(self, machine: Machine) -> None:
        """Check what must hold when the connection has ended."""


def _outcome(wanted: Sequence[object], outcome: str) -> str:
    for effect in wanted:
        expect(not outcome.startswith("closed"), "something is wanted behind a close")
        if isinstance(effect, Close):
            expect(effect.reason in Refusal, "closed for no documented reason")
            outcome = f"closed:{getattr(effect.reason, 'value', '')}"
        else:
            expect(isinstance(effect, Send), f"a client wants {effect!r}")
    return outcome


class DeviceTarget(ClientTarget):
    """A device that answers what is delivered."""

    name = "device"
    hears = DEVICE_HEARS

    def machine(self, choice: int) -> DeviceClient:
        """Return a device, with either layout expected."""
        return DeviceClient(KEYS[0], COMMITS, ask_preimage=bool(choice & 1), always_preimage=bool(choice & 2))

    def react(self, machine: Machine, happened: list[Any], rng: random.Random, now: Instant) -> None:
        """Answer most deliveries, and one that never was."""
        for event in happened:
            if isinstance(event, Delivered) and isinstance(machine, DeviceClient) and rng.random() < 0.8:
                machine.answer(event.message_id, b"reply")
                machine.answer(event.message_id ^ 1, b"reply")
        expect(now >= 0, "time runs backwards")

    def finish(self, machine: Machine) -> None:
        """A device keeps no delivery of a connection that ended."""
        expect(not machine.is_open, "open behind its end")
        expect(machine.deadline() is None, "a deadline behind its end")


class SenderTarget(ClientTarget):
    """A sender that asks; each of its requests must have exactly one end."""

    name = "sender"
    hears = SENDER_HEARS

    def __init__(self) -> None:
        self._asked: set[int] = set()

    def machine(self, choice: int) -> SenderClient:
        """Return a sender with nothing asked yet."""
        self._asked = set()
        return SenderClient(result_timeout_ms=1_000 + choice)

    def react(self, machine: Machine, happened: list[Any], rng: random.Random, now: Instant) -> None:
        """Strike out what has its outcome and ask again."""
        for event in happened:
            if isinstance(event, Answered | Lost):
                expect(event.token in self._asked, "a second outcome, or one of nothing")
                self._asked.discard(event.token)
        if isinstance(machine, SenderClient) and rng.random() < 0.7:
            token = machine.send(KEYS[0].public, rng.choice(PREIMAGES), b"ask", now)
            if isinstance(token, int):
                self._asked.add(token)
        expect(len(self._asked) <= OUTSTANDING_MAX + 1, "more asked than the window")

    def finish(self, machine: Machine) -> None:
        """Nothing is open, and nothing is waited for."""
        expect(not machine.is_open, "open behind its end")
        expect(machine.deadline() is None, "a deadline behind its end")
