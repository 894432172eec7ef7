"""Laws of server.certificates.report: each kind of certificate has its own remedy."""

import datetime

import pytest
from cryptography.hazmat.primitives import serialization

from tests.server.certificates.build import EVERY_TLS_LISTENER, SETTINGS, write_pair
from waystation.server.certificates.authority import LocalAuthority
from waystation.server.certificates.report import report_certificates
from waystation.server.certificates.succession import Succession
from waystation.server.config.load import load_config
from waystation.server.home import Home

NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)


@pytest.fixture
def home(tmp_path):
    """A home that is made, with a name of its own in its certificate."""
    home = Home(tmp_path / "home")
    home.ensure(NOW, ["localhost", "relay.example"])
    return home


def reported(home, days=0, **settings):
    """Return the reports on a configuration, so many days later."""
    named = {name.replace("__", "."): str(value) for name, value in settings.items()}
    return report_certificates(load_config(None, {}, named), home, NOW + days * DAY)


def only(home, days=0, **settings):
    """Return the one report there is."""
    (report,) = reported(home, days, **settings)
    return report


def test_every_tls_listener_is_reported_once(home):
    """Those of one certificate together, by the settings of their addresses."""
    report = only(home, **EVERY_TLS_LISTENER)

    assert sorted(report.listeners) == sorted(SETTINGS)
    assert report.good
    for part in ("good until 2027-03-01", "for localhost, relay.example", "its key fits", "renews it 30 days ahead"):
        assert part in report.says


def test_listeners_without_tls_are_not_reported(home):
    """A node of plain ports needs no certificate."""
    assert reported(home, bhumi__tls="", bsp__tls="") == []


def test_home_that_is_not_made_is_no_trouble(tmp_path):
    """Both init and serve make it."""
    assert only(Home(tmp_path / "nowhere")).good


@pytest.mark.parametrize(("days", "good"), [(0, True), (334, True), (336, False), (400, False)])
def test_local_leaf_is_renewed_by_the_node(home, days, good):
    """Within 30 days of its end something keeps the node from it; the remedy is to run it."""
    report = only(home, days)

    assert report.good is good
    assert good or "waystation serve renews it" in report.says
    assert ("ended on" in report.says) is (days == 400)


def test_leaf_without_the_key_of_its_authority_waits_for_the_next_authority(home):
    """The sentence says from when on the node makes one, and then from when on it counts and who needs the file."""
    home.ca_key_path.unlink()
    early, late = only(home), only(home, 340)
    Succession(home).advance(NOW)
    made = only(home)

    assert (early.good, late.good, made.good) == (True, False, True)
    for report in (early, late):
        assert "waystation serve makes the next authority by itself from 2026-03-01 on" in report.says
    assert "cannot renew it without ca.key" in early.says
    assert f"{home.next_ca_path} counts from 2027-01-30 on" in made.says and "other clients need the file" in made.says


def test_authority_that_ends_is_followed_by_the_next(home):
    """While it is told of nothing is wrong; a switch that did not happen is."""
    LocalAuthority(home).renew(NOW + 3_400 * DAY)
    Succession(home).advance(NOW + 3_400 * DAY)
    early, late = only(home, 3_480), only(home, 3_622)

    assert (early.good, late.good) == (True, False)
    assert "its authority" in late.says
    for report in (early, late):
        assert f"the next authority {home.next_ca_path} counts from" in report.says


def test_own_certificate_is_renewed_where_it_came_from(home, tmp_path):
    """Running init would not help, so the sentence does not say it."""
    files = write_pair(tmp_path / "own", now=NOW)
    named = {"node__cert": files.cert, "node__key": files.key}
    early, late = only(home, **named), only(home, 350, **named)

    assert (early.good, late.good) == (True, False)
    assert "takes over what its issuer renews" in early.says
    assert "have it renewed where it was issued" in late.says and "init" not in late.says


@pytest.mark.parametrize("damage", ["other key", "junk", "gone"])
def test_what_cannot_be_shown_is_named_with_its_setting(home, tmp_path, damage):
    """The sentence leads to the line of the file that has to change, or to the file that has to come back."""
    files, other = write_pair(tmp_path / "own", now=NOW), write_pair(tmp_path / "other", now=NOW)
    if damage == "gone":
        files.cert.unlink()
    else:
        files.key.write_bytes(other.key.read_bytes() if damage == "other key" else b"junk")
    report = only(home, node__cert=files.cert, node__key=files.key)

    assert not report.good
    assert "look at node.cert and its key" in report.says and str(files.cert) in report.says


def test_key_with_a_passphrase_is_named_as_such(home, tmp_path):
    """OpenSSL says "PEM lib" of it; the operator needs the command that takes it off."""
    files = write_pair(tmp_path / "own", now=NOW)
    key = serialization.load_pem_private_key(files.key.read_bytes(), password=None)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    files.key.write_bytes(key.private_bytes(*form, serialization.BestAvailableEncryption(b"secret")))
    report = only(home, node__cert=files.cert, node__key=files.key)

    assert not report.good
    assert f"{files.key} has a passphrase" in report.says and "fit together" not in report.says


def test_key_that_others_may_read_is_named_with_the_command(home, tmp_path):
    """Every user of the machine could show the certificate as its own."""
    files = write_pair(tmp_path / "own", now=NOW)
    files.key.chmod(0o644)
    report = only(home, node__cert=files.cert, node__key=files.key)

    assert not report.good
    assert report.says.endswith(f"run: chmod o-rwx {files.key}")


def test_certificate_of_tomorrow_asks_for_the_clock(home):
    """Nobody issues one for later: the clock is wrong, here or there."""
    report = only(home, -3)

    assert not report.good
    assert "good only from 2026-02-28" in report.says and "clock" in report.says


def test_certificate_without_names_is_of_little_use(home):
    """Clients that check names refuse it."""
    report = only(home, node__cert=home.ca_path, node__key=home.ca_key_path)

    assert not report.good
    assert "subject alternative name" in report.says


def test_table_with_its_own_certificate_has_its_own_report(home, tmp_path):
    """And its own setting in the sentence."""
    named = {"bsp__cert": tmp_path / "gone.crt", "bsp__key": tmp_path / "gone.key"}
    reports = {report.listeners: report for report in reported(home, **named)}

    assert reports[("bhumi.tls",)].good
    assert "look at bsp.cert and its key" in reports[("bsp.tls",)].says
