"""Relays that read one another, and upstreams that follow a script: ``run`` carries what is said until nobody speaks.

A ``Link`` is one connection from a relay to its upstream, without sockets; messages wait in order while a side is held.
"""

import base64
from collections import deque
from typing import Any

import msgspec
import orjson

from tests.protocols.strata.build import RELAY, did
from tests.protocols.strata.drive import Drive
from waystation.core.effects import Peer, Send
from waystation.core.records import Record
from waystation.crypto.signing import KeyPair
from waystation.protocols.strata.packet import Packet
from waystation.protocols.strata.relay.replication import UPSTREAMS_TABLE
from waystation.store.memory import MemoryStore


def reads(*keys: KeyPair, profile: str = "FULL_ARCHIVE") -> list[dict[str, str]]:
    """Return the configuration of upstreams with these identities."""
    return [
        {"url": f"ws://relay{number}/", "relay_id": did(key), "profile": profile} for number, key in enumerate(keys)
    ]


class Node(Drive):
    """A relay whose connections may lead to another one."""

    def __init__(self, store: Any = None, **fields: Any) -> None:
        self.out: dict[int, deque[bytes]] = {}
        self.key = fields.get("key", RELAY)
        super().__init__(store, **{"rate_limits": False} | fields)

    def accept(self) -> int:
        """Return a new connection of somebody who reads us."""
        self.out[self._peers + 1] = deque()
        return self.connect()

    def dial(self, upstream: KeyPair) -> int:
        """Return a new connection that we opened."""
        self._peers += 1
        peer = self._peers
        self.got[peer], self.out[peer] = [], deque()
        self.relay.connect_upstream(Peer(peer), did(upstream), self.now)
        self.settle()
        return peer

    def hear(self, peer: int, data: bytes) -> None:
        """Take one message."""
        self.relay.receive(Peer(peer), data, self.now)
        self.settle()

    def score_of(self, upstream: KeyPair) -> tuple[float, str]:
        """Return what we think of an upstream."""
        return self.relay.upstreams(self.now)[did(upstream)][:2]

    def rest_of(self, upstream: KeyPair) -> int:
        """Return for how many seconds we leave an upstream alone."""
        return self.relay.upstream_rest_s(did(upstream), self.now)

    def kept_of(self, upstream: KeyPair) -> dict[str, Any]:
        """Return what is on the disk about an upstream, as a reader of the format sees it."""
        return msgspec.msgpack.decode(self.store.get(UPSTREAMS_TABLE, did(upstream).encode()))

    def damage(self, upstream: KeyPair, value: bytes) -> None:
        """Put other bytes on the disk about an upstream."""
        self.store.commit((Record(UPSTREAMS_TABLE, did(upstream).encode(), value),))

    def ids(self) -> list[str]:
        """Return the ids of everything stored, in the order of arrival."""
        return ["0x" + row.packet_id.hex() for row in self.rows()]

    def _perform(self, effect: Any) -> None:
        if isinstance(effect, Send) and effect.peer in self.out:
            self.out[effect.peer].append(effect.data)
        super()._perform(effect)


class Script:
    """An upstream that says what a test tells it to: by type of message, a function from message to answers."""

    def __init__(self, key: KeyPair, *events: dict[str, Any], **on: Any) -> None:
        """Let everybody in and answer the first SUBSCRIBE with ``events``, unless ``on`` has something else to say."""
        self.key = key
        self.events = list(events)
        self.heard: list[dict[str, Any]] = []
        self.out: dict[int, deque[bytes]] = {}
        self.on = {"AUTH": self._auth, "SUBSCRIBE": self._subscribe} | on
        self.challenges = True
        self.lost: list[int] = []

    def accept(self) -> int:
        """Return a new connection."""
        peer = len(self.out) + 1
        self.out[peer] = deque()
        if self.challenges:
            text = base64.b64encode(bytes(32)).decode()
            self.say(peer, {"type": "AUTH_CHALLENGE", "challenge": text, "server_id": did(self.key), "expires_at": 1})
        return peer

    def say(self, peer: int, *messages: dict[str, Any]) -> None:
        """Send messages."""
        self.out[peer] += [orjson.dumps(message) for message in messages]

    def hear(self, peer: int, data: bytes) -> None:
        """Take one message and answer it."""
        message = orjson.loads(data)
        self.heard.append(message)
        self.say(peer, *self.on[message["type"]](message))

    def drop(self, peer: int) -> None:
        """Note the end."""
        self.lost.append(peer)

    @property
    def closed(self) -> dict[int, Any]:
        """A script never closes."""
        return {}

    @property
    def held(self) -> dict[int, bool]:
        """A script always reads."""
        return {}

    def asked(self) -> list[dict[str, Any]]:
        """Return the filters of every SUBSCRIBE so far."""
        return [message["filters"] for message in self.heard if message["type"] == "SUBSCRIBE"]

    def _auth(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"type": "AUTH_OK", "author_id": message["author_id"], "capabilities": message["capabilities"]}]

    def _subscribe(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        events, self.events = self.events, []
        name = {"subscription_id": message["subscription_id"]}
        end = {"type": "EOSE", "cursor": f"c{len(self.heard)}", "has_more": False}
        return [{"type": "EVENT"} | name | event for event in events] + [end | name]


class Link:
    """One connection from a relay to an upstream."""

    def __init__(self, down: Node, up: Any) -> None:
        """Connect ``down`` to ``up``, a ``Node`` or a ``Script``; nothing has been said yet."""
        self.down, self.up = down, up
        self.up_peer = up.accept()
        self.peer = down.dial(up.key)
        self.is_open = True

    def step(self) -> bool:
        """Carry one message in each direction; return whether there was anything to do."""
        if not self.is_open:
            return False
        moved = self._carry(self.down, self.peer, self.up, self.up_peer)
        moved = self._carry(self.up, self.up_peer, self.down, self.peer) or moved
        for side, peer, other, others in (
            (self.down, self.peer, self.up, self.up_peer),
            (self.up, self.up_peer, self.down, self.peer),
        ):
            if self.is_open and peer in side.closed:
                self.is_open = False
                other.drop(others)
        return moved

    def cut(self) -> None:
        """Lose the connection with whatever is on its way."""
        self.is_open = False
        self.down.drop(self.peer)
        self.up.drop(self.up_peer)

    def end(self) -> tuple[str, int]:
        """Return with which reason and status our relay closed it."""
        close = self.down.closed[self.peer]
        return close.reason.value, close.status

    @staticmethod
    def _carry(source: Any, peer: int, target: Any, target_peer: int) -> bool:
        if not source.out[peer] or target.held.get(target_peer):
            return False
        target.hear(target_peer, source.out[peer].popleft())
        return True


def run(*links: Link) -> None:
    """Carry messages until nobody has anything to say."""
    for _ in range(20_000):
        if not sum(link.step() for link in links):
            return
    raise AssertionError("the relays talk without end")


def join(down: Node, up: Any) -> Link:
    """Connect and carry messages until it is quiet."""
    link = Link(down, up)
    run(link)
    return link


def event(packet: Packet | dict[str, Any], received_at: int, cursor: str | None = None) -> dict[str, Any]:
    """Return the inside of an EVENT for a ``Script``."""
    body = packet.body if isinstance(packet, Packet) else packet
    given = {} if cursor is None else {"cursor": cursor}
    return {"packet": body, "received_at": received_at} | given


def replayed(commits: list[Any]) -> MemoryStore:
    """Return a store that has got as far as these commits."""
    store = MemoryStore()
    for commit in commits:
        store.commit(commit.changes)
    return store
