"""Reads the policy snapshots that the pipeline publishes: polls for a new one, and accepts it whole or not at all.

A poll checks whether ``CURRENT.json`` has changed. If so, all files are read outside the event loop, after a check of
their sizes. Signature, format, time, hashes, row counts and every line must be valid. Then rules, scores and tables are
replaced at once. After any fault the last valid snapshot stays in force until it expires. The fault is logged once and
shown in the status while it lasts. The newest ``as_of`` of each key is stored, so an older snapshot is never accepted,
not even after a restart.
"""

import asyncio
import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import structlog

from waystation.core.errors import ConfigError, HostError, LocalError, RemoteError
from waystation.core.ids import PublicKey, decode_key_hex
from waystation.core.records import Record, Store
from waystation.crypto.signing import KeyPair, verify
from waystation.engine.policy import Policy, Stance, parse_allowed
from waystation.rules.policy import PolicyRule, PolicyTable, RelayScore, decode_rules, decode_scores
from waystation.rules.snapshot import (
    CURRENT_BYTES_MAX,
    CURRENT_NAME,
    FILE_BYTES_MAX,
    POLICY_SCHEMA,
    SCORES_SCHEMA,
    TABLE_SCHEMA,
    FileEntry,
    Snapshot,
    decode_snapshot,
    refuse_older,
    refuse_time,
    signed_bytes,
)
from waystation.server.config.settings import PolicySettings
from waystation.server.home import Home

__all__ = ["RULES_SHOWN_MAX", "TABLES", "PolicyReader", "Published", "read_published"]

TABLE: Final = "published"
TABLES: Final = ("scores", "outcomes", "transitions", "topology", "consistency", "capacity", "bsp", "runs")
"""Tables for the console."""
RULES_SHOWN_MAX: Final = 1_000
TRIES_MAX: Final = 3
"""How often a look begins again because the pipeline published meanwhile."""
_SAID_MAX: Final = 64
_KEY_FILE_BYTES_MAX: Final = 256
_MICROSECONDS: Final = 1_000_000

_Mark = tuple[int, int, int]
"""Time of change, size and number of a file: what distinguishes one pointer from the next."""

_Rows = TypeVar("_Rows", list[PolicyRule], dict[str, RelayScore])
_log = structlog.get_logger("waystation.server")


class Published(NamedTuple):
    """One snapshot that was found to be in order."""

    snapshot: Snapshot
    table: PolicyTable
    scores: dict[str, RelayScore]
    tables: dict[str, bytes]
    """JSON documents by name, as they were published."""


class _Place(NamedTuple):
    """Where to look, and whom to trust."""

    folder: Path
    key: PublicKey | None
    """None trusts the key that lies beside the folder, as long as that is in the node's own home."""
    home: Path
    is_asked_for: bool
    """Whether the operator named the folder; else there may be none."""


def read_published(folder: Path, node_id: str, key: PublicKey, newest_us: int | None, now_us: int) -> Published:
    """Return what is published now.

    Args:
        folder: Where ``CURRENT.json`` lies.
        node_id: The reader's own, 16 hexadecimal digits: rules for others are not read.
        key: Who must have signed.
        newest_us: As in ``refuse_older``.
        now_us: Wall clock, Unix microseconds.

    Raises:
        RemoteError: Something of it is not in order; says what.
    """
    for _ in range(TRIES_MAX):
        pointer = _read(folder / CURRENT_NAME, CURRENT_BYTES_MAX)
        try:
            return _read_snapshot(folder, pointer, node_id, key, (newest_us, now_us))
        except _MissingError:
            if _read(folder / CURRENT_NAME, CURRENT_BYTES_MAX) == pointer:
                raise
    raise RemoteError(f"{CURRENT_NAME} changes faster than its files can be read")


