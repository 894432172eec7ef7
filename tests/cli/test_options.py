"""Laws of cli.options."""

from pathlib import Path

import pytest

from waystation.cli.options import ca_or_local


@pytest.fixture
def local_ca(tmp_path, monkeypatch):
    """The authority of a node that was made in this folder."""
    monkeypatch.chdir(tmp_path)
    path = Path("waystation/tls/ca.pem")
    path.parent.mkdir(parents=True)
    path.touch()
    return path


def test_authority_of_this_folder_is_trusted(local_ca):
    """Who tries a node beside its home needs no option."""
    assert ca_or_local(None) == local_ca


@pytest.mark.usefixtures("local_ca")
def test_named_authority_goes_first():
    """What was asked for is what counts."""
    assert ca_or_local(Path("other.pem")) == Path("other.pem")


def test_elsewhere_the_system_decides(tmp_path, monkeypatch):
    """Without a node in this folder nothing is added."""
    monkeypatch.chdir(tmp_path)

    assert ca_or_local(None) is None
