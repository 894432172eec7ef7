"""Hosts Bhumi's relay machine on pipes, frame by frame, so that a subclass decides what becomes of each."""

import asyncio
import random
import struct
from collections.abc import Iterable
from typing import Final

from waystation.core.effects import Close, Peer, Send
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.protocols.bhumi import wire
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.refusals import MalformedError
from waystation.protocols.bhumi.relay.machine import BhumiRelay
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.transport.pipe import Pipe

__all__ = ["HostedRelay", "frame_of", "frames_in"]

_HEADER: Final = struct.Struct(">HI")  # type and size of a frame; the machine sends whole ones
_LIMITS: Final = wire.relay_frame_limits(65_536)
SETTINGS: Final = BhumiSettings(ack_timeout_ms=1_500)
"""Impatient: what a device does not answer is soon in doubt."""


class HostedRelay:
    """The real machine and its connections; a ``Sink``."""

    def __init__(self) -> None:
        """Begin without connections; pass it to what accepts them."""
        self.pipes: dict[int, Pipe] = {}
        """Connections by number."""
        self._buffers: dict[int, wire.FrameBuffer] = {}
        self._numbers = 0
        self._timer: asyncio.TimerHandle | None = None
        self._has_news = asyncio.Event()
        self._machine = self._new_machine()

    def _new_machine(self) -> BhumiRelay:
        return BhumiRelay(SETTINGS, random.Random(1), rate_limits=False)  # noqa: S311 - must be repeatable

    def stop(self) -> None:
        """Cut everybody, and do nothing any more."""
        for peer in tuple(self.pipes):
            self.cut(peer)
        if self._timer is not None:
            self._timer.cancel()

    def cut(self, peer: int) -> None:
        """Break one connection."""
        self.pipes[peer].abort()

    # A sink

    def connected(self, pipe: Pipe) -> None:
        """Take a connection."""
        self._numbers += 1
        pipe.peer = self._numbers
        self.pipes[pipe.peer] = pipe
        self._buffers[pipe.peer] = wire.FrameBuffer(_LIMITS)
        self._machine.connect(Peer(pipe.peer), self._now())
        self._pump()

    def received(self, pipe: Pipe, data: bytes) -> None:
        """Cut bytes into frames, and deal with each."""
        buffer = self._buffers[pipe.peer]
        buffer.feed(data)
        try:
            while (frame := buffer.next_frame()) is not None:
                self._take(pipe.peer, frame[0], bytes(frame[1]))
        except MalformedError:  # a client that got no HELLO looks for TLS or HTTP here
            if pipe.peer in self.pipes:
                self.cut(pipe.peer)
        self._pump()
        self._has_news.set()

    def congested(self, pipe: Pipe) -> None:
        """Do nothing: no client here is slow."""

    def drained(self, pipe: Pipe) -> None:
        """Do nothing."""

    def lost(self, pipe: Pipe, error: Exception | None) -> None:  # noqa: ARG002 - a relay wants no reason
        """Note the end of a connection."""
        self.pipes.pop(pipe.peer, None)
        del self._buffers[pipe.peer]
        self._machine.disconnect(Peer(pipe.peer), self._now())
        self._pump()

    # The machine

    def _take(self, peer: int, frame_type: int, payload: bytes) -> None:
        """Deal with one frame that came."""
        self._pass_in(peer, frame_of(frame_type, payload))

    def _put(self, peer: int, frame_type: int, payload: bytes) -> None:
        """Deal with one frame that is to leave."""
        self._write(peer, frame_of(frame_type, payload))

    def _pass_in(self, peer: int, frame: bytes) -> None:
        if peer in self.pipes:
            self._machine.receive(Peer(peer), frame, self._now())

    def _write(self, peer: int, frame: bytes) -> None:
        if peer in self.pipes:
            self.pipes[peer].write([frame])

    def _pump(self) -> None:
        for effect in self._machine.take():
            if isinstance(effect, Send) and effect.peer in self.pipes:
                for frame_type, payload in frames_in(effect.data):
                    self._put(effect.peer, frame_type, payload)
                if effect.receipt:
                    asyncio.get_running_loop().call_soon(self._drain, effect.peer)
            elif isinstance(effect, Close) and effect.peer in self.pipes:
                self.pipes[effect.peer].close()
        self._arm()

    def _drain(self, peer: Peer) -> None:
        if peer in self.pipes:
            self._machine.drained(peer, self._now())
            self._pump()

    def _arm(self) -> None:
        due = self._machine.deadline()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due is not None:
            self._timer = asyncio.get_running_loop().call_at(due / MICROSECONDS_PER_SECOND, self._wake)

    def _wake(self) -> None:
        self._machine.wake(self._now())
        self._pump()

    def _now(self) -> Instant:
        return Instant(int(asyncio.get_running_loop().time() * MICROSECONDS_PER_SECOND))


def frame_of(frame_type: int, payload: bytes) -> bytes:
    """Return a whole frame."""
    return _HEADER.pack(frame_type, len(payload)) + payload


def frames_in(data: bytes) -> Iterable[tuple[int, bytes]]:
    """Yield type and payload of each frame in bytes that are whole frames."""
    while data:
        frame_type, size = _HEADER.unpack_from(data)
        end = _HEADER.size + size
        yield FrameType(frame_type) if frame_type in _KNOWN else frame_type, data[_HEADER.size : end]
        data = data[end:]


_KNOWN: Final = frozenset(int(each) for each in FrameType)
