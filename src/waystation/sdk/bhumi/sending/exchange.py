"""One request of a Bhumi sender, from the permission that it takes to its outcome.

A request that may have been delivered keeps its preimage and its bytes until its peer's answer opens. Its content never
leaves under a second preimage, unless the caller has said that it may arrive twice, or the peer has proved, by the
answer to a former request under this preimage, that it will never handle this one.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from waystation.core.errors import HostError
from waystation.core.ids import PublicKey
from waystation.protocols.bhumi.payload.contents import NO_PREIMAGE, DeviceMessage, MessageResponse
from waystation.sdk.bhumi.events import SenderEvent, Trouble
from waystation.sdk.bhumi.outcome import Outcome, Reply
from waystation.sdk.bhumi.sending.delivery import Deliveries, Delivery, Ended
from waystation.sdk.bhumi.sending.outgoing import Outgoing
from waystation.sdk.bhumi.sending.reading import AnswerReader, Opened
from waystation.sdk.bhumi.sending.retry import Timeouts, Verdict
from waystation.sdk.bhumi.state import BhumiState, PeerRecord, Pending, PendingKind
from waystation.sdk.errors import (
    AnswerError,
    NoPreimageError,
    OfflineError,
    PermissionsInDoubtError,
    PermissionUnknownError,
    RelayUnreachableError,
    UncertainError,
)

__all__ = ["Exchanges", "Work", "nothing_sent"]


@dataclass(slots=True)
class Work:
    """A request that is being worked on, whoever waits for it."""

    peer: PeerRecord
    message: DeviceMessage
    timeouts: Timeouts
    kind: PendingKind = PendingKind.MESSAGE
    repeatable: bool = False
    delivery: Delivery | None = None
    """Under its permission of now; None before it has one."""
    has_doubt: bool = False
    """Whether it may have arrived under a permission before this one."""

    @property
    def may_have_arrived(self) -> bool:
        """Whether the peer may have it, or may get it yet."""
        return self.has_doubt or (self.delivery is not None and self.delivery.may_have_arrived)


class Exchanges:
    """What all requests of one sender share."""

    def __init__(
        self,
        state: BhumiState,
        outgoing: Outgoing,
        deliveries: Deliveries,
        reader: AnswerReader,
        write: Callable[[PeerRecord, bytes, DeviceMessage], bytes],
        note_url: Callable[[PublicKey, str], None],
        report: Callable[[SenderEvent], None],
    ) -> None:
        """Describe them.

        Args:
            state: The participant's folder.
            outgoing: Its permissions and pending requests.
            deliveries: Its connections.
            reader: Opens answers.
            write: Returns the opaque payload for a peer, preimage and message.
            note_url: Called with where a peer says that it is.
            report: Gets what is worth knowing.
        """
        self._state = state
        self._outgoing = outgoing
        self._deliveries = deliveries
        self._reader = reader
        self._write = write
        self._note_url = note_url
        self._report = report
        self.active: set[bytes] = set()
        """Preimages whose requests are worked on."""

    async def run(self, work: Work) -> Reply:
        """Send a request, and return what the peer answered.

        Raises:
            OfflineError, PermissionUnknownError, PermissionsInDoubtError, NoPreimageError: Nothing was delivered.
            UncertainError, AnswerError: It may have been; it stays pending.
            RelayUnreachableError: No relay was reached; nothing was delivered.
            LocalError: It is too large, or cannot be said in this dialect.
            HostError: The disk refuses to note the request; nothing was sent.
        """
        began = asyncio.get_running_loop().time()
        tries_count = 0
        tried: set[bytes] = set()
        while (pending := await self._take(work, tried)) is not None:
            tried.add(pending.preimage)
            delivery = Delivery(pending, work.timeouts, repeatable=work.repeatable)
            work.delivery = delivery
            try:
                ended = await self.deliver(delivery)
            except BaseException as error:
                # Cancelled, or too large: what has not left takes its permission back, all else stays pending.
                if not delivery.may_have_arrived and not isinstance(error, HostError):
                    self._outgoing.note(partial(self._outgoing.give_back, pending, was_out=delivery.was_out))
                raise
            tries_count += ended.tries_count
            reply = self._conclude(work, delivery, ended)
            if reply is not None:
                return replace(reply, latency_s=asyncio.get_running_loop().time() - began, tries_count=tries_count)
        raise self._none_left(work)

    async def deliver(self, delivery: Delivery) -> Ended:
        """Try until a request has an outcome or time runs out; raises LocalError when it is too large."""
        preimage = delivery.pending.preimage
        self.active.add(preimage)
        try:
            return await self._deliveries.deliver(delivery, self._reader.read)
        finally:
            self.active.discard(preimage)

    def finish_message(self, pending: Pending, opened: Opened) -> Reply:
        """Take over what an answer gives, and return the reply, whatever our disk says.

        Raises:
            AnswerError: The peer has answered, but not what was asked.
        """
        answer = opened.answer
        if not isinstance(answer, MessageResponse):
            self._finish(pending, ())
            raise AnswerError("the peer takes the request for a handshake; does it use another --e2e?")
        self._finish(pending, () if answer.next_preimage == NO_PREIMAGE else (answer.next_preimage,))
        with contextlib.suppress(HostError):
            self._note_url(pending.peer, answer.url)
        outcome = Outcome.FAILED if answer.status else Outcome.ANSWERED
        return Reply(outcome, answer.status, answer.content)

    async def _take(self, work: Work, tried: set[bytes]) -> Pending | None:
        """Note a request before it leaves; raises HostError when the disk refuses, and UncertainError after a doubt."""

        def write(preimage: bytes) -> bytes:
            return self._write(work.peer, preimage, work.message)

        await self._state.unlocked()
        try:
            with nothing_sent():
                return self._outgoing.take(work.peer.identity, work.kind, write, tried, work.peer.root)
        except HostError as error:
            if not work.has_doubt:
                raise
            raise UncertainError(f"{work.peer.name} may have handled the request before; now {error}") from error

    def _conclude(self, work: Work, delivery: Delivery, ended: Ended) -> Reply | None:
        """Return the reply, or None when the content goes on under the next permission; raises as ``run``."""
        pending, peer = delivery.pending, work.peer
        if ended.verdict is Verdict.ANSWERED:
            assert ended.answer is not None
            if not ended.answer.is_earlier:
                return self.finish_message(pending, ended.answer)
            self._settle_earlier(peer, pending, ended.answer)
            return None
        if ended.in_doubt:  # the preimage and the very bytes stay
            if ended.verdict is Verdict.SPENT:  # and so does the doubt, under another permission
                work.has_doubt = True
                return None
            raise self._doubt(peer, ended)
        if ended.verdict is Verdict.SPENT:
            self._outgoing.note(partial(self._outgoing.put_behind, pending))
            if work.repeatable:
                return None
            raise self._unknown(peer)
        self._outgoing.note(partial(self._outgoing.give_back, pending, was_out=delivery.was_out))
        if work.has_doubt:
            raise UncertainError(
                f"{peer.name} may have handled the request, and it could not be asked again ({ended.reason})"
            )
        if ended.verdict is Verdict.OFFLINE:
            raise OfflineError(f"{peer.name} is not connected to {ended.places}; nothing was delivered")
        raise RelayUnreachableError(ended.reason)

    def _settle_earlier(self, peer: PeerRecord, pending: Pending, opened: Opened) -> None:
        """Take over the answer to a former request, of which a relay has said that it was not delivered."""
        self._report(
            Trouble(
                f"a relay said that a request to {peer.name} was not delivered, but it was: {peer.name} has answered it"
            )
        )
        reply = self.finish_message(pending, opened)
        note = "was answered, though a relay had said that it was not delivered"
        self._outgoing.note(partial(self._outgoing.keep_outcome, pending, reply, note))

    def _doubt(self, peer: PeerRecord, ended: Ended) -> Exception:
        if ended.verdict is Verdict.UNREADABLE:
            return AnswerError(
                f"{ended.reason}; {peer.name} may have got the request, and its outcome is asked for again: it stays "
                "pending"
            )
        return UncertainError(
            f"no outcome in time ({ended.reason}): {peer.name} may have got the request, or not; it stays pending, and "
            f"the next request to {peer.name} asks for its outcome first"
        )

    def _none_left(self, work: Work) -> Exception:
        peer = work.peer
        if work.has_doubt:
            return UncertainError(
                f"{peer.name} may have handled the request; it stays pending, and no other permission is left for it"
            )
        if self._outgoing.of_peer(peer.identity):
            return PermissionsInDoubtError(
                f"every permission to send to {peer.name} waits for the outcome of an earlier request; "
                f"they are free again when {peer.name} can be reached and has answered; if that stays so while "
                f"{peer.name} is connected, ask them for a new invite"
            )
        if self._state.next_right(peer.identity) is not None:
            return self._unknown(peer)
        return NoPreimageError(f"no permission to send to {peer.name} is left; ask them for a new invite")

    def _unknown(self, peer: PeerRecord) -> Exception:
        known = self._state.peer(peer.identity)
        if known is not None and known.rights:
            return PermissionUnknownError(
                f"nothing was delivered: {peer.name} does not take the permission that was used; send again, and "
                "another one is used"
            )
        return PermissionUnknownError(
            f"nothing was delivered: by what the relay says, {peer.name} takes none of the permissions that you have. "
            "It has unpaired or blocked this identity, or lost its state; ask for a new invite"
        )

    def _finish(self, pending: Pending, gained: tuple[bytes, ...]) -> None:
        self._outgoing.note(partial(self._outgoing.finish, pending, gained))


@contextlib.contextmanager
def nothing_sent() -> Iterator[None]:
    """Say in the error of a disk that refuses that nothing was sent."""
    try:
        yield
    except HostError as error:
        raise HostError(f"nothing was sent: {error}", exit_code=error.exit_code) from error
