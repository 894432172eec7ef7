"""Fuzz targets: a Strata relay and a Strata client, each with a peer that may send anything.

Frames are valid messages, unchanged, mutated as text, or mutated in one member.
"""

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, TypeVar

from fuzz.conversation import FACTS, Connection, Dialogue, Step
from fuzz.target import expect
from waystation.core.dids import encode_did
from waystation.core.effects import Close, Commit, Hold, Send, Verify
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.crypto.signing import KeyPair
from waystation.protocols.strata.client.events import ClientEnd
from waystation.protocols.strata.client.machine import StrataClient
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.packet import make_packet
from waystation.protocols.strata.refusals import Code, End
from waystation.protocols.strata.relay.machine import StrataRelay
from waystation.protocols.strata.settings import StrataSettings
from waystation.store.memory import MemoryStore

_NOW_S: Final = 1_767_225_600
_KEYS: Final = [KeyPair.from_seed(bytes([number]) * 32) for number in range(1, 5)]
_RELAY: Final = KeyPair.from_seed(b"r" * 32)
_FRAMES_MAX: Final = 12
_ODD: Final[tuple[Any, ...]] = (
    *(None, True, 0, -1, 2**53, 1.5, "", "x" * 300, "0x" + "0" * 64, "0x" + "a" * 128, [], {}, [[]]),
    *({"type": "KEY_EVENT"}, "KEY_EVENT", encode_did(_KEYS[0].public), "did:strata:x"),
)
_PIECES: Final = (b"{", b"}", b"[", b'"', b",", b":", b"null", b"\xff", b"\\ud800", b"1e400", b"NaN", b"0", b"-")


def _packets() -> list[dict[str, Any]]:
    did = [encode_did(key.public) for key in _KEYS]
    contents: list[dict[str, Any]] = [
        {"type": "POST", "text": "hello"},
        {"type": "TRUST_EDGE", "from": did[0], "to": did[1], "strength": 1},
        {"type": "CORRECTION", "target_packet": "0x" + "1" * 64, "action": "retract"},
        {"type": "ATTESTATION", "target_packet": "0x" + "1" * 64, "attestation": {"attestation_id": "a"}},
        {"type": "CLIENT_MANIFEST", "client_id": did[0], "public_keys": [{"public_key": "0x" + "2" * 64}]},
    ]
    return [make_packet(_KEYS[0], content, timestamp=_NOW_S - 5).body for content in contents]


_PACKETS: Final = _packets()
M = TypeVar("M", StrataRelay, StrataClient)


def _client_messages() -> list[dict[str, Any]]:
    did = encode_did(_KEYS[0].public)
    messages: list[dict[str, Any]] = [
        {"type": "PUBLISH", "packet": packet, "client_msg_id": "m"} for packet in _PACKETS
    ]
    messages += [
        {"type": "SUBSCRIBE", "subscription_id": "s", "want_eose": True},
        {"type": "SUBSCRIBE", "subscription_id": "t", "filters": {"authors": [did], "types": ["POST"], "limit": 1}},
        {"type": "SUBSCRIBE", "subscription_id": "s", "filters": {"since": 1, "until": 2, "order": "desc"}},
        {"type": "SUBSCRIBE", "subscription_id": "s", "filters": {"cursor": "lwHECA"}},
        {"type": "UNSUBSCRIBE", "subscription_id": "s"},
        {"type": "AUTH", "author_id": did, "challenge": "c", "signature": "0x" + "0" * 128},
    ]
    return messages


def _relay_messages() -> list[dict[str, Any]]:
    server = encode_did(_RELAY.public)
    event = {"type": "EVENT", "subscription_id": "s", "received_at": _NOW_S, "cursor": "c"}
    messages: list[dict[str, Any]] = [event | {"packet": packet} for packet in _PACKETS]
    messages += [
        {"type": "AUTH_CHALLENGE", "challenge": "A" * 44, "server_id": server, "expires_at": _NOW_S + 120},
        {"type": "AUTH_OK", "author_id": encode_did(_KEYS[1].public), "capabilities": ["publish"]},
        {"type": "OK", "packet_id": _PACKETS[0]["packet_id"], "status": "ACCEPTED", "client_msg_id": "2"},
        {"type": "ERROR", "code": "rate_limited", "reason": "r", "retry_after": 1, "subscription_id": "s"},
        {"type": "ERROR", "code": "invalid_cursor", "reason": "r", "subscription_id": "s"},
        {"type": "EOSE", "subscription_id": "s", "cursor": "c", "has_more": True},
    ]
    return messages


