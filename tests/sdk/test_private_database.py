"""Laws of sdk.private_database: one owner, a schema that may run twice, errors that leave nothing open."""

import shutil
import sqlite3
import stat
import threading

import pytest

from waystation.core.errors import HostError
from waystation.sdk import private_database
from waystation.sdk.private_database import EXIT_STORE, PrivateDatabase

SCHEMA = "CREATE TABLE IF NOT EXISTS t (x); CREATE TABLE IF NOT EXISTS u (y)"


def test_only_the_owner_may_read_it(tmp_path):
    """A new file has mode 0600, and one that was open to others is closed to them."""
    fresh, loose = tmp_path / "a.db", tmp_path / "b.db"
    loose.touch(0o644)
    for path in (fresh, loose):
        PrivateDatabase(path, SCHEMA).close()

    assert [stat.S_IMODE(path.stat().st_mode) for path in (fresh, loose)] == [0o600, 0o600]


@pytest.mark.parametrize(("synchronous", "level"), [("FULL", 2), ("NORMAL", 1)])
def test_what_was_written_is_there_again(tmp_path, synchronous, level):
    """The schema may run on a file that has it; WAL and the asked-for sync are in force."""
    path = tmp_path / "a.db"
    first = PrivateDatabase(path, SCHEMA, synchronous=synchronous)
    insert(first, 1)
    first.close()
    again = PrivateDatabase(path, SCHEMA, synchronous=synchronous)
    pragmas = [again.first(f"PRAGMA {name}")[0] for name in ("journal_mode", "synchronous")]
    rows = again.all("SELECT x FROM t")
    again.close()

    assert (pragmas, rows) == (["wal", level], [(1,)])


def test_sync_moves_commits_into_the_file_itself(tmp_path):
    """What was committed without a sync stands in the -wal file alone until then, and may be lost with the power."""
    database = PrivateDatabase(tmp_path / "a.db", SCHEMA, synchronous="NORMAL")
    database.sync()
    insert(database, 1)
    found = []
    for name in ("before", "after"):
        shutil.copy(tmp_path / "a.db", tmp_path / name)
        copy = sqlite3.connect(tmp_path / name)
        found.append(copy.execute("SELECT x FROM t").fetchall())
        copy.close()
        database.sync()
    database.close()

    assert found == [[], [(1,)]]


@pytest.mark.parametrize("lock", ["EXCLUSIVE", "IMMEDIATE"])
def test_another_program_that_makes_it_is_waited_for(tmp_path, lock):
    """Who opens a new file while another one writes its first tables has it a moment later."""
    path = tmp_path / "a.db"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute(f"BEGIN {lock}")
    other.execute("CREATE TABLE t (x)")
    commit = threading.Timer(0.2, other.execute, ["COMMIT"])
    commit.start()
    ours = PrivateDatabase(path, SCHEMA)
    tables = ours.all("SELECT name FROM sqlite_master ORDER BY name")
    ours.close()
    commit.join()
    other.close()

    assert tables == [("t",), ("u",)]


def test_a_lock_for_ever_is_an_error(tmp_path, monkeypatch):
    """Nobody waits longer than for a write."""
    monkeypatch.setattr(private_database, "_BUSY_TIMEOUT_S", 0.05)
    other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(HostError, match="locked"):
        PrivateDatabase(tmp_path / "a.db", SCHEMA)
    other.close()


def test_what_is_no_database_is_refused(tmp_path):
    """A file of another kind stays as it is; a folder is no database either."""
    path = tmp_path / "a.db"
    path.write_bytes(b"not a database, and longer than a header of sixteen bytes" * 20)

    for each in (path, tmp_path):
        with pytest.raises(HostError, match="cannot use"):
            PrivateDatabase(each, SCHEMA)
    assert path.read_bytes().startswith(b"not a database")


def opened(tmp_path):
    return PrivateDatabase(tmp_path / "x.db", "CREATE TABLE IF NOT EXISTS t (v)")