class PolicyReader:
    """Keeps one ``Policy`` up to date."""

    def __init__(
        self, settings: PolicySettings, home: Home, node_id: str, store: Store, keep: Callable[[Record], object]
    ) -> None:
        """Prepare; ``watch`` reads.

        Args:
            settings: What the operator wants.
            home: Has the default folder.
            node_id: As in ``read_published``.
            store: Remembers how far each key was.
            keep: Takes records for the store.

        Raises:
            ConfigError: The folder lies outside the home and no key is named.
        """
        self._settings = settings
        self._node_id = node_id
        self._store = store
        self._keep = keep
        self._place = _place_of(settings, home)
        self._mark: _Mark | None = None
        self._now: Published | None = None
        self._newest: dict[bytes, int] = {}
        self._said: set[str] = set()
        self._trouble = ""
        self._hurry = asyncio.Event()
        self.policy = Policy(Stance(settings.mode), parse_allowed(settings.allow))

    def use(self, settings: PolicySettings) -> None:
        """Do what the operator wants now, and look at once; folder, key and pace stay as they were."""
        self._settings = replace(self._settings, mode=settings.mode, allow=settings.allow)
        self.policy.use_operator(Stance(settings.mode), parse_allowed(settings.allow))
        self._hurry.set()

    async def watch(self) -> None:
        """Look for ever; ends when it is cancelled."""
        while True:
            self._hurry.clear()  # before the poll: a request during it causes another one
            await self.look()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), self._settings.poll_s)

    async def look(self) -> None:
        """Take what is new and in order; say what is not."""
        if self.policy.stance is Stance.OFF:
            return
        try:
            mark = await asyncio.to_thread(_mark_of, self._place.folder / CURRENT_NAME)
            if mark is None and not self._place.is_asked_for and self._now is None:
                return
            if mark is None:
                raise RemoteError(f"{CURRENT_NAME} is missing from {self._place.folder}")
            if mark != self._mark:
                await self._take()
                self._mark = mark
            if self._now is not None:
                _demand_time(self._now.snapshot, _wall_us())
        except (RemoteError, HostError) as error:
            self._say(str(error))
        else:
            self._trouble = ""
            self._said.clear()

    async def _take(self) -> None:
        """Read everything, then swap at once.

        Raises:
            RemoteError: It is not in order.
        """
        folder = self._place.folder
        key = self._place.key
        if key is None:
            key = await asyncio.to_thread(_key_beside, folder, self._place.home)
        found = await asyncio.to_thread(read_published, folder, self._node_id, key, self._newest_of(key), _wall_us())
        self._remember(key, found.snapshot.as_of_us)
        self._now = found
        self.policy.use(found.table, found.scores)
        snapshot = found.snapshot
        counts = {"rules": len(found.table), "relays": len(found.scores)}
        _log.info("policy.loaded", snapshot=snapshot.snapshot, mode=self._settings.mode, **counts)

    def _newest_of(self, key: PublicKey) -> int | None:
        if key not in self._newest:
            kept = self._store.get(TABLE, key)
            if kept is None:
                return None
            self._newest[key] = int(kept)
        return self._newest[key]

    def _remember(self, key: PublicKey, as_of_us: int) -> None:
        if self._newest.get(key) != as_of_us:
            self._newest[key] = as_of_us
            self._keep(Record(TABLE, key, str(as_of_us).encode()))

    def _say(self, trouble: str) -> None:
        self._trouble = trouble
        if trouble not in self._said and len(self._said) < _SAID_MAX:
            self._said.add(trouble)
            _log.warning("policy.refused", why=trouble, kept=self._now.snapshot.snapshot if self._now else "")

    # What the admin server asks

    def status(self) -> dict[str, Any]:
        """Return which snapshot is in force, what is wrong, and what its rules did."""
        snapshot = self._now.snapshot if self._now is not None else None
        return {
            "mode": self._settings.mode,
            "path": str(self._place.folder),
            "snapshot": snapshot.snapshot if snapshot is not None else "",
            "as_of_us": snapshot.as_of_us if snapshot is not None else None,
            "expires_at_us": snapshot.expires_at_us if snapshot is not None else None,
            "age_s": max(0.0, (_wall_us() - snapshot.as_of_us) / _MICROSECONDS) if snapshot is not None else None,
            "rule_version": snapshot.rule_version if snapshot is not None else "",
            "key": snapshot.key.hex() if snapshot is not None else "",
            "trouble": self._trouble,
            "sizes": self.policy.sizes(),
            "matches": [match._asdict() | {"n": n} for match, n in sorted(self.policy.matches().items())],
        }

    def relays(self) -> list[dict[str, Any]]:
        """Return the published scores of other relays, the worst first; none once they have ended."""
        if self._now is None or self.policy.stance is Stance.OFF or _wall_us() >= self._now.snapshot.expires_at_us:
            return []
        scores = sorted(self._now.scores.values(), key=lambda score: (score.score, score.relay_id))
        return [score._asdict() | {"state": score.state.value} for score in scores]

    def document(self, name: str) -> bytes | None:
        """Return a published table as it was signed, or None."""
        return self._now.tables.get(name) if self._now is not None else None


class _MissingError(RemoteError):
    """A file that should be there is not: it may have been swept between two looks."""


