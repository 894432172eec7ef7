"""Gold (result) datasets on abuse: findings, and the policy rules derived from them.

``jobs.abuse`` writes them, ``jobs.publish`` makes the nodes' rules of them.
"""

from typing import Final

from waystation.pipeline.tables.columns import NODE, OPERATIONAL, PROTOCOL, PSEUDONYMOUS
from waystation.pipeline.tables.dataset import Column, Dataset

__all__ = ["GOLD_ABUSE_FINDINGS", "GOLD_POLICY"]

GOLD_ABUSE_FINDINGS: Final = Dataset(
    "gold",
    "abuse_findings",
    "one actor, rule and window",
    (
        NODE,
        PROTOCOL,
        Column("actor_kind", "string", False, OPERATIONAL, "`peer` or `source`: what actor_ref is the keyed hash of."),
        Column(
            "actor_ref", "binary", False, PSEUDONYMOUS, "Keyed hash of a key, or of a network (IPv4 /24, IPv6 /48)."
        ),
        Column("rule", "string", False, OPERATIONAL, "Rule that fired: rules.abuse.Rule."),
        Column("rule_version", "string", False, OPERATIONAL, "Version of the rules."),
        Column("window_start", "timestamp", False, OPERATIONAL, "First moment of the window."),
        Column("n", "bigint", False, OPERATIONAL, "What the rule counts, in the window."),
        Column("limit", "bigint", False, OPERATIONAL, "What it may be at most."),
        Column("first_at", "timestamp", False, OPERATIONAL, "First event that counted."),
        Column("last_at", "timestamp", False, OPERATIONAL, "Last event that counted."),
        Column("severity", "string", False, OPERATIONAL, "`low`, `medium` or `high`."),
        Column("suggested_action", "string", False, OPERATIONAL, "`none`, `pow`, `rate` or `block`."),
        Column("expires_at", "timestamp", False, OPERATIONAL, "When it is no reason for anything any more."),
    ),
    ("node_id", "protocol", "actor_kind", "actor_ref", "rule", "window_start"),
    "window_start",
    7,
)

GOLD_POLICY: Final = Dataset(
    "gold",
    "policy",
    "one rule for one subject, as published for the nodes",
    (
        NODE,
        Column("as_of", "timestamp", False, OPERATIONAL, "Moment it was decided for."),
        Column("subject_kind", "string", False, OPERATIONAL, "`peer` or `source`."),
        Column("subject_ref", "binary", False, PSEUDONYMOUS, "Keyed hash by the node it is for."),
        Column("action", "string", False, OPERATIONAL, "`pow`, `rate` or `block`."),
        Column(
            "amount", "bigint", False, OPERATIONAL, "Extra bits for `pow`, messages a minute for `rate`, 0 for `block`."
        ),
        Column("rule", "string", False, OPERATIONAL, "Rule of the finding that led to it."),
        Column("evidence", "bigint", False, OPERATIONAL, "Findings that support it."),
        Column("valid_from", "timestamp", False, OPERATIONAL, "When it begins."),
        Column("valid_until", "timestamp", False, OPERATIONAL, "When it ends by itself."),
        Column("rule_version", "string", False, OPERATIONAL, "Version of the rules."),
        Column("mode", "string", False, OPERATIONAL, "`shadow` or `enforce`."),
    ),
    ("node_id", "as_of", "subject_kind", "subject_ref", "rule"),
    "as_of",
    7,
)
