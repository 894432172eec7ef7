"""Files of the node's home, which is one folder.

::

    home/            0700
      node.key       0600  Ed25519 seed, 64 hexadecimal digits: losing it is losing the node's name
      refs.key       0600  the key of the journal's references; a new one every week, the old one is gone for good
      tls/           ca.pem and ca.key (0600): the local authority; cert.pem and key.pem (0600): what it signed
      store.sqlite   durable records
      journal/       segments for the pipeline
      archive/       stored packets for the pipeline
      home.json      0600  what the home remembers of itself (``server.home.mark``)
      admin.token    0600  required by the admin port; `waystation admin rotate` makes a new one
      admin.sock     0600  the admin port for programs of this user, while the node runs
      running.json   0600  process, version and addresses of the node, while it runs
      lock           held by the node that runs on this home

Keys, certificates, the token and ``running.json`` are each written under a temporary name, synced and renamed, so a
reader never sees a part of one. ``store.sqlite``, ``journal/`` and ``archive/`` grow in place. ``admin.sock`` and
``lock``, which has the number of the process that holds it, hold nothing to keep.
"""

import contextlib
import datetime
import errno
import fcntl
import json
import os
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from waystation.core.addresses import DNS_NAME_CHARS_MAX, is_dns_name, is_ip
from waystation.core.errors import STORE_EXIT_CODE, HostError, LocalError
from waystation.core.ids import decode_key_hex
from waystation.crypto.certificates import make_local_certificates
from waystation.crypto.signing import SEED_BYTES, KeyPair

__all__ = [
    "REFERENCE_KEY_BYTES",
    "Home",
    "ReferenceKey",
    "TlsFiles",
    "certificate_names",
    "host_errors",
    "local_names",
    "write_whole",
]

REFERENCE_KEY_BYTES: Final = 32
LOCK_TIMEOUT_S: Final = 1.0  # ``locked_by`` holds the lock for a moment to see whether a node runs
_LOCK_RETRY_S: Final = 0.05
_TOKEN_BYTES: Final = 32
_WEEK_SECONDS: Final = 7 * 24 * 3600
_OTHERS: Final = 0o077
_PERMISSION_EXIT_CODE: Final = 4
_NO_WRITES: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})


class ReferenceKey(NamedTuple):
    """The key that turns identities into the journal's references."""

    week: int
    """Whole weeks since 1970-01-01 (a Thursday) in UTC."""
    key: bytes
    """32 bytes."""

    def __repr__(self) -> str:
        return f"ReferenceKey(week={self.week})"


class TlsFiles(NamedTuple):
    """The files of a certificate chain and its key, in PEM."""

    cert: Path
    key: Path


