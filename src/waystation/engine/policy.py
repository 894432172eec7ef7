"""Applies the pipeline's published policy: blocks, rate limits, extra proof of work, and relays to avoid.

``server.policy_reader`` puts a table in; ``engine.node`` and relays ask it about a peer and get a decision. The table
names subjects by keyed references. The node computes the same references with its key and looks them up. A rule is
enforced only if the rule and the operator's setting are both ``enforce``; otherwise its matches are only counted. Peers
on the operator's allow list are exempt. Operator bans are checked earlier, in ``bans``. The reference key changes
weekly. Rules with references of the old key then match no peer (PIPE-ROTATE), until the pipeline publishes new ones.

Without a table, callers only check ``is_active``.
"""

import enum
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from waystation.core.dids import identity_of, is_did, key_of_did
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.core.limits import TokenBucket
from waystation.core.networks import network_of
from waystation.crypto.hashing import keyed_reference
from waystation.engine.admission import AdmissionRefusal, address_key
from waystation.engine.bans import parse_subject
from waystation.rules.policy import Action, Mode, PolicyRule, PolicyTable, RelayScore, Subject
from waystation.rules.relay_state import State

__all__ = ["Allowed", "Match", "Policy", "Stance", "parse_allowed"]

REFERENCES_MAX: Final = 65_536  # subjects whose reference is remembered; as many as LPRP knows sources
BUCKETS_MAX: Final = 65_536
RULE_NAMES_MAX: Final = 32  # different names in the counters; further ones are counted together
_OTHER: Final = "other"
_WINDOW_S: Final = 60
_RETRY_S_MAX: Final = 86_400

_Name = tuple[str, bytes, str, Action, int]
"""What a rule is, apart from its times: the next snapshot brings the same one with a later end."""


class Stance(enum.Enum):
    """What the operator of this node wants of a table."""

    OFF = "off"
    """Nothing: it is not even counted."""
    SHADOW = "shadow"
    """What it would have done is counted."""
    ENFORCE = "enforce"
    """It is carried out where its rules enforce it too."""


class Match(NamedTuple):
    """What is counted: a rule was met."""

    rule: str
    action: str
    mode: str
    """``enforce`` when it was carried out, else ``shadow``."""


class Allowed(NamedTuple):
    """Whom no rule touches."""

    identities: frozenset[bytes] = frozenset()
    """As ``identity_of`` has them."""
    addresses: frozenset[str] = frozenset()
    """As ``admission.address_key`` has them."""


def parse_allowed(texts: Iterable[str]) -> Allowed:
    """Read a list of keys (id52, hexadecimal), DIDs and IP addresses.

    Raises:
        LocalError: One of them is none of these.
    """
    identities: set[bytes] = set()
    addresses: set[str] = set()
    for text in texts:
        if is_did(text) and key_of_did(text) is None:
            identities.add(text.encode())
            continue
        kind, _, rest = parse_subject(text).partition(":")
        if kind == "id":
            identities.add(bytes.fromhex(rest))
        else:
            addresses.add(rest)
    return Allowed(frozenset(identities), frozenset(addresses))


