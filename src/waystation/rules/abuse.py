"""Abuse detection: hourly limits per actor, findings above those limits, and the rules that a node may apply.

``pipeline.transforms.abuse`` calls it for each hour and node: counted activities go in, findings and rules come out.
Every ``Measure`` is counted per node, protocol, actor and clock hour. ``STANDARDS`` has the limit of each measure. A
program that follows its protocol does not reach a limit by accident. All arithmetic is integer, and the order of events
does not affect any result.

A rule is only suggested against the actor that certainly performed the act. Duplicate and refused packets name an
author, but any peer can send them. Spent capabilities name the recipient, because Bhumi hides the sender. These
findings may name a victim, so they suggest no rule (PIPE-VICTIM). A source network has many users, so it is
rate-limited and never blocked (PIPE-SOURCE).
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import groupby
from typing import Final, NamedTuple

__all__ = [
    "AMOUNTS",
    "FINDING_HOURS",
    "HIGH_ABOVE",
    "MEDIUM_ABOVE",
    "RULE_VERSION",
    "STANDARDS",
    "WINDOWS_TO_BLOCK",
    "Activity",
    "Decided",
    "Evidence",
    "Finding",
    "Measure",
    "Rule",
    "Severity",
    "Standard",
    "Suggestion",
    "decide",
    "judge",
    "packets_limit",
    "severity",
]

RULE_VERSION: Final = "abuse-1"
"""Changes whenever a number or a condition in this module does."""

FINDING_HOURS: Final = 24
"""How long after its window a finding is a reason for anything: abuse that went on for a day has newer findings."""

SOURCE: Final = "source"
"""``actor_kind`` of a network; that of a key is ``peer``."""

_HOUR_US: Final = 3_600_000_000


class Rule(Enum):
    """What is found."""

    REPLAY = "replay"
    BURST = "burst"
    WORK_FARMING = "work_farming"
    SPENT_CAPABILITY = "spent_capability"


class Severity(Enum):
    """How far above the limit."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Suggestion(Enum):
    """What a node could do, the gentlest first."""

    NONE = "none"
    POW = "pow"
    RATE = "rate"
    BLOCK = "block"


class Measure(Enum):
    """What is counted of one actor in one hour."""

    COPIES = "copies"
    """Packets that clients brought again, or when they were too old: by author."""
    REPLAYED = "replayed"
    """Messages refused because they were not new: by sender."""
    PACKETS = "packets"
    """Packets that clients brought and the node accepted: by author."""
    LIMITED = "limited"
    """Requests refused because they were too many: by sender."""
    OVER_BUDGET = "over_budget"
    """Packets that clients brought and the node refused because there were too many of them: by author."""
    TURNED_AWAY = "turned_away"
    """Connections refused because their network had too many: by network."""
    BAD_WORK = "bad_work"
    """Proofs of work that were rejected: by worker."""
    GRANTS = "grants"
    """Leases and whitelists that work was accepted for: by worker."""
    SPENT = "spent"
    """Deliveries with a capability that was unknown or used: by recipient."""
    KNOWN = "known"
    """Packets accepted from any peer: by author. Finds nothing; ``COPIES`` is measured by it."""


class Standard(NamedTuple):
    """What one measure is held against."""

    rule: Rule
    limit: int
    """What an hour may have at most."""
    action: Suggestion
    """What helps against it, from ``MEDIUM`` on."""


STANDARDS: Final = {
    # A client sends a packet again when the answer is lost, and to a relay that got it from another relay already: two
    # a minute, or COPIES_PER_PACKET of each packet of the hour, whichever is more.
    Measure.COPIES: Standard(Rule.REPLAY, 120, Suggestion.NONE),
    # The same two a minute for what a sender itself repeats, such as after it lost its clock.
    Measure.REPLAYED: Standard(Rule.REPLAY, 120, Suggestion.RATE),
    # One packet a second for an hour, or PACKETS_FACTOR times what is usual (packets_limit). No action: a packet
    # names its author, not its sender, and any peer may send what it has read elsewhere.
    Measure.PACKETS: Standard(Rule.BURST, 3_600, Suggestion.NONE),
    # Ten a minute, all hour: buckets refill evenly and every refusal has a time to retry, so that only a client that
    # ignores it is refused on and on. (A hundred in a row close a connection: specs/strata.md 14.)
    Measure.LIMITED: Standard(Rule.BURST, 600, Suggestion.RATE),
    # The same for packets; but one that was refused is not known, and any peer may send it again and again.
    Measure.OVER_BUDGET: Standard(Rule.BURST, 600, Suggestion.NONE),
    # A network is a /24: when a node starts again, some hundreds behind one router come back at once, each a few times.
    Measure.TURNED_AWAY: Standard(Rule.BURST, 2_400, Suggestion.RATE),
    # A client looks for the difficulty from 16 bits up to at most 26, so one piece of honest work is refused ten times
    # at worst; and a lease lasts days (lprp 8).
    Measure.BAD_WORK: Standard(Rule.WORK_FARMING, 120, Suggestion.POW),
    # Leases last days and a whitelist changes by hand: one every two minutes is a program.
    Measure.GRANTS: Standard(Rule.WORK_FARMING, 30, Suggestion.POW),
    # A sender that lost an answer offers its capability again and is answered from the cache; what is left is one a
    # minute.
    Measure.SPENT: Standard(Rule.SPENT_CAPABILITY, 60, Suggestion.NONE),
}
"""Every measure that finds something."""

