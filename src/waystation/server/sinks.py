"""Adapters between a pipe and the hub: each registers its pipe with a protocol, and passes its reports on.

Listeners make a ``ListenerSink`` for each protocol, outlets a ``DialledSink`` for each dialled connection. A pipe knows
only bytes and its sink, so it needs no protocol.
"""

from collections.abc import Callable

from waystation.server.hub import Hub
from waystation.transport.pipe import Pipe

__all__ = ["DialledSink", "ListenerSink"]


class _Sink:
    """Passes what a pipe reports to the hub."""

    def __init__(self, hub: Hub, protocol: str) -> None:
        self._hub = hub
        self._protocol = protocol
        self.received = hub.received
        self.received_many = hub.received_many
        self.half_closed = hub.half_closed
        self.congested = hub.congested
        self.drained = hub.drained
        self.lost: Callable[[Pipe, Exception | None], None] = hub.lost


class ListenerSink(_Sink):
    """The sink of one listener: its pipes speak one protocol and reach one endpoint of the relay."""

    def __init__(
        self,
        hub: Hub,
        protocol: str,
        endpoint: str = "",
        *,
        has_handshake: bool = True,
        is_forwarded: bool = False,
        acks_at_once: bool = False,
    ) -> None:
        """Lead pipes to an endpoint of the relay of ``protocol``, "" for the usual one.

        Args:
            hub: Gets the pipes.
            protocol: Of the relay.
            endpoint: As in ``Node.connect``.
            has_handshake: Whether a connection is established only after a handshake of TLS or HTTP.
            is_forwarded: As in ``PipePort``.
            acks_at_once: As in ``PipePort``.
        """
        super().__init__(hub, protocol)
        self._endpoint = endpoint
        self._has_handshake = has_handshake
        self._is_forwarded = is_forwarded
        if acks_at_once:
            self.received = self._received_and_acked

    def connected(self, pipe: Pipe) -> None:
        """Register a new pipe."""
        if self._is_forwarded:
            pipe.address = ""
        self._hub.connected(self._protocol, pipe, self._endpoint, has_handshake=self._has_handshake)

    def admit(self, host: str) -> bool:
        """Return whether a connection from ``host`` is admitted."""
        return self._hub.admit(self._protocol, self._counted(host), has_handshake=self._has_handshake)

    def release(self, host: str) -> None:
        """Report an admitted connection that ended before it was established."""
        self._hub.release(self._counted(host), has_handshake=self._has_handshake)

    def _counted(self, host: str) -> str:
        """Return the address that a connection is counted under."""
        return "" if self._is_forwarded else host

    def _received_and_acked(self, pipe: Pipe, data: bytes) -> None:
        pipe.ack_now()
        self._hub.received(pipe, data)


class DialledSink(_Sink):
    """The sink of one pipe that we dialled, under the name by which the relay knows the other side."""

    def __init__(self, hub: Hub, protocol: str, name: str, *, has_certificate: bool = False) -> None:
        """Lead a pipe to the relay of ``protocol``.

        Args:
            hub: Gets the pipe.
            protocol: Whose relay asked for it.
            name: As in the ``Dial`` effect.
            has_certificate: Whether the relay gets the hash of the certificate that the other side has shown.
        """
        super().__init__(hub, protocol)
        self._name = name
        self._has_certificate = has_certificate

    def connected(self, pipe: Pipe) -> None:
        """Register the pipe."""
        certificate = pipe.certificate_sha256 if self._has_certificate else None
        self._hub.connected_out(self._protocol, pipe, self._name, certificate)
