"""Laws of server.reference: the docs of record are what the declarations say."""

from pathlib import Path

from waystation.server.config.load import explain, load_config
from waystation.server.config.reference import render_docs, render_sample

DOCS = Path(__file__).parents[3] / "docs"


def test_sample_file_has_not_drifted():
    """docs/waystation.toml is what ``waystation config sample`` prints."""
    assert (DOCS / "waystation.toml").read_text() == render_sample()


def test_reference_page_has_not_drifted():
    """docs/configuration.md is what ``waystation config docs`` prints."""
    assert (DOCS / "configuration.md").read_text() == render_docs()


def test_sample_loads_to_the_defaults(tmp_path):
    """Starting from the sample changes nothing, and it names every key."""
    path = tmp_path / "node.toml"
    path.write_text(render_sample())
    config = load_config(path, {}, {})

    assert config == load_config(None, {}, {})
    assert all(row.origin.source == str(path) for row in explain(config))


def test_every_setting_is_documented_with_its_default():
    """The page has one row per key, with the default in it."""
    page = render_docs()

    for row in explain(load_config(None, {}, {})):
        table, _, key = row.name.rpartition(".")
        section = page.partition(f"## [{table}]")[2].partition("\n## ")[0]
        assert f"| `{key}` | `" in section