COPIES_PER_PACKET: Final = 4
"""Copies of one packet that honest relays and a careful client make: two relays and two repetitions."""

PACKETS_FACTOR: Final = 10
"""How many times what is usual for a node is not unusual yet."""

PACKETS_MAX: Final = 18_000
"""Above this an hour is a burst whatever others do, so that many who flood together do not make it usual.

Half of what a relay's own rate limit lets one identity publish (specs/strata.md 14: 600 a minute).
"""

MEDIUM_ABOVE: Final = 2  # times the limit: below that a limit may be set too low
HIGH_ABOVE: Final = 8
WINDOWS_TO_BLOCK: Final = 2  # one hour may be a mistake in a program; that it goes on is not

AMOUNTS: Final = {
    (Suggestion.POW, Severity.MEDIUM): 2,
    (Suggestion.POW, Severity.HIGH): 4,
    (Suggestion.RATE, Severity.MEDIUM): 60,
    (Suggestion.RATE, Severity.HIGH): 10,
    (Suggestion.BLOCK, Severity.HIGH): 0,
}
"""Extra bits for ``pow``: 4 and 16 times the work. Messages a minute for ``rate``: what a user needs; a trickle."""

_SEVERITIES: Final = tuple(Severity)
_SUGGESTIONS: Final = tuple(Suggestion)
_RULES: Final = tuple(Rule)


class Activity(NamedTuple):
    """One measure of one actor, at one node, in one protocol and hour."""

    actor_kind: str
    actor_ref: bytes
    measure: Measure
    n: int
    first_us: int
    """When the first was, microseconds since 1970."""
    last_us: int


class Finding(NamedTuple):
    """A rule that fired for one actor, at one node, in one protocol and hour."""

    actor_kind: str
    actor_ref: bytes
    rule: Rule
    n: int
    limit: int
    first_us: int
    last_us: int
    severity: Severity
    action: Suggestion


class Evidence(NamedTuple):
    """What ``decide`` looks at of a finding."""

    actor_kind: str
    actor_ref: bytes
    rule: Rule
    window_us: int
    """First moment of its hour."""
    severity: Severity
    action: Suggestion
    expires_us: int


class Decided(NamedTuple):
    """One rule for one subject: a row of ``gold.policy``, without its node."""

    subject_kind: str
    subject_ref: bytes
    action: Suggestion
    amount: int
    rule: Rule
    evidence: int
    valid_from_us: int
    valid_until_us: int
    mode: str


def severity(n: int, limit: int) -> Severity:
    """Return how bad ``n`` is, which is above ``limit``."""
    if n > HIGH_ABOVE * limit:
        return Severity.HIGH
    return Severity.MEDIUM if n > MEDIUM_ABOVE * limit else Severity.LOW


def packets_limit(ordered: Sequence[int], own: int) -> int:
    """Return how many packets of one author are no burst: by what is usual, between two fixed numbers.

    Usual is the lower median of the other authors, so that no author moves its own limit.

    Args:
        ordered: Packets of every author of that node, protocol and hour, ascending.
        own: Packets of the author who is judged, one of ``ordered``.
    """
    index = bisect_left(ordered, own)
    middle = max(0, len(ordered) - 2) // 2  # of the others
    place = middle if middle < index else middle + 1
    usual = ordered[place] if len(ordered) > 1 else 0
    return min(PACKETS_MAX, max(STANDARDS[Measure.PACKETS].limit, PACKETS_FACTOR * usual))