class Home:
    """The folder ``path``; nothing is read or made before a method says so.

    Every method raises HostError when the disk or the permissions refuse (exit code 4 for permissions, else 1).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.key_path = path / "node.key"
        self.references_path = path / "refs.key"
        self.tls_path = path / "tls"
        self.ca_path = self.tls_path / "ca.pem"
        self.ca_key_path = self.tls_path / "ca.key"
        self.next_ca_path = self.tls_path / "next-ca.pem"
        self.next_ca_key_path = self.tls_path / "next-ca.key"
        self.cert_path = self.tls_path / "cert.pem"
        self.tls_key_path = self.tls_path / "key.pem"
        self.store_path = path / "store.sqlite"
        self.journal_path = path / "journal"
        self.archive_path = path / "archive"
        self.token_path = path / "admin.token"
        self.running_path = path / "running.json"
        self.lock_path = path / "lock"

    def ensure(self, now: datetime.datetime | None = None, names: Sequence[str] = ()) -> list[Path]:
        """Make what is missing and return it; what is there stays as it is.

        Args:
            now: Aware UTC time at which certificates begin; the host's clock when None.
            names: DNS names and addresses the certificate is for; ``local_names()`` when empty.
        """
        made = [each for each in (self.path, self.journal_path, self.archive_path) if _make_folder(each)]
        if not self.key_path.exists() and self._make_key():
            made.append(self.key_path)
        if not (self.cert_path.exists() and self.tls_key_path.exists()):
            self._make_certificates(now or datetime.datetime.now(datetime.UTC), names or local_names())
            made += [self.ca_path, self.ca_key_path, self.cert_path, self.tls_key_path]
        return made

    def make_folder(self) -> None:
        """Make the home's folder alone, if it is missing, so that it can be locked."""
        _make_folder(self.path)

    def key_pair(self) -> KeyPair:
        """Return the node's key; ``ensure`` makes it.

        Raises:
            HostError: It is missing, damaged, or others may read it.
        """
        try:
            return KeyPair.from_seed(decode_key_hex(self._read_secret(self.key_path).strip()))
        except LocalError as error:
            raise HostError(f"{self.key_path} does not hold a key: 64 hexadecimal digits are expected") from error

    def tls_files(self, cert: str = "", key: str = "") -> TlsFiles:
        """Return the files that a configuration names, in place of an empty name the home's own."""
        return TlsFiles(Path(cert) if cert else self.cert_path, Path(key) if key else self.tls_key_path)

    def reference_key(self, now: datetime.datetime) -> ReferenceKey:
        """Return this week's key, made and written over the last one when the week has changed.

        Args:
            now: Aware time.
        """
        week = int(now.timestamp()) // _WEEK_SECONDS
        if self.references_path.exists():
            kept = self._read_reference_key()
            if kept.week == week:
                return kept
        fresh = ReferenceKey(week, secrets.token_bytes(REFERENCE_KEY_BYTES))
        text = json.dumps({"week": fresh.week, "key": fresh.key.hex()}) + "\n"
        with host_errors(f"cannot write {self.references_path}"):
            write_whole(self.references_path, text.encode())
        return fresh

    def kept_reference_key(self) -> ReferenceKey | None:
        """Return the key that lies here, of whatever week, or None; nothing is written.

        Raises:
            HostError: It is damaged, or others may read it.
        """
        return self._read_reference_key() if self.references_path.exists() else None

    def admin_token(self) -> str:
        """Return the admin port's bearer token; one is made when there is none, or only an empty file.

        Raises:
            HostError: Others may read it (exit code 4).
        """
        kept = self._read_secret(self.token_path).strip() if self.token_path.exists() else ""
        return kept or self.replace_admin_token()

    def replace_admin_token(self) -> str:
        """Write a new bearer token over the one that is there, and return it; a running node has to take it over.

        Raises:
            HostError: The disk refused; the old one stays.
        """
        fresh = secrets.token_urlsafe(_TOKEN_BYTES)
        with host_errors(f"cannot write {self.token_path}"):
            write_whole(self.token_path, f"{fresh}\n".encode())
        return fresh

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the home for this process; the kernel lets go of it when the process ends, however it ends.

        Raises:
            HostError: Another node holds it, also a second later (exit code 1).
        """
        with host_errors(f"cannot open {self.lock_path}"):
            descriptor = os.open(self.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._take_lock(descriptor)
            yield
        finally:
            os.close(descriptor)

    def locked_by(self) -> int | None:
        """Return the process id of the node that runs on this home, or None; 0 when it did not say."""
        if not self.lock_path.exists():
            return None
        with host_errors(f"cannot open {self.lock_path}"):
            descriptor = os.open(self.lock_path, os.O_RDWR | os.O_CLOEXEC)
        try:
            return None if _locks(descriptor) else _pid_in(descriptor)
        finally:
            os.close(descriptor)

    def check_secrets(self) -> None:
        """Refuse secret files that others may read.

        Raises:
            HostError: Names the first such file and the command that fixes it (exit code 4).
        """
        ours = (self.key_path, self.references_path, self.token_path)
        for path in (*ours, self.ca_key_path, self.next_ca_key_path, self.tls_key_path):
            if path.exists():
                _check_private(path)

    def _make_key(self) -> bool:
        """Make node.key unless another process just did; an existing key is never written over."""
        text = secrets.token_bytes(SEED_BYTES).hex() + "\n"
        with host_errors(f"cannot write {self.key_path}"):
            temporary = _write_temporary(self.key_path, text.encode())
            try:
                os.link(temporary, self.key_path)
            except FileExistsError:
                return False
            finally:
                temporary.unlink()
            _sync_folder(self.path)
        return True

    def _make_certificates(self, now: datetime.datetime, names: Sequence[str]) -> None:
        fresh = make_local_certificates(names, now)
        with host_errors(f"cannot write certificates into {self.tls_path}"):
            folder = Path(tempfile.mkdtemp(prefix=".tls.", dir=self.path))
            try:
                for path, pem, mode in (
                    (self.ca_path, fresh.ca_pem, 0o644),
                    (self.ca_key_path, fresh.ca_key_pem, 0o600),
                    (self.cert_path, fresh.cert_pem, 0o644),
                    (self.tls_key_path, fresh.key_pem, 0o600),
                ):
                    write_whole(folder / path.name, pem, mode)
                # Moving onto a folder succeeds only while that folder is empty, so no key is ever lost.
                folder.rename(self.tls_path)
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                    raise
                if self.cert_path.exists() and self.tls_key_path.exists():
                    return  # another process was quicker
                raise HostError(
                    f"{self.tls_path} needs both cert.pem and key.pem; put the missing file back, "
                    "or move the folder away to have both made anew"
                ) from error
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            _sync_folder(self.path)

    def _read_secret(self, path: Path) -> str:
        with host_errors(f"cannot read {path}"):
            _check_private(path)
            return path.read_text(encoding="ascii", errors="replace")

    def _read_reference_key(self) -> ReferenceKey:
        try:
            document = json.loads(self._read_secret(self.references_path))
            return ReferenceKey(int(document["week"]), decode_key_hex(document["key"]))
        except (ValueError, KeyError, TypeError, LocalError) as error:
            raise HostError(f"{self.references_path} is damaged; remove it to have a new one made") from error

    def _take_lock(self, descriptor: int) -> None:
        gives_up_at = time.monotonic() + LOCK_TIMEOUT_S
        while not _locks(descriptor):
            if time.monotonic() >= gives_up_at:
                pid = _pid_in(descriptor)
                who = f"another node (process {pid})" if pid else "another node"
                raise HostError(f"{who} runs on the home {self.path}; stop it, or give this one a --home of its own")
            time.sleep(_LOCK_RETRY_S)
        with host_errors(f"cannot write {self.lock_path}"):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())


def local_names() -> list[str]:
    """Return the names a local certificate is for: localhost, both loopback addresses, and the host's name."""
    names = ["localhost", "127.0.0.1", "::1"]
    host = socket.gethostname()
    # A certificate holds ASCII names of at most 253 characters; a host name that does not fit is left out.
    if host and host.isascii() and len(host) <= DNS_NAME_CHARS_MAX and host not in names:
        names.append(host)
    return names


