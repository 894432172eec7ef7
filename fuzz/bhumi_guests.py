"""Targets: a device that agrees on extensions, and a guest that asks the way, with a relay that may say anything."""

import random
from typing import Any, Final

from fuzz.corpus import COMMITS, DEVICE_HEARS, HELLO, KEYS
from fuzz.fuzz_client import ClientTarget, Machine
from fuzz.target import expect
from waystation.core.instant import Instant
from waystation.protocols.bhumi import extension_messages, extension_wire, messages, wire
from waystation.protocols.bhumi.client_base import Greeted
from waystation.protocols.bhumi.device_client import (
    DEVICE_FEATURES,
    PROBES_MAX,
    Delivered,
    DeviceClient,
    ProbeAsked,
    Registered,
    RelayNamed,
    RelaysTold,
)
from waystation.protocols.bhumi.guide_client import Found, GuideClient, Heard, NoGuide
from waystation.protocols.bhumi.messages import Feature
from waystation.protocols.bhumi.signed_records import sign_advert, sign_presence

_WALL_S: Final = 1_700_000_000
_WHOM: Final = KEYS[1].public
_PRESENCE: Final = sign_presence(KEYS[1], KEYS[2].public, _WALL_S, 300)
_ADVERT: Final = sign_advert(KEYS[2], "tls://relay.example:8443", _WALL_S, 600)


def _frames(*said: extension_messages.ExtensionMessage) -> list[bytes]:
    options = [wire.encode(messages.Options(Feature(bits))) for bits in (0, 0x3D, 0x04, 0x3F)]
    return [*options, *(extension_wire.encode_extension(message) for message in said)]


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


class BhumiDeviceTarget(ClientTarget):
    """A device that speaks every extension that it knows, as far as the relay has agreed."""

    name = "bhumi_device"
    hears = _DEVICE_HEARS

    def __init__(self) -> None:
        self._registered = 0
        self._named = 0
        self._asked = 0
        self._probes = 0

    def machine(self, choice: int) -> DeviceClient:
        """Return a device that asks for all features, or for some."""
        self._registered = self._named = self._asked = self._probes = 0
        features = DEVICE_FEATURES if choice & 1 else DEVICE_FEATURES & Feature(choice)
        return DeviceClient(KEYS[0], COMMITS, features=features, relay_id=KEYS[2].public if choice & 2 else None)

    def react(self, machine: Machine, happened: list[Any], rng: random.Random, now: Instant) -> None:
        """Answer, assert, ask and refuse; nothing that was not agreed on may leave."""
        assert isinstance(machine, DeviceClient)
        for event in happened:
            if isinstance(event, Delivered):
                machine.answer(event.message_id, b"reply")
            elif isinstance(event, ProbeAsked):
                self._probes += machine.refuse_probe(event.probe_id) is None
            elif isinstance(event, RelaysTold):
                self._asked -= 1
                expect(self._asked >= 0, "an answer that nobody asked for")
            self._registered += isinstance(event, Registered)
            self._named += isinstance(event, RelayNamed)
        expect(self._registered <= 1, "registered twice")
        expect(self._named <= 1, "bound twice")
        expect(self._probes <= PROBES_MAX, "more refusals than probes that may be asked for")
        if rng.random() < 0.3:
            left = machine.assert_presence(_PRESENCE) is None
            expect(not left or machine.accepts(Feature.PRESENCE), "presence was never agreed on")
        if rng.random() < 0.3:
            self._asked += machine.ask_relays() is None
        expect(now >= 0, "time runs backwards")

    def finish(self, machine: Machine) -> None:
        """A device keeps nothing of a connection that ended."""
        expect(not machine.is_open, "open behind its end")
        expect(machine.deadline() is None, "a deadline behind its end")


class BhumiGuestTarget(ClientTarget):
    """A guest that asks where somebody is, and for relays."""

    name = "bhumi_guest"
    hears = _GUEST_HEARS

    def __init__(self) -> None:
        self._question: type[Found | Heard] | None = None
        self._greeted = 0

    def machine(self, choice: int) -> GuideClient:
        """Return a guest that has asked nothing yet."""
        self._question, self._greeted = None, 0
        return GuideClient(answer_timeout_ms=1_000 + choice)

    def react(self, machine: Machine, happened: list[Any], rng: random.Random, now: Instant) -> None:
        """Take answers to what was asked, and ask again."""
        assert isinstance(machine, GuideClient)
        for event in happened:
            if isinstance(event, Greeted | NoGuide):
                self._greeted += 1
            else:
                expect(type(event) is self._question, "an answer to another question, or to none")
                expect(not isinstance(event, Found) or event.identity == _WHOM, "an answer about somebody else")
                self._question = None
        expect(self._greeted <= 1, "greeted twice")
        if rng.random() < 0.6:
            asks, kind = (machine.where(_WHOM, now), Found) if rng.random() < 0.5 else (machine.relays(now), Heard)
            expect(asks is not None or self._question is None, "two questions at once")
            self._question = kind if asks is None else self._question

    def finish(self, machine: Machine) -> None:
        """Nothing is open, and nothing is waited for."""
        expect(not machine.is_open, "open behind its end")
        expect(machine.deadline() is None, "a deadline behind its end")
