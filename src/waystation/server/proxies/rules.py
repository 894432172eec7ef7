"""The node's trusted proxies as the configuration in force names them, for each listener.

Listeners and HTTP ports ask when a connection arrives. ``[node] trusted_proxies`` names their networks,
``proxy_header`` the header of requests in which they name clients, and ``proxy_protocol`` the listeners where their
connections begin with a PROXY header instead. Nothing is guessed from the bytes: a client behind a proxy that only
passes TCP on could send a header itself (NODE-PROXY).
"""

from collections.abc import Callable, Collection
from functools import partial

from waystation.core.network_set import parse_network
from waystation.server.config.settings import NodeSettings
from waystation.server.proxies.faults import ProxyFaults
from waystation.transport.listen import BehindProxies, Unnamed
from waystation.transport.proxies import Proxies, ProxyFault

__all__ = ["ProxyRules"]


class ProxyRules:
    """Which proxies are trusted now, and on which listeners their connections begin with a header."""

    def __init__(self, settings: NodeSettings, faults: ProxyFaults | None = None) -> None:
        """Begin with checked settings; ``faults`` gets what proxies do wrong."""
        self._faults = faults
        self.use(settings)

    def use(self, settings: NodeSettings) -> None:
        """Take over checked settings, for connections from now on."""
        self.trusted = Proxies([parse_network(text) for text in settings.trusted_proxies], settings.proxy_header)
        self._with_header = frozenset(settings.proxy_protocol)

    def before(
        self, protocol: str, names: Collection[str], arrive: Callable[[str], Unnamed | None] | None = None
    ) -> BehindProxies:
        """Return what a listener needs.

        Args:
            protocol: Whose listener it is; "admin" for the admin port.
            names: Of the settings that name its address, such as "bhumi.tls".
            arrive: As in ``BehindProxies``; None for a listener that reads no requests.
        """
        return BehindProxies(
            trusted=lambda: self.trusted,
            has_header=lambda: not self._with_header.isdisjoint(names),
            arrive=arrive,
            report=self.reporter(protocol),
        )

    def reporter(self, protocol: str) -> Callable[[str, ProxyFault], None]:
        """Return what a listener of a protocol calls for each fault of a connection."""
        return partial(self._report, protocol)

    def _report(self, protocol: str, host: str, fault: ProxyFault) -> None:
        if self._faults is not None:
            self._faults.note(protocol, host, fault, is_trusted=self.trusted.trusts(host))
