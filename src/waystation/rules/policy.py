"""Rows of the published policy and their JSON lines: rules against misbehaving peers, and scores of other relays.

``pipeline.jobs.publish`` encodes the rows; ``server.policy_reader`` decodes the files, and an error names the line. A
rule names one peer or source network by the keyed reference that the node computed, and applies from its start time to
its end time. ``engine.policy`` asks ``PolicyTable.decide`` for the rules of a reference that apply now, the hardest
first; those in mode ``shadow`` are among them, and it is the caller that only counts them, exempts the operator's allow
list, and drops a table whose snapshot has expired.

Each row is one canonical JSON line (``rules.lines``). Sizes and counts are limited, because a node reads these files.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple, TypeVar

from waystation.core.errors import RemoteError
from waystation.rules.lines import decode_line, encode_line
from waystation.rules.relay_state import State

__all__ = [
    "LINE_BYTES_MAX",
    "POW_BITS_MAX",
    "RATE_MAX",
    "REFERENCE_BYTES",
    "RULES_MAX",
    "RULES_PER_SUBJECT_MAX",
    "SCORES_MAX",
    "Action",
    "Mode",
    "PolicyRule",
    "PolicyTable",
    "RelayScore",
    "Subject",
    "decode_rules",
    "decode_scores",
    "encode_rule",
    "encode_score",
]

REFERENCE_BYTES: Final = 16
RULES_MAX: Final = 50_000
"""Most rules of one node's file."""
RULES_PER_SUBJECT_MAX: Final = 16
"""Most rules about one subject; each costs a look whenever it comes."""
SCORES_MAX: Final = 10_000
"""Most relays whose scores are read."""
LINE_BYTES_MAX: Final = 512
POW_BITS_MAX: Final = 26
"""Most bits that a rule may add: as many as a challenge may demand at all (lprp 8)."""
RATE_MAX: Final = 1_000_000
"""Most messages a minute that a rule may leave; more is no limit."""
_LASTS_US_MAX: Final = 35 * 86_400 * 1_000_000  # no evidence is kept longer
_TIME_US_MAX: Final = 2**53 - 1  # every reader of JSON has integers up to here
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
_VERSION: Final = re.compile(r"[A-Za-z0-9._-]{1,40}")
_RELAY_ID: Final = re.compile(r"[0-9a-f]{16}")
_SCORE_DIGITS: Final = 6

_Row = TypeVar("_Row")
_Member = TypeVar("_Member", bound=Enum)


class Subject(Enum):
    """What a reference is of."""

    PEER = "peer"
    """An identity: its key, or its DID where that is no key."""
    SOURCE = "source"
    """A network: an IPv4 /24 or an IPv6 /48."""


class Action(Enum):
    """What is done, from the hardest."""

    BLOCK = "block"
    """Nothing of it is taken."""
    RATE = "rate"
    """``amount`` messages a minute are taken."""
    POW = "pow"
    """``amount`` bits more are demanded."""


class Mode(Enum):
    """Whether it is done."""

    SHADOW = "shadow"
    """Only counted."""
    ENFORCE = "enforce"
    """Applied, if the node's operator enforces it too."""


class PolicyRule(NamedTuple):
    """One rule for one subject."""

    subject_kind: str
    """A value of ``Subject``."""
    subject_ref: bytes
    """16 bytes, keyed by the node that the rule is for."""
    action: Action
    amount: int
    """Bits for ``pow``, messages a minute for ``rate``, 0 for ``block``."""
    rule: str
    """Why: the rule of the finding."""
    valid_from_us: int
    """Unix microseconds."""
    valid_until_us: int
    """Unix microseconds, excluded."""
    rule_version: str
    mode: Mode


class RelayScore(NamedTuple):
    """How good a relay is found to be."""

    relay_id: str
    """16 hexadecimal digits."""
    score: float
    """0 to 1, six digits."""
    state: State
    since_us: int
    """When that state began, Unix microseconds."""
    reason: str | None
    """Why; None for one that was never moved."""
    as_of_us: int
    """End of what was looked at."""


