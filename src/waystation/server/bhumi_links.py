"""Dials other Bhumi relays: ``tls://host:port`` and ``tcp://host:port``.

What relays tell each other is public and signed by its owner, so a link takes any certificate (BHUMI-LINK): the
authority of a stranger's relay would vouch for nothing that matters. An operator whose relays know each other may name
their authority; then names are checked too.

A link that was lost or refused is a debug line: the relays find each other again, and the admin port shows who is
linked.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog

from waystation.core.errors import HostError
from waystation.protocols.bhumi.places import is_open_place
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.server.hub import Hub
from waystation.transport.dial import STREAM_SCHEMES, RelayUrl, dial
from waystation.transport.pipe import Pipe, Sink
from waystation.transport.tls import client_context

__all__ = ["BhumiExit", "BhumiOutlet", "warn_of_private_advert"]

ADDRESSES_MAX: Final = 4
"""Addresses of one host that are tried: two of each family."""

_log = structlog.get_logger("waystation.server")


def warn_of_private_advert(settings: BhumiSettings) -> None:
    """Say in the log that nobody will believe the address that this relay tells of itself, if that is so."""
    if settings.gossip and settings.advertise and not (settings.dials_private or is_open_place(settings.advertise)):
        _log.warning(
            "bhumi.advertise_private",
            address=settings.advertise,
            error="[bhumi] advertise names a private place, which relays and clients leave out; in a network of one's "
            "own set [bhumi] dials_private = true on every relay, and call clients with --dials-private",
        )


class BhumiExit:
    """The sink of one dialled pipe: leads it to the hub under the address that was dialled."""

    def __init__(self, hub: Hub, name: str) -> None:
        """Lead to ``hub``; ``name`` is what the relay calls the other side."""
        self._hub = hub
        self._name = name
        self.received = hub.received
        self.received_many = hub.received_many
        self.half_closed = hub.half_closed
        self.congested = hub.congested
        self.drained = hub.drained
        self.lost = hub.lost

    def connected(self, pipe: Pipe) -> None:
        """Introduce the pipe."""
        self._hub.connected_out("bhumi", pipe, self._name)


class BhumiOutlet:
    """Dials what the ``Dialler`` finds to be another relay's address."""

    def __init__(self, peers_ca: str = "") -> None:
        """Prepare to dial.

        Args:
            peers_ca: PEM file of an authority that relays must have; empty takes any certificate.

        Raises:
            HostError: The file cannot be read.
        """
        self._context = client_context(Path(peers_ca)) if peers_ca else client_context(verify=False)

    def place_of(self, url: str) -> RelayUrl:
        """Return host and port of an address.

        Raises:
            LocalError: It is none.
        """
        return RelayUrl.parse(url, STREAM_SCHEMES)

    async def dial(self, url: str, sink: Sink, addresses: Sequence[str], timeout_s: float) -> Pipe:
        """Connect and return the pipe; the sink has been told ``connected`` by then.

        Args:
            url: ``tls://host:port`` or ``tcp://host:port``.
            sink: Gets everything that the pipe reports.
            addresses: IP addresses of the host, tried in turn; TLS still asks for its name.
            timeout_s: For connecting and TLS together; each address has its share.

        Raises:
            HostError: Nobody listens, no answer in time, or the certificate is not trusted.
        """
        target, places = self.place_of(url), addresses[:ADDRESSES_MAX]
        trouble: HostError | None = None
        for place in places:
            try:
                return await dial(target, sink, self._context, timeout_s / len(places), place=place)
            except HostError as error:
                trouble = trouble or error
        assert trouble is not None
        raise trouble
