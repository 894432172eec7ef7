"""Carries out ``Dial`` effects: checks the addresses of a name, then lets the protocol's ``Outlet`` connect.

The hub calls ``dial`` for each effect; the connection, or the failure, comes back as an input of the machine. An
unauthenticated peer may name an address inside this node's own network. Where only public addresses are allowed, every
address of the name is checked, and the connection uses a checked one. A second look-up could differ (DNS rebinding).
TLS still verifies the name. Redirects are not followed. Names from such peers are looked up one at a time, because a
silent name server blocks one of the few look-up threads.

A new connection is logged at debug level, because the peer is not authenticated yet. A failed dial is one warning,
repeated only when its reason changes: ``peer.unreachable``, or the outlet's own event (``report``).
"""

import asyncio
import ipaddress
import socket
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Protocol

import structlog

from waystation.core.addresses import is_public
from waystation.core.effects import Dial
from waystation.core.errors import HostError, LocalError
from waystation.server.hub import Hub

__all__ = ["DIAL_WITHIN_S", "Dialler", "Outlet"]

DIALS_MAX: Final = 16
"""Under way at once; any more fail at once."""
DIAL_WITHIN_S: Final = 10.0
"""For look-up, connecting, TLS and handshake together."""
REPORTED_MAX: Final = 1_024  # names whose last warning is remembered, so that each change is one line
LEARNT_LOOKUPS_MAX: Final = 1
"""Look-ups at once of names from peers: libuv, below uvloop, does two; one is left to the operator's names."""

_log = structlog.get_logger("waystation.server")


class Outlet(Protocol):
    """Connects to the addresses of one protocol."""

    async def connect(self, dialler: "Dialler", hub: Hub, protocol: str, effect: Dial) -> None:
        """Connect to ``effect.url`` and lead the pipe to ``hub``, within ``DIAL_WITHIN_S``.

        Raises:
            LocalError: The text is no address of the protocol.
            HostError: The host is unknown, does not answer, or is not allowed.
        """


class Dialler:
    """Dials what machines ask for."""

    def __init__(self, outlets: Mapping[str, Outlet]) -> None:
        """Prepare to dial.

        Args:
            outlets: By protocol; one for each whose relay emits ``Dial``.
        """
        self._outlets = outlets
        self._lookups = asyncio.Semaphore(LEARNT_LOOKUPS_MAX)
        self._dials: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._reported: dict[tuple[str, str], tuple[str, str]] = {}
        """The last warning about each name: event and reason."""
        self.closed = False

    def __len__(self) -> int:
        return len(self._dials)

    def dial(self, hub: Hub, protocol: str, effect: Dial) -> None:
        """Begin; in a later turn ``hub`` gets the connected pipe, or the report that there is none."""
        key = (protocol, effect.name)
        loop = asyncio.get_running_loop()
        if self.closed or key in self._dials:  # a dial under way answers both
            return
        if len(self._dials) >= DIALS_MAX:
            trouble = f"{effect.url} was not dialled: {DIALS_MAX} others are being dialled"
            self.report(key, "peer.unreachable", effect.url, trouble)
            loop.call_soon(hub.dial_failed, protocol, effect.name)
            return
        task = self._dials[key] = loop.create_task(self._dial(hub, protocol, effect))
        task.add_done_callback(partial(self._over, key))

    def close(self) -> None:
        """Cancel dials under way without reporting them, and dial no more; connections that exist are the hub's."""
        self.closed = True
        for task in tuple(self._dials.values()):
            task.cancel()

    def _over(self, key: tuple[str, str], task: asyncio.Task[None]) -> None:
        if self._dials.get(key) is task:
            del self._dials[key]

    async def _dial(self, hub: Hub, protocol: str, effect: Dial) -> None:
        trouble = ""
        try:
            async with asyncio.timeout(DIAL_WITHIN_S):
                await self._outlets[protocol].connect(self, hub, protocol, effect)
        except TimeoutError:
            trouble = f"{effect.url} did not answer within {DIAL_WITHIN_S:g} s"
        except (HostError, LocalError) as error:
            trouble = str(error)
        self._dials.pop((protocol, effect.name), None)  # the relay may ask again at once
        if trouble:
            self.report((protocol, effect.name), "peer.unreachable", effect.url, trouble)
            hub.dial_failed(protocol, effect.name)
        else:
            self._connected((protocol, effect.name), effect.url)

    def _connected(self, key: tuple[str, str], url: str) -> None:
        """Note a new connection; an earlier refusal of the outlet stays the last warning."""
        _log.debug("peer.connected", protocol=key[0], url=url)
        if self._reported.get(key, ("", ""))[0] == "peer.unreachable":
            del self._reported[key]

    # What outlets call

    def report(self, key: tuple[str, str], event: str, url: str, why: str, **more: Any) -> None:
        """Log a warning about a name, unless it is the same as the last one.

        Args:
            key: Protocol and name.
            event: Of the log line.
            url: What was dialled.
            why: The reason.
            more: Further fields of the line.
        """
        if self._reported.pop(key, None) != (event, why):
            _log.warning(event, protocol=key[0], url=url, **more, error=why)
        if len(self._reported) >= REPORTED_MAX:
            del self._reported[next(iter(self._reported))]
        self._reported[key] = (event, why)

    def forget(self, key: tuple[str, str]) -> None:
        """Forget the last warning about a name, so that the next one is logged whatever it says."""
        self._reported.pop(key, None)

    async def addresses(self, effect: Dial, host: str, port: int | None) -> list[str]:
        """Return the IP addresses of the host in ``effect.url``, checked where only public ones are allowed.

        Raises:
            HostError: The host is unknown, or one of its addresses is not public.
        """
        try:
            in_turn = effect.only_public and not _is_literal(host)
            addresses = await (self._look_up_in_turn(host, port) if in_turn else _look_up(host, port))
        except (OSError, UnicodeError) as error:
            raise HostError(f"cannot find the host {host}: {error}") from error
        if effect.only_public and (private := [address for address in addresses if not is_public(address)]):
            raise HostError(f"{effect.url} leads to {private[0]}, which is not on the open internet; not dialled")
        return addresses

    async def _look_up_in_turn(self, host: str, port: int | None) -> list[str]:
        """Look up once it is this name's turn; a dial that times out frees the turn only when the thread is free."""
        await self._lookups.acquire()
        asking = asyncio.ensure_future(_look_up(host, port))
        asking.add_done_callback(self._on_looked_up)
        return await asyncio.shield(asking)

    def _on_looked_up(self, asking: asyncio.Future[list[str]]) -> None:
        self._lookups.release()
        if not asking.cancelled():
            asking.exception()  # the dial may have timed out


async def _look_up(host: str, port: int | None) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


def _is_literal(host: str) -> bool:
    """Return whether a host is an IP address, which no name server is asked for."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
