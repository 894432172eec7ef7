"""Simulated users that write to each other over a mesh of MERK nodes, and a ledger that checks every message.

An actor is disturbed when its node is killed or its connection is opened, moved or ended. A message reported as
delivered to an undisturbed actor must have arrived. Between two undisturbed actors every message must be delivered.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

from soak.merk.nodes import MerkNode
from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.refusals import Refusal
from waystation.sdk.errors import ClosedError, KeyUnknownError, RelayUnreachableError
from waystation.sdk.merk import (
    Auth,
    Connected,
    Disconnected,
    FileFailed,
    Json,
    MerkClient,
    Message,
    MessageDropped,
    Mode,
    Outcome,
    ReceivedFile,
    Sent,
)

QUIET_S: Final = 8.0
"""After so long without failure at either end nodes have found each other again, and everything is owed."""
EDGE_S: Final = 1.5
"""What is reported this close to a disturbance may have happened on its other side."""
OUTCOME_S: Final = 45.0
"""A look-up, a forward, both again, and the wait for a connection."""
SEND_AGAIN_S: Final = 0.05
TEXT_BYTES_MAX: Final = 20_000


@dataclass(slots=True)
class SentMessage:
    """One message and what became of it."""

    sender: "Actor"
    recipient: "Actor | None"
    """None for an unknown key."""
    serial: str
    at: float
    is_file: bool = False
    known_at: float | None = None
    outcome: Outcome | None = None
    """None when nothing was sent: the recipient's agreement key could not be found, or the sender has moved."""


@dataclass(slots=True)
class Ledger:
    """Everything that was sent and received."""

    file: Path
    """What every actor sends as a file."""
    sent: list[SentMessage] = field(default_factory=list)
    received: Counter[tuple[int, str]] = field(default_factory=Counter)
    """Times that a actor was handed a message of this serial."""
    ids: Counter[tuple[int, bytes]] = field(default_factory=Counter)
    """Times that a actor was handed a message of this id."""
    faults: list[str] = field(default_factory=list)
    file_senders: set[bytes] = field(default_factory=set)
    """Keys of those who may send a part of a file twice."""

    def is_part_sent_twice(self, dropped: MessageDropped) -> bool:
        """Return whether a dropped message may be a part whose outcome its sender did not learn."""
        return dropped.refusal is Refusal.DUPLICATE and dropped.sender in self.file_senders

    def take(self, actor: "Actor", message: Message) -> None:
        """Note a message that a actor was handed."""
        content = message.content
        if message.auth is not Auth.BOUND:
            self.faults.append(f"{actor} was handed a message that is {message.auth.value}")
        if message.message_id is not None:  # a signed one has none when the recipient's advert was not found
            self.ids[actor.number, message.message_id] += 1
        if isinstance(content, ReceivedFile):
            if sha256(content.read_bytes()).digest() != sha256(self.file.read_bytes()).digest():
                self.faults.append(f"{actor} was handed another file than was sent")
            serial = content.name
            content.discard()
        elif isinstance(content, Json):
            serial = content.value()["serial"]
        else:
            serial = (message.text or "").partition(" ")[0]
        self.received[actor.number, serial] += 1

    def judge(self) -> str:
        """See that everything held; return counts."""
        assert not self.faults, self.faults[:3]
        twice = [place for place, times in (*self.received.items(), *self.ids.items()) if times > 1]
        assert not twice, f"received twice: {twice[:3]}"
        unknown = [each for each in self.sent if each.known_at is None]
        assert not unknown, f"{len(unknown)} have no outcome, first {unknown[0]}"
        to_unknown = [each for each in self.sent if each.recipient is None]
        assert not [each for each in to_unknown if each.outcome is Outcome.DELIVERED], "delivered to an unknown key"
        owed = [each for each in self.sent if _is_owed(each)]
        for each in owed:
            wanted = Outcome.UNKNOWN_TARGET if each.recipient is None else Outcome.DELIVERED
            assert each.outcome is wanted, f"undisturbed, and {each.outcome}: {_shown(each)}"
        for each in self.sent:
            known = each.recipient is not None and self.received[each.recipient.number, each.serial] > 0
            if each.outcome is Outcome.DELIVERED and not known:
                assert each.recipient is not None
                assert not each.recipient.undisturbed(each.at - EDGE_S, (each.known_at or each.at) + EDGE_S), _shown(
                    each
                )
            assert known <= (each.outcome in _MAY_HAVE_ARRIVED), f"{each.outcome}, and received: {_shown(each)}"
        outcomes = Counter("not sent" if each.outcome is None else each.outcome.value for each in self.sent)
        shown = ", ".join(f"{name} {count}" for name, count in outcomes.most_common())
        files = sum(each.is_file for each in self.sent if each.outcome is Outcome.DELIVERED)
        return f"{len(self.sent)} sent ({shown}; {files} files), {len(owed)} owed, {self.received.total()} read"


_MAY_HAVE_ARRIVED: Final = {Outcome.DELIVERED, Outcome.UNKNOWN, Outcome.LOOKUP_TIMEOUT}


