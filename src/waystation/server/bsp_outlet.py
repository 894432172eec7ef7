"""Dials BSP peers: ``bsp+tls://host:port`` and ``bsp+wss://host:port/path``.

TLS 1.3 with any certificate: who is there proves its key inside, over the hash of the certificate that we have seen
(specs/bsp.md 5), so that neither a name nor an authority has to vouch for it.
"""

from typing import Final
from urllib.parse import urlsplit

from waystation.core.errors import LocalError
from waystation.transport.dial import RelayUrl, dial
from waystation.transport.pipe import Pipe, Sink
from waystation.transport.tls import client_context
from waystation.transport.websocket_out import Outlet

__all__ = ["BSP_ALPN", "BspOutlet"]

BSP_ALPN: Final = "bsp/1"  # specs/bsp.md 5
DEFAULT_PORT: Final = 7_443  # design.md, Outside face: the bsp listener
_PREFIX: Final = "bsp+"
_MESSAGE_BYTES_MAX: Final = 2_097_152  # borders of frames mean nothing; ours have 512 KiB at most


class BspOutlet:
    """Dials what the ``Dialler`` finds to be a BSP peer's address."""

    def __init__(self) -> None:
        """Prepare to dial."""
        self._tls = client_context(verify=False, only_tls13=True, protocols=(BSP_ALPN,))
        self._wss: Outlet | None = None

    def knows(self, url: str) -> bool:
        """Return whether an address is one of ours, by its scheme."""
        return url.startswith(_PREFIX)

    async def dial(self, url: str, sink: Sink, timeout_s: float) -> Pipe:
        """Connect and return the pipe; the sink has been told ``connected`` by then.

        Args:
            url: One that ``knows`` says yes to; bsp+tls without a port means 7443, bsp+wss 443.
            sink: Gets everything that the pipe reports.
            timeout_s: For look-up, connecting, TLS and the handshake of the WebSocket together.

        Raises:
            LocalError: The text is no such address.
            HostError: Nobody listens, no answer in time, or no TLS 1.3.
        """
        bare = url.removeprefix(_PREFIX)
        if bare.startswith("wss:"):
            return await self._over_websocket().dial(bare, sink, timeout_s=timeout_s)
        try:
            has_port = urlsplit(bare).port is not None
            target = RelayUrl.parse(bare, ("tls",))
        except (ValueError, LocalError) as error:
            expected = "bsp+tls://host:port or bsp+wss://host:port/path"
            raise LocalError(f"not a BSP peer's address: {url!r}; expected {expected}") from error
        target = target if has_port else RelayUrl(target.scheme, target.host, DEFAULT_PORT)
        return await dial(target, sink, self._tls, timeout_s)

    def _over_websocket(self) -> Outlet:
        """Return what dials WebSockets, with a timer of its own from the first on."""
        if self._wss is None:
            context = client_context(verify=False, only_tls13=True)
            self._wss = Outlet(message_bytes_max=_MESSAGE_BYTES_MAX, context=context)
        return self._wss
