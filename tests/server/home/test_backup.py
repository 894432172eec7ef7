"""Laws of server.home.backup: a backup is whole or none, and a home made from it has all that it had (NODE-BACKUP)."""

import json
import stat
from contextlib import closing

import pytest

from tests.server.home.build import NAMES, commit_some, ended_home, killed_home
from tests.store.build import kept_home, packet_row
from waystation.core.errors import HostError, LocalError
from waystation.core.packets import PutPacket
from waystation.server.home import Home
from waystation.server.home.backup import LIST_FILE, backup_home, restore_home
from waystation.server.home.mark import HomeState, begin_restore, check_home, mark_path, prepare_home, read_mark
from waystation.store.sqlite import SqliteStore
from waystation.store.sqlite_layout import check_file


def quiet(_what, _done, _total):
    """Take progress."""


@pytest.fixture
def home(tmp_path):
    """A home with keys, certificates, a box, segments and a store with a packet."""
    made = ended_home(tmp_path / "home")
    with closing(SqliteStore(made.store_path)) as store:
        store.commit([PutPacket(packet_row(1))])
    for name, text in {
        "box/owners/me": "owner",
        "box/contacts/a.json": "{}",
        "box/folders/a/f": "sealed",
        "box/folders/a/.f.half": "half",
        "journal/event_date=2026-11-23/x-1-1.jsonl": "sealed segment",
        "journal/event_date=2026-11-23/x-1-2.jsonl.open": "growing segment",
        "journal/.lock": "",
        "admin.token": "token",
        "lock": "1",
        "running.json": "{}",
    }.items():
        path = made.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)
    return made


def content(folder):
    """Return the bytes of each file of a home by its name, but store and marks."""
    own = {"store.sqlite", "home.json", LIST_FILE, "lock", "running.json"}
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in own
    }


def test_restored_home_has_what_was_there(home, tmp_path):
    """Keys, certificates, box, sealed segments and records are the same; what a process has in use is left out."""
    report = backup_home(home, tmp_path / "backup", quiet)
    restored = Home(tmp_path / "new")
    again = restore_home(tmp_path / "backup", restored, quiet)

    expected = content(home.path)
    for name in (".lock", "x-1-2.jsonl.open", ".f.half"):
        expected = {path: data for path, data in expected.items() if not path.endswith(name)}
    assert content(restored.path) == expected
    assert (again.files, again.size_bytes, again.public_key) == (report.files, report.size_bytes, report.public_key)
    with closing(SqliteStore(restored.store_path)) as store:
        assert len(list(store.scan("things"))) == 3
        assert store.packets.newest_seq() == 1
    assert check_home(restored) is HomeState.KNOWN
    assert not (restored.path / LIST_FILE).exists()


def test_backup_and_home_are_private(home, tmp_path):
    """Folders are for their owner only, and every file has the mode that it had."""
    backup_home(home, tmp_path / "backup", quiet)
    restore_home(tmp_path / "backup", Home(tmp_path / "new"), quiet)

    for top in (tmp_path / "backup", tmp_path / "new"):
        folders = [top, *(path for path in top.rglob("*") if path.is_dir())]
        assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}
        assert stat.S_IMODE((top / "node.key").stat().st_mode) == 0o600
        assert stat.S_IMODE((top / "store.sqlite").stat().st_mode) == 0o600
        assert stat.S_IMODE(mark_path(Home(top)).stat().st_mode) == 0o600


def test_times_of_files_stay(home, tmp_path):
    """The box sorts its files by their age."""
    backup_home(home, tmp_path / "backup", quiet)
    restore_home(tmp_path / "backup", Home(tmp_path / "new"), quiet)

    times = [(top / "box/folders/a/f").stat().st_mtime_ns for top in (home.path, tmp_path / "new")]
    assert times[0] == times[1]


