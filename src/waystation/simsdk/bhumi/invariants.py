"""What no relay may bring about, judged by what applications did.

``asked-for`` and ``handled-once`` are about handlers, ``true-answer`` about replies, ``only-invited`` about pairings.
``liveness`` (``sim.invariants``) gets what is missing once the relay is honest.
"""

from collections import Counter, defaultdict

from waystation.core.instant import Instant
from waystation.sdk.bhumi.outcome import Outcome
from waystation.sim.invariants import Invariant, Liveness
from waystation.simsdk.bhumi.observations import (
    Accepts,
    Answers,
    Asks,
    Called,
    Joined,
    Named,
    Peers,
    Recovers,
    Replied,
)

__all__ = ["all_invariants"]


class _OfPeople(Invariant):
    """Knows whose key is whose."""

    def __init__(self) -> None:
        self._keys: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}
        self._accepted: set[tuple[str, str]] = set()

    def _on_named(self, named: Named, _now: Instant) -> None:
        self._keys[named.name] = named.identity
        self._names[named.identity] = named.name

    def _on_accepts(self, accepts: Accepts, _now: Instant) -> None:
        self._accepted.add((accepts.sender, accepts.device))


class AskedFor(_OfPeople):
    """A handler is called only for what a peer has sent that was invited, and has accepted."""

    name = "asked-for"

    def __init__(self) -> None:
        super().__init__()
        self._sent: dict[bytes, tuple[str, str]] = {}

    def _on_asks(self, asks: Asks, _now: Instant) -> None:
        self._sent[asks.content] = (asks.sender, asks.device)

    def _on_called(self, called: Called, _now: Instant) -> None:
        who = (called.alias, called.device)
        if self._sent.get(called.content) != who:
            raise self.broken(f"{called.device} handles {called.content!r}, which {called.alias} did not send it")
        if self._keys.get(called.alias) != called.peer:
            raise self.broken(f"{called.alias} at {called.device} is somebody else")
        if who not in self._accepted:
            raise self.broken(f"{called.alias} has accepted no invite of {called.device}")


class HandledOnce(Invariant):
    """A handler is called with each content once at most."""

    name = "handled-once"

    def __init__(self) -> None:
        self._calls: Counter[bytes] = Counter()

    def _on_called(self, called: Called, _now: Instant) -> None:
        self._calls[called.content] += 1
        if self._calls[called.content] > 1:
            raise self.broken(f"{called.device} handles {called.content!r} {self._calls[called.content]} times")


class TrueAnswer(_OfPeople):
    """A reply has the handler's answer to this very content; one that says "failed" comes from a handler, too."""

    name = "true-answer"

    def __init__(self) -> None:
        super().__init__()
        self._calls: set[bytes] = set()
        self._answers: dict[bytes, bytes] = {}
        self._given: defaultdict[tuple[str, str], set[bytes]] = defaultdict(set)
        self._sent: dict[bytes, tuple[str, str]] = {}

    def _on_asks(self, asks: Asks, _now: Instant) -> None:
        self._sent[asks.content] = (asks.sender, asks.device)

    def _on_called(self, called: Called, _now: Instant) -> None:
        self._calls.add(called.content)

    def _on_answers(self, answers: Answers, _now: Instant) -> None:
        self._answers[answers.content] = answers.answer
        if answers.content in self._sent:
            self._given[self._sent[answers.content]].add(answers.answer)

    def _on_replied(self, replied: Replied, _now: Instant) -> None:
        if replied.outcome == Outcome.ANSWERED.value:
            answer = self._answers.get(replied.content)
            if replied.answer != answer:
                raise self.broken(f"{replied.content!r} is answered {replied.answer!r}, not {answer!r}")
        elif replied.outcome == Outcome.FAILED.value:
            if replied.content not in self._calls:
                raise self.broken(f"{replied.content!r} has failed, and was not handled")
        elif replied.answer:
            raise self.broken(f"{replied.content!r} is {replied.outcome}, and has the answer {replied.answer!r}")

    def _on_recovers(self, recovers: Recovers, _now: Instant) -> None:
        device = self._names.get(recovers.peer, "nobody we know")
        is_answer = recovers.outcome == Outcome.ANSWERED.value and b'"spares"' not in recovers.answer
        if is_answer and recovers.answer not in self._given[recovers.sender, device]:
            raise self.broken(f"{recovers.sender} recovers {recovers.answer!r}, which {device} has not said")


class OnlyInvited(_OfPeople):
    """Nobody is paired but whom applications have invited and who has accepted."""

    name = "only-invited"

    def _on_joined(self, joined: Joined, _now: Instant) -> None:
        if self._names.get(joined.peer) != joined.alias:
            raise self.broken(f"{joined.device} was joined by somebody else as {joined.alias}")
        if (joined.alias, joined.device) not in self._accepted:
            raise self.broken(f"{joined.device} was joined by {joined.alias}, who has accepted nothing")

    def _on_peers(self, peers: Peers, _now: Instant) -> None:
        for identity in peers.identities:
            other = self._names.get(identity, "nobody we know")
            if not {(peers.name, other), (other, peers.name)} & self._accepted:
                raise self.broken(f"{peers.name} is paired with {other}")


def all_invariants() -> list[Invariant]:
    """Return one checker of each."""
    return [AskedFor(), HandledOnce(), TrueAnswer(), OnlyInvited(), Liveness()]
