"""Announces a relay on the local network and finds others, by multicast DNS (RFC 6762, RFC 6763).

``server.bhumi.discovery`` announces the node's Bhumi relay, ``sdk.bhumi.lan`` finds relays for clients. A relay is a
service ``<id52>._bhumi._tcp.local`` with TXT ``id=<id52>`` and ``v=1`` (specs/bhumi.md 5). A relay without TLS adds
``s=tcp`` (BHUMI-MDNS). It is known for the TTL of its SRV record, which is queried again in the last fifth of that
time. A relay that crashed without a goodbye is removed when the TTL ends.

Answers are not authenticated. The number of services is bounded, and queries are batched. An address is accepted only
in the network of an interface in use, so no host can direct us to the internet. Loopback addresses are accepted only
if loopback is the only interface. Only IPv4 is used.
"""

import asyncio
import contextlib
import ipaddress
import random
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import ifaddr
import zeroconf
from zeroconf import DNSOutgoing, DNSQuestion, DNSService  # type: ignore[attr-defined]  # public, but not in its list
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from waystation.core.errors import HostError, LocalError
from waystation.core.ids import PublicKey, decode_id52, encode_id52

__all__ = ["SERVICE", "SERVICES_MAX", "TTL_S", "LanRelay", "Mdns", "lan_interfaces", "own_host"]

SERVICE: Final = "_bhumi._tcp.local."
SERVICES_MAX: Final = 256
"""Services remembered at once; further ones are ignored and counted."""
TTL_S: Final = 120
"""Of what names a host. RFC 6762 10."""
_VERSION: Final = b"1"
_PLAIN: Final = b"tcp"
_INTERFACES_MAX: Final = 16
_ASK_AT: Final = (0.80, 0.85, 0.90, 0.95)  # of the TTL, RFC 6762 5.2
_ASK_JITTER: Final = 0.02  # as above
_FIRST_ASKS_MS: Final = (0.0, 1_000.0, 3_000.0)  # RFC 6762 5.2: after a second, then after twice as long
_TEND_GAP_MS: Final = 100.0  # ours: a flood is looked at, and what is due is asked, at most ten times a second
_FORGET_MS: Final = 6_000.0  # ours: a name without an answer makes room
_START_S: Final = 10.0
_TYPE_A: Final = 1  # RFC 1035 3.2.2
_TYPE_PTR: Final = 12
_TYPE_TXT: Final = 16
_TYPE_SRV: Final = 33  # RFC 2782
_CLASS_IN: Final = 1
_LABEL_BYTES_MAX: Final = 63  # RFC 1035 2.3.4, as the next
_NAME_BYTES_MAX: Final = 255
_QUERY: Final = 0
_GROUP: Final = socket.inet_aton("224.0.0.251")  # RFC 6762 3


@dataclass(frozen=True, slots=True)
class LanRelay:
    """What the local network says of one relay; nothing of it is proved."""

    relay_id: PublicKey
    address: str
    """``tls://host:port`` or ``tcp://host:port``; the host is an IPv4 address of one of our networks."""
    ttl_s: float
    """Seconds from now."""


def lan_interfaces(host: str = "0.0.0.0") -> list[ipaddress.IPv4Interface]:  # noqa: S104 - asked about, not bound
    """Return our own addresses, with their networks, on which others can reach what listens on ``host``.

    Args:
        host: An IP address; a wildcard stands for every interface but loopback, or loopback where there is no other.

    Returns:
        Empty when there is none: an IPv6 address, or one that is not ours.

    Raises:
        HostError: The system does not report its addresses.
    """
    asked = ipaddress.ip_address(host)
    if asked == ipaddress.IPv6Address("::"):
        asked = ipaddress.IPv4Address("0.0.0.0")  # noqa: S104 - both families
    ours = _own_addresses()
    if asked.is_unspecified:
        return ([each for each in ours if not each.is_loopback] or ours)[:_INTERFACES_MAX]
    return [ipaddress.IPv4Interface(f"{host}/{each.network.prefixlen}") for each in ours if asked in each.network][:1]


def _own_addresses() -> list[ipaddress.IPv4Interface]:
    try:
        adapters = list(ifaddr.get_adapters())
    except OSError as error:
        raise HostError(f"this machine does not report its own addresses: {error}") from error
    return [
        ipaddress.IPv4Interface(f"{own.ip}/{own.network_prefix}")
        for adapter in adapters
        for own in adapter.ips
        if own.is_IPv4
    ]


