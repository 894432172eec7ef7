"""Laws of server.certificates.chosen: one setting for all listeners, and a table's own where one differs."""

from pathlib import Path

import pytest

from tests.server.build import NodeProcess
from tests.server.certificates.build import EVERY_TLS_LISTENER, LISTENERS, leaf_der, shown_at, write_pair
from waystation.core.errors import ConfigError
from waystation.server.certificates.chosen import certificate_files
from waystation.server.config.load import load_config
from waystation.server.home import Home

NODE = {"node.cert": "n.crt", "node.key": "n.key"}
BSP = {"bsp.cert": "b.crt", "bsp.key": "b.key"}
SAME_PORT = {"merk.ws": "0.0.0.0:8080", "strata.ws": "0.0.0.0:8080", "merk.tls": "true", "strata.tls": "true"}


@pytest.mark.parametrize(
    ("settings", "table", "files"),
    [
        ({}, "bhumi", ("h/tls/cert.pem", "h/tls/key.pem")),
        (NODE, "bhumi", ("n.crt", "n.key")),
        (NODE, "strata", ("n.crt", "n.key")),
        (NODE | BSP, "bsp", ("b.crt", "b.key")),
        (NODE | BSP, "merk", ("n.crt", "n.key")),
        (BSP, "bhumi", ("h/tls/cert.pem", "h/tls/key.pem")),
    ],
)
def test_table_goes_before_node_and_node_before_home(settings, table, files):
    """Whoever sets one certificate sets it for all, but for a table that names its own."""
    assert certificate_files(load_config(None, {}, settings), Home(Path("h")), table) == tuple(map(Path, files))


@pytest.mark.parametrize("half", ["node.cert", "node.key"])
def test_half_of_the_setting_is_refused(half):
    """A certificate without its key is a mistake in the file, found before the node starts."""
    with pytest.raises(ConfigError, match=r"node\.cert and node\.key come together"):
        load_config(None, {}, {half: "x.pem"})


@pytest.mark.parametrize(
    "merk",
    [
        {},
        {"merk.cert": "n.crt", "merk.key": "n.key"},
        {"merk.cert": "./n.crt", "merk.key": "n.key"},
    ],
)
def test_shared_port_compares_what_is_shown(merk):
    """Two tables that come to the same files agree, however each names them."""
    assert load_config(None, {}, SAME_PORT | NODE | merk).node.cert == "n.crt"


def test_shared_port_with_two_certificates_is_refused():
    """One listener shows one certificate."""
    with pytest.raises(ConfigError, match=r"tls, cert and key must be the same in both tables"):
        load_config(None, {}, SAME_PORT | NODE | {"merk.cert": "m.crt", "merk.key": "m.key"})


def test_home_named_in_words_is_the_home():
    """A table that names the files of the home shares its port with one that names none."""
    named = {"merk.cert": "waystation/tls/cert.pem", "merk.key": "waystation/tls/key.pem"}

    assert load_config(None, {}, SAME_PORT | named).node.cert == ""


def test_one_setting_and_every_listener_shows_that_certificate(tmp_path):
    """Bhumi, its port for original nodes, BSP, the box, MERK and Strata: six handshakes, one certificate."""
    files = write_pair(tmp_path / "own")
    node = NodeProcess(tmp_path / "home", node__cert=files.cert, node__key=files.key, **EVERY_TLS_LISTENER).start()
    try:
        shown = {name: shown_at(node.url(name)) for name in LISTENERS}
    finally:
        node.stop()

    assert shown == dict.fromkeys(LISTENERS, leaf_der(files.cert))
