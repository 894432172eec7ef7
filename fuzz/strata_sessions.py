"""Targets: both sides of a Strata connection, with another side that may say anything.

An input is a conversation: its first byte chooses what happens between the frames, the rest is frames, each behind two
bytes of length. Frames are real messages, bent in their text, in one member, or not at all.
"""

import json
import random
from collections.abc import Iterator
from typing import Any, Final

from fuzz.target import expect
from waystation.core.dids import encode_did
from waystation.core.effects import Close, Commit, Hold, Peer, Send, Verify
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.crypto.signing import KeyPair, verify_any
from waystation.protocols.strata.client import StrataClient
from waystation.protocols.strata.client_events import CloseConnection
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.packet import make_packet
from waystation.protocols.strata.refusals import Code, End
from waystation.protocols.strata.relay import StrataRelay
from waystation.protocols.strata.settings import StrataSettings
from waystation.store.memory import MemoryStore

__all__ = ["StrataClientTarget", "StrataRelayTarget"]

_NOW_S: Final = 1_767_225_600
_KEYS: Final = [KeyPair.from_seed(bytes([number]) * 32) for number in range(1, 5)]
_RELAY: Final = KeyPair.from_seed(b"r" * 32)
_STEP_US: Final = 900_000
_FRAMES_MAX: Final = 12
_ODD: Final[tuple[Any, ...]] = (
    None,
    True,
    0,
    -1,
    2**53,
    1.5,
    "",
    "x" * 300,
    "0x" + "0" * 64,
    "0x" + "a" * 128,
    [],
    {},
    [[]],
    {"type": "KEY_EVENT"},
    "KEY_EVENT",
    encode_did(_KEYS[0].public),
    "did:strata:x",
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


class _Conversation:
    """How inputs are made and taken apart."""

    def frames(self, data: bytes) -> Iterator[bytes]:
        """Yield the frames of an input; a length that lies takes what is left."""
        at = 1
        while at + 2 <= len(data):
            size = int.from_bytes(data[at : at + 2], "big")
            yield data[at + 2 : at + 2 + size]
            at += 2 + size

    def build(self, rng: random.Random, messages: list[dict[str, Any]]) -> bytes:
        """Return a conversation of so many bent messages."""
        out = bytes([rng.randrange(256)])
        for _ in range(rng.randrange(1, _FRAMES_MAX)):
            text = json.dumps(_bend(rng, rng.choice(messages))).encode()
            if rng.random() < 0.2:
                at = rng.randrange(len(text) + 1)
                text = text[:at] + rng.choice(_PIECES) + text[at + rng.randrange(3) :]
            out += len(text).to_bytes(2, "big") + text
        return out


def _bend(rng: random.Random, value: Any) -> Any:
    """Return a value with, now and then, something else in the place of a part of it."""
    if rng.random() < 0.03:
        return rng.choice(_ODD)
    if isinstance(value, dict):
        kept = {name: _bend(rng, part) for name, part in value.items() if rng.random() > 0.02}
        return kept | ({"x": rng.choice(_ODD)} if rng.random() < 0.02 else {})
    return [_bend(rng, part) for part in value] if isinstance(value, list) else value


class StrataRelayTarget(_Conversation):
    """A relay answers each frame with something documented or nothing, and never stores what it refused."""

    name = "strata_relay"

    def make(self, rng: random.Random) -> bytes:
        """Return a client's side of a conversation, bent."""
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
        return self.build(rng, messages)

    def run(self, data: bytes) -> str:
        """Let the client speak; disk, signatures and a stalled reader as the first byte chooses."""
        rng = random.Random(data[0] if data else 0)
        store = MemoryStore()
        relay = StrataRelay(StrataSettings(), _RELAY, store, random.Random(1))
        now, peer = Instant(0), Peer(1)
        relay.set_wall(now, _NOW_S * MICROSECONDS_PER_SECOND)
        relay.connect(peer, now, "a")
        accepted, outcome = 0, "open"
        for frame in self.frames(data):
            relay.receive(peer, frame, now)
            if rng.random() < 0.2:
                now = Instant(now + _STEP_US)
                relay.wake(now)
            if rng.random() < 0.1:
                relay.congested(peer, now)
            for sent, closed in _carry_out(relay, store, now, drains=rng.random() < 0.8):
                accepted += sent
                outcome = closed or outcome
        relay.disconnect(peer, now)
        list(_carry_out(relay, store, now, drains=True))
        expect(store.packets.newest_seq() <= accepted + len(_PACKETS), "more is stored than was accepted")
        expect(relay.sizes()["connections"] == 0, "a connection is left")
        expect(relay.sizes()["subscriptions"] == 0, "a subscription is left")
        expect(relay.settled(), "a packet is left without a verdict")
        return outcome


def _carry_out(relay: StrataRelay, store: MemoryStore, now: Instant, *, drains: bool) -> Iterator[tuple[int, str]]:
    """Perform effects; yield for each how many packets it acknowledged, and how the connection closed."""
    for _ in range(64):
        effects = relay.take()
        if not effects:
            return
        for effect in effects:
            if isinstance(effect, Send):
                yield _check_answer(effect.data), ""
                if effect.receipt and drains:
                    relay.drained(effect.peer, now)
            elif isinstance(effect, Verify):
                relay.verified(effect.ticket, [verify_any(*check) for check in effect.checks], now)
            elif isinstance(effect, Commit):
                store.commit(effect.changes)
                relay.committed(effect.ticket, now)
            elif isinstance(effect, Close):
                expect(isinstance(effect.reason, End), "closed for no documented reason")
                yield 0, f"closed:{effect.reason.value}"
            else:
                expect(isinstance(effect, Hold) or hasattr(effect, "protocol"), f"a relay wants {effect!r}")
    expect(holds=False, what="effects without end")


def _check_answer(data: bytes) -> int:
    message = json.loads(data)
    kind = message["type"]
    expect(kind in ("OK", "ERROR", "EVENT", "EOSE", "AUTH_CHALLENGE", "AUTH_OK"), f"a message of type {kind}")
    if kind == "ERROR":
        code = Code(message["code"])
        expect(code is not Code.INTERNAL_ERROR, "internal_error")
        expect(code is not Code.RATE_LIMITED or message["retry_after"] >= 1, "rate_limited without retry_after")
    return int(kind == "OK" and not message.get("duplicate"))


class StrataClientTarget(_Conversation):
    """A client believes nothing, raises nothing, and delivers only packets that are what they say."""

    name = "strata_client"

    def make(self, rng: random.Random) -> bytes:
        """Return a relay's side of a conversation, bent."""
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
        return self.build(rng, messages)

    def run(self, data: bytes) -> str:
        """Let the relay speak while the user publishes and reads."""
        rng = random.Random(data[0] if data else 0)
        client = StrataClient(random.Random(1), key_pair=_KEYS[1] if rng.random() < 0.5 else None)
        now = Instant(0)
        client.subscribe("s", Filters(types=("POST",)), now)
        client.publish(make_packet(_KEYS[1], {"type": "POST", "text": "mine"}, timestamp=_NOW_S), now)
        client.opened(now, _NOW_S)
        outcome, outputs, frames = "open", 0, 0
        for frame in self.frames(data):
            frames += 1
            client.receive(frame, now, _NOW_S)
            if rng.random() < 0.2:
                now = Instant(now + _STEP_US)
                client.wake(now)
            taken = client.take()
            outputs += len(taken)
            for output in taken:
                packet = getattr(output, "packet", None)
                expect(packet is None or packet.id_matches, "a packet that is not what it says was delivered")
                if isinstance(output, CloseConnection):
                    outcome = "closed"
        client.closed(now)
        expect(outputs <= 8 * frames + 16, f"{outputs} outputs for {frames} frames")
        return outcome
