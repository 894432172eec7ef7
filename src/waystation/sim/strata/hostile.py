"""Hostile peers of a simulated Strata network: clients with one attack each, and a relay that serves forged packets.

``StrataScenario`` starts them. A forged packet must never be stored or delivered. A flood consists of valid packets,
which may be refused only for a limit. A minter publishes key events of new identities, which are never dropped. A
client that never reads must not use more relay memory than its credit.
"""

import json
import random
from collections.abc import Callable
from typing import Any, Final

from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.crypto.signing import KeyPair
from waystation.protocols.strata.client.wire import encode_publish, encode_subscribe
from waystation.protocols.strata.keys.keyring import KEY_EVENT
from waystation.protocols.strata.limits import DEFAULT_LIMITS
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.packet import Packet, make_packet, sign_body
from waystation.sim.chance import fork, spread
from waystation.sim.hostile import HostileClient
from waystation.sim.net.link import End, Port, Stream
from waystation.sim.strata.context import Author, StrataContext

__all__ = ["Forger", "Hostile", "HostileUpstream"]

NEXT_US: Final = 2 * MICROSECONDS_PER_SECOND
NEXT_FLOOD_US: Final = 20 * MICROSECONDS_PER_SECOND
NEXT_MINT_US: Final = MICROSECONDS_PER_SECOND
FLOOD_PACKETS: Final = 60
MINTED: Final = 4  # DIDs at a time, each with as many key events as are stored of one
MINTED_MAX: Final = 128  # and in all: 8 MB in the memory of a long run
PADDING: Final = "x" * 7_000  # a key event may have 8 KiB
HOARDED: Final = 40  # more than the 32 subscriptions of a connection
GARBAGE: Final = (
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b'{"type":"PUBLISH"}',
    b'{"type":7}',
    b'{"a":1,"a":2}',
    b"[" * 99,
)
_MESSAGES_PER_EVENT: Final = 4


class Forger:
    """Makes packets that nobody may take, out of packets that somebody made."""

    def __init__(self, context: StrataContext, rng: random.Random) -> None:
        """Forge with a key of its own."""
        self._context = context
        self._rng = rng
        self._key = KeyPair.from_seed(rng.randbytes(32))

    def forge(self) -> bytes:
        """Return the canonical text of a forged packet, or junk when there is nothing to forge yet."""
        made = list(self._context.made.values())
        if not made:
            return b"{}"
        packet = self._rng.choice(made[-50:])
        tricks: tuple[Callable[[Packet], bytes], ...] = (
            self._other_text,
            self._other_id,
            self._other_key,
            self._other_signature,
            self._other_version,
            self._from_the_future,
        )
        return self._rng.choice(tricks)(packet)

    def _other_text(self, packet: Packet) -> bytes:
        body = {**packet.body, "content": {**packet.body["content"], "text": "forged"}}
        return _text(body)

    def _other_id(self, packet: Packet) -> bytes:
        """Return another text with the right id for it and the old signature."""
        body = {**packet.body, "content": {**packet.body["content"], "text": f"forged {self._rng.random()}"}}
        return _text({**sign_body(self._key, body).body, "signature": packet.body["signature"]})

    def _other_key(self, packet: Packet) -> bytes:
        """Return a packet in somebody's name, rightly signed by somebody else."""
        content = {"type": "POST", "text": f"forged {self._rng.random()}"}
        forged = make_packet(self._key, content, timestamp=self._context.wall_s, author_id=packet.author_id)
        return forged.canonical

    def _other_signature(self, packet: Packet) -> bytes:
        signature = str(packet.body["signature"])
        return _text({**packet.body, "signature": signature[:-1] + ("0" if signature[-1] != "0" else "1")})

    def _other_version(self, packet: Packet) -> bytes:
        return _text({**packet.body, "version": 2})

    def _from_the_future(self, packet: Packet) -> bytes:  # noqa: ARG002 - one shape for all tricks
        content = {"type": "POST", "text": "forged"}
        return make_packet(self._key, content, timestamp=self._context.wall_s + 100_000).canonical


