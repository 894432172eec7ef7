"""The node's listeners for peers: the ports of each protocol, and web ports that several protocols may share.

``NodeServer`` opens and closes it; connections go to the hub. Protocols whose web ports have the same address share one
``WebSocketSite``, which selects the protocol by the request path. Plain GETs get the same pages on every web port. A
UDP port accepts no connections, so it stays open while the node drains.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from waystation.engine.admission import address_key
from waystation.engine.recorder import WEB
from waystation.server.config.protocol_table import WebPort
from waystation.server.config.settings import Address
from waystation.server.config.values import Config
from waystation.server.config.web_ports import carried_paths, shared_web_ports
from waystation.server.hosted import MakeContext, ProtocolHost, TlsRules
from waystation.server.http.public_pages import PublicPages
from waystation.server.hub import Hub
from waystation.server.proxies.rules import ProxyRules
from waystation.server.sinks import ListenerSink
from waystation.transport.addresses import reached_host
from waystation.transport.datagrams.udp import UdpCounts, UdpSocket
from waystation.transport.listen import Arrival, BehindProxies, Listener
from waystation.transport.silence import SilencePolicy
from waystation.transport.tls import TlsContext
from waystation.transport.websocket.site import Endpoint, WebSocketSite

__all__ = ["Listeners"]


class Listeners:
    """All ports but the operator's, and those that a protocol opens by itself."""

    def __init__(
        self,
        config: Config,
        contexts: MakeContext,
        hosts: Mapping[str, ProtocolHost],
        hub: Hub,
        pages: PublicPages,
        proxies: ProxyRules,
        silence: Callable[[], SilencePolicy] = SilencePolicy,
    ) -> None:
        """Prepare; ``open`` binds.

        Args:
            config: Which web ports there are.
            contexts: Makes the TLS context of a table's listeners.
            hosts: Ask for the other listeners, by protocol.
            hub: Gets the connections.
            pages: What plain GETs get.
            proxies: Who may name the client of a connection.
            silence: Returns how long the other side of a new connection may be silent.
        """
        self._config = config
        self._contexts = contexts
        self._hosts = hosts
        self._hub = hub
        self._pages = pages
        self._proxies = proxies
        self._silence = silence
        self._url_parts: dict[str, tuple[str, str]] = {}
        """Scheme and path of each listener's URL, by name."""
        self.named: dict[str, Listener | UdpSocket] = {}
        """By name; one listener may have several names."""

    def __iter__(self) -> Iterator[Listener | UdpSocket]:
        """Yield every listener once."""
        return iter(dict.fromkeys(self.named.values()))

    async def open(self) -> None:
        """Bind every listener that is on.

        Raises:
            HostError: A port is taken, or a certificate cannot be used; those that were bound before stay open.
        """
        for protocol, host in self._hosts.items():
            for port in host.pipe_ports():
                sink = ListenerSink(
                    self._hub,
                    protocol,
                    port.endpoint,
                    has_handshake=port.tls is not None,
                    is_forwarded=port.is_forwarded,
                    acks_at_once=port.acks_at_once,
                )
                context = self._contexts(protocol, port.tls) if port.tls is not None else None
                proxies = self._proxies.before(protocol, (port.setting,))
                listener = self._listener(sink, context, None, proxies)
                await listener.open(port.address.host, port.address.port)
                self._name(port.name, listener, "tcp" if context is None else "tls")
            if (address := host.datagram_address()) is not None:
                await self._open_datagrams(protocol, address)
        groups = shared_web_ports(self._config)
        for group in groups:
            await self._open_site(group)
        for web_port in (port for group in groups for port in group):
            for carried, path in carried_paths(self._config, web_port).items():
                if f"{carried}_wss" not in self.named:
                    self._name(f"{carried}_wss", self.named[web_port.table], "wss", path)

    def close(self) -> None:
        """Accept no more connections; those that exist are the hub's, and datagrams still come and go."""
        for listener in self:
            if isinstance(listener, Listener):
                listener.close()

    def urls(self) -> dict[str, str]:
        """Return where each listener that is open is reached, by name."""
        return {
            name: f"{scheme}://{Address(self.named[name].host, self.named[name].port)}{path}"
            for name, (scheme, path) in self._url_parts.items()
        }

    def ports(self) -> dict[str, int]:
        """Return the port of each listener that is open, by name."""
        return {name: listener.port for name, listener in self.named.items()}

    def page_url(self) -> str:
        """Return where a browser on this machine finds the public page, "" when there is none."""
        web_ports = [port for group in shared_web_ports(self._config) for port in group]
        port = next((port for port in web_ports if port.has_page and port.table in self.named), None)
        if port is None or not self._pages.knows("/"):
            return ""
        listener = self.named[port.table]
        host = reached_host(listener.host)
        return f"{'https' if port.tls else 'http'}://{Address(host, listener.port)}/"

    def datagrams(self) -> dict[str, UdpCounts]:
        """Return the counts of each UDP port, by name."""
        return {name: port.counts() for name, port in self.named.items() if isinstance(port, UdpSocket)}

    async def _open_datagrams(self, protocol: str, address: Address) -> None:
        port = UdpSocket(partial(self._hub.datagrams, protocol))
        await port.open(address.host, address.port)
        self._hub.carry(protocol, port.send)
        self._name(protocol, port, "udp")

    async def _open_site(self, group: list[WebPort]) -> None:
        """Open the one listener of web ports that share an address.

        A connection that is refused before its path is known counts as ``WEB`` where several protocols answer.
        """
        owner, endpoints = group[-1], {}
        for port in group:
            endpoints.update(self._endpoints(port))
        is_shared = len(group) > 1 or bool(carried_paths(self._config, owner))
        sink = ListenerSink(self._hub, WEB if is_shared else owner.table)

        def admit(host: str, path: str) -> bool:
            """Count the client of a proxy with the protocol that it asks for; others are counted before (NODE-WEB)."""
            asked = endpoints[path].sink if path in endpoints else sink
            return (asked if isinstance(asked, ListenerSink) else sink).admit(host)

        report = self._proxies.reporter(owner.table)
        site = WebSocketSite(endpoints, self._pages.answer, lambda: self._proxies.trusted, admit, report, self._silence)
        context = self._contexts(owner.table, TlsRules()) if owner.tls else None
        names = [f"{port.table}.ws" for port in group]
        proxies = self._proxies.before(owner.table, names, site.arrive_unnamed)
        listener = self._listener(sink, context, site.arrive, proxies)
        await listener.open(owner.address.host, owner.address.port)
        for port in reversed(group):
            self._name(port.table, listener, "wss" if port.tls else "ws", port.url_path)

    def _listener(
        self,
        sink: ListenerSink,
        context: TlsContext | None,
        arrive: Callable[[str], Arrival] | None,
        proxies: BehindProxies,
    ) -> Listener:
        listener = Listener(sink, sink.admit, sink.release, context, arrive, proxies, address_key, self._silence)
        self._hub.close_unfinished(listener.close_oldest)
        return listener

    def _endpoints(self, port: WebPort) -> dict[str, Endpoint]:
        """Return what answers at each path of one web port."""
        endpoints = self._hosts[port.table].endpoints(partial(ListenerSink, self._hub, port.table), self._pages.knows)
        for carried, path in carried_paths(self._config, port).items():
            sink = partial(ListenerSink, self._hub, carried)
            endpoints[path] = self._hosts[carried].carried_endpoint(port.table, sink)
        return endpoints

    def _name(self, name: str, listener: Listener | UdpSocket, scheme: str, path: str = "") -> None:
        self.named[name] = listener
        self._url_parts[name] = (scheme, path)
