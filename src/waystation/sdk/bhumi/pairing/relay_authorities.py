"""The authorities that relays have shown to a device or a sender, kept in its home: it needs no new file when one ends.

A relay shows which authority signs its certificate and which one will (BHUMI-AUTHORITY). It is
believed because the connection was verified with an authority that was trusted before, and for that relay's address
alone. At most two are kept for a relay: a third takes the place of the one that is not in use, and once the newer one
has verified a connection, the older one leaves.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from waystation.core.errors import HostError
from waystation.crypto.certificates import is_authority
from waystation.crypto.hashing import sha256
from waystation.sdk.bhumi.events import AuthorityLearned, Trouble
from waystation.sdk.private_database import PrivateDatabase
from waystation.transport.dial import RelayUrl
from waystation.transport.tls import TlsContext, pinned_context, verifies

__all__ = [
    "AUTHORITIES_PER_RELAY_MAX",
    "AUTHORITIES_SCHEMA",
    "RELAYS_MAX",
    "HomeTrust",
    "RelayAuthorities",
    "Trust",
    "given_of",
]

AUTHORITIES_PER_RELAY_MAX: Final = 2
RELAYS_MAX: Final = 64  # ours: few devices have more than a handful; the one that showed some longest ago leaves
AUTHORITIES_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS relay_authorities (
    position INTEGER PRIMARY KEY, url TEXT NOT NULL, der BLOB NOT NULL, in_use INTEGER NOT NULL, UNIQUE (url, der)
);
"""


class RelayAuthorities:
    """The table of them in a participant's database, whose schema contains ``AUTHORITIES_SCHEMA``."""

    def __init__(self, database: PrivateDatabase) -> None:
        self._database = database

    def of(self, url: str) -> list[bytes]:
        """Return the authorities of a relay in DER, the one shown last first."""
        rows = self._database.all("SELECT der FROM relay_authorities WHERE url = ? ORDER BY position DESC", url)
        return [bytes(row[0]) for row in rows]

    def in_use(self, url: str) -> bytes | None:
        """Return the one that has verified a connection to this relay, in DER."""
        row = self._database.first("SELECT der FROM relay_authorities WHERE url = ? AND in_use", url)
        return None if row is None else bytes(row[0])

    def keep(self, url: str, der: bytes) -> bool:
        """Trust an authority for one relay from now on, and return whether it is new; raises HostError.

        Args:
            url: Address of the relay that showed it over a verified connection.
            der: One certificate that may sign others, see ``crypto.certificates.is_authority``.
        """
        if der in self.of(url):
            return False
        with self._database.transaction():
            self._database.run("INSERT INTO relay_authorities (url, der, in_use) VALUES (?, ?, 0)", url, der)
            self._database.run(
                "DELETE FROM relay_authorities WHERE url = ?1 AND position NOT IN (SELECT position FROM"
                " relay_authorities WHERE url = ?1 ORDER BY der = ?2 DESC, in_use DESC, position DESC LIMIT ?3)",
                *(url, der, AUTHORITIES_PER_RELAY_MAX),
            )
            self._database.run(
                "DELETE FROM relay_authorities WHERE url NOT IN (SELECT url FROM relay_authorities GROUP BY url"
                " ORDER BY max(position) DESC LIMIT ?)",
                RELAYS_MAX,
            )
        return True

    def works(self, url: str, der: bytes) -> None:
        """Note that an authority has verified a connection: those from before it leave; raises HostError."""
        if self.in_use(url) == der:
            return
        with self._database.transaction():
            self._database.run(
                "DELETE FROM relay_authorities WHERE url = ?1 AND position <"
                " (SELECT position FROM relay_authorities WHERE url = ?1 AND der = ?2)",
                *(url, der),
            )
            self._database.run("UPDATE relay_authorities SET in_use = (der = ?2) WHERE url = ?1", url, der)

    def contexts(self, url: str, given: TlsContext | None) -> Iterator[tuple[TlsContext | None, bytes | None]]:
        """Yield the contexts to dial a relay with, in turn, and the authority that each trusts alone.

        Args:
            url: Address of the relay.
            given: What the user trusts, which goes with None; alone where it verifies nothing.
        """
        used = self.in_use(url) if verifies(given) else None
        if used is not None:
            yield pinned_context(used, given), used
        yield given, None
        if verifies(given):
            yield from ((pinned_context(der, given), der) for der in self.of(url) if der != used)


class HomeTrust:
    """Whom a participant trusts: whom the user has named, and for each relay what that has shown."""

    def __init__(
        self,
        given: TlsContext | None,
        shown: RelayAuthorities,
        *,
        on_event: Callable[[AuthorityLearned | Trouble], None] = lambda _: None,
        attempt: Callable[[Callable[[], object]], object] | None = None,
    ) -> None:
        """Describe it.

        Args:
            given: What the user trusts; None trusts the system's authorities.
            shown: What relays have shown.
            on_event: Gets ``AuthorityLearned``, and ``Trouble`` where something was shown that is no authority.
            attempt: Writes to the home, and carries on when the disk refuses; by default without a word.
        """
        self.given = given
        self._shown = shown
        self._on_event = on_event
        self._attempt = attempt or _quietly

    def contexts(self, relay: RelayUrl) -> Iterator[tuple[TlsContext | None, bytes | None]]:
        """Yield what to dial a relay with, in turn, and the authority that each trusts alone."""
        return self._shown.contexts(str(relay), self.given)

    def works(self, relay: RelayUrl, der: bytes) -> None:
        """Note that an authority has verified a connection."""
        self._attempt(lambda: self._shown.works(str(relay), der))

    def learns_from(self, relay: RelayUrl) -> bool:
        """Return whether what a relay shows is believed: only over a verified connection."""
        return relay.scheme == "tls" and verifies(self.given)

    def learn(self, relay: RelayUrl, der: bytes) -> None:
        """Trust what a relay has shown over its own connection, for this relay; reported when it is new."""
        if not self.learns_from(relay):
            return
        if is_authority(der):
            self._attempt(lambda: self._keep(relay, der))
        else:
            self._on_event(Trouble(f"{relay} showed an authority that is none; it is not kept"))

    def _keep(self, relay: RelayUrl, der: bytes) -> None:
        is_given = self.given is not None and der in self.given.get_ca_certs(binary_form=True)
        if self._shown.keep(str(relay), der) and not is_given:
            self._on_event(AuthorityLearned(str(relay), sha256(der)))


Trust = TlsContext | HomeTrust | None
"""What a connection is made with: a context, all that a home knows, or None for the system's authorities."""


def given_of(trust: Trust) -> TlsContext | None:
    """Return what the user has named."""
    return trust.given if isinstance(trust, HomeTrust) else trust


def _quietly(change: Callable[[], object]) -> None:
    with contextlib.suppress(HostError):  # it is shown again at the next connection
        change()
