"""The home's next authority: made a year before the present one ends, shown to devices, and switched to in time.

A device that trusts ``ca.pem`` learns ``next-ca.pem`` over connections that the old one verified (BHUMI-AUTHORITY); for
other clients it is a file that the operator can hand out meanwhile. What ends first counts: the authority, or the leaf
of a home that cannot sign another because it has no ``ca.key``.

The switch replaces the leaf by one that the next authority signed, for the same names and the same key: one file, so
that listeners and a crash meet the old state or the new one. The authority's own two files follow. A leaf that
``next-ca.pem`` signed says that they still have to (NODE-SUCCESSION).
"""

import contextlib
import datetime
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from waystation.core.errors import HostError
from waystation.crypto.certificates import (
    CertificateFacts,
    der_of,
    make_local_certificates,
    read_certificate,
    sign_leaf,
)
from waystation.server.certificates.authority import CertificateKind, LocalAuthority, is_there, read_file
from waystation.server.home import Home, write_whole
from waystation.server.home.files import host_errors

__all__ = ["MADE_AHEAD", "SHOWN_FOR", "SWITCHED_AHEAD", "Step", "Succession", "Successor"]

MADE_AHEAD: Final = datetime.timedelta(days=365)
"""A board that is off over the winter still learns it."""
SWITCHED_AHEAD: Final = datetime.timedelta(days=30)
SHOWN_FOR: Final = datetime.timedelta(days=60)
"""How long devices are shown the next authority before it counts, unless the old one ends before."""
_AT_THE_LATEST: Final = datetime.timedelta(days=1)


class Step(Enum):
    """What was done about the next authority."""

    MADE = "made"
    SWITCHED = "switched"


class Successor(NamedTuple):
    """The next authority."""

    facts: CertificateFacts
    switch_at: datetime.datetime
    """When the node switches to it; aware UTC."""


class Succession:
    """``next-ca.pem`` and ``next-ca.key`` of a home."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._authority = LocalAuthority(home)

    def advance(self, now: datetime.datetime) -> Step | None:
        """Do the next thing that is due, and return it; None when nothing is.

        Args:
            now: Aware UTC. A time before the authority began is that of a wrong clock, at which nothing is done.

        Raises:
            HostError: A file cannot be read or written, or the next authority and its key do not belong together.
        """
        ends = self._ends()
        if ends is None:
            return None
        with _sentences(self._home):
            if self._authority.is_signed_by_next(read_file(self._home.cert_path)):
                self._take_over()
                return Step.SWITCHED
            if now < read_certificate(read_file(self._home.ca_path)).begins or now < ends - MADE_AHEAD:
                return None
            successor = self._successor(ends)
            if successor is None or not successor.facts.begins <= now < successor.facts.ends - MADE_AHEAD:
                self._make(now)
                return Step.MADE
            if now < successor.switch_at:
                return None
            self._switch(now)
            return Step.SWITCHED

    def successor(self) -> Successor | None:
        """Return the next authority, if there is one; raises HostError."""
        ends = self._ends()
        with _sentences(self._home):
            return None if ends is None else self._successor(ends)

    def made_at(self) -> datetime.datetime | None:
        """Return when the next authority is or was due, aware UTC; None where the certificate is not ours to follow."""
        ends = self._ends()
        return None if ends is None else ends - MADE_AHEAD

    def shown(self) -> list[bytes]:
        """Return the authorities in DER that devices may be shown, the valid one first; raises HostError."""
        home = self._home
        if self._authority.kind_of(home.tls_files()) is CertificateKind.GIVEN:
            return []
        with _sentences(home):
            return [der_of(read_file(path)) for path in (home.ca_path, home.next_ca_path) if is_there(path)]

    def _ends(self) -> datetime.datetime | None:
        """Return when clients of ``ca.pem`` are cut off without a next authority; None where that is not our matter."""
        home = self._home
        kind = self._authority.kind_of(home.tls_files())
        if kind is CertificateKind.GIVEN:
            return None
        ends = self._authority.ends()
        if kind is CertificateKind.KEYLESS:
            with _sentences(home):
                ends = min(ends, read_certificate(read_file(home.cert_path)).ends)
        return ends

    def _successor(self, ends: datetime.datetime) -> Successor | None:
        home = self._home
        if not (is_there(home.next_ca_path) and is_there(home.next_ca_key_path)):
            return None
        facts = read_certificate(read_file(home.next_ca_path))
        switch_at = max(ends - SWITCHED_AHEAD, min(facts.begins + SHOWN_FOR, ends - _AT_THE_LATEST))
        return Successor(facts, switch_at)

    def _make(self, now: datetime.datetime) -> None:
        home = self._home
        made = make_local_certificates(["localhost"], now)  # its leaf is signed at the switch, for the names of then
        write_whole(home.next_ca_key_path, made.ca_key_pem)
        write_whole(home.next_ca_path, made.ca_pem, 0o644)

    def _switch(self, now: datetime.datetime) -> None:
        home = self._home
        leaf = read_file(home.cert_path)
        ca, key = read_file(home.next_ca_path), read_file(home.next_ca_key_path)
        write_whole(home.cert_path, sign_leaf(ca, key, leaf, read_certificate(leaf).names, now), 0o644)
        self._take_over()

    def _take_over(self) -> None:
        home = self._home
        if is_there(home.next_ca_key_path):
            home.next_ca_key_path.replace(home.ca_key_path)
        home.next_ca_path.replace(home.ca_path)


@contextlib.contextmanager
def _sentences(home: Home) -> Iterator[None]:
    """Turn what a file holds, or the disk refuses, into a HostError."""
    try:
        with host_errors(f"cannot write the next authority into {home.tls_path}"):
            yield
    except ValueError as error:
        raise HostError(f"cannot use a certificate or key in {home.tls_path}: {error}") from error
