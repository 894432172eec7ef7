"""Announces the node's Bhumi relay on the local network and finds other relays there (specs/bhumi.md 5).

``BhumiHost`` starts it. Found addresses go to the relay through the hub. mDNS does both. UDP broadcast answers requests
and sends some from time to time. If the machine allows neither, the relay still runs and logs the reason. Addresses
found here are trusted no more than others.
"""

import asyncio
import ipaddress
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

import structlog

from waystation.core.errors import HostError
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.lan_datagrams import NONCE_BYTES, PORT, LanResponder
from waystation.server.bhumi.tables import BhumiListenSettings
from waystation.server.hub import monotonic_now
from waystation.server.logs import short_peer
from waystation.transport.datagrams.broadcast import BroadcastPort
from waystation.transport.datagrams.mdns import SERVICE, TTL_S, LanRelay, Mdns, lan_interfaces, own_host

__all__ = ["BhumiDiscovery", "TakesAdverts"]

_LISTENERS: Final = ("bhumi", "bhumi_plain")  # the first of them that is open is announced
_ASK_EVERY_S: Final = 300.0  # ours: a relay that came meanwhile has asked, and so made itself known, long before

_log = structlog.get_logger("waystation.server")


class TakesAdverts(Protocol):
    """Takes the addresses of relays on the local network: ``BhumiRelay``."""

    def discovered(self, address: str, now: Instant, relay_id: PublicKey | None = None) -> None:
        """Take note of a relay."""


class BhumiDiscovery:
    """Announces one listener and looks for others, from ``start`` to ``close``."""

    def __init__(
        self,
        relay: TakesAdverts,
        key_pair: KeyPair,
        listen: BhumiListenSettings,
        on_found: Callable[[], None],
        *,
        ttl_s: int = TTL_S,
        service: str = SERVICE,
        broadcast_port: int = PORT,
    ) -> None:
        """Prepare; ``start`` begins.

        Args:
            relay: Takes the addresses of other relays.
            key_pair: Of the node.
            listen: Which of the two ways are on.
            on_found: Called after the relay was given an address.
            ttl_s: How long others believe the announcement.
            service: Of mDNS.
            broadcast_port: UDP port that all relays share.
        """
        self._relay = relay
        self._key_pair = key_pair
        self._after_find = on_found
        self._listen = listen
        self._ttl_s = ttl_s
        self._service = service
        self._broadcast_port = broadcast_port
        self._interfaces: list[ipaddress.IPv4Interface] = []
        self._mdns: Mdns | None = None
        self._broadcast: BroadcastPort | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, urls: Mapping[str, str]) -> None:
        """Begin, without waiting for anything: an announcement takes two seconds.

        Args:
            urls: Of the node's listeners, by name; nothing happens when none of them is the Bhumi relay's.
        """
        url = next((urls[name] for name in _LISTENERS if name in urls), None)
        if url is not None and (self._listen.mdns or self._listen.broadcast):
            self._task = asyncio.get_running_loop().create_task(self._run(url))

    async def close(self) -> None:
        """Withdraw the announcement and close the sockets."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._broadcast is not None:
            self._broadcast.close()
        if self._mdns is not None:
            await self._mdns.close()
        if self._task is not None and not self._task.cancelled():
            self._task.result()

    async def _run(self, url: str) -> None:
        scheme, _, place = url.partition("://")
        host, _, port = place.rpartition(":")
        bare_host = host.strip("[]")
        responder = LanResponder(self._key_pair, scheme, int(port), secrets.token_bytes(NONCE_BYTES))
        if self._listen.mdns:
            await self._attempt("mdns", bare_host, lambda: self._announce(scheme, bare_host, int(port)))
        if self._listen.broadcast:
            await self._attempt("broadcast", bare_host, lambda: self._keep_asking(responder))

    async def _attempt(self, way: str, host: str, begin: Callable[[], Awaitable[None]]) -> None:
        try:
            self._interfaces = lan_interfaces(host)
            await begin()
        except HostError as error:
            _log.warning("bhumi.not_announced", by=way, error=str(error))

    async def _announce(self, scheme: str, host: str, port: int) -> None:
        self._mdns = Mdns(self._on_found, self._on_gone, self._interfaces, service=self._service)
        await self._mdns.open()
        await self._mdns.announce(self._key_pair.public, scheme, host, port, ttl_s=self._ttl_s)
        _log.info("bhumi.announced", by="mdns", addresses=self._addresses())

    async def _keep_asking(self, responder: LanResponder) -> None:
        def receive(datagram: bytes, host: str) -> bytes | None:
            found = responder.receive(datagram, host, own_host(self._interfaces, host), int(time.time()))
            if found is None or isinstance(found, bytes):
                return found
            self._discovered(found.address, found.relay_id)
            return None

        self._broadcast = BroadcastPort(receive, self._interfaces)
        await self._broadcast.open(self._broadcast_port)
        _log.info("bhumi.announced", by="broadcast", addresses=self._addresses())
        while True:
            self._broadcast.ask(responder.query(), self._broadcast_port)
            await asyncio.sleep(_ASK_EVERY_S)

    def _addresses(self) -> list[str]:
        return [str(each.ip) for each in self._interfaces]

    # What the network reports

    def _on_found(self, found: LanRelay) -> None:
        self._discovered(found.address, found.relay_id)

    def _on_gone(self, gone: LanRelay) -> None:
        _log.debug("bhumi.lan_relay_gone", relay=short_peer(gone.relay_id), address=gone.address)

    def _discovered(self, address: str, relay_id: PublicKey) -> None:
        _log.debug("bhumi.lan_relay", relay=short_peer(relay_id), address=address)
        self._relay.discovered(address, monotonic_now(), relay_id)
        self._after_find()
