"""How the options of ``waystation pipeline`` become a request."""

import datetime
from pathlib import Path

import pytest

from waystation.cli.pipeline.options import read_settings, request_of, split_pairs
from waystation.core.errors import LocalError
from waystation.pipeline.jobs.step import DateRange
from waystation.pipeline.settings import PipelineSettings


def test_nothing_said_is_taken_from_the_home() -> None:
    """Journal, lake and report lie in the home, all steps run, and the moment is the data's."""
    request = request_of("h")

    assert (request.journal, request.lake, request.report) == (Path("h/journal"), Path("h/lake"), Path("h/report.html"))
    assert (request.dates, request.steps, request.as_of, request.master) == (DateRange(), None, None, None)


def test_steps_and_settings_are_split() -> None:
    """Names with commas between, Spark settings with an equals sign."""
    request = request_of("h", steps="qos, abuse", conf=["spark.a=1", "spark.b=x=y"])

    assert request.steps == ("qos", "abuse")
    assert request.conf == {"spark.a": "1", "spark.b": "x=y"}


def test_setting_without_a_value_is_refused() -> None:
    """A Spark setting that sets nothing is a mistake."""
    with pytest.raises(LocalError, match=r"'spark\.a' is no setting; write it as KEY=VALUE"):
        split_pairs(["spark.a"])


@pytest.mark.parametrize("text", ["2026-11-20T07:00", "2026-11-20T07:00+00:00", "2026-11-20T08:00+01:00"])
def test_hour_is_read_as_utc(text: str) -> None:
    """An hour without a zone is UTC; one with another zone is turned into it."""
    assert request_of("h", as_of=text).as_of == datetime.datetime(2026, 11, 20, 7, tzinfo=datetime.UTC)


@pytest.mark.parametrize(("text", "said"), [("soon", "is no hour"), ("2026-11-20T07:30", "is no full hour")])
def test_other_moments_are_refused(text: str, said: str) -> None:
    """Windows end at full hours only."""
    with pytest.raises(LocalError, match=said):
        request_of("h", as_of=text)


def test_dates_are_one_or_two() -> None:
    """One date is a range of one; one date and a range is a contradiction."""
    day = datetime.date(2026, 11, 20)

    assert request_of("h", dates=("2026-11-20", None, None)).dates == DateRange(day, day)
    with pytest.raises(LocalError, match="not both"):
        request_of("h", dates=("2026-11-20", "2026-11-19", None))
    with pytest.raises(LocalError, match="is no date"):
        request_of("h", dates=("20.11.", None, None))


def test_settings_of_the_home_are_read(tmp_path: Path) -> None:
    """HOME/pipeline.toml counts when no file is named, and its lake when no flag names one."""
    (tmp_path / "pipeline.toml").write_text('[pipeline]\nlake = "/data/lake"\nwitnesses = 5\n')

    assert read_settings(str(tmp_path), None) == PipelineSettings(lake="/data/lake", witnesses=5)
    assert request_of(str(tmp_path)).lake == "/data/lake"
    assert request_of(str(tmp_path), lake="else").lake == "else"
