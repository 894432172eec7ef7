"""Simulated Strata publishers: each has one or two identities, rotates keys, and retries until it gets a verdict.

``StrataScenario`` starts them; each drives the real client machine. A packet without a known outcome is published again
with the same bytes, and the final answer is observed. A new key signs packets only after every relay of this publisher
has acknowledged its KEY_EVENT.
"""

import random
from collections import Counter
from typing import Any, Final

from waystation.core.dids import encode_key_multibase
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.crypto.signing import KeyPair
from waystation.protocols.strata.client.events import Event, Published, PublishRefused, PublishUnknown
from waystation.protocols.strata.client.machine import StrataClient
from waystation.protocols.strata.keys.keyring import KEY_EVENT
from waystation.protocols.strata.packet import Packet
from waystation.sim.chance import HOUR_US, Recurring, fork, spread
from waystation.sim.driver import Driver
from waystation.sim.observations import Unfulfilled
from waystation.sim.strata import observations as seen
from waystation.sim.strata.context import PROTOCOL, TYPES, Author, StrataContext

__all__ = ["Publisher"]

AWAY_US: Final = 2 * MICROSECONDS_PER_SECOND
AGAIN_US: Final = 3 * MICROSECONDS_PER_SECOND
ANONYMOUS_EVERY_US: Final = 6 * MICROSECONDS_PER_SECOND  # a third of what an anonymous publisher may do
BURST_MAX: Final = 24
KEYS_MAX: Final = 15  # one less than anybody tries per packet (specs/strata.md 4.1)
LIFE_S: Final = (5, 90)
BACKDATED_S: Final = 120
FUTURE_S: Final = 200  # less than the 300 s that relays accept


class Publisher:
    """One person with one or two identities."""

    def __init__(self, context: StrataContext, rng: random.Random, host: str, home: int) -> None:
        """Make a publisher; ``start`` lets it write.

        Args:
            context: Shared by all actors.
            rng: Source of its behaviour.
            host: Its address.
            home: Number of its relay.
        """
        plan = context.plan
        behaviour = plan.publisher
        self._context = context
        self._rng = rng
        self._authors = [Author(fork(rng)) for _ in range(rng.choice((1, 1, 2)))]
        for author in self._authors:
            context.know_key(author.did, author.key)
        key = KeyPair.from_seed(rng.randbytes(32)) if rng.random() < behaviour.authenticates else None
        everywhere = rng.random() < behaviour.fans_out
        targets = range(plan.relays) if everywhere else [home]
        self._outlets = [_Outlet(self, context, fork(rng), host, relay, key) for relay in targets]
        self._mean_us = HOUR_US * plan.publishers / plan.packets_per_hour
        if key is None and plan.rate_limits:
            self._mean_us = max(self._mean_us, ANONYMOUS_EVERY_US)
        self._key_events: dict[bytes, _KeyChange] = {}
        self.outcomes: Counter[str] = Counter()

    @property
    def dids(self) -> list[str]:
        """Its identities."""
        return [author.did for author in self._authors]

    def start(self) -> None:
        """Connect and begin to write."""
        for outlet in self._outlets:
            outlet.come()
        recurring = Recurring(self._context.schedule, self._rng, lambda: self._context.in_fault_phase)
        recurring.every(self._mean_us, self._write_some)

    def quiesce(self) -> None:
        """Come back, and write no more of its own."""
        for outlet in self._outlets:
            outlet.come()

    def probe(self) -> None:
        """Write one more packet."""
        self._write(self._rng.choice(self._authors))

    def leave(self) -> None:
        """Go for good, and complain about what has no verdict."""
        for outlet in self._outlets:
            outlet.leave()

    # What outlets report

    def on_ok(self, outlet: "_Outlet", packet: Packet, *, duplicate: bool) -> None:
        """A relay promised a packet."""
        self.outcomes["duplicate" if duplicate else "ok"] += 1
        change = self._key_events.get(packet.packet_id)
        if change is not None and change.promised(outlet):
            del self._key_events[packet.packet_id]
        if self._context.in_fault_phase and self._rng.random() < self._context.plan.publisher.says_again:
            self._rng.choice(self._outlets).send(packet)

    def is_rotated(self, did: str) -> bool:
        """Return whether an old key of the author has been replaced, or is about to be."""
        return any(author.did == did and author.rotated for author in self._authors)

    # Writing

    def _write_some(self) -> None:
        behaviour = self._context.plan.publisher
        count = self._rng.randint(2, BURST_MAX) if self._rng.random() < behaviour.bursts else 1
        for _ in range(count):
            self._write(self._rng.choice(self._authors))

    def _write(self, author: Author) -> None:
        context, rng, behaviour = self._context, self._rng, self._context.plan.publisher
        if rng.random() < behaviour.rotates and not self._key_events and len(author.keys) < KEYS_MAX:
            self._change_key(author)
            return
        size = 1 + int(rng.random() ** 2 * context.plan.text_bytes_max)
        text = rng.choice("abcäöü→") * size
        timestamp = context.wall_s - rng.randrange(BACKDATED_S)
        if rng.random() < 1 / 16:
            timestamp = context.wall_s + rng.randrange(FUTURE_S)
        expires_at = context.wall_s + rng.randint(*LIFE_S) if rng.random() < behaviour.expires else None
        packet = context.make(author, {"type": rng.choice(TYPES), "text": text[:size]}, timestamp, expires_at)
        for outlet in self._outlets:
            outlet.send(packet)
            if context.in_fault_phase and rng.random() < behaviour.leaves_mid_flight:
                outlet.go()

    def _change_key(self, author: Author) -> None:
        """Publish a KEY_EVENT that adds a key, or puts one in the place of the one in use."""
        context, key = self._context, author.next_key()
        context.know_key(author.did, key)
        number = len(author.keys)
        content: dict[str, Any] = {
            "type": KEY_EVENT,
            "event": "ADD",
            "key_id": f"{author.did}#keys-{number + 1}",
            "public_key_multibase": encode_key_multibase(key.public),
            "valid_from": context.wall_s,
        }
        if self._rng.random() < 1 / 2:
            content |= {"event": "ROTATE", "replaces": f"{author.did}#keys-{number}"}
            author.rotated = True
        packet = context.make(author, content, context.wall_s)
        self._key_events[packet.packet_id] = _KeyChange(author, key, len(self._outlets))
        for outlet in self._outlets:
            outlet.send(packet)


