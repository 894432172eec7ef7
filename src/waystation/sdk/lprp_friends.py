"""Whom a host lets through to us without work: the wish on our disk, brought to the host and back in step with it."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from waystation.core.errors import HostError
from waystation.protocols.lprp.client_events import WhitelistAgreed, WhitelistDiffers, WhitelistFailed
from waystation.sdk.link import now
from waystation.sdk.lprp_errors import WhitelistFailedError
from waystation.sdk.lprp_host import HostUrl
from waystation.sdk.lprp_line import Line
from waystation.sdk.lprp_state import LprpState

__all__ = ["Friends"]

_CLOSED: Final = "the tenant was closed; its whitelist goes to the host at the next start"


class Friends:
    """The whitelist of one tenant."""

    def __init__(self, state: LprpState, host: HostUrl, line: Line) -> None:
        """Describe it; ``begin`` brings the host into step.

        Args:
            state: Keeps the wish.
            host: Who is told.
            line: The way there.
        """
        self._state = state
        self._host = host
        self._line = line
        self._wanted: frozenset[bytes] = frozenset()
        self._agreements: list[asyncio.Future[None]] = []
        self._comparisons: list[asyncio.Future[bool]] = []

    def begin(self) -> None:
        """Bring the host into step with what was wished before, if anything was."""
        wish = self._state.whitelist(self._host.key)
        if wish.wanted or wish.agreed is not None:
            self._want(wish.wanted)

    def look(self) -> None:
        """Take over what another program of this folder has wished."""
        wanted = self._state.whitelist(self._host.key).wanted
        if wanted != self._wanted:
            self._want(wanted)

    async def change(self, add: Iterable[bytes] = (), remove: Iterable[bytes] = (), *, clear: bool = False) -> None:
        """Change the wish and return once the host has it; see ``LprpState.change_whitelist``.

        Raises:
            LocalError: There would be too many keys, or a wrong one.
            WhitelistFailedError: The host does not agree, or is silent.
            HostError: The tenant was closed meanwhile, or the disk says no.
        """
        wish = self._state.change_whitelist(self._host.key, add, remove, clear=clear)
        agreed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._agreements.append(agreed)
        self._want(wish.wanted)
        await agreed

    async def compare(self) -> bool:
        """Return whether the host has what is wished; raises as ``change``."""
        compared: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._comparisons.append(compared)
        if len(self._comparisons) == 1:
            self._line.machine.compare_whitelist(now())
            self._line.flush()
        return await compared

    def take(self, event: WhitelistAgreed | WhitelistDiffers | WhitelistFailed) -> None:
        """Take an event of the line; a wish that was overtaken by another is met with that one."""
        if isinstance(event, WhitelistFailed):
            error = WhitelistFailedError(str(self._host), event.outcome)
            self._state.fail_whitelist(self._host.key, str(error))
            self._fail(error)
            return
        if isinstance(event, WhitelistAgreed):
            self._state.agree_whitelist(self._host.key, frozenset(event.keys))
            if event.keys == self._wanted:
                agreements, self._agreements = self._agreements, []
                for agreed in agreements:
                    if not agreed.done():
                        agreed.set_result(None)
        comparisons, self._comparisons = self._comparisons, []
        for compared in comparisons:
            if not compared.done():
                compared.set_result(isinstance(event, WhitelistAgreed))

    def close(self) -> None:
        """Tell those who wait that nothing more comes."""
        self._fail(HostError(_CLOSED))

    def _want(self, keys: frozenset[bytes]) -> None:
        self._wanted = keys
        self._line.machine.want_whitelist(keys, now())
        self._line.flush()

    def _fail(self, error: Exception) -> None:
        agreements, self._agreements = self._agreements, []
        comparisons, self._comparisons = self._comparisons, []
        waiting: list[asyncio.Future[Any]] = [*agreements, *comparisons]
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever has stopped waiting need not hear of it
