"""Laws of server.home.files."""

import contextlib
import datetime
import errno
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509

from waystation.core.errors import HostError, LocalError
from waystation.crypto.signing import KeyPair
from waystation.server.home import Home, certificate_names, local_names
from waystation.server.home import files as home_module

NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)  # a Sunday; weeks turn on Thursdays
NAMES = ["localhost", "127.0.0.1"]


@pytest.fixture
def home(tmp_path):
    """A home that is made."""
    home = Home(tmp_path / "deep" / "home")
    home.ensure(NOW, NAMES)
    return home


def _mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def _files(home):
    return {path.relative_to(home.path): path.read_bytes() for path in home.path.rglob("*") if path.is_file()}


def test_ensure_makes_everything_and_says_so(tmp_path):
    """An absent home gets its key, certificates and journal, all named in the result."""
    home = Home(tmp_path / "home")

    assert home.ensure(NOW, NAMES) == [
        home.path,
        home.journal_path,
        home.archive_path,
        home.key_path,
        home.ca_path,
        home.ca_key_path,
        home.cert_path,
        home.tls_key_path,
    ]
    assert all(path.exists() for path in (home.ca_path, home.cert_path, home.tls_key_path, home.journal_path))


def test_ensure_again_changes_nothing(home):
    """What is there stays, byte for byte, and nothing is left behind."""
    before = _files(home)

    assert home.ensure(NOW, NAMES) == []
    assert _files(home) == before
    assert len(before) == 5


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_secrets_are_for_the_owner_only(tmp_path, umask):
    """Keys have mode 0600 and the home 0700, whatever the umask."""
    home = Home(tmp_path / "home")
    before = os.umask(umask)
    home.ensure(NOW, NAMES)
    home.reference_key(NOW)
    os.umask(before)

    assert {_mode(path) for path in (home.key_path, home.ca_key_path, home.tls_key_path, home.references_path)} == {
        0o600
    }
    assert _mode(home.path) == 0o700
    assert _mode(home.cert_path) == 0o644


def test_key_file_is_a_seed_in_hex(home):
    """The file holds 64 digits, and the pair grows from that seed."""
    text = home.key_path.read_text()

    assert len(text) == 65
    assert home.key_pair() == KeyPair.from_seed(bytes.fromhex(text))


def test_two_homes_have_two_keys(home, tmp_path):
    """Keys are random."""
    other = Home(tmp_path / "other")
    other.ensure(NOW, NAMES)

    assert other.key_pair().public != home.key_pair().public


def test_lost_race_for_the_key_keeps_the_winners(home):
    """A key that appeared meanwhile is never written over."""
    before = home.key_path.read_bytes()

    assert home._make_key() is False
    assert home.key_path.read_bytes() == before
    assert list(home.path.glob(".node.key*")) == []


def test_lost_race_for_the_certificates_keeps_the_winners(home):
    """A pair that appeared meanwhile is never written over."""
    before = _files(home)
    home._make_certificates(NOW, NAMES)

    assert _files(home) == before
    assert list(home.path.glob(".tls*")) == []


def test_full_disk_keeps_the_old_file_and_leaves_no_litter(home, monkeypatch):
    """A write that fails half way changes nothing."""
    kept = home.reference_key(NOW)
    before = _files(home)

    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(HostError, match="No space left on device"):
            home.reference_key(NOW + datetime.timedelta(days=7))

    assert _files(home) == before
    assert home.reference_key(NOW) == kept


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_key_that_others_may_read_is_refused(home, mode):
    """The sentence names the file, the mode and the command that mends it."""
    home.key_path.chmod(mode)

    with pytest.raises(HostError, match=f"mode {mode:04o}.*chmod 600 {home.key_path}") as caught:
        home.key_pair()
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("name", ["key_path", "ca_key_path", "tls_key_path", "references_path", "token_path"])
def test_check_secrets_looks_at_all_of_them(home, name):
    """Each secret file is looked at."""
    home.reference_key(NOW)
    home.admin_token()
    home.check_secrets()
    getattr(home, name).chmod(0o644)

    with pytest.raises(HostError, match="others may read it"):
        home.check_secrets()


@pytest.mark.parametrize("text", ["", "00" * 31, "zz" * 32, "00" * 33])
def test_damaged_key_is_refused(home, text):
    """A file without 64 hexadecimal digits is no key."""
    home.key_path.write_text(text)

    with pytest.raises(HostError, match="does not hold a key"):
        home.key_pair()


def test_missing_key_is_refused(tmp_path):
    """Reading does not make anything."""
    with pytest.raises(HostError, match="No such file"):
        Home(tmp_path).key_pair()


def test_certificate_names_what_was_asked_for(home):
    """The leaf is good for the names given, IPv4 addresses as DNS names as well, and begins a day before now."""
    leaf = x509.load_pem_x509_certificate(home.cert_path.read_bytes())
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert [str(name.value) for name in names] == [*NAMES, "127.0.0.1"]
    assert leaf.not_valid_before_utc == NOW - datetime.timedelta(days=1)


def test_local_names_hold_loopback_and_the_host():
    """Clients on this machine and in the local network find their name."""
    assert local_names()[:3] == ["localhost", "127.0.0.1", "::1"]


def test_own_certificates_are_left_alone(tmp_path):
    """An operator's pair without our authority counts as complete."""
    home = Home(tmp_path)
    home.tls_path.mkdir()
    home.cert_path.write_text("mine")
    home.tls_key_path.write_text("mine too")

    assert home.cert_path not in home.ensure(NOW, NAMES)
    assert home.cert_path.read_text() == "mine"
    assert not home.ca_path.exists()


