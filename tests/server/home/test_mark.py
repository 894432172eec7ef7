"""Laws of server.home.mark: a home that has lost something says so before anything is made (NODE-MARK)."""

import json
import shutil
import stat
from contextlib import closing

import pytest

from tests.server.home.build import NAMES, commit_some, ended_home, killed_home
from tests.store.build import kept_home
from waystation.core.errors import HostError
from waystation.core.ids import encode_id52
from waystation.server.home import Home
from waystation.server.home.mark import (
    HomeState,
    accept_home,
    adopt_home,
    begin_restore,
    check_home,
    losses,
    mark_path,
    prepare_home,
    read_mark,
)
from waystation.store.sqlite import SqliteStore
from waystation.store.sqlite_layout import SCHEMA_VERSION


def refusal(home, **how):
    """Return the sentence with which a home is refused; nothing was made or written by asking."""
    before = sorted((path, path.stat().st_mtime_ns) for path in home.path.rglob("*") if "-shm" not in path.name)
    with pytest.raises(HostError) as caught:
        prepare_home(home, NAMES, **how)
    assert caught.value.exit_code == 5
    after = sorted((path, path.stat().st_mtime_ns) for path in home.path.rglob("*") if "-shm" not in path.name)
    assert before == after
    return str(caught.value)


def log_of(home):
    """Return the path of the store's log."""
    return home.path / "store.sqlite-wal"


def test_new_home_gets_a_private_mark(tmp_path):
    """A home that is made remembers its key from the start, in a file for its owner only."""
    home = Home(tmp_path / "home")

    prepared = prepare_home(home, NAMES)

    mark = read_mark(home)
    assert prepared.state is HomeState.FRESH
    assert home.key_path in prepared.made
    assert (mark.public_key, mark.store) == (home.key_pair().public, None)
    assert stat.S_IMODE(mark_path(home).stat().st_mode) == 0o600
    assert check_home(home) is HomeState.KNOWN


def test_home_that_ended_in_order_is_known(tmp_path):
    """What an orderly end left is all there, also after other programs have read and written the store."""
    home = ended_home(tmp_path / "home")
    states = [check_home(home)]
    with closing(SqliteStore(home.store_path)) as store:
        states.append(check_home(home))
        commit_some(store, first=20)
    states.append(check_home(home))

    assert states == [HomeState.KNOWN] * 3


def test_home_of_a_killed_node_is_known_with_its_log(tmp_path):
    """After kill -9 everything is there as long as the log is."""
    home = killed_home(tmp_path / "home", tmp_path / "aside")

    assert log_of(home).exists()
    assert check_home(home) is HomeState.KNOWN


def test_lost_log_is_refused(tmp_path):
    """A store without the log of a node that was killed lacks acknowledged records, and its home says which file."""
    home = killed_home(tmp_path / "home", tmp_path / "aside")
    log_of(home).unlink()
    (home.path / "store.sqlite-shm").unlink(missing_ok=True)

    sentence = refusal(home)

    assert "store.sqlite-wal is missing" in sentence
    assert f"waystation check --accept {home.path}" in sentence
    assert "waystation restore" in sentence


def test_copy_of_the_file_alone_is_refused(tmp_path):
    """Keys, mark and ``store.sqlite`` copied from a live home without its log are not taken for the home."""
    home = killed_home(tmp_path / "home", tmp_path / "aside")
    copy = Home(tmp_path / "copy")
    shutil.copytree(home.path, copy.path, ignore=shutil.ignore_patterns("*-wal", "*-shm"))

    assert "store.sqlite-wal is missing" in refusal(copy)


def test_log_that_another_program_folded_in_is_no_loss(tmp_path):
    """Whoever opens the store after a kill folds its log in; the home starts, and says what it saw."""
    home = killed_home(tmp_path / "home", tmp_path / "aside")
    SqliteStore(home.store_path).close()

    assert not log_of(home).exists()
    assert check_home(home) is HomeState.LOG_FOLDED


def test_emptied_log_is_refused(tmp_path):
    """A log of 0 bytes is as good as none."""
    home = killed_home(tmp_path / "home", tmp_path / "aside")
    log_of(home).write_bytes(b"")

    assert "is older than this home remembers" in refusal(home)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda home: home.store_path.unlink(), "store.sqlite is missing"),
        (lambda home: home.store_path.write_bytes(b""), "store.sqlite is empty"),
        (lambda home: home.key_path.unlink(), "node.key is missing"),
        (lambda home: home.key_path.write_text("7" * 64 + "\n"), "is the key of another node"),
        (lambda home: mark_path(home).write_text("{"), "home.json is damaged"),
        (lambda home: mark_path(home).write_text("[]"), "home.json is damaged"),
        (lambda home: mark_path(home).write_text('{"format": 2}'), "written by a newer waystation"),
    ],
    ids=["no store", "empty store", "no key", "other key", "cut mark", "odd mark", "newer mark"],
)
def test_lost_part_is_refused(tmp_path, harm, words):
    """Each part that is lost or another one's stops the start with its name; nothing new takes its place."""
    home = ended_home(tmp_path / "home")
    harm(home)

    assert words in refusal(home)


