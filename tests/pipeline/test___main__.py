"""The entry for spark-submit."""

import json

import pytest

from tests.pipeline.build import rough_archive, rough_journal
from waystation.pipeline.__main__ import main


def test_wrong_path_exits_2(tmp_path, capsys) -> None:
    """A missing journal is one sentence and the exit code for usage."""
    assert main(["--home", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("waystation: there is no journal at")


def test_wrong_date_exits_2(capsys) -> None:
    """A date in another form is refused by the parser."""
    with pytest.raises(SystemExit) as caught:
        main(["--from", "29.5.2026"])

    assert caught.value.code == 2


@pytest.mark.slow
@pytest.mark.spark
def test_run_prints_its_report_as_json(spark, tmp_path, capsys) -> None:
    """The whole path runs from arguments alone; dates limit what is made, but not which packets are checked."""
    rough_journal(tmp_path / "journal")
    verdicts = rough_archive(tmp_path / "elsewhere")
    code = main(
        [
            "--home",
            str(tmp_path),
            "--archive",
            str(tmp_path / "elsewhere"),
            "--from",
            "2026-05-30",
            "--to",
            "2026-05-30",
            "--steps",
            "ingest,archive,conform,verify",
        ]
    )
    document = json.loads(capsys.readouterr().out)

    assert code == 0
    assert document["row_counts"]["silver.deliveries"] == 80
    assert {step["name"]: step for step in document["steps"]}["verify"]["rows_out"] == len(verdicts)
    assert (tmp_path / "report.html").exists()
