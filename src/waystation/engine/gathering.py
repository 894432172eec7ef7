"""Aggregates frequent facts over a short time, so that a flood of them gives few journal rows.

The recorder passes facts that peers can cause at no cost, and gets the summed rows back when the time is over. Facts
that agree in all fields except their counters share one row. Fields that identify a single fact, such as its id and
times, are empty in a shared row. Beyond ``keys_max`` rows, identities are left empty too. Peers that invent identities
therefore cannot multiply rows.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final, NamedTuple

from waystation.core.instant import MICROSECONDS_PER_MS, Instant

__all__ = ["Gathering", "Rule"]

_TIMES: Final = 1
_SUMS: Final = 2


class Rule(NamedTuple):
    """How facts of one kind are summed up; facts that agree in all other fields share a row."""

    fact: type[Any]
    sums: tuple[str, ...]
    """Fields that are added up."""
    alone: tuple[str, ...] = ()
    """Fields that are None unless the row is of one fact."""
    named: tuple[str, ...] = ()
    """Fields that are None when there are too many rows."""
    dropped: tuple[str, ...] = ()
    """Fields that are None in every row."""


class _Rows:
    """The facts of one kind, by what they share."""

    def __init__(self, rule: Rule) -> None:
        names = list(rule.fact._fields)
        shared = [name for name in names if name not in (*rule.sums, *rule.alone, *rule.dropped)]
        self.rows: dict[Any, list[Any]] = {}
        """First fact, how many share the row, and their sums."""
        self.key_of = itemgetter(*[names.index(name) for name in shared])
        self.sums = tuple((place, names.index(name)) for place, name in enumerate(rule.sums, _SUMS))
        self.sum_names = rule.sums
        self.dropped = dict.fromkeys(rule.dropped)
        self.not_shared = dict.fromkeys((*rule.alone, *rule.dropped))
        self.unnamed = dict.fromkeys((*rule.alone, *rule.named))

    def take(self) -> list[Any]:
        """Return one fact for each row, and begin again."""
        rows, self.rows = self.rows, {}
        return [self._merged(*row) for row in rows.values()]

    def _merged(self, first: Any, times: int, *sums: int) -> Any:
        if times > 1:
            return first._replace(**self.not_shared, **dict(zip(self.sum_names, sums, strict=True)))
        return first._replace(**self.dropped) if self.dropped else first


class Gathering:
    """Sums facts of some kinds up; the first one of a span begins it."""

    def __init__(
        self,
        write: Callable[[Any, Instant], None],
        span_ms: int,
        *rules: Rule,
        keys_max: int | None = None,
        dated_back: bool = False,
    ) -> None:
        """Start with nothing gathered.

        Args:
            write: Takes each sum and its time.
            span_ms: For how long facts are gathered.
            rules: The kinds, in the order in which their sums are written.
            keys_max: Rows of a kind in one span that bear names.
            dated_back: A sum has the time at which its span began, not the one at which it is written.
        """
        self._write = write
        self._span = span_ms * MICROSECONDS_PER_MS
        self._kinds = {rule.fact: _Rows(rule) for rule in rules}
        self._keys_max = keys_max
        self._dated_back = dated_back
        self._due: Instant | None = None

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due."""
        return self._due

    def wake(self, now: Instant) -> None:
        """Write what was gathered long enough."""
        if self._due is not None and self._due <= now:
            self.flush(now)

    def flush(self, now: Instant) -> None:
        """Write everything that was gathered."""
        if self._due is None:
            return
        at = Instant(self._due - self._span) if self._dated_back else now
        self._due = None
        for kind in self._kinds.values():
            for fact in kind.take():
                self._write(fact, at)

    def add(self, fact: Any, now: Instant) -> None:
        """Sum a fact up with those that differ from it only in their sums."""
        kind = self._kinds[type(fact)]
        row = kind.rows.get(kind.key_of(fact))
        if row is None and self._keys_max is not None and len(kind.rows) >= self._keys_max:
            fact = fact._replace(**kind.unnamed)
            row = kind.rows.get(kind.key_of(fact))
        if row is not None:
            row[_TIMES] += 1
            for place, index in kind.sums:
                row[place] += fact[index]
            return
        kind.rows[kind.key_of(fact)] = [fact, 1, *[fact[index] for _, index in kind.sums]]
        if self._due is None:
            self._due = Instant(now + self._span)
