"""Files of the lake, on a disk and in an object store alike."""

import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from waystation.core.errors import HostError
from waystation.pipeline.storage import Storage


def object_store(tmp_path) -> Storage:
    """Return a storage that goes through pyarrow, as one in a bucket does."""
    return Storage("s3a://bucket/lake", SubTreeFileSystem(str(tmp_path), LocalFileSystem()))


@pytest.fixture(params=["folder", "uri", "objects"])
def storage(request, tmp_path) -> Storage:
    """Give each kind of storage."""
    (tmp_path / "bucket" / "lake").mkdir(parents=True)
    return {
        "folder": Storage(tmp_path / "lake"),
        "uri": Storage((tmp_path / "lake").as_uri()),
        "objects": object_store(tmp_path),
    }[request.param]


def fill(storage: Storage) -> None:
    """Write three files, where an object store needs its folders to be there."""
    for path in ("a/b/one", "a/two", "three"):
        if storage.local is None:
            storage._remote().create_dir(storage._at(path).rpartition("/")[0])
        storage.write_atomically(path, path)


def test_files_are_written_listed_and_read(storage) -> None:
    """What is written is there, below its folder, and nothing else is."""
    fill(storage)

    assert storage.files() == ["a/b/one", "a/two", "three"]
    assert storage.files("a/b") == ["a/b/one"]
    assert storage.folders() == ["a"]
    assert storage.folders("a") == ["b"]
    assert storage.read_text("a/two") == "a/two"
    assert storage.exists("a") and storage.exists("three") and not storage.exists("four")


def test_missing_things_are_nothing(storage) -> None:
    """There is no text in no file, and nothing in no folder."""
    assert storage.read_text("none") is None
    assert storage.files("none") == storage.folders("none") == []


def test_deleting_takes_files_and_folders(storage) -> None:
    """A folder goes with all that is in it; deleting what is not there is no error."""
    fill(storage)
    for path in ("a", "three", "three", "none"):
        storage.delete(path)

    assert storage.files() == []


def test_file_can_be_opened_at_any_place(storage) -> None:
    """A reader of footers may begin at the end."""
    fill(storage)
    with storage.open("a/two") as file:
        file.seek(2)
        rest = file.read()

    assert rest == b"two"


def test_writing_again_replaces_and_is_dated(storage) -> None:
    """The second content is the only one, and the file knows when it was written."""
    fill(storage)
    storage.write_atomically("three", b"3")

    assert storage.read_text("three") == "3"
    assert storage.modified_s("three") > 1_700_000_000
    assert storage.modified_s("none") == 0


def test_spark_is_told_whole_paths(tmp_path) -> None:
    """Local folders are told as absolute paths, others as they were given."""
    assert Storage(tmp_path).spark_path("a/b") == f"{tmp_path}/a/b"
    assert Storage(tmp_path.as_uri()).spark_path() == str(tmp_path)
    assert Storage("s3a://bucket/lake/").spark_path("a") == "s3a://bucket/lake/a"


def test_unknown_place_is_a_host_error() -> None:
    """A scheme nobody knows is said, and not at once."""
    storage = Storage("nowhere://bucket/lake")
    with pytest.raises(HostError, match="cannot use the lake nowhere"):
        storage.files()


def test_file_in_the_way_is_a_host_error(tmp_path) -> None:
    """A file where a folder belongs is one sentence, for writing and for deleting."""
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match="cannot write"):
        Storage(tmp_path / "file").write_atomically("a", "b")
    with pytest.raises(HostError, match="cannot delete"):
        Storage(tmp_path / "file").delete("a")
