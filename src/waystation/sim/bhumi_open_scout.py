"""Who asks relays of the open world where devices are, and compares what they say with the truth."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Final

from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.protocols.bhumi.client_base import Greeted
from waystation.protocols.bhumi.extension_messages import WhereEntry
from waystation.protocols.bhumi.guide_client import Found, GuideClient, NoGuide
from waystation.sim import bhumi_open_observations as seen
from waystation.sim.actor import Driver
from waystation.sim.bhumi_open_commons import PROTOCOL, OpenCommons
from waystation.sim.chance import spread

__all__ = ["Scout", "Search"]

HOUR_US: Final = 3_600 * MICROSECONDS_PER_SECOND
SUSPECTED: Final = 1 / 8  # chance that an enemy is looked up

Told = Callable[[tuple[WhereEntry, ...] | None], None]
"""Takes the hints of a relay; None when it did not answer."""


class Search:
    """One question to one relay, on a connection of its own."""

    def __init__(self, commons: OpenCommons, host: str, node: int, identity: PublicKey, told: Told) -> None:
        """Ask.

        Args:
            commons: The world.
            host: Address of who asks.
            node: The relay to ask.
            identity: Whom to look for.
            told: Called once.
        """
        self._commons = commons
        self._identity = identity
        self._told: Told | None = told
        self.asked = False
        """Whether the relay has greeted and the question is on its way."""
        self._driver: Driver[GuideClient] = Driver(
            commons.worlds[node],
            PROTOCOL,
            host,
            GuideClient(),
            commons.plan.link,
            self._on_turn,
            lambda _reason: self._tell(None),
        )

    def _on_turn(self) -> None:
        for event in self._driver.machine.take_events():
            if isinstance(event, Greeted):
                self.asked = self._driver.machine.where(self._identity, self._commons.schedule.now) is None
                self._driver.settle()
            elif isinstance(event, Found):
                self._tell(event.entries)
            elif isinstance(event, NoGuide):
                self._tell(None)

    def _tell(self, entries: tuple[WhereEntry, ...] | None) -> None:
        told, self._told = self._told, None
        if told is not None:
            told(entries)
            self._commons.schedule.after(0, self._driver.hang_up)


class Scout:
    """Looks devices up at relays of all sorts, and counts how often the first hint is right."""

    def __init__(self, commons: OpenCommons, rng: random.Random, host: str, identities: list[PublicKey]) -> None:
        """Make a scout for devices with these identities; ``start`` lets it look."""
        self._commons = commons
        self._rng = rng
        self._host = host
        self._identities = identities
        self.outcomes: Counter[str] = Counter()
        """Look-ups: ``right`` and ``wrong`` ones of those that were due, ``early``, and ``unanswered``."""

    def start(self) -> None:
        """Look somebody up again and again, as long as there is trouble."""
        mean_us = HOUR_US / self._commons.plan.lookups_per_hour
        self._commons.schedule.after(1 + spread(self._rng, mean_us), self._look_and_go_on)

    def look(self, node: int, identity: PublicKey) -> None:
        """Look one device up at one relay."""
        commons = self._commons
        place = commons.places[identity]
        expected = place.node if commons.is_due(identity, node) else None

        def told(entries: tuple[WhereEntry, ...] | None) -> None:
            if entries is None:
                self.outcomes["unanswered"] += 1
                return
            is_due = expected is not None and place.node == expected
            is_right = expected is not None and bool(entries) and entries[0].presence.relay_id == commons.keys[expected]
            self.outcomes[("right" if is_right else "wrong") if is_due else "early"] += 1
            commons.observe(seen.LookedUp(node, identity, is_due, is_right))

        Search(commons, self._host, node, identity, told)

    def _look_and_go_on(self) -> None:
        commons = self._commons
        if not commons.troubled:
            return
        node = self._rng.randrange(commons.plan.relays)
        if commons.suspects and self._rng.random() < SUSPECTED:
            # What relays say of enemies is nobody's truth, but it must keep the laws.
            Search(commons, self._host, node, self._rng.choice(commons.suspects), lambda _entries: None)
        else:
            self.look(node, self._rng.choice(self._identities))
        self.start()
