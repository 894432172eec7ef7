"""The client side of a connection that this relay dialled to gossip with another relay.

To the other relay it is an ordinary connection. We send OPTIONS, then I_AM under our own key without commits, the BIND
proof, and GOSSIP. The other side's identity is only claimed. That is harmless, because every received record is signed
by its owner (BHUMI-LINK).

    WAITING    HELLO                          -> OPTIONS
    OPEN       OPTIONS, then BIND if offered  -> I_AM, proof; the link is established
               GOSSIP                         -> records
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from waystation.core.effects import Peer
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant, after_ms
from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.bhumi import extension_wire, messages, wire
from waystation.protocols.bhumi.client.base import Client, State
from waystation.protocols.bhumi.client.keepalive import KeepaliveTimer
from waystation.protocols.bhumi.extension_messages import BindChallenge, BindProof
from waystation.protocols.bhumi.messages import Feature, FrameType
from waystation.protocols.bhumi.refusals import MalformedError, Refusal
from waystation.protocols.bhumi.session import WRITE_TIMEOUT_MS
from waystation.protocols.bhumi.signed_records import sign_binding

__all__ = ["STANDS_WITHIN_MS", "GossipReceived", "Linked", "RelayLink"]

STANDS_WITHIN_MS: Final = 10_000  # from HELLO until the link stands, as long as a frame may take (BHUMI-L)
_TYPES_IN_OPEN: Final = (
    FrameType.KEEPALIVE,
    FrameType.OPTIONS,
    FrameType.BIND,
    FrameType.I_AM_OK,
    FrameType.GOSSIP,
)
_WANTED: Final = Feature.PRESENCE | Feature.BINDING


@dataclass(frozen=True, slots=True)
class Linked:
    """The link stands: both sides may gossip."""

    relay_id: PublicKey | None
    """Who the other side says it is, None when it does not say."""


@dataclass(frozen=True, slots=True)
class GossipReceived:
    """A GOSSIP frame came; its payload has not been looked at."""

    payload: bytes


class RelayLink(Client):
    """One connection to another relay."""

    def __init__(self, key_pair: KeyPair, name: str, judge: Callable[[str, BindChallenge], Refusal | None]) -> None:
        """Describe a link.

        Args:
            key_pair: Our own key.
            name: The address that was dialled.
            judge: Asked with the name and the challenge, which says who is there; a refusal closes the connection.
        """
        super().__init__(_TYPES_IN_OPEN)
        self._key_pair = key_pair
        self.name = name
        self._judge = judge
        self._nonce = 0
        self._stands_by: Instant | None = None
        self._keepalive = KeepaliveTimer()
        self._is_answered = False
        self.stands = False
        self.connected_at = Instant(0)
        self.waiting_since: Instant | None = None
        """Since when bytes wait for the other side, without it taking any; None when none do."""
        self.relay_id: PublicKey | None = None
        """Who the other side says it is."""

    @property
    def peer(self) -> Peer:
        """The connection's number."""
        assert self._peer is not None
        return self._peer

    def connect(self, peer: Peer, now: Instant, address: str = "") -> None:
        """Take the connection over."""
        super().connect(peer, now, address)
        self.connected_at = now

    def congested(self, peer: Peer, now: Instant) -> None:  # noqa: ARG002 - there is one
        """Note that bytes wait, or that fewer wait than before."""
        self.waiting_since = now

    def drained(self, peer: Peer, now: Instant) -> None:  # noqa: ARG002 - there is one
        """Note that no byte waits."""
        self.waiting_since = None

    def wake(self, now: Instant) -> None:
        """Act on whatever has become due; a peer that takes nothing is cut, in any state."""
        unread_by = self._unread_by()
        # BHUMI-A15 holds for links as well: a peer that takes nothing for 10 s is cut.
        if self.state is not State.CLOSED and unread_by is not None and now >= unread_by:
            self._close(Refusal.WRITE_TIMEOUT)
        else:
            super().wake(now)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` must be called next."""
        times = [at for at in (super().deadline(), self._unread_by()) if at is not None]
        return min(times, default=None) if self.state is not State.CLOSED else None

    def shut(self, refusal: Refusal) -> None:
        """Close the link from our side."""
        if self.state is not State.CLOSED:
            self._close(refusal)

    def _unread_by(self) -> Instant | None:
        return after_ms(self.waiting_since, WRITE_TIMEOUT_MS) if self.waiting_since is not None else None

    def _on_open(self, relay_nonce: int, now: Instant) -> None:
        self._nonce = relay_nonce
        self._stands_by = after_ms(now, STANDS_WITHIN_MS)
        self._keepalive.sent(now)
        self._send(messages.Options(_WANTED))

    def _on_options(self, options: messages.Options) -> None:
        if self._is_answered:
            return
        self._is_answered = True
        # A relay without gossip is of no use as a link; a relay without binding is, unproven.
        if Feature.PRESENCE not in options.features:
            raise MalformedError(Refusal.NO_GOSSIP, "the other side does not gossip")
        if Feature.BINDING not in options.features:
            self._introduce(None)

    def _on_keepalive(self) -> None:
        """Ignore the echo: that something came is what matters."""

    def _on_role_frame(self, frame_type: int, payload: bytes, _now: Instant) -> None:
        if frame_type == FrameType.BIND:
            self._on_challenge(extension_wire.decode_bind_challenge(payload))
        elif frame_type == FrameType.GOSSIP and self.stands:
            self._events.append(GossipReceived(payload))

    def _on_challenge(self, challenge: BindChallenge) -> None:
        # BHUMI-BINDING: the challenge comes right after OPTIONS; at any other time it means nothing.
        if not self._is_answered or self.stands:
            return
        self.relay_id = challenge.relay_id
        # The link is judged before our own signature leaves.
        refusal = self._judge(self.name, challenge)
        if refusal is not None:
            raise MalformedError(refusal, "no link with this relay")
        self._introduce(challenge)

    def _introduce(self, challenge: BindChallenge | None) -> None:
        identity = self._key_pair.public
        signature = sign(self._key_pair, wire.signed_bytes(self._nonce, identity))
        self._send(messages.IAm(identity, signature))
        if challenge is not None:
            proof = BindProof(sign_binding(self._key_pair, challenge))
            self._send_bytes(extension_wire.encode_extension(proof))
        self._stands_by = None
        self.stands = True
        self._events.append(Linked(self.relay_id))

    def _on_due(self, now: Instant) -> None:
        if self._stands_by is not None and now >= self._stands_by:
            self._close(Refusal.NO_GOSSIP)
        # A KEEPALIVE without an echo: the link is dead.
        elif now >= self._keepalive.gone_at(self._received_at):
            self._close(Refusal.IDLE_TIMEOUT)
        elif now >= self._keepalive.due_at(self._received_at, echoes=True):
            self._send(messages.Keepalive())
            self._keepalive.sent(now)

    def _next_due(self) -> Instant | None:
        due = min(self._keepalive.due_at(self._received_at, echoes=True), self._keepalive.gone_at(self._received_at))
        return due if self._stands_by is None else min(due, self._stands_by)

    def _on_end(self) -> None:
        self._stands_by = None