class Policy:
    """One table with what it did. Cost: O(1) per question; memory O(rules and subjects that came)."""

    def __init__(self, stance: Stance = Stance.SHADOW, allowed: Allowed = Allowed()) -> None:  # noqa: B008 - immutable
        """Begin without a table; call ``use_key`` and ``set_wall`` before one comes."""
        self.stance = stance
        """What the operator wants."""
        self._allowed = allowed
        self._table = PolicyTable()
        self._scores: Mapping[str, RelayScore] = {}
        self._key = b""
        self._wall_offset = 0
        self._references: dict[str | bytes, bytes] = {}
        self._buckets: OrderedDict[_Name, TokenBucket] = OrderedDict()
        self._matches: dict[Match, int] = {}
        self._met: dict[_Name, int] = {}
        self.is_active = False
        """Whether there is any rule to be met; ask this first."""

    # Inputs

    def use(self, table: PolicyTable, scores: Mapping[str, RelayScore]) -> None:
        """Go by this table and these scores from now on; what counted towards a rule that stays goes on counting."""
        self._table, self._scores = table, dict(scores)
        self._met = {name: times for name, times in self._met.items() if self._holds(name)}
        self._buckets = OrderedDict((name, bucket) for name, bucket in self._buckets.items() if self._holds(name))
        self._weigh()

    def use_operator(self, stance: Stance, allowed: Allowed) -> None:
        """Do what the operator wants now."""
        self.stance, self._allowed = stance, allowed
        self._weigh()

    def use_key(self, key: bytes) -> None:
        """Make references with ``key`` from now on; rules with those of another key match no peer."""
        if key != self._key:
            self._key = key
            self._references.clear()

    def set_wall(self, now: Instant, wall_us: int) -> None:
        """Tie the monotonic clock to the wall clock: ``now`` is ``wall_us`` (microseconds UTC)."""
        self._wall_offset = wall_us - now

    def _weigh(self) -> None:
        self.is_active = self.stance is not Stance.OFF and len(self._table) > 0

    # What it is asked

    def refuses(self, host: str, now: Instant, *, connects: bool = True) -> AdmissionRefusal | None:
        """Return why a connection or datagram of ``host`` is not taken, or None.

        Only connections are counted against a rate: nothing proves where a datagram comes from, and a peer that
        forges an address must not use up the allowance of its owner.
        """
        network = network_of(host) if self.is_active else ""
        if not network:
            return None
        allowed = bool(self._allowed.addresses) and address_key(host) in self._allowed.addresses
        for rule in self._rules(Subject.SOURCE, network, now, allowed=allowed):
            if rule.action is Action.BLOCK and self._meet(rule):
                return AdmissionRefusal.POLICY_BLOCKED
            if not connects or rule.action is not Action.RATE:
                continue
            if not self._bucket(rule, now).take(now) and self._meet(rule):
                return AdmissionRefusal.POLICY_RATE
        return None

    def admits(self, identity: PublicKey, now: Instant) -> bool:
        """Return whether an identity may speak at all."""
        if not self.is_active:
            return True
        return not any(rule.action is Action.BLOCK and self._meet(rule) for rule in self._rules_of(identity, now))

    def throttle(self, identity: bytes, now: Instant) -> int:
        """Count one message of an identity, and return in how many seconds it may come again; 0 takes it now.

        Args:
            identity: Its key, or its DID where that is no key.
            now: Monotonic time.
        """
        for rule in self._rules_of(identity, now) if self.is_active else ():
            if rule.action is Action.BLOCK and self._meet(rule):
                return _seconds(rule.valid_until_us - now - self._wall_offset)
            if rule.action is Action.RATE:
                bucket = self._bucket(rule, now)
                if not bucket.take(now) and self._meet(rule):
                    return _seconds(bucket.ready_at() - now)
        return 0

    def extra_bits(self, identity: PublicKey, now: Instant) -> int:
        """Return how many bits more a challenge for this identity demands."""
        for rule in self._rules_of(identity, now) if self.is_active else ():
            if rule.action is Action.POW and self._meet(rule):
                return rule.amount
        return 0

    def avoids(self, relay_id: str, did: str, now: Instant) -> bool:
        """Return whether another relay is left alone, being blacklisted; without ``enforce`` this is only counted.

        Args:
            relay_id: Its 16 hexadecimal digits.
            did: What the operator calls it: if the list allows it, it is dialled.
            now: Monotonic time.
        """
        score = self.scores(now).get(relay_id)
        if score is None or score.state is not State.BLACKLISTED or self.stance is Stance.OFF:
            return False
        if identity_of(did) in self._allowed.identities:
            return False
        enforced = self.stance is Stance.ENFORCE
        self._count(Match("relay_state", State.BLACKLISTED.value, _mode(enforced=enforced)))
        return enforced

    # Queries

    def scores(self, now: Instant) -> Mapping[str, RelayScore]:
        """Return other relays' scores by relay; none once the table has ended."""
        return self._scores if now + self._wall_offset < self._table.expires_at_us else {}

    def matches(self) -> dict[Match, int]:
        """Return how often rules were met since the start."""
        return dict(self._matches)

    def view(self, count_max: int) -> dict[str, Any]:
        """Return at most ``count_max`` rules with how often each was met, those met most first."""
        met = [(self._met.get(_name_of(rule), 0), rule) for rule in self._table]
        met.sort(key=lambda each: (-each[0], each[1].subject_kind, each[1].subject_ref, each[1].rule))
        return {"count": len(met), "rules": [_shown(rule, times) for times, rule in met[:count_max]]}

    def sizes(self) -> dict[str, int]:
        """Return how much of each bounded thing there is."""
        return {"rules": len(self._table), "buckets": len(self._buckets), "references": len(self._references)}

    # Inside

    def _holds(self, name: _Name) -> bool:
        kind, reference, *_ = name
        return any(_name_of(rule) == name for rule in self._table.about(kind, reference))

    def _rules_of(self, identity: bytes, now: Instant) -> tuple[PolicyRule, ...]:
        return self._rules(Subject.PEER, identity, now, allowed=identity in self._allowed.identities)

    def _rules(self, kind: Subject, subject: str | bytes, now: Instant, *, allowed: bool) -> tuple[PolicyRule, ...]:
        reference = self._references.get(subject)
        if reference is None:
            if len(self._references) >= REFERENCES_MAX:
                self._references.clear()
            data = subject.encode() if isinstance(subject, str) else subject
            reference = self._references[subject] = keyed_reference(self._key, data)
        return self._table.decide(kind.value, reference, now + self._wall_offset, allowed=allowed)

    def _meet(self, rule: PolicyRule) -> bool:
        """Count that a rule was met; return whether it is carried out."""
        enforced = self.stance is Stance.ENFORCE and rule.mode is Mode.ENFORCE
        name = _name_of(rule)
        self._met[name] = self._met.get(name, 0) + 1
        self._count(Match(rule.rule, rule.action.value, _mode(enforced=enforced)))
        return enforced

    def _count(self, match: Match) -> None:
        if match not in self._matches and len({known.rule for known in self._matches} | {match.rule}) > RULE_NAMES_MAX:
            match = match._replace(rule=_OTHER)
        self._matches[match] = self._matches.get(match, 0) + 1

    def _bucket(self, rule: PolicyRule, now: Instant) -> TokenBucket:
        name = _name_of(rule)
        bucket = self._buckets.get(name)
        if bucket is None:
            if len(self._buckets) >= BUCKETS_MAX:
                self._buckets.popitem(last=False)
            bucket = self._buckets[name] = TokenBucket(rule.amount, rule.amount, now, period_s=_WINDOW_S)
        else:
            self._buckets.move_to_end(name)
        return bucket


def _name_of(rule: PolicyRule) -> _Name:
    return rule.subject_kind, rule.subject_ref, rule.rule, rule.action, rule.amount


def _mode(*, enforced: bool) -> str:
    return Mode.ENFORCE.value if enforced else Mode.SHADOW.value


def _seconds(wait_us: int) -> int:
    return min(max(1, -(-wait_us // MICROSECONDS_PER_SECOND)), _RETRY_S_MAX)


def _shown(rule: PolicyRule, times: int) -> dict[str, Any]:
    return {
        "subject_kind": rule.subject_kind,
        "subject_ref": rule.subject_ref.hex(),
        "action": rule.action.value,
        "amount": rule.amount,
        "rule": rule.rule,
        "valid_from_us": rule.valid_from_us,
        "valid_until_us": rule.valid_until_us,
        "rule_version": rule.rule_version,
        "mode": rule.mode.value,
        "matches": times,
    }
