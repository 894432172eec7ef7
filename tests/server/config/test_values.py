"""Laws of server.config.values: settings by their class, and where each value came from."""

from waystation.server.config.load import load_config
from waystation.server.config.settings import LimitSettings, NodeSettings
from waystation.server.config.values import DEFAULT, Origin


def test_settings_are_found_by_their_class():
    """The node's own tables have a name besides."""
    config = load_config(None, {}, {"node.name": "harbour"})

    assert config.of(NodeSettings).name == config.node.name == "harbour"
    assert config.of(LimitSettings) == config.limits == LimitSettings()


def test_origin_is_that_of_the_first_value_that_is_no_default():
    """A check of several settings points at the one that somebody gave."""
    config = load_config(None, {}, {"merk.mesh_path": "/m"})

    assert config.origin("merk.paths", "merk.mesh_path") == Origin("flag merk.mesh_path")
    assert config.origin("merk.paths") == DEFAULT


def test_origin_names_file_and_line():
    """As editors and people read it."""
    assert (str(Origin("node.toml", 3)), str(Origin("default"))) == ("node.toml:3", "default")
    assert str(Origin("node.toml", 3).refuse("no")) == "node.toml:3: no"
