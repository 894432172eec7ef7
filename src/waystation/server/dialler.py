"""Carries out ``Dial`` effects: looks a name up, judges where it leads, and connects to exactly that.

Whoever tells us an address may be a stranger who wants us to knock at our own doors. So where only the open internet is
allowed every address of the name is judged, and the connection is made to one that was judged: a second look-up could
answer otherwise (DNS rebinding). TLS still proves the name. Redirects are not followed. Names that strangers told are
looked up one at a time, since a name server that never answers holds one of the few threads for look-ups.

Addresses of Bhumi relays (``tls://``, ``tcp://``) are judged likewise and dialled by a ``BhumiOutlet``.

Addresses of BSP peers (``bsp+tls://``, ``bsp+wss://``) come from the operator and are dialled by a ``BspOutlet``; their
relay is told which certificate was seen, because the proof of the other side's key covers it.

A connection that stands proves nothing yet, so it is a debug line; ``mesh_log`` tells the links. Here is told what
never became one: ``peer.unreachable``, and ``peer.refused`` when the other side closed.
"""

import asyncio
import ipaddress
import socket
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import structlog

from waystation.core.addresses import is_public
from waystation.core.effects import Dial
from waystation.core.errors import HostError, LocalError
from waystation.server.bhumi_links import BhumiExit, BhumiOutlet
from waystation.server.bsp_outlet import BspOutlet
from waystation.server.hub import Hub
from waystation.server.mesh_log import MeshLog
from waystation.transport.pipe import Pipe
from waystation.transport.websocket_dial import host_of
from waystation.transport.websocket_out import Outlet
from waystation.transport.websocket_pipe import WebSocketPipe

__all__ = ["Dialler"]

DIALS_MAX: Final = 16
"""Under way at once; what comes on top fails."""
DIAL_WITHIN_S: Final = 10.0
"""For look-up, connecting, TLS and handshake together."""
TOLD_MAX: Final = 1_024  # names whose state is remembered, so that each change is one line
LEARNT_LOOKUPS_MAX: Final = 1
"""Look-ups of learnt names at once: libuv, below uvloop, does two; one is left to the operator's names."""
_BHUMI: Final = "bhumi"
_DOUBLE_LINK: Final = 4409  # specs/merk.md 10.4, as the other statuses
_REFUSALS: Final = {
    1001: "it is shutting down",
    1002: "it takes what we said for another protocol",
    1008: "we broke its rules too often",
    1009: "what we said is larger than it takes",
    1013: "it takes no more peers, none that it does not name itself, or no more connections of this address now",
    4401: "it did not accept our proof, or our key is banned there",
    4408: "a proof was not there in time",
    _DOUBLE_LINK: "we are linked with it already",
}

_log = structlog.get_logger("waystation.server")


class _Exit:
    """The sink of one dialled pipe: leads it to the hub under its name, and notices whether it becomes a link."""

    def __init__(self, dialler: "Dialler", hub: Hub, protocol: str, effect: Dial) -> None:
        self._dialler = dialler
        self._hub = hub
        self._key = (protocol, effect.name)
        self._url = effect.url
        self._is_link = False
        self.congested = hub.congested
        self.drained = hub.drained

    def connected(self, pipe: Pipe) -> None:
        """Introduce the pipe."""
        protocol, name = self._key
        self._hub.connected_out(protocol, pipe, name)

    def received(self, pipe: Pipe, data: bytes) -> None:
        """Hand a message over."""
        before = self._links_before()
        self._hub.received(pipe, data)
        self._look(before)

    def received_many(self, pipe: Pipe, messages: list[bytes]) -> None:
        """Hand the messages of one read over."""
        before = self._links_before()
        self._hub.received_many(pipe, messages)
        self._look(before)

    def lost(self, pipe: Pipe, error: Exception | None) -> None:
        """Report the end, and say so when the other side ended what was no link."""
        by_them = self._hub.knows(pipe)
        before = self._dialler.links_count()
        self._hub.lost(pipe, error)
        if self._dialler.links_count() < before:
            self._dialler.unlinked()
        elif by_them:
            assert isinstance(pipe, WebSocketPipe)
            self._dialler.refused(self._key, self._url, pipe.told_status or 0)

    def _links_before(self) -> int | None:
        return None if self._is_link else self._dialler.links_count()

    def _look(self, before: int | None) -> None:
        """Notice that what was said has made a link."""
        if before is not None and self._dialler.links_count() > before:
            self._is_link = True
            self._dialler.linked(self._key, self._url)


