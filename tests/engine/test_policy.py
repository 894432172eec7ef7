"""Laws of engine.policy: who is met, what is done, and what is only counted."""

import random

import pytest

from tests.engine.build import KEY, SECOND, WALL
from waystation.core.dids import encode_did, identity_of
from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey, encode_id52
from waystation.core.instant import Instant
from waystation.crypto.hashing import keyed_reference
from waystation.engine.admission import AdmissionRefusal
from waystation.engine.policy import Allowed, Match, Policy, Stance, parse_allowed
from waystation.engine.recorder import Recorder
from waystation.rules.policy import Action, Mode, PolicyRule, PolicyTable, RelayScore
from waystation.rules.relay_state import State

HOST, NEIGHBOUR, STRANGER = "192.0.2.7", "192.0.2.200", "198.51.100.7"
PEER = PublicKey(b"p" * 32)
NOW = Instant(50 * SECOND)
ENDS = WALL + 3_600 * SECOND
RELAY = "0123456789abcdef"


def source_ref(network="net:192.0.2.0/24", key=KEY):
    """Return what the node calls a network."""
    return keyed_reference(key, network.encode())


BLOCK = PolicyRule("source", source_ref(), Action.BLOCK, 0, "burst", WALL, ENDS, "1", Mode.ENFORCE)
RATE = BLOCK._replace(action=Action.RATE, amount=3)
OF_PEER = {"subject_kind": "peer", "subject_ref": keyed_reference(KEY, PEER)}


def policy(*rules, stance=Stance.ENFORCE, allowed=None, scores=(), ends=ENDS):
    """Return a policy with this table, at ``NOW``."""
    made = Policy(stance, allowed or Allowed())
    made.use_key(KEY)
    made.set_wall(NOW, WALL)
    made.use(PolicyTable(rules, ends), {score.relay_id: score for score in scores})
    return made


def test_without_a_table_nothing_is_asked():
    """An empty table is not active and refuses nobody."""
    empty = policy()

    assert not empty.is_active
    assert empty.refuses(HOST, NOW) is None
    assert empty.admits(PEER, NOW)
    assert (empty.throttle(PEER, NOW), empty.extra_bits(PEER, NOW)) == (0, 0)
    assert empty.sizes() == {"rules": 0, "buckets": 0, "references": 0}


def test_blocked_network_is_refused():
    """Every address of it, through IPv6 too, and nobody else; without an address nothing is known."""
    blocking = policy(BLOCK)

    assert {blocking.refuses(host, NOW) for host in (HOST, NEIGHBOUR, f"::ffff:{HOST}")} == {
        AdmissionRefusal.POLICY_BLOCKED
    }
    assert [blocking.refuses(host, NOW) for host in (STRANGER, "", "unix")] == [None] * 3
    assert blocking.matches() == {Match("burst", "block", "enforce"): 3}


def test_source_is_named_as_the_recorder_names_it():
    """What the recorder writes of a network that is turned away is what a rule about it must say."""
    events = []
    recorder = Recorder(events.append, random.Random(1))
    recorder.use_key(KEY)
    recorder.refused_by_admission("bhumi", AdmissionRefusal.FULL, NOW, HOST)
    recorder.node_stopped(NOW)

    assert source_ref() in [getattr(event, "source_ref", None) for event in events]


def test_rate_lets_so_many_a_minute_pass():
    """A burst of the amount, then one by one as time passes."""
    limiting = policy(RATE)
    answers = [limiting.refuses(HOST, NOW) for _ in range(5)]
    later = [limiting.refuses(HOST, Instant(NOW + 20 * SECOND)) for _ in range(2)]

    assert answers == [None] * 3 + [AdmissionRefusal.POLICY_RATE] * 2
    assert later == [None, AdmissionRefusal.POLICY_RATE]


@pytest.mark.parametrize("rule", [BLOCK, RATE])
@pytest.mark.parametrize(
    ("stance", "mode"), [(Stance.SHADOW, Mode.ENFORCE), (Stance.ENFORCE, Mode.SHADOW), (Stance.SHADOW, Mode.SHADOW)]
)
def test_shadow_only_counts(rule, stance, mode):
    """Unless rule and operator both enforce, what would have been done is counted and nobody is refused."""
    shadowing = policy(rule._replace(mode=mode), stance=stance)
    answers = [shadowing.refuses(HOST, NOW) for _ in range(10)]
    times = 10 if rule is BLOCK else 7

    assert answers == [None] * 10
    assert shadowing.matches() == {Match("burst", rule.action.value, "shadow"): times}


def test_off_does_not_even_count():
    """A node that wants no policy has none; told otherwise, it has."""
    off = policy(BLOCK, stance=Stance.OFF, scores=[RelayScore(RELAY, 0.1, State.BLACKLISTED, 0, None, 0)])

    assert (off.is_active, off.refuses(HOST, NOW), off.avoids(RELAY, "did:web:x", NOW)) == (False, None, False)
    off.use_operator(Stance.ENFORCE, Allowed())
    assert off.refuses(HOST, NOW) is AdmissionRefusal.POLICY_BLOCKED


def test_allowed_are_left_alone():
    """The operator's list wins over every rule, for addresses, identities and relays."""
    did = "did:web:relay.example.org"
    allowed = parse_allowed([HOST, PEER.hex(), did])
    score = RelayScore(RELAY, 0.1, State.BLACKLISTED, 0, None, 0)
    blocking = policy(BLOCK, BLOCK._replace(**OF_PEER), allowed=allowed, scores=[score])

    assert blocking.refuses(HOST, NOW) is None
    assert blocking.refuses(NEIGHBOUR, NOW) is AdmissionRefusal.POLICY_BLOCKED
    assert blocking.admits(PEER, NOW)
    assert (blocking.avoids(RELAY, did, NOW), blocking.avoids(RELAY, "did:web:other", NOW)) == (False, True)


