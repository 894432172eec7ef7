"""The home's own authority: which certificates it signed, and signing the home's leaf anew.

Clients keep ``ca.pem``, which is good for ten years (``succession`` makes the next). The leaf is good for one and is
signed anew 30 days ahead of its end, for the same names and the same key. Because the key stays, one file is replaced,
and no reader meets half a pair. Whoever can read the leaf's key can read the authority's beside it, so a new key would
protect nobody (NODE-LEAF).
"""

import datetime
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Final

from waystation.core.errors import HostError
from waystation.crypto.certificates import CertificateFacts, is_signed_by, read_certificate, sign_leaf
from waystation.server.home import Home, TlsFiles, write_whole

__all__ = ["RENEW_AHEAD", "CertificateKind", "LocalAuthority", "is_there", "read_file"]

RENEW_AHEAD: Final = datetime.timedelta(days=30)


class CertificateKind(Enum):
    """Who renews a certificate."""

    LOCAL = "local"
    """The home's authority signed it, and the node renews it."""
    KEYLESS = "local_keyless"
    """The home's authority signed it, but its key is not there: homes of earlier versions have none."""
    GIVEN = "given"
    """Anybody else: the operator, certbot, a proxy."""


class LocalAuthority:
    """``ca.pem`` and ``ca.key`` of a home."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def kind_of(self, files: TlsFiles) -> CertificateKind:
        """Return who renews the certificate in these files.

        Raises:
            HostError: A file cannot be read, or holds no certificate.
        """
        home = self._home
        if files.cert.absolute() != home.cert_path.absolute() or not is_there(home.ca_path):
            return CertificateKind.GIVEN
        try:
            leaf = read_file(files.cert)
            if self.is_signed_by_next(leaf):  # the switch to it was cut short, and goes on
                return CertificateKind.LOCAL
            if not is_signed_by(leaf, read_file(home.ca_path)):
                return CertificateKind.GIVEN
        except ValueError as error:
            raise HostError(f"cannot read the certificate {files.cert} or {home.ca_path}: {error}") from error
        return CertificateKind.LOCAL if is_there(home.ca_key_path) else CertificateKind.KEYLESS

    def is_signed_by_next(self, cert_pem: bytes) -> bool:
        """Return whether the home's next authority signed a certificate.

        Raises:
            HostError: ``next-ca.pem`` is there and cannot be read.
            ValueError: One of the texts holds no certificate.
        """
        path = self._home.next_ca_path
        return is_there(path) and is_signed_by(cert_pem, read_file(path))

    def certificate(self) -> bytes:
        """Return ``ca.pem``; raises HostError when it cannot be read."""
        return read_file(self._home.ca_path)

    def ends(self) -> datetime.datetime:
        """Return when the authority ends.

        Raises:
            HostError: It cannot be read.
        """
        return self._facts(self._home.ca_path).ends

    def renew(self, now: datetime.datetime) -> CertificateFacts | None:
        """Sign the home's leaf anew where that is due; return what it says then, None where nothing was done.

        Args:
            now: Aware UTC. A time before the authority began is that of a wrong clock, at which nothing is signed.

        Raises:
            HostError: A file cannot be read or written, or the authority and its key do not belong together.
        """
        if self.kind_of(self._home.tls_files()) is not CertificateKind.LOCAL:
            return None
        leaf, authority = self._facts(self._home.cert_path), self._facts(self._home.ca_path)
        is_early = leaf.begins > now  # signed while the clock was ahead
        is_due = is_early or (leaf.ends - now <= RENEW_AHEAD and leaf.ends < authority.ends)
        if not is_due or not authority.begins <= now < authority.ends:
            return None
        return self._sign(leaf.names, now)

    def add_names(self, names: Sequence[str], now: datetime.datetime) -> list[str] | None:
        """Sign the home's leaf for these names too; return those it did not have, None when it is not ours to sign.

        Args:
            names: DNS names and IP addresses.
            now: Aware UTC.

        Raises:
            HostError: As ``renew``.
        """
        if self.kind_of(self._home.tls_files()) is not CertificateKind.LOCAL:
            return None
        held = self._facts(self._home.cert_path).names
        added = [name for name in dict.fromkeys(names) if name not in held]
        if added:
            self._sign((*held, *added), now)
        return added

    def _sign(self, names: Sequence[str], now: datetime.datetime) -> CertificateFacts:
        home = self._home
        try:
            pem = sign_leaf(read_file(home.ca_path), read_file(home.ca_key_path), read_file(home.cert_path), names, now)
        except ValueError as error:
            raise HostError(f"cannot sign with {home.ca_path} and {home.ca_key_path}: {error}") from error
        try:
            write_whole(home.cert_path, pem, 0o644)
        except OSError as error:
            raise HostError(f"cannot write {home.cert_path}: {error.strerror or error}") from error
        return read_certificate(pem)

    def _facts(self, path: Path) -> CertificateFacts:
        try:
            return read_certificate(read_file(path))
        except ValueError as error:
            raise HostError(f"cannot read the certificate {path}: {error}") from error


def is_there(path: Path) -> bool:
    """Return whether a file is there for us to see; a folder that may not be searched hides it, and raises nothing."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def read_file(path: Path) -> bytes:
    """Return what a file holds; raises HostError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise HostError(f"cannot read {path}: {error.strerror or error}") from error
