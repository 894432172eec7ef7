"""File access for the Parquet tables: a local folder or an object store behind one interface.

Spark writes the rows; manifests, listings, deletions and footers use this module. A local file is replaced by a
temporary file, ``fsync`` and one rename. In an object store a PUT is atomic. Object stores are accessed with pyarrow;
``s3a://``, Hadoop's scheme, is treated as ``s3://`` (PIPE-STORAGE).
"""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from waystation.core.errors import HostError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

__all__ = ["Storage"]

_STORE_EXIT_CODE: Final = 5
_UNFINISHED: Final = ".new"  # ending of a file that is being written


class Storage:
    """Files below one root; every path is relative to it, with ``/`` between its parts."""

    def __init__(self, root: Path | str, filesystem: "FileSystem | None" = None) -> None:
        """Name the root; nothing is touched or connected to yet.

        Args:
            root: A folder, by its path or URI, or the URI of an object store.
            filesystem: How to reach an object store; None asks pyarrow, with credentials as it finds them.
        """
        self._text = str(root)
        parts = urlsplit(self._text)
        self._local = _local_path(self._text)
        self._filesystem = filesystem
        self._base = f"{parts.netloc}{parts.path}".rstrip("/")

    @property
    def local(self) -> Path | None:
        """The root as a folder of this machine, or None for an object store."""
        return self._local

    def spark_path(self, path: str = "") -> str:
        """Return the path for Spark to read or write."""
        root = str(self._local.absolute()) if self._local is not None else self._text.rstrip("/")
        return f"{root}/{path}" if path else root

    def read_text(self, path: str) -> str | None:
        """Return a whole file, or None when there is none."""
        if self._local is not None:
            file = self._local / path
            return file.read_text(encoding="utf-8") if file.exists() else None
        if not self.exists(path):
            return None
        with self._remote().open_input_stream(self._at(path)) as stream:
            return bytes(stream.read()).decode()

    def write_atomically(self, path: str, content: str | bytes) -> None:
        """Replace a file: a reader sees the old one or the new one, also after the power went out.

        Raises:
            HostError: The disk or the store does not take it.
        """
        data = content.encode() if isinstance(content, str) else content
        try:
            if self._local is not None:
                _replace(self._local / path, data)
                return
            with self._remote().open_output_stream(self._at(path)) as stream:
                stream.write(data)
        except OSError as error:
            raise HostError(f"cannot write {self.spark_path(path)}: {error}", exit_code=_STORE_EXIT_CODE) from error

    def exists(self, path: str) -> bool:
        """Return whether there is a file or a folder."""
        if self._local is not None:
            return (self._local / path).exists()
        from pyarrow.fs import FileType  # noqa: PLC0415 - part of an extra

        return bool(self._remote().get_file_info(self._at(path)).type != FileType.NotFound)

    def files(self, path: str = "") -> list[str]:
        """Return every file below a folder, sorted; none when there is no such folder."""
        if self._local is None:
            return sorted(
                info.path[len(self._base) + 1 :] for info in self._infos(path, recursive=True) if info.is_file
            )
        top = self._local / path
        found = [Path(folder, name) for folder, _, names in os.walk(top) for name in names]
        return sorted(file.relative_to(self._local).as_posix() for file in found)

    def folders(self, path: str = "") -> list[str]:
        """Return the names of the folders right inside a folder, sorted."""
        if self._local is None:
            return sorted(info.base_name for info in self._infos(path, recursive=False) if not info.is_file)
        top = self._local / path
        return sorted(entry.name for entry in os.scandir(top) if entry.is_dir()) if top.is_dir() else []

    def modified_s(self, path: str) -> int:
        """Return when a file was last written, Unix seconds; 0 when it is gone."""
        if self._local is None:
            return int((self._remote().get_file_info(self._at(path)).mtime_ns or 0) // 1_000_000_000)
        try:
            return int((self._local / path).stat().st_mtime)
        except FileNotFoundError:
            return 0

    def delete(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it; nothing there is no error.

        Raises:
            HostError: It cannot be removed.
        """
        try:
            if self._local is not None:
                _remove(self._local / path)
            elif self.exists(path):
                info = self._remote().get_file_info(self._at(path))
                remove = self._remote().delete_file if info.is_file else self._remote().delete_dir
                remove(self._at(path))
        except OSError as error:
            raise HostError(f"cannot delete {self.spark_path(path)}: {error}", exit_code=_STORE_EXIT_CODE) from error

    def open(self, path: str) -> Any:
        """Open a file for reading at random places, as pyarrow wants it; the caller closes it."""
        if self._local is not None:
            return (self._local / path).open("rb")
        return self._remote().open_input_file(self._at(path))

    def _infos(self, path: str, *, recursive: bool) -> list[Any]:
        from pyarrow.fs import FileSelector  # noqa: PLC0415 - part of an extra

        selector = FileSelector(self._at(path), allow_not_found=True, recursive=recursive)
        return list(self._remote().get_file_info(selector))

    def _at(self, path: str) -> str:
        return f"{self._base}/{path}".rstrip("/")

    def _remote(self) -> "FileSystem":
        from pyarrow import ArrowException  # noqa: PLC0415 - part of an extra
        from pyarrow.fs import FileSystem  # noqa: PLC0415

        if self._filesystem is None:
            uri = self._text.replace("s3a://", "s3://", 1) if self._text.startswith("s3a://") else self._text
            try:
                self._filesystem, _ = FileSystem.from_uri(uri)
            except (OSError, ArrowException) as error:
                raise HostError(f"cannot use the lake {self._text}: {error}", exit_code=_STORE_EXIT_CODE) from error
        return self._filesystem


def _local_path(text: str) -> Path | None:
    if "://" not in text:
        return Path(text)
    parts = urlsplit(text)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _replace(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}{_UNFINISHED}")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
