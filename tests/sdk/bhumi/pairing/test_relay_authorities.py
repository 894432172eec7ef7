"""Laws of sdk.bhumi.pairing.relay_authorities: what a relay tells of its authorities, and whom it is believed for."""

import datetime

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from tests.protocols.bhumi.build import World, i_am
from waystation.crypto.certificates import der_of, make_local_certificates
from waystation.protocols.bhumi.extension_messages import Authority
from waystation.protocols.bhumi.messages import Feature, Options
from waystation.sdk.bhumi import BhumiState
from waystation.sdk.bhumi.pairing.relay_authorities import RELAYS_MAX, RelayAuthorities
from waystation.server.certificates.in_force import Certificates
from waystation.server.config.load import load_config
from waystation.server.home import Home
from waystation.transport.tls import client_context

START = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
RELAY, OTHER = "tls://relay.example:8443", "tls://other.example:8443"
A, B, C = (der_of(make_local_certificates(["localhost"], START).ca_pem) for _ in range(3))


@pytest.fixture
def state(tmp_path):
    """A device's home."""
    state = BhumiState(tmp_path / "device")
    yield state
    state.close()


def trusted(told, url=RELAY, given=None):
    """Return what is tried in turn: None for what the user gave."""
    return [der for _, der in told.contexts(url, given)]


def test_told_authority_is_tried_behind_what_was_given_until_it_is_in_use(state):
    """Then it is the first, so that a switch costs one failed handshake."""
    told = RelayAuthorities(state)
    told.keep(RELAY, A)
    told.keep(RELAY, B)
    before = trusted(told)
    told.works(RELAY, B)

    assert (before, trusted(told)) == ([None, B, A], [B, None])


def test_older_authority_leaves_once_the_newer_one_has_verified_a_connection(state):
    """Not before, and the newer one stays when the older one works."""
    told = RelayAuthorities(state)
    told.keep(RELAY, A)
    told.keep(RELAY, B)
    told.works(RELAY, A)
    both = told.of(RELAY)
    told.works(RELAY, B)

    assert (both, told.of(RELAY), told.in_use(RELAY)) == ([B, A], [B], B)


def test_third_authority_takes_the_place_of_the_one_that_is_not_in_use(state):
    """Two a relay, whatever it tells; what is known already is no news."""
    told = RelayAuthorities(state)
    told.keep(RELAY, A)
    told.works(RELAY, A)
    news = [told.keep(RELAY, der) for der in (B, C, C, A)]

    assert (news, told.of(RELAY)) == ([True, True, False, False], [C, A])


def test_relay_adds_an_authority_for_itself_alone(state):
    """A hostile one can make us trust its own certificate at its own address, which it has already, and no other."""
    told = RelayAuthorities(state)
    told.keep(OTHER, A)

    assert trusted(told, RELAY) == [None]
    ((_, _), (context, _)) = list(told.contexts(OTHER, None))
    assert context.get_ca_certs(binary_form=True) == [A] and context.check_hostname


def test_kept_over_a_restart_and_bounded(tmp_path):
    """The relays that were told of longest ago leave."""
    first = BhumiState(tmp_path / "device")
    for number in range(RELAYS_MAX + 3):
        RelayAuthorities(first).keep(f"tls://relay{number}.example:1", A)
    first.close()
    again = BhumiState(tmp_path / "device")
    kept = [bool(RelayAuthorities(again).of(f"tls://relay{number}.example:1")) for number in range(RELAYS_MAX + 3)]
    again.close()

    assert kept == [False] * 3 + [True] * RELAYS_MAX


def test_device_that_verifies_nothing_uses_nothing_it_was_told(state):
    """It was asked to take any certificate, and takes any."""
    told = RelayAuthorities(state)
    told.keep(RELAY, A)
    told.works(RELAY, A)

    assert trusted(told, given=client_context(verify=False)) == [None]


class Life:
    """A node's certificates and relay, and a device that trusts ``ca.pem`` of the first day, on simulated days."""

    def __init__(self, folder, state, *, has_key=True):
        self.home = Home(folder / "home")
        self.home.ensure(START, ["localhost"])
        self.given = der_of(self.home.ca_path.read_bytes())
        if not has_key:
            self.home.ca_key_path.unlink()
        self.certificates = Certificates(load_config(None, {}, {}), self.home, self._tell)
        self.certificates.use(load_config(None, {}, {}), START)
        self.told = RelayAuthorities(state)
        self.key = state.key_pair
        self.relay_of_today = World()
        self._tell()

    def _tell(self):
        self.relay_of_today.relay.authorities.use(self.certificates.authorities("bhumi"))

    def verifies(self, der, day):
        """Return whether an authority vouches for the leaf that is shown on a day."""
        leaf = x509.load_pem_x509_certificate(self.home.cert_path.read_bytes())
        policy = PolicyBuilder().store(Store([x509.load_der_x509_certificate(der)])).time(START + day * DAY)
        try:
            policy.build_server_verifier(x509.DNSName("localhost")).verify(leaf, [])
        except VerificationError:
            return False
        return True

    def connect(self, day):
        """Connect on a day and keep what the relay tells; return whether the connection could be verified."""
        for der in trusted(self.told):
            if self.verifies(der or self.given, day):
                break
        else:
            return False
        if der is not None:
            self.told.works(RELAY, der)
        line = self.relay_of_today.connect()
        line.say(Options(Feature.AUTHORITY), i_am(self.key, line.nonce))
        for message in line.hear():
            if isinstance(message, Authority):
                self.told.keep(RELAY, message.der)
        line.hang_up()
        return True

    def pass_to(self, day):
        """Let the node look at its certificates on a day."""
        self.certificates.look(START + day * DAY)


@pytest.mark.parametrize("has_key", [True, False])
def test_whole_life_over_ten_years_and_more_without_a_cable(tmp_path, state, has_key):
    """A device that is on every other month connects over every change of leaf and authority, also of an old home."""
    life = Life(tmp_path, state, has_key=has_key)
    connected = []
    for day in range(0, 7_400, 20):
        life.pass_to(day)
        if day % 60 == 0:
            connected.append(life.connect(day))
            assert len(life.told.of(RELAY)) <= 2

    assert all(connected) and len(connected) == 124
    assert not life.verifies(life.given, 7_380)


def test_device_that_was_off_the_whole_time_is_refused(tmp_path, state):
    """Nobody has told it of the next authority; it trusts the old one, and nothing else."""
    life = Life(tmp_path, state)
    first = life.connect(0)
    for day in (3_290, 3_625):
        life.pass_to(day)

    assert (first, life.connect(3_626)) == (True, False)
