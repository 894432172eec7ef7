"""Keeps one connection to each relay that this relay reads from, and redials lost ones.

``StrataHost`` starts it. Connections go to the hub, and the relay sends subscriptions over them. A relay is not dialled
while it is banned, or while a valid publication of the pipeline lists it as blacklisted.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import structlog

from waystation.core.dids import key_of_did
from waystation.core.errors import HostError, LocalError
from waystation.core.redial import UNREACHED_MS_MAX
from waystation.engine.policy import Policy
from waystation.engine.references import relay_id_of
from waystation.protocols.strata.relay.machine import StrataRelay
from waystation.protocols.strata.settings import Upstream
from waystation.server.failures.repeats import Repeats
from waystation.server.hub import Hub, monotonic_now
from waystation.server.sinks import DialledSink
from waystation.transport.pipe import Pipe
from waystation.transport.silence import SilencePolicy
from waystation.transport.tls import client_context
from waystation.transport.websocket.dial import WebSocketDialler
from waystation.transport.websocket.site import MESSAGE_BYTES_MAX

__all__ = ["Upstreams", "longest_wait_s"]

RETRY_FIRST_S: Final = 1.0
RETRY_MAX_S: Final = 60.0
WAITED_S: Final = 5.0  # a dial that failed after so long has got no answer
UNANSWERED_S: Final = 3.0  # the longest wait after such a dial
UNREACHED_S: Final = UNREACHED_MS_MAX / 1_000  # and after one that failed at once
AVOIDED_S: Final = 30.0  # how often a blacklisted relay is asked about again
LASTED_S: Final = 30.0  # a connection that lasted so long starts the waits from the beginning
_PROTOCOL: Final = "strata"
_RELAY_ID_CHARS: Final = 16

_log = structlog.get_logger("waystation.server")


def longest_wait_s(lasted_s: float, *, is_answered: bool) -> float:
    """Return the longest wait after a dial that, with its connection, lasted so long.

    Who could not be reached may be there again at any moment (NODE-REDIAL).
    """
    if is_answered:
        return RETRY_MAX_S
    return UNANSWERED_S if lasted_s >= WAITED_S else UNREACHED_S


class _UpstreamSink(DialledSink):
    """The sink of one dialled pipe, which knows when it is over."""

    def __init__(self, hub: Hub, name: str) -> None:
        super().__init__(hub, _PROTOCOL, name)
        self.over = asyncio.Event()
        self.lost = self._lost

    def _lost(self, pipe: Pipe, error: Exception | None) -> None:
        self._hub.lost(pipe, error)
        self.over.set()


class Upstreams:
    """Keeps one connection to each upstream."""

    def __init__(
        self,
        hub: Hub,
        relay: StrataRelay,
        upstreams: Sequence[Upstream],
        rng: random.Random,
        policy: Policy | None = None,
        silence: Callable[[], SilencePolicy] = SilencePolicy,
    ) -> None:
        """Prepare; ``start`` dials.

        Args:
            hub: Gets the connections.
            relay: Knows who is banned for how long.
            upstreams: Whom to dial.
            rng: Source of jitter.
            policy: Knows which relays are published as blacklisted; None for none.
            silence: Returns how long a relay may be silent.
        """
        self._hub = hub
        self._relay = relay
        self._upstreams = upstreams
        self._rng = rng
        self._policy = policy if policy is not None else Policy()
        self._silence = silence
        self._repeats = Repeats()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to dial."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._keep(upstream)) for upstream in self._upstreams]

    def close(self) -> None:
        """Dial no more; connections that exist are the hub's."""
        for task in self._tasks:
            task.cancel()

    async def _keep(self, upstream: Upstream) -> None:
        wait_s = RETRY_FIRST_S
        loop = asyncio.get_running_loop()
        while True:
            rest_s = self._relay.upstream_rest_s(upstream.relay_id, monotonic_now())
            if rest_s:
                _log.warning("upstream.rests", relay_id=upstream.relay_id, seconds=rest_s)
                await asyncio.sleep(rest_s)
            await self._while_avoided(upstream)
            began = loop.time()
            is_answered = await self._connect_once(upstream)
            lasted_s = loop.time() - began
            wait_s = RETRY_FIRST_S if lasted_s >= LASTED_S else min(wait_s * 2, RETRY_MAX_S)
            now_s = min(wait_s, longest_wait_s(lasted_s, is_answered=is_answered))
            await asyncio.sleep(now_s * (0.5 + self._rng.random() / 2))

    async def _while_avoided(self, upstream: Upstream) -> None:
        """Return once nothing is published that keeps us from dialling."""
        relay_id, is_logged = relay_id_of(key_of_did(upstream.relay_id) or upstream.relay_id), False
        while self._policy.avoids(relay_id, upstream.relay_id, monotonic_now()):
            if not is_logged:
                _log.warning("upstream.avoided", relay_id=upstream.relay_id, why="it is published as blacklisted")
                is_logged = True
            await asyncio.sleep(AVOIDED_S)

    async def _connect_once(self, upstream: Upstream) -> bool:
        """Dial, and return when the connection is over; whether there was one."""
        try:
            context = client_context(Path(upstream.ca)) if upstream.ca else None
            dialler = WebSocketDialler(
                message_bytes_max=MESSAGE_BYTES_MAX,
                text=True,
                context=context,
                authority="ca in strata.upstreams",
                silence=self._silence,
            )
            sink = _UpstreamSink(self._hub, upstream.relay_id)
            await dialler.dial(upstream.url, sink)
        except (HostError, LocalError) as error:  # LocalError: an address that only looks like one
            unsaid = self._repeats.take((upstream.relay_id, str(error)), monotonic_now())
            say = _log.debug if unsaid is None else _log.warning  # it is dialled every few seconds (NODE-REDIAL)
            say("upstream.unreachable", relay_id=upstream.relay_id, error=str(error), unsaid=unsaid or 0)
            self._relay.upstream_failed(upstream.relay_id, monotonic_now())
            self._hub.plan_turn()
            return False
        _log.info("upstream.connected", relay_id=upstream.relay_id, url=upstream.url)
        await sink.over.wait()
        view = self._relay.upstreams(monotonic_now())[upstream.relay_id]
        if view.trouble:
            _log.warning("upstream.trouble", relay_id=upstream.relay_id, why=view.trouble, state=view.state)
        else:
            _log.info("upstream.lost", relay_id=upstream.relay_id)
        return True
