"""Laws of server.certificates.named_files: a path in a setting that leads nowhere is a fault of the setting."""

import pytest

from tests.server.build_node import configured
from waystation.core.errors import ConfigError
from waystation.server.certificates.named_files import check_named_files
from waystation.server.home import Home


@pytest.mark.parametrize("table", ["node", "bhumi"])
@pytest.mark.parametrize("missing", ["cert", "key"])
def test_certificate_and_key_of_a_tls_listener_are_there(tmp_path, table, missing):
    """Each of the two is named by its own setting."""
    for name in {"cert", "key"} - {missing}:
        (tmp_path / name).write_text("")
    paths = {f"{table}__{name}": str(tmp_path / name) for name in ("cert", "key")}
    config = configured(tmp_path, bhumi__tls="127.0.0.1:0", **paths)

    with pytest.raises(ConfigError, match=f'{table}.{missing} = ".*/{missing}": there is no such file'):
        check_named_files(config)


@pytest.mark.parametrize("table", ["bhumi", "merk"])
def test_authority_of_peers_is_there(tmp_path, table):
    """A folder is no file either."""
    with pytest.raises(ConfigError, match=f"{table}.peers_ca = .*: there is no such file"):
        check_named_files(configured(tmp_path, **{f"{table}__peers_ca": str(tmp_path / "ca.pem")}))
    with pytest.raises(ConfigError, match=f"{table}.peers_ca = .* is a folder"):
        check_named_files(configured(tmp_path, **{f"{table}__peers_ca": str(tmp_path)}))


def test_file_that_nobody_reads_may_be_missing(tmp_path):
    """A node without TLS listeners and a protocol that is off read none."""
    settings = {"node__cert": "no.pem", "node__key": "no.key", "merk__enabled": "false", "merk__peers_ca": "no.pem"}

    assert check_named_files(configured(tmp_path, **settings)) is None


def test_files_that_a_start_makes_may_be_missing(tmp_path):
    """Those of the home are made first."""
    home = Home(tmp_path)
    named = {
        "node__cert": str(home.cert_path),
        "node__key": str(home.tls_key_path),
        "merk__peers_ca": str(home.ca_path),
    }

    assert check_named_files(configured(tmp_path, bhumi__tls="127.0.0.1:0", **named)) is None
