"""A Bhumi device's side of its connection: it proves its identity, hands over commits, and answers what is delivered.

The relay never answers I_AM. A device therefore sends KEEPALIVE behind it: the echo proves that the relay took the
I_AM, for a refused one closes the connection. The original relay does not echo; there, silence for ``CONFIRM_MS`` has
to do, and silence is not held against it later.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from waystation.core.instant import Instant, after_ms
from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.client_base import Client, Greeted, State, Unsent
from waystation.protocols.bhumi.messages import Feature, FrameType
from waystation.protocols.bhumi.refusals import MalformedError, Refusal

__all__ = ["CONFIRM_MS", "DELIVERIES_MAX", "KEEPALIVE_MS", "SILENCE_MS", "Delivered", "DeviceClient", "Registered"]

KEEPALIVE_MS: Final = 45_000  # twice within the 120 s after which the relay drops an idle device, BHUMI-L
SILENCE_MS: Final = 90_000  # two keepalives without any echo
CONFIRM_MS: Final = 1_000  # ours: longer than any round trip on which the 30 s of an ACK make sense
DELIVERIES_MAX: Final = 1_024  # ours; the relay holds back after 32 without ACK (BHUMI-A12), other relays may not
_TYPES_IN_OPEN: Final = (FrameType.DELIVER, FrameType.KEEPALIVE, FrameType.OPTIONS)


@dataclass(frozen=True, slots=True)
class Registered:
    """The relay has taken the I_AM."""

    confirmed: bool
    """False when this rests on silence, as with the original relay."""
    with_preimage: bool
    """True when deliveries name their preimage."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """Somebody wants an answer; give it with ``DeviceClient.answer``."""

    message_id: int
    payload: bytes
    preimage: bytes | None = field(default=None, repr=False)
    """32 bytes, or None when the relay leaves it out."""


class DeviceClient(Client):
    """A device: proves its identity, hands over commits, gets deliveries, answers them.

    After ``Delivered`` the caller persists whatever the answer promises, calls ``add_commits`` for the preimages it
    gives out, and only then ``answer``: the relay must know a commit before its preimage can be used.
    """

    def __init__(
        self,
        key_pair: KeyPair,
        commits: Sequence[bytes] = (),
        responses: Sequence[messages.RecentResponse] = (),
        *,
        ask_preimage: bool = True,
        always_preimage: bool = False,
    ) -> None:
        """Describe a device's connection.

        Args:
            key_pair: Who the device is.
            commits: 32 bytes each; at most 4,096 go to the relay.
            responses: Recent answers the relay may give to retries (6.6).
            ask_preimage: Send OPTIONS, asking for the preimage in DELIVER.
            always_preimage: The relay puts the preimage into every DELIVER unasked, as the original one does.
        """
        super().__init__(_TYPES_IN_OPEN)
        self._key_pair = key_pair
        self._commits = tuple(commits)
        self._responses = tuple(responses)
        self._ask_preimage = ask_preimage
        self._with_preimage = always_preimage
        self._nonce = 0
        self._unanswered: set[int] = set()
        self._registered = False
        self._echoes = False
        self._confirm_by = Instant(0)
        self._keepalive_at = Instant(0)

    def answer(self, message_id: int, payload: bytes) -> Unsent | None:
        """Answer a delivery; None means that the ACK is on its way."""
        if self.state is not State.OPEN:
            return Unsent.NOT_OPEN
        if message_id not in self._unanswered:
            return Unsent.UNKNOWN_DELIVERY
        if len(payload) > self.max_payload_bytes:
            return Unsent.TOO_LARGE
        self._unanswered.discard(message_id)
        self._send(messages.Ack(message_id, payload))
        return None

    def add_commits(self, commits: Iterable[bytes]) -> None:
        """Add commits to the relay's set; before HELLO they go into the I_AM."""
        added = tuple(commits)
        if self.state is not State.OPEN:
            self._commits += added
            return
        for start in range(0, len(added), wire.COMMITS_MAX):
            self._send(messages.UpdateCommits(added[start : start + wire.COMMITS_MAX]))

    def replace(self, commits: Sequence[bytes], responses: Sequence[messages.RecentResponse] = ()) -> None:
        """Replace the relay's set, and offer recent answers, by a second I_AM on the same nonce (BHUMI-8)."""
        self._commits = tuple(commits)
        self._responses = tuple(responses)
        if self.state is State.OPEN:
            self._introduce()

    def _introduce(self) -> None:
        identity = self._key_pair.public
        signature = sign(self._key_pair, wire.signed_bytes(self._nonce, identity))
        carried = _within_quota(self._responses)
        self._send(messages.IAm(identity, signature, self._commits[: wire.COMMITS_MAX], carried))

    def _on_open(self, relay_nonce: int, now: Instant) -> None:
        self._nonce = relay_nonce
        self._events.append(Greeted(self.max_payload_bytes))
        if self._ask_preimage:
            self._send(messages.Options(Feature.DELIVER_WITH_PREIMAGE))
        self._introduce()
        self._send(messages.Keepalive())
        self._confirm_by = after_ms(now, CONFIRM_MS)
        self._keepalive_at = after_ms(now, KEEPALIVE_MS)

    def _on_options(self, options: messages.Options) -> None:
        if self._ask_preimage:
            self._with_preimage = Feature.DELIVER_WITH_PREIMAGE in options.features

    def _on_keepalive(self) -> None:
        self._echoes = True
        self._register(confirmed=True)

    def _on_role_frame(self, _frame_type: int, payload: bytes, _now: Instant) -> None:
        deliver = wire.decode_deliver(payload, with_preimage=self._with_preimage)
        if len(self._unanswered) >= DELIVERIES_MAX:
            raise MalformedError(Refusal.RECIPIENT_QUEUE_FULL, f"{DELIVERIES_MAX} deliveries without an answer")
        self._register(confirmed=True)
        self._unanswered.add(deliver.message_id)
        self._events.append(Delivered(deliver.message_id, deliver.payload, deliver.preimage))

    def _register(self, *, confirmed: bool) -> None:
        if not self._registered:
            self._registered = True
            self._events.append(Registered(confirmed, self._with_preimage))

    def _on_due(self, now: Instant) -> None:
        if self._echoes and now >= after_ms(self._heard_at, SILENCE_MS):
            self._close(Refusal.IDLE_TIMEOUT)
            return
        if not self._registered and now >= self._confirm_by:
            self._register(confirmed=False)
        if now >= self._keepalive_at:
            self._send(messages.Keepalive())
            self._keepalive_at = after_ms(now, KEEPALIVE_MS)

    def _next_due(self) -> Instant | None:
        due = self._keepalive_at
        if self._echoes:
            due = min(due, after_ms(self._heard_at, SILENCE_MS))
        return due if self._registered else min(due, self._confirm_by)

    def _on_end(self) -> None:
        self._unanswered.clear()


def _within_quota(responses: Sequence[messages.RecentResponse]) -> tuple[messages.RecentResponse, ...]:
    """Return the responses, first ones first, that one I_AM may carry."""
    kept: list[messages.RecentResponse] = []
    left = wire.CARRIED_BYTES_MAX
    for response in responses[: wire.CARRIED_COUNT_MAX]:
        left -= len(response.response)
        if left < 0:
            break
        kept.append(response)
    return tuple(kept)
