"""A Bhumi device's connection to its relay: it proves its identity, registers commits, and answers deliveries.

A commit is the hash of a 32-byte secret (preimage) that permits one request. The seed's relay never answers I_AM, so
the device sends KEEPALIVE after it. An echo confirms the registration, because a refused I_AM closes the connection.
The reference relay does not echo; there, ``CONFIRM_MS`` without a close counts as success. A relay that negotiated
I_AM_OK confirms explicitly, and only that counts (BHUMI-X).

OPTIONS can also negotiate BIND (proof bound to this relay), PRESENCE, the list of relays, and probes. Frames of a
feature that the relay did not accept are ignored.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from waystation.core.ids import PublicKey
from waystation.core.instant import Instant, after_ms
from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.bhumi import extension_wire, messages, signed_records, wire
from waystation.protocols.bhumi.client.base import Client, Greeted, State, Unsent
from waystation.protocols.bhumi.client.keepalive import SILENCE_MS, KeepaliveTimer
from waystation.protocols.bhumi.extension_messages import (
    BindProof,
    ExtensionMessage,
    Presence,
    QaReport,
    QaRequest,
    QaVerdict,
    RelayAd,
    RelaysRequest,
    RevokeCommits,
)
from waystation.protocols.bhumi.messages import Feature, FrameType
from waystation.protocols.bhumi.refusals import MalformedError, Refusal

__all__ = [
    "CONFIRM_MS",
    "DELIVERIES_MAX",
    "DEVICE_FEATURES",
    "I_AM_OK_MS",
    "PROBES_MAX",
    "PROBES_WINDOW_MS",
    "Delivered",
    "DeviceClient",
    "ProbeAsked",
    "Registered",
    "RelayNamed",
    "RelaysReceived",
]

CONFIRM_MS: Final = 1_000  # ours: longer than any round trip on which the 30 s of an ACK make sense
I_AM_OK_MS: Final = 15_000  # ours: a relay gives a proof 10 s (BHUMI-X), and its answer has to travel
DELIVERIES_MAX: Final = 1_024  # ours; the relay holds back after 32 without ACK (BHUMI-A12), other relays may not
PROBES_MAX: Final = 4  # ours: a relay may ask once in ten minutes; more than this is not even worth an answer
PROBES_WINDOW_MS: Final = 600_000  # BHUMI-PROBE
DEVICE_FEATURES: Final = Feature.PRESENCE | Feature.QA | Feature.BINDING | Feature.I_AM_OK
"""What a device of this version asks for besides the preimage."""
_REVOKED_PER_FRAME: Final = 1_024  # 32 KiB, half of what an extension frame may have
_NO_FEATURES: Final = Feature(0)
_TYPES_IN_OPEN: Final = (
    FrameType.DELIVER,
    FrameType.KEEPALIVE,
    FrameType.OPTIONS,
    FrameType.BIND,
    FrameType.I_AM_OK,
    FrameType.RELAYS,
    FrameType.QA_REQUEST,
    FrameType.AUTHORITY,
)
_FEATURE_OF: Final = {
    FrameType.BIND: Feature.BINDING,
    FrameType.I_AM_OK: Feature.I_AM_OK,
    FrameType.RELAYS: Feature.PRESENCE,
    FrameType.QA_REQUEST: Feature.QA,
    FrameType.AUTHORITY: Feature.AUTHORITY,
}


@dataclass(frozen=True, slots=True)
class Registered:
    """The relay has taken the I_AM."""

    confirmed: bool
    """False when this rests on silence, as with the original relay."""
    with_preimage: bool
    """True when deliveries name their preimage."""
    commits_count: int | None = None
    """Commits that the relay has now; None when it does not say."""
    responses_count: int | None = None
    """Carried responses that the relay keeps; None when it does not say."""


@dataclass(frozen=True, slots=True)
class RelayNamed:
    """The relay says who it is, and has got a proof that is good for nobody else."""

    relay_id: PublicKey
    """32-byte key; the relay has not proved that it is its own."""


@dataclass(frozen=True, slots=True)
class RelaysReceived:
    """The answer to ``DeviceClient.ask_relays``; nothing in it has been verified."""

    adverts: tuple[RelayAd, ...]


@dataclass(frozen=True, slots=True)
class ProbeAsked:
    """The relay would like to have another one tried; ``DeviceClient.refuse_probe`` says no, silence says nothing."""

    probe_id: int
    address: str
    deadline_s: int


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
        features: Feature = _NO_FEATURES,
        relay_id: PublicKey | None = None,
        silence_ms: int = SILENCE_MS,
    ) -> None:
        """Describe a device's connection.

        Args:
            key_pair: Who the device is.
            commits: 32 bytes each; at most 4,096 go to the relay.
            responses: Recent answers the relay may give to retries (6.6).
            ask_preimage: Send OPTIONS, asking for the preimage in DELIVER.
            always_preimage: The relay puts the preimage into every DELIVER unasked, as the original one does.
            features: What to ask for besides the preimage, see ``DEVICE_FEATURES``; nothing by default.
            relay_id: Key that the relay is known by. One that names another in BIND gets no proof, and is left:
                otherwise a relay in the middle could register as this device elsewhere (BHUMI-MIDDLE).
            silence_ms: A relay that echoes KEEPALIVE and then says nothing for so long is left.
        """
        super().__init__(_TYPES_IN_OPEN)
        self._key_pair = key_pair
        self._commits = tuple(commits)
        self._responses = tuple(responses)
        self._ask_preimage = ask_preimage
        self._asked = features | (Feature.DELIVER_WITH_PREIMAGE if ask_preimage else _NO_FEATURES)
        self._accepted = _NO_FEATURES
        self._with_preimage = always_preimage
        self._relay_id = relay_id
        self._is_bound = False
        self.can_revoke = False
        """Whether the relay knows REVOKE_COMMITS: it has answered OPTIONS."""
        self._asks_relays = False
        self._nonce = 0
        self._unanswered: set[int] = set()
        self._registered = False
        self._echoes = False
        self._confirm_by = Instant(0)
        self._keepalive = KeepaliveTimer(silence_ms)
        self._probes: set[int] = set()
        self._probes_until = Instant(0)
        self._probes_count = 0
        self.probes_ignored_count = 0
        """Probes that the relay asked for beyond ``PROBES_MAX`` in ten minutes; they got no answer."""

    def accepts(self, feature: Feature) -> bool:
        """Return whether the relay has accepted a feature that was asked for."""
        return feature in self._accepted

    def answer(self, message_id: int, payload: bytes) -> Unsent | None:
        """Answer a delivery; None means that the ACK is on its way."""
        if self.state is not State.OPEN:
            return Unsent.NOT_OPEN
        # Bhumi v2 5.5: one ACK per delivery; a second would count as a strike at the relay.
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
        # BHUMI-C4: no frame carries more than 4,096.
        for start in range(0, len(added), wire.COMMITS_MAX):
            self._send(messages.UpdateCommits(added[start : start + wire.COMMITS_MAX]))

    def revoke_commits(self, commits: Sequence[bytes]) -> Unsent | None:
        """Take commits out of the relay's set; None means that all of them are on their way (BHUMI-26)."""
        if self.state is not State.OPEN:
            return Unsent.NOT_OPEN
        if not self.can_revoke:
            return Unsent.NOT_ACCEPTED
        for start in range(0, len(commits), _REVOKED_PER_FRAME):
            frame = RevokeCommits(tuple(commits[start : start + _REVOKED_PER_FRAME]))
            self._send_bytes(extension_wire.encode_extension(frame))
        return None

    def replace(self, commits: Sequence[bytes], responses: Sequence[messages.RecentResponse] = ()) -> None:
        """Replace the relay's set, and offer recent answers, by a second I_AM on the same nonce (BHUMI-8)."""
        self._commits = tuple(commits)
        self._responses = tuple(responses)
        if self.state is State.OPEN:
            self._introduce()

    def assert_presence(self, presence: Presence) -> Unsent | None:
        """Hand the relay a signed presence of this device, at this relay or at another one.

        Call it once ``Registered``: before that the relay does not know whose connection this is.
        """
        return self._send_extension(Feature.PRESENCE, presence)

    def ask_relays(self) -> Unsent | None:
        """Ask which relays this one knows, its own advert first; ``RelaysReceived`` answers."""
        unsent = self._send_extension(Feature.PRESENCE, RelaysRequest())
        self._asks_relays = self._asks_relays or unsent is None
        return unsent

    def refuse_probe(self, probe_id: int) -> Unsent | None:
        """Refuse a probe that the relay asked for. No result is ever sent (BHUMI-QALOCAL)."""
        if probe_id not in self._probes:
            return Unsent.UNKNOWN_DELIVERY
        self._probes.discard(probe_id)
        return self._send_extension(Feature.QA, QaReport(probe_id, QaVerdict.REFUSED))

    def _send_extension(self, feature: Feature, message: ExtensionMessage) -> Unsent | None:
        if self.state is not State.OPEN:
            return Unsent.NOT_OPEN
        if not self.accepts(feature):
            return Unsent.NOT_ACCEPTED
        self._send_bytes(extension_wire.encode_extension(message))
        return None

    def _introduce(self) -> None:
        identity = self._key_pair.public
        signature = sign(self._key_pair, wire.signed_bytes(self._nonce, identity))
        # BHUMI-C2: what exceeds the quota would be dropped, so the newest that fit are sent.
        carried = _within_quota(self._responses)
        self._send(messages.IAm(identity, signature, self._commits[: wire.COMMITS_MAX], carried))

    def _on_open(self, relay_nonce: int, now: Instant) -> None:
        self._nonce = relay_nonce
        self._events.append(Greeted(self.max_payload_bytes))
        if self._asked:
            # OPTIONS goes before I_AM: the original ignores it, ours answers before anything else.
            self._send(messages.Options(self._asked))
        self._introduce()
        self._send(messages.Keepalive())
        # BHUMI-M: I_AM has no answer; the echo of KEEPALIVE after it, or silence, says that it was taken.
        self._confirm_by = after_ms(now, CONFIRM_MS)
        self._keepalive.sent(now)

    def _on_options(self, options: messages.Options) -> None:
        # A relay cannot switch on what was not asked for.
        self._accepted = options.features & self._asked
        self.can_revoke = True
        if self._ask_preimage:
            self._with_preimage = Feature.DELIVER_WITH_PREIMAGE in self._accepted

    def _on_keepalive(self) -> None:
        self._echoes = True
        if not self.accepts(Feature.I_AM_OK):
            self._register(Registered(confirmed=True, with_preimage=self._with_preimage))

    def _on_role_frame(self, frame_type: int, payload: bytes, now: Instant) -> None:
        if frame_type == FrameType.DELIVER:
            self._on_deliver(payload)
            return
        if not self.accepts(_FEATURE_OF[FrameType(frame_type)]):
            return
        if frame_type == FrameType.I_AM_OK:
            taken = extension_wire.decode_i_am_ok(payload)
            self._register(
                Registered(
                    confirmed=True,
                    with_preimage=self._with_preimage,
                    commits_count=taken.commits_count,
                    responses_count=taken.responses_count,
                )
            )
        elif frame_type == FrameType.BIND:
            self._on_bind(payload)
        elif frame_type == FrameType.AUTHORITY:
            self._on_authority(payload)
        elif frame_type == FrameType.RELAYS:
            received = RelaysReceived(extension_wire.decode_relays(payload).adverts)
            if self._asks_relays:
                self._asks_relays = False
                self._events.append(received)
        else:
            self._on_qa_request(extension_wire.decode_qa_request(payload), now)

    def _on_deliver(self, payload: bytes) -> None:
        deliver = wire.decode_deliver(payload, with_preimage=self._with_preimage)
        # BHUMI-A12: a relay that keeps to the queue never sends more at once.
        if len(self._unanswered) >= DELIVERIES_MAX:
            raise MalformedError(Refusal.RECIPIENT_QUEUE_FULL, f"{DELIVERIES_MAX} deliveries without an answer")
        if not self.accepts(Feature.I_AM_OK):
            self._register(Registered(confirmed=True, with_preimage=self._with_preimage))
        self._unanswered.add(deliver.message_id)
        self._events.append(Delivered(deliver.message_id, deliver.payload, deliver.preimage))

    def _on_bind(self, payload: bytes) -> None:
        challenge = extension_wire.decode_bind_challenge(payload)
        if self._is_bound:  # one proof a connection: a relay gets no more signatures than it needs
            return
        # BHUMI-MIDDLE: no signature for a relay that names another than the one that was dialled.
        if self._relay_id is not None and challenge.relay_id != self._relay_id:
            raise MalformedError(Refusal.OTHER_IDENTITY, "BIND names another relay than the one that was dialled")
        self._is_bound = True
        proof = BindProof(signed_records.sign_binding(self._key_pair, challenge))
        self._send_bytes(extension_wire.encode_extension(proof))
        self._events.append(RelayNamed(challenge.relay_id))

    def _on_qa_request(self, request: QaRequest, now: Instant) -> None:
        if now >= self._probes_until:
            self._probes_until = after_ms(now, PROBES_WINDOW_MS)
            self._probes_count = 0
            self._probes.clear()
        # BHUMI-PROBE: four requests in ten minutes get an answer, more get none.
        if self._probes_count >= PROBES_MAX:
            self.probes_ignored_count += 1
            return
        self._probes_count += 1
        self._probes.add(request.probe_id)
        self._events.append(ProbeAsked(request.probe_id, request.address, request.deadline_s))

    def _register(self, registered: Registered) -> None:
        if not self._registered:
            self._registered = True
            self._events.append(registered)

    def _on_due(self, now: Instant) -> None:
        # Only a relay that echoes KEEPALIVE can be missed; the original never does.
        if self._echoes and now >= self._keepalive.gone_at(self._received_at):
            self._close(Refusal.IDLE_TIMEOUT)
            return
        if not self._registered and now >= self._due_for_registration():
            if self.accepts(Feature.I_AM_OK):  # it promised an answer: without one we are not registered
                self._close(Refusal.IDLE_TIMEOUT)
                return
            self._register(Registered(confirmed=False, with_preimage=self._with_preimage))
        if now >= self._keepalive.due_at(self._received_at, echoes=self._echoes):
            self._send(messages.Keepalive())
            self._keepalive.sent(now)

    def _next_due(self) -> Instant | None:
        due = self._keepalive.due_at(self._received_at, echoes=self._echoes)
        if self._echoes:
            due = min(due, self._keepalive.gone_at(self._received_at))
        return due if self._registered else min(due, self._due_for_registration())

    def _due_for_registration(self) -> Instant:
        if self.accepts(Feature.I_AM_OK):
            return after_ms(self._confirm_by, I_AM_OK_MS - CONFIRM_MS)
        return self._confirm_by

    def _on_end(self) -> None:
        self._unanswered.clear()
        self._probes.clear()


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
