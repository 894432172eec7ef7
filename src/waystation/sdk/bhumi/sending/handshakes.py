"""Pairs a Bhumi sender with the maker of an invite; a handshake without an outcome goes on with its very bytes."""

import random
from dataclasses import dataclass
from typing import Final

from waystation.core.errors import HostError
from waystation.protocols.bhumi.messages import PREIMAGE_BYTES
from waystation.protocols.bhumi.payload.contents import (
    NO_PREIMAGE,
    HandshakeComplete,
    HandshakeInit,
    ResponseStatus,
)
from waystation.protocols.bhumi.payload.invite import Invite
from waystation.protocols.bhumi.payload.pairing import root_with
from waystation.protocols.bhumi.payload.suites import SharedSecrets
from waystation.sdk.bhumi.dialect import Dialect, dialect_of, write_request
from waystation.sdk.bhumi.pairing.named import dialect_of_invite
from waystation.sdk.bhumi.sending.delivery import Delivery, Ended
from waystation.sdk.bhumi.sending.exchange import Exchanges, nothing_sent
from waystation.sdk.bhumi.sending.outgoing import Outgoing
from waystation.sdk.bhumi.sending.reading import Opened
from waystation.sdk.bhumi.sending.retry import Timeouts, Verdict
from waystation.sdk.bhumi.state import BhumiState, HandshakeFacts, PeerRecord, Pending, PendingKind
from waystation.sdk.errors import InviteRefusedError, OfflineError, RelayUnreachableError, UncertainError

__all__ = ["Handshake", "Handshakes"]

_REFUSED: Final = (
    "the invite was refused: it was used already, the inviter does not know it, or uses another --e2e; "
    "ask for a new invite"
)


@dataclass(slots=True)
class Handshake:
    """An invite that is being used, whoever waits for it."""

    invite: Invite
    alias: str
    timeouts: Timeouts
    delivery: Delivery | None = None

    @property
    def may_have_arrived(self) -> bool:
        """Whether the inviter may have it, or may get it yet."""
        return self.delivery is not None and self.delivery.may_have_arrived


class Handshakes:
    """What all handshakes of one sender share."""

    def __init__(
        self,
        state: BhumiState,
        outgoing: Outgoing,
        exchanges: Exchanges,
        secrets: SharedSecrets,
        dialect: Dialect | None,
        url: str,
        rng: random.Random,
    ) -> None:
        """Describe them; ``dialect``, ``url`` (our first relay) and ``rng`` are those of ``Sender``."""
        self._state = state
        self._outgoing = outgoing
        self._exchanges = exchanges
        self._secrets = secrets
        self._dialect = dialect
        self._url = url
        self._rng = rng
        self._resumed: set[bytes] = set()
        """Invites with which a second call went on: its bytes are those of the first one, and may have left since."""

    async def run(self, handshake: Handshake) -> PeerRecord:
        """Use an invite, and return its maker; raises as ``Sender.accept``."""
        await self._state.unlocked()
        pending, back, in_doubt = self._begin(handshake)
        delivery = Delivery(pending, handshake.timeouts, in_doubt=in_doubt)
        handshake.delivery = delivery
        try:
            ended = await self._exchanges.deliver(delivery)
        except BaseException:
            if not delivery.may_have_arrived and pending.preimage not in self._resumed:
                self._undo(pending, back, was_out=delivery.was_out)
            raise
        await self._state.unlocked()
        return self.finish(pending, ended, back, was_out=delivery.was_out)

    def finish(self, pending: Pending, ended: Ended, back: bytes, *, was_out: bool) -> PeerRecord:
        """Record the peer and return it, or undo what was certainly not delivered, and raise.

        Args:
            pending: The handshake.
            ended: How it ended.
            back: What was issued for the inviter, 32 bytes; empty when a former call did that.
            was_out: Whether it has left.
        """
        if ended.verdict is Verdict.ANSWERED:
            assert ended.answer is not None
            return self._take_answer(pending, ended.answer, back)
        paired = self._state.inviter_of(pending.preimage)
        if paired is not None:  # by the answer to a call before this one, which went on behind
            self._state.withdraw(back)
            return paired
        if ended.in_doubt and ended.verdict is not Verdict.UNREADABLE:
            raise UncertainError(f"the handshake got no outcome ({ended.reason}); accept the same token again")
        # Undone although it may have arrived: then its answer comes to the next handshake with this token.
        self._undo(pending, back, was_out=was_out)
        if ended.verdict is Verdict.OFFLINE:
            raise OfflineError(f"the inviter is not connected to {ended.places}; try the token again later")
        if ended.verdict is Verdict.UNREACHABLE:
            raise RelayUnreachableError(ended.reason)
        raise InviteRefusedError(_REFUSED)

    def _begin(self, handshake: Handshake) -> tuple[Pending, bytes, bool]:
        """Return the pending handshake, what it issues for the inviter, and whether it may have left before."""
        invite = handshake.invite
        known = self._state.peer(invite.identity)
        dialect = dialect_of_invite(self._dialect, invite, known)
        pending = next((each for each in self._state.pending() if each.preimage == invite.preimage), None)
        if pending is not None:
            if self._dialect in {None, dialect_of(pending.preimage, pending.payload)}:
                self._resumed.add(pending.preimage)
                return self._outgoing.own(pending, PendingKind.HANDSHAKE), b"", True
            # In another dialect these are other bytes; an invite is good for one pairing, whichever arrives first.
            self._undo(pending, b"", was_out=True)
        back = self._rng.randbytes(PREIMAGE_BYTES)
        request = HandshakeInit(self._state.identity, back, self._url)
        payload = write_request(
            *(dialect, self._secrets, invite.identity, invite.preimage, request, self._rng), secret=invite.secret
        )
        root = b"" if invite.is_legacy else root_with(self._secrets, invite.identity, invite.secret)
        with nothing_sent():
            begun = self._state.begin_handshake(invite.preimage, invite.identity, payload, handshake.alias, back, root)
        return self._outgoing.own(begun, PendingKind.HANDSHAKE), back, pending is not None

    def _take_answer(self, pending: Pending, opened: Opened, back: bytes) -> PeerRecord:
        answer = opened.answer
        if not isinstance(answer, HandshakeComplete) or answer.status is not ResponseStatus.OK:
            self._undo(pending, back, was_out=False)
            # BHUMI-MCU: a device that refuses says why in the place of its address.
            reason = answer.url if isinstance(answer, HandshakeComplete) and answer.url.isprintable() else ""
            raise InviteRefusedError(f"the inviter refuses: {reason}" if reason else _REFUSED)
        self._resumed.discard(pending.preimage)
        gained = () if answer.preimage == NO_PREIMAGE else (answer.preimage,)
        facts = HandshakeFacts(pending.alias, answer.url, dialect=opened.dialect, root=pending.root)
        try:
            self._outgoing.finish(pending, gained, facts)
        except HostError as error:
            sentence = f"the inviter has accepted, and it cannot be noted; accept the same token again: {error}"
            raise HostError(sentence, exit_code=error.exit_code) from error
        known = self._state.peer(pending.peer)
        assert known is not None
        return known

    def _undo(self, pending: Pending, back: bytes, *, was_out: bool) -> None:
        with self._state.transaction():
            # By now a later call may have written other bytes for this invite, which may have left: those stay.
            if any(each.payload == pending.payload for each in self._state.pending()):
                self._state.finish(pending.preimage, pending.peer, ())
            if was_out or pending.preimage in self._resumed:  # the inviter may have it, with the permission it brings
                self._outgoing.keep_head(pending)
            else:
                self._state.withdraw(back)
