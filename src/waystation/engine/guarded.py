"""Calls every relay of the node in turn, so that an exception in one stops that one alone (NODE-GUARD).

What raises is a bug of ours: a machine never raises for what a peer sent. The relay keeps its state and its
connections; it is asked again after ``REST_MS``, so that a deadline which it can never meet does not spin the loop.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from waystation.core.effects import Effect
from waystation.core.instant import Instant, after_ms
from waystation.engine.relays import Service

__all__ = ["REST_MS", "Guarded", "OnFailure"]

REST_MS: Final = 1_000
"""How long a relay that raised in ``wake`` or ``deadline`` is not woken again, milliseconds."""

OnFailure = Callable[[str, str, Exception], None]
"""Called with the protocol, the name of the call that raised, and what it raised."""


class Guarded:
    """The calls of the node that go to every relay in one turn."""

    def __init__(self, relays: Mapping[str, Service]) -> None:
        """Guard ``relays``, by protocol."""
        self._relays = relays
        self._rests: dict[str, Instant] = {}
        """Relays that raised, and until when they are not woken."""
        self._now = Instant(0)
        self.on_failure: OnFailure | None = None
        """Without one a failure goes on to the caller, as a simulation wants it."""

    def take(self, now: Instant) -> Iterator[tuple[str, list[Effect]]]:
        """Yield the effects of every relay that has some."""
        self._now = now
        for protocol, relay in self._relays.items():
            try:
                effects = relay.take()
            except Exception as error:  # noqa: BLE001 - a bug of ours costs one relay, never the loop
                self.failed(protocol, "take", error)
                continue
            if effects:
                yield protocol, effects

    def wake(self, now: Instant) -> None:
        """Wake every relay but those that rest."""
        self._now = now
        for protocol, relay in self._relays.items():
            if self._rests and self._rests.get(protocol, now) > now:
                continue
            try:
                relay.wake(now)
            except Exception as error:  # noqa: BLE001 - as in take
                self._rest(protocol, "wake", error)
            else:
                self._rests.pop(protocol, None)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due for the first of them; for one that rests not before its rest is over."""
        earliest: Instant | None = None
        for protocol, relay in self._relays.items():
            try:
                at = relay.deadline()
            except Exception as error:  # noqa: BLE001 - as in take
                at = self._rest(protocol, "deadline", error)
            if at is None:
                continue
            if self._rests:
                at = max(at, self._rests.get(protocol, at))
            if earliest is None or at < earliest:
                earliest = at
        return earliest

    def failed(self, protocol: str, call: str, error: Exception) -> None:
        """Report that ``call`` raised; raise it when nobody wants the report."""
        if self.on_failure is None:
            raise error
        self.on_failure(protocol, call, error)

    def _rest(self, protocol: str, call: str, error: Exception) -> Instant:
        self.failed(protocol, call, error)
        rest = self._rests[protocol] = after_ms(self._now, REST_MS)
        return rest
