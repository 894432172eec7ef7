"""The folder of an LPRP participant: its key file, and the SQLite database that survives a restart.

``LprpTenant``, ``LprpSender`` and ``waystation lprp`` open it. ``lprp.key`` is the identity (32-byte seed in
hexadecimal, mode 0600). ``lprp.db`` uses WAL mode with full synchronisation: the changes of a method are on disk when
it returns. Several programs may use a folder at the same time; ``changes`` shows a listener that another program has
written.

This module stores what concerns hosts: the clock, leases, whitelists, work. ``mail`` stores received messages.
"""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from waystation.core.errors import HostError, LocalError
from waystation.core.ids import PublicKey
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS, Kind
from waystation.protocols.lprp.whitelist import WHITELIST_KEYS_MAX, ZERO_KEY
from waystation.sdk.identity import owner_key
from waystation.sdk.private_database import EXIT_STORE, PrivateDatabase, private_folder

__all__ = ["KEY_FILE", "Lease", "LprpState", "WhitelistWish"]

KEY_FILE: Final = "lprp.key"
CLOCK_RESERVE_MS: Final = 250
"""How far ahead of what was used the clock on disk is: one write a quarter of a second, not one a packet."""
_DATABASE_FILE: Final = "lprp.db"
_FOREIGN: Final = "lprp.db beside it is that of one key: put that key back, or move lprp.db away"
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leases (
    host BLOB PRIMARY KEY, asked_ms INTEGER NOT NULL, until_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS bits (
    host BLOB NOT NULL, kind TEXT NOT NULL, bits INTEGER NOT NULL, PRIMARY KEY (host, kind)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS whitelists (
    host BLOB PRIMARY KEY, wanted BLOB NOT NULL, agreed BLOB, failure TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seen (signature BLOB PRIMARY KEY, until_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS seen_by_end ON seen (until_ms);
CREATE TABLE IF NOT EXISTS finished (
    sender BLOB NOT NULL, message_id BLOB NOT NULL, until_ms INTEGER NOT NULL, PRIMARY KEY (sender, message_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS finished_by_end ON finished (until_ms);
CREATE TABLE IF NOT EXISTS incomplete (
    position INTEGER PRIMARY KEY AUTOINCREMENT, sender BLOB NOT NULL, message_id BLOB NOT NULL,
    parts_count INTEGER NOT NULL, parts_here INTEGER NOT NULL, body_bytes INTEGER NOT NULL, touched_ms INTEGER NOT NULL,
    UNIQUE (sender, message_id, parts_count)
);
CREATE INDEX IF NOT EXISTS incomplete_by_age ON incomplete (touched_ms, position);
CREATE TABLE IF NOT EXISTS parts_here (
    message INTEGER NOT NULL, part_index INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (message, part_index)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS inbox (
    position INTEGER PRIMARY KEY AUTOINCREMENT, sender BLOB NOT NULL, message_id BLOB NOT NULL,
    sent_ms INTEGER NOT NULL, received_ms INTEGER NOT NULL, sealed INTEGER NOT NULL, body BLOB NOT NULL
);
"""


class Lease(NamedTuple):
    """A lease that a host has granted."""

    asked_ms: int
    """Time of the packet that asked, Unix milliseconds."""
    until_ms: int
    """When it ends by our clock, Unix milliseconds."""


class WhitelistWish(NamedTuple):
    """What one host shall know, and what it has agreed to."""

    wanted: frozenset[bytes]
    agreed: frozenset[bytes] | None
    """The set of the host as far as we know; None before the first question."""
    failure: str
    """Why the last attempt to agree failed, "" when it did not."""


class LprpState(PrivateDatabase):
    """The folder of one participant; close it when done."""

    def __init__(self, home: Path, *, clock: Callable[[], float] = time.time) -> None:
        """Open the folder, making it and the identity if absent.

        Args:
            home: The folder.
            clock: Unix seconds.

        Raises:
            HostError: The folder, the key file or the database cannot be used, others may read the key, or the database
                is that of another key.
        """
        self.home = home
        self._clock = clock
        with private_folder(home):
            self.key_pair = owner_key(home / KEY_FILE, home / _DATABASE_FILE, _FOREIGN)
            super().__init__(home / _DATABASE_FILE, _SCHEMA)
        self._claim()

    def _claim(self) -> None:
        """Claim the database unless it belongs to another key: leases and mail in it belong to one key."""
        owner = self._fact("identity")
        if owner is None:
            with self.transaction(opens=True):
                self._set_fact("identity", self.identity)
        elif owner != self.identity:
            self.close()
            raise HostError(f"{self.home / KEY_FILE} holds another key; {_FOREIGN}", exit_code=EXIT_STORE)

    @property
    def identity(self) -> PublicKey:
        """The 32-byte public key of this participant."""
        return self.key_pair.public

    def now_ms(self) -> int:
        """Return the time of day, Unix milliseconds."""
        return int(self._clock() * 1_000)

    def changes(self) -> int:
        """Return a value that differs after another program, or another state of this folder, has written."""
        return int(self.first("PRAGMA data_version")[0])

    def _fact(self, name: str) -> Any:
        row = self.first("SELECT value FROM facts WHERE name = ?", name)
        return None if row is None else row[0]

    def _set_fact(self, name: str, value: bytes | int | str) -> None:
        self.run("INSERT OR REPLACE INTO facts VALUES (?, ?)", name, value)

    def try_write(self) -> None:
        """Write something, and before it what waits; raises HostError when the disk refuses."""
        with self.transaction():
            self._set_fact("written", self.now_ms())

    # The clock (LPRP-D13)

    def clock_ms(self) -> int:
        """Return a time that none of our packets has had, nor any later one; 0 before the first packet.

        A time far ahead was written under a wrong clock. No host with a right one can have taken it: it is forgotten.
        """
        used_ms = int(self._fact("clock") or 0)
        return used_ms if used_ms <= self.now_ms() + CLOCK_WINDOW_MS else 0

    def reserve_clock(self, time_ms: int) -> tuple[int, int]:
        """Take times for packets, from ``time_ms`` on or later, that no other program has; return first and last.

        They are on the disk as used before any of them is.
        """
        with self.transaction():
            first_ms = max(time_ms, self.clock_ms() + 1)
            last_ms = first_ms + CLOCK_RESERVE_MS
            self._set_fact("clock", last_ms)
        return first_ms, last_ms

    # Hosts

    def nudges(self) -> int:
        """Return how often ``nudge`` was called."""
        return int(self._fact("nudges") or 0)

    def nudge(self) -> None:
        """Let a listener in another program know that its host may now take another address for ours (LPRP-D13)."""
        with self.transaction():
            self._set_fact("nudges", self.nudges() + 1)

    def last_host(self) -> str | None:
        """Return the address of the host that was used last, or None."""
        host: str | None = self._fact("host")
        return host

    def remember_host(self, url: str) -> None:
        """Keep the address of the host that is used when none is named."""
        if url != self.last_host():
            with self.transaction():
                self._set_fact("host", url)

    def lease(self, host: bytes) -> Lease | None:
        """Return the lease at a host, which may be over; None when there never was one."""
        row = self.first("SELECT asked_ms, until_ms FROM leases WHERE host = ?", host)
        return None if row is None else Lease(*row)

    def leases(self) -> dict[bytes, Lease]:
        """Return every lease that was ever granted, by host."""
        return {row[0]: Lease(*row[1:]) for row in self.all("SELECT host, asked_ms, until_ms FROM leases")}

    def set_lease(self, host: bytes, lease: Lease | None) -> None:
        """Keep the lease at a host, or forget it."""
        with self.transaction():
            if lease is None:
                self.run("DELETE FROM leases WHERE host = ?", host)
            else:
                self.run("INSERT OR REPLACE INTO leases VALUES (?, ?, ?)", host, *lease)

    def bits(self, host: bytes) -> dict[Kind, int]:
        """Return how much work a host has demanded last, by kind (LPRP-D7B)."""
        return {Kind(row[0]): row[1] for row in self.all("SELECT kind, bits FROM bits WHERE host = ?", host)}

    def set_bits(self, host: bytes, kind: Kind, bits: int) -> None:
        """Remember how much work a host has been content with."""
        with self.transaction():
            self.run("INSERT OR REPLACE INTO bits VALUES (?, ?, ?)", host, kind.value, bits)

    # Whitelists

    def whitelist(self, host: bytes) -> WhitelistWish:
        """Return the keys that a host shall let through; none when none was ever set."""
        row = self.first("SELECT wanted, agreed, failure FROM whitelists WHERE host = ?", host)
        if row is None:
            return WhitelistWish(frozenset(), None, "")
        return WhitelistWish(_keys(row[0]), None if row[1] is None else _keys(row[1]), row[2])

    def change_whitelist(
        self, host: bytes, add: Iterable[bytes] = (), remove: Iterable[bytes] = (), *, clear: bool = False
    ) -> WhitelistWish:
        """Change whom a host shall let through, and return it; a listener brings it to the host.

        Args:
            host: 32 bytes.
            add: Keys of 32 bytes; those that are in stay.
            remove: Keys of 32 bytes; those that are not in do not matter.
            clear: Begin with an empty list.

        Raises:
            LocalError: More than hosts keep, or the key of zeros, which is nobody's.
        """
        with self.transaction():
            wish = self.whitelist(host)
            kept = frozenset() if clear else wish.wanted
            wanted = (kept | frozenset(add)) - frozenset(remove)
            if ZERO_KEY in wanted:
                raise LocalError("the key of zeros is nobody's")
            if len(wanted) > WHITELIST_KEYS_MAX:
                raise LocalError(f"a whitelist holds {WHITELIST_KEYS_MAX} keys at most, this would be {len(wanted)}")
            self._put_whitelist(host, wish._replace(wanted=wanted, failure=""))
        return self.whitelist(host)

    def agree_whitelist(self, host: bytes, agreed: frozenset[bytes]) -> None:
        """Note what a host has agreed to."""
        with self.transaction():
            self._put_whitelist(host, self.whitelist(host)._replace(agreed=agreed, failure=""))

    def fail_whitelist(self, host: bytes, failure: str) -> None:
        """Note why a host does not agree."""
        with self.transaction():
            self._put_whitelist(host, self.whitelist(host)._replace(failure=failure))

    def _put_whitelist(self, host: bytes, wish: WhitelistWish) -> None:
        agreed = None if wish.agreed is None else b"".join(sorted(wish.agreed))
        wanted = b"".join(sorted(wish.wanted))
        self.run("INSERT OR REPLACE INTO whitelists VALUES (?, ?, ?, ?)", host, wanted, agreed, wish.failure)


def _keys(joined: bytes) -> frozenset[bytes]:
    return frozenset(joined[at : at + 32] for at in range(0, len(joined), 32))
