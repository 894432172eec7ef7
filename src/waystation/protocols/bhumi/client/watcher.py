"""The watching client: a relay reports to it which devices connect there and which disconnect.

It uses an anonymous connection of its own, so that the relay learns who is watched, but not by whom. What comes is
the relay's word: a device that is online there may still not answer. Spec: BHUMI-WATCH.
"""

from dataclasses import dataclass

from waystation.core.ids import PublicKey
from waystation.core.instant import Instant, after_ms
from waystation.protocols.bhumi import extension_wire, messages
from waystation.protocols.bhumi.client.base import Client, Greeted, State, Unsent
from waystation.protocols.bhumi.client.keepalive import SILENCE_MS, KeepaliveTimer
from waystation.protocols.bhumi.extension_messages import Watch, Watched
from waystation.protocols.bhumi.messages import Feature, FrameType
from waystation.protocols.bhumi.refusals import Refusal

__all__ = ["ANSWER_TIMEOUT_MS", "NoWatches", "WatchClient"]

ANSWER_TIMEOUT_MS = 10_000  # ours: a relay answers OPTIONS from memory
_TYPES_IN_OPEN = (FrameType.KEEPALIVE, FrameType.OPTIONS, FrameType.WATCHED)


@dataclass(frozen=True, slots=True)
class NoWatches:
    """This relay does not know the extension: nothing will be reported."""


class WatchClient(Client):
    """One connection for watches; after ``Greeted`` it may ``watch``, and each ``Watched`` is an event."""

    def __init__(self, *, silence_ms: int = SILENCE_MS) -> None:
        """Describe a connection; a relay from which nothing comes for ``silence_ms`` is gone."""
        super().__init__(_TYPES_IN_OPEN)
        self._keepalive = KeepaliveTimer(silence_ms)
        self._watches = False
        self._answer_by: Instant | None = None

    def watch(self, identity: PublicKey, *, begins: bool = True) -> Unsent | None:
        """Begin to watch a device, or end it; ``Watched`` reports the present state, then each change."""
        if self.state is not State.OPEN:
            return Unsent.NOT_OPEN
        if not self._watches:
            return Unsent.NOT_ACCEPTED
        self._send_bytes(extension_wire.encode_extension(Watch(identity, begins)))
        return None

    def _on_open(self, _relay_nonce: int, now: Instant) -> None:
        self._send(messages.Options(Feature.WATCH))
        self._answer_by = after_ms(now, ANSWER_TIMEOUT_MS)
        self._keepalive.sent(now)

    def _on_options(self, options: messages.Options) -> None:
        if self._answer_by is None:
            return
        self._answer_by = None
        self._watches = Feature.WATCH in options.features
        self._events.append(Greeted(self.max_payload_bytes) if self._watches else NoWatches())

    def _on_keepalive(self) -> None:
        """Ignore the echo: that something came is all it says."""

    def _on_role_frame(self, _frame_type: int, payload: bytes, _now: Instant) -> None:
        watched: Watched = extension_wire.decode_watched(payload)
        self._events.append(watched)

    def _on_due(self, now: Instant) -> None:
        if self._answer_by is not None:
            if now >= self._answer_by:  # the original relay ignores OPTIONS
                self._answer_by = None
                self._events.append(NoWatches())
        elif self._watches and now >= self._keepalive.gone_at(self._received_at):
            self._close(Refusal.IDLE_TIMEOUT)
        elif self._watches and now >= self._keepalive.due_at(self._received_at, echoes=True):
            self._keepalive.sent(now)
            self._send(messages.Keepalive())

    def _next_due(self) -> Instant | None:
        if self._answer_by is not None:
            return self._answer_by
        if not self._watches:
            return None
        gone_at = self._keepalive.gone_at(self._received_at)
        return min(gone_at, self._keepalive.due_at(self._received_at, echoes=True))

    def _on_end(self) -> None:
        self._answer_by = None
