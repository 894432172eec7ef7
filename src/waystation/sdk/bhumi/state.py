"""The folder of a Bhumi participant: its key file, and the SQLite database that survives a restart.

``node.key`` is the identity (32-byte seed in hexadecimal, mode 0600). ``bhumi.db`` uses WAL mode with full
synchronisation: the changes of a method are on disk when it returns. Several programs may use a folder at the same
time; ``changes`` shows a listener that another program has written. The database contains preimages (secrets that
permit requests), so it has mode 0600 and a new folder 0700. A key file that other users can read is rejected.
"""

import contextlib
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from waystation.core.errors import HostError, LocalError
from waystation.core.ids import PublicKey, decode_id52, encode_id52
from waystation.protocols.bhumi.messages import RecentResponse
from waystation.protocols.bhumi.payload.envelope import hint_of
from waystation.protocols.bhumi.payload.suites import suite_hint_of
from waystation.sdk.bhumi.dialect import Dialect
from waystation.sdk.bhumi.migration import migrate
from waystation.sdk.bhumi.pairing.admission import RESPONSE_TTL_S, Admission, role_of, role_text
from waystation.sdk.bhumi.pairing.relay_authorities import AUTHORITIES_SCHEMA
from waystation.sdk.errors import UnknownPeerError
from waystation.sdk.identity import read_or_make_key
from waystation.sdk.private_database import EXIT_STORE, private_folder

__all__ = [
    "ISSUED_PER_PEER_MAX",
    "RESPONSE_TTL_S",
    "SPENT_PER_PEER_MAX",
    "BhumiState",
    "HandshakeFacts",
    "PeerRecord",
    "Pending",
    "PendingKind",
]

