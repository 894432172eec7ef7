"""Ends streams whose other side has fallen silent: nothing arrives, not even what TCP itself would answer.

Listeners and dialling code call ``limit_silence`` for each TCP stream. One number says how long: a stream on which
every packet is lost is over within ``SilencePolicy.limit_ms``, on both sides, idle or with data that waits. The kernel
asks an idle one (TCP keepalive). One with data under way asks by itself, and repeats for a quarter of an hour by
default; a timer of ours looks at it (TCP_INFO) and ends it.

A peer that does not read is not silent: its kernel answers, and how much waits for it is the protocols' business.
Therefore TCP_USER_TIMEOUT is not used, which counts a closed window as silence (NODE-SILENCE). A process that is
stopped, or a peer behind a proxy, is found by the pings of WebSockets (``websocket.liveness``) and of protocols.
"""

import asyncio
import contextlib
import itertools
import socket
import struct
import sys
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from waystation.core.errors import LocalError

__all__ = [
    "SILENCE_MS",
    "SILENCE_S",
    "SILENCE_S_MAX",
    "SILENCE_S_MIN",
    "SilencePolicy",
    "limit_silence",
    "set_keepalive",
]

SILENCE_MS: Final = 30_000
"""Of a node and of clients, unless somebody says otherwise."""
SILENCE_S: Final = SILENCE_MS / 1_000
SILENCE_S_MIN: Final = 1
SILENCE_S_MAX: Final = 3_600
_LOOKS_PER_LIMIT: Final = 10
_ASKED_LOOKS_MIN: Final = 2  # a probe may leave just before a look, and its answer is on its way then
_STREAMS_PER_TURN: Final = 256  # about a millisecond
_INFO: Final = struct.Struct("=8B13I")  # the beginning of Linux's tcp_info
_PROBES, _UNACKED, _DATA_RECEIVED, _ACK_RECEIVED = 3, 12, 19, 20
_HAS_INFO: Final = sys.platform == "linux"
_RTO_MAX_MS: Final = 44 if sys.platform == "linux" else None  # TCP_RTO_MAX_MS, Linux 6.15; Python has no name for it
_RESEND_WITHIN_S: Final = 0x80 if sys.platform == "darwin" else None  # TCP_RXT_CONNDROPTIME, likewise
_IDLE: Final = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", None))  # Linux and macOS name it so
_TCP_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)


