"""Settings of the pipeline: where they come from, and what is refused."""

from pathlib import Path

import pytest

from waystation.core.errors import ConfigError
from waystation.pipeline.config import load_settings
from waystation.pipeline.settings import PipelineSettings


def written(tmp_path: Path, text: str) -> Path:
    """Return a file with this text."""
    path = tmp_path / "pipeline.toml"
    path.write_text(text)
    return path


def test_nothing_said_gives_the_defaults() -> None:
    """Without file, environment and flags every setting has its default."""
    assert load_settings(None, {}) == PipelineSettings()


def test_flag_wins_over_environment_over_file(tmp_path: Path) -> None:
    """The nearer source wins, key by key."""
    path = written(tmp_path, "[pipeline]\nwitnesses = 3\ngrace_s = 60\ndisk_gib = 5\n")
    environment = {"WAYSTATION_PIPELINE__GRACE_S": "70", "WAYSTATION_PIPELINE__DISK_GIB": "6", "PATH": "/bin"}
    settings = load_settings(path, environment, {"disk_gib": "7"})

    assert (settings.witnesses, settings.grace_s, settings.disk_gib) == (3, 70, 7)


def test_other_tables_are_somebody_elses(tmp_path: Path) -> None:
    """A node's own file serves as it is."""
    assert load_settings(written(tmp_path, '[node]\nname = "x"\n'), {}) == PipelineSettings()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[pipeline]\n\nwitness = 3\n", r"pipeline.toml:3: unknown key pipeline.witness; did you mean witnesses\?"),
        ("[pipeline]\nzzz = 3\n", "the keys are: lake, recompute_days"),
        (
            "[pipeline]\nwitnesses = 0\n",
            "pipeline.toml:2: .*witnesses = 0 is not allowed; allowed: a whole number from 1",
        ),
        ('[pipeline]\npolicy_mode = "on"\n', 'one of "shadow", "enforce"'),
        ("pipeline = 3\n", "pipeline.toml:1: pipeline must be a table"),
        ("[pipeline\n", "cannot be read"),
    ],
)
def test_bad_file_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    """A typo is told with file, line and what is allowed."""
    with pytest.raises(ConfigError, match=said):
        load_settings(written(tmp_path, text), {})


def test_bad_environment_is_refused_with_its_name() -> None:
    """A variable that does not fit is named."""
    with pytest.raises(ConfigError, match=r"environment WAYSTATION_PIPELINE__GRACE_S: .*'soon' is not allowed"):
        load_settings(None, {"WAYSTATION_PIPELINE__GRACE_S": "soon"})


def test_missing_file_is_refused(tmp_path: Path) -> None:
    """A file that somebody named must be there."""
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(tmp_path / "none.toml", {})