def _mutate(rng: random.Random, value: Any) -> Any:
    """Return a value with, now and then, something else in the place of a part of it."""
    if rng.random() < 0.03:
        return rng.choice(_ODD)
    if isinstance(value, dict):
        kept = {name: _mutate(rng, part) for name, part in value.items() if rng.random() > 0.02}
        return kept | ({"x": rng.choice(_ODD)} if rng.random() < 0.02 else {})
    return [_mutate(rng, part) for part in value] if isinstance(value, list) else value


class _JsonDialogue(Dialogue[M]):
    """The other side sends some messages, mutated."""

    late_us = 900_000
    messages: ClassVar[Sequence[dict[str, Any]]]

    @classmethod
    def draw_frames(cls, rng: random.Random, choice: int) -> Iterator[bytes]:  # noqa: ARG003 - its base has it
        """Yield texts."""
        for message in rng.choices(cls.messages, k=rng.randrange(1, _FRAMES_MAX)):
            text = json.dumps(_mutate(rng, message)).encode()
            if rng.random() < 0.2:
                at = rng.randrange(len(text) + 1)
                text = text[:at] + rng.choice(_PIECES) + text[at + rng.randrange(3) :]
            yield text


class StrataRelayTalk(_JsonDialogue[StrataRelay]):
    """A relay answers each frame with something documented or nothing, and never stores what it refused.

    The choice decides about time and a reader that stalls.
    """

    name = "strata_relay"
    reasons = End
    messages = _client_messages()
    effects = (*FACTS, Send, Close, Commit, Verify, Hold)

    def __init__(self, choice: int) -> None:
        store = MemoryStore()
        super().__init__(StrataRelay(StrataSettings(), _RELAY, store, random.Random(1)), choice, store)
        self.machine.set_wall(self.now, _NOW_S * MICROSECONDS_PER_SECOND)
        self.machine.connect(self.connection.peer, self.now, "a")
        self.drains = True
        self.accepted = 0
        self.settle()

    def act(self, step: Step) -> None:
        self.drains = self.rng.random() < 0.8
        super().act(step)

    def use(self) -> None:
        if self.rng.random() < 0.1 and self.connection.peer in self.open:
            self.machine.congested(self.connection.peer, self.now)

    def take_events(self) -> bool:
        return False

    def on_send(self, connection: Connection, data: bytes, *, receipt: bool) -> None:
        self.accepted += _check_answer(data)
        if receipt and self.drains:
            self.machine.drained(connection.peer, self.now)

    def finish(self) -> str:
        self.drains = True
        outcome = super().finish()
        expect(self.store.packets.newest_seq() <= self.accepted + len(_PACKETS), "more is stored than was accepted")
        expect(self.machine.sizes()["connections"] == 0, "a connection is left")
        expect(self.machine.sizes()["subscriptions"] == 0, "a subscription is left")
        expect(self.machine.settled(), "a packet is left without a verdict")
        return outcome


def _check_answer(data: bytes) -> int:
    message = json.loads(data)
    kind = message["type"]
    expect(kind in ("OK", "ERROR", "EVENT", "EOSE", "AUTH_CHALLENGE", "AUTH_OK"), f"a message of type {kind}")
    if kind == "ERROR":
        code = Code(message["code"])
        expect(code is not Code.INTERNAL_ERROR, "internal_error")
        expect(code is not Code.RATE_LIMITED or message["retry_after"] >= 1, "rate_limited without retry_after")
    return int(kind == "OK" and not message.get("duplicate"))


class StrataClientTalk(_JsonDialogue[StrataClient]):
    """A client that has published one packet and subscribed once.

    It believes nothing, raises nothing, and delivers only packets that are what they claim to be.
    """

    name = "strata_client"
    reasons = ClientEnd
    messages = _relay_messages()

    def __init__(self, choice: int) -> None:
        rng = random.Random(choice)
        client = StrataClient(random.Random(1), key_pair=_KEYS[1] if rng.random() < 0.5 else None)
        super().__init__(client, choice)
        self.rng = rng
        client.subscribe("s", Filters(types=("POST",)), self.now)
        client.publish(make_packet(_KEYS[1], {"type": "POST", "text": "mine"}, timestamp=_NOW_S), self.now)
        client.set_wall(self.now, _NOW_S * MICROSECONDS_PER_SECOND)
        client.connect(self.connection.peer, self.now)
        self.settle()

    def on_event(self, event: Any) -> None:
        packet = getattr(event, "packet", None)
        expect(packet is None or packet.id_matches, "a packet that is not what it claims was delivered")
