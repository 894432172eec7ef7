"""History, cursors, the live boundary and catching up against a dumb list, in random play.

Every client holds a filter and follows it through pages, drops, restarts, stalls and replicas that arrive late with an
old ``received_at``. Law: in the end it has every packet that its filter wants, and got one twice only where
specs/strata.md 13.1 allows it: sent live while its history was cut short, and then the connection was lost.
"""

import random
from functools import cache
from typing import Any

import pytest

from tests.protocols.strata.build import NOW, did, key, packet
from tests.protocols.strata.drive import Drive
from waystation.core.packets import PacketRow
from waystation.protocols.strata.limits import DEFAULT_LIMITS, StrataLimits
from waystation.protocols.strata.packet import Packet
from waystation.protocols.strata.relay import outbox, subscription
from waystation.store import memory_packets

AUTHORS = [key(number) for number in range(3)]
TYPES = ("POST", "PROFILE", "REACTION")
CLIENTS = 4
STEPS = 60
SEEDS_PER_TEST = 10


@cache
def pool() -> list[Packet]:
    """Return signed packets that all seeds share, some of which expire while a seed is played."""
    rng = random.Random(0)
    made = []
    for number in range(80):
        content = {"type": rng.choice(TYPES), "number": number}
        fields: dict[str, Any] = {"timestamp": NOW - rng.randrange(4_000)}
        if rng.random() < 0.15:
            fields["expires_at"] = NOW + rng.randrange(1, 40)
        made.append(packet(content, rng.choice(AUTHORS), **fields))
    return made


class Client:
    """One reader, and everything it took in."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        authors = rng.sample([did(author) for author in AUTHORS], rng.choice([0, 0, 1, 2]))
        types = rng.sample(TYPES, rng.choice([0, 0, 1, 2]))
        bounds = {"since": NOW - rng.randrange(4_000), "until": NOW - rng.randrange(2_000)}
        self.wanted = {"authors": authors, "types": types, **{n: at for n, at in bounds.items() if rng.random() < 0.2}}
        self.descending = rng.random() < 0.25
        self.peer: int | None = None
        self.cursor: str | None = None
        self.more = False
        self.seen: list[str] = []
        self.may_repeat: set[str] = set()
        self.uncursored: set[str] = set()
        self.history: list[str] = []
        self.in_history = False
        self.limit = 0
        self.page_count = 0
        self.dropped = False
        self.first_seq = 0

    def wants(self, row: PacketRow) -> bool:
        """Return whether the filter wants a packet, in the plainest words."""
        return (
            (row.author_id in self.wanted["authors"] or not self.wanted["authors"])
            and (row.content_type in self.wanted["types"] or not self.wanted["types"])
            and self.wanted.get("since", 0) <= row.timestamp <= self.wanted.get("until", NOW)
        )

    def subscribe(self, drive: Drive) -> None:
        """Ask for the first page, or for the one behind the cursor."""
        if self.peer is None:
            self.peer = drive.connect(f"{id(self)}")
            if self.cursor is None:
                self.first_seq = drive.store.packets.newest_seq()
        self.take(drive, len(drive.got[self.peer]))
        self.limit = self.rng.randrange(1, 8)
        self.page_count, self.in_history, self.more = 0, True, False
        order = "desc" if self.descending else "asc"
        drive.subscribe(self.peer, **self.wanted, limit=self.limit, order=order, cursor=self.cursor)

    def take(self, drive: Drive, count: int) -> None:
        """Take in so many of the messages that have arrived."""
        assert self.peer is not None
        arrived = drive.got[self.peer]
        for message in arrived[:count]:
            assert message["type"] != "ERROR"
            if message["type"] == "EOSE":
                self.in_history, self.more, self.cursor = False, message["has_more"], message["cursor"]
                if not self.more:
                    self.uncursored.clear()  # this cursor stands behind all that came before it
            elif message["type"] == "EVENT":
                self._take_event(message)
        del arrived[:count]

    def _take_event(self, message: dict[str, Any]) -> None:
        packet_id = message["packet"]["packet_id"]
        assert packet_id not in self.seen or packet_id in self.may_repeat
        self.seen.append(packet_id)
        if self.in_history:
            self.page_count += 1
            assert self.page_count <= self.limit
            assert "cursor" in message
            if not self.dropped:
                self.history.append(packet_id)
        self.cursor = message.get("cursor", self.cursor)
        if "cursor" not in message:
            self.uncursored.add(packet_id)

    def lose(self, drive: Drive) -> None:
        """Lose the connection with some of what was on its way."""
        if self.peer is None:
            return
        self.take(drive, self.rng.randrange(len(drive.got[self.peer]) + 1))
        drive.drop(self.peer)
        self.peer, self.dropped = None, True
        self.may_repeat |= self.uncursored


class World:
    """One relay, its clients, and what may happen to them."""

    def __init__(self, seed: int, limits: StrataLimits) -> None:
        self.rng = random.Random(seed)
        self.drive = Drive(rate_limits=False, limits=limits)
        self.publisher = self.drive.connect("publisher")
        self.waiting = self.rng.sample(pool(), len(pool()))
        self.clients = [Client(self.rng) for _ in range(CLIENTS)]

    def publish(self) -> None:
        """Let a client publish the next packet."""
        if self.waiting:
            self.drive.send(self.publisher, {"type": "PUBLISH", "packet": self.waiting.pop().body})

    def replicate(self) -> None:
        """Let another relay deliver the next packet, with the time at which it says it got it."""
        if self.waiting:
            late = self.waiting.pop()
            self.drive.replicate(late, self.rng.randrange(late.timestamp - 300, self.drive.wall_s + 1))

    def wait(self) -> None:
        """Let time pass, or none: ties are likely."""
        self.drive.wall_s += self.rng.choice([0, 1, 1, 3])

    def hold(self) -> None:
        """Let the disk answer later."""
        self.drive.hold_commits = True

    def commit(self) -> None:
        """Let the disk answer."""
        self.drive.commit_held()

    def congest(self) -> None:
        """Let some client take nothing, or take everything again."""
        peer = self.rng.choice(self.clients).peer
        if peer is not None:
            (self.drive.drain if peer in self.drive.stalled else self.drive.stall)(peer)

    def lose(self) -> None:
        """Cut some client's connection."""
        self.rng.choice(self.clients).lose(self.drive)

    def restart(self) -> None:
        """Restart the relay, now and then; what was not on the disk is lost."""
        if self.rng.random() < 0.3:
            for client in self.clients:
                client.lose(self.drive)
            self.drive = self.drive.restarted(rate_limits=False)
            self.publisher = self.drive.connect("publisher")

    def subscribe(self) -> None:
        """Let some client begin, resume or turn a page."""
        self.rng.choice(self.clients).subscribe(self.drive)