@pytest.mark.parametrize("missing", ["cert.pem", "key.pem"])
def test_half_a_pair_is_refused_and_kept(home, missing):
    """A lost half is never replaced by one that does not fit; the other half stays."""
    (home.tls_path / missing).unlink()
    before = _files(home)

    with pytest.raises(HostError, match=r"needs both cert\.pem and key\.pem"):
        home.ensure(NOW, NAMES)
    assert _files(home) == before
    assert list(home.path.glob(".tls*")) == []


def test_reference_key_stays_for_a_week_then_is_gone(home):
    """Within an epoch week there is one key; the next week has another and the old one is nowhere."""
    first = home.reference_key(NOW)
    wednesday = datetime.datetime(2026, 3, 4, 23, 59, 59, tzinfo=datetime.UTC)
    same = Home(home.path).reference_key(wednesday)
    second = home.reference_key(wednesday + datetime.timedelta(seconds=1))

    assert same == first
    assert second.week == first.week + 1
    assert second.key != first.key
    assert len(second.key) == 32
    assert first.key.hex() not in home.references_path.read_text()
    assert json.loads(home.references_path.read_text()) == {"week": second.week, "key": second.key.hex()}


def test_reference_key_is_not_shown(home):
    """A log line about the key tells its week only."""
    key = home.reference_key(NOW)

    assert repr(key) == f"ReferenceKey(week={key.week})"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"week": 1, "key": "00"}', '{"week": "x", "key": "%s"}' % ("00" * 32)]
)
def test_damaged_reference_key_is_refused(home, text):
    """Junk is named, not replaced behind the operator's back."""
    home.references_path.write_text(text)
    home.references_path.chmod(0o600)

    with pytest.raises(HostError, match="is damaged"):
        home.reference_key(NOW)


def test_second_node_on_one_home_is_refused(home, monkeypatch):
    """The lock tells who holds it, and lets go at the end of the block."""
    monkeypatch.setattr(home_module, "LOCK_TIMEOUT_S", 0.0)
    with home.lock():
        assert home.locked_by() == os.getpid()
        with pytest.raises(HostError, match=rf"another node \(process {os.getpid()}\) runs on the home") as caught:
            Home(home.path).lock().__enter__()
    assert caught.value.exit_code == 1
    assert home.locked_by() is None
    with Home(home.path).lock():
        assert home.locked_by() == os.getpid()


def test_lock_that_is_held_for_a_moment_is_waited_for(home, monkeypatch):
    """Who only looks whether a node runs does not keep one from starting."""
    with contextlib.ExitStack() as looking:
        looking.enter_context(home.lock())
        monkeypatch.setattr(home_module.time, "sleep", lambda _seconds: looking.close())
        with Home(home.path).lock():
            held_by = home.locked_by()

    assert held_by == os.getpid()


@pytest.mark.parametrize("before", [None, "", "\n"])
def test_admin_token_is_made_once(home, before):
    """Without a token, or with an empty file of a start that was cut short, one is made; after that it stays."""
    if before is not None:
        home.token_path.write_text(before)
        home.token_path.chmod(0o600)
    token = home.admin_token()

    assert len(token) == 43
    assert home.admin_token() == Home(home.path).admin_token() == token
    assert _mode(home.token_path) == 0o600


def test_admin_token_appears_whole_or_not_at_all(home, monkeypatch):
    """A full disk leaves no half of a token and no litter."""
    before = _files(home)

    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HostError, match=r"cannot write .*admin\.token: No space left on device"):
        home.admin_token()

    assert _files(home) == before


def test_killed_node_leaves_the_home_free(home):
    """The kernel lets go of the lock of a process that was killed."""
    program = f"""
import pathlib, sys
from waystation.server.home import Home
with Home(pathlib.Path({str(home.path)!r})).lock():
    print("locked", flush=True)
    sys.stdin.read()
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.readline()
    held_by = home.locked_by()
    process.kill()
    process.communicate()

    assert held_by == process.pid
    with home.lock():
        assert home.locked_by() == os.getpid()


def test_home_below_a_file_is_refused(tmp_path):
    """A place where no folder can be is a plain sentence."""
    (tmp_path / "file").write_text("")

    with pytest.raises(HostError, match="cannot make the folder"):
        Home(tmp_path / "file" / "home").ensure(NOW, NAMES)


def test_certificate_names_are_the_local_ones_and_the_given():
    """Given names come after the local ones, and none twice."""
    assert certificate_names(["192.0.2.10", "localhost", "2001:db8::1", "*.example.org", "192.0.2.10"]) == [
        *local_names(),
        "192.0.2.10",
        "2001:db8::1",
        "*.example.org",
    ]


@pytest.mark.parametrize("name", ["", "a b", "tls://x", "x:8443", "é.org", "a..b", "-a", "a" * 64, "a." * 127])
def test_what_names_no_host_is_refused(name):
    """A name that no certificate can hold, or no client would ask for, is a sentence and not a useless certificate."""
    with pytest.raises(LocalError, match="neither a DNS name nor an IP address"):
        certificate_names([name])


def test_folder_that_may_not_be_entered_is_a_sentence(tmp_path, monkeypatch):
    """A home inside another user's folder is refused with its path and code 4, not with a traceback."""

    def denied(_path):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", denied)
    for ask in (Home.make_folder, Home.ensure):
        with pytest.raises(HostError, match=r"cannot make the folder .*: Permission denied") as caught:
            ask(Home(tmp_path / "home"))
        assert caught.value.exit_code == 4