class _ProvenExit:
    """The sink of one pipe to a BSP peer: leads it to the hub with the certificate that was seen.

    Whatever ends it is a close of our relay, which says why, or the network's doing; the relay dials again.
    """

    def __init__(self, hub: Hub, protocol: str, name: str) -> None:
        self._hub = hub
        self._key = (protocol, name)
        self.received = hub.received
        self.received_many = hub.received_many
        self.half_closed = hub.half_closed
        self.congested = hub.congested
        self.drained = hub.drained
        self.lost = hub.lost

    def connected(self, pipe: Pipe) -> None:
        """Introduce the pipe."""
        protocol, name = self._key
        self._hub.connected_out(protocol, pipe, name, pipe.certificate_sha256)


class Dialler:
    """Dials what machines ask for."""

    def __init__(
        self,
        outlet: Outlet,
        mesh_log: MeshLog | None = None,
        bsp_outlet: BspOutlet | None = None,
        bhumi_outlet: BhumiOutlet | None = None,
    ) -> None:
        """Prepare to dial.

        Args:
            outlet: Dials WebSockets.
            mesh_log: Hears at once of links that were dialled.
            bsp_outlet: Dials BSP peers; None where none are dialled.
            bhumi_outlet: Dials Bhumi relays; None where none are dialled.
        """
        self._outlet = outlet
        self._mesh_log = mesh_log
        self._bsp_outlet = bsp_outlet
        self._bhumi_outlet = bhumi_outlet
        self._lookups = asyncio.Semaphore(LEARNT_LOOKUPS_MAX)
        self._dials: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._told: dict[tuple[str, str], tuple[str, str]] = {}
        """What the log has of each name that is in trouble: event and reason."""
        self._closed = False

    def __len__(self) -> int:
        return len(self._dials)

    def dial(self, hub: Hub, protocol: str, effect: Dial) -> None:
        """Begin; in a later turn ``hub`` gets the pipe that stands, or hears that there is none."""
        key = (protocol, effect.name)
        loop = asyncio.get_running_loop()
        if self._closed or key in self._dials:  # whoever is being dialled already gets one answer, for both
            return
        if len(self._dials) >= DIALS_MAX:
            trouble = f"{effect.url} was not dialled: {DIALS_MAX} others are being dialled"
            self._say(key, "peer.unreachable", effect.url, trouble)
            loop.call_soon(hub.dial_failed, protocol, effect.name)
            return
        task = self._dials[key] = loop.create_task(self._dial(hub, protocol, effect))
        task.add_done_callback(partial(self._over, key))

    def close(self) -> None:
        """Give up what is under way, without a word to anybody, and dial no more; what stands is the hub's."""
        self._closed = True
        for task in tuple(self._dials.values()):
            task.cancel()

    def _over(self, key: tuple[str, str], task: asyncio.Task[None]) -> None:
        if self._dials.get(key) is task:
            del self._dials[key]

    async def _dial(self, hub: Hub, protocol: str, effect: Dial) -> None:
        trouble = ""
        try:
            async with asyncio.timeout(DIAL_WITHIN_S):
                await self._connect(hub, protocol, effect)
        except TimeoutError:
            trouble = f"{effect.url} did not answer within {DIAL_WITHIN_S:g} s"
        except (HostError, LocalError) as error:
            trouble = str(error)
        self._dials.pop((protocol, effect.name), None)  # who hears the answer may ask again at once
        if trouble:
            self._say((protocol, effect.name), "peer.unreachable", effect.url, trouble)
            hub.dial_failed(protocol, effect.name)
        else:
            self._reached((protocol, effect.name), effect.url)

    async def _connect(self, hub: Hub, protocol: str, effect: Dial) -> None:
        if self._bsp_outlet is not None and self._bsp_outlet.knows(effect.url):
            assert not effect.only_public  # nobody but the operator names these
            await self._bsp_outlet.dial(effect.url, _ProvenExit(hub, protocol, effect.name), DIAL_WITHIN_S)
            return
        if self._bhumi_outlet is not None and protocol == _BHUMI:
            place = self._bhumi_outlet.place_of(effect.url)
            addresses = await self._judged_addresses(effect, place.host, place.port)
            await self._bhumi_outlet.dial(effect.url, BhumiExit(hub, effect.name), addresses, DIAL_WITHIN_S)
            return
        addresses = await self._judged_addresses(effect, host_of(effect.url), urlsplit(effect.url).port)
        sink = _Exit(self, hub, protocol, effect)
        await self._outlet.dial(effect.url, sink, addresses=addresses, timeout_s=DIAL_WITHIN_S)

    # What sinks report

    def links_count(self) -> int:
        """Return how many links the mesh has."""
        return self._mesh_log.standing() if self._mesh_log is not None else 0

    def linked(self, key: tuple[str, str], url: str) -> None:
        """What was dialled has become a link."""
        self._told.pop(key, None)
        if self._mesh_log is not None:
            self._mesh_log.look(url)

    def unlinked(self) -> None:
        """A link that was dialled is over."""
        if self._mesh_log is not None:
            self._mesh_log.look()

    def refused(self, key: tuple[str, str], url: str, status: int) -> None:
        """The other side ended a connection that was no link.

        Args:
            key: Protocol and name.
            url: What was dialled.
            status: What it closed with, 0 for nothing.
        """
        why = _REFUSALS.get(status, "it gave no reason")
        if self._closed or status == _DOUBLE_LINK:  # two that dial each other at once keep one link
            _log.debug("peer.refused", protocol=key[0], url=url, status=status, error=why)
        else:
            self._say(key, "peer.refused", url, why, status=status)

    # What is told

    def _reached(self, key: tuple[str, str], url: str) -> None:
        """Note that a connection stands; whether it was refused before will show."""
        _log.debug("peer.connected", protocol=key[0], url=url)
        if self._told.get(key, ("", ""))[0] == "peer.unreachable":
            del self._told[key]

    def _say(self, key: tuple[str, str], event: str, url: str, trouble: str, **more: Any) -> None:
        """Log a trouble, once until it changes."""
        if self._told.pop(key, None) != (event, trouble):
            _log.warning(event, protocol=key[0], url=url, **more, error=trouble)
        if len(self._told) >= TOLD_MAX:
            del self._told[next(iter(self._told))]
        self._told[key] = (event, trouble)

    # Look-ups

    async def _judged_addresses(self, effect: Dial, host: str, port: int | None) -> list[str]:
        """Return the IP addresses of the host, after all of them were judged where that is asked for.

        Raises:
            LocalError: The text is no address.
            HostError: Nobody knows the host, or it leads to another place than the open internet.
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
        """Look up once it is this name's turn; whoever gives up frees the place only when the thread is free."""
        await self._lookups.acquire()
        asking = asyncio.ensure_future(_look_up(host, port))
        asking.add_done_callback(self._on_looked_up)
        return await asyncio.shield(asking)

    def _on_looked_up(self, asking: asyncio.Future[list[str]]) -> None:
        self._lookups.release()
        if not asking.cancelled():
            asking.exception()  # perhaps nobody waits for it any more


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
