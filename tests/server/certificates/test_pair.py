"""Laws of server.certificates.pair: what is read of two files, and how a change of them shows."""

import contextlib
import datetime
import os

import pytest

from tests.server.certificates.build import write_pair
from waystation.core.errors import HostError
from waystation.crypto.certificates import read_certificate
from waystation.server.certificates.authority import CertificateKind, LocalAuthority
from waystation.server.certificates.pair import mark_of, read_pair
from waystation.server.home import Home
from waystation.transport.tls import leaf_sha256

NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)


@pytest.fixture
def files(tmp_path):
    """A chain and its key."""
    return write_pair(tmp_path / "own", now=NOW)


@pytest.fixture
def authority(tmp_path):
    """That of a home that signed nothing here."""
    return LocalAuthority(Home(tmp_path / "home"))


def test_pair_is_what_the_files_hold(files, authority):
    """The leaf of the chain counts, and who renews it is known."""
    pair = read_pair(files, authority)

    assert pair.facts == read_certificate(files.cert.read_bytes())
    assert (pair.sha256, pair.kind) == (leaf_sha256(files.cert), CertificateKind.GIVEN)
    assert pair.mark == mark_of(files)


def test_pair_that_does_not_fit_is_refused(files, authority, tmp_path):
    """A key of another certificate, or none."""
    other = write_pair(tmp_path / "other")
    for broken in (files._replace(key=other.key), files._replace(key=tmp_path / "gone")):
        with pytest.raises(HostError, match="cannot use the certificate"):
            read_pair(broken, authority)


@pytest.mark.parametrize(("mode", "good"), [(0o600, True), (0o640, True), (0o644, False), (0o602, False)])
def test_key_is_for_its_owner_and_group(files, authority, mode, good):
    """The recipes give it to the group of the service; any other user of the machine gets nothing."""
    files.key.chmod(mode)

    with contextlib.nullcontext() if good else pytest.raises(HostError, match="chmod o-rwx"):
        read_pair(files, authority)


@pytest.mark.parametrize(
    ("days", "life", "soon"),
    [(31, 365, False), (29, 365, True), (20, 90, False), (14, 90, True), (1.1, 6, False), (0.9, 6, True)],
)
def test_end_is_near_at_30_days_or_a_sixth_of_the_life(files, authority, days, life, soon):
    """What certbot renews 30 days ahead of 90 is no trouble at 20."""
    pair = read_pair(files, authority)
    facts = pair.facts._replace(begins=NOW, ends=NOW + life * DAY)

    assert pair._replace(facts=facts).ends_soon(facts.ends - days * DAY) is soon


@pytest.mark.parametrize(("days", "soon"), [(29.5, False), (28.5, True)])
def test_end_that_the_node_puts_off_itself_has_a_day(files, authority, days, soon):
    """The node looks once a day whether to sign its own certificate anew, so the 30th day is no trouble."""
    pair = read_pair(files, authority)._replace(kind=CertificateKind.LOCAL)

    assert pair.ends_soon(pair.facts.ends - days * DAY) is soon


def test_mark_changes_with_either_file(files):
    """A file that is written, replaced, or gone."""
    marks = [mark_of(files)]
    for path in files:
        stat = path.stat()
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
        marks.append(mark_of(files))
        path.with_suffix(".new").write_bytes(path.read_bytes())
        path.with_suffix(".new").replace(path)
        marks.append(mark_of(files))
    files.key.unlink()
    marks.append(mark_of(files))

    assert len(set(marks)) == len(marks)


def test_own_leaf_is_shown_with_its_authority(tmp_path, files):
    """Clients that know the authority by its fingerprint find it behind the leaf; a given chain stays as it is."""
    home = Home(tmp_path / "home")
    home.ensure(names=["localhost"])
    authority = LocalAuthority(home)
    own = read_pair(home.tls_files(), authority)

    assert own.pems.cert_pem == home.cert_path.read_bytes() + home.ca_path.read_bytes()
    assert read_pair(files, authority).pems.cert_pem == files.cert.read_bytes()