def test_restored_store_has_a_name_of_its_own(home, tmp_path):
    """Cursors that the old node gave out are not taken for ones of the new one, and the stores cannot be mixed up."""
    backup_home(home, tmp_path / "backup", quiet)
    restored = Home(tmp_path / "new")
    restore_home(tmp_path / "backup", restored, quiet)
    with closing(SqliteStore(home.store_path)) as old, closing(SqliteStore(restored.store_path)) as new:
        assert old.packets.epoch() != new.packets.epoch()
        assert old.state().store_id != new.state().store_id
    restored.store_path.write_bytes(home.store_path.read_bytes())

    with pytest.raises(HostError, match="is the store of another home"):
        check_home(restored)


def test_backup_of_a_killed_node_has_its_log(tmp_path):
    """What stands in the log alone is in the backup."""
    home = killed_home(tmp_path / "home", tmp_path / "aside")
    backup_home(home, tmp_path / "backup", quiet)

    with closing(SqliteStore(tmp_path / "backup" / "store.sqlite")) as store:
        assert len(list(store.scan("things"))) == 6


def test_backup_while_the_store_is_in_use(tmp_path):
    """Everything committed before the call is in the backup, and the node's store is not touched."""
    home = Home(tmp_path / "home")
    prepare_home(home, NAMES)
    with closing(SqliteStore(home.store_path)) as store:
        commit_some(store, count=20)
        report = backup_home(home, tmp_path / "backup", quiet)
        commit_some(store, first=50)
        assert report.generation == 20
    with closing(SqliteStore(tmp_path / "backup" / "store.sqlite")) as copy:
        assert len(list(copy.scan("things"))) == 20


@pytest.mark.parametrize("layout", [1, 2])
def test_home_of_an_older_build_can_be_saved_first(tmp_path, layout):
    """A backup before an upgrade is of the old layout; the home made from it starts as the old one would."""
    home = Home(kept_home(layout, tmp_path))
    report = backup_home(home, tmp_path / "backup", quiet)
    restored = Home(tmp_path / "new")
    restore_home(tmp_path / "backup", restored, quiet)
    assert check_file(restored.store_path) == layout
    with closing(SqliteStore(restored.store_path)) as store:
        bans = [key for key, _ in store.scan("bans")]

    assert report.generation is None
    assert bans == [b"address:192.0.2.9"]
    assert restored.key_pair().public == home.key_pair().public


def test_home_without_a_store_can_be_saved(tmp_path):
    """Keys alone are worth a backup."""
    home = Home(tmp_path / "home")
    prepare_home(home, NAMES)
    report = backup_home(home, tmp_path / "backup", quiet)
    restored = Home(tmp_path / "new")
    restore_home(tmp_path / "backup", restored, quiet)

    assert report.generation is None
    assert prepare_home(restored, NAMES).state is HomeState.KNOWN


def test_folder_that_is_not_empty_is_refused(home, tmp_path):
    """Neither a backup nor a home is written over anything."""
    backup_home(home, tmp_path / "backup", quiet)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("x")

    with pytest.raises(LocalError, match="is not empty"):
        backup_home(home, tmp_path / "taken", quiet)
    with pytest.raises(LocalError, match="is not empty"):
        backup_home(home, tmp_path / "backup", quiet)
    with pytest.raises(LocalError, match="is not empty"):
        restore_home(tmp_path / "backup", home, quiet)
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["file"]


def test_backup_in_the_home_is_refused(home):
    """A backup that goes with the home is none."""
    with pytest.raises(LocalError, match="lies in the home itself"):
        backup_home(home, home.path / "backup", quiet)
    assert not (home.path / "backup").exists()


def test_home_that_has_lost_something_is_not_saved(home, tmp_path):
    """A backup of a home without its store would look like one."""
    home.store_path.unlink()

    with pytest.raises(HostError, match="is missing"):
        backup_home(home, tmp_path / "backup", quiet)
    with pytest.raises(LocalError, match="is no backup"):
        restore_home(tmp_path / "backup", Home(tmp_path / "new"), quiet)


@pytest.mark.parametrize("last", [LIST_FILE, "home.json", "node.key", "tls/key.pem", "store.sqlite", "box/folders/a/f"])
def test_backup_that_lacks_a_file_is_refused(home, tmp_path, last):
    """Whatever is missing: nothing is made from the rest."""
    backup_home(home, tmp_path / "backup", quiet)
    (tmp_path / "backup" / last).unlink()
    restored = Home(tmp_path / "new")

    with pytest.raises((HostError, LocalError), match=r"is no backup|is not as it was"):
        restore_home(tmp_path / "backup", restored, quiet)
    assert not restored.path.exists()