ISSUED_PER_PEER_MAX: Final = 16  # ours: what a peer lost must not pile up for ever; it spends the oldest first
SPENT_PER_PEER_MAX: Final = 4_096  # ours: far more requests than a relay keeps answers of for 300 s
_PEER_QUERY: Final = """
SELECT id, alias, url, gives_spares,
    (SELECT count(*) FROM theirs WHERE theirs.peer = peers.id AND NOT theirs.refused),
    (SELECT count(*) FROM issued WHERE issued.peer = peers.id),
    dialect, root, allow, blocked
FROM peers"""
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS peers (
    id BLOB PRIMARY KEY, alias TEXT NOT NULL, url TEXT NOT NULL, gives_spares INTEGER NOT NULL, created REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS issued (
    position INTEGER PRIMARY KEY, preimage BLOB NOT NULL UNIQUE, hint BLOB NOT NULL, peer BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS issued_by_hint ON issued (hint);
CREATE INDEX IF NOT EXISTS issued_by_peer ON issued (peer);
CREATE TABLE IF NOT EXISTS theirs (
    position INTEGER PRIMARY KEY, preimage BLOB NOT NULL UNIQUE, peer BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS theirs_by_peer ON theirs (peer);
CREATE TABLE IF NOT EXISTS spent (
    position INTEGER PRIMARY KEY, preimage BLOB NOT NULL UNIQUE, peer BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS spent_by_peer ON spent (peer);
CREATE TABLE IF NOT EXISTS accepted (preimage BLOB PRIMARY KEY, peer BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pending (
    preimage BLOB PRIMARY KEY, peer BLOB NOT NULL, kind TEXT NOT NULL, payload BLOB NOT NULL, alias TEXT NOT NULL,
    created REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS heads (
    position INTEGER PRIMARY KEY, preimage BLOB NOT NULL, peer BLOB NOT NULL, head BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS heads_by_preimage ON heads (preimage);
CREATE TABLE IF NOT EXISTS outcomes (
    position INTEGER PRIMARY KEY, peer BLOB NOT NULL, kind TEXT NOT NULL, outcome TEXT NOT NULL,
    status INTEGER NOT NULL, content BLOB NOT NULL, note TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS places (peer BLOB PRIMARY KEY, url TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS last_response (
    peer BLOB PRIMARY KEY, preimage BLOB NOT NULL, hint BLOB NOT NULL, response BLOB NOT NULL, created REAL NOT NULL
) WITHOUT ROWID;
"""


class PendingKind(Enum):
    """What kind of request waits for its outcome."""

    HANDSHAKE = "handshake"
    MESSAGE = "message"
    SPARES = "spares"
    """It asks for further permissions."""


@dataclass(frozen=True, slots=True)
class PeerRecord:
    """A peer that this participant can send requests to."""

    identity: PublicKey
    alias: str
    """Name given here; may be empty."""
    url: str
    """Relay where the peer said it can be reached; may be empty."""
    gives_spares: bool
    """False once the peer has said that it does not know spare preimages."""
    rights: int
    """How many requests can be sent to the peer now."""
    issued: int
    """How many requests the peer can send to us."""
    dialect: Dialect
    """What its handshake was in."""
    root: bytes = field(default=b"", repr=False)
    """32 bytes that seal what passes between the two; empty for a legacy pairing."""
    allow: frozenset[str] | None = None
    """What it may send us: commands, ``text`` and ``binary``; None for everything."""
    is_blocked: bool = False
    """Whether we take no request of it."""

    @property
    def is_legacy(self) -> bool:
        """Whether it was paired without a secret, so that a relay may have stood between."""
        return self.dialect.is_legacy

    @property
    def name(self) -> str:
        """The alias, or the first characters of the id52."""
        return self.alias or encode_id52(self.identity)[:8]


@dataclass(frozen=True, slots=True)
class Pending:
    """A request that left, or was about to leave, and has no outcome yet."""

    preimage: bytes = field(repr=False)
    peer: PublicKey
    kind: PendingKind
    payload: bytes = field(repr=False)
    """Exactly what goes into SEND, on every try."""
    alias: str
    """For a handshake: how the inviter shall be called."""
    created: float
    """Unix seconds."""
    root: bytes = field(default=b"", repr=False)
    """32 bytes, of the two, that the answer is sealed with; empty for a legacy pairing."""
    owner: str = ""
    """The sender that works on it, see ``owner.owned``; empty for none."""


@dataclass(frozen=True, slots=True)
class HandshakeFacts:
    """What a peer said of itself when we met."""

    alias: str
    """How we call it; may be empty."""
    url: str
    """Relay where it can be reached; may be empty."""
    right: bytes | None = field(default=None, repr=False)
    """32-byte preimage by which we may reach it, when it comes with the facts."""
    dialect: Dialect = Dialect.E2E
    """What the handshake was in, and later requests shall be."""
    root: bytes = field(default=b"", repr=False)
    """32 bytes, of the two; empty for a legacy pairing."""
    allow: frozenset[str] | None = None
    """What our invite permits; None for everything. Does not count where we were invited."""


class BhumiState(Admission):
    """The folder of one participant; close it when done."""

    def __init__(self, home: Path, *, clock: Callable[[], float] = time.time, rng: random.Random | None = None) -> None:
        """Open the folder, making it and the identity if absent.

        Args:
            home: The folder.
            clock: Unix seconds.
            rng: Source of secrets; the system's by default, and anything else is for tests.

        Raises:
            HostError: The folder, the key file or the database cannot be used, or others may read the key.
        """
        self.home = home
        with private_folder(home):
            self.key_pair = read_or_make_key(home / "node.key", rng)
            self.identity = self.key_pair.public
            super().__init__(home / "bhumi.db", _SCHEMA + AUTHORITIES_SCHEMA, clock=clock, rng=rng)
        migrate(self)

    def changes(self) -> tuple[int, int]:
        """Return a value that differs after anybody, in this process or another, has written."""
        (version,) = self.first("PRAGMA data_version")
        return int(version), self._database.total_changes

    # What we give out.

    def withdraw(self, preimage: bytes) -> None:
        """Forget a preimage that was given out: it never reached its peer, or was wasted on nonsense."""
        with self.transaction():
            self.run("DELETE FROM issued WHERE preimage = ?", preimage)
            self.run("DELETE FROM invites WHERE preimage = ?", preimage)

    def find_by_hint(self, hint: bytes) -> bytes | None:
        """Return the preimage, given out or answered lately, whose 8-byte hint, of either envelope, this is."""
        for table in ("issued", "invites", "last_response"):
            row = self.first(
                f"SELECT preimage FROM {table} WHERE hint = ?1 OR suite_hint = ?1",  # noqa: S608 - names from above
                hint,
            )
            if row is not None:
                return bytes(row[0])
        return None

    # What we answered.

    def answered(
        self, preimage: bytes, peer: bytes, response: bytes, issued: Sequence[bytes], joined: HandshakeFacts | None
    ) -> None:
        """Record an answer before it leaves: the preimage is spent, the next ones are issued, retries get these bytes.

        Args:
            preimage: Of the request.
            peer: Who asked.
            response: Opaque payload of the ACK.
            issued: Preimages that the answer hands to the peer.
            joined: What the peer said of itself, when the request was its handshake.
        """
        with self.transaction():
            # A sender spends the oldest first, so those before this one have most likely not reached it.
            self.run(
                "UPDATE issued SET passed = 1 WHERE peer = ? AND position <"
                " (SELECT position FROM issued WHERE preimage = ?)",
                peer, preimage,
            )  # fmt: skip
            self.run("DELETE FROM issued WHERE preimage = ?", preimage)
            self.run("DELETE FROM invites WHERE preimage = ?", preimage)
            self.run(
                "INSERT OR REPLACE INTO last_response VALUES (?, ?, ?, ?, ?, ?)",
                peer, preimage, hint_of(preimage), response, self._clock(), suite_hint_of(preimage),
            )  # fmt: skip
            if joined is not None:
                self._meet(peer, joined)
                role = None if joined.allow is None else role_text(joined.allow)
                self.run("UPDATE peers SET allow = ? WHERE id = ?", role, peer)
            self._issue(peer, issued)

    def response_to(self, preimage: bytes) -> bytes | None:
        """Return the answer given to ``preimage``, if it was the last one to its peer."""
        row = self.first("SELECT response FROM last_response WHERE preimage = ?", preimage)
        return None if row is None else bytes(row[0])

    def recent_responses(self) -> list[RecentResponse]:
        """Return the answers a relay may still be asked for, newest first, one a peer. Spec: 6.6."""
        rows = self.all(
            "SELECT preimage, response FROM last_response WHERE created > ? ORDER BY created DESC",
            self._clock() - RESPONSE_TTL_S,
        )
        return [RecentResponse(preimage=row[0], response=row[1]) for row in rows]

    # What we were given.

    def begin_handshake(
        self, preimage: bytes, peer: bytes, payload: bytes, alias: str, back: bytes, root: bytes = b""
    ) -> Pending:
        """Record a handshake before it leaves, and issue ``back``, by which the inviter may reach us."""
        with self.transaction():
            self._issue(peer, (back,))
            return self._begin(preimage, peer, PendingKind.HANDSHAKE, payload, alias, root)

    def next_right(self, peer: bytes) -> bytes | None:
        """Return the preimage for ``peer`` to be used next: the oldest that no relay has refused; None without any."""
        row = self.first("SELECT preimage FROM theirs WHERE peer = ? ORDER BY refused, position LIMIT 1", peer)
        return None if row is None else bytes(row[0])

    def begin_message(self, preimage: bytes, peer: bytes, payload: bytes, root: bytes = b"") -> Pending:
        """Record a request before it leaves; its preimage can be used for nothing else from now on."""
        with self.transaction():
            self.run("DELETE FROM theirs WHERE preimage = ?", preimage)
            self._spend(preimage, peer)
            return self._begin(preimage, peer, PendingKind.MESSAGE, payload, "", root)

    def give_back(self, preimage: bytes, peer: bytes) -> None:
        """Note that a request was certainly not delivered: its preimage is the next to be used again."""
        with self.transaction():
            self.run("DELETE FROM pending WHERE preimage = ?", preimage)
            self.run("DELETE FROM spent WHERE preimage = ?", preimage)
            (first,) = self.first("SELECT coalesce(min(position), 0) FROM theirs")
            self.run(
                "INSERT OR IGNORE INTO theirs (position, preimage, peer) VALUES (?, ?, ?)", first - 1, preimage, peer
            )

    def finish(
        self, preimage: bytes, peer: bytes, gained: Iterable[bytes], joined: HandshakeFacts | None = None
    ) -> None:
        """Note the outcome of a request: its preimage is spent, ``gained`` ones are ours.

        Args:
            preimage: Of the request.
            peer: Whom it went to.
            gained: Preimages that came with the answer; none when it failed for good.
            joined: What the peer said of itself, when the request was a handshake that it accepted.
        """
        with self.transaction():
            self.run("DELETE FROM pending WHERE preimage = ?", preimage)
            if joined is not None:
                self.run("INSERT OR IGNORE INTO accepted VALUES (?, ?)", preimage, peer)
                self._meet(peer, joined)
            self._gain(peer, gained)

    def gain(self, peer: bytes, preimages: Sequence[bytes]) -> None:
        """Keep preimages by which ``peer`` lets us send to it; those that were ours before are left out."""
        with self.transaction():
            self._gain(peer, preimages)

    def inviter_of(self, preimage: bytes) -> PeerRecord | None:
        """Return the peer whose invite this was, once the handshake with it is complete; None before."""
        row = self.first("SELECT peer FROM accepted WHERE preimage = ?", preimage)
        return None if row is None else self.peer(row[0])

    def pending(self) -> list[Pending]:
        """Return the requests without an outcome, oldest first."""
        rows = self.all(
            "SELECT preimage, peer, kind, payload, alias, created, root, owner FROM pending ORDER BY created"
        )
        return [
            Pending(row[0], PublicKey(row[1]), PendingKind(row[2]), row[3], row[4], row[5], row[6] or b"", row[7])
            for row in rows
        ]

    def cancel(self, preimage: bytes) -> bool:
        """Ask no more for the outcome of a request, and return whether it had none; its preimage stays spent.

        What has arrived is not taken back.
        """
        with self.transaction():
            return bool(self.run("DELETE FROM pending WHERE preimage = ?", preimage))

    # Whom we know.

    def peers(self) -> list[PeerRecord]:
        """Return every peer, by alias."""
        rows = self.all(f"{_PEER_QUERY} ORDER BY alias, id")
        return [_peer_of(row) for row in rows]

    def peer(self, identity: bytes) -> PeerRecord | None:
        """Return the peer with this 32-byte key, or None."""
        row = self.first(f"{_PEER_QUERY} WHERE id = ?", identity)
        return None if row is None else _peer_of(row)

    def find_peer(self, name: str | bytes) -> PeerRecord:
        """Return the peer that an alias, an id52 or 32 bytes name.

        Raises:
            LocalError: It is neither a text nor 32 bytes.
            UnknownPeerError: No peer, or more than one.
        """
        if not isinstance(name, str):
            key = PublicKey.parse(name)
            known = self.peer(key)
            if known is None:
                raise UnknownPeerError(f"no peer has the key {key.id52} in {self.home}; accept an invite first")
            return known
        named = [peer for peer in self.peers() if peer.alias == name]
        if len(named) > 1:
            raise UnknownPeerError(f"{len(named)} peers are called {name!r}; use the id52 instead")
        if named:
            return named[0]
        with contextlib.suppress(LocalError):
            known = self.peer(decode_id52(name))
            if known is not None:
                return known
        raise UnknownPeerError(f"no peer is called {name!r} in {self.home}; accept an invite first")

    def place_of(self, peer: bytes) -> str:
        """Return the relay at which a peer answered last, or we listened last; empty for the usual one."""
        row = self.first("SELECT url FROM places WHERE peer = ?", peer)
        return "" if row is None else str(row[0])

    def remember_place(self, peer: bytes, url: str) -> None:
        """Keep at which relay a peer answered, or we listen; a peer is tried there first from now on."""
        with self.transaction():
            self.run("INSERT OR REPLACE INTO places VALUES (?, ?)", peer, url)

    def note_url(self, peer: bytes, url: str) -> None:
        """Note where a peer says that it can be reached now."""
        with self.transaction():
            self.run("UPDATE peers SET url = ? WHERE id = ? AND url != ?", url, peer, url)

    def stop_spares(self, peer: bytes) -> None:
        """Remember that a peer does not know spare preimages."""
        with self.transaction():
            self.run("UPDATE peers SET gives_spares = 0 WHERE id = ?", peer)

    def _begin(
        self, preimage: bytes, peer: bytes, kind: PendingKind, payload: bytes, alias: str, root: bytes
    ) -> Pending:
        created = self._clock()
        self.run(
            "INSERT INTO pending (preimage, peer, kind, payload, alias, created, root) VALUES (?, ?, ?, ?, ?, ?, ?)",
            preimage, peer, kind.value, payload, alias, created, root or None,
        )  # fmt: skip
        return Pending(preimage, PublicKey(peer), kind, payload, alias, created, root)

    def _meet(self, peer: bytes, facts: HandshakeFacts) -> None:
        # BHUMI-PAIR: a legacy handshake proves no sender, so it weakens no pairing that has a root.
        self.run(
            "INSERT INTO peers (id, alias, url, gives_spares, created, dialect, root) VALUES (?, ?, ?, 1, ?, ?, ?)"
            " ON CONFLICT (id) DO UPDATE SET url = excluded.url,"
            " dialect = CASE WHEN excluded.root IS NULL AND root IS NOT NULL THEN dialect ELSE excluded.dialect END,"
            " root_before = CASE WHEN excluded.root IS NULL THEN root_before ELSE root END,"
            " root = coalesce(excluded.root, root),"
            " alias = CASE excluded.alias WHEN '' THEN alias ELSE excluded.alias END",
            peer, facts.alias, facts.url, self._clock(), facts.dialect.value, facts.root or None,
        )  # fmt: skip
        if facts.right is not None:
            self._gain(peer, (facts.right,))

    def _gain(self, peer: bytes, preimages: Iterable[bytes]) -> None:
        # A relay or a device may repeat an old answer; what it gave out then must not become a right again.
        for each in preimages:
            self.run(
                "INSERT OR IGNORE INTO theirs (preimage, peer) SELECT ?1, ?2 WHERE NOT EXISTS"
                " (SELECT 1 FROM spent WHERE preimage = ?1) AND NOT EXISTS"
                " (SELECT 1 FROM accepted WHERE preimage = ?1)",
                each, peer,
            )  # fmt: skip

    def _spend(self, preimage: bytes, peer: bytes) -> None:
        self.run("INSERT OR IGNORE INTO spent (preimage, peer) VALUES (?, ?)", preimage, peer)
        self.run(
            "DELETE FROM spent WHERE position <="
            " (SELECT position FROM spent WHERE peer = ? ORDER BY position DESC LIMIT 1 OFFSET ?) AND peer = ?",
            peer, SPENT_PER_PEER_MAX, peer,
        )  # fmt: skip

    def _issue(self, peer: bytes, preimages: Sequence[bytes]) -> None:
        for preimage in preimages:
            self.run(
                "INSERT INTO issued (preimage, hint, peer, suite_hint) VALUES (?, ?, ?, ?)",
                preimage, hint_of(preimage), peer, suite_hint_of(preimage),
            )  # fmt: skip
        self.run(
            "DELETE FROM issued WHERE peer = ? AND position NOT IN"
            " (SELECT position FROM issued WHERE peer = ? ORDER BY passed, position DESC LIMIT ?)",
            peer, peer, ISSUED_PER_PEER_MAX,
        )  # fmt: skip


def _peer_of(row: Any) -> PeerRecord:
    try:
        dialect = Dialect(row[6])
    except ValueError as error:
        raise HostError(
            f"a peer was met in {row[6]!r}, which this version does not know", exit_code=EXIT_STORE
        ) from error
    allow = None if row[8] is None else role_of(row[8])
    return PeerRecord(
        PublicKey(row[0]), row[1], row[2], bool(row[3]), row[4], row[5], dialect, row[7] or b"", allow, bool(row[9])
    )