class _Service:
    """One name on the network, and what is known about it. Times are milliseconds of zeroconf's clock."""

    def __init__(self, info: AsyncServiceInfo, now_ms: float) -> None:
        self.info = info
        self.reported: tuple[PublicKey, str] | None = None
        """What was reported."""
        self.ends_ms = now_ms + _FORGET_MS
        self.asks_ms = [now_ms + wait_ms for wait_ms in _FIRST_ASKS_MS]
        self.born_ms = -1.0
        """Of the SRV record that the times rest on."""


class _Ears(zeroconf.RecordUpdateListener, zeroconf.ServiceListener):
    """Reports the services on the network: pointers by zeroconf's browser, SRV records by themselves.

    The browser is silent when a relay comes back whose pointer is still remembered.
    """

    def __init__(self, service: str, on_spoken: Callable[[str], None], on_parted: Callable[[str], None]) -> None:
        self._ending = f".{service}".lower()
        self._on_spoken = on_spoken
        self._on_parted = on_parted
        self._names: dict[str, None] = {}
        self._unusable: list[tuple[Any, Any]] = []
        """Pointers that the browser could not write among its known answers, and the cache that gets them."""

    def async_update_records(self, zc: Any, now: float, records: Iterable[Any]) -> None:  # noqa: ARG002
        """Note the names in one datagram."""
        for update in records:
            record = update.new
            if record.type == _TYPE_PTR and not _can_be_asked(record.alias):
                self._unusable.append((zc.cache, record))
            if record.type == _TYPE_SRV and record.name.lower().endswith(self._ending):
                self._names[record.name] = None

    def async_update_records_complete(self) -> None:
        """Pass them on, now that zeroconf's cache has the records."""
        unusable, self._unusable = self._unusable, []
        for cache, record in unusable:
            if cache.get(record) is not None:  # a goodbye is in no cache
                cache.async_remove_records([record])
        names, self._names = self._names, {}
        for name in names or ("",):
            self._on_spoken(name)

    def add_service(self, zc: Any, type_: str, name: str) -> None:  # noqa: ARG002
        """Pass a name on."""
        self._on_spoken(name)

    def update_service(self, zc: Any, type_: str, name: str) -> None:  # noqa: ARG002
        """Pass a name on."""
        self._on_spoken(name)

    def remove_service(self, zc: Any, type_: str, name: str) -> None:  # noqa: ARG002
        """Pass a goodbye on."""
        self._on_parted(name)