@pytest.mark.parametrize("name", ["node.key", "store.sqlite", "tls/ca.pem"])
def test_backup_with_a_changed_byte_is_refused(home, tmp_path, name):
    """A rotten byte of any file is found, and the folder that was begun goes with what was copied."""
    backup_home(home, tmp_path / "backup", quiet)
    path = tmp_path / "backup" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    restored = Home(tmp_path / "new")

    with pytest.raises(HostError, match="is not as it was") as caught:
        restore_home(tmp_path / "backup", restored, quiet)
    assert caught.value.exit_code == 5
    assert not restored.path.exists()


def test_refused_restore_leaves_a_folder_as_empty_as_it_was(home, tmp_path):
    """A mount stays, without a key in it, and the next restore may use it."""
    backup_home(home, tmp_path / "backup", quiet)
    key = tmp_path / "backup" / "node.key"
    text = key.read_bytes()
    key.write_bytes(text[::-1])
    restored = Home(tmp_path / "new")
    restored.path.mkdir()
    with pytest.raises(HostError, match="is not as it was"):
        restore_home(tmp_path / "backup", restored, quiet)
    assert list(restored.path.iterdir()) == []
    key.write_bytes(text)

    assert restore_home(tmp_path / "backup", restored, quiet).public_key == home.key_pair().public


def test_restore_that_was_killed_says_what_to_do(home, tmp_path):
    """What it left is no home; the next restore says so, and not only that the folder is not empty."""
    backup_home(home, tmp_path / "backup", quiet)
    restored = Home(tmp_path / "new")
    restored.path.mkdir()
    begin_restore(restored)

    with pytest.raises(HostError, match="was cut short; empty the folder"):
        restore_home(tmp_path / "backup", restored, quiet)
    assert mark_path(restored).exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"format": 1}',
        '{"format": 1, "version": "0", "files": {"../escape": {}}}',
        '{"format": 1, "version": "0", "files": {"/etc/passwd": {}}}',
        '{"format": 2, "version": "9", "files": {}}',
    ],
)
def test_list_of_any_content_is_checked(home, tmp_path, text):
    """A list that is damaged, newer or names files elsewhere makes no home."""
    backup_home(home, tmp_path / "backup", quiet)
    (tmp_path / "backup" / LIST_FILE).write_text(text)

    with pytest.raises(HostError, match=r"damaged|newer"):
        restore_home(tmp_path / "backup", Home(tmp_path / "new"), quiet)
    assert not (tmp_path / "new").exists()


def test_file_that_goes_meanwhile_is_left_out(home, tmp_path):
    """Retention may delete a segment while the backup runs."""
    segment = home.path / "journal/event_date=2026-11-23/x-1-1.jsonl"

    def removing(what, done, _total):
        if what == "files" and done == 0:
            segment.unlink(missing_ok=True)

    backup_home(home, tmp_path / "backup", removing)
    listed = json.loads((tmp_path / "backup" / LIST_FILE).read_text())["files"]

    assert "node.key" in listed
    assert not [name for name in listed if name.startswith("journal/")]


def test_progress_ends_with_everything(home, tmp_path):
    """Each piece of work is shown to its end."""
    seen = {}
    backup_home(home, tmp_path / "backup", lambda what, done, total: seen.update({what: (done, total)}))

    assert seen.keys() == {"files", "store", "rows", "check"}
    assert all(done == total for done, total in seen.values())


def test_mark_of_the_restored_home_goes_on(home, tmp_path):
    """The restored home remembers when the home was made, and the generation that the store had."""
    report = backup_home(home, tmp_path / "backup", quiet)
    restored = Home(tmp_path / "new")
    restore_home(tmp_path / "backup", restored, quiet)

    assert read_mark(restored).made_at == read_mark(home).made_at
    assert read_mark(restored).store.generation == report.generation
