"""The authorities that relays have shown to a device, kept in its home: it needs no new file when one ends.

A relay shows a registered device which authority signs its certificate and which one will (BHUMI-AUTHORITY). It is
believed because the connection was verified with an authority that was trusted before, and for that relay's address
alone. At most two are kept for a relay: a third takes the place of the one that is not in use, and once the newer one
has verified a connection, the older one leaves.
"""

from collections.abc import Iterator
from typing import Final

from waystation.sdk.bhumi.connection import RelayConnection
from waystation.sdk.private_database import PrivateDatabase
from waystation.transport.dial import UntrustedError
from waystation.transport.tls import TlsContext, pinned_context, verifies

__all__ = ["AUTHORITIES_PER_RELAY_MAX", "AUTHORITIES_SCHEMA", "RELAYS_MAX", "RelayAuthorities", "dial_trusted"]

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


async def dial_trusted(
    connection: RelayConnection, given: TlsContext | None, shown: RelayAuthorities, *, only_public: bool = False
) -> bytes | None:
    """Connect with what is given or with what the relay has shown; return the shown authority that verified it.

    Args:
        connection: Not dialled yet.
        given: What the user trusts.
        shown: What relays have shown.
        only_public: See ``transport.dial``.

    Raises:
        UntrustedError: Nothing that is trusted has signed the relay's certificate.
        HostError: The relay cannot be reached, or the disk refuses.
    """
    url = str(connection.relay)
    trouble: UntrustedError | None = None
    contexts = shown.contexts(url, given) if connection.relay.scheme == "tls" else iter([(given, None)])
    for context, der in contexts:
        try:
            await connection.dial(context, only_public=only_public)
        except UntrustedError as error:
            trouble = error if trouble is None or der is None else trouble
        else:
            return der
    assert trouble is not None
    raise UntrustedError(
        f"{trouble}; if the relay has changed its authority while this device was off, ask its operator for the "
        "tls/ca.pem of today"
    ) from trouble
