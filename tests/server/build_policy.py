"""Published snapshots on disk, as the pipeline writes them."""

import datetime
import time

from waystation.pipeline.publish import Part, publish_parts, table_part
from waystation.rules.policy import Action, Mode, PolicyRule, RelayScore, encode_rule, encode_score
from waystation.rules.relay_state import State
from waystation.rules.snapshot import POLICY_SCHEMA, SCORES_SCHEMA

NODE = "0011223344556677"
OTHER_NODE = "8899aabbccddeeff"
SECOND = 1_000_000
HOUR = 3_600 * SECOND


def moment(us):
    """Return a time of the wall clock as the pipeline has it."""
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=us)


def wall_us():
    """Return what the wall clock says."""
    return time.time_ns() // 1_000


def rule_of(ref=bytes(16), **changes):
    """Return a rule that blocks a source from two hours ago to a day from now."""
    now = wall_us()
    rule = PolicyRule("source", ref, Action.BLOCK, 0, "burst", now - 2 * HOUR, now + 24 * HOUR, "1", Mode.ENFORCE)
    return rule._replace(**changes)


def score_of(relay_id="0123456789abcdef", state=State.ACTIVE, score=0.9):
    """Return the score of a relay."""
    return RelayScore(relay_id, score, state, 1_000, None, 2_000)


def policy_part(rules, node_id=NODE):
    """Return the file of one node's rules."""
    lines = [encode_rule(rule) + b"\n" for rule in rules]
    return Part(f"policy-{node_id}", "jsonl", POLICY_SCHEMA, len(lines), b"".join(lines))


def scores_part(scores):
    """Return the file of scores."""
    lines = [encode_score(score) + b"\n" for score in scores]
    return Part("scores", "jsonl", SCORES_SCHEMA, len(lines), b"".join(lines), is_local=True)


def publish(lake, rules=(), scores=(), *, node_id=NODE, as_of_us=None, lasts_us=24 * HOUR, more=()):
    """Publish one snapshot into a lake's folder; it began an hour ago unless told otherwise."""
    as_of_us = wall_us() - HOUR if as_of_us is None else as_of_us
    table = table_part("outcomes", moment(as_of_us), [{"n": 12}])
    return publish_parts(
        lake,
        [policy_part(rules, node_id), scores_part(scores), table, *more],
        as_of=moment(as_of_us),
        expires_at=moment(as_of_us + lasts_us),
        rule_version="1",
    )
