"""Settings of the pipeline: the table ``[pipeline]``, loaded by ``config``.

Steps read retention, limits and places from it through their ``Context``.
"""

from dataclasses import dataclass

from waystation.core.settings import setting

__all__ = ["PipelineSettings"]


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """Defaults fit one node on one machine."""

    lake: str = setting("", "Where the tables lie: a folder, or a URL such as s3a://bucket/lake. Empty: HOME/lake.")
    recompute_days: int = setting(
        8, "Days that each run computes again, so that late rows are put right.", unit="days", at_least=1, at_most=13
    )
    suppress_below: int = setting(
        10, "Counts below this are left out of published files.", unit="rows", at_least=1, at_most=1_000
    )
    policy_mode: str = setting(
        "shadow",
        "What published policy asks of nodes: only count what it would do, or do it.",
        choices=("shadow", "enforce"),
    )
    policy_hours: int = setting(24, "How long published policy and scores hold.", unit="h", at_least=1, at_most=168)
    witnesses: int = setting(
        2, "Other relays that must have a packet before a relay is expected to have it.", at_least=1, at_most=100
    )
    grace_s: int = setting(
        3_600, "Age of a packet before a relay is expected to have it.", unit="s", at_least=0, at_most=604_800
    )
    disk_gib: int = setting(
        0, "Size of the disk that store and journal share, for days_to_full; 0 for unknown.", unit="GiB", at_least=0
    )