def certificate_names(given: Sequence[str]) -> list[str]:
    """Return ``local_names()`` and the given DNS names and IP addresses, each once.

    Raises:
        LocalError: One of them is neither a DNS name nor an IP address.
    """
    for name in given:
        if not is_ip(name) and not (len(name) <= DNS_NAME_CHARS_MAX and is_dns_name(name.removeprefix("*."))):
            raise LocalError(f"{name!r} is neither a DNS name nor an IP address, so no certificate can be for it")
    return list(dict.fromkeys([*local_names(), *given]))


@contextlib.contextmanager
def host_errors(what: str) -> Iterator[None]:
    """Turn an OSError into a HostError: what was tried and why not.

    Its exit code is 4 for permissions, 5 for a disk that takes no write, and else 1.
    """
    try:
        yield
    except OSError as error:
        code = STORE_EXIT_CODE if error.errno in _NO_WRITES else 1
        code = _PERMISSION_EXIT_CODE if isinstance(error, PermissionError) else code
        raise HostError(f"{what}: {error.strerror or error}", exit_code=code) from error


def _make_folder(path: Path) -> bool:
    """Make a folder for its owner only; return False when it is there."""
    with host_errors(f"cannot make the folder {path}"):
        if path.is_dir():
            return False
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return True


def _check_private(path: Path) -> None:
    mode = path.stat().st_mode & 0o777
    if mode & _OTHERS:
        raise HostError(
            f"{path} holds a secret and others may read it (mode {mode:04o}); run: chmod 600 {path}",
            exit_code=_PERMISSION_EXIT_CODE,
        )


def write_whole(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file so that a reader sees the old one or the new one, also after a power cut.

    Args:
        path: Where it goes; its folder exists.
        data: All of it.
        mode: Permissions, whatever the umask.

    Raises:
        OSError: The disk refused; the old file stays, and nothing is left beside it.
    """
    temporary = _write_temporary(path, data, mode)
    try:
        temporary.replace(path)
    except OSError:
        temporary.unlink()
        raise
    _sync_folder(path.parent)


def _write_temporary(path: Path, data: bytes, mode: int = 0o600) -> Path:
    """Write ``data`` to a new, synced file beside ``path``."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
    except OSError:
        temporary.unlink()
        raise
    return temporary


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _locks(descriptor: int) -> bool:
    """Take the lock if it is free; return whether it is ours now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _pid_in(descriptor: int) -> int:
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else 0
