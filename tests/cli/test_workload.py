"""``waystation pipeline generate`` writes a workload and says what it wrote."""

import json

import pytest
import typer
from typer.testing import CliRunner

from waystation.cli.workload import LATE_FOLDER, generate
from waystation.core.errors import HostError, LocalError
from waystation.sim.workload import Workload

SMALL = ("--nodes", "2", "--days", "2", "--events", "600")


def called(*words):
    app = typer.Typer()
    app.command()(generate)
    result = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_files_are_those_of_the_workload(tmp_path):
    """What lies on the disk is what the generator yields, and the JSON line counts it."""
    said = json.loads(called(tmp_path / "w", *SMALL, "--seed", 5, "--honest", "--json"))
    workload = Workload(5, 2, 2, 600)
    wanted = {file.path: file.data for file in workload.files()}
    found = {
        path.relative_to(tmp_path / "w").as_posix(): path.read_bytes()
        for path in (tmp_path / "w").rglob("*")
        if path.is_file() and path.name != "truth.json"
    }

    assert found == wanted
    assert json.loads((tmp_path / "w" / "truth.json").read_text()) == workload.truth()
    assert (said["files"], said["bytes"]) == (len(wanted), sum(map(len, wanted.values())))


def test_the_second_shipment_has_a_folder_of_its_own(tmp_path):
    """Late segments wait below ``late``, or lie among the others when asked for."""
    words = (*SMALL, "--scenario", "late_segments:segment_percent=100", "--truth", tmp_path / "truth.json")
    called(tmp_path / "apart", *words)
    called(tmp_path / "joined", *words, "--together")

    late = {path.name for path in (tmp_path / "apart" / LATE_FOLDER).rglob("*.jsonl")}
    shipped = json.loads((tmp_path / "truth.json").read_text())["segments"]
    assert late == {file["path"].rpartition("/")[2] for file in shipped if file["shipment"] == 2}
    assert late
    assert not (tmp_path / "joined" / LATE_FOLDER).exists()


def test_text_says_where_the_truth_is(tmp_path):
    """Without --json every fact is a line of its own."""
    said = called(tmp_path / "w", *SMALL, "--scenario", "slow_relay")

    assert f"truth      {tmp_path / 'w' / 'truth.json'}" in said


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--honest", "--scenario", "slow_relay"), "--honest"),
        (("--scenario", "sloth"), "no scenario is called"),
        (("--scenario", "slow_relay:latency_ms=much"), "NAME:key=number"),
        (("--scenario", "slow_relay:depth=3"), "no parameter"),
        (("--nodes", "0"), "1 to 64 nodes"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, words, what):
    """Contradictions, unknown scenarios and parameters, and numbers out of range end as usage errors."""
    with pytest.raises(LocalError, match=what):
        called(tmp_path / "w", *words)


def test_a_full_folder_is_left_alone(tmp_path):
    """Nothing is written beside what is there already."""
    (tmp_path / "mine").write_text("")

    with pytest.raises(LocalError, match="not empty"):
        called(tmp_path, *SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_what_cannot_be_written_is_told(tmp_path):
    """A path through a file is the host's trouble, told by name."""
    (tmp_path / "file").write_text("")

    with pytest.raises(HostError, match="cannot write the workload"):
        called(tmp_path / "file" / "w", *SMALL, "--honest")
