"""Simulated look-ups: clients ask relays where devices are, and the first hint is compared with the true location.

``BhumiScenario`` starts searchers and counts right first hints; without faults a share of them must be right. A look-up
is one question about a device to one relay.
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import Final

from waystation.core.ids import PublicKey
from waystation.protocols.bhumi.client.base import Greeted
from waystation.protocols.bhumi.client.guide import Found, GuideClient, NoGuide
from waystation.protocols.bhumi.extension_messages import WhereEntry
from waystation.sim.bhumi import observations as seen
from waystation.sim.bhumi.context import BhumiContext
from waystation.sim.chance import Recurring

__all__ = ["LookUp", "Searcher"]

SUSPECTED: Final = 1 / 8  # chance that an adversary is looked up

OnHints = Callable[[tuple[WhereEntry, ...] | None], None]
"""Takes the hints of a relay; None when it did not answer."""


class LookUp:
    """One question to one relay, on a connection of its own."""

    def __init__(self, context: BhumiContext, host: str, node: int, identity: PublicKey, on_hints: OnHints) -> None:
        """Ask.

        Args:
            context: The scenario's.
            host: Address of the client that asks.
            node: The relay to ask.
            identity: Whom to look for.
            on_hints: Called once.
        """
        self._context = context
        self._identity = identity
        self._on_hints: OnHints | None = on_hints
        self._driver = context.dial(node, host, GuideClient(), self._on_turn, lambda _reason: self._report(None))

    def _on_turn(self) -> None:
        for event in self._driver.machine.take_events():
            if isinstance(event, Greeted):
                self._driver.machine.where(self._identity, self._context.schedule.now)
                self._driver.settle()
            elif isinstance(event, Found):
                self._report(event.entries)
            elif isinstance(event, NoGuide):
                self._report(None)

    def _report(self, entries: tuple[WhereEntry, ...] | None) -> None:
        on_hints, self._on_hints = self._on_hints, None
        if on_hints is not None:
            on_hints(entries)
            self._context.schedule.after(0, self._driver.hang_up)


class Searcher:
    """A client that looks devices up at all relays, and counts how often the first hint is right."""

    def __init__(self, context: BhumiContext, rng: random.Random, host: str, identities: list[PublicKey]) -> None:
        """Make one for devices with these identities; ``start`` lets it look."""
        self._context = context
        self._rng = rng
        self._host = host
        self._identities = identities
        self.outcomes: Counter[str] = Counter()
        """Look-ups: right and wrong ones of those that were due, early, and unanswered."""

    def start(self) -> None:
        """Look a device up again and again until the fault phase ends."""
        context = self._context
        recurring = Recurring(context.schedule, self._rng, lambda: context.in_fault_phase, least_us=1)
        recurring.often(context.plan.lookups_per_hour, self._look_anywhere)

    def look(self, node: int, identity: PublicKey) -> None:
        """Look one device up at one relay."""
        context = self._context
        location = context.locations[identity]
        expected = location.node if context.is_due(identity, node) else None

        def on_hints(entries: tuple[WhereEntry, ...] | None) -> None:
            if entries is None:
                self.outcomes["lookups_unanswered"] += 1
                return
            is_due = expected is not None and location.node == expected
            is_right = expected is not None and bool(entries) and entries[0].presence.relay_id == context.keys[expected]
            self.outcomes[("lookups_right" if is_right else "lookups_wrong") if is_due else "lookups_early"] += 1
            context.observe(seen.LookedUp(node, identity, is_due, is_right))

        LookUp(context, self._host, node, identity, on_hints)

    def _look_anywhere(self) -> None:
        context = self._context
        node = self._rng.randrange(context.plan.relays)
        if context.suspects and self._rng.random() < SUSPECTED:
            # There is no truth about adversaries, but what relays answer must keep the invariants.
            LookUp(context, self._host, node, self._rng.choice(context.suspects), lambda _entries: None)
        else:
            self.look(node, self._rng.choice(self._identities))
