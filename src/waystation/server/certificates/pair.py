"""One certificate and its key as they lie on the disk, read for a listener or for a report.

A certificate and key written one after the other may not fit for a moment; ``read_pair`` raises then, and ``in_force``
reads again. ``mark_of`` returns what changes when a file does.
"""

import datetime
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from waystation.core.errors import HostError
from waystation.crypto.certificates import CertificateFacts, read_certificate
from waystation.server.certificates.authority import RENEW_AHEAD, CertificateKind, LocalAuthority
from waystation.server.home import TlsFiles
from waystation.transport.tls import KeyFileError, PemPair, context_of, leaf_sha256, read_pems

__all__ = ["FileMark", "Pair", "mark_of", "read_pair"]

_LIFE_SHARE: Final = 6
_SIGNED_WITHIN: Final = datetime.timedelta(days=1)
_OTHERS: Final = 0o007
_PERMISSION_EXIT_CODE: Final = 4
FileMark = tuple[tuple[int, ...], ...]
"""Device, inode, time of change in ns and size of both files, links followed; empty for a file that is not there."""


class Pair(NamedTuple):
    """A certificate and a key that fit together."""

    files: TlsFiles
    mark: FileMark
    """Of the files when they were read."""
    sha256: bytes
    """Of the leaf as it goes over the wire, 32 bytes."""
    facts: CertificateFacts
    kind: CertificateKind
    pems: PemPair
    """What was read, and behind it the authority of the home when that signed it: what listeners show, whatever the
    files hold by then."""

    def ends_soon(self, now: datetime.datetime) -> bool:
        """Return whether it should have been renewed: 30 days are left, or a sixth of a short given life.

        The node has a day more for its own, because it looks once a day what is to be done about it.
        """
        ahead = RENEW_AHEAD
        if self.kind is CertificateKind.GIVEN:
            ahead = min(ahead, (self.facts.ends - self.facts.begins) / _LIFE_SHARE)
        else:
            ahead -= _SIGNED_WITHIN
        return self.facts.ends - now <= ahead


def read_pair(files: TlsFiles, authority: LocalAuthority) -> Pair:
    """Return what lies in these files.

    Raises:
        HostError: A file cannot be read, certificate and key do not fit together, or every user may read the key.
    """
    mark = mark_of(files)
    pems = read_pems(files.cert, files.key)
    context_of(pems)
    _check_private(files.key)
    try:
        facts = read_certificate(pems.cert_pem)
    except ValueError as error:
        raise HostError(f"cannot use the certificate {files.cert}: {error}") from error
    kind = authority.kind_of(files)
    if kind is not CertificateKind.GIVEN:  # clients that know the authority by its fingerprint find it in the chain
        pems = replace(pems, cert_pem=pems.cert_pem + authority.certificate())
    return Pair(files, mark, leaf_sha256(files.cert, pems.cert_pem), facts, kind, pems)


def _check_private(key: Path) -> None:
    """Refuse a key that is open to more than its owner and its group, to whom the recipes for certificates give it."""
    try:
        mode = key.stat().st_mode & 0o777
    except OSError as error:
        raise HostError(f"cannot use the key {key}: {error}") from error
    if mode & _OTHERS:
        raise KeyFileError(
            f"every user of this machine may read or change the key {key} (mode {mode:04o}); run: chmod o-rwx {key}",
            exit_code=_PERMISSION_EXIT_CODE,
        )


def mark_of(files: TlsFiles) -> FileMark:
    """Return what changes when one of the files is written, replaced, or linked to another one."""
    return tuple(map(_stat, files))


def _stat(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:  # no such file, or no permission: reading it says which
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
