"""A Bhumi sender's connection: it stays anonymous, sends requests, and reports each outcome in order (BHUMI-9)."""

from collections import deque
from dataclasses import dataclass
from typing import Final

from waystation.core.ids import PublicKey
from waystation.core.instant import Instant, after_ms
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.client.base import Client, Greeted, State, Unsent
from waystation.protocols.bhumi.messages import Feature, FrameType
from waystation.protocols.bhumi.refusals import MalformedError, Refusal

__all__ = ["OUTSTANDING_MAX", "RESULT_TIMEOUT_MS", "Answered", "Lost", "SenderClient"]

OUTSTANDING_MAX: Final = 16  # SENDs without a result on one connection, BHUMI-9
RESULT_TIMEOUT_MS: Final = 45_000  # 30 s of ACK timeout at the relay, and half of it again for the way
_TYPES_IN_OPEN: Final = (FrameType.SEND_RESULT, FrameType.KEEPALIVE, FrameType.OPTIONS)


@dataclass(frozen=True, slots=True)
class Answered:
    """The outcome of a SEND."""

    token: int
    """What ``SenderClient.send`` returned."""
    status: int
    """See ``messages.Status``; the relay may know more."""
    payload: bytes
    """The recipient's answer, empty unless the status is OK."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection ended before the outcome of a SEND arrived: it may or may not have been delivered."""

    token: int


class SenderClient(Client):
    """A sender: anonymous, asks and waits. Outcomes come strictly in the order of the SENDs (BHUMI-9)."""

    def __init__(self, *, result_timeout_ms: int = RESULT_TIMEOUT_MS, asks_authorities: bool = False) -> None:
        """Describe a sender's connection.

        Args:
            result_timeout_ms: How long the oldest SEND may wait for its outcome before the connection counts as dead.
            asks_authorities: Ask to be shown the authorities of the relay, as ``AuthorityShown`` (BHUMI-AUTHORITY).
        """
        super().__init__((*_TYPES_IN_OPEN, FrameType.AUTHORITY) if asks_authorities else _TYPES_IN_OPEN)
        self._asks_authorities = asks_authorities
        self._is_shown_authorities = False
        self._result_timeout_ms = result_timeout_ms
        self._outstanding: deque[tuple[int, Instant]] = deque()
        self._tokens = 0

    def send(self, recipient: bytes, preimage: bytes, payload: bytes, now: Instant) -> int | Unsent:
        """Send a request and return its token, which ``Answered`` or ``Lost`` will name; each token gets exactly one.

        Args:
            recipient: 32-byte identity.
            preimage: 32 bytes. Retries use the same preimage with the same payload.
            payload: Opaque, at most ``max_payload_bytes``.
            now: The current instant.
        """
        if self.state is not State.OPEN:
            return Unsent.NOT_OPEN
        if len(payload) > self.max_payload_bytes:
            return Unsent.TOO_LARGE
        # BHUMI-9: at the 17th the relay would stop reading.
        if len(self._outstanding) >= OUTSTANDING_MAX:
            return Unsent.WINDOW_FULL
        self._tokens += 1
        self._outstanding.append((self._tokens, after_ms(now, self._result_timeout_ms)))
        self._send(messages.Send(PublicKey(recipient), preimage, payload))
        return self._tokens

    def _on_open(self, _relay_nonce: int, _now: Instant) -> None:
        if self._asks_authorities:
            self._send(messages.Options(Feature.AUTHORITY))
        self._events.append(Greeted(self.max_payload_bytes))

    def _on_options(self, options: messages.Options) -> None:
        """Take note whether the relay shows its authorities; a sender asks for nothing else."""
        self._is_shown_authorities = self._asks_authorities and Feature.AUTHORITY in options.features

    def _on_keepalive(self) -> None:
        """Ignore an echo that a sender never waits for."""

    def _on_role_frame(self, frame_type: int, payload: bytes, _now: Instant) -> None:
        if frame_type == FrameType.AUTHORITY:
            if self._is_shown_authorities:
                self._on_authority(payload)
            return
        result = wire.decode_send_result(payload)
        if not self._outstanding:
            raise MalformedError(Refusal.WRONG_DIRECTION, "a result without a request")
        # BHUMI-9: SEND_RESULT names nothing; order is the only correlation.
        token, _ = self._outstanding.popleft()
        self._events.append(Answered(token, result.status, result.payload))

    def _on_due(self, now: Instant) -> None:
        # A relay answers within its ACK timeout; one that does not is gone, and the outcomes are unknown.
        if self._outstanding and now >= self._outstanding[0][1]:
            self._close(Refusal.IDLE_TIMEOUT)

    def _next_due(self) -> Instant | None:
        return self._outstanding[0][1] if self._outstanding else None

    def _on_end(self) -> None:
        # Bhumi v2 6.6: what was sent may have been delivered; the same preimage asks again.
        self._events += [Lost(token) for token, _ in self._outstanding]
        self._outstanding.clear()
