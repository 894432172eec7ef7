"""The credentials of the admin port: its token, sessions made with it, and how often an address may be wrong.

``authorisation`` asks for every request. A right token is accepted however many wrong ones came before it: an attacker
on this machine, whose address is that of the operator, keeps nobody away. So the limit on wrong ones bounds work, and
not what can be guessed: the token has 256 random bits. Choice NODE-TRIES.
"""

import secrets
from collections import OrderedDict
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.core.limits import TokenBucket
from waystation.crypto.hashing import sha256

__all__ = ["SESSIONS_MAX", "SESSION_S", "FailedTries", "Sessions", "is_equal"]

SESSION_S: Final = 12 * 3_600
"""A session ends so long after it was made, however much it is used: a working day."""
SESSIONS_MAX: Final = 64
"""A further one ends the oldest: whoever makes one has the token."""
TRIES_PER_ADDRESS: Final = 10
"""Wrong tokens of one address (IPv4, or IPv6 /64) a minute; all over the unix socket are one."""
TRIES_IN_ALL: Final = 100
"""Wrong tokens of all addresses a minute."""
ADDRESSES_MAX: Final = 1_024
"""Addresses that are remembered; a further one replaces the one that was wrong longest ago."""
PERIOD_S: Final = 60
_SECRET_BYTES: Final = 32


def is_equal(given: str, expected: str) -> bool:
    """Compare two secrets in a time that does not depend on where they differ."""
    return secrets.compare_digest(given.encode(), expected.encode())


class Sessions:
    """Sessions of browsers, in memory: a restart ends all. Only hashes are kept, so no look-up depends on a secret."""

    def __init__(self) -> None:
        self._ends: dict[bytes, Instant] = {}
        """By hash, the oldest first."""

    def make(self, now: Instant) -> str:
        """Return the secret of a new session."""
        if len(self._ends) >= SESSIONS_MAX:
            del self._ends[next(iter(self._ends))]
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        self._ends[_hash(secret)] = Instant(now + SESSION_S * MICROSECONDS_PER_SECOND)
        return secret

    def hold(self, secret: str, now: Instant) -> bool:
        """Return whether this is the secret of a session that has not ended."""
        ends = self._ends.get(_hash(secret))
        if ends is not None and ends <= now:
            self.end(secret)
            return False
        return ends is not None

    def end(self, secret: str) -> bool:
        """End a session; False when there was none."""
        return self._ends.pop(_hash(secret), None) is not None

    def end_all(self) -> None:
        """End every session."""
        self._ends.clear()

    def __len__(self) -> int:
        return len(self._ends)


class FailedTries:
    """Counts wrong tokens, per address and in all."""

    def __init__(self, now: Instant) -> None:
        self._all = TokenBucket(TRIES_IN_ALL, TRIES_IN_ALL, now, period_s=PERIOD_S)
        self._addresses: OrderedDict[str, TokenBucket] = OrderedDict()
        """The one that was wrong longest ago first."""

    def note(self, address: str, now: Instant) -> int:
        """Count one of ``address``; return 0, or after how many seconds a wrong token is within the limit again.

        Args:
            address: What ``engine.admission.address_key`` returns.
            now: Monotonic time.
        """
        own = self._addresses.get(address)
        if own is None:
            if len(self._addresses) >= ADDRESSES_MAX:
                self._addresses.popitem(last=False)
            own = self._addresses[address] = TokenBucket(TRIES_PER_ADDRESS, TRIES_PER_ADDRESS, now, period_s=PERIOD_S)
        self._addresses.move_to_end(address)
        return next((_seconds_until(each.ready_at(), now) for each in (own, self._all) if not each.take(now)), 0)

    def __len__(self) -> int:
        return len(self._addresses)


def _seconds_until(at: Instant, now: Instant) -> int:
    return max(1, -(-(at - now) // MICROSECONDS_PER_SECOND))


def _hash(secret: str) -> bytes:
    return sha256(secret.encode())
