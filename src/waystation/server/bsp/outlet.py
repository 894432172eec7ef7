"""Dials BSP peers at ``bsp+tls://host:port`` and ``bsp+wss://host:port/path`` addresses.

The dialler passes it each ``Dial`` effect of the BSP peer; the connection goes to the hub. The connection uses TLS 1.3
and accepts any certificate. The peer authenticates inside it, by signing the hash of that certificate with its key
(specs/bsp.md 5). Addresses are configured by the operator only.
"""

from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from waystation.core.effects import Dial
from waystation.core.errors import LocalError
from waystation.server.dialling.dialler import DIAL_WITHIN_S, Dialler
from waystation.server.hub import Hub
from waystation.server.sinks import DialledSink
from waystation.transport.dial import RelayUrl, dial
from waystation.transport.pipe import Pipe, Sink
from waystation.transport.silence import SilencePolicy
from waystation.transport.tls import client_context
from waystation.transport.websocket.dial import WebSocketDialler

__all__ = ["BSP_ALPN", "BspOutlet"]

BSP_ALPN: Final = "bsp/1"  # specs/bsp.md 5
DEFAULT_PORT: Final = 7_443  # the default of [bsp] tls
_PREFIX: Final = "bsp+"
_MESSAGE_BYTES_MAX: Final = 2_097_152  # borders of frames mean nothing; ours have 512 KiB at most


class BspOutlet:
    """Dials BSP peers."""

    def __init__(self, silence: Callable[[], SilencePolicy] = SilencePolicy) -> None:
        """Prepare to dial peers that may be silent for as long as ``silence`` returns."""
        self._silence = silence
        self._tls = client_context(verify=False, only_tls13=True, protocols=(BSP_ALPN,))
        self._wss: WebSocketDialler | None = None

    async def connect(self, dialler: Dialler, hub: Hub, protocol: str, effect: Dial) -> None:  # noqa: ARG002
        """Connect, as ``Outlet.connect`` of the dialler; the relay gets the hash of the certificate that was shown."""
        assert not effect.only_public  # no peer can name these
        sink = DialledSink(hub, protocol, effect.name, has_certificate=True)
        await self.dial(effect.url, sink, DIAL_WITHIN_S)

    async def dial(self, url: str, sink: Sink, timeout_s: float) -> Pipe:
        """Connect and return the pipe, which has reported ``connected`` to its sink by then.

        Args:
            url: bsp+tls without a port means 7443, bsp+wss 443.
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
        return await dial(target, sink, self._tls, timeout_s, silence=self._silence())

    def _over_websocket(self) -> WebSocketDialler:
        """Return what dials WebSockets, with a timer of its own from the first on."""
        if self._wss is None:
            context = client_context(verify=False, only_tls13=True)
            self._wss = WebSocketDialler(message_bytes_max=_MESSAGE_BYTES_MAX, context=context, silence=self._silence)
        return self._wss
