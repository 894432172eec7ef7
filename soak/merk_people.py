"""People who write to each other over a mesh of nodes, and a ledger of what was said, told and received.

The ledger judges. A person's connection is disturbed when its node is killed, when it ends, is made, or is moved; what
was sent to somebody undisturbed and called delivered must have been received, and between two undisturbed people who
stay where they are everything must be delivered.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

from soak.merk_nodes import MerkNode
from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.refusals import Refusal
from waystation.sdk.errors import RelayUnreachableError
from waystation.sdk.merk import (
    Auth,
    Connected,
    Disconnected,
    FileFailed,
    Json,
    KeyUnknownError,
    MerkClient,
    Message,
    MessageDropped,
    Mode,
    Outcome,
    ReceivedFile,
)

CALM_S: Final = 8.0
"""After so long without trouble at either end nodes have found each other again, and everything is owed."""
EDGE_S: Final = 1.5
"""What is told this close to a disturbance may have happened on its other side."""
OUTCOME_S: Final = 45.0
"""A look-up, a forward, both again, and the wait for a connection."""
SAY_AGAIN_S: Final = 0.05
TEXT_BYTES_MAX: Final = 20_000


@dataclass(slots=True)
class Said:
    """One message and what became of it."""

    sender: "Person"
    recipient: "Person | None"
    """None for a key that nobody has."""
    serial: str
    at: float
    is_file: bool = False
    told_at: float | None = None
    outcome: Outcome | None = None
    """None when nothing was sent: the recipient's agreement key could not be found, or the sender has moved."""


@dataclass(slots=True)
class Ledger:
    """Everything that was said and received."""

    file: Path
    """What everybody sends as a file."""
    said: list[Said] = field(default_factory=list)
    received: Counter[tuple[int, str]] = field(default_factory=Counter)
    """Times that a person was handed a message of this serial."""
    ids: Counter[tuple[int, bytes]] = field(default_factory=Counter)
    """Times that a person was handed a message of this id."""
    faults: list[str] = field(default_factory=list)
    file_senders: set[bytes] = field(default_factory=set)
    """Keys of those who may say a part of a file twice."""

    def is_part_said_twice(self, dropped: MessageDropped) -> bool:
        """Return whether a dropped message may be a part whose outcome its sender did not learn."""
        return dropped.refusal is Refusal.DUPLICATE and dropped.sender in self.file_senders

    def take(self, person: "Person", message: Message) -> None:
        """Note a message that a person was handed."""
        content = message.content
        if message.auth is not Auth.BOUND:
            self.faults.append(f"{person} was handed a message that is {message.auth.value}")
        if message.message_id is not None:  # a signed one has none when the recipient's advert was not found
            self.ids[person.number, message.message_id] += 1
        if isinstance(content, ReceivedFile):
            if sha256(content.read_bytes()).digest() != sha256(self.file.read_bytes()).digest():
                self.faults.append(f"{person} was handed another file than was sent")
            serial = content.name
            content.discard()
        elif isinstance(content, Json):
            serial = content.value()["serial"]
        else:
            serial = (message.text or "").partition(" ")[0]
        self.received[person.number, serial] += 1

    def judge(self) -> str:
        """See that everything held; return counts."""
        assert not self.faults, self.faults[:3]
        twice = [place for place, times in (*self.received.items(), *self.ids.items()) if times > 1]
        assert not twice, f"received twice: {twice[:3]}"
        untold = [each for each in self.said if each.told_at is None]
        assert not untold, f"{len(untold)} were never told, first {untold[0]}"
        nobody = [each for each in self.said if each.recipient is None]
        assert not [each for each in nobody if each.outcome is Outcome.DELIVERED], "delivered to nobody"
        owed = [each for each in self.said if _is_owed(each)]
        for each in owed:
            wanted = Outcome.UNKNOWN_TARGET if each.recipient is None else Outcome.DELIVERED
            assert each.outcome is wanted, f"undisturbed, and {each.outcome}: {_shown(each)}"
        for each in self.said:
            known = each.recipient is not None and self.received[each.recipient.number, each.serial] > 0
            if each.outcome is Outcome.DELIVERED and not known:
                assert each.recipient is not None
                assert not each.recipient.stood(each.at - EDGE_S, (each.told_at or each.at) + EDGE_S), _shown(each)
            assert known <= (each.outcome in _MAY_HAVE_ARRIVED), f"{each.outcome}, and received: {_shown(each)}"
        outcomes = Counter("not sent" if each.outcome is None else each.outcome.value for each in self.said)
        shown = ", ".join(f"{name} {count}" for name, count in outcomes.most_common())
        files = sum(each.is_file for each in self.said if each.outcome is Outcome.DELIVERED)
        return f"{len(self.said)} said ({shown}; {files} files), {len(owed)} owed, {self.received.total()} read"