class Actor:
    """A client that reads everything at once, writes to others, and may move."""

    def __init__(
        self,
        number: int,
        ledger: Ledger,
        nodes: Sequence[MerkNode],
        rng: random.Random,
        retry_s: tuple[float, float] = (0.05, 0.5),
    ) -> None:
        """Describe one; ``come`` begins.

        Args:
            number: Tells it from others, and which node it comes to first.
            ledger: Where it writes everything down.
            nodes: Where it may be.
            rng: Source of its choices.
            retry_s: First and longest pause before it tries again to connect.
        """
        self.number = number
        self.node = nodes[number % len(nodes)]
        self.keys = Keys.from_seeds((number + 1).to_bytes(32, "big"), (number + 1_001).to_bytes(32, "big"))
        self.back_at: float | None = None
        """When it was connected last; None while it is not."""
        self.moves_count = 0
        self._ledger = ledger
        self._nodes = nodes
        self._rng = rng
        self._retry_s = retry_s
        self._disturbed: list[float] = []
        self._client: MerkClient | None = None
        self._reading: asyncio.Task[None] | None = None
        self._serials = 0

    def __str__(self) -> str:
        return f"actor {self.number} at node {self._nodes.index(self.node)}"

    @property
    def key(self) -> bytes:
        """Its public key."""
        return self.keys.signing.public

    @property
    def client(self) -> MerkClient:
        """Its connection."""
        assert self._client is not None
        return self._client

    async def come(self) -> None:
        """Begin to connect."""
        self.disturb()
        first_s, cap_s = self._retry_s
        self._client = MerkClient(
            self.node.url,
            keys=self.keys,
            only=True,
            on_event=self._on_event,
            rng=random.Random(self._rng.random()),
            retry_first_s=first_s,
            retry_cap_s=cap_s,
        )
        self._reading = asyncio.create_task(self._read(self._client))
        self._client.start()

    async def go(self) -> None:
        """Leave; what has arrived is read to the end."""
        self.disturb()
        if self._client is not None:
            await self._client.aclose()
        if self._reading is not None:
            await self._reading

    async def move(self) -> None:
        """Leave, and come to another node, which may be down."""
        self.moves_count += 1
        await self.go()
        self.node = self._rng.choice([node for node in self._nodes if node is not self.node])
        await self.come()

    def disturb(self) -> None:
        """Note that something happened to its connection."""
        self._disturbed.append(asyncio.get_running_loop().time())

    def undisturbed(self, since: float, until: float) -> bool:
        """Return whether nothing happened to its connection in that time."""
        return not any(since <= at <= until for at in self._disturbed)

    async def send(
        self, recipient: "Actor | None", *, kind: str = "text", mode: Mode = Mode.ENCRYPTED
    ) -> Outcome | None:
        """Send a message to an actor, or to an unknown key; return what became of it, None when it was not sent."""
        serial = self._next_serial()
        target = self._rng.randbytes(32) if recipient is None else recipient.key
        loop = asyncio.get_running_loop()
        sent = SentMessage(self, recipient, serial, loop.time(), is_file=kind == "file")
        self._ledger.sent.append(sent)
        sending = self._sending(kind, serial, target, mode)
        try:
            async with asyncio.timeout(OUTCOME_S):
                result = await sending
            # Whose key could not be found got nothing, whether he is there or not.
            sent.outcome = None if isinstance(result.failure, KeyUnknownError) else result.outcome
        except (ClosedError, RelayUnreachableError):
            assert self.moves_count, f"{self} did not get back to its node"
        sent.known_at = loop.time()
        return sent.outcome

    async def reach(self, recipient: "Actor", *, mode: Mode = Mode.ENCRYPTED) -> None:
        """Send something again and again until it is delivered."""
        while True:
            if await self.send(recipient, mode=mode) is Outcome.DELIVERED:
                return
            await asyncio.sleep(SEND_AGAIN_S)

    def _sending(self, kind: str, serial: str, target: bytes, mode: Mode) -> Awaitable[Sent[Outcome]]:
        if kind == "file":
            self._ledger.file_senders.add(self.key)
            return self.client.send(target, self._ledger.file, name=serial, mode=mode)
        padding = "x" * int(TEXT_BYTES_MAX ** self._rng.random())
        if kind == "json":
            return self.client.send(target, Json.of({"serial": serial, "padding": padding}), mode=mode)
        return self.client.send(target, f"{serial} {padding}", mode=mode)

    def _next_serial(self) -> str:
        self._serials += 1
        return f"{self.number}.{self._serials}"

    def _on_event(self, event: object) -> None:
        if isinstance(event, Connected | Disconnected):
            self.disturb()
            self.back_at = asyncio.get_running_loop().time() if isinstance(event, Connected) else None
        if isinstance(event, MessageDropped) and not self._ledger.is_part_sent_twice(event):
            self._ledger.faults.append(f"{self} dropped a message: {event.refusal.value}")
        if isinstance(event, FileFailed):
            self._ledger.faults.append(f"{self} did not get {event.name}: {event.reason}")

    async def _read(self, client: MerkClient) -> None:
        async for message in client.messages():
            self._ledger.take(self, message)


def _is_owed(sent: SentMessage) -> bool:
    """Return whether both ends stayed where they were, and nothing happened to either for long enough."""
    actors = [sent.sender] if sent.recipient is None else [sent.sender, sent.recipient]
    if sent.known_at is None or any(actor.moves_count for actor in actors):
        return False
    return all(actor.undisturbed(sent.at - QUIET_S, sent.known_at + EDGE_S) for actor in actors)


def _shown(sent: SentMessage) -> str:
    took_s = (sent.known_at or sent.at) - sent.at
    kind = "file" if sent.is_file else "message"
    way = f"{sent.sender} to {sent.recipient}"
    return f"{kind} {sent.serial} of {way}, sent at {sent.at:.2f}, reported {took_s:.2f} s later"
