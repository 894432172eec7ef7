"""Laws of protocols.bhumi.probes_asked: devices are asked seldom, and their answers are counted and no more."""

import itertools

from tests.protocols.bhumi.build import KEYS
from tests.protocols.bhumi.build_open import ALICE, Country, address_of, advert
from waystation.protocols.bhumi.extension_messages import Gossip, QaReport, QaRequest, QaVerdict
from waystation.protocols.bhumi.limits import BhumiLimits
from waystation.protocols.bhumi.messages import Feature, Keepalive, Options

PEER = "tls://peer.example:1"


class Rig:
    """A relay with one peer of the operator's and a device that keeps its connection alive."""

    def __init__(self, **settings):
        self.country = Country(peers={0: [7]}, **settings)
        self.device = self.country.guest(features=Feature.QA, key=ALICE)

    def requests(self, seconds, device=None):
        """Let time pass and return what the device was asked, with the second in which it was."""
        found = []
        guest = device or self.device
        for second in range(seconds):
            self.country.pass_s(1)
            if second % 40 == 0:
                self.device.say(Keepalive())
                guest.say(Keepalive())
            found += [(second, message) for message in guest.hear() if isinstance(message, QaRequest)]
        return found


def test_device_is_asked_once_in_ten_minutes():
    """In two hours it is asked eleven or twelve times, never twice within ten minutes, each time with a number."""
    asked = Rig().requests(7_200)
    seconds = [second for second, _ in asked]

    assert len(asked) in (11, 12)
    assert all(later - before >= 600 for before, later in itertools.pairwise(seconds))
    assert {(request.address, request.deadline_s) for _, request in asked} == {(address_of(7), 60)}
    assert len({request.probe_id for _, request in asked}) == len(asked)


def test_new_connection_of_a_device_does_not_reset_its_rest():
    """Whoever reconnects all the time is not asked all the time."""
    rig = Rig()
    asked = []
    for _ in range(30):
        asked += rig.requests(60)
        rig.device.hang_up()
        rig.device = rig.country.guest(features=Feature.QA, key=ALICE)

    assert len(asked) <= 3


def test_device_that_has_taken_its_word_back_is_not_asked():
    """OPTIONS without the bit is the newer agreement."""
    rig = Rig()
    rig.device.say(Options(Feature.I_AM_OK)).hear()

    assert rig.requests(1_300) == []


def test_device_that_did_not_agree_is_never_asked():
    """Nor is one that has no identity."""
    rig = Rig()
    plain = rig.country.guest(features=Feature.I_AM_OK, key=KEYS[1])
    anonymous = rig.country.guest(features=Feature.QA)

    assert rig.requests(1_300, plain) == []
    assert rig.requests(1_300, anonymous) == []


def test_nobody_is_asked_without_a_candidate():
    """A relay that knows no other has nothing to ask."""
    country = Country()
    rig = Rig.__new__(Rig)
    rig.country, rig.device = country, country.guest(features=Feature.QA, key=ALICE)

    assert rig.requests(1_300) == []


def test_candidates_are_peers_and_verified_adverts():
    """And nothing else that anybody has named."""
    rig = Rig()
    contact = rig.country.contact()
    contact.say(Gossip((advert(3, 0, 3_600), advert(4, 0, 3_600, "tls://127.0.0.1:1"))))
    rig.country.relays[0].discovered("tcp://192.168.1.9:1", rig.country.now)
    devices = [rig.country.guest(features=Feature.QA, key=key) for key in KEYS[2:]]
    for _ in range(20):
        rig.country.pass_s(40)
        for device in devices:
            device.say(Keepalive())
    seen = {message.address for device in devices for message in device.hear() if isinstance(message, QaRequest)}

    assert seen == {address_of(3), address_of(7)}


def test_reports_are_counted_by_verdict():
    """That is all that becomes of them (BHUMI-QALOCAL)."""
    rig = Rig()
    verdicts = [QaVerdict.REFUSED, QaVerdict.SLOW, QaVerdict.REFUSED]
    for verdict in verdicts:
        while not (asked := rig.requests(1)):
            pass
        rig.device.say(QaReport(asked[0][1].probe_id, verdict, 5))

    probes = rig.country.relays[0].view(rig.country.now)["probes"]
    assert (probes["asked"], probes["refused"], probes["slow"], probes["ok"]) == (3, 2, 1, 0)
    assert rig.country.refusals() == {}


def test_unasked_late_or_repeated_reports_are_refused():
    """They count for nothing."""
    rig = Rig()
    rig.device.say(QaReport(1, QaVerdict.OK))
    ((_, request),) = rig.requests(600)
    rig.country.pass_s(1)
    rig.device.say(QaReport(request.probe_id ^ 1, QaVerdict.OK))
    rig.country.pass_s(61)
    rig.device.say(QaReport(request.probe_id, QaVerdict.OK))
    rig.device.say(QaReport(request.probe_id, QaVerdict.OK))

    assert rig.country.refusals()["unasked_report"] >= 3
    assert rig.country.relays[0].view(rig.country.now)["probes"]["ok"] == 0


def test_qa_may_be_off():
    """Then the feature is not offered, and nobody is asked."""
    country = Country(qa=False)

    assert country.relays[0].view(country.now)["probes"] == {}


def test_devices_remembered_are_bounded():
    """When too many were asked lately, nobody else is."""
    rig = Rig(limits=BhumiLimits(probed_devices=1))
    other = rig.country.guest(features=Feature.QA, key=KEYS[5])
    asked = 0
    for _ in range(15):
        asked += len(rig.requests(30)) + len(rig.requests(30, other))

    assert asked <= 2
    assert rig.country.relays[0].sizes()["probed_devices"] == 1
