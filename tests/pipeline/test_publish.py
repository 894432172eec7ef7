"""Laws of pipeline.publish: what stands on the disk, whatever happens on the way."""

import datetime
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from waystation.core.errors import HostError, LocalError
from waystation.crypto.signing import verify
from waystation.pipeline.publish import Part, load_key, publish_parts, stage, sweep, table_part
from waystation.rules.snapshot import (
    CURRENT_NAME,
    FILE_BYTES_MAX,
    FILES_MAX,
    PREVIOUS_NAME,
    TABLE_SCHEMA,
    decode_snapshot,
    signed_bytes,
)

AS_OF = datetime.datetime(2026, 5, 31, tzinfo=datetime.UTC)


def part(text, stem="runs", *, is_local=False):
    """Return a small table."""
    return table_part(stem, AS_OF, [{"text": text}], is_local=is_local)


def publish(lake, *parts, as_of=AS_OF, **more):
    """Publish parts for a day."""
    return publish_parts(
        lake, parts, as_of=as_of, expires_at=as_of + datetime.timedelta(days=1), rule_version="1", **more
    )


def names(lake):
    """Return what lies in the folder."""
    return sorted(path.name for path in (lake / "published").iterdir())


def current(lake):
    """Return what the pointer says."""
    return decode_snapshot((lake / "published" / CURRENT_NAME).read_bytes())


def contents(lake):
    """Return every published file's bytes."""
    return {path.name: path.read_bytes() for path in (lake / "published").iterdir()}


@contextmanager
def largest_file(size_bytes):
    """Have the kernel refuse to let a file grow beyond this, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_pointer_names_what_is_there(tmp_path):
    """Each file is called by its hash, and the whole is signed by the lake's key."""
    snapshot = publish(tmp_path, part("a"), part("b", "outcomes"))
    files = contents(tmp_path)

    assert current(tmp_path) == snapshot
    assert snapshot.key == load_key(tmp_path).public
    assert verify(snapshot.key, signed_bytes(snapshot), snapshot.signature)
    assert sorted(files) == sorted([CURRENT_NAME, *[entry.name for entry in snapshot.files]])
    for entry in snapshot.files:
        assert hashlib.sha256(files[entry.name]).hexdigest() == entry.sha256
    assert json.loads(files[snapshot.find("runs", TABLE_SCHEMA).name]) == {
        "as_of": "2026-05-31T00:00:00+00:00",
        "name": "runs",
        "rows": [{"text": "a"}],
    }


def test_same_parts_give_the_same_bytes(tmp_path):
    """In whatever order they come, and however often: nothing is written that is there."""
    first = publish(tmp_path, part("a"), part("b", "outcomes"))
    before = contents(tmp_path)
    written = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "published").iterdir()}
    again = publish(tmp_path, part("b", "outcomes"), part("a"))

    assert again == first
    assert contents(tmp_path) == before
    assert written == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "published").iterdir()}


def test_files_stay_for_one_snapshot_more(tmp_path):
    """What the pointer and the one before it name stays, older files go, foreign ones are left alone."""
    later = [AS_OF + datetime.timedelta(hours=number) for number in range(3)]
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "notes.txt").write_text("mine")
    snapshots = [publish(tmp_path, part(str(number)), as_of=at) for number, at in enumerate(later)]
    kept = [entry.name for snapshot in snapshots[1:] for entry in snapshot.files]

    assert names(tmp_path) == sorted([CURRENT_NAME, PREVIOUS_NAME, "notes.txt", *kept])
    assert decode_snapshot((tmp_path / "published" / PREVIOUS_NAME).read_bytes()) == snapshots[1]


def test_damaged_file_is_written_again(tmp_path):
    """A file that has its name and other bytes does not stay."""
    snapshot = publish(tmp_path, part("a"))
    path = tmp_path / "published" / snapshot.files[0].name
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b" ")
    publish(tmp_path, part("a"))

    assert path.read_bytes() == whole


def test_full_disk_leaves_what_was_published(tmp_path):
    """In the middle of the files the attempt is undone: pointer and files are as they were, and the code is 5."""
    publish(tmp_path, part("old"))
    before = contents(tmp_path)
    large = Part("outcomes", "json", TABLE_SCHEMA, 1, b"x" * 8_192)
    with largest_file(4_096), pytest.raises(HostError, match="what was published before stands") as caught:
        publish(tmp_path, part("new"), large)

    assert caught.value.exit_code == 5
    assert contents(tmp_path) == before


