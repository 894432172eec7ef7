"""The authorities that this relay's certificate comes from: shown to clients, so that the next one needs no cable.

A device that has agreed on bit 7 gets each of them once its identity is accepted, and one that is new at once. A sender
that has agreed on it gets each of them once, with its first SEND, and stays anonymous. The relay is handed certificates
in DER and does not look into them; that a client verified its connection is what makes it believe them.

Spec: BHUMI-AUTHORITY.
"""

from collections.abc import Callable, Sequence
from typing import Final

from waystation.core.instant import Instant
from waystation.protocols.bhumi import extension_wire
from waystation.protocols.bhumi.extension_messages import Authority
from waystation.protocols.bhumi.messages import Feature
from waystation.protocols.bhumi.relay.connections import Connections
from waystation.protocols.bhumi.session import Session

__all__ = ["AUTHORITIES_MAX", "Authorities"]

_Handler = Callable[[Session, bytes, Instant], None]
AUTHORITIES_MAX: Final = 2
"""The one that is valid, and the next one."""


class Authorities:
    """What clients are shown; none at first. Cost: O(devices) when one is new."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._frames: tuple[bytes, ...] = ()

    def use(self, ders: Sequence[bytes]) -> None:
        """Show these from now on, the valid one first, and those that are new to whoever is connected.

        Args:
            ders: At most two certificates in DER; one of more than 4,096 bytes is left out.
        """
        assert len(ders) <= AUTHORITIES_MAX
        shown = [der for der in ders if 0 < len(der) <= extension_wire.AUTHORITY_BYTES_MAX]
        before, self._frames = self._frames, tuple(extension_wire.encode_extension(Authority(der)) for der in shown)
        new = [frame for frame in self._frames if frame not in before]
        for session in list(self._connections.bindings.values()) if new else ():
            self._show(session, new)

    def on_identified(self, session: Session, _now: Instant) -> None:
        """Show a device all there are."""
        self._show_all(session)

    def before(self, on_send: _Handler) -> _Handler:
        """Return a handler of SEND that shows a sender all there are, and then does what ``on_send`` does."""

        def shows_and_sends(session: Session, payload: bytes, now: Instant) -> None:
            if session.negotiated is not None:
                self._show_all(session)
            on_send(session, payload, now)

        return shows_and_sends

    def _show_all(self, session: Session) -> None:
        """Show everything, once a connection."""
        if session.negotiated is not None and not session.negotiated.has_authorities:
            session.negotiated.has_authorities = True
            self._show(session, self._frames)

    def _show(self, session: Session, frames: Sequence[bytes]) -> None:
        if session.negotiated is not None and Feature.AUTHORITY in session.negotiated.features:
            for frame in frames:
                self._connections.reply(session, frame)
