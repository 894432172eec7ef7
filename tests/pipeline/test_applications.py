"""Following nodes, trying a policy and checking a lake, each as one program."""

from pathlib import Path

import pytest

from tests.pipeline.build import rough_archive, rough_journal
from tests.pipeline.conftest import Ran, Recorded
from waystation.core.errors import LocalError
from waystation.pipeline.applications import backtest_policy, check_lake, follow, read_rules
from waystation.pipeline.run import Request
from waystation.rules.policy import Action, Mode, PolicyRule, encode_rule

RULE = PolicyRule("peer", b"p" * 16, Action.RATE, 5, "burst", 1, 2, "abuse-1", Mode.SHADOW)


def test_rules_are_read_as_they_are_published(tmp_path: Path) -> None:
    """A policy file is what a node is told, line by line."""
    (tmp_path / "policy.jsonl").write_bytes(encode_rule(RULE) + b"\n")

    assert read_rules(tmp_path / "policy.jsonl") == [RULE]


@pytest.mark.parametrize(("text", "said"), [(None, "cannot read the policy"), (b"{}\n", "is no policy")])
def test_other_files_are_refused(tmp_path: Path, text: bytes | None, said: str) -> None:
    """A file that is not there, or says something else, is one sentence."""
    if text is not None:
        (tmp_path / "policy.jsonl").write_bytes(text)

    with pytest.raises(LocalError, match=said):
        read_rules(tmp_path / "policy.jsonl")


def test_missing_lake_and_journal_are_said(tmp_path: Path) -> None:
    """A wrong path is told before Spark is started."""
    request = Request(tmp_path / "journal", tmp_path / "lake", tmp_path / "r.html")

    with pytest.raises(LocalError, match="there is no lake"):
        check_lake(request, Recorded(), ties=False)
    with pytest.raises(LocalError, match="there is no lake"):
        backtest_policy(request, [RULE], Recorded())
    with pytest.raises(LocalError, match="there is no journal"):
        follow(request, Recorded())


@pytest.mark.spark
def test_lake_is_checked_and_tried(spark, ran: Ran) -> None:
    """A lake that was made in good order passes every check, and a rule for nobody refuses nothing."""
    checks = check_lake(ran.request, Recorded(), ties=True)
    report = backtest_policy(ran.request, [RULE], Recorded()).document()

    assert [check for check in checks if not check.ok] == []
    assert len(checks) > 6
    assert report["refused"] == 0


@pytest.mark.spark
@pytest.mark.slow
def test_following_takes_what_a_run_takes(spark, ran: Ran, tmp_path: Path) -> None:
    """Journal and archive go into bronze as a run takes them, each line once."""
    rough_journal(tmp_path / "journal")
    rough_archive(tmp_path / "archive")
    taken = follow(Request(tmp_path / "journal", tmp_path / "lake", tmp_path / "r.html"), Recorded())

    assert taken["ingest"].rows_out == ran.first.row_counts["bronze.events"]
    assert taken["archive"].rows_out == ran.first.row_counts["bronze.archive"]
