"""Writes and checks ``home.json``: the home's public key, and how far its store has come (NODE-MARK).

``serve`` and ``init`` call ``prepare_home``, which refuses (exit code 5) a home whose key or store is lost, older, or
another's; ``MarkKeeper`` writes the mark while a node runs; ``backup``, ``restore``, ``upgrade`` and ``check`` use the
rest. ``accept_home`` records what is there, and gives an older store a new id.

``home.json`` (0600, written whole and synced)::

    {"format": 1, "made_at": "2026-11-23T17:00:00Z", "written_at": "...", "version": "0.1.0",
     "public_key": "<64 hex>", "store": {"store_id": "<32 hex>", "generation": 41, "layout": 3, ...}}

It is written when a home is made, at the start after the first write, after each time the store's log was folded into
its file, and at the orderly end. ``check_home`` compares it with what is there before anything is made. The file of
the store without its log is always older than the generation remembered (``SqliteStore.fold``), so a lost log shows
too. A whole home of an earlier day, with its mark, looks as it did on that day: nothing in it can say that it is old.
"""

import contextlib
import datetime
import json
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

from waystation.core.errors import HostError, LocalError, StoreFault, StoreFaultKind
from waystation.core.ids import decode_key_hex, encode_id52
from waystation.core.records import STORE_ID_BYTES, StoreState
from waystation.server.home.files import Home, host_errors, write_whole
from waystation.store.sqlite_copy import renew_store
from waystation.store.sqlite_file import STORE_EXIT_CODE
from waystation.store.sqlite_layout import SCHEMA_VERSION, log_path, look_at_file, look_at_file_alone
from waystation.version import __version__

__all__ = [
    "HomeMark",
    "HomeState",
    "PreparedHome",
    "StoreMark",
    "accept_home",
    "adopt_home",
    "begin_restore",
    "check_home",
    "damage_explained",
    "losses",
    "mark_path",
    "prepare_home",
    "read_mark",
    "refuse_unfinished",
    "store_mark",
    "write_mark",
]

_FORMAT: Final = 1
_UNFINISHED: Final = "restore"


class StoreMark(NamedTuple):
    """What is remembered of the store."""

    store_id: bytes
    generation: int
    """Reached at least."""
    layout: int
    in_use: bool
    """Whether a node was using it, so that a log stands beside the file."""
    in_file: int = 0
    """What the file has reached without its log, at least; 0 for unknown."""


class HomeMark(NamedTuple):
    """What ``home.json`` says."""

    public_key: bytes | None
    """Of the node, 32 bytes; None when ``accept_home`` found no key."""
    store: StoreMark | None
    """None as long as no node has used a store here."""
    made_at: str
    """UTC, when the home was made or first got a mark; "" for now."""


class HomeState(Enum):
    """What ``check_home`` found."""

    FRESH = "fresh"
    """Nothing is there yet."""
    UNMARKED = "unmarked"
    """A home from before there were marks."""
    KNOWN = "known"
    """All that is remembered is there."""
    LOG_FOLDED = "log folded"
    """So it is, but the log of a node that did not end in order is gone; another program may have folded it in."""


class PreparedHome(NamedTuple):
    """A home that a node may use."""

    state: HomeState
    """As it was found."""
    made: list[Path]
    """What was missing."""


def read_mark(home: Home) -> HomeMark | None:
    """Return what the home remembers, None when it has no mark.

    Raises:
        HostError: It cannot be read, or says that a restore was not finished (exit code 5).
    """
    if not mark_path(home).exists():
        return None
    with host_errors(f"cannot read {mark_path(home)}"):
        text = mark_path(home).read_bytes()
    try:
        return _parse(json.loads(text), home)
    except (ValueError, KeyError, TypeError, LocalError) as error:
        raise _refused(home, f"{mark_path(home)} is damaged") from error


def write_mark(home: Home, mark: HomeMark) -> None:
    """Remember ``mark``; the old one is in force until the new one is whole on the disk.

    Raises:
        HostError: The disk refused.
    """
    store = mark.store
    document = {
        "format": _FORMAT,
        "made_at": mark.made_at or _now(),
        "written_at": _now(),
        "version": __version__,
        "public_key": mark.public_key.hex() if mark.public_key is not None else None,
        "store": store._asdict() | {"store_id": store.store_id.hex()} if store is not None else None,
    }
    _write(home, document)


def begin_restore(home: Home) -> None:
    """Say in an empty home that a restore is under way: no node starts on it until ``write_mark`` was called.

    Raises:
        HostError: The disk refused.
    """
    _write(home, {"format": _FORMAT, "unfinished": _UNFINISHED})