class _KeyChange:
    """A key that is not in use before every relay knows it."""

    def __init__(self, author: Author, key: KeyPair, relays: int) -> None:
        self._author = author
        self._key = key
        self._relays = relays
        self._promised: dict[_Outlet, None] = {}

    def promised(self, outlet: "_Outlet") -> bool:
        """Note that a relay knows the key; return whether it is in use from now on."""
        self._promised[outlet] = None
        if len(self._promised) < self._relays:
            return False
        self._author.keys.append(self._key)
        return True


class _Outlet:
    """A publisher's way to one relay."""

    def __init__(
        self,
        publisher: Publisher,
        context: StrataContext,
        rng: random.Random,
        host: str,
        relay: int,
        key: KeyPair | None,
    ) -> None:
        self._publisher = publisher
        self._context = context
        self._rng = rng
        self._host = host
        self._relay = relay
        self._client: StrataClient = context.make_client(fork(rng), key_pair=key)
        self._client.set_wall(context.schedule.now, context.wall_us)
        self._driver: Driver[StrataClient] | None = None
        self._waiting: dict[str, Packet] = {}
        self._repeats = 0
        self._is_leaving = False

    def come(self) -> None:
        """Connect, unless connected."""
        if self._driver is None and not self._is_leaving:
            world, link = self._context.worlds[self._relay], self._context.plan.link
            self._context.next_connection()  # connections of publishers count, though no observation names them
            self._driver = Driver(
                world, PROTOCOL, self._host, self._client, link, self._on_turn, lambda _reason: self._on_end()
            )
            self._driver.settle()

    def go(self) -> None:
        """Lose the connection."""
        if self._driver is not None:
            self._driver.hang_up(abort=self._rng.random() < 1 / 2)

    def send(self, packet: Packet) -> None:
        """Publish a packet now, or with the next connection."""
        self._waiting[self._client.publish(packet, self._context.schedule.now)] = packet
        if self._driver is not None:
            self._driver.settle()

    def leave(self) -> None:
        """Go for good."""
        unsettled = len(self._waiting) + self._repeats
        if unsettled:
            self._context.observe(Unfulfilled(f"publisher {self._host}: {unsettled} packets without a verdict"))
        self._is_leaving = True
        self.go()

    # What the connection reports

    def _on_turn(self) -> None:
        if events := self._client.take_events():
            for event in events:
                self._on_event(event)
            if self._driver is not None:
                self._driver.settle()

    def _on_event(self, event: Event) -> None:
        """Note verdicts, and publish again what has none."""
        context = self._context
        if isinstance(event, Published):
            packet = self._waiting.pop(event.msg_id)
            context.oks[self._relay].append(event.packet_id)
            is_stored = context.worlds[self._relay].store.packets.packet(event.packet_id) is not None
            context.observe(seen.Published(self._relay, event.packet_id, event.duplicate, is_stored))
            self._publisher.on_ok(self, packet, duplicate=event.duplicate)
        elif isinstance(event, PublishUnknown):
            self._again(event.msg_id, "unknown")
        elif isinstance(event, PublishRefused):
            if event.code == "rate_limited":
                self._again(event.msg_id, "limited")
            else:
                packet = self._waiting[event.msg_id]
                rotated = self._publisher.is_rotated(packet.author_id)
                context.observe(
                    seen.Refused(self._relay, packet.packet_id, event.code, event.detail, rotated, context.wall_s)
                )
                if event.detail == seen.NOT_STORED:
                    self._again(event.msg_id, seen.NOT_STORED)
                else:
                    del self._waiting[event.msg_id]
                    self._publisher.outcomes["refused"] += 1

    def _on_end(self) -> None:
        """Come back later."""
        self._driver = None
        self._context.schedule.after(spread(self._rng, AWAY_US), self.come)

    def _again(self, msg_id: str, outcome: str) -> None:
        packet = self._waiting.pop(msg_id)
        self._publisher.outcomes[outcome] += 1
        self._repeats += 1

        def repeat() -> None:
            self._repeats -= 1
            if not self._is_leaving:
                self.send(packet)

        self._context.schedule.after(spread(self._rng, AGAIN_US), repeat)
