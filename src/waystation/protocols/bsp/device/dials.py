"""Decides which peers a device dials and when: it waits 1 s, doubled up to 60 s with jitter.

The stream machine asks it for the peers that are due and reports each result. A peer that cannot be reached is dialled
again within 6 s: the network may be back at any moment (NODE-REDIAL). A connected peer is not dialled, whichever side
opened the connection. Spec: bsp 11.2; BSP-DIAL.
"""

import random
from collections.abc import Iterator
from typing import Final, NamedTuple

from waystation.core.effects import Dial
from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant, after_ms
from waystation.core.redial import UNREACHED_MS_MAX, redial_wait_ms

__all__ = ["Dials", "Redial", "kind_of_url"]

RETRY_FIRST_MS: Final = 1_000
_KINDS: Final = {"bsp+tls": "tls", "bsp+wss": "wss", "bsp+tcp": "plain"}


def kind_of_url(url: str) -> str:
    """Return tls, wss or plain for the scheme of an address.

    Raises:
        LocalError: The scheme is none of bsp+tls, bsp+wss and bsp+tcp.
    """
    kind = _KINDS.get(url.partition("://")[0])
    if kind is None:
        raise LocalError(f"{url!r} is no bsp+tls://, bsp+wss:// or bsp+tcp:// address")
    return kind


class Redial(NamedTuple):
    """How long to wait between the dials of one peer; the defaults are those of a node, which has many peers."""

    retry_ms_max: int = 60_000
    stable_ms: int = 5_000
    """A connection that lasted so long starts the waits from the beginning."""


class _Wanted:
    """One peer that this device dials."""

    __slots__ = ("began_at", "due", "failures", "url")

    def __init__(self, url: str) -> None:
        self.url = url
        self.failures = 0
        self.due: Instant | None = Instant(0)  # whatever the clock says first
        """When to dial; None while that is under way, or the peer connected."""
        self.began_at = Instant(0)


class Dials:
    """The peers that are dialled, by key."""

    def __init__(self, rng: random.Random, redial: Redial = Redial()) -> None:  # noqa: B008 - immutable
        """Start with none.

        Args:
            rng: Source of jitter.
            redial: How long to wait.
        """
        self._rng = rng
        self.redial = redial
        """May be replaced."""
        self._wanted: dict[PublicKey, _Wanted] = {}
        self._earliest: Instant | None = None

    def __len__(self) -> int:
        """Return how many peers are dialled."""
        return len(self._wanted)

    def add(self, key: PublicKey, url: str, *, is_connected: bool) -> None:
        """Dial a peer from now on, or at another address.

        Raises:
            LocalError: The address has no scheme of ours.
        """
        kind_of_url(url)
        wanted = self._wanted.get(key)
        # The same address again keeps the wait that its failures have earned.
        if wanted is not None and wanted.url == url:
            return
        wanted = self._wanted[key] = _Wanted(url)
        # BSP-DIAL: a peer that is connected is not dialled.
        if is_connected:
            wanted.due = None
        self._look()

    def remove(self, key: PublicKey) -> None:
        """Dial a peer no more."""
        self._wanted.pop(key, None)
        self._look()

    def url_of(self, key: PublicKey) -> str | None:
        """Return the address at which a peer is dialled, None when it is not."""
        wanted = self._wanted.get(key)
        return None if wanted is None else wanted.url

    def began_at(self, key: PublicKey) -> Instant:
        """Return when the last dial of a peer that is dialled began."""
        return self._wanted[key].began_at

    def begin(self, now: Instant) -> Iterator[Dial]:
        """Yield the dials that are due, each under way as soon as it is yielded."""
        if self._earliest is None or self._earliest > now:
            return
        for key, wanted in self._wanted.items():
            if wanted.due is not None and wanted.due <= now:
                wanted.due, wanted.began_at = None, now
                # Spec 11.2: an address of the configuration is dialled whatever network it is on.
                yield Dial(key.hex(), wanted.url, only_public=False)
        self._look()

    def connected(self, key: PublicKey) -> None:
        """A peer is connected, by either side's dial: there is nothing to dial."""
        wanted = self._wanted.get(key)
        if wanted is not None:
            wanted.due = None
            self._look()

    def unreachable(self, key: PublicKey, now: Instant) -> None:
        """A dial came to nothing: dial again soon."""
        self._again(key, now, min(UNREACHED_MS_MAX, self.redial.retry_ms_max))

    def again(self, key: PublicKey, now: Instant, *, lasted_ms: int = 0) -> None:
        """The last connection of a peer ended after ``lasted_ms``: dial again later."""
        wanted = self._wanted.get(key)
        if wanted is None:
            return
        # BSP-DIAL: a connection that lasted starts the waits anew.
        if lasted_ms >= self.redial.stable_ms:
            wanted.failures = 0
        self._again(key, now, self.redial.retry_ms_max)

    def _again(self, key: PublicKey, now: Instant, longest_ms: int) -> None:
        wanted = self._wanted.get(key)
        if wanted is None:
            return
        # Spec 11.2, BSP-DIAL: 1 s doubling, between half the wait and all of it.
        wait_ms = redial_wait_ms(wanted.failures, self._rng, first_ms=RETRY_FIRST_MS, longest_ms=longest_ms)
        wanted.failures += 1
        wanted.due = after_ms(now, wait_ms)
        self._look()

    def hurry(self, now: Instant) -> None:
        """Dial every peer that is waited for now, and begin its waits anew."""
        for wanted in self._wanted.values():
            wanted.failures = 0
            if wanted.due is not None:
                wanted.due = now
        self._look()

    def deadline(self) -> Instant | None:
        """Return when a dial is due."""
        return self._earliest

    def _look(self) -> None:
        self._earliest = min((each.due for each in self._wanted.values() if each.due is not None), default=None)
