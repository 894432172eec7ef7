"""How a device tells its peers something: the part of ``device.Device`` that has what sends, while there is room.

``outgoing`` is large. It is in memory from the first notice on, and leaves it for a new connection, whose signatures
need as much, and whenever memory is short; the notices wait in the state meanwhile.
"""

import errno

from .payloads import COMMAND, TEXT, command_request
from .port import const, make_room, seldom, sweep, ticks_diff, ticks_ms, unload

__all__ = ["Telling"]

_QUIET_MS = const(15_000)  # for which nothing is sent when what a peer has asked needs the memory


class Telling:
    """Sends what ``notify`` queues; ``device.Device`` has the rest."""

    def notify(self, peer: object, content: object, content_type: int = TEXT) -> object:
        """Tell a paired peer something, and return a ``Notice`` whose ``outcome`` says what has become of it so far.

        It is kept before this returns, and sent by ``step``; the peer's handler gets it once, however often it must be
        repeated.

        Args:
            peer: A 32-byte key, an alias or an id52.
            content: Text or at most 512 bytes.
            content_type: ``TEXT``, ``BINARY`` or ``COMMAND``.

        Raises:
            ValueError: There is no such peer, the content is too large, or eight notices wait already.
            OSError: The state cannot be kept, or there is no memory for it, and so nothing will be sent.
        """
        data = content.encode() if isinstance(content, str) else content
        try:
            return seldom("notices", "add", self._state, peer, content_type, data, self._sweep)
        except MemoryError:
            raise OSError(errno.ENOMEM)

    def notify_command(self, peer: object, name: str, arguments: object = None) -> object:
        """Tell a peer a command, whose arguments are anything that JSON can say; else as ``notify``."""
        return self.notify(peer, command_request(name, arguments), COMMAND)

    def wait(self, notice: object, wait_ms: int = 60_000) -> str:
        """Step until something is known of a notice, at most so long; return its outcome."""
        begun = ticks_ms()
        while notice.outcome == "waiting" and ticks_diff(ticks_ms(), begun) < wait_ms:
            self.step()
        return notice.outcome

    def drop(self, notice: object) -> bool:
        """Send a notice no more; return whether it certainly has not reached its peer. Raises OSError."""
        if self._outgoing is not None:
            self._outgoing.leave(notice)
        return seldom("notices", "drop", self._state, notice)

    def rest(self) -> None:
        """End a connection that tells nothing at the moment, for something rare that needs its memory."""
        if self._outgoing is not None:
            self._outgoing.rest()
        make_room()

    def _outgoing_if_needed(self) -> object:
        """Return what sends, when there is something to send and nothing else needs the memory more."""
        if self._outgoing is not None or not self._state.notices or not self._may_tell():
            return self._outgoing
        if self._quiet_from is not None and ticks_diff(ticks_ms(), self._quiet_from) < _QUIET_MS:
            return None
        try:
            from .outgoing import Outgoing

            self._quiet_from = None
            make_room()
            self._outgoing = Outgoing(self._state, self.relays, self._poll, self._feed, self._on_event)
        except MemoryError:
            self._unload_outgoing()
            self._quiet_from = ticks_ms()
        return self._outgoing

    def _may_tell(self) -> bool:
        """Whether a second connection may begin: not while the first one is being made, which takes most memory."""
        return self._listening or (self._link is None and self._turn >= 0)

    def _unload_outgoing(self) -> None:
        self._outgoing = None
        unload("outgoing")

    def _sweep(self) -> None:
        """Make all the room that can be made: what sends makes way, for a while."""
        if self._outgoing is not None:
            self._outgoing.make_way()
            self._unload_outgoing()
            self._quiet_from = ticks_ms()
        sweep()