def judge(activities: Iterable[Activity]) -> list[Finding]:
    """Return what is found in one hour of one node and protocol, by actor and rule.

    Where two measures of one rule are too high for one actor, the one with the stronger action counts, then the one
    further above its limit.

    Args:
        activities: Every measure of every actor, each once, in any order.

    Cost: O(activities log activities).
    """
    counted = sorted(activities, key=lambda one: (one.actor_kind, one.actor_ref, one.measure.value))
    packets = sorted(one.n for one in counted if one.measure is Measure.PACKETS)
    known = {one.actor_ref: one.n for one in counted if one.measure is Measure.KNOWN}
    worst: dict[tuple[str, bytes, Rule], Finding] = {}
    for one in counted:
        if one.measure not in STANDARDS:
            continue
        found = _found(one, _limit(one, packets, known.get(one.actor_ref, 0)))
        if found is not None:
            key = (found.actor_kind, found.actor_ref, found.rule)
            before = worst.get(key)
            if before is None or _outweighs(found, before):
                worst[key] = found
    return [worst[key] for key in sorted(worst, key=lambda key: (key[0], key[1], key[2].value))]


def _limit(one: Activity, packets: Sequence[int], known: int) -> int:
    fixed = STANDARDS[one.measure].limit
    if one.measure is Measure.PACKETS:
        return packets_limit(packets, one.n)
    return max(fixed, COPIES_PER_PACKET * known) if one.measure is Measure.COPIES else fixed


def _found(one: Activity, limit: int) -> Finding | None:
    if one.n <= limit:
        return None
    standard, how_bad = STANDARDS[one.measure], severity(one.n, limit)
    action = Suggestion.NONE if how_bad is Severity.LOW else standard.action
    return Finding(
        *(one.actor_kind, one.actor_ref, standard.rule, one.n, limit, one.first_us, one.last_us, how_bad, action)
    )


def _outweighs(found: Finding, before: Finding) -> bool:
    if found.action is not before.action:
        return _SUGGESTIONS.index(found.action) > _SUGGESTIONS.index(before.action)
    return found.n * before.limit > before.n * found.limit


def decide(findings: Iterable[Evidence], as_of_us: int, hours: int, mode: str) -> list[Decided]:
    """Return the rules for one node: one for each subject, the strongest that its findings support.

    A finding counts from the end of its hour until it expires, and its rule holds from the beginning of that hour, so
    that it is in force once it is published. Nothing else leads to a rule: what relays hold of what others hold is
    evidence against no peer, and never blocks one.

    Args:
        findings: Findings of one node, in any order.
        as_of_us: Moment to decide for, microseconds since 1970.
        hours: How long a rule holds at most; never longer than the last of its findings.
        mode: ``shadow`` or ``enforce``.
    """
    live = [
        one
        for one in findings
        if one.action is not Suggestion.NONE and one.window_us + _HOUR_US <= as_of_us < one.expires_us
    ]
    live.sort(key=lambda one: (one.actor_kind, one.actor_ref, _RULES.index(one.rule)))
    decided: list[Decided] = []
    for _, of_subject in groupby(live, key=lambda one: (one.actor_kind, one.actor_ref)):
        rules = [
            _decided(list(of_rule), as_of_us, hours, mode) for _, of_rule in groupby(of_subject, lambda one: one.rule)
        ]
        decided.append(max(rules, key=_strength))
    return decided


def _decided(findings: Sequence[Evidence], as_of_us: int, hours: int, mode: str) -> Decided:
    one = findings[0]
    worst = max((each.severity for each in findings), key=_SEVERITIES.index)
    windows = {each.window_us for each in findings if each.severity is Severity.HIGH}
    blocked = len(windows) >= WINDOWS_TO_BLOCK and one.actor_kind != SOURCE
    action = Suggestion.BLOCK if blocked else max((each.action for each in findings), key=_SUGGESTIONS.index)
    # From the hour of the newest finding, not from as_of: that is the end of an hour, which is still to come when the
    # table is made, and what is going on now would go on until then (PIPE-FROM).
    begins = max(each.window_us for each in findings)
    until = min(as_of_us + hours * _HOUR_US, max(each.expires_us for each in findings))
    amount = AMOUNTS[action, worst]
    return Decided(*(one.actor_kind, one.actor_ref, action, amount, one.rule, len(findings), begins, until, mode))


def _strength(decided: Decided) -> tuple[int, int, int]:
    """Order by action; then by how much it takes away; then the rule that is listed first."""
    harder = -decided.amount if decided.action is Suggestion.RATE else decided.amount
    return _SUGGESTIONS.index(decided.action), harder, -_RULES.index(decided.rule)
