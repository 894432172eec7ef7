"""Imports packets from a file of JSON lines: each passes the full intake into the store, without connections.

``waystation strata import`` drives it while the node is stopped. A file is trusted no more than another relay. Spec:
specs/strata.md 6, 7 (the replication and backfill path).
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from waystation.core.effects import Commit, Verify
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.core.records import Store
from waystation.crypto.signing import KeyPair, verify_any
from waystation.protocols.strata.canonical import MESSAGE_DEPTH_MAX, parse
from waystation.protocols.strata.refusals import RefusedError
from waystation.protocols.strata.relay.directory import StaticKey
from waystation.protocols.strata.relay.intake import Candidate, Verdict
from waystation.protocols.strata.relay.machine import StrataRelay
from waystation.protocols.strata.settings import StrataSettings

__all__ = ["Importer"]

GATHERED_MAX: Final = 256  # packets per commit


class Importer:
    """Checks and stores packets of JSON lines ``{"packet": …, "received_at": …}``."""

    def __init__(
        self,
        settings: StrataSettings,
        key_pair: KeyPair,
        store: Store,
        static_dids: Mapping[str, Sequence[StaticKey]],
        documents: Sequence[dict[str, Any]],
        wall_s: int,
    ) -> None:
        """Prepare over a store without another writer.

        Args:
            settings: As a relay has them; ``max_backfill_s`` says how old a packet may be.
            key_pair: The node's identity.
            store: Where good packets go.
            static_dids: Keys pinned by the operator.
            documents: DID documents of the operator.
            wall_s: Unix seconds.
        """
        self._store = store
        self._relay = StrataRelay(
            settings,
            key_pair,
            store,
            random.Random(0),  # noqa: S311 - no connection, so no challenge is ever drawn
            rate_limits=False,
            static_dids=static_dids,
            documents=documents,
        )
        self._now = Instant(0)
        self._relay.set_wall(self._now, wall_s * MICROSECONDS_PER_SECOND)
        self._gathered = 0
        self.verdicts: Counter[str] = Counter()
        """How often each verdict was given: accepted, duplicate, or code and detail of a refusal."""

    def add(self, line: bytes) -> None:
        """Take one line in; its verdict is counted by the time of ``finish``."""
        try:
            entry = parse(line, MESSAGE_DEPTH_MAX)
        except RefusedError as error:
            self.verdicts[f"invalid_schema:{error.refusal.detail}"] += 1
            return
        received_at = entry.get("received_at") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or type(received_at) is not int:
            self.verdicts["invalid_schema:not_a_line"] += 1
            return
        # Spec 6: import goes the same way as PUBLISH; the line's time counts as a witness.
        candidate = Candidate(entry.get("packet"), self._count, self._now, len(line), witness=received_at)
        self._relay.take_in(candidate, self._now)
        self._gathered += 1
        if self._gathered >= GATHERED_MAX:
            self.finish()

    def finish(self) -> None:
        """Decide and commit everything taken in so far."""
        self._gathered = 0
        while effects := self._relay.take():
            for effect in effects:
                if isinstance(effect, Verify):
                    answers = [verify_any(*check) for check in effect.checks]
                    self._relay.verified(effect.ticket, answers, self._now)
                elif isinstance(effect, Commit):
                    self._store.commit(effect.changes)
                    self._relay.committed(effect.ticket, self._now)

    def _count(self, verdict: Verdict) -> None:
        if verdict.refusal is not None:
            code, detail = verdict.refusal.code.value, verdict.refusal.detail
            self.verdicts[f"{code}:{detail}" if detail else code] += 1
        else:
            self.verdicts["duplicate" if verdict.duplicate else "accepted"] += 1
