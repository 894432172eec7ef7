"""Laws of server.config.checks; tests/server/<protocol>/test_tables.py tries each with every table."""

import pytest

from waystation.core.errors import ConfigError, LocalError
from waystation.server.bhumi.tables import BhumiListenSettings
from waystation.server.config.checks import check_path, check_plain, check_tls_files, run_checks
from waystation.server.config.load import load_config
from waystation.server.config.settings import Address

CONFIG = load_config(None, {}, {"node.name": "n"})


def test_text_of_a_check_gets_table_and_origin():
    """What reads a value knows its key; where the value came from is added."""

    def fail():
        raise LocalError("name: is short")

    with pytest.raises(ConfigError, match=r"^flag node\.name: node\.name: is short$"):
        run_checks(CONFIG, "node", {"name": fail})


@pytest.mark.parametrize("path", ["/", "/a/b", "/%20"])
def test_path_passes(path):
    """Printable ASCII after a slash."""
    check_path(CONFIG, "node.name", path)


@pytest.mark.parametrize("path", ["", "a", "/a?b", "/a#b", "/a b", "/\u00e9"])
def test_other_text_is_no_path(path):
    """Nothing that a request line could not carry."""
    with pytest.raises(ConfigError, match="is no path"):
        check_path(CONFIG, "node.name", path)


def test_plain_listener_is_on_loopback_or_off():
    """Bytes without encryption stay on this machine."""
    check_plain(CONFIG, "node.name", None)
    check_plain(CONFIG, "node.name", Address("::1", 1))
    with pytest.raises(ConfigError, match="takes only a loopback address"):
        check_plain(CONFIG, "node.name", Address("192.0.2.1", 1))


@pytest.mark.parametrize("given", ["cert", "key"])
def test_certificate_and_key_come_together(given):
    """One without the other is a mistake."""
    check_tls_files(CONFIG, "bhumi", BhumiListenSettings(cert="a", key="b"))
    with pytest.raises(ConfigError, match="give both, or neither"):
        check_tls_files(CONFIG, "bhumi", BhumiListenSettings(**{given: "a"}))