class Hostile(HostileClient[StrataContext]):
    """One client with one trick: tamperer, garbage, flood, minter, deaf or hoarder."""

    back_us = 60 * MICROSECONDS_PER_SECOND

    def __init__(self, context: StrataContext, rng: random.Random, host: str, kind: str) -> None:
        """Make a client of one of the ``strata_plan.HOSTILE_KINDS``; see ``HostileClient``."""
        super().__init__(context, rng, host, kind)
        self._relay = rng.randrange(context.plan.relays)
        self._next_us = {"flood": NEXT_FLOOD_US, "minter": NEXT_MINT_US}.get(kind, NEXT_US)
        self._forger = Forger(context, fork(rng))
        self._minted = 0
        self._author = Author(fork(rng))
        context.know_key(self._author.did, self._author.key)
        tricks: dict[str, Callable[[], list[bytes]]] = {
            "tamperer": self._tamper,
            "garbage": self._babble,
            "flood": self._flood,
            "minter": self._mint,
            "deaf": self._listen_to_all,
            "hoarder": self._hoard,
        }
        self._trick = tricks[kind]

    def _draw_node(self) -> int:
        return self._relay

    def _on_dialled(self, node: int, port: Port) -> None:  # noqa: ARG002 - it is the same node each time
        if self._kind == "deaf":
            port.pause()
        self._play(port)

    def _play(self, port: Port) -> None:
        """Play the trick, again and again while the connection stands."""
        if not port.is_open:
            return
        for message in self._trick():
            port.write(message)
        if self._kind == "deaf":
            self._watch(port)
        else:
            self._context.schedule.after(spread(self._rng, self._next_us), lambda: self._play(port))

    def _tamper(self) -> list[bytes]:
        return [encode_publish(self._forger.forge(), "x") for _ in range(self._rng.randint(1, 4))]

    def _babble(self) -> list[bytes]:
        return [self._rng.choice((*GARBAGE, self._rng.randbytes(20))) for _ in range(self._rng.randint(1, 8))]

    def _flood(self) -> list[bytes]:
        context, author = self._context, self._author
        made = [
            context.make(author, {"type": "POST", "text": f"flood {number}"}, context.wall_s)
            for number in range(self._rng.randint(1, FLOOD_PACKETS))
        ]
        return [encode_publish(packet.canonical, "f") for packet in made]

    def _mint(self) -> list[bytes]:
        """Return key events of identities that nobody has met, as large and as many as are stored of one."""
        context, messages = self._context, []
        for _ in range(min(MINTED, MINTED_MAX - self._minted)):
            self._minted += 1
            author = Author(fork(self._rng))
            context.know_key(author.did, author.key)
            for number in range(DEFAULT_LIMITS.key_events_unpublished):
                content = {"type": KEY_EVENT, "event": "REVOKE", "key_id": f"{author.did}#{number}", "revoked_at": 0}
                packet = context.make(author, content | {"reason": PADDING}, context.wall_s)
                messages.append(encode_publish(packet.canonical, "m"))
        return messages

    def _listen_to_all(self) -> list[bytes]:
        return [encode_subscribe("all", Filters(), 500, None, None, "d")]

    def _hoard(self) -> list[bytes]:
        return [encode_subscribe(f"h{number}", Filters(), 7, None, None, "h") for number in range(HOARDED)]


class HostileUpstream:
    """A relay that says it has packets, and has forged them all."""

    def __init__(self, context: StrataContext, rng: random.Random, relay_id: str) -> None:
        """Make it; ``reach`` is how others dial it.

        Args:
            context: Shared by all actors.
            rng: Source of its malice.
            relay_id: The DID that it claims.
        """
        self._context = context
        self._rng = rng
        self._relay_id = relay_id
        self._forger = Forger(context, fork(rng))

    def reach(self, end: End) -> Port:
        """Return the caller's port of a new connection."""
        context = self._context
        visit = _Visit(self._forger, fork(self._rng), context, self._relay_id)
        stream = Stream(context.schedule, fork(self._rng), context.plan.link, end, visit)
        visit.port = stream.node
        context.schedule.after(context.plan.link.latency_us, visit.greet)
        return stream.client


class _Visit(End):
    """One connection to the hostile relay; what it sends is wrong in a way of this visit."""

    def __init__(self, forger: Forger, rng: random.Random, context: StrataContext, relay_id: str) -> None:
        self._forger = forger
        self._rng = rng
        self._context = context
        self._relay_id = relay_id
        self._number = 0
        self.port: Port

    def greet(self) -> None:
        """Send a challenge, sometimes one that must not be signed."""
        challenge = "A" * 44 if self._rng.random() < 7 / 8 else '{"a packet":1}'
        expires_at = self._context.wall_s + 120
        self._say(type="AUTH_CHALLENGE", challenge=challenge, server_id=self._relay_id, expires_at=expires_at)

    def received(self, data: bytes) -> None:
        """Agree to everything, and send what was forged."""
        body = json.loads(data)
        if body["type"] == "AUTH":
            author_id, capabilities = body["author_id"], body["capabilities"]
            self._say(type="AUTH_OK", author_id=author_id, capabilities=capabilities)
        elif body["type"] == "SUBSCRIBE":
            for _ in range(self._rng.randint(1, _MESSAGES_PER_EVENT)):
                self._send_forged(body["subscription_id"])
            self._say(type="EOSE", subscription_id=body["subscription_id"], cursor=f"end {self._number}", has_more=True)

    def _send_forged(self, subscription_id: str) -> None:
        self._number += 1
        if self._rng.random() < 1 / 8:
            self.port.write(self._rng.choice(GARBAGE))
        received_at, cursor = self._context.wall_s, f"cursor {self._number}"
        tail = json.dumps({"received_at": received_at, "cursor": cursor, "subscription_id": subscription_id})
        self.port.write(b'{"type":"EVENT","packet":%b,%b' % (self._forger.forge(), tail[1:].encode()))

    def _say(self, **message: Any) -> None:
        self.port.write(json.dumps(message).encode())


def _text(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
