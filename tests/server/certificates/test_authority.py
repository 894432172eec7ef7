"""Laws of server.certificates.authority: which leaves are the home's to renew, and when they are."""

import datetime

import pytest

from tests.server.certificates.build import write_pair
from waystation.core.errors import HostError
from waystation.crypto.certificates import is_signed_by, read_certificate
from waystation.server.certificates.authority import CertificateKind, LocalAuthority
from waystation.server.home import Home

NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
NAMES = ["localhost", "127.0.0.1", "relay.example"]


@pytest.fixture
def home(tmp_path):
    """A home that is made."""
    home = Home(tmp_path / "home")
    home.ensure(NOW, NAMES)
    return home


def leaf(home):
    """Return what the home's certificate says."""
    return read_certificate(home.cert_path.read_bytes())


@pytest.mark.parametrize(
    ("at", "ends"),
    [
        (0, None),
        (334, None),
        (335, 700),
        (364, 729),
        (400, 765),  # a node that was off for long
        (-2, None),  # before the authority: the clock is wrong
        (3650, None),  # after it
    ],
)
def test_leaf_is_renewed_within_30_days_of_its_end(home, at, ends):
    """For another year; never by a clock at which the authority itself is not valid."""
    before = home.cert_path.read_bytes()
    renewed = LocalAuthority(home).renew(NOW + at * DAY)

    assert (renewed is None) == (ends is None) == (home.cert_path.read_bytes() == before)
    assert ends is None or renewed.ends == NOW + ends * DAY == leaf(home).ends


def test_next_leaf_has_the_names_the_key_and_the_authority_of_the_last(home):
    """NODE-LEAF: only cert.pem changes, so clients keep what they have and no reader meets half a pair."""
    others = (home.ca_path, home.ca_key_path, home.tls_key_path)
    before = [path.read_bytes() for path in others]
    renewed = LocalAuthority(home).renew(NOW + 350 * DAY)

    assert [path.read_bytes() for path in others] == before
    assert set(renewed.names) == set(NAMES)
    assert is_signed_by(home.cert_path.read_bytes(), home.ca_path.read_bytes())
    assert home.cert_path.stat().st_mode & 0o777 == 0o644


def test_leaf_that_a_fast_clock_signed_is_replaced(home):
    """Clients would refuse it until it begins."""
    LocalAuthority(home).renew(NOW + 1_000 * DAY)
    renewed = LocalAuthority(home).renew(NOW + 10 * DAY)

    assert (renewed.begins, renewed.ends) == (NOW + 9 * DAY, NOW + 375 * DAY)


def test_last_leaf_ends_with_the_authority_and_is_signed_once(home):
    """A leaf that cannot outlive its authority is not signed again and again."""
    authority = LocalAuthority(home)
    last = authority.renew(NOW + 3_600 * DAY)

    assert last.ends == authority.ends() == NOW + 3_650 * DAY
    assert authority.renew(NOW + 3_640 * DAY) is None


def test_operators_own_files_are_never_signed_over(home, tmp_path):
    """A certificate of another issuer in the home's place is the operator's, even beside our authority."""
    own = write_pair(tmp_path / "own", now=NOW)
    home.cert_path.write_bytes(own.cert.read_bytes())
    home.tls_key_path.write_bytes(own.key.read_bytes())
    authority = LocalAuthority(home)

    assert authority.kind_of(home.tls_files()) is CertificateKind.GIVEN
    assert authority.renew(NOW + 360 * DAY) is None
    assert authority.add_names(["x.example"], NOW) is None
    assert home.cert_path.read_bytes() == own.cert.read_bytes()


def test_home_without_the_key_of_its_authority_renews_nothing(home):
    """Homes of earlier versions threw it away."""
    home.ca_key_path.unlink()
    authority = LocalAuthority(home)

    assert authority.kind_of(home.tls_files()) is CertificateKind.KEYLESS
    assert authority.renew(NOW + 360 * DAY) is None
    assert authority.add_names(["x.example"], NOW) is None


def test_names_are_added_to_those_that_are_there(home):
    """Once each; the key and the authority stay, and what is there already changes nothing."""
    authority = LocalAuthority(home)
    added = authority.add_names(["new.example", "localhost", "192.0.2.1", "new.example"], NOW)
    after = home.cert_path.read_bytes()

    assert added == ["new.example", "192.0.2.1"]
    assert set(leaf(home).names) == {*NAMES, "new.example", "192.0.2.1"}
    assert authority.add_names(["new.example"], NOW) == []
    assert home.cert_path.read_bytes() == after
    assert is_signed_by(after, home.ca_path.read_bytes())


@pytest.mark.parametrize("broken", ["ca_path", "ca_key_path", "cert_path"])
def test_damaged_file_is_one_sentence(home, broken):
    """The error names a file, and nothing is written."""
    getattr(home, broken).write_text("junk")
    before = home.cert_path.read_bytes()

    with pytest.raises(HostError, match=r"cannot (read|sign)"):
        LocalAuthority(home).renew(NOW + 360 * DAY)
    assert home.cert_path.read_bytes() == before


def test_folder_that_cannot_be_written_is_one_sentence(home):
    """The old leaf stays."""
    before = home.cert_path.read_bytes()
    home.cert_path.unlink()
    home.cert_path.mkdir()

    with pytest.raises(HostError, match=r"cannot read"):
        LocalAuthority(home).renew(NOW + 360 * DAY)
    home.cert_path.rmdir()
    home.cert_path.write_bytes(before)
    assert LocalAuthority(home).renew(NOW + 360 * DAY) is not None
