"""What a Bhumi participant thinks of the relays it has met, in the table ``relay_scores`` of its ``bhumi.db``.

Local only, never shared, and a preference only (spec section 10): it decides which relay is tried first, and nothing
else. The scores are those of ``rules``, as for every protocol. What is observed: connects, and probes, whose two ends
are both ours. How long a peer takes to answer says nothing about the relay, and an answer that cannot be opened may be
the peer's own fault, so that ordinary requests leave no other trace than a connection that broke.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from waystation.protocols.bhumi.extension_messages import QaVerdict
from waystation.rules.relay_score import score
from waystation.rules.relay_state import (
    EVALUATION_S,
    Incident,
    Standing,
    State,
    Step,
    evaluate,
    on_failure,
    on_success,
    on_violation,
)
from waystation.rules.relay_window import counts, observations
from waystation.sdk.bhumi_relay_book import NEUTRAL_SCORE
from waystation.sdk.relay_scores import RelayEntry, RelayScores

__all__ = ["RelayQuality", "neutral_score"]

_BANNED_SCORE: Final = 0.0


class RelayQuality:
    """The view of one participant; close it when done."""

    def __init__(self, home: Path, *, clock: Callable[[], float] = time.time) -> None:
        """Open the table, making the folder and the database if absent.

        Args:
            home: The participant's folder.
            clock: Unix seconds.

        Raises:
            HostError: The database cannot be used.
        """
        self._clock = clock
        self._scores = RelayScores(home / "bhumi.db", clock=clock)
        self._evaluated_s: dict[str, int] = {}

    def close(self) -> None:
        """Release the database."""
        self._scores.close()

    def score(self, address: str) -> float:
        """Return how good a relay is, 0 to 1; ``NEUTRAL_SCORE`` when it was never met, 0 while it is banned."""
        entry = self._scores.load(address)
        if entry is None:
            return NEUTRAL_SCORE
        if _is_banned(entry.standing, int(self._clock())):
            return _BANNED_SCORE
        return score(observations(entry.window, int(self._clock())))

    def entry(self, address: str) -> RelayEntry | None:
        """Return everything known of a relay; None when it was never met."""
        return self._scores.load(address)

    def entries(self) -> list[RelayEntry]:
        """Return every relay that was met, by address."""
        return self._scores.list()

    def connected(self, address: str, latency_s: float) -> None:
        """Note that a relay took a connection, and how long it needed to greet."""

        def observe(entry: RelayEntry, now_s: int) -> Step:
            entry.window.record_connect(True, now_s)
            entry.window.record_latency(latency_s * 1_000, now_s)
            return on_success(entry.standing), None

        self._note(address, observe)

    def failed(self, address: str) -> None:
        """Note that a relay could not be reached, did not greet, or did not take us."""

        def observe(entry: RelayEntry, now_s: int) -> Step:
            entry.window.record_connect(False, now_s)
            return on_failure(entry.standing, now_s)

        self._note(address, observe)

    def dropped(self, address: str) -> None:
        """Note that a relay ended a connection that it had taken."""

        def observe(entry: RelayEntry, now_s: int) -> Step:
            entry.window.record_reconnect(now_s)
            return entry.standing, None

        self._note(address, observe)

    def probed(self, address: str, verdict: QaVerdict, latency_s: float) -> None:
        """Note what came of a probe.

        Args:
            address: Of the candidate.
            verdict: REFUSED is no probe and leaves no trace.
            latency_s: From the request to its answer, or to where patience ended.
        """
        if verdict is QaVerdict.REFUSED:
            return

        def observe(entry: RelayEntry, now_s: int) -> Step:
            window = entry.window
            if verdict is QaVerdict.UNREACHABLE:
                window.record_connect(False, now_s)
                return on_failure(entry.standing, now_s)
            window.record_probe(verdict is not QaVerdict.WRONG, now_s)
            if verdict is QaVerdict.WRONG:
                # Both ends were ours: what does not open, or opens to something else, was made by the relay.
                window.record_incident(Incident.BAD_SIGNATURE, now_s)
                violations = counts(window, entry.standing.cleared_s, now_s).violations
                return on_violation(entry.standing, Incident.BAD_SIGNATURE, violations, now_s)
            window.record_latency(latency_s * 1_000, now_s)
            if verdict is QaVerdict.SLOW:
                return on_failure(entry.standing, now_s)
            return on_success(entry.standing), None

        self._note(address, observe)

    def _note(self, address: str, observe: Callable[[RelayEntry, int], Step]) -> None:
        now_s = int(self._clock())
        entry = self._scores.load(address) or RelayEntry.new(address, now_s)
        standing, _ = observe(entry, now_s)
        now_score = score(observations(entry.window, now_s))
        if now_s - self._evaluated_s.get(address, 0) >= EVALUATION_S:
            self._evaluated_s = {each: at_s for each, at_s in self._evaluated_s.items() if now_s - at_s < EVALUATION_S}
            self._evaluated_s[address] = now_s
            standing, _ = evaluate(standing, now_score, counts(entry.window, standing.cleared_s, now_s), now_s)
        self._scores.save(replace(entry, standing=standing, score=now_score, last_tried_s=now_s))


def neutral_score(_address: str) -> float:
    """Return the score of a relay for whoever keeps no account of them."""
    return NEUTRAL_SCORE


def _is_banned(standing: Standing, now_s: int) -> bool:
    return standing.state is State.BLACKLISTED and now_s < standing.banned_until_s and not standing.pinned
