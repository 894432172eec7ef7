"""Asks on for the outcome of requests that were left without one, and looks after a peer's permissions meanwhile.

What is left behind by a former process, or by a call that was cancelled, is asked again with the very same bytes. A
peer that has just answered is asked for spare permissions, and for the outcomes that it still owes, behind the call.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from waystation.core.errors import HostError, RemoteError, WaystationError
from waystation.core.ids import PublicKey
from waystation.protocols.bhumi.messages import PREIMAGE_BYTES
from waystation.protocols.bhumi.payload.contents import Command, ContentType, DeviceMessage, encode_command
from waystation.sdk.bhumi.answers import SPARES_COMMAND
from waystation.sdk.bhumi.dialect import command_result
from waystation.sdk.bhumi.outcome import Reply
from waystation.sdk.bhumi.sending.delivery import Delivery
from waystation.sdk.bhumi.sending.exchange import Exchanges, Work
from waystation.sdk.bhumi.sending.handshakes import Handshakes
from waystation.sdk.bhumi.sending.liveness import Liveness
from waystation.sdk.bhumi.sending.outgoing import Outgoing
from waystation.sdk.bhumi.sending.retry import Timeouts, Verdict
from waystation.sdk.bhumi.state import BhumiState, Pending, PendingKind
from waystation.sdk.errors import AnswerError, OfflineError

__all__ = ["SPARES_WANTED", "Recovered", "Recovery"]

SPARES_WANTED: Final = 2  # BHUMI-D: keep at least two spares
_BEHIND: Final = Timeouts(doubt_s=5.0, settle_s=0.5)  # nobody waits for it; it is asked for again later
_AGAIN_S: Final = 60.0  # ours: what has no outcome behind one call is not asked for behind every other one
_POLL_S: Final = 0.1
_RESUMED_MAX: Final = 16  # ours: requests that are asked again at once


@dataclass(frozen=True, slots=True)
class Recovered:
    """What became of a request that a former process, or a cancelled call, left without an outcome."""

    peer: PublicKey
    kind: PendingKind
    reply: Reply | None
    """None for a handshake, and when the request still has no outcome."""
    note: str
    """A sentence for people."""


class Recovery:
    """Looks after what one sender has left behind."""

    def __init__(
        self,
        state: BhumiState,
        outgoing: Outgoing,
        exchanges: Exchanges,
        handshakes: Handshakes,
        liveness: Liveness,
        timeouts: Timeouts,
        start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        """Describe it; ``start`` lets work go on by itself, and ``timeouts`` are those of ``Sender``."""
        self._state = state
        self._outgoing = outgoing
        self._exchanges = exchanges
        self._handshakes = handshakes
        self._liveness = liveness
        self._timeouts = timeouts
        self._start = start
        self._resuming = asyncio.Semaphore(_RESUMED_MAX)
        self._behind: dict[bytes, asyncio.Task[None]] = {}
        self._looked_s: dict[bytes, float] = {}

    async def recover(self) -> list[Recovered]:
        """Return the outcomes that are kept, and ask for all others, side by side."""
        await self._state.unlocked()
        kept = [Recovered(each.peer, each.kind, each.reply, each.note) for each in self._outgoing.take_outcomes()]
        waiting = self._waiting()
        for pending in waiting:
            if pending.kind is PendingKind.SPARES:  # of no interest to the caller
                self._start(self._resume_and_keep(pending, _BEHIND))
        asked = [pending for pending in waiting if pending.kind is not PendingKind.SPARES]
        resumed = await asyncio.gather(*(self._resume(each, self._timeouts) for each in asked))
        return [*kept, *(each for each in resumed if each is not None)]

    async def free_permission(self, peer: bytes) -> None:
        """Return once there is a permission to send to a peer, or nothing to wait for.

        Raises:
            OfflineError: There is none, and the peer is away.
        """
        self._ask_for_outcomes(peer, self._timeouts)
        began = asyncio.get_running_loop().time()
        # Another program may be working on one, and the database is where its outcome shows.
        while self._state.next_right(peer) is None and self._outgoing.of_peer(peer):
            elapsed_s = asyncio.get_running_loop().time() - began
            if self._liveness.is_away(peer) and elapsed_s >= max(self._timeouts.wait_s, self._timeouts.settle_s):
                known = self._state.peer(peer)
                name = peer.hex()[:8] if known is None else known.name
                raise OfflineError(f"{name} is not connected; nothing was delivered")
            is_worked_on = any(each.preimage in self._exchanges.active for each in self._outgoing.of_peer(peer))
            if elapsed_s >= (max(self._timeouts.doubt_s, _BEHIND.doubt_s) if is_worked_on else self._timeouts.doubt_s):
                return
            await asyncio.sleep(_POLL_S)

    def look_after(self, peer: bytes) -> None:
        """Let a peer that has just answered be asked for what it owes and for spares, unless that is under way."""
        if peer not in self._behind:
            self._behind[peer] = self._start(self._top_up(peer))
            self._behind[peer].add_done_callback(lambda _: self._behind.pop(peer, None))

    async def end(self, timeout_s: float) -> None:
        """Wait for what is under way behind calls, for ``timeout_s`` seconds at most."""
        if self._behind:
            await asyncio.wait(self._behind.values(), timeout=timeout_s)

    def _waiting(self, peer: bytes | None = None) -> list[Pending]:
        return [each for each in self._outgoing.left_behind(peer) if each.preimage not in self._exchanges.active]

    def _ask_for_outcomes(self, peer: bytes, timeouts: Timeouts) -> None:
        for pending in self._waiting(peer):
            self._start(self._resume_and_keep(pending, timeouts))

    async def _resume_and_keep(self, pending: Pending, timeouts: Timeouts) -> None:
        recovered = await self._resume(pending, timeouts)
        if recovered is not None and recovered.reply is not None and pending.kind is PendingKind.MESSAGE:
            self._outgoing.note(partial(self._outgoing.keep_outcome, pending, recovered.reply, recovered.note))

    async def _resume(self, pending: Pending, timeouts: Timeouts) -> Recovered | None:
        """Ask again for one outcome; None when somebody else does that, or it has come meanwhile."""
        async with self._resuming:
            if pending.preimage in self._exchanges.active:
                return None
            await self._state.unlocked()
            claimed = self._outgoing.claim(pending)
            if claimed is None:
                return None
            try:
                reply, note = await self._outcome_of(claimed, timeouts)
            except WaystationError as error:  # one request that cannot be recovered must not keep the others
                reply, note = None, str(error)
            return Recovered(pending.peer, pending.kind, reply, note)

    async def _outcome_of(self, pending: Pending, timeouts: Timeouts) -> tuple[Reply | None, str]:
        delivery = Delivery(pending, timeouts, in_doubt=True)
        ended = await self._exchanges.deliver(delivery)
        if pending.kind is PendingKind.HANDSHAKE:
            await self._state.unlocked()
            self._handshakes.finish(pending, ended, b"", was_out=True)
            return None, "the handshake is complete"
        if ended.answer is None:
            return None, ended.reason if ended.verdict is Verdict.UNREADABLE else "has no outcome yet"
        reply = self._exchanges.finish_message(pending, ended.answer)
        if ended.answer.is_earlier:
            return None, "was never handled: the peer has answered a former request under its permission"
        if pending.kind is PendingKind.SPARES:
            self._gain_spares(pending.peer, reply)
        return reply, "was answered"

    async def _top_up(self, peer: bytes) -> None:
        """Ask a peer for spare preimages when there are fewer than two besides the next one."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._looked_s.get(peer, -_AGAIN_S) >= _AGAIN_S:
            self._looked_s[peer] = now_s
            self._ask_for_outcomes(peer, _BEHIND)
        record = self._state.peer(peer)
        if record is None or not record.gives_spares or not 0 < record.rights <= SPARES_WANTED:
            return
        if any(each.kind is PendingKind.SPARES for each in self._outgoing.of_peer(peer)):
            return  # one is under way, or in doubt: another one would cost a permission more
        wanted = SPARES_WANTED + 1 - record.rights
        message = DeviceMessage(ContentType.COMMAND, encode_command(Command(SPARES_COMMAND, {"n": wanted})))
        # Without spares everything works; a request in doubt stays pending like any other.
        with contextlib.suppress(RemoteError, HostError):
            reply = await self._exchanges.run(Work(record, message, _BEHIND, PendingKind.SPARES))
            self._gain_spares(peer, reply)

    def _gain_spares(self, peer: bytes, reply: Reply) -> None:
        spares = _spares_of(reply)
        if spares:
            self._outgoing.note(partial(self._state.gain, peer, spares))
        else:
            self._outgoing.note(partial(self._state.stop_spares, peer))


def _spares_of(reply: Reply) -> list[bytes]:
    """Return the spare preimages of an answer; none when the peer does not know them or lists nonsense."""
    with contextlib.suppress(AnswerError, LookupError, TypeError, ValueError):
        spares = [bytes.fromhex(text) for text in command_result(reply.content)["spares"][:SPARES_WANTED]]
        if all(len(spare) == PREIMAGE_BYTES for spare in spares):
            return spares
    return []