_RULE_FIELDS: Final = ("action", "amount", "from", "kind", "mode", "ref", "rule", "until", "version")
_SCORE_FIELDS: Final = ("as_of", "reason", "relay_id", "score", "since", "state")
_AMOUNTS: Final = {Action.BLOCK: (0, 0), Action.RATE: (1, RATE_MAX), Action.POW: (1, POW_BITS_MAX)}
_RANKS: Final = {action: rank for rank, action in enumerate(Action)}


class PolicyTable:
    """The rules of one snapshot by subject. Cost: O(1) per look; memory O(rules)."""

    __slots__ = ("_by_subject", "_count", "expires_at_us")

    def __init__(self, rules: Iterable[PolicyRule] = (), expires_at_us: int = 0) -> None:
        """Take rules that hold until ``expires_at_us`` at most (Unix microseconds)."""
        gathered: dict[tuple[str, bytes], list[PolicyRule]] = {}
        for rule in rules:
            gathered.setdefault((rule.subject_kind, rule.subject_ref), []).append(rule)
        self._by_subject = {subject: tuple(sorted(found, key=_hardest_first)) for subject, found in gathered.items()}
        self._count = sum(map(len, self._by_subject.values()))
        self.expires_at_us = expires_at_us

    def __len__(self) -> int:
        """Return the number of rules, those that do not hold now included."""
        return self._count

    def __iter__(self) -> Iterator[PolicyRule]:
        """Yield all rules, in the order in which their subjects came."""
        for found in self._by_subject.values():
            yield from found

    def about(self, kind: str, ref: bytes) -> tuple[PolicyRule, ...]:
        """Return all rules about a subject, the hardest first, those that do not hold now included."""
        return self._by_subject.get((kind, ref), ())

    def decide(self, kind: str, ref: bytes, now_us: int, *, allowed: bool = False) -> tuple[PolicyRule, ...]:
        """Return the rules about a subject that hold at this moment, the hardest first.

        Args:
            kind: A value of ``Subject``.
            ref: Its 16 bytes.
            now_us: Unix microseconds.
            allowed: Whether the operator's list names it: then nothing is done.
        """
        found = self.about(kind, ref)
        if not found or allowed or now_us >= self.expires_at_us:
            return ()
        return tuple([rule for rule in found if rule.valid_from_us <= now_us < rule.valid_until_us])


def _hardest_first(rule: PolicyRule) -> tuple[int, int, str]:
    """Order of one subject's rules: block, the lowest rate, the most bits."""
    amount = -rule.amount if rule.action is Action.POW else rule.amount
    return _RANKS[rule.action], amount, rule.rule


# Lines


def encode_rule(rule: PolicyRule) -> bytes:
    """Return a rule as one line, without its end."""
    return encode_line(
        {
            "kind": rule.subject_kind,
            "ref": rule.subject_ref.hex(),
            "action": rule.action.value,
            "amount": rule.amount,
            "rule": rule.rule,
            "from": rule.valid_from_us,
            "until": rule.valid_until_us,
            "version": rule.rule_version,
            "mode": rule.mode.value,
        }
    )


def encode_score(score: RelayScore) -> bytes:
    """Return a score as one line, without its end."""
    return encode_line(
        {
            "relay_id": score.relay_id,
            "score": float(score.score),
            "state": score.state.value,
            "since": score.since_us,
            "reason": score.reason,
            "as_of": score.as_of_us,
        }
    )


def decode_rules(data: bytes) -> list[PolicyRule]:
    """Return the rules in a file, in its order.

    Raises:
        RemoteError: A line is none, one rule occurs twice, or there are too many, of all or of one subject.
    """
    lines = _lines(data, RULES_MAX)
    rules = [_numbered(number, _rule_of, line) for number, line in enumerate(lines, 1)]
    counts: dict[tuple[str, bytes], int] = {}
    seen: set[tuple[str, bytes, str]] = set()
    for number, rule in enumerate(rules, 1):
        subject = (rule.subject_kind, rule.subject_ref)
        counts[subject] = counts.get(subject, 0) + 1
        if (*subject, rule.rule) in seen:
            raise RemoteError(f"line {number}: the same rule occurs twice for one subject")
        if counts[subject] > RULES_PER_SUBJECT_MAX:
            raise RemoteError(f"line {number}: a subject has at most {RULES_PER_SUBJECT_MAX} rules")
        seen.add((*subject, rule.rule))
    return rules