def insert(database, *values):
    """Put values in one transaction; None fails behind them."""
    with database.transaction():
        for value in values:
            if value is None:
                raise KeyError
            database.run("INSERT INTO t VALUES (?)", value)


def test_transaction_is_all_or_nothing(tmp_path):
    """What was changed inside one that fails is gone, and what it failed with comes out."""
    database = opened(tmp_path)
    insert(database, 1, 2)
    with pytest.raises(KeyError):
        insert(database, 3, None)

    assert database.all("SELECT v FROM t") == [(1,), (2,)]
    assert database.first("SELECT v FROM t WHERE v = ?", 2) == (2,)
    assert database.first("SELECT v FROM t WHERE v = 3") is None
    database.close()


@pytest.mark.parametrize(
    "use", [lambda database: database.all("SELECT v FROM t"), lambda database: insert(database, 1)]
)
def test_disk_that_says_no_is_told(tmp_path, use):
    """A file that cannot be used any more is an error that names it, with the exit code of stores."""
    database = opened(tmp_path)
    database.close()

    with pytest.raises(HostError, match=r"x\.db") as caught:
        use(database)
    assert caught.value.exit_code == EXIT_STORE == 5


def test_disk_that_was_full_is_used_again(tmp_path):
    """What did not fit is told and leaves nothing; the next transaction is as if it had never been."""
    database = opened(tmp_path)
    database.all("PRAGMA max_page_count = 4")
    with pytest.raises(HostError, match=r"x\.db: .*full"):
        insert(database, bytes(100_000))
    database.all("PRAGMA max_page_count = 1000")
    insert(database, 1)

    assert database.all("SELECT v FROM t") == [(1,)]
    database.close()


def test_commit_that_fails_leaves_no_transaction(tmp_path):
    """The next one begins, and has nothing of the one before."""
    schema = "CREATE TABLE u (w PRIMARY KEY); CREATE TABLE t (v REFERENCES u(w) DEFERRABLE INITIALLY DEFERRED)"
    database = PrivateDatabase(tmp_path / "x.db", schema)
    database.all("PRAGMA foreign_keys = ON")
    with pytest.raises(HostError, match=r"x\.db: FOREIGN KEY"):
        insert(database, 1)
    insert(database)

    assert database.all("SELECT v FROM t") == []
    database.close()


def test_change_that_must_hold_waits_for_the_disk_and_goes_before_later_ones(tmp_path):
    """Refused, it raises and is kept; the next transaction writes it first, and once."""
    database = opened(tmp_path)
    database.all("PRAGMA max_page_count = 4")
    with pytest.raises(HostError, match=r"x\.db: .*full.*kept in memory"):
        database.change_later(lambda: insert(database, bytes(100_000)))
    with pytest.raises(HostError, match="full"):
        database.settle()
    database.all("PRAGMA max_page_count = 1000")
    insert(database, 1)
    database.settle()

    assert database.all("SELECT length(v) FROM t ORDER BY rowid") == [(100_000,), (1,)]
    database.close()


def test_more_than_may_wait_is_refused(tmp_path, monkeypatch):
    """Beyond ``WAITING_MAX`` a change is not kept, and its sentence does not say that it is."""
    monkeypatch.setattr(private_database, "WAITING_MAX", 1)
    database = opened(tmp_path)
    database.all("PRAGMA max_page_count = 4")
    for sentence in ("kept in memory", "full$"):
        with pytest.raises(HostError, match=sentence):
            database.change_later(lambda: insert(database, bytes(100_000)))
    database.all("PRAGMA max_page_count = 1000")
    database.settle()

    assert len(database.all("SELECT v FROM t")) == 1
    database.close()


def test_transaction_inside_another_is_a_part_of_it(tmp_path):
    """What fails outside undoes what was done inside."""
    database = opened(tmp_path)

    def fail_behind_it():
        with database.transaction():
            insert(database, 1)
            raise KeyError

    with pytest.raises(KeyError):
        fail_behind_it()

    assert database.all("SELECT v FROM t") == []
    database.close()