def refuse_unfinished(home: Home) -> None:
    """Refuse a folder in which a restore was cut short; whatever else is there is no matter of this.

    Raises:
        HostError: It was; the sentence names the way out (exit code 5).
    """
    try:
        document = json.loads(mark_path(home).read_bytes())
    except (OSError, ValueError):
        return
    if isinstance(document, dict) and document.get("unfinished") == _UNFINISHED:
        raise _cut_short(home)


def check_home(home: Home, *, uses_store: bool = True) -> HomeState:
    """Compare a home with what it remembers (NODE-MARK); nothing is written.

    Args:
        home: Locked by this process, or used by no node.
        uses_store: Whether the node keeps its records in the home.

    Raises:
        HostError: Something is lost, another one's, or older (exit code 5); the sentence names the way out.
    """
    with host_errors(f"cannot look into the home {home.path}"):
        mark = read_mark(home)
        if mark is None:
            return _check_unmarked(home)
        for sentence in losses(home, mark, uses_store=uses_store):
            raise _refused(home, sentence)
        store = mark.store
        if uses_store and store is not None and store.in_use and not _log_path(home).exists():
            return HomeState.LOG_FOLDED
        return HomeState.KNOWN


def prepare_home(home: Home, names: Sequence[str] = (), *, uses_store: bool = True) -> PreparedHome:
    """Check a home, make what is missing in it, and see that it has a mark.

    Args:
        home: Locked by this process, if a node is to use it.
        names: As for ``Home.ensure``.
        uses_store: As for ``check_home``.

    Raises:
        HostError: As from ``check_home``; nothing was made.
    """
    state = check_home(home, uses_store=uses_store)
    made = home.ensure(names=names)
    adopt_home(home)
    return PreparedHome(state, made)


@contextlib.contextmanager
def damage_explained(home: Home) -> Iterator[None]:
    """Name the way out where a start fails because the store of ``home`` is damaged."""
    try:
        yield
    except HostError as error:
        is_damage = isinstance(error, StoreFault) and error.kind is StoreFaultKind.DAMAGED
        names_one = "waystation restore" in str(error)
        if error.exit_code != STORE_EXIT_CODE or names_one or not (is_damage or "is damaged" in str(error)):
            raise
        raise HostError(
            f"{error}; restore a backup: waystation restore BACKUP --home NEW_HOME; without one, see what is"
            f" damaged: waystation check --deep {home.path}",
            exit_code=error.exit_code,
        ) from error


def losses(home: Home, mark: HomeMark, *, uses_store: bool = True) -> list[str]:
    """Return a sentence for each thing that is not as ``mark`` remembers it; nothing is written.

    Raises:
        HostError: The disk refused.
    """
    found = [_key_loss(home, mark.public_key)] if mark.public_key is not None else []
    if uses_store and mark.store is not None:
        found.append(_store_loss(home, mark.store))
    return [sentence for sentence in found if sentence]


def adopt_home(home: Home) -> HomeMark:
    """Give a home a mark for what is in it, and return it; one that has a mark keeps it.

    Raises:
        HostError: The disk refused.
    """
    mark = read_mark(home)
    if mark is None or mark.public_key is None:
        mark = HomeMark(
            home.key_pair().public if home.key_path.exists() else None,
            mark.store if mark is not None else None,
            mark.made_at if mark is not None else "",
        )
        write_mark(home, mark)
    return mark


def accept_home(home: Home) -> HomeMark:
    """Write a new mark for what is there, whatever the old one says, and return it.

    A store that is not the one remembered, or an older one, gets a name of its own (``renew_store``).

    Args:
        home: Locked by this process.

    Raises:
        HostError: The key or the store that is there is damaged, or the disk refused.
    """
    public = home.key_pair().public if home.key_path.exists() else None
    state = look_at_file(home.store_path) if _has_store(home) else None
    if state is not None and _is_another(home):
        state = renew_store(home.store_path)
    store = StoreMark(*state, SCHEMA_VERSION, in_use=False) if state is not None else None
    mark = HomeMark(public, store, "")
    write_mark(home, mark)
    return mark


def store_mark(state: StoreState, *, in_use: bool, path: Path | None = None) -> StoreMark:
    """Return what is to be remembered of a store; ``path`` is its file, if that is to be looked at without its log."""
    alone = look_at_file_alone(path) if path is not None else None
    return StoreMark(*state, SCHEMA_VERSION, in_use, alone.generation if alone is not None else 0)


def mark_path(home: Home) -> Path:
    """Return where a home keeps its mark."""
    return home.path / "home.json"


