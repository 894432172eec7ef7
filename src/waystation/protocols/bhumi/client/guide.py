"""The guide client: it asks a relay for a device's presences (WHERE) and for other relays (RELAYS_REQ).

It uses an anonymous connection of its own, so the relay learns which identity is sought but not by whom. One question
is open at a time, because answers have no number (BHUMI-X). Answers are not verified here.
"""

from dataclasses import dataclass
from typing import Final

from waystation.core.ids import PublicKey
from waystation.core.instant import Instant, after_ms
from waystation.protocols.bhumi import extension_wire, messages
from waystation.protocols.bhumi.client.base import Client, Greeted, State, Unsent
from waystation.protocols.bhumi.extension_messages import (
    ExtensionMessage,
    RelayAd,
    Relays,
    RelaysRequest,
    Where,
    WhereEntry,
    WhereResult,
)
from waystation.protocols.bhumi.messages import Feature, FrameType
from waystation.protocols.bhumi.refusals import Refusal

__all__ = ["ANSWER_TIMEOUT_MS", "Found", "GuideClient", "NoGuide", "RelaysListed"]

ANSWER_TIMEOUT_MS: Final = 10_000  # ours: a relay answers from memory
_TYPES_IN_OPEN: Final = (FrameType.KEEPALIVE, FrameType.OPTIONS, FrameType.WHERE_RESULT, FrameType.RELAYS)


@dataclass(frozen=True, slots=True)
class Found:
    """The answer to ``where``; nothing in it has been verified."""

    identity: PublicKey
    entries: tuple[WhereEntry, ...]


@dataclass(frozen=True, slots=True)
class RelaysListed:
    """The answer to ``relays``; nothing in it has been verified."""

    adverts: tuple[RelayAd, ...]


@dataclass(frozen=True, slots=True)
class NoGuide:
    """This relay does not know the extension: no question will be answered."""


class GuideClient(Client):
    """One connection for questions; ``Greeted`` says when the first one may be asked."""

    def __init__(self, *, answer_timeout_ms: int = ANSWER_TIMEOUT_MS) -> None:
        """Describe a connection.

        Args:
            answer_timeout_ms: How long the relay may take for OPTIONS, and for each answer.
        """
        super().__init__(_TYPES_IN_OPEN)
        self._answer_timeout_ms = answer_timeout_ms
        self._guides = False
        self._is_answered = False
        self._question: ExtensionMessage | None = None
        self._answer_by: Instant | None = None

    def where(self, identity: PublicKey, now: Instant) -> Unsent | None:
        """Ask where a device is; ``Found`` answers."""
        return self._ask(Where(identity), now)

    def relays(self, now: Instant) -> Unsent | None:
        """Ask for other relays; ``RelaysListed`` answers."""
        return self._ask(RelaysRequest(), now)

    def _ask(self, question: ExtensionMessage, now: Instant) -> Unsent | None:
        if self.state is not State.OPEN or not self._guides:
            return Unsent.NOT_OPEN
        # WHERE_RESULT names its device and RELAYS nothing, so one question at a time.
        if self._question is not None:
            return Unsent.WINDOW_FULL
        self._question = question
        self._answer_by = after_ms(now, self._answer_timeout_ms)
        self._send_bytes(extension_wire.encode_extension(question))
        return None

    def _on_open(self, _relay_nonce: int, now: Instant) -> None:
        self._send(messages.Options(Feature.PRESENCE))
        self._answer_by = after_ms(now, self._answer_timeout_ms)

    def _on_options(self, options: messages.Options) -> None:
        if self._is_answered:  # who has said no once, or nothing for so long, is not asked again
            return
        self._is_answered = True
        self._answer_by = None
        self._guides = Feature.PRESENCE in options.features
        self._events.append(Greeted(self.max_payload_bytes) if self._guides else NoGuide())

    def _on_keepalive(self) -> None:
        """Ignore an echo that nobody here waits for."""

    def _on_role_frame(self, frame_type: int, payload: bytes, _now: Instant) -> None:
        if frame_type == FrameType.WHERE_RESULT:
            self._on_found(extension_wire.decode_where_result(payload))
        else:
            listed = extension_wire.decode_relays(payload)
            if isinstance(self._question, RelaysRequest):
                self._settle(listed)

    def _on_found(self, result: WhereResult) -> None:
        # An answer to another question than the open one means nothing.
        if isinstance(self._question, Where) and self._question.identity == result.identity:
            self._settle(result)

    def _settle(self, answer: WhereResult | Relays) -> None:
        self._question = self._answer_by = None
        if isinstance(answer, Relays):
            self._events.append(RelaysListed(answer.adverts))
        else:
            self._events.append(Found(answer.identity, answer.entries))

    def _on_due(self, now: Instant) -> None:
        if self._answer_by is None or now < self._answer_by:
            return
        if self._guides:
            self._close(Refusal.IDLE_TIMEOUT)
        else:  # the original relay ignores OPTIONS, and answers nothing else of ours either
            self._is_answered = True
            self._answer_by = None
            self._events.append(NoGuide())

    def _next_due(self) -> Instant | None:
        return self._answer_by

    def _on_end(self) -> None:
        self._question = self._answer_by = None
