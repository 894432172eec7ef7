"""Who may reach a Bhumi participant, and with what: its invites, the roles of its peers, and those it has blocked.

The tables are in the participant's ``bhumi.db``; ``state`` has the others. A role is the set of commands a peer may
send, with ``text`` and ``binary`` for requests that are no commands. No role means that everything is permitted.
"""

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey, encode_id52
from waystation.crypto.hashing import sha256
from waystation.protocols.bhumi import wire
from waystation.protocols.bhumi.messages import PREIMAGE_BYTES
from waystation.protocols.bhumi.payload.envelope import hint_of
from waystation.protocols.bhumi.payload.invite import Invite
from waystation.protocols.bhumi.payload.pairing import PAIRING_SECRET_BYTES, PairedSuite
from waystation.protocols.bhumi.payload.suites import suite_hint_of
from waystation.sdk.errors import UnknownPeerError
from waystation.sdk.private_database import PrivateDatabase

__all__ = [
    "ALLOW_CHARS_MAX",
    "INVITES_MAX",
    "INVITE_DAYS",
    "RESPONSE_TTL_S",
    "Admission",
    "Grant",
    "OpenInvite",
    "role_of",
    "role_text",
]

INVITES_MAX: Final = 1_024  # a quarter of the commits a relay takes for one identity
INVITE_DAYS: Final = 7
"""How long an invite is good by default."""
ALLOW_CHARS_MAX: Final = 1_024  # ours: dozens of commands
RESPONSE_TTL_S: Final = 300.0  # as long as relays keep an answer, BHUMI-L
_NEVER: Final = 0
_RANKED: Final = """
SELECT preimage, row_number() OVER (PARTITION BY peer ORDER BY passed, position) AS rank,
    max(position) OVER (PARTITION BY peer) AS latest
FROM issued WHERE peer NOT IN (SELECT id FROM peers WHERE blocked) ORDER BY rank, latest DESC"""
_AUTHORITIES_MAX: Final = 64  # ours: one a relay, and few have more than a handful of relays
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS invites (
    preimage BLOB PRIMARY KEY, hint BLOB NOT NULL, alias TEXT NOT NULL, created REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS peer_relays (
    peer BLOB NOT NULL, position INTEGER NOT NULL, url TEXT NOT NULL, PRIMARY KEY (peer, position)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS own_place (
    one INTEGER PRIMARY KEY CHECK (one = 1), url TEXT NOT NULL, authority BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS authorities (
    fingerprint BLOB PRIMARY KEY, der BLOB NOT NULL, created REAL NOT NULL
) WITHOUT ROWID;
"""
_TABLES_OF_A_PEER: Final = (
    "issued",
    "theirs",
    "pending",
    "spent",
    "last_response",
    "places",
    "peer_relays",
    "heads",
    "outcomes",
)


@dataclass(frozen=True, slots=True)
class Grant:
    """What one of our preimages was given out for."""

    preimage: bytes = field(repr=False)
    peer: PublicKey | None
    """Who may use it; None for an invite."""
    alias: str = ""
    """How the invited one shall be called."""
    secret: bytes = field(default=b"", repr=False)
    """32 bytes, of an invite; empty for one of the first version, which is legacy."""
    allow: frozenset[str] | None = None
    """What the invited one may send; None for everything."""
    is_expired: bool = False


@dataclass(frozen=True, slots=True)
class OpenInvite:
    """An invite that nobody has used."""

    preimage: bytes = field(repr=False)
    alias: str
    created_s: float
    """Unix seconds."""
    expires_s: int
    """Unix seconds; 0 for never."""
    allow: frozenset[str] | None
    """What the invited one may send; None for everything."""
    is_legacy: bool
    """Whether a relay that carries its use can use it itself."""

    @property
    def name(self) -> str:
        """The first 8 hexadecimal digits of its commit, which the relay knows anyway."""
        return sha256(self.preimage).hex()[:8]


class Admission(PrivateDatabase):
    """The part of a participant's database that says who may reach it."""

    identity: PublicKey

    def __init__(
        self, path: Path, schema: str, *, clock: Callable[[], float] = time.time, rng: random.Random | None = None
    ) -> None:
        """Open the file; see ``PrivateDatabase``. ``clock`` and ``rng`` are those of ``BhumiState``."""
        self._clock = clock
        self._source = rng or random.SystemRandom()
        super().__init__(path, schema + _TABLES)

    # Invites

    def make_invite(
        self,
        alias: str = "",
        *,
        expires_s: int | None = None,
        allow: Iterable[str] | None = None,
        suite: PairedSuite | None = PairedSuite.CHACHA,
    ) -> Invite:
        """Make and keep a new invite; its secrets come from the generator of the folder, which is the system's.

        Args:
            alias: How the invited one shall be called.
            expires_s: Seconds from now, 1 to about 60 years; 0 for never, None for ``INVITE_DAYS``.
            allow: What the invited one may send: commands, ``text`` and ``binary``; None for everything.
            suite: What the pairing is sealed in. None makes a legacy invite without a secret.

        Returns:
            Without relays and authority, which the caller knows.

        Raises:
            LocalError: Too many invites wait, or an argument is out of its range.
        """
        now_s = self._clock()
        lifetime_s = INVITE_DAYS * 86_400 if expires_s is None else expires_s
        if lifetime_s < 0 or now_s + lifetime_s >= 2**32:
            raise LocalError(
                f"an invite is good for 1 s or more, up to the year 2106, not {lifetime_s} s; 0 is for ever"
            )
        ends_s = int(now_s) + lifetime_s if lifetime_s else _NEVER
        role = None if allow is None else role_text(allow)
        preimage = self._source.randbytes(PREIMAGE_BYTES)
        secret = b"" if suite is None else self._source.randbytes(PAIRING_SECRET_BYTES)
        with self.transaction():
            self.run("DELETE FROM invites WHERE expires != 0 AND expires <= ?", int(now_s))
            count, peers_count = self.reach()
            if count >= INVITES_MAX:
                raise LocalError(
                    f"{count} invites wait to be used already; that is the limit. `waystation bhumi invites` lists them"
                )
            if count + peers_count >= wire.COMMITS_MAX:
                raise LocalError(
                    f"{peers_count} peers and {count} invites can reach this identity; a relay takes "
                    f"{wire.COMMITS_MAX}, so a further one could not. `waystation bhumi unpair` makes room"
                )
            self.run(
                "INSERT INTO invites (preimage, hint, alias, created, suite_hint, secret, expires, allow)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                preimage, hint_of(preimage), alias, now_s, suite_hint_of(preimage), secret or None, ends_s, role,
            )  # fmt: skip
        return Invite(self.identity, preimage, secret, suite, ends_s)

    def add_invite(self, alias: str, _rng: object = None) -> bytes:
        """Make a legacy invite that never ends, and return its preimage; see ``make_invite``.

        Kept for one version; a caller's generator is no longer used.
        """
        return self.make_invite(alias, expires_s=0, suite=None).preimage

    def invites(self) -> list[OpenInvite]:
        """Return the invites that can still be used, newest first."""
        rows = self.all(
            "SELECT preimage, alias, created, expires, allow, secret FROM invites"
            " WHERE expires = 0 OR expires > ? ORDER BY created DESC",
            int(self._clock()),
        )
        return [
            OpenInvite(row[0], row[1], row[2], row[3], None if row[4] is None else role_of(row[4]), row[5] is None)
            for row in rows
        ]

    def cancel_invites(self, name: str) -> list[OpenInvite]:
        """Cancel the invites that an alias, or the beginning of an ``OpenInvite.name``, stands for; return them.

        Raises:
            LocalError: No invite has that name.
        """
        waiting = self.invites()
        meant = [each for each in waiting if name and name in {each.alias, each.name}]
        if not meant:
            raise LocalError(f"no invite is called {name!r}; `waystation bhumi invites` lists those that wait")
        with self.transaction():
            for each in meant:
                self.run("DELETE FROM invites WHERE preimage = ?", each.preimage)
        return meant

    def grant_of(self, preimage: bytes) -> Grant | None:
        """Return what a preimage was given out for, or None when it is unknown, spent, or of a blocked peer."""
        row = self.first("SELECT peer FROM issued WHERE preimage = ?", preimage)
        if row is not None:
            return None if self.is_blocked(row[0]) else Grant(preimage=preimage, peer=PublicKey(row[0]))
        row = self.first("SELECT alias, secret, allow, expires FROM invites WHERE preimage = ?", preimage)
        if row is None:
            return None
        allow = None if row[2] is None else role_of(row[2])
        return Grant(preimage, None, row[0], row[1] or b"", allow, 0 < row[3] <= self._clock())

    def preimages(self) -> list[bytes]:
        """Return every preimage that may still be used to reach us, the most important first.

        A relay takes ``COMMITS_MAX`` of them. Invites come first, then one for each peer: the one that it will use
        next, peers that asked lately first. Then the last answered one of each peer, once relays have forgotten the
        answer: whoever missed it gets it from us. Then all others.
        """
        now_s = self._clock()
        invites = self.all(
            "SELECT preimage FROM invites WHERE expires = 0 OR expires > ? ORDER BY created DESC", int(now_s)
        )
        issued = self.all(_RANKED)
        first = [row for row in issued if row[1] == 1]
        answered = self.all(
            "SELECT preimage FROM last_response WHERE created <= ?"
            " AND peer NOT IN (SELECT id FROM peers WHERE blocked) ORDER BY created DESC",
            now_s - RESPONSE_TTL_S,
        )
        return [bytes(row[0]) for row in (*invites, *first, *answered, *issued[len(first) :])]

    def issued_from(self, position: int) -> list[tuple[int, bytes]]:
        """Return the preimages issued from a position on, in the order of issuing, with theirs; 0 is before all."""
        rows = self.all("SELECT position, preimage FROM issued WHERE position >= ? ORDER BY position", position)
        return [(row[0], bytes(row[1])) for row in rows]

    def reach(self) -> tuple[int, int]:
        """Return how many invites and how many peers may reach us."""
        (invites,) = self.first("SELECT count(*) FROM invites WHERE expires = 0 OR expires > ?", int(self._clock()))
        (peers,) = self.first(
            "SELECT count(DISTINCT peer) FROM issued WHERE peer NOT IN (SELECT id FROM peers WHERE blocked)"
        )
        return invites, peers

    # Peers

    def allow(self, peer: bytes, names: Iterable[str] | None) -> None:
        """Say what a peer may send from now on: commands, ``text`` and ``binary``; None for everything.

        Raises:
            LocalError: A name cannot be kept.
        """
        role = None if names is None else role_text(names)
        with self.transaction():
            self.run("UPDATE peers SET allow = ? WHERE id = ?", role, peer)

    def allowed(self, peer: bytes) -> frozenset[str] | None:
        """Return what a peer may send; None for everything."""
        row = self.first("SELECT allow FROM peers WHERE id = ?", peer)
        return None if row is None or row[0] is None else role_of(row[0])

    def block(self, peer: bytes) -> None:
        """Take no request of a peer until ``unblock``; it keeps its permissions, and new invites do not help it."""
        self._set_blocked(peer, True)

    def unblock(self, peer: bytes) -> None:
        """Take the requests of a blocked peer again."""
        self._set_blocked(peer, False)

    def is_blocked(self, peer: bytes) -> bool:
        """Return whether a peer is blocked."""
        row = self.first("SELECT blocked FROM peers WHERE id = ?", peer)
        return row is not None and bool(row[0])

    def unpair(self, peer: bytes) -> None:
        """Forget a peer: it can reach us no more, nor we it, until one accepts an invite of the other.

        Raises:
            UnknownPeerError: Nobody of that key is known.
        """
        with self.transaction():
            if not self.run("DELETE FROM peers WHERE id = ?", peer):
                raise UnknownPeerError(f"no peer has the key {encode_id52(peer)}")
            for table in _TABLES_OF_A_PEER:
                self.run(f"DELETE FROM {table} WHERE peer = ?", peer)  # noqa: S608 - names from above

    def roots_of(self, peer: bytes) -> list[bytes]:
        """Return the roots that requests of a peer may be sealed with, the likeliest first; none without a pairing.

        A peer that was paired again may not know it yet, so the root before counts; and while our own handshake has no
        outcome, the peer may know it already.
        """
        row = self.first("SELECT root, root_before FROM peers WHERE id = ?", peer)
        waiting = self.all("SELECT root FROM pending WHERE peer = ? AND kind = 'handshake' ORDER BY created DESC", peer)
        found = [*(row or ()), *(each[0] for each in waiting)]
        return [bytes(root) for root in dict.fromkeys(found) if root]

    # Where peers are

    def remember_relays(self, peer: bytes, relays: Sequence[str]) -> None:
        """Keep the relays that a peer's invitation named, in place of those of an earlier one."""
        with self.transaction():
            self.run("DELETE FROM peer_relays WHERE peer = ?", peer)
            for position, relay in enumerate(relays):
                self.run("INSERT INTO peer_relays VALUES (?, ?, ?)", peer, position, relay)

    def relays_of(self, peer: bytes | None = None) -> list[str]:
        """Return the relays that a peer's invitation named, or those of all invitations that were accepted."""
        rows = self.all("SELECT url FROM peer_relays WHERE ?1 IS NULL OR peer = ?1 ORDER BY position, peer", peer)
        return list(dict.fromkeys(row[0] for row in rows))

    def remember_own_place(self, url: str, authority: bytes) -> None:
        """Keep at which relay we listen, and the SHA-256 of its authority, or b""; invitations name both."""
        if self.own_place() != (url, authority):
            with self.transaction():
                self.run("INSERT OR REPLACE INTO own_place VALUES (1, ?, ?)", url, authority)

    def own_place(self) -> tuple[str, bytes]:
        """Return where we listened last, and the SHA-256 of its authority; two empty values before the first time."""
        row = self.first("SELECT url, authority FROM own_place")
        return ("", b"") if row is None else (str(row[0]), bytes(row[1]))

    def keep_authority(self, der: bytes) -> None:
        """Trust an authority from now on when dialling; the one kept longest leaves above 64."""
        with self.transaction():
            self.run("INSERT OR IGNORE INTO authorities VALUES (?, ?, ?)", sha256(der), der, self._clock())
            self.run(
                "DELETE FROM authorities WHERE fingerprint NOT IN"
                " (SELECT fingerprint FROM authorities ORDER BY created DESC LIMIT ?)",
                _AUTHORITIES_MAX,
            )

    def authorities(self) -> list[bytes]:
        """Return the DER certificates of the authorities that invitations named."""
        return [bytes(row[0]) for row in self.all("SELECT der FROM authorities ORDER BY created")]

    def _set_blocked(self, peer: bytes, blocked: bool) -> None:
        with self.transaction():
            if not self.run("UPDATE peers SET blocked = ? WHERE id = ?", blocked, peer):
                raise UnknownPeerError(f"no peer has the key {encode_id52(peer)}")


def role_of(text: str) -> frozenset[str]:
    """Return the names in a role's text."""
    return frozenset(name for name in text.split(",") if name)


def role_text(names: Iterable[str]) -> str:
    """Return names as one text.

    Raises:
        LocalError: A name is empty, has a comma or a line break, or all are longer than ``ALLOW_CHARS_MAX``.
    """
    listed = sorted(set(names))
    if isinstance(names, str) or any(not name or "," in name or not name.isprintable() for name in listed):
        raise LocalError("name the commands a peer may send one by one, and text or binary; no name has a comma")
    text = ",".join(listed)
    if len(text) > ALLOW_CHARS_MAX:
        raise LocalError(f"the names of what a peer may send have {len(text)} characters, at most {ALLOW_CHARS_MAX}")
    return text