def _check_unmarked(home: Home) -> HomeState:
    if home.key_path.exists():
        return HomeState.UNMARKED
    if _has_store(home) and home.tls_path.exists():
        sentence = f"{home.key_path} is missing, and without it the node here would get another name"
        raise _refused(home, sentence)
    if not _has_store(home):
        return HomeState.FRESH
    if look_at_file(home.store_path) is not None:
        # A home has its mark before its store gets a name, so this store was brought here without the rest.
        sentence = f"the store {home.store_path} is of a node whose key is not here; copy {home.key_path.name} too"
        raise _refused(home, sentence)
    return HomeState.UNMARKED


def _key_loss(home: Home, public_key: bytes) -> str:
    name = encode_id52(public_key)
    if not home.key_path.exists():
        return f"{home.key_path} is missing; the node of this home is {name}"
    if home.key_pair().public != public_key:
        return f"{home.key_path} is the key of another node; the node of this home is {name}"
    return ""


def _store_loss(home: Home, remembered: StoreMark) -> str:
    path = home.store_path
    if not path.exists():
        return f"the store {path} is missing"
    if not path.stat().st_size:
        return f"the store {path} is empty"
    found = look_at_file(path)
    if found is None:
        return f"the store {path} is a copy from before layout {remembered.layout}"
    if found.store_id != remembered.store_id:
        return f"{path} is the store of another home, or from before a restore"
    if found.generation >= remembered.generation:
        return _log_of_another(home, remembered)
    if remembered.in_use and not _log_path(home).exists():
        return f"{_log_path(home)} is missing: it held what the node wrote last"
    return (
        f"the store {path} is older than this home remembers"
        f" (generation {found.generation}, it had reached {remembered.generation})"
    )


def _log_of_another(home: Home, remembered: StoreMark) -> str:
    """Return a sentence where the log is younger than the file beside it: together they would be neither's content."""
    alone = look_at_file_alone(home.store_path) if _log_path(home).exists() else None
    if alone is not None and alone.store_id != remembered.store_id:
        return (
            f"the store {home.store_path} was written over with that of another home; its log {_log_path(home)} is left"
        )
    if alone is None or alone.generation >= remembered.in_file:
        return ""
    return (
        f"the store {home.store_path} is older than its log {_log_path(home)}"
        f" (generation {alone.generation}, it had reached {remembered.in_file})"
    )


def _has_store(home: Home) -> bool:
    return home.store_path.exists() and home.store_path.stat().st_size > 0


def _is_another(home: Home) -> bool:
    """Return whether the store may lack what was acknowledged here."""
    try:
        mark = read_mark(home)
    except HostError:
        return True
    return mark is None or mark.store is None or bool(_store_loss(home, mark.store))


def _log_path(home: Home) -> Path:
    return log_path(home.store_path)


def _refused(home: Home, sentence: str) -> HostError:
    way_out = (
        "put back what is missing, or run: waystation restore BACKUP --home NEW_HOME;"
        f" to go on with what is there: waystation check --accept {home.path}"
    )
    return HostError(f"{sentence}; {way_out}", exit_code=STORE_EXIT_CODE)


def _cut_short(home: Home) -> HostError:
    return HostError(
        f"a restore into {home.path} was cut short; empty the folder and run `waystation restore` again",
        exit_code=STORE_EXIT_CODE,
    )


def _parse(document: Any, home: Home) -> HomeMark:
    if not isinstance(document, dict):
        raise TypeError("a mark is an object")
    if document.get("unfinished") == _UNFINISHED:
        raise _cut_short(home)
    if document["format"] > _FORMAT:
        raise HostError(
            f"the home {home.path} was written by a newer waystation ({document.get('version')})",
            exit_code=STORE_EXIT_CODE,
        )
    key, store = document["public_key"], document["store"]
    return HomeMark(decode_key_hex(key) if key is not None else None, _parse_store(store), str(document["made_at"]))


def _parse_store(store: Any) -> StoreMark | None:
    if store is None:
        return None
    store_id = bytes.fromhex(store["store_id"])
    if len(store_id) != STORE_ID_BYTES:
        raise ValueError("a store's id has another length")
    return StoreMark(
        store_id, int(store["generation"]), int(store["layout"]), bool(store["in_use"]), int(store.get("in_file", 0))
    )


def _write(home: Home, document: dict[str, Any]) -> None:
    with host_errors(f"cannot write {mark_path(home)}"):
        write_whole(mark_path(home), (json.dumps(document, indent=1) + "\n").encode())


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
