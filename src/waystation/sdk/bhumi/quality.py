"""Scores the relays that a Bhumi participant has used, in the table ``relay_scores`` of its ``bhumi.db``.

Scores are local, are never shared, and only decide which relay is tried first (spec section 10). The formula is that of
``rules``, the same for every protocol. Observed are connection attempts, lost connections and probes. The time that a
peer takes to answer and answers that cannot be opened are not counted, because the peer may cause them.
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
    evaluate,
    on_failure,
    on_success,
    on_violation,
)
from waystation.rules.relay_window import counts, observations
from waystation.sdk.bhumi.relay_book import NEUTRAL_SCORE
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
        now_s, standing = int(self._clock()), entry.standing
        if standing.state is State.BLACKLISTED and now_s < standing.banned_until_s and not standing.pinned:
            return _BANNED_SCORE
        return score(observations(entry.window, now_s))

    def entry(self, address: str) -> RelayEntry | None:
        """Return everything known of a relay; None when it was never met."""
        return self._scores.load(address)

    def entries(self) -> list[RelayEntry]:
        """Return every relay that was met, by address."""
        return self._scores.list()

    def connected(self, address: str, latency_s: float) -> None:
        """Note that a relay took a connection, and how long it needed to greet."""
        entry, now_s = self._met(address)
        entry.window.record_connect(True, now_s)
        entry.window.record_latency(latency_s * 1_000, now_s)
        self._keep(entry, on_success(entry.standing), now_s)

    def failed(self, address: str) -> None:
        """Note that a relay could not be reached, did not greet, or did not take us."""
        entry, now_s = self._met(address)
        entry.window.record_connect(False, now_s)
        self._keep(entry, on_failure(entry.standing, now_s)[0], now_s)

    def dropped(self, address: str) -> None:
        """Note that a relay ended a connection that it had taken."""
        entry, now_s = self._met(address)
        entry.window.record_reconnect(now_s)
        self._keep(entry, entry.standing, now_s)

    def probed(self, address: str, verdict: QaVerdict, latency_s: float) -> None:
        """Note what came of a probe.

        Args:
            address: Of the candidate.
            verdict: REFUSED is no probe and leaves no trace.
            latency_s: From the request to its answer, or to where time ran out.
        """
        if verdict is QaVerdict.REFUSED:
            return
        if verdict is QaVerdict.UNREACHABLE:
            self.failed(address)
            return
        entry, now_s = self._met(address)
        window, standing = entry.window, entry.standing
        window.record_probe(verdict is not QaVerdict.WRONG, now_s)
        if verdict is QaVerdict.WRONG:
            # Both ends were ours: what does not open, or opens to something else, was made by the relay.
            window.record_incident(Incident.BAD_SIGNATURE, now_s)
            violations = counts(window, standing.cleared_s, now_s).violations
            standing, _ = on_violation(standing, Incident.BAD_SIGNATURE, violations, now_s)
        else:
            window.record_latency(latency_s * 1_000, now_s)
            standing = on_failure(standing, now_s)[0] if verdict is QaVerdict.SLOW else on_success(standing)
        self._keep(entry, standing, now_s)

    def _met(self, address: str) -> tuple[RelayEntry, int]:
        """Return what is known of a relay, and the second that it is now."""
        now_s = int(self._clock())
        return self._scores.load(address) or RelayEntry.new(address, now_s), now_s

    def _keep(self, entry: RelayEntry, standing: Standing, now_s: int) -> None:
        now_score = score(observations(entry.window, now_s))
        if now_s - self._evaluated_s.get(entry.url, 0) >= EVALUATION_S:
            self._evaluated_s = {each: at_s for each, at_s in self._evaluated_s.items() if now_s - at_s < EVALUATION_S}
            self._evaluated_s[entry.url] = now_s
            standing, _ = evaluate(standing, now_score, counts(entry.window, standing.cleared_s, now_s), now_s)
        self._scores.save(replace(entry, standing=standing, score=now_score, last_tried_s=now_s))


def neutral_score(_address: str) -> float:
    """Return the score of a relay for a participant that keeps no account of them."""
    return NEUTRAL_SCORE
