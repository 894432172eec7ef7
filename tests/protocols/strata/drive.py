"""A relay with its surroundings in one hand: a memory store, inline signature checks, and clients that write down.

``settle`` carries out effects until none is left, as the server does over many turns of its loop.
"""

import random
from typing import Any

import orjson

from tests.protocols.refusing import commit_to
from tests.protocols.strata.build import ALICE, BOB, NOW, RELAY, did, packet, sign_bytes
from waystation.core.effects import Close, Commit, Hold, Peer, Send, Verify
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.core.packets import PacketQuery, PacketRow
from waystation.crypto.signing import KeyPair, verify_any
from waystation.protocols.strata.packet import Packet
from waystation.protocols.strata.relay.intake import Candidate, Verdict
from waystation.protocols.strata.relay.machine import StrataRelay
from waystation.protocols.strata.settings import StrataSettings
from waystation.store.memory import MemoryStore


class Drive:
    """Drives one relay; times are Unix seconds that begin at ``NOW``."""

    def __init__(self, store: Any = None, *, rate_limits: bool = True, key: KeyPair = RELAY, **fields: Any) -> None:
        relay_fields = {
            name: fields.pop(name)
            for name in ("static_dids", "documents", "waits", "limits", "admits", "admits", "access")
            if name in fields
        }
        self.store = store if store is not None else MemoryStore()
        self.relay = StrataRelay(
            StrataSettings(**fields),
            key,
            self.store,
            random.Random(7),
            rate_limits=rate_limits,
            **relay_fields,
        )
        self.wall_s = NOW
        self.relay.set_wall(self.now, NOW * MICROSECONDS_PER_SECOND)
        self.got: dict[int, list[dict[str, Any]]] = {}
        self.closed: dict[int, Close] = {}
        self.held: dict[int, bool] = {}
        self.facts: list[Any] = []
        self.commits: list[Commit] = []
        self.hold_commits = False
        self.stalled: set[int] = set()
        """Peers that take nothing: their bytes wait."""
        self._peers = 0

    @property
    def now(self) -> Instant:
        """The monotonic clock, zero at ``NOW``."""
        return Instant((self.wall_s - NOW) * MICROSECONDS_PER_SECOND)

    def connect(self, address: str = "") -> int:
        """Return a new connection; its challenge is the first thing it got."""
        self._peers += 1
        self.got[self._peers] = []
        self.relay.connect(Peer(self._peers), self.now, address)
        self.settle()
        return self._peers

    def send(self, peer: int, message: object) -> list[dict[str, Any]]:
        """Send a message or raw bytes, settle, and return what the peer got for it."""
        before = len(self.got[peer])
        data = message if isinstance(message, bytes) else orjson.dumps(message)
        self.relay.receive(Peer(peer), data, self.now)
        self.settle()
        return self.got[peer][before:]

    def publish(self, peer: int, what: Packet | dict[str, Any], client_msg_id: str | None = None) -> dict[str, Any]:
        """Publish and return the one answer."""
        body = what.body if isinstance(what, Packet) else what
        message = {"type": "PUBLISH", "packet": body}
        if client_msg_id is not None:
            message["client_msg_id"] = client_msg_id
        answers = [got for got in self.send(peer, message) if got["type"] in ("OK", "ERROR")]
        assert len(answers) == 1
        return answers[0]

    def subscribe(self, peer: int, subscription_id: str = "s", **filters: Any) -> list[dict[str, Any]]:
        """Subscribe with an end-of-history signal and return what came."""
        message = {"type": "SUBSCRIBE", "subscription_id": subscription_id, "filters": filters, "want_eose": True}
        return self.send(peer, message)

    def auth(self, peer: int, key: KeyPair = ALICE, **fields: Any) -> list[dict[str, Any]]:
        """Answer the newest challenge and return what came."""
        challenge = [got for got in self.got[peer] if got["type"] == "AUTH_CHALLENGE"][-1]
        signature = sign_bytes(key, (challenge["challenge"] + challenge["server_id"]).encode())
        message = {"type": "AUTH", "author_id": did(key), "challenge": challenge["challenge"], "signature": signature}
        return self.send(peer, message | fields)

    def fill(self, count: int, key: KeyPair = ALICE, **fields: Any) -> list[Packet]:
        """Publish so many posts through a connection of its own and return them."""
        peer = self.connect(f"filler {self._peers}")
        posts = [packet({"type": "POST", "text": f"{number}"}, key, **fields) for number in range(count)]
        for post in posts:
            assert self.publish(peer, post)["type"] == "OK"
        return posts

    def pass_time(self, seconds: int) -> None:
        """Let time pass and wake the relay when it asked for it."""
        self.wall_s += seconds
        for _ in range(1_000):
            due = self.relay.deadline()
            if due is None or due > self.now:
                return
            self.relay.wake(self.now)
            self.settle()
        raise AssertionError("the relay asks to be woken without end")

    def stall(self, peer: int) -> None:
        """Let the peer take nothing from now on."""
        self.stalled.add(peer)

    def drain(self, peer: int) -> None:
        """Let the peer take everything that waits, and go on taking."""
        self.stalled.discard(peer)
        self.relay.drained(Peer(peer), self.now)
        self.settle()

    def drop(self, peer: int) -> None:
        """Lose the connection."""
        self.stalled.discard(peer)
        self.relay.disconnect(Peer(peer), self.now)
        self.settle()

    def replicate(self, what: Packet | dict[str, Any], witness: int, source: str = "") -> Verdict | None:
        """Offer a packet as another relay delivers it; None means that it was not refused at once."""
        body = what.body if isinstance(what, Packet) else what
        candidate = Candidate(body, None, self.now, 1_000, source=source or did(BOB), witness=witness)
        verdict = self.relay._intake.offer(candidate, self.wall_s)
        self.settle()
        return verdict

    def restarted(self, **fields: Any) -> "Drive":
        """Return a new relay over the same store, at the same time; what was on its way is lost."""
        again = Drive(self.store, **fields)
        again.wall_s = self.wall_s
        return again

    def get(self, path: str) -> tuple[int, Any]:
        """Return status and JSON of a plain GET."""
        answer = self.relay.answer(path, "192.0.2.1", self.now)
        return answer.status, orjson.loads(answer.body)

    def events(self, peer: int, subscription_id: str = "s") -> list[dict[str, Any]]:
        """Return the EVENTs of a subscription that the peer got so far."""
        return [got for got in self.got[peer] if got["type"] == "EVENT" and got["subscription_id"] == subscription_id]

    def rows(self) -> list[PacketRow]:
        """Return everything that is stored and not hidden, in the order of arrival."""
        found: list[PacketRow] = []
        query = PacketQuery(by_seq=True, rows_max=1_000)
        while True:
            page = self.store.packets.page(query)
            found += page.rows
            if page.position is None:
                return found
            query = query._replace(start=page.position)

    def commit_held(self) -> None:
        """Let the disk do what it was asked for."""
        self.hold_commits = False
        held, self.commits = self.commits, []
        for commit in held:
            self._commit(commit)
        self.settle()

    def settle(self) -> None:
        """Carry out effects until there are none."""
        for _ in range(10_000):
            effects = self.relay.take()
            if not effects and not self.relay._delivery.has_readers:
                return
            for effect in effects:
                self._perform(effect)
        raise AssertionError("effects without end")

    def _perform(self, effect: Any) -> None:
        if isinstance(effect, Send):
            self.got[effect.peer].append(orjson.loads(effect.data))
            if effect.peer in self.stalled:
                self.relay.congested(effect.peer, self.now)
            elif effect.receipt:
                self.relay.drained(effect.peer, self.now)
        elif isinstance(effect, Verify):
            answers = [verify_any(check.keys, check.message, check.signature) for check in effect.checks]
            self.relay.verified(effect.ticket, answers, self.now)
        elif isinstance(effect, Commit):
            if self.hold_commits or self.commits:  # a disk keeps their order
                self.commits.append(effect)
            else:
                self._commit(effect)
        elif isinstance(effect, Close):
            self.closed[effect.peer] = effect
        elif isinstance(effect, Hold):
            self.held[effect.peer] = effect.held
        else:
            self.facts.append(effect)

    def _commit(self, commit: Commit) -> None:
        commit_to(self.store, self.relay, commit, self.now)
