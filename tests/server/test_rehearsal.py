"""Laws of server.rehearsal: it finds what serve would refuse, and leaves no trace."""

import asyncio

from tests.server.build_node import configured
from waystation.server.home import Home
from waystation.server.rehearsal import rehearse


def tried(home, **settings):
    """Return what is refused."""
    return asyncio.run(rehearse(configured(home.path, **settings), home))


def test_nothing_is_refused_and_nothing_is_written(tmp_path):
    """A home that is not made yet stays so."""
    home = Home(tmp_path / "home")

    assert tried(home) == {}
    assert not home.path.exists()


def test_each_part_speaks_for_itself(tmp_path):
    """One fault does not hide another; a protocol that is off is not asked."""
    home = Home(tmp_path / "home")
    home.ensure()
    faults = {"strata__did_documents": str(tmp_path / "none"), "merk__peers_ca": str(tmp_path / "none.pem")}

    assert tried(home, **faults).keys() == {"merk", "strata"}
    assert tried(home, **faults, merk__enabled="false").keys() == {"strata"}


def test_policy_that_cannot_be_used_is_found(tmp_path):
    """A folder outside the home needs a key; one that is named and empty is missing its pointer."""
    home = Home(tmp_path / "home")
    home.ensure()

    assert tried(home, policy__path=str(tmp_path)).keys() == {"policy"}
    assert "is missing" in tried(home, policy__path=str(tmp_path), policy__key="0" * 64)["policy"]
