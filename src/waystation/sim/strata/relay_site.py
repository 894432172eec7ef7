"""The simulated host of one Strata relay: its store, its restarts, and the upstream relays that it dials.

``StrataScenario`` makes one for each relay. The relay itself is the real one, in a ``World`` that takes the place of
the server.
"""

import random
from collections.abc import Callable, Mapping
from typing import Final

from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.core.packets import PacketQuery, PacketReader, PacketRow
from waystation.crypto.signing import KeyPair
from waystation.engine.node import Relay
from waystation.journal.events import Event
from waystation.protocols.strata.relay.machine import StrataRelay
from waystation.protocols.strata.settings import StrataSettings
from waystation.sim.chance import fork
from waystation.sim.net.link import End, Port
from waystation.sim.site import Site, draw_store
from waystation.sim.strata import observations as seen
from waystation.sim.strata.context import PROTOCOL, StrataContext
from waystation.sim.trace import Notes

__all__ = ["PINGS_US", "RelaySite"]

PINGS_US: Final = 50 * MICROSECONDS_PER_SECOND  # a WebSocket that answers no ping ends (specs/strata.md 13.3)
RETRY_FIRST_US: Final = MICROSECONDS_PER_SECOND
RETRY_MAX_US: Final = 16 * MICROSECONDS_PER_SECOND  # a server waits up to a minute; here links heal sooner
ROWS_MAX: Final = 1_000


class RelaySite(Site[StrataContext]):
    """One relay."""

    def __init__(
        self,
        context: StrataContext,
        rng: random.Random,
        trace: Notes,
        number: int,
        key_pair: KeyPair,
        make_relay: type[StrataRelay],
        ways: Mapping[str, Callable[[End], Port]],
        on_event: Callable[[Event], None],
    ) -> None:
        """Start a relay; see ``Site``. ``ways`` are how it reaches each of its upstreams, by DID."""
        self._rng = fork(rng)
        self._make = make_relay
        self._ways = ways
        self._is_closing = False
        self._ports: dict[str, Port] = {}
        self._relay: StrataRelay
        plan, relay_id = context.plan, context.relay_ids[number]
        self._settings = StrataSettings(
            replicate_allow=[did for did in context.relay_ids if did != relay_id],
            upstreams=[{"url": "wss://upstream/strata", "relay_id": did} for did in ways],
            public_url=f"wss://relay-{number}/strata" if plan.announces else "",
            retention_mib=plan.retention_mib,
        )
        store = draw_store(rng)
        super().__init__(context, rng, trace, number, on_event, host=plan.host, key_pair=key_pair, store=store)

    def show(self, *, final: bool) -> None:
        """Observe everything that is stored."""
        self._context.observe(seen.Stored(self.number, tuple(_rows(self.store.packets)), final))

    def close(self) -> None:
        """Leave every upstream, and dial none any more."""
        self._is_closing = True
        for port in self._ports.values():
            port.stream.break_off()

    def _make_relay(self, entropy: random.Random, admits: Callable[[PublicKey], bool]) -> Relay:
        context, store = self._context, self.store
        self._relay = self._make(
            self._settings, self.key_pair, store, entropy, rate_limits=context.plan.rate_limits, admits=admits
        )
        self._relay.set_wall(context.schedule.now, context.wall_us)
        return self._relay

    def _facts(self) -> dict[str, int]:
        return {"unsent_bytes_peak": self.world.unsent_bytes_peak}

    def _on_life(self, life: int) -> None:
        if life > 1:
            self.show(final=False)
        for did in self._ways:
            self._dial_later(life, did, RETRY_FIRST_US)

    # Upstreams

    def _dial_later(self, life: int, did: str, wait_us: int) -> None:
        delay_us = int(wait_us * (0.5 + self._rng.random() / 2))
        self._context.schedule.after(delay_us, lambda: self._dial_upstream(life, did, wait_us))

    def _dial_upstream(self, life: int, did: str, wait_us: int) -> None:
        schedule, world = self._context.schedule, self.world
        if world.life != life or not world.is_up or self._is_closing:
            return
        rest_us = self._relay.upstream_rest_s(did, schedule.now) * MICROSECONDS_PER_SECOND
        if rest_us:
            schedule.after(rest_us, lambda: self._dial_upstream(life, did, wait_us))
            return
        began = schedule.now

        def over(stood: bool) -> None:
            if not stood:
                self._relay.upstream_failed(did, schedule.now)
                world.plan_turn()
            lasted = schedule.now - began >= PINGS_US
            self._dial_later(life, did, RETRY_FIRST_US if lasted else min(2 * wait_us, RETRY_MAX_US))

        world.dial_out(PROTOCOL, did, lambda end: self._reach(did, end), self._context.plan.link, over)

    def _reach(self, did: str, end: End) -> Port:
        self._ports[did] = port = self._ways[did](end)
        return port


def _rows(packets: PacketReader) -> list[PacketRow]:
    """Return everything that is stored, in the order of arrival."""
    found: list[PacketRow] = []
    query = PacketQuery(by_seq=True, rows_max=ROWS_MAX)
    while True:
        page = packets.page(query)
        found += page.rows
        if page.position is None:
            return found
        query = query._replace(start=page.position)
