"""Laws of server.home.keeper: the mark is never ahead of the disk, and never far behind it."""

import asyncio
import threading
from contextlib import closing

import pytest
import structlog

from tests.server.build import eventually
from tests.server.home.build import NAMES, commit_some, ended_home
from waystation.core.errors import HostError, StoreFault, StoreFaultKind
from waystation.server.home import Home, keeper
from waystation.server.home.keeper import MarkKeeper, log_prepared
from waystation.server.home.mark import HomeState, PreparedHome, check_home, mark_path, prepare_home, read_mark
from waystation.store.sqlite import SqliteStore
from waystation.store.sqlite_layout import look_at_file


@pytest.fixture
def home(tmp_path):
    """A home without a store."""
    made = Home(tmp_path / "home")
    prepare_home(made, NAMES)
    return made


@pytest.fixture
def store(home):
    """The store of the home, open."""
    with closing(SqliteStore(home.store_path)) as opened:
        yield opened


def kept(home, store):
    """Return a keeper, and how often it folded."""
    calls = []

    async def fold():
        calls.append(store.state())
        return store.fold()

    return MarkKeeper(home, fold), calls


def test_first_write_is_tried_and_remembered(home, store):
    """After ``begin`` the mark says that the store is in use, at a generation that its file alone does not have."""
    keeping, _ = kept(home, store)

    asyncio.run(keeping.begin())

    remembered = read_mark(home).store
    assert remembered.in_use
    assert (remembered.store_id, remembered.generation) == store.state()
    assert store.state().generation > 0


@pytest.mark.parametrize("kind", [StoreFaultKind.BUSY, StoreFaultKind.FULL, StoreFaultKind.IO, StoreFaultKind.HUNG])
def test_node_may_begin_with_a_fault_that_passes(home, store, monkeypatch, kind):
    """A full disk does not keep what needs no disk from being served; the mark is written once it is over."""
    monkeypatch.setattr(keeper, "_LOOK_S", 0.001)
    faults = [StoreFault("for now", kind)] * 3

    async def fold():
        if faults:
            raise faults.pop()
        return store.fold()

    keeping = MarkKeeper(home, fold)

    async def story():
        fault = await keeping.begin()
        watching = asyncio.create_task(keeping.watch())
        await eventually(lambda: read_mark(home).store is not None)
        watching.cancel()
        return fault

    assert asyncio.run(story()).kind is kind
    assert read_mark(home).store.in_use


def test_store_that_takes_no_write_is_an_error(home, store):
    """A node learns before it is ready that its disk refuses."""
    store._writer.execute("PRAGMA query_only = ON")
    keeping, _ = kept(home, store)

    with pytest.raises(HostError, match="readonly"):
        asyncio.run(keeping.begin())
    assert read_mark(home).store is None


@pytest.mark.parametrize("folds_by_itself", [False, True])
def test_mark_follows_the_file(home, store, monkeypatch, folds_by_itself):
    """Once a minute, and as soon as SQLite has folded a long log in by itself, the mark goes on."""
    monkeypatch.setattr(keeper, "_LOOK_S", 0.01)
    if not folds_by_itself:
        monkeypatch.setattr(keeper, "FOLD_S", 0.05)
    keeping, _ = kept(home, store)

    async def story():
        await keeping.begin()
        begun = read_mark(home).store.generation
        watching = asyncio.create_task(keeping.watch())
        commit_some(store)
        if folds_by_itself:
            store._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        await eventually(lambda: read_mark(home).store.generation >= begun + 4)
        watching.cancel()

    asyncio.run(story())
    assert read_mark(home).store.generation == store.state().generation


def test_idle_store_is_left_alone(home, store, monkeypatch):
    """Nothing is folded or written while nothing is committed, but the state is looked at."""
    monkeypatch.setattr(keeper, "_LOOK_S", 0.001)
    monkeypatch.setattr(keeper, "FOLD_S", 0.002)
    keeping, calls = kept(home, store)

    async def story():
        await keeping.begin()
        watching = asyncio.create_task(keeping.watch())
        await eventually(lambda: len(calls) > 5)
        watching.cancel()

    asyncio.run(story())
    assert store.state().generation == 1


