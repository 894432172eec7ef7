"""Logs which identities the operator's lists and bans refuse, so that a friend with a mistyped key can be found.

``NodeServer`` gives it to the engine, which calls ``note`` at each refusal. One line per identity and burst is written,
so that a refused peer that retries does not fill the log.
"""

import time
from typing import Final

import structlog

from waystation.core.ids import encode_id52
from waystation.engine.access import Access
from waystation.server.bursts import Bursts
from waystation.server.hub import monotonic_now

__all__ = ["RefusalLog"]

_log: Final = structlog.get_logger("waystation.server")


class RefusalLog:
    """One line per identity, protocol and burst. Cost: O(1) per refusal."""

    def __init__(self, access: Access) -> None:
        """Explain refusals by these lists and bans."""
        self._access = access
        self._bursts: dict[str, Bursts] = {}
        """By protocol, so that keys which nobody proved in one leave the lines of the others alone."""

    def note(self, protocol: str, identity: bytes) -> None:
        """Take one refusal of a key; a key that only the published policy refuses gets no line."""
        why = self._access.why_refused(identity, time.time_ns() // 1_000)
        if not why:
            return
        now = monotonic_now()
        if protocol not in self._bursts:
            self._bursts[protocol] = Bursts(now)
        if self._bursts[protocol].begins((identity, why), now):
            _log.info("identity.refused", protocol=protocol, id52=encode_id52(identity), why=why)