def test_node_is_named_when_its_key_is_lost(tmp_path):
    """Who looks for the right key learns whose it is."""
    home = ended_home(tmp_path / "home")
    name = encode_id52(home.key_pair().public)
    home.key_path.unlink()

    assert f"the node of this home is {name}" in refusal(home)


def test_store_of_another_home_is_refused(tmp_path):
    """A store that was made elsewhere is not this home's, however young it is."""
    home, other = ended_home(tmp_path / "home"), ended_home(tmp_path / "other")
    with closing(SqliteStore(other.store_path)) as store:
        commit_some(store, count=20)
    shutil.copyfile(other.store_path, home.store_path)

    assert "is the store of another home, or from before a restore;" in refusal(home)


def test_older_copy_of_the_store_is_refused(tmp_path):
    """The store of an earlier day lacks what was acknowledged since."""
    home = ended_home(tmp_path / "home")
    early = home.store_path.read_bytes()
    with closing(SqliteStore(home.store_path)) as store:
        commit_some(store, first=30)
        state = store.state()
    document = json.loads(mark_path(home).read_text())
    document["store"]["generation"] = state.generation
    mark_path(home).write_text(json.dumps(document))
    home.store_path.write_bytes(early)

    assert f"generation 3, it had reached {state.generation}" in refusal(home)


def test_older_copy_of_the_store_beside_a_newer_log_is_refused(tmp_path):
    """Together they are the content of neither; the log stays, so the right file makes the home whole again."""
    home = ended_home(tmp_path / "home")
    early = home.store_path.read_bytes()
    home = killed_home(tmp_path / "home", tmp_path / "aside")
    right, log = home.store_path.read_bytes(), log_of(home).read_bytes()
    home.store_path.write_bytes(early)

    assert "is older than its log" in refusal(home)
    assert log_of(home).read_bytes() == log
    home.store_path.write_bytes(right)
    assert check_home(home) is HomeState.KNOWN


def test_store_of_an_older_layout_is_refused(tmp_path):
    """A copy from before the upgrade is older, too."""
    home = ended_home(tmp_path / "home")
    shutil.copyfile(kept_home(2, tmp_path) / "store.sqlite", home.store_path)

    assert f"is a copy from before layout {SCHEMA_VERSION}" in refusal(home)


def test_store_counts_only_where_it_is_used(tmp_path):
    """A node that keeps its records in memory does not miss a store."""
    home = ended_home(tmp_path / "home")
    home.store_path.unlink()

    assert check_home(home, uses_store=False) is HomeState.KNOWN


@pytest.mark.parametrize("layout", [1, 2])
def test_home_of_an_older_build_is_adopted(tmp_path, layout):
    """A home from before the mark starts as it is, and has one from then on."""
    home = Home(kept_home(layout, tmp_path))
    public = home.key_pair().public

    prepared = prepare_home(home, NAMES)

    assert prepared.state is HomeState.UNMARKED
    assert home.key_path not in prepared.made
    assert read_mark(home).public_key == public


def test_home_without_mark_and_key_is_refused(tmp_path):
    """A home from before the mark whose key is gone gets no new name without a word."""
    home = Home(kept_home(2, tmp_path))
    home.key_path.unlink()

    assert "node.key is missing" in refusal(home)


def test_store_alone_is_refused(tmp_path):
    """A store that was copied without its key gets no new node around it, unless somebody accepts that."""
    home, copy = ended_home(tmp_path / "home"), Home(tmp_path / "copy")
    copy.make_folder()
    shutil.copyfile(home.store_path, copy.store_path)

    sentence = refusal(copy)
    accept_home(copy)
    prepared = prepare_home(copy, NAMES)

    assert "is of a node whose key is not here; copy node.key too;" in sentence
    assert "waystation restore" in sentence and f"waystation check --accept {copy.path}" in sentence
    assert copy.key_path in prepared.made


def test_accepting_takes_what_is_there(tmp_path):
    """After ``accept_home`` the home remembers what it has; until then it says what is lost."""
    home = ended_home(tmp_path / "home")
    home.store_path.unlink()
    home.key_path.unlink()
    lost = losses(home, read_mark(home))

    accept_home(home)
    prepared = prepare_home(home, NAMES)

    assert len(lost) == 2
    assert home.key_path in prepared.made
    assert read_mark(home).public_key == home.key_pair().public


def test_unfinished_restore_is_refused(tmp_path):
    """A home that a restore has begun is no home yet, whatever stands in it."""
    home = Home(tmp_path / "home")
    home.make_folder()
    begin_restore(home)

    assert "a restore into" in refusal(home)


def test_adopting_twice_changes_nothing(tmp_path):
    """A mark that is there stays."""
    home = ended_home(tmp_path / "home")
    before = mark_path(home).read_bytes()
    adopt_home(home)

    assert mark_path(home).read_bytes() == before
