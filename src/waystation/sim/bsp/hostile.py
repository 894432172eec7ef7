"""Hostile BSP peers: each is a known peer of one device and runs no device of its own.

``BspScenario`` starts them. Some share a group with that device. The invariants check what these peers learn and what
they make others accept.
"""

import random
from collections.abc import Callable, Sequence
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_MS
from waystation.protocols.bsp.device.groups import Group
from waystation.sim.bsp.connection import Connection
from waystation.sim.bsp.host import Surroundings
from waystation.sim.bsp.observations import Made
from waystation.sim.bsp.records import (
    ACK,
    MESSAGE,
    OFFER,
    REQUEST,
    deps_body,
    ids_record,
    message_id_of,
    message_record,
    read_records,
)
from waystation.sim.chance import spread

__all__ = ["HOSTILES", "INSIDERS", "Hostile"]

INSIDERS: Final = ("byzantine", "poisoner", "hoarder")
"""Kinds that share a group with the device whose peers they are."""
PAUSE_US: Final = 700 * MICROSECONDS_PER_MS
KNOWN_MAX: Final = 500
CLIENTS_MAX_DEPENDENCIES: Final = 64


class Hostile:
    """One of them; a kind says what it does each time its turn comes, and how it answers."""

    kind = ""

    def __init__(self, network: Surroundings, rng: random.Random, name: str, group: Group) -> None:
        """Let somebody come who is named so; ``group`` is what insiders share."""
        self.network = network
        self.rng = rng
        self.name = name
        self.group = group
        self.connection: Connection
        """Set by whoever joins it to a device."""
        self.known: list[bytes] = []
        """Identifiers that it has received."""
        self.received = 0
        """Records that it has received."""

    def take(self, _sender: str, data: bytes) -> None:
        """Receive what the device sends."""
        for record in read_records(data):
            self.received += 1
            self.known = (self.known + list(record.ids))[-KNOWN_MAX:]
            self.answer(record.kind, record.ids)

    def come(self, lasts: Callable[[], bool]) -> None:
        """Act again and again while it lasts."""
        if lasts():
            self.act()
            self.network.schedule.after(1 + spread(self.rng, PAUSE_US), lambda: self.come(lasts))

    def act(self) -> None:
        """Do what this kind does."""

    def answer(self, kind: int, ids: Sequence[bytes]) -> None:
        """Answer a record; most kinds say nothing."""

    def say(self, *records: bytes) -> None:
        """Throw bytes at the device."""
        for record in records:
            self.connection.throw(self.name, record)

    def invent(self, group: Group, body: bytes) -> bytes:
        """Return a MESSAGE of its own making."""
        timestamp = self.rng.randrange(1 << 40)
        message_id = message_id_of(group.group_id, timestamp, body)
        self.network.groups_of[message_id] = group.group_id
        self.network.observe(Made(group.group_id, message_id, body, group.format == "deps_v1"))
        return message_record(group.group_id, timestamp, body)

    def any_ids(self, count: int) -> list[bytes]:
        """Return identifiers that it has received, of any message, and of none."""
        real = list(self.network.groups_of)
        pool = [*self.known, *real[-KNOWN_MAX:], *(self.rng.randbytes(32) for _ in range(4))]
        return [self.rng.choice(pool) for _ in range(count)]


class Garbage(Hostile):
    """Says what is no record, or is one with something behind it."""

    kind = "garbage"

    def act(self) -> None:
        """Throw one of many kinds of rubbish."""
        rng = self.rng
        whole = ids_record(rng.choice((ACK, OFFER, REQUEST)), *self.any_ids(2))
        corrupted = bytearray(whole)
        corrupted[rng.randrange(len(corrupted))] ^= 1 << rng.randrange(8)
        self.say(
            rng.choice(
                (
                    rng.randbytes(rng.randrange(200)),
                    whole[: rng.randrange(len(whole))],
                    bytes(corrupted),
                    ids_record(rng.choice((ACK, OFFER, REQUEST))),
                    b"\x01" + bytes([rng.randrange(256)]) + whole[2:],
                    message_record(rng.randbytes(32), (1 << 63) + rng.getrandbits(60), b""),
                    message_record(self.group.group_id, 1, bytes(32_769)),
                    whole + rng.randbytes(3),
                )
            )
        )


class Intruder(Hostile):
    """Shares nothing, and speaks about everything: groups, messages and identifiers that are none of its business."""

    kind = "intruder"

    def act(self) -> None:
        """Say something about somebody else's group."""
        kind = self.rng.choice((ACK, MESSAGE, OFFER, REQUEST))
        if kind == MESSAGE:
            group = self.rng.choice([self.group, *self.network.groups.values()])
            self.say(self.invent(group, deps_body([], self.rng.randbytes(20))))
        else:
            self.say(ids_record(kind, *self.any_ids(self.rng.randint(1, 40))))


class Flooder(Hostile):
    """Offers thousands of messages, and has none of them."""

    kind = "flooder"

    def act(self) -> None:
        """Offer more than anybody should remember."""
        for _ in range(self.rng.randint(1, 3)):
            self.say(ids_record(OFFER, *(self.rng.randbytes(32) for _ in range(self.rng.randint(1, 2_047)))))


class FalseWitness(Hostile):
    """Acknowledges what it has not, and asks again and again for what it was sent."""

    kind = "byzantine"

    def act(self) -> None:
        """Ask, or acknowledge, or offer what others have made."""
        kind = self.rng.choice((ACK, OFFER, REQUEST, REQUEST))
        for _ in range(self.rng.randint(1, 4)):
            self.say(ids_record(kind, *self.any_ids(self.rng.randint(1, 40))))

    def answer(self, kind: int, ids: Sequence[bytes]) -> None:
        """Ask once more for whatever it receives."""
        if kind in {MESSAGE, OFFER} and self.rng.random() < 1 / 2:
            self.say(ids_record(REQUEST, *ids), ids_record(REQUEST, *ids))


class Poisoner(Hostile):
    """A member who writes what no client takes, or what waits for ever, beside what is right."""

    kind = "poisoner"

    def act(self) -> None:
        """Write one message, and sometimes an earlier one again."""
        rng = self.rng
        wrong = self.any_ids(2)
        bodies = (
            rng.randbytes(rng.randrange(60)),
            b"\x01\xff\xff",
            deps_body([rng.randbytes(32) for _ in range(CLIENTS_MAX_DEPENDENCIES + 1)], b"many"),
            deps_body([rng.randbytes(32)], b"waits for ever"),
            deps_body(wrong, b"anything"),
            deps_body(wrong[:1] * 3, b"thrice the same"),
            deps_body([], rng.randbytes(8)),
        )
        record = self.invent(self.group, rng.choice(bodies))
        self.known.append(read_records(record)[0].ids[0])
        self.say(*[record] * rng.choice((1, 1, 3)))


class Hoarder(Hostile):
    """A member who takes everything and never acknowledges."""

    kind = "hoarder"

    def answer(self, kind: int, ids: Sequence[bytes]) -> None:
        """Ask for what is offered, and keep silent about what comes."""
        if kind == OFFER:
            self.say(ids_record(REQUEST, *ids))


HOSTILES: Final = {each.kind: each for each in (Garbage, Intruder, Flooder, FalseWitness, Poisoner, Hoarder)}
"""What makes a peer of each of ``plan.HOSTILE_KINDS``."""
