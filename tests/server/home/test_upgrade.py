"""Laws of server.home.upgrade, on homes that older builds have left."""

from contextlib import closing

import pytest

from tests.server.home.build import ended_home
from tests.store.build import kept_home
from waystation.core.errors import HostError
from waystation.server.home import Home
from waystation.server.home.mark import HomeState, check_home
from waystation.server.home.upgrade import layout_of, upgrade_home
from waystation.store.sqlite import SqliteStore
from waystation.store.sqlite_layout import SCHEMA_VERSION


@pytest.mark.parametrize("layout", [1, 2, 3])
def test_home_of_an_older_build_is_brought_up(tmp_path, layout):
    """The store has this version's layout afterwards, all of its records, and the home knows it."""
    home = Home(kept_home(layout, tmp_path))
    before = layout_of(home)
    upgrade_home(home)
    with closing(SqliteStore(home.store_path)) as store:
        bans = [key for key, _ in store.scan("bans")]

    assert (before, layout_of(home)) == (layout, SCHEMA_VERSION)
    assert bans == [b"address:192.0.2.9"]
    assert check_home(home) is HomeState.KNOWN


def test_upgrade_of_todays_home_changes_nothing(tmp_path):
    """A second upgrade finds the layout as it is."""
    home = ended_home(tmp_path / "home")
    before = home.store_path.read_bytes()
    upgrade_home(home)

    assert home.store_path.read_bytes() == before


def test_home_that_has_lost_something_is_not_upgraded(tmp_path):
    """An upgrade does not make a loss look like health."""
    home = ended_home(tmp_path / "home")
    home.store_path.unlink()

    with pytest.raises(HostError, match="is missing"):
        upgrade_home(home)
    assert layout_of(home) is None