class Mdns:
    """Announces and looks on the given interfaces, from ``open`` to ``close``."""

    def __init__(
        self,
        on_found: Callable[[LanRelay], None],
        on_gone: Callable[[LanRelay], None],
        interfaces: Sequence[ipaddress.IPv4Interface],
        *,
        service: str = SERVICE,
    ) -> None:
        """Describe a port; ``open`` opens it.

        Args:
            on_found: Gets each relay when it is found, when it moved, and when its TTL was prolonged.
            on_gone: Gets a relay, with a TTL of 0, when its TTL ended, or when it said goodbye or moved.
            interfaces: From ``lan_interfaces``.
            service: Another one keeps apart what shares a network.
        """
        self._on_found = on_found
        self._on_gone = on_gone
        self._interfaces = interfaces
        self._type = service
        self._services: dict[str, _Service] = {}
        self._own: PublicKey | None = None
        self._zeroconf: AsyncZeroconf | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_changed = False
        self._tended_ms = 0.0
        self._rng = random.SystemRandom()
        self.ignored = 0
        """Times that a service was ignored because ``SERVICES_MAX`` others were remembered."""

    def __len__(self) -> int:
        return len(self._services)

    async def open(self) -> None:
        """Begin to look.

        Raises:
            HostError: This machine has no interface for it, or does not allow multicast.
        """
        if not self._interfaces:
            raise HostError("mDNS is not possible here: no IPv4 network leads to where the relay listens")
        try:
            usable = [str(each.ip) for each in self._interfaces if _takes_multicast(str(each.ip))]
            if not usable:
                raise HostError("mDNS is not possible here: no interface of this machine takes multicast")
            self._zeroconf = AsyncZeroconf(interfaces=usable, ip_version=zeroconf.IPVersion.V4Only)
            await self._zeroconf.zeroconf.async_wait_for_start(_START_S)
        except (OSError, RuntimeError, zeroconf.Error) as error:
            await self.close()
            raise HostError(f"mDNS is not possible here: {str(error) or type(error).__name__}") from error
        core = self._zeroconf.zeroconf
        ears = _Ears(self._type, self._on_spoken, self._forget)
        core.async_add_listener(ears, None)
        AsyncServiceBrowser(core, self._type, listener=ears)

    async def announce(self, relay_id: PublicKey, scheme: str, host: str, port: int, *, ttl_s: int = TTL_S) -> None:
        """Announce our relay until ``close``, which sends the goodbye; it is not reported to ``on_found``.

        Args:
            relay_id: 32-byte key of the relay.
            scheme: ``tls`` or ``tcp``.
            host: IP address that it listens on; a wildcard stands for all of the interfaces.
            port: 1 to 65535.
            ttl_s: How long others believe it without asking again, 1 to 4500 s.

        Raises:
            HostError: Another machine announces this key, or the port does not work.
        """
        assert self._zeroconf is not None
        self._own = relay_id
        id52 = encode_id52(relay_id)
        properties: dict[str | bytes, str | bytes | None] = {"id": id52, "v": _VERSION}
        if scheme == "tcp":
            properties["s"] = _PLAIN
        is_wildcard = ipaddress.ip_address(host).is_unspecified
        info = AsyncServiceInfo(
            self._type,
            f"{id52}.{self._type}",
            port=port,
            properties=properties,
            server=f"bhumi-{id52[:16]}.local.",
            parsed_addresses=[str(each.ip) for each in self._interfaces] if is_wildcard else [host],
            host_ttl=ttl_s,
        )
        try:
            await (await self._zeroconf.async_register_service(info))
        except zeroconf.NonUniqueNameException as error:
            raise HostError(f"another machine on this network announces {id52}, the key of this node") from error
        except (OSError, zeroconf.Error) as error:
            raise HostError(f"mDNS cannot announce this node: {str(error) or type(error).__name__}") from error

    async def close(self) -> None:
        """Say goodbye, and neither look nor answer any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._zeroconf is not None:
            open_one, self._zeroconf = self._zeroconf, None
            with contextlib.suppress(zeroconf.NotRunningException):  # it never came up
                await open_one.async_close()
        self._services.clear()

    # What the network says

    def _on_spoken(self, name: str) -> None:
        """Look at everything again soon; a datagram without a name of ours may bring an address that was missing."""
        if self._zeroconf is None:
            return
        if name and name.lower() not in self._services:
            self._add(name)
        if self._services:
            self._is_changed = True
            self._plan()

    def _add(self, name: str) -> None:
        if len(self._services) >= SERVICES_MAX:
            self.ignored += 1
            return
        try:
            info = AsyncServiceInfo(self._type, name)
        except zeroconf.Error:  # a pointer may name anything
            self.ignored += 1
            return
        if not _can_be_asked(name):
            self.ignored += 1
            return
        self._services[name.lower()] = _Service(info, zeroconf.current_time_millis())

    def _look(self, key: str, service: _Service, now_ms: float) -> None:
        """Take from zeroconf's cache what it has about a service."""
        assert self._zeroconf is not None
        core = self._zeroconf.zeroconf
        info = AsyncServiceInfo(self._type, service.info.name)
        record = core.cache.get_by_details(info.name, _TYPE_SRV, _CLASS_IN)
        if record is None or record.is_expired(now_ms):
            if service.reported is not None:
                self._forget(key)
            return
        if not info.load_from_cache(core, now_ms):
            return
        is_renewed = record.created != service.born_ms
        if is_renewed:
            span_ms = record.ttl * 1_000.0
            jitter = self._rng.uniform(0, _ASK_JITTER)
            service.born_ms, service.ends_ms = record.created, record.created + span_ms
            service.asks_ms = [record.created + span_ms * (part + jitter) for part in _ASK_AT]
        found = self._read(info)
        if found == service.reported and not is_renewed:
            return
        self._report_gone(service, unless=found)
        service.reported = found
        if found is not None:
            self._on_found(LanRelay(*found, (service.ends_ms - now_ms) / 1_000))

    def _read(self, info: AsyncServiceInfo) -> tuple[PublicKey, str] | None:
        """Return key and address of a service, None when it is no relay that we could use, or our own."""
        texts = info.properties
        try:
            relay_id = decode_id52((texts.get(b"id") or b"").decode("ascii"))
        except (UnicodeDecodeError, LocalError):
            return None
        if texts.get(b"v") != _VERSION or not info.port or relay_id == self._own:
            return None
        scheme = "tcp" if texts.get(b"s") == _PLAIN else "tls"
        for text in info.parsed_addresses(zeroconf.IPVersion.V4Only):
            if any(_is_host_in(each.network, ipaddress.IPv4Address(text)) for each in self._interfaces):
                return relay_id, f"{scheme}://{text}:{info.port}"
        return None

    def _forget(self, name: str) -> None:
        service = self._services.pop(name.lower(), None)
        if service is not None:
            self._report_gone(service)

    def _report_gone(self, service: _Service, unless: tuple[PublicKey, str] | None = None) -> None:
        reported, service.reported = service.reported, None
        if reported is not None and reported != unless:
            self._on_gone(LanRelay(*reported, 0.0))

    # What becomes due

    def _plan(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._zeroconf is None or not self._services:
            return
        dues_ms = [min([service.ends_ms, *service.asks_ms]) for service in self._services.values()]
        due_ms = 0.0 if self._is_changed else min(dues_ms)
        wait_ms = max(due_ms, self._tended_ms + _TEND_GAP_MS) - zeroconf.current_time_millis()
        self._timer = asyncio.get_running_loop().call_later(max(wait_ms, 0.0) / 1_000, self._tend)

    def _tend(self) -> None:
        """Take in what changed, forget what has ended, and ask about what is going to end."""
        self._tended_ms = now_ms = zeroconf.current_time_millis()
        if self._is_changed:
            self._is_changed = False
            for key, service in list(self._services.items()):
                self._look(key, service, now_ms)
        for key in [key for key, service in self._services.items() if service.ends_ms <= now_ms]:
            self._forget(key)
        asking = [service for service in self._services.values() if service.asks_ms and service.asks_ms[0] <= now_ms]
        for service in asking:
            service.asks_ms = [ask_ms for ask_ms in service.asks_ms if ask_ms > now_ms]
        if asking:
            self._ask(asking)
        self._plan()

    def _ask(self, services: Iterable[_Service]) -> None:
        assert self._zeroconf is not None
        core = self._zeroconf.zeroconf
        query = DNSOutgoing(_QUERY)
        for service in services:
            name = service.info.name
            query.add_question(DNSQuestion(name, _TYPE_SRV, _CLASS_IN))
            query.add_question(DNSQuestion(name, _TYPE_TXT, _CLASS_IN))
            known = core.cache.get_by_details(name, _TYPE_SRV, _CLASS_IN)
            if isinstance(known, DNSService) and _can_be_asked(known.server):
                query.add_question(DNSQuestion(known.server, _TYPE_A, _CLASS_IN))
        core.async_send(query)


def _takes_multicast(host: str) -> bool:
    """Return whether one of our addresses can speak to the group; zeroconf would leave sockets open in finding out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as carrier:
        own = socket.inet_aton(host)
        try:
            carrier.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, _GROUP + own)
            carrier.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
        except OSError:
            return False
    return True


def own_host(interfaces: Iterable[ipaddress.IPv4Interface], asker: str) -> str:
    """Return our own address in the network of ``asker``, empty when it is in none of these."""
    return next((str(each.ip) for each in interfaces if ipaddress.IPv4Address(asker) in each.network), "")


def _can_be_asked(name: str) -> bool:
    """Return whether a name fits a question.

    One that came need not: zeroconf reads each byte that is no UTF-8 as a sign of three, and refuses to write that.
    """
    labels = name.removesuffix(".").encode(errors="replace").split(b".")
    return sum(len(label) + 1 for label in labels) < _NAME_BYTES_MAX and max(map(len, labels)) <= _LABEL_BYTES_MAX


def _is_host_in(network: ipaddress.IPv4Network, address: ipaddress.IPv4Address) -> bool:
    edges = () if network.prefixlen >= 31 else (network.network_address, network.broadcast_address)
    return address in network and address not in edges and not address.is_multicast and not address.is_unspecified