_MAY_HAVE_ARRIVED: Final = {Outcome.DELIVERED, Outcome.UNKNOWN, Outcome.LOOKUP_TIMEOUT}


class Person:
    """A client that reads everything at once, writes to others, and may move."""

    def __init__(
        self,
        number: int,
        ledger: Ledger,
        nodes: Sequence[MerkNode],
        rng: random.Random,
    ) -> None:
        """Describe one; ``come`` begins.

        Args:
            number: Tells it from others, and which node it comes to first.
            ledger: Where it writes everything down.
            nodes: Where it may be.
            rng: Source of its choices.
        """
        self.number = number
        self.node = nodes[number % len(nodes)]
        self.keys = Keys.from_seeds(bytes([number + 1]) * 32, bytes([number + 101]) * 32)
        self.moves_count = 0
        self._ledger = ledger
        self._nodes = nodes
        self._rng = rng
        self._disturbed: list[float] = []
        self._client: MerkClient | None = None
        self._reading: asyncio.Task[None] | None = None
        self._serials = 0

    def __str__(self) -> str:
        return f"person {self.number} at node {self._nodes.index(self.node)}"

    @property
    def key(self) -> bytes:
        """Its public key."""
        return self.keys.signing.public

    @property
    def client(self) -> MerkClient:
        """What it speaks with."""
        assert self._client is not None
        return self._client

    async def come(self) -> None:
        """Begin to connect."""
        self.disturb()
        self._client = MerkClient(
            self.node.url, keys=self.keys, only=True, on_event=self._on_event, retry_first_s=0.05, retry_cap_s=0.5
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

    def stood(self, since: float, until: float) -> bool:
        """Return whether nothing happened to its connection in that time."""
        return not any(since <= at <= until for at in self._disturbed)

    async def say(
        self, recipient: "Person | None", *, kind: str = "text", mode: Mode = Mode.ENCRYPTED
    ) -> Outcome | None:
        """Send a message to somebody, or to nobody; return what became of it, None when it was not sent."""
        serial = self._next_serial()
        target = self._rng.randbytes(32) if recipient is None else recipient.key
        loop = asyncio.get_running_loop()
        said = Said(self, recipient, serial, loop.time(), is_file=kind == "file")
        self._ledger.said.append(said)
        sending = self._sending(kind, serial, target, mode)
        try:
            async with asyncio.timeout(OUTCOME_S):
                said.outcome = await sending
        except KeyUnknownError:
            said.outcome = None
        except RelayUnreachableError:
            assert self.moves_count, f"{self} did not get back to its node"
        said.told_at = loop.time()
        return said.outcome

    async def reach(self, recipient: "Person", *, mode: Mode = Mode.ENCRYPTED) -> None:
        """Say something again and again until it is delivered."""
        while True:
            if await self.say(recipient, mode=mode) is Outcome.DELIVERED:
                return
            await asyncio.sleep(SAY_AGAIN_S)

    def _sending(self, kind: str, serial: str, target: bytes, mode: Mode) -> Awaitable[Outcome]:
        if kind == "file":
            self._ledger.file_senders.add(self.key)
            return self.client.send_file(target, self._ledger.file, name=serial, mode=mode)
        padding = "x" * int(TEXT_BYTES_MAX ** self._rng.random())
        if kind == "json":
            return self.client.send_json(target, {"serial": serial, "padding": padding}, mode=mode)
        return self.client.send_text(target, f"{serial} {padding}", mode=mode)

    def _next_serial(self) -> str:
        self._serials += 1
        return f"{self.number}.{self._serials}"

    def _on_event(self, event: object) -> None:
        if isinstance(event, Connected | Disconnected):
            self.disturb()
        if isinstance(event, MessageDropped) and not self._ledger.is_part_said_twice(event):
            self._ledger.faults.append(f"{self} dropped a message: {event.refusal.value}")
        if isinstance(event, FileFailed):
            self._ledger.faults.append(f"{self} did not get {event.name}: {event.reason}")

    async def _read(self, client: MerkClient) -> None:
        async for message in client.messages():
            self._ledger.take(self, message)


def _is_owed(said: Said) -> bool:
    """Return whether both ends stayed where they were, and nothing happened to either for long enough."""
    people = [said.sender] if said.recipient is None else [said.sender, said.recipient]
    if said.told_at is None or any(person.moves_count for person in people):
        return False
    return all(person.stood(said.at - CALM_S, said.told_at + EDGE_S) for person in people)


def _shown(said: Said) -> str:
    took_s = (said.told_at or said.at) - said.at
    kind = "file" if said.is_file else "message"
    return (
        f"{kind} {said.serial} of {said.sender} to {said.recipient}, sent at {said.at:.2f}, told {took_s:.2f} s later"
    )