def test_pointer_that_finds_no_room_leaves_what_was_published(tmp_path):
    """At the last step too: new files are taken back."""
    publish(tmp_path, part("old"))
    before = contents(tmp_path)
    with largest_file(300), pytest.raises(HostError, match="what was published before stands"):
        publish(tmp_path, part("new"))

    assert {name: data for name, data in contents(tmp_path).items() if name != PREVIOUS_NAME} == before


def test_what_an_attempt_left_that_died_is_swept(tmp_path):
    """Files without a pointer and half files go with the next publish."""
    publish(tmp_path, part("old"))
    stage(tmp_path / "published", [part("never pointed to")])
    (tmp_path / "published" / ".new-runs-0123.json").write_text("half")
    sweep(tmp_path / "published")

    assert names(tmp_path) == sorted([CURRENT_NAME, current(tmp_path).files[0].name])


@pytest.mark.slow
def test_kill_at_any_moment_leaves_a_whole_snapshot(tmp_path):
    """A publisher that is killed again and again never leaves a pointer to something that is not there."""
    program = (
        "import datetime, itertools, pathlib, sys\n"
        "from tests.pipeline.test_publish import AS_OF, part, publish\n"
        "lake = pathlib.Path(sys.argv[1])\n"
        "for number in itertools.count(int(sys.argv[2])):\n"
        "    at = AS_OF + datetime.timedelta(seconds=number)\n"
        "    publish(lake, part(str(number)), part(str(number), 'outcomes'), as_of=at)\n"
        "    print(number, flush=True)\n"
    )
    number = 0
    for round_number in range(20):
        command = [sys.executable, "-c", program, tmp_path, str(number)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            for _ in range(1 + round_number % 4):
                number = int(child.stdout.readline()) + 1
            os.kill(child.pid, signal.SIGKILL)
        files, snapshot = contents(tmp_path), current(tmp_path)

        assert verify(snapshot.key, signed_bytes(snapshot), snapshot.signature)
        for entry in snapshot.files:
            assert hashlib.sha256(files[entry.name]).hexdigest() == entry.sha256


def test_local_parts_go_nowhere_else(tmp_path):
    """Scores of relays stay in the lake's own folder; anything else may go to another one."""
    lake, elsewhere = tmp_path / "lake", tmp_path / "elsewhere"
    with pytest.raises(LocalError, match="scores rates other relays"):
        publish(lake, part("a"), part("b", "scores", is_local=True), folder=elsewhere)
    refused = elsewhere.exists()
    publish(lake, part("a"), folder=elsewhere)
    publish(lake, part("b", "scores", is_local=True))

    assert not refused
    assert (elsewhere / CURRENT_NAME).exists()
    assert current(lake).find("scores", TABLE_SCHEMA)


def test_what_nobody_would_read_is_not_written(tmp_path):
    """A file that is too large, or too many, are refused before anything is touched."""
    large = Part("outcomes", "json", TABLE_SCHEMA, 1, bytes(FILE_BYTES_MAX + 1))
    with pytest.raises(LocalError, match="a node reads at most 4194304"):
        publish(tmp_path, large)
    with pytest.raises(LocalError, match="at most 256"):
        publish(tmp_path, *[part("a")] * (FILES_MAX + 1))

    assert list(tmp_path.iterdir()) == []


def test_key_is_made_once_and_kept_private(tmp_path):
    """Only its owner reads it; a damaged or open one is refused with exit code 4."""
    lake = tmp_path / "lake"
    made = load_key(lake)
    path = lake / "publish.key"
    mode = path.stat().st_mode & 0o777
    again = load_key(lake)
    path.chmod(0o640)
    with pytest.raises(HostError, match="others may read") as opened:
        load_key(lake)
    path.chmod(0o600)
    path.write_text("nonsense")
    with pytest.raises(HostError, match="64 hexadecimal digits") as damaged:
        load_key(lake)
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match="cannot use") as nowhere:
        load_key(tmp_path / "file" / "lake")

    assert (mode, made) == (0o600, again)
    assert [caught.value.exit_code for caught in (opened, damaged, nowhere)] == [4, 4, 5]
    assert [each.name for each in lake.iterdir()] == ["publish.key"]


def test_unusable_folder_is_said(tmp_path):
    """A folder that cannot be made, and one that cannot be cleaned, are one sentence with exit code 5."""
    (tmp_path / "published").write_text("")
    with pytest.raises(HostError, match="cannot publish into") as caught:
        publish(tmp_path, part("a"))
    with pytest.raises(HostError, match="cannot remove") as unswept:
        sweep(tmp_path / "nowhere")

    assert (caught.value.exit_code, unswept.value.exit_code) == (5, 5)
