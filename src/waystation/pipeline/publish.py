"""Publishes tables to nodes and analysts: writes the files first, then one signed pointer to them.

``jobs.publish`` passes the rows; ``server.policy_reader`` reads what is written.

::

    <lake>/publish.key          Ed25519 seed, 64 hexadecimal digits, 0600: signs every pointer
    <lake>/published/
      policy-<node>-<hash>.jsonl   rules for one node       scores-<hash>.jsonl   relays, for nodes
      <table>-<hash>.json          tables for the console   scores-<hash>.parquet relays, for analysts
      CURRENT.json                 the pointer, replaced by one rename
      PREVIOUS.json                the pointer before it

A file is named by its hash, written under a temporary name and then renamed. A file with its final name is therefore
complete and never changes. The pointer is replaced last, so a reader finds one complete snapshot. Files that neither
pointer names are deleted. If the disk refuses a write, the new files are deleted and the pointer does not change.

Scores of other relays are private to the operator and those relays (RFC-0004 7). Files with scores are written only to
the local folder of the tables.
"""

import contextlib
import datetime
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from waystation.core.errors import HostError, LocalError, RemoteError
from waystation.core.ids import PublicKey, decode_key_hex
from waystation.crypto.signing import SEED_BYTES, KeyPair, sign
from waystation.rules.lines import encode_line
from waystation.rules.snapshot import (
    CURRENT_NAME,
    FILE_BYTES_MAX,
    FILES_MAX,
    PREVIOUS_NAME,
    PUBLISHED_NAME,
    TABLE_SCHEMA,
    FileEntry,
    Snapshot,
    decode_snapshot,
    encode_snapshot,
    file_name,
    signed_bytes,
)

__all__ = [
    "FOLDER",
    "KEY_NAME",
    "Part",
    "Written",
    "load_key",
    "point",
    "publish_parts",
    "stage",
    "sweep",
    "table_part",
]

FOLDER: Final = "published"
KEY_NAME: Final = "publish.key"
_STORE_EXIT_CODE: Final = 5
_PERMISSION_EXIT_CODE: Final = 4
_OTHERS: Final = 0o077
_TEMPORARY: Final = ".new-"
_OURS: Final = re.compile(rf"{re.escape(_TEMPORARY)}.+")
_SNAPSHOT_CHARS: Final = 16


class Part(NamedTuple):
    """One file to publish."""

    stem: str
    """Its name before the hash."""
    suffix: str
    """``jsonl``, ``json`` or ``parquet``."""
    schema: str
    rows: int
    data: bytes
    is_local: bool = False
    """Whether it contains what may not leave the operator's own machines."""


@dataclass(frozen=True, slots=True)
class Written:
    """Files that stand, but that no pointer names yet."""

    entries: tuple[FileEntry, ...]
    fresh: tuple[Path, ...]
    """Those that were not there before."""


def table_part(stem: str, as_of: datetime.datetime, rows: Sequence[dict[str, Any]], *, is_local: bool = False) -> Part:
    """Return a table for the console; ``rows`` hold JSON values only."""
    document = {"as_of": as_of.isoformat(), "name": stem, "rows": list(rows)}
    return Part(stem, "json", TABLE_SCHEMA, len(rows), encode_line(document) + b"\n", is_local)


def load_key(lake: Path) -> KeyPair:
    """Return the key that signs what this lake publishes; one is made when there is none.

    Raises:
        HostError: It is damaged or others may read it (exit code 4), or it cannot be written (5).
    """
    path = lake / KEY_NAME
    try:
        if not path.exists():
            lake.mkdir(parents=True, exist_ok=True)
            _make_key(path)
        if stat.S_IMODE(path.stat().st_mode) & _OTHERS:
            raise HostError(f"others may read {path}: chmod 600 {path}", exit_code=_PERMISSION_EXIT_CODE)
        return KeyPair.from_seed(decode_key_hex(path.read_text("ascii", errors="replace").strip()))
    except LocalError as error:
        raise HostError(
            f"{path} does not hold a key: 64 hexadecimal digits are expected", exit_code=_PERMISSION_EXIT_CODE
        ) from error
    except OSError as error:
        raise HostError(f"cannot use {path}: {error.strerror}", exit_code=_STORE_EXIT_CODE) from error


def publish_parts(
    lake: Path,
    parts: Sequence[Part],
    *,
    as_of: datetime.datetime,
    expires_at: datetime.datetime,
    rule_version: str,
    folder: Path | None = None,
) -> Snapshot:
    """Write every part and move the pointer; the same parts give the same bytes.

    Args:
        lake: Folder of the lake, which has the key.
        parts: What to publish.
        as_of: End of what was looked at.
        expires_at: When nothing of it holds any more.
        rule_version: Which rules made it.
        folder: Where to; None takes the lake's own.

    Raises:
        LocalError: A local part is to go elsewhere, a part is too large, or there are too many.
        HostError: The disk refused (exit code 5); what was published before stands.
    """
    target = lake / FOLDER if folder is None else folder
    _check(parts, is_own=target.absolute() == (lake / FOLDER).absolute())
    key = load_key(lake)
    written = stage(target, parts)
    snapshot = _signed(written.entries, key, (as_of, expires_at), rule_version)
    try:
        point(target, snapshot)
    except HostError:
        named = _named(target / CURRENT_NAME)  # the disk may have failed after the rename
        _remove([path for path in written.fresh if path.name not in named])
        raise
    sweep(target)
    return snapshot


