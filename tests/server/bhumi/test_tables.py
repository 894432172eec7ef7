"""Laws of server.bhumi.tables: what ``[bhumi]`` refuses, and where the refusal points."""

import pytest

from waystation.core.errors import ConfigError
from waystation.server.bhumi.tables import BhumiListenSettings
from waystation.server.config.load import load_config


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ('[bhumi]\npeers = ["relay.example:8443"]\n', 2, "is no address of a relay; allowed: tls://host:port"),
        ('[bhumi]\nadvertise = "wss://relay.example:8443"\n', 2, "is no address of a relay; allowed: tls://host:port"),
        ('[bhumi]\nplain = "0.0.0.0:9000"\n', 2, "only a loopback address"),
        ('[bhumi]\nenabled = true\ncert = "a.pem"\n', 3, "give both, or neither"),
        ('[bhumi]\nkey = "a.pem"\n', 2, "give both, or neither"),
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


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:9000", "localhost:9000"])
def test_plain_listener_takes_loopback(address):
    """Unencrypted Bhumi is for programs on this machine."""
    assert load_config(None, {}, {"bhumi.plain": address}).of(BhumiListenSettings).plain is not None
