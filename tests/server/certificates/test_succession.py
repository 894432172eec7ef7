"""Laws of server.certificates.succession: when the next authority is made, and how it becomes the valid one."""

import datetime

import pytest

from tests.server.certificates.build import write_pair
from waystation.core.errors import HostError
from waystation.crypto.certificates import der_of, is_signed_by, read_certificate
from waystation.server.certificates.authority import CertificateKind, LocalAuthority
from waystation.server.certificates.succession import Step, Succession
from waystation.server.home import Home

NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
NAMES = ["localhost", "relay.example"]


@pytest.fixture
def home(tmp_path):
    """A home that is made."""
    home = Home(tmp_path / "home")
    home.ensure(NOW, NAMES)
    return home


def at(home, day):
    """Do what is due on a day; return the steps."""
    succession, steps = Succession(home), []
    while (step := succession.advance(NOW + day * DAY)) is not None:
        steps.append(step)
    LocalAuthority(home).renew(NOW + day * DAY)
    return steps


def contents(home):
    """Return every file of the folder."""
    return {path.name: path.read_bytes() for path in sorted(home.tls_path.iterdir())}


def whole(home):
    """Return whether leaf, authority and key belong together, and no next one is left."""
    fits = is_signed_by(home.cert_path.read_bytes(), home.ca_path.read_bytes())
    return fits and not home.next_ca_path.exists() and not home.next_ca_key_path.exists()


def test_next_authority_is_made_a_year_ahead_and_switched_to_30_days_ahead(home):
    """Between the two the old one is served; names and the leaf's key stay."""
    ca, key = home.ca_path.read_bytes(), home.tls_key_path.read_bytes()
    days = {day: at(home, day) for day in (0, 3_284, 3_285, 3_300, 3_619)}
    before = home.ca_path.read_bytes(), is_signed_by(home.cert_path.read_bytes(), ca)
    successor = home.next_ca_path.read_bytes()
    switched = at(home, 3_620)
    leaf = read_certificate(home.cert_path.read_bytes())

    assert days == {0: [], 3_284: [], 3_285: [Step.MADE], 3_300: [], 3_619: []}
    assert (before, switched) == ((ca, True), [Step.SWITCHED])
    assert home.ca_path.read_bytes() == successor and whole(home)
    assert set(leaf.names) == set(NAMES) and home.tls_key_path.read_bytes() == key
    assert home.ca_key_path.stat().st_mode & 0o777 == 0o600


def test_home_without_a_key_goes_on_when_its_leaf_ends(home):
    """The homes of earlier versions: their leaf cannot be renewed, so its end counts, and afterwards there is a key."""
    home.ca_key_path.unlink()
    steps = [at(home, day) for day in (0, 300, 335)]

    assert steps == [[Step.MADE], [], [Step.SWITCHED]]
    assert LocalAuthority(home).kind_of(home.tls_files()) is CertificateKind.LOCAL and whole(home)


@pytest.mark.parametrize(("begun", "day"), [(3_570, 3_629), (3_610, 3_649), (3_700, 3_700)])
def test_node_that_was_off_gives_devices_what_time_is_left(home, begun, day):
    """60 days from the making, at the latest a day before the end, and at once where that is over."""
    first = at(home, begun)
    if day != begun:
        assert first == [Step.MADE] and at(home, day - 1) == []
        first += at(home, day)

    assert first == [Step.MADE, Step.SWITCHED] and whole(home)


@pytest.mark.parametrize("cut", ["leaf", "key"])
def test_switch_that_was_cut_short_goes_on(home, cut, tmp_path):
    """A crash behind the leaf, or behind the authority's key: the leaf stays ours, and the next start ends it."""
    at(home, 3_300)
    old = contents(home)
    at(home, 3_625)
    new = contents(home)
    home.next_ca_path.write_bytes(new["ca.pem"])
    home.ca_path.write_bytes(old["ca.pem"])
    if cut == "leaf":
        home.next_ca_key_path.write_bytes(new["ca.key"])
        home.ca_key_path.write_bytes(old["ca.key"])
    kind = LocalAuthority(home).kind_of(home.tls_files())

    assert kind is CertificateKind.LOCAL
    assert at(home, 3_625) == [Step.SWITCHED]
    assert contents(home) == new


def test_making_that_was_cut_short_begins_anew(home):
    """A key without its authority is written over."""
    home.next_ca_key_path.write_text("half")

    assert at(home, 3_300) == [Step.MADE]
    assert at(home, 3_625) == [Step.SWITCHED] and whole(home)


def test_next_authority_of_a_fast_clock_is_made_again(home):
    """One that begins tomorrow would be refused by those who look."""
    at(home, 3_400)
    fast = home.next_ca_path.read_bytes()

    assert at(home, 3_300) == [Step.MADE]
    assert home.next_ca_path.read_bytes() != fast


def test_nothing_is_done_before_the_authority_began(home):
    """The clock is wrong."""
    home.ca_key_path.unlink()

    assert at(home, -2) == []


def test_certificate_of_somebody_else_is_left_alone(home, tmp_path):
    """Whatever its end; and nothing is shown for it."""
    own = write_pair(tmp_path / "own", now=NOW)
    home.cert_path.write_bytes(own.cert.read_bytes())
    home.tls_key_path.write_bytes(own.key.read_bytes())

    assert at(home, 3_640) == []
    assert (Succession(home).successor(), Succession(home).made_at(), Succession(home).shown()) == (None, None, [])


def test_both_are_shown_while_there_are_two(home):
    """The valid one first, in DER; afterwards the new one alone."""
    alone = Succession(home).shown()
    at(home, 3_300)
    both = Succession(home).shown()
    at(home, 3_625)

    assert (len(alone), both[0], both[1:]) == (1, alone[0], Succession(home).shown())
    assert both[1] == der_of(home.ca_path.read_bytes())


@pytest.mark.parametrize("broken", ["next_ca_path", "next_ca_key_path"])
def test_damaged_file_is_one_sentence(home, broken):
    """The old certificate goes on."""
    at(home, 3_300)
    getattr(home, broken).write_text("junk")
    leaf = home.cert_path.read_bytes()

    with pytest.raises(HostError, match=r"cannot (use|read)"):
        Succession(home).advance(NOW + 3_625 * DAY)
    assert home.cert_path.read_bytes() == leaf


def test_disk_that_refuses_is_one_sentence(home):
    """Nothing has changed, and the next look tries again."""
    home.next_ca_key_path.mkdir()

    with pytest.raises(HostError, match="next authority"):
        Succession(home).advance(NOW + 3_300 * DAY)
    home.next_ca_key_path.rmdir()
    assert at(home, 3_300) == [Step.MADE]
