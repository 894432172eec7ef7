"""Takes a backup of a home while its node runs, and restores one into an empty folder.

A backup is a folder that looks like a home, with a list of its files beside it::

    DIR/           0700
      backup.json  0600  every other file but home.json, with its bytes and SHA-256
      home.json    0600  the mark; written last, so a folder without it is no backup
      node.key, refs.key, admin.token, tls/, box/, journal/, archive/, store.sqlite

The store is one moment after the call (NODE-BACKUP). Of journal and archive there are the segments sealed by then.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from waystation.core.errors import HostError, LocalError
from waystation.journal.segment import SEALED_SUFFIX
from waystation.server.home.files import Home, host_errors, write_whole
from waystation.server.home.mark import (
    HomeMark,
    begin_restore,
    check_home,
    mark_path,
    read_mark,
    refuse_unfinished,
    store_mark,
    write_mark,
)
from waystation.server.registry import packet_check
from waystation.store.deep_check import check_rows
from waystation.store.sqlite_copy import copy_store, renew_store
from waystation.store.sqlite_layout import check_file
from waystation.version import __version__

__all__ = ["LIST_FILE", "BackupReport", "Progress", "backup_home", "restore_home"]

LIST_FILE: Final = "backup.json"

Progress = Callable[[str, int, int], None]
"""Called with what is copied, how much of it is done, and of how much."""

_FORMAT: Final = 1
_CHUNK_BYTES: Final = 1 << 20
_LOOSE: Final = ("node.key", "refs.key", "admin.token")
# Contacts of the box before its folders: a folder without its contact is removed by the next start, but a contact whose
# folder is missing would have lost its files.
_TREES: Final = ("tls", "box/owners", "box/contacts", "box/folders")
_SEGMENTS: Final = ("journal", "archive")
_EXIT_DAMAGED: Final = 5


class BackupReport(NamedTuple):
    """What a backup holds."""

    path: str
    public_key: bytes
    files: int
    size_bytes: int
    generation: int | None
    """Of the store; None when there is none, or one of an older layout."""
    damaged: Mapping[str, int] = MappingProxyType({})
    """Damaged rows of the copied store by table, and ``file`` for faults of the file; none of an older layout, whose
    rows have no checksums, and none from ``restore_home``, which copies what the backup has."""


def backup_home(home: Home, target: Path, progress: Progress) -> BackupReport:
    """Copy a home into an empty folder; everything that was acknowledged before the call is in it.

    Every row of the copied store is read: damaged ones stay in the copy as they are, and the report counts them.

    Args:
        home: Of a node that runs or not.
        target: Empty, or not there yet; outside the home.
        progress: May do nothing.

    Raises:
        LocalError: ``target`` is not empty, or lies in the home.
        HostError: The home has lost something (exit code 5), or one of the disks refused; then ``target`` is no backup.
    """
    if target.resolve().is_relative_to(home.path.resolve()):
        raise LocalError(f"{target} lies in the home itself; name a folder elsewhere, better on another disk")
    _make_empty(target)
    check_home(home)
    mark = read_mark(home)
    public = home.key_pair().public
    with host_errors(f"cannot copy {home.path} to {target}"):
        _copy_files(home.path, target, _files_of(home), progress)
        state = None
        if home.store_path.exists():
            state = copy_store(
                home.store_path,
                target / home.store_path.name,
                lambda done, total: progress("store", done, total),
            )
        damaged = _damaged_rows(target / home.store_path.name, progress) if state is not None else {}
        entries = _entries(target, progress)
        _write_list(target, entries)
        _sync_folders(target)
    kept = store_mark(state, in_use=False) if state is not None else None
    write_mark(Home(target), HomeMark(public, kept, mark.made_at if mark is not None else ""))
    size_bytes = sum(entry["bytes"] for entry in entries.values())
    generation = state.generation if state is not None else None
    return BackupReport(str(target), public, len(entries), size_bytes, generation, damaged)


def restore_home(source: Path, home: Home, progress: Progress) -> BackupReport:
    """Make a home from a backup, whose files are all looked at.

    Its store gets a name of its own, so that readers of Strata begin their history anew instead of missing packets.

    Args:
        source: What ``backup_home`` has written.
        home: An empty folder, or none yet. No node starts on it before this has returned.
        progress: May do nothing.

    Raises:
        LocalError: ``source`` is no backup, or ``home`` is not empty.
        HostError: A file of the backup is missing or not as it was (exit code 5), one of the disks refused, or an
            earlier restore into ``home`` was cut short. Of a restore that was refused nothing is left in ``home``.
    """
    entries, mark = _read_backup(source)
    was_there = home.path.exists()
    if was_there:
        refuse_unfinished(home)
    _make_empty(home.path)
    try:
        return _restore(source, home, entries, mark, progress)
    except BaseException:
        _remove(home.path, itself=not was_there)
        raise


def _restore(source: Path, home: Home, entries: dict[str, Any], mark: HomeMark, progress: Progress) -> BackupReport:
    begin_restore(home)
    with host_errors(f"cannot copy {source} to {home.path}"):
        _copy_files(source, home.path, [Path(name) for name in entries], progress)
    found = _entries(home.path, progress)
    for name, entry in entries.items():
        if found.get(name) != entry:
            raise HostError(f"{source / name} is not as it was when the backup was made", exit_code=_EXIT_DAMAGED)
    state = None
    if home.store_path.exists():
        check_file(home.store_path)
        state = renew_store(home.store_path)
    public = home.key_pair().public
    if public != mark.public_key:
        raise HostError(f"the key in {source} is not the one of its node", exit_code=_EXIT_DAMAGED)
    with host_errors(f"cannot write {home.path}"):
        _sync_folders(home.path)
    write_mark(home, mark._replace(store=store_mark(state, in_use=False) if state is not None else None))
    size_bytes = sum(entry["bytes"] for entry in entries.values())
    generation = state.generation if state is not None else None
    return BackupReport(str(home.path), public, len(entries), size_bytes, generation)


def _damaged_rows(path: Path, progress: Progress) -> dict[str, int]:
    """Return how many rows of a copied store are damaged, by table; none for a whole one."""
    count = 0

    def show(rows: int) -> None:
        nonlocal count
        count = rows
        progress("rows", rows, rows + 1)  # how many there are is known at the end

    reports = check_rows(path, packet_check(), show)
    progress("rows", count + 1, count + 1)
    return {report.name: report.damaged for report in reports if report.damaged}


def _read_backup(source: Path) -> tuple[dict[str, Any], HomeMark]:
    """Return the list of files and the mark of a backup."""
    if not (source / LIST_FILE).exists() or not mark_path(Home(source)).exists():
        raise LocalError(
            f"{source} is no backup, or one that was cut short: {LIST_FILE} and home.json are what is written last"
        )
    mark = read_mark(Home(source))
    try:
        document = json.loads((source / LIST_FILE).read_bytes())
        if document["format"] > _FORMAT:
            raise HostError(
                f"{source} was written by a newer waystation ({document['version']})", exit_code=_EXIT_DAMAGED
            )
        entries: dict[str, Any] = document["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HostError(f"{source / LIST_FILE} is damaged", exit_code=_EXIT_DAMAGED) from error
    if mark is None or any(Path(name).is_absolute() or ".." in Path(name).parts for name in entries):
        raise HostError(f"{source / LIST_FILE} is damaged", exit_code=_EXIT_DAMAGED)
    return entries, mark


def _make_empty(path: Path) -> None:
    with host_errors(f"cannot make the folder {path}"):
        if path.is_dir() and any(path.iterdir()):
            raise LocalError(f"{path} is not empty")
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)


def _remove(folder: Path, *, itself: bool) -> None:
    """Empty a folder in which all is ours, and remove it; what the disk refuses to remove stays."""
    for path in list(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()
    if itself:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _files_of(home: Home) -> list[Path]:
    """Return the files to copy but the store, below the home, in the order in which they are."""
    found = [Path(name) for name in _LOOSE if (home.path / name).exists()]
    for tree in _TREES:
        found += sorted(_below(home.path, home.path / tree, ""))
    for tree in _SEGMENTS:
        found += sorted(_below(home.path, home.path / tree, SEALED_SUFFIX))
    return found


def _below(top: Path, folder: Path, suffix: str) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and path.name.endswith(suffix) and not path.name.startswith("."):
            yield path.relative_to(top)


def _copy_files(source: Path, target: Path, names: list[Path], progress: Progress) -> None:
    """Copy files with their modes and times, and sync each."""
    for done, name in enumerate(names):
        progress("files", done, len(names))
        _make_folders(target, name.parent)
        # What its owner has removed since it was listed (retention, a box) need not be there.
        with contextlib.suppress(FileNotFoundError):
            _copy_file(source / name, target / name)
    progress("files", len(names), len(names))


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as reading:
        opened = os.fstat(reading.fileno())
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as writing:
            shutil.copyfileobj(reading, writing, _CHUNK_BYTES)
            os.fchmod(descriptor, opened.st_mode & 0o777)
            writing.flush()
            os.fsync(descriptor)
    os.utime(target, ns=(opened.st_atime_ns, opened.st_mtime_ns))


def _make_folders(top: Path, below: Path) -> None:
    for folder in (*reversed(below.parents), below):
        (top / folder).mkdir(mode=0o700, exist_ok=True)


def _entries(folder: Path, progress: Progress) -> dict[str, Any]:
    """Return size and hash of every file but the list and the mark, as read from the disk, by name."""
    own = {mark_path(Home(folder)), folder / LIST_FILE}
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path not in own)
    found = {}
    for done, path in enumerate(paths):
        progress("check", done, len(paths))
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        found[path.relative_to(folder).as_posix()] = {"bytes": path.stat().st_size, "sha256": digest}
    progress("check", len(paths), len(paths))
    return found


def _write_list(target: Path, entries: dict[str, Any]) -> None:
    document = {"format": _FORMAT, "version": __version__, "files": entries}
    write_whole(target / LIST_FILE, (json.dumps(document, indent=1) + "\n").encode())


def _sync_folders(top: Path) -> None:
    for folder in (*(path for path in top.rglob("*") if path.is_dir()), top, top.parent):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