MOVES = (
    [World.publish] * 4
    + [World.replicate, World.subscribe] * 2
    + [World.wait, World.hold, World.commit, World.congest, World.lose, World.restart]
)


def play(seed: int, limits: StrataLimits = DEFAULT_LIMITS) -> None:
    """Play one seed to its end and compare."""
    world = World(seed, limits)
    for _ in range(STEPS):
        world.rng.choice(MOVES)(world)
    finish(world.drive, world.clients)
    for client in world.clients:
        judge(world.drive, client)


def finish(drive: Drive, clients: list[Client]) -> None:
    """Let the disk and every reader catch up, and every client read to the end of history."""
    drive.commit_held()
    for client in clients:
        if client.peer is not None:
            drive.drain(client.peer)
            client.take(drive, len(drive.got[client.peer]))
        else:
            client.subscribe(drive)
            client.take(drive, len(drive.got[client.peer]))
        for _ in range(200):
            if not client.more:
                break
            client.subscribe(drive)
            client.take(drive, len(drive.got[client.peer]))
        assert not client.more


def judge(drive: Drive, client: Client) -> None:
    """Compare what a client has with the list."""
    rows = [row for row in drive.rows() if client.wants(row)]
    alive = {f"0x{row.packet_id.hex()}" for row in rows if row.expires_at is None or row.expires_at >= drive.wall_s}
    if client.descending and client.dropped:
        alive &= {f"0x{row.packet_id.hex()}" for row in rows if row.seq <= client.first_seq}
    assert set(client.seen) >= alive
    assert set(client.seen) <= {f"0x{row.packet_id.hex()}" for row in rows}
    places = {f"0x{row.packet_id.hex()}": (row.order_at, row.seq) for row in rows}
    order = [places[packet_id] for packet_id in client.history]
    assert order == sorted(order, reverse=client.descending)


@pytest.mark.parametrize("first", range(0, 300, SEEDS_PER_TEST))
def test_every_union_is_exact(first, monkeypatch):
    """Whatever happens, a client that follows its cursors has what the list has, and no more twice than is allowed."""
    for seed in range(first, first + SEEDS_PER_TEST):
        small = random.Random(seed).random() < 0.7  # small pages and credits reach every seam with few packets
        monkeypatch.setattr(subscription, "PAGE_ROWS_MAX", 3 if small else 256)
        monkeypatch.setattr(subscription, "PAGE_BYTES_MAX", 1_200 if small else 262_144)
        monkeypatch.setattr(memory_packets, "ROWS_LOOKED_AT_MAX", 4 if small else 4_096)
        monkeypatch.setattr(outbox, "RECEIPT_BYTES", 1_500 if small else 262_144)
        try:
            play(seed, StrataLimits(ahead_bytes=3_000 if small else 1_048_576))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