def test_allow_list_takes_every_spelling():
    """One key in three spellings is one identity; a DID that is no key is itself."""
    texts = [PEER.hex(), encode_id52(PEER), encode_did(PEER), "did:web:example.org", "2001:db8::1"]

    assert parse_allowed(texts) == Allowed(frozenset({PEER, b"did:web:example.org"}), frozenset({"2001:db8::/64"}))
    assert identity_of(encode_did(PEER)) == PEER
    with pytest.raises(LocalError, match="is neither an IP address"):
        parse_allowed(["nobody"])


def test_identity_is_blocked_limited_or_made_to_work():
    """A rule about a peer keeps it out, makes it wait, or makes its work harder."""
    rate = RATE._replace(**OF_PEER)
    work = RATE._replace(**OF_PEER, action=Action.POW, amount=5, rule="work_farming")
    other = PublicKey(b"o" * 32)
    limiting = policy(rate, work)
    waits = [limiting.throttle(PEER, NOW) for _ in range(4)]
    blocking = policy(BLOCK._replace(**OF_PEER))

    assert (waits, limiting.throttle(other, NOW)) == ([0, 0, 0, 20], 0)
    assert (limiting.extra_bits(PEER, NOW), limiting.extra_bits(other, NOW)) == (5, 0)
    assert limiting.admits(PEER, NOW)
    assert (blocking.admits(PEER, NOW), blocking.admits(other, NOW)) == (False, True)
    assert blocking.throttle(PEER, NOW) == 3_600


def test_rules_end_by_themselves():
    """At its own end, and at the end of its snapshot, a rule does nothing."""
    blocking = policy(BLOCK, ends=ENDS + SECOND)
    short = policy(BLOCK, ends=WALL + SECOND)

    assert blocking.refuses(HOST, Instant(NOW + 3_600 * SECOND)) is None
    assert short.refuses(HOST, Instant(NOW + SECOND)) is None


def test_new_week_forgets_the_old_references():
    """Rules about references of the old key meet nobody once the key has changed (PIPE-ROTATE)."""
    blocking = policy(BLOCK)
    before = blocking.refuses(HOST, NOW)
    blocking.use_key(b"n" * 32)
    after = blocking.refuses(HOST, NOW)
    blocking.use(PolicyTable([BLOCK._replace(subject_ref=source_ref(key=b"n" * 32))], ENDS), {})

    assert (before, after) == (AdmissionRefusal.POLICY_BLOCKED, None)
    assert blocking.refuses(HOST, NOW) is AdmissionRefusal.POLICY_BLOCKED


def test_same_rule_of_the_next_snapshot_goes_on():
    """A later end neither fills the bucket again nor forgets the count; a rule that is gone is forgotten."""
    limiting = policy(RATE)
    for _ in range(4):
        limiting.refuses(HOST, NOW)
    limiting.use(PolicyTable([RATE._replace(valid_until_us=ENDS + SECOND)], ENDS + SECOND), {})
    answer, shown = limiting.refuses(HOST, NOW), limiting.view(10)["rules"][0]["matches"]
    limiting.use(PolicyTable((), ENDS), {})

    assert (answer, shown) == (AdmissionRefusal.POLICY_RATE, 2)
    assert limiting.sizes()["buckets"] == 0


def test_blacklisted_relay_is_avoided():
    """Under ``enforce`` only, counted otherwise, and no longer than the snapshot lasts."""
    scores = [
        RelayScore(RELAY, 0.1, State.BLACKLISTED, 0, None, 0),
        RelayScore("f" * 16, 0.9, State.ACTIVE, 0, None, 0),
    ]
    enforcing, shadowing = policy(scores=scores), policy(scores=scores, stance=Stance.SHADOW)

    assert [enforcing.avoids(relay, "did:web:x", NOW) for relay in (RELAY, "f" * 16, "0" * 16)] == [True, False, False]
    assert not shadowing.avoids(RELAY, "did:web:x", NOW)
    assert shadowing.matches() == {Match("relay_state", "blacklisted", "shadow"): 1}
    assert not enforcing.avoids(RELAY, "did:web:x", Instant(NOW + 3_600 * SECOND))


def test_everything_kept_is_bounded(monkeypatch):
    """Subjects, buckets and names in counters have their most."""
    from waystation.engine import policy as module  # noqa: PLC0415

    monkeypatch.setattr(module, "REFERENCES_MAX", 4)
    monkeypatch.setattr(module, "BUCKETS_MAX", 4)
    monkeypatch.setattr(module, "RULE_NAMES_MAX", 3)
    hosts = [f"192.0.{number}.1" for number in range(20)]
    refs = [source_ref(f"net:192.0.{number}.0/24") for number in range(20)]
    rules = [RATE._replace(subject_ref=ref, rule=f"rule{number}", amount=1) for number, ref in enumerate(refs)]
    crowded = policy(*rules)
    for host in hosts * 2:
        crowded.refuses(host, NOW)
        crowded.refuses(host, NOW)

    assert crowded.sizes() == {"rules": 20, "buckets": 4, "references": 4}
    assert {match.rule for match in crowded.matches()} == {"rule0", "rule1", "rule2", "other"}
    assert sum(crowded.matches().values()) == 40
    assert crowded.view(3)["count"] == 20
    assert len(crowded.view(3)["rules"]) == 3