def decode_scores(data: bytes) -> dict[str, RelayScore]:
    """Return the scores in a file by relay.

    Raises:
        RemoteError: A line is none, a relay occurs twice, or there are too many.
    """
    scores: dict[str, RelayScore] = {}
    for number, line in enumerate(_lines(data, SCORES_MAX), 1):
        score = _numbered(number, _score_of, line)
        if score.relay_id in scores:
            raise RemoteError(f"line {number}: the relay {score.relay_id} occurs twice")
        scores[score.relay_id] = score
    return scores


def _lines(data: bytes, count_max: int) -> list[bytes]:
    """Return the lines of a file, each of which has its end."""
    if data and not data.endswith(b"\n"):
        raise RemoteError("the last line has no end: something is missing")
    if data.count(b"\n") > count_max:
        raise RemoteError(f"has more than {count_max} lines")
    return data.split(b"\n")[:-1]


def _numbered(number: int, read: Callable[[bytes], _Row], line: bytes) -> _Row:
    try:
        return read(line)
    except RemoteError as error:
        raise RemoteError(f"line {number}: {error}") from error


def _rule_of(line: bytes) -> PolicyRule:
    fields = decode_line(line, _RULE_FIELDS, LINE_BYTES_MAX)
    action = _member(Action, fields, "action")
    least, most = _AMOUNTS[action]
    rule = PolicyRule(
        _member(Subject, fields, "kind").value,
        _reference(fields),
        action,
        _whole(fields, "amount", least, most),
        _text(fields, "rule", _NAME),
        _whole(fields, "from", 0, _TIME_US_MAX),
        _whole(fields, "until", 0, _TIME_US_MAX),
        _text(fields, "version", _VERSION),
        _member(Mode, fields, "mode"),
    )
    if not 0 < rule.valid_until_us - rule.valid_from_us <= _LASTS_US_MAX:
        raise RemoteError("a rule ends after it begins, and 35 days later at most")
    return rule


def _score_of(line: bytes) -> RelayScore:
    fields = decode_line(line, _SCORE_FIELDS, LINE_BYTES_MAX)
    score, reason = fields["score"], fields["reason"]
    if not isinstance(score, float) or not 0 <= score <= 1 or round(score, _SCORE_DIGITS) != score:
        raise RemoteError('"score" is a number from 0.0 to 1.0 with six digits')
    return RelayScore(
        _text(fields, "relay_id", _RELAY_ID),
        score,
        _member(State, fields, "state"),
        _whole(fields, "since", 0, _TIME_US_MAX),
        None if reason is None else _text(fields, "reason", _NAME),
        _whole(fields, "as_of", 0, _TIME_US_MAX),
    )


def _member(kind: type[_Member], fields: dict[str, object], name: str) -> _Member:
    try:
        return kind(fields[name])
    except ValueError as error:
        allowed = ", ".join(str(member.value) for member in kind)
        raise RemoteError(f'"{name}" is none of {allowed}') from error


def _whole(fields: dict[str, object], name: str, least: int, most: int) -> int:
    value = fields[name]
    if type(value) is not int or not least <= value <= most:  # a bool is an int too
        raise RemoteError(f'"{name}" is a whole number from {least} to {most}')
    return value


def _text(fields: dict[str, object], name: str, pattern: re.Pattern[str]) -> str:
    value = fields[name]
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise RemoteError(f'"{name}" is not what it may be: {pattern.pattern}')
    return value


def _reference(fields: dict[str, object]) -> bytes:
    return bytes.fromhex(_text(fields, "ref", _REFERENCE))


_REFERENCE: Final = re.compile(rf"[0-9a-f]{{{2 * REFERENCE_BYTES}}}")