def test_fault_is_said_once_and_the_old_mark_stays(home, store, monkeypatch):
    """While the store refuses, the mark is what it was, with one line in the log; afterwards it goes on."""
    monkeypatch.setattr(keeper, "_LOOK_S", 0.001)
    monkeypatch.setattr(keeper, "FOLD_S", 0.002)
    tries = []

    async def fold():
        tries.append(store.state())
        if 1 < len(tries) < 5:
            raise HostError("the disk is full", exit_code=5)
        commit_some(store, count=1)
        return store.fold()

    keeping = MarkKeeper(home, fold)

    async def story():
        await keeping.begin()
        watching = asyncio.create_task(keeping.watch())
        await eventually(lambda: len(tries) > 6)
        watching.cancel()

    with structlog.testing.capture_logs() as lines:
        asyncio.run(story())

    assert [line["event"] for line in lines] == ["home.mark_failed"]
    assert read_mark(home).store.generation > 1


def test_mark_of_another_home_is_left_alone(home, store, tmp_path):
    """When another home has come to the path of this one, its mark stays as it is."""
    reached = store.fold()

    async def fold():
        return reached  # as from a store that had nothing to write

    keeping = MarkKeeper(home, fold)
    asyncio.run(keeping.begin())
    other = ended_home(tmp_path / "other")
    home.path.rename(tmp_path / "moved")
    other.path.rename(home.path)
    before = mark_path(home).read_bytes()
    with structlog.testing.capture_logs() as lines:
        asyncio.run(keeping.begin())
        keeping.end(reached)

    assert mark_path(home).read_bytes() == before
    assert {line["event"] for line in lines} == {"home.mark_failed"}


def test_orderly_end_is_remembered(home, store):
    """After ``end`` the file alone is the store, and the home is known without a log."""
    keeping, _ = kept(home, store)
    asyncio.run(keeping.begin())
    commit_some(store)
    keeping.end(store.state())
    store.close()
    again = look_at_file(home.store_path)

    assert not read_mark(home).store.in_use
    assert again.generation == read_mark(home).store.generation
    assert check_home(home) is HomeState.KNOWN


def test_write_under_way_does_not_undo_the_end(home, store, monkeypatch):
    """A slow write of the mark that the end of the node overtakes leaves the last state in force."""
    begun, may_go_on = threading.Event(), threading.Event()
    write = keeper.write_mark

    def slow_once(*args):
        if not begun.is_set():
            begun.set()
            may_go_on.wait(0.5)  # the end may wait for this write
        write(*args)

    async def story():
        keeping, _ = kept(home, store)
        monkeypatch.setattr(keeper, "write_mark", slow_once)
        beginning = asyncio.create_task(keeping.begin())
        await eventually(begun.is_set, "the slow write")
        beginning.cancel()
        commit_some(store)
        keeping.end(store.state())
        may_go_on.set()

    asyncio.run(story())

    assert not read_mark(home).store.in_use


def test_log_names_what_a_node_begins_with(home):
    """A new key is a warning with key and path, an adopted home a line, a known home nothing."""
    with structlog.testing.capture_logs() as lines:
        log_prepared(home, PreparedHome(HomeState.FRESH, [home.path, home.key_path]))
        log_prepared(home, PreparedHome(HomeState.UNMARKED, []))
        log_prepared(home, PreparedHome(HomeState.LOG_FOLDED, []))
        log_prepared(home, PreparedHome(HomeState.KNOWN, []))

    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("home.made", "warning"),
        ("home.adopted", "info"),
        ("home.log_folded", "warning"),
    ]
    assert lines[0]["home"] == str(home.path.resolve())


def test_copy_without_a_mark_is_a_warning(tmp_path):
    """Key and store of today's layout without ``home.json`` were copied by hand, and the log may be missing."""
    home = ended_home(tmp_path / "home")
    mark_path(home).unlink()
    with structlog.testing.capture_logs() as lines:
        log_prepared(home, prepare_home(home, NAMES))
    (line,) = lines

    assert (line["event"], line["log_level"]) == ("home.adopted", "warning")
    assert "not copied" in line["why"]