def _place_of(settings: PolicySettings, home: Home) -> _Place:
    folder = Path(settings.path) if settings.path else home.path / "lake" / "published"
    key = decode_key_hex(settings.key) if settings.key else None
    if settings.path and key is None and not _is_within(folder, home.path):
        raise ConfigError(_outside(folder), origin="policy.path")
    return _Place(folder, key, home.path, is_asked_for=bool(settings.path))


def _is_within(folder: Path, home: Path) -> bool:
    return folder.resolve().is_relative_to(home.resolve())


def _outside(folder: Path) -> str:
    return f"{folder} lies outside the node's home, so policy.key must say who signs there: 64 hexadecimal digits"


def _key_beside(folder: Path, home: Path) -> PublicKey:
    """Return the public half of the key that the pipeline on this home made for itself.

    Raises:
        RemoteError: There is none, or the folder is a link to somewhere else.
    """
    if not _is_within(folder, home):
        raise RemoteError(_outside(folder))
    path = folder.parent / "publish.key"
    try:
        seed = decode_key_hex(_read(path, _KEY_FILE_BYTES_MAX).decode("ascii", "replace").strip())
    except LocalError as error:
        raise RemoteError(f"{path} does not hold a key") from error
    return KeyPair.from_seed(seed).public


def _read_snapshot(
    folder: Path, pointer: bytes, node_id: str, key: PublicKey, times_us: tuple[int | None, int]
) -> Published:
    try:
        snapshot = decode_snapshot(pointer)
        _check(snapshot, node_id, key)
        refuse_older(snapshot, times_us[0])
        refuse_time(snapshot, times_us[1])
    except RemoteError as error:
        raise RemoteError(f"{CURRENT_NAME} {error}") from error
    rules = _file_of(folder, snapshot.find(f"policy-{node_id}", POLICY_SCHEMA), decode_rules)
    scores = _file_of(folder, snapshot.find("scores", SCORES_SCHEMA), decode_scores)
    entries = {name: snapshot.find(name, TABLE_SCHEMA) for name in TABLES}
    tables = {name: _contents(folder, entry) for name, entry in entries.items() if entry is not None}
    return Published(snapshot, PolicyTable(rules or [], snapshot.expires_at_us), scores or {}, tables)


def _demand_time(snapshot: Snapshot, now_us: int) -> None:
    """Refuse what is in force and has ended since.

    Raises:
        RemoteError: It has.
    """
    try:
        refuse_time(snapshot, now_us)
    except RemoteError as error:
        raise RemoteError(f"{CURRENT_NAME} {error}") from error


def _check(snapshot: Snapshot, node_id: str, key: PublicKey) -> None:
    if snapshot.key != key:
        raise RemoteError(f"is signed by another key than {key.hex()}")
    if not verify(key, signed_bytes(snapshot), snapshot.signature):
        raise RemoteError("has not the signature of its key")
    if snapshot.node_id not in {"", node_id}:
        raise RemoteError(f"is for the node {snapshot.node_id}, not for this one")


def _file_of(folder: Path, entry: FileEntry | None, decode: Callable[[bytes], _Rows]) -> _Rows | None:
    """Return the rows of a file of lines; None when the snapshot has none of its kind."""
    if entry is None:
        return None
    try:
        rows = decode(_contents(folder, entry))
    except _MissingError:
        raise
    except RemoteError as error:
        raise RemoteError(f"{entry.name}: {error}") from error
    if len(rows) != entry.rows:
        raise RemoteError(f"{entry.name} has {len(rows)} rows; {entry.rows} were promised")
    return rows


def _contents(folder: Path, entry: FileEntry) -> bytes:
    data = _read(folder / entry.name, FILE_BYTES_MAX)
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise RemoteError(f"{entry.name} is not what was published: its hash is another")
    return data


def _read(path: Path, bytes_max: int) -> bytes:
    """Return a regular file's bytes, if it is not too large.

    Raises:
        RemoteError: It is missing, no file, too large, or cannot be read.
    """
    try:
        # Not to wait for the other end, should it be a named pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise RemoteError(f"{path.name} is no file")
            if found.st_size > bytes_max:
                raise RemoteError(f"{path.name} has {found.st_size} bytes; at most {bytes_max} are read")
            return file.read(bytes_max)
    except FileNotFoundError as error:
        raise _MissingError(f"{path.name} is missing from {path.parent}") from error
    except OSError as error:
        raise RemoteError(f"{path.name} cannot be read: {error.strerror}") from error


def _mark_of(path: Path) -> _Mark | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RemoteError(f"{path.name} cannot be read: {error.strerror}") from error
    return found.st_mtime_ns, found.st_size, found.st_ino


def _wall_us() -> int:
    return time.time_ns() // 1_000
