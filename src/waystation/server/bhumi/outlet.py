"""Dials other Bhumi relays at ``tls://host:port`` and ``tcp://host:port`` addresses.

The dialler passes it each ``Dial`` effect of the Bhumi relay; the connection goes to the hub. Relays exchange only
public, signed data, so a link accepts any certificate (BHUMI-LINK). An operator may configure a certificate authority
for relays under common control; then certificates and names are checked.

A lost or rejected link is logged at debug level, because relays redial each other. The admin port lists the links.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from waystation.core.effects import Dial
from waystation.core.errors import HostError
from waystation.server.dialling.dialler import DIAL_WITHIN_S, Dialler
from waystation.server.hub import Hub
from waystation.server.sinks import DialledSink
from waystation.transport.dial import STREAM_SCHEMES, RelayUrl, dial
from waystation.transport.pipe import Pipe, Sink
from waystation.transport.silence import SilencePolicy
from waystation.transport.tls import client_context

__all__ = ["BhumiOutlet"]

ADDRESSES_MAX: Final = 4
"""Addresses of one host that are tried: two of each family."""


class BhumiOutlet:
    """Dials other relays."""

    def __init__(self, peers_ca: str = "", silence: Callable[[], SilencePolicy] = SilencePolicy) -> None:
        """Prepare to dial.

        Args:
            peers_ca: PEM file of an authority that relays must have; empty takes any certificate.
            silence: Returns how long a relay may be silent.

        Raises:
            HostError: The file cannot be read.
        """
        self._context = client_context(Path(peers_ca)) if peers_ca else client_context(verify=False)
        self._silence = silence

    async def connect(self, dialler: Dialler, hub: Hub, protocol: str, effect: Dial) -> None:
        """Connect, as ``Outlet.connect`` of the dialler."""
        target = self.parse(effect.url)
        addresses = await dialler.addresses(effect, target.host, target.port)
        await self.dial(effect.url, DialledSink(hub, protocol, effect.name), addresses, DIAL_WITHIN_S)

    def parse(self, url: str) -> RelayUrl:
        """Return host and port of an address.

        Raises:
            LocalError: It is none.
        """
        return RelayUrl.parse(url, STREAM_SCHEMES)

    async def dial(self, url: str, sink: Sink, addresses: Sequence[str], timeout_s: float) -> Pipe:
        """Connect and return the pipe, which has reported ``connected`` to its sink by then.

        Args:
            url: ``tls://host:port`` or ``tcp://host:port``.
            sink: Gets everything that the pipe reports.
            addresses: IP addresses of the host, tried in turn; TLS still asks for its name.
            timeout_s: For connecting and TLS together; each address has its share.

        Raises:
            HostError: Nobody listens, no answer in time, or the certificate is not trusted.
        """
        target, places = self.parse(url), addresses[:ADDRESSES_MAX]
        failure: HostError | None = None
        for place in places:
            try:
                return await dial(
                    target, sink, self._context, timeout_s / len(places), place=place, silence=self._silence()
                )
            except HostError as error:
                failure = failure or error
        assert failure is not None
        raise failure