class SilencePolicy(NamedTuple):
    """How long the other side of a stream may be silent."""

    limit_ms: int = SILENCE_MS
    """From the last packet that arrived to the end of the stream, at most. The kernel counts in seconds: below 3,000
    an idle stream may take longer."""

    @classmethod
    def of_seconds(cls, limit_s: float) -> "SilencePolicy":
        """Return the policy with this limit.

        Raises:
            LocalError: It is not between 1 s and an hour.
        """
        if not SILENCE_S_MIN <= limit_s <= SILENCE_S_MAX:
            raise LocalError(f"silence_s is {limit_s:g}; it may be {SILENCE_S_MIN} to {SILENCE_S_MAX} seconds")
        return cls(int(limit_s * 1_000))

    @property
    def idle_s(self) -> int:
        """After so long without a packet, an idle stream is asked."""
        return max(1, self.limit_ms * 4 // 15_000)

    @property
    def interval_s(self) -> int:
        """And again after so long without an answer."""
        return max(1, self.limit_ms // 10_000)

    @property
    def questions_count(self) -> int:
        """It is over after so many unanswered questions, at 13/15 of the limit."""
        return max(1, (self.limit_ms * 13 // 15_000 - self.idle_s) // self.interval_s)

    @property
    def look_s(self) -> float:
        """How often streams are looked at."""
        return self.limit_ms / 1_000 / _LOOKS_PER_LIMIT

    @property
    def silent_ms(self) -> int:
        """A look ends a stream after so long; the next one would come too late."""
        return self.limit_ms * 17 // 20

    @property
    def resend_ms(self) -> int:
        """What is under way, or has no room at the other side, is tried again at least this often."""
        return min(max(1_000, self.limit_ms // 6), 120_000)


def set_keepalive(stream: socket.socket, policy: SilencePolicy) -> None:
    """Have the kernel ask an idle stream; also one that is not connected yet. Other sockets are left alone."""
    if stream.family not in _TCP_FAMILIES or stream.type != socket.SOCK_STREAM:
        return
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    chosen = {
        _IDLE: policy.idle_s,
        getattr(socket, "TCP_KEEPINTVL", None): policy.interval_s,
        getattr(socket, "TCP_KEEPCNT", None): policy.questions_count,
        _RTO_MAX_MS: policy.resend_ms,
        _RESEND_WITHIN_S: policy.limit_ms // 2_000,
    }
    for option, number in chosen.items():
        if option is not None:
            with contextlib.suppress(OSError):  # an older kernel, which does without
                stream.setsockopt(socket.IPPROTO_TCP, option, number)


def limit_silence(transport: Any, policy: SilencePolicy) -> None:
    """End a connected stream once its other side is silent, and forget it when it ends; call it within the loop.

    Args:
        transport: Its asyncio transport; ``abort`` ends it.
        policy: For this stream.
    """
    carrier = transport.get_extra_info("socket")
    if carrier is None or carrier.family not in _TCP_FAMILIES:
        return
    set_keepalive(carrier, policy)
    if _HAS_INFO:
        loop = asyncio.get_running_loop()
        watch = _watches.get((id(loop), policy))
        if watch is None or watch.loop is not loop:  # a loop that is gone may have had the same id
            watch = _watches[(id(loop), policy)] = _Watch(policy, loop)
        watch.add(transport)


class _Stream:
    """One stream, and at how many looks in a row it waited for an answer while nothing arrived."""

    __slots__ = ("_carrier", "asked_looks", "transport")

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self._carrier = transport.get_extra_info("socket")
        self.asked_looks = 0

    def is_silent(self, policy: SilencePolicy) -> bool:
        """Return whether nothing has arrived for too long, although an answer is due.

        Raises:
            OSError: It is closed.
        """
        info = _INFO.unpack(self._carrier.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size))
        silent_ms = min(info[_DATA_RECEIVED], info[_ACK_RECEIVED])
        is_asked = bool(info[_UNACKED] or info[_PROBES]) and silent_ms >= policy.look_s * 1_000
        self.asked_looks = self.asked_looks + 1 if is_asked else 0
        return silent_ms >= policy.silent_ms and self.asked_looks >= _ASKED_LOOKS_MIN


class _Watch:
    """The streams of one event loop with one policy; its timer runs while there are any, and keeps it alive."""

    def __init__(self, policy: SilencePolicy, loop: asyncio.AbstractEventLoop) -> None:
        self._policy = policy
        self.loop = loop
        self._streams: list[_Stream] = []
        self._is_looking = False

    def add(self, transport: Any) -> None:
        """Look at a stream from now on."""
        self._streams.append(_Stream(transport))
        if not self._is_looking:
            self._is_looking = True
            self.loop.call_later(self._policy.look_s, self._look)

    def _look(self) -> None:
        """Look at all streams, some in each turn of the loop."""
        streams, self._streams = self._streams, []
        self._look_at_some(iter(streams))

    def _look_at_some(self, streams: Iterator[_Stream]) -> None:
        some = list(itertools.islice(streams, _STREAMS_PER_TURN))
        self._streams += [stream for stream in some if self._stays(stream)]
        if len(some) == _STREAMS_PER_TURN:
            self.loop.call_soon(self._look_at_some, streams)
        elif self._streams:
            self.loop.call_later(self._policy.look_s, self._look)
        else:
            self._is_looking = False

    def _stays(self, stream: _Stream) -> bool:
        """Return whether a stream is still to be looked at; end it when it is silent."""
        if stream.transport.is_closing():
            return False
        try:
            is_silent = stream.is_silent(self._policy)
        except OSError:
            return False
        if is_silent:
            stream.transport.abort()
        return not is_silent


_watches: WeakValueDictionary[tuple[int, SilencePolicy], _Watch] = WeakValueDictionary()
