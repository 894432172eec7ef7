"""The requests that leave a Bhumi participant: the permissions they take, who works on them, and how they ended.

This is the part of ``bhumi.db`` that ``Sender`` writes; several senders may use one file. A permission is taken and its
request recorded in one transaction, so no two programs use the same one. A preimage that its peer may still know is not
deleted: one that a relay does not know goes behind the others.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from waystation.core.errors import HostError
from waystation.core.ids import PublicKey
from waystation.sdk.bhumi.outcome import Outcome, Reply
from waystation.sdk.bhumi.sending.owner import is_alive
from waystation.sdk.bhumi.state import BhumiState, HandshakeFacts, Pending, PendingKind

__all__ = ["HEADS_MAX", "HEAD_BYTES", "OUTCOMES_MAX", "REFUSED_PER_PEER_MAX", "Kept", "Outgoing"]

OUTCOMES_MAX: Final = 256
"""Outcomes kept of requests that nobody waited for; the oldest leave."""
HEADS_MAX: Final = 16
"""Former requests under one preimage whose heads are kept; the oldest leave."""
HEAD_BYTES: Final = 96
"""How much of a former request is kept: more than hint, suite, key, nonce and tag of any envelope (BHUMI-SUITE)."""
REFUSED_PER_PEER_MAX: Final = 64
"""Preimages kept behind the others; four times what a device keeps for one peer, so the oldest that leave are dead."""


@dataclass(frozen=True, slots=True)
class Kept:
    """How a request has ended that nobody waited for any more."""

    peer: PublicKey
    kind: PendingKind
    reply: Reply
    note: str
    """A sentence for people."""


class Outgoing:
    """What a sender keeps in the folder of its participant."""

    def __init__(self, state: BhumiState, owner: str) -> None:
        """Describe whose requests these are; ``owner`` is this sender's name, see ``owner.owned``."""
        self._state = state
        self._owner = owner

    # Permissions

    def take(
        self,
        peer: bytes,
        kind: PendingKind,
        write: Callable[[bytes], bytes],
        avoid: Collection[bytes] = (),
        root: bytes = b"",
    ) -> Pending | None:
        """Take the best permission to send to a peer and record the request, in one transaction.

        Args:
            peer: 32-byte key.
            kind: MESSAGE or SPARES.
            write: Returns the opaque payload for a preimage; what it raises leaves everything as it was.
            avoid: Preimages that are not taken.
            root: Of the two, that the answer is sealed with; empty for a legacy pairing.

        Returns:
            None when there is none.
        """
        with self._state.transaction():
            rows = self._state.all("SELECT preimage FROM theirs WHERE peer = ? ORDER BY refused, position", peer)
            preimage = next((bytes(row[0]) for row in rows if row[0] not in avoid), None)
            if preimage is None:
                return None
            pending = self._state.begin_message(preimage, peer, write(preimage), root)
            return self.own(pending, kind)

    def own(self, pending: Pending, kind: PendingKind) -> Pending:
        """Note that this sender works on a request."""
        with self._state.transaction():
            self._state.run(
                "UPDATE pending SET owner = ?, kind = ? WHERE preimage = ?", self._owner, kind.value, pending.preimage
            )
        return replace(pending, kind=kind, owner=self._owner)

    def give_back(self, pending: Pending, *, was_out: bool) -> None:
        """Note that a request was not delivered: its preimage is the next to be used again.

        Args:
            pending: The request.
            was_out: It has left, and a relay says that it was not delivered; its head is kept, for relays can lie.
        """
        with self._state.transaction():
            self._state.give_back(pending.preimage, pending.peer)
            if was_out:
                self.keep_head(pending)

    def put_behind(self, pending: Pending) -> None:
        """Note that no relay knows a permission: it is used again only when no other is left."""
        with self._state.transaction():
            self.give_back(pending, was_out=True)
            self._state.run(
                "UPDATE theirs SET refused = 1, position = (SELECT max(position) FROM theirs) + 1 WHERE preimage = ?",
                pending.preimage,
            )
            self._state.run(
                "DELETE FROM theirs WHERE peer = ?1 AND refused AND position NOT IN (SELECT position FROM theirs"
                " WHERE peer = ?1 AND refused ORDER BY position DESC LIMIT ?2)",
                pending.peer, REFUSED_PER_PEER_MAX,
            )  # fmt: skip

    # Former requests under one preimage

    def keep_head(self, pending: Pending) -> None:
        """Keep what distinguishes a request's answer from those of later ones under its preimage."""
        with self._state.transaction():
            self._state.run(
                "INSERT INTO heads (preimage, peer, head) VALUES (?, ?, ?)",
                pending.preimage, pending.peer, pending.payload[:HEAD_BYTES],
            )  # fmt: skip
            self._state.run(
                "DELETE FROM heads WHERE preimage = ?1 AND position NOT IN"
                " (SELECT position FROM heads WHERE preimage = ?1 ORDER BY position DESC LIMIT ?2)",
                pending.preimage, HEADS_MAX,
            )  # fmt: skip

    def heads(self, preimage: bytes) -> list[bytes]:
        """Return the beginnings of former requests under a preimage, newest first; at most ``HEAD_BYTES`` each."""
        rows = self._state.all("SELECT head FROM heads WHERE preimage = ? ORDER BY position DESC", preimage)
        return [bytes(row[0]) for row in rows]

    # What has happened

    def note(self, change: Callable[[], object]) -> None:
        """Note what has happened at the peer whatever our disk says; no request is sent before it is there."""
        with contextlib.suppress(HostError):
            self._state.change_later(change)

    def finish(self, pending: Pending, gained: Iterable[bytes], joined: HandshakeFacts | None = None) -> None:
        """Note the answer to a request; former ones under its preimage matter no more. See ``BhumiState.finish``."""
        with self._state.transaction():
            self._state.finish(pending.preimage, pending.peer, gained, joined)
            self._state.run("DELETE FROM heads WHERE preimage = ?", pending.preimage)

    # Requests without an outcome

    def left_behind(self, peer: bytes | None = None) -> list[Pending]:
        """Return the requests, to one peer or all, that no other living sender works on, oldest first."""
        waiting = [each for each in self._state.pending() if peer in (None, each.peer)]
        others = {each.owner for each in waiting} - {self._owner, ""}
        alive = {owner for owner in others if is_alive(self._state.home, owner)}
        return [each for each in waiting if each.owner not in alive]

    def claim(self, pending: Pending) -> Pending | None:
        """Become the owner of a request that was left behind; None when another sender was quicker, or it is over."""
        with self._state.transaction():
            count = self._state.run(
                "UPDATE pending SET owner = ? WHERE preimage = ? AND owner = ?",
                self._owner, pending.preimage, pending.owner,
            )  # fmt: skip
        return replace(pending, owner=self._owner) if count else None

    def of_peer(self, peer: bytes) -> list[Pending]:
        """Return the requests to a peer that have no outcome, oldest first, whoever works on them."""
        return [each for each in self._state.pending() if each.peer == peer]

    # Outcomes that nobody waited for

    def keep_outcome(self, pending: Pending, reply: Reply, note: str) -> None:
        """Keep how a request has ended, for ``take_outcomes``."""
        with self._state.transaction():
            self._state.run(
                "INSERT INTO outcomes (peer, kind, outcome, status, content, note) VALUES (?, ?, ?, ?, ?, ?)",
                pending.peer, pending.kind.value, reply.outcome.value, reply.status, reply.content, note,
            )  # fmt: skip
            self._state.run(
                "DELETE FROM outcomes WHERE position NOT IN"
                " (SELECT position FROM outcomes ORDER BY position DESC LIMIT ?)",
                OUTCOMES_MAX,
            )

    def take_outcomes(self) -> list[Kept]:
        """Return and forget the outcomes that are kept, oldest first."""
        with self._state.transaction():
            rows = self._state.all("SELECT peer, kind, outcome, status, content, note FROM outcomes ORDER BY position")
            self._state.run("DELETE FROM outcomes")
        return [
            Kept(PublicKey(row[0]), PendingKind(row[1]), Reply(_OUTCOMES[row[2]], row[3], bytes(row[4])), row[5])
            for row in rows
        ]


_OUTCOMES: Final = {outcome.value: outcome for outcome in Outcome}
