"""Laws of server.merk.tables: what ``[merk]`` refuses, and where the refusal points."""

import pytest

from waystation.core.errors import ConfigError
from waystation.server.config.load import load_config


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("[limits.merk]\nbytes_burst = 8388607\n", 2, "limits.merk.bytes_burst = 8388607 lets no frame of merk.max"),
        ('[merk]\npaths = ["merk"]\n', 2, "merk.paths = 'merk' is no path; allowed: text that begins with a slash"),
        ('[merk]\npaths = ["/a?b"]\n', 2, "merk.paths = '/a?b' is no path"),
        ('[merk]\npaths = ["/a#b"]\n', 2, "merk.paths = '/a#b' is no path"),
        ('[merk]\npaths = ["/a b"]\n', 2, "merk.paths = '/a b' is no path"),
        ("[merk]\npaths = []\n", 2, "merk.paths is empty"),
        ('[merk]\npaths = ["/a", "/a"]\n', 2, "merk.paths and merk.mesh_path name a path twice: /a, /a, /mesh"),
        ('[merk]\npaths = ["/mesh"]\n', 2, "name a path twice"),
        ('[merk]\nmesh_path = "/merk"\n', 2, "name a path twice"),
        ('[merk]\nmesh_path = "mesh"\n', 2, "merk.mesh_path = 'mesh' is no path"),
        ('[merk]\npeers = ["wss://a", "http://b"]\n', 2, "merk.peers: 'http://b' is not a ws:// or wss:// address"),
        ('[merk]\npeers = ["ws://a b"]\n', 2, "merk.peers: 'ws://a b' is not"),
        ('[merk]\npublic_url = "relay.example.org"\n', 2, "merk.public_url: 'relay.example.org' is not"),
        (f'[merk]\npublic_url = "ws://{"a" * 251}"\n', 2, "is longer than 255 bytes"),
        ('[merk]\ncert = "a.pem"\n', 2, "merk.cert and merk.key come together"),
    ],
)
def test_bad_table_is_refused_with_its_line(tmp_path, text, line, says):
    """The error begins with file and line and tells what would have been right."""
    path = tmp_path / "node.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path, {}, {})

    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert says in str(caught.value)