def stage(folder: Path, parts: Sequence[Part]) -> Written:
    """Write the files; until ``point`` names them no reader opens them.

    Raises:
        HostError: The disk refused; nothing of the attempt is left.
    """
    entries: list[FileEntry] = []
    fresh: list[Path] = []
    try:
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        for part in parts:
            sha256 = hashlib.sha256(part.data).hexdigest()
            path = folder / file_name(part.stem, sha256, part.suffix)
            if not _holds(path, part.data):
                _write_whole(path, part.data)
                fresh.append(path)
            entries.append(FileEntry(path.name, sha256, part.rows, part.schema))
        _sync_folder(folder)
    except OSError as error:
        _remove(fresh)
        raise _refused(folder, error) from error
    return Written(tuple(sorted(entries)), tuple(fresh))


def point(folder: Path, snapshot: Snapshot) -> None:
    """Make ``snapshot`` the current one.

    Raises:
        HostError: The disk refused; the pointer stands as it was, or is whole and new.
    """
    data, current = encode_snapshot(snapshot), folder / CURRENT_NAME
    try:
        before = current.read_bytes() if current.exists() else b""
        if before == data:
            return
        if before:
            _write_whole(folder / PREVIOUS_NAME, before)
        _write_whole(current, data)
        _sync_folder(folder)
    except OSError as error:
        raise _refused(folder, error) from error


def sweep(folder: Path) -> None:
    """Remove files of ours that neither pointer names, and what an attempt left that died; leave everybody else's.

    Raises:
        HostError: The disk refused; what is left over is removed the next time.
    """
    kept = _named(folder / CURRENT_NAME) | _named(folder / PREVIOUS_NAME)
    try:
        for path in folder.iterdir():
            is_ours = PUBLISHED_NAME.fullmatch(path.name) or _OURS.fullmatch(path.name)
            if is_ours and path.name not in kept:
                path.unlink(missing_ok=True)
    except OSError as error:
        why = f"cannot remove what is not named any more from {folder}: {error.strerror}"
        raise HostError(why, exit_code=_STORE_EXIT_CODE) from error


def _check(parts: Sequence[Part], *, is_own: bool) -> None:
    if len(parts) > FILES_MAX:
        raise LocalError(f"{len(parts)} files are too many for one snapshot; at most {FILES_MAX}")
    for part in parts:
        if part.is_local and not is_own:
            raise LocalError(f"{part.stem} rates other relays: it stays in the lake's own folder {FOLDER}")
        if len(part.data) > FILE_BYTES_MAX:
            raise LocalError(f"{part.stem} has {len(part.data)} bytes; a node reads at most {FILE_BYTES_MAX}")


def _signed(
    entries: tuple[FileEntry, ...],
    key: KeyPair,
    span: tuple[datetime.datetime, datetime.datetime],
    rule_version: str,
) -> Snapshot:
    as_of_us, expires_at_us = map(_microseconds, span)
    public: PublicKey = key.public
    unnamed = Snapshot("0" * _SNAPSHOT_CHARS, "", as_of_us, rule_version, entries, expires_at_us, public)
    name = hashlib.sha256(signed_bytes(unnamed)).hexdigest()[:_SNAPSHOT_CHARS]
    snapshot = Snapshot(name, "", as_of_us, rule_version, entries, expires_at_us, public)
    return snapshot.signed(sign(key, signed_bytes(snapshot)))


def _microseconds(moment: datetime.datetime) -> int:
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond


def _named(pointer: Path) -> set[str]:
    """Return the files that a pointer names; of one that cannot be read none."""
    try:
        return {entry.name for entry in decode_snapshot(pointer.read_bytes()).files}
    except (FileNotFoundError, RemoteError):
        return set()


def _holds(path: Path, data: bytes) -> bool:
    """Return whether the file is there with these bytes; a damaged one is written again."""
    return path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data


def _write_whole(path: Path, data: bytes, mode: int = 0o640) -> None:
    temporary = path.with_name(f"{_TEMPORARY}{path.name}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _make_key(path: Path) -> None:
    """Make the key unless another process just did; one that is there is never written over."""
    temporary = path.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}")
    _write_whole(temporary, secrets.token_bytes(SEED_BYTES).hex().encode() + b"\n", 0o600)
    try:
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink()
    _sync_folder(path.parent)


def _remove(paths: Collection[Path]) -> None:
    """Remove what an attempt wrote; a disk that refuses even that has it swept by the next one."""
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _refused(folder: Path, error: OSError) -> HostError:
    why = error.strerror or str(error)
    return HostError(
        f"cannot publish into {folder}: {why}; what was published before stands", exit_code=_STORE_EXIT_CODE
    )


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
