"""The node's trusted proxies as the configuration in force names them, for each listener.

``[node] trusted_proxies`` names their networks, ``proxy_header`` the header of requests in which they name clients, and
``proxy_protocol`` the listeners where their connections begin with a PROXY header instead. Nothing is guessed from the
bytes: a client behind a proxy that only passes TCP on could send a header itself (NODE-PROXY).
"""

from collections.abc import Callable, Collection

from waystation.core.network_set import parse_network
from waystation.server.config.settings import NodeSettings
from waystation.transport.listen import BehindProxies, Unnamed
from waystation.transport.proxies import Proxies

__all__ = ["ProxyRules"]


class ProxyRules:
    """Which proxies are trusted now, and on which listeners their connections begin with a header."""

    def __init__(self, settings: NodeSettings) -> None:
        """Begin with checked settings."""
        self.use(settings)

    def use(self, settings: NodeSettings) -> None:
        """Take over checked settings, for connections from now on."""
        self.trusted = Proxies([parse_network(text) for text in settings.trusted_proxies], settings.proxy_header)
        self._with_header = frozenset(settings.proxy_protocol)

    def before(
        self,
        names: Collection[str],
        refuse: Callable[[str], None],
        arrive: Callable[[str], Unnamed | None] | None = None,
    ) -> BehindProxies:
        """Return what a listener needs.

        Args:
            names: Of the settings that name its address, such as "bhumi.tls".
            refuse: As in ``BehindProxies``.
            arrive: As there; None for a listener that reads no requests.
        """
        return BehindProxies(
            trusted=lambda: self.trusted,
            has_header=lambda: not self._with_header.isdisjoint(names),
            arrive=arrive,
            refuse=refuse,
        )
