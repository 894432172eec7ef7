"""Laws of protocols.bhumi.limits: the defaults are the wire reference's, and what an operator sets is what holds."""

from dataclasses import fields

import pytest

from tests.protocols.bhumi.build import ALICE, BOB, World, commit, send
from tests.protocols.bhumi.build_open import Country, advert, presence
from waystation.core.facts import Refused
from waystation.protocols.bhumi.extension_messages import Gossip, Where
from waystation.protocols.bhumi.limits import DEFAULT_LIMITS, BhumiLimits
from waystation.protocols.bhumi.messages import Ack, SendResult, UpdateCommits
from waystation.protocols.bhumi.refusals import Refusal


def test_defaults_are_those_of_the_decisions():
    """What BHUMI-L, BHUMI-FLOOD and those about single limits promise holds where the operator sets nothing."""
    of_devices = BhumiLimits(
        sends_per_second=200,
        sends_burst=400,
        outstanding_sends=16,
        pending_per_recipient=32,
        joiners=1_024,
        ack_strikes=16,
        commits_per_identity=4_096,
        cached_responses=65_536,
        cached_bytes=64 * 1_048_576,
        cached_response_bytes=256 * 1_024,
        carried_bytes_per_identity=4 * 1_048_576,
        questions_per_second=5,
        questions_burst=20,
        presences_per_minute=6,
        presences_burst=16,
    )
    of_relays = BhumiLimits(
        presences=100_000,
        contacts=64,
        contacts_per_address=4,
        records_per_second=2_000,
        records_burst=20_000,
        gossip_frames_per_second=64,
        gossip_frames_burst=512,
        record_strikes=16,
        dials_per_minute=20,
        dials_burst=16,
    )

    assert of_devices == of_relays == DEFAULT_LIMITS


@pytest.mark.parametrize("field", fields(BhumiLimits), ids=lambda field: field.name)
def test_limit_has_a_use_that_the_relay_counts(field):
    """What a limit is compared with is a size of the relay, and its refusal one of the protocol's reasons."""
    declared = field.metadata

    assert declared["use"] in ("", *Country().relays[0].sizes())
    assert declared["refusal"] in ("", *(refusal.value for refusal in Refusal))
    assert declared["at_most"] >= field.default >= declared["at_least"]


def test_queue_of_a_device_is_as_long_as_the_operator_says():
    """A raised limit takes the next delivery at once; the fact names the device, never who sends."""
    world = World(limits=BhumiLimits(pending_per_recipient=1))
    world.device(ALICE, commits=[1, 2])
    sender = world.connect()
    sender.say(send(ALICE, 1), send(ALICE, 2))
    refused = [fact for fact in world.facts if isinstance(fact, Refused)]
    world.relay.use_limits(BhumiLimits(pending_per_recipient=2))
    again = world.connect().say(send(ALICE, 2))

    assert refused == [Refused("bhumi", ALICE.public, "recipient_queue_full")]
    assert again.hear() == []


def test_connections_get_the_new_rates_at_once():
    """A connection that stands at its allowance goes on as fast as the new limits let it."""
    country = Country(limits=BhumiLimits(questions_per_second=1, questions_burst=1))
    country.guest(key=ALICE).say(presence(ALICE, 0))
    guest = country.guest(host="192.0.2.7")
    before = [bool(guest.where(ALICE)) for _ in range(2)]
    country.relays[0].use_limits(BhumiLimits(questions_per_second=10, questions_burst=10))
    country.pass_s(1)
    after = [bool(guest.where(ALICE)) for _ in range(11)]

    assert before == [True, False]
    assert after == [True] * 10 + [False]


def test_exempt_identity_asks_without_a_rate_from_its_proof_on():
    """An allowance that its connection got before that is dropped (NODE-ACCESS)."""
    country = Country(limits=BhumiLimits(questions_burst=1))
    country.unlimited.add(ALICE.public)
    country.guest(key=BOB).say(presence(BOB, 0))
    guest = country.guest()
    before = [(len(guest.where(BOB)), len(guest.adverts())) for _ in range(2)]
    guest.identify(ALICE)
    after = [(len(guest.where(BOB)), len(guest.adverts())) for _ in range(3)]

    assert before == [(1, 1), (0, 0)]
    assert after == [(1, 1)] * 3


def test_anonymous_connection_at_a_limit_is_named_by_its_network():
    """The operator sees where a flood of questions comes from; the address itself is in no fact."""
    country = Country(limits=BhumiLimits(questions_burst=1))
    guest = country.guest(host="192.0.2.7")
    guest.say(Where(ALICE.public), Where(ALICE.public))

    assert [fact for _, fact in country.refused] == [
        Refused("bhumi", None, Refusal.WHERE_FLOOD.value, 1, b"net:192.0.2.0/24")
    ]


def test_network_of_a_sender_stands_in_no_fact():
    """Whatever becomes of what an anonymous connection sends, no refusal of it has its network (NODE-NAMED)."""
    world = World(limits=BhumiLimits(pending_per_recipient=1, joiners=1))
    world.device(ALICE, commits=[1, 2])
    for number in (1, 2, 1, 1, 1):
        sender = world.connect()
        world.relay._sessions[sender.peer].host = "192.0.2.7"
        sender.say(send(ALICE, number))
    sender.say(send(BOB, 9), Ack(7, b"never sent"))

    assert {fact.network for fact in world.facts if isinstance(fact, Refused)} == {None}
    assert world.refusals().keys() == {"recipient_queue_full", "too_many_joiners", "unsolicited_ack"}


def test_contacts_and_their_allowances_follow_the_limits():
    """Another relay gets a place, and its records are taken, as soon as the limits let them."""
    country = Country(limits=BhumiLimits(contacts=1, records_per_second=1, records_burst=1))
    contact = country.contact(number=9)
    contact.say(Gossip((advert(1), advert(2))))
    refused = country.contact(number=10).closed
    country.relays[0].use_limits(BhumiLimits(contacts=2, records_per_second=100, records_burst=100))
    country.pass_s(1)
    contact.say(Gossip((advert(3), advert(4))))

    assert refused is Refusal.CONTACTS_FULL and country.contact(number=10).closed is None
    assert country.relays[0].sizes()["neighbours"] == 3


def test_sends_of_a_connection_follow_the_limits():
    """What stands at its allowance is read on when a raised one lets it."""
    world = World(limits=BhumiLimits(sends_per_second=1, sends_burst=2))
    sender = world.connect()
    sender.say(*[send(ALICE, number) for number in range(4)])
    held = (sender.held, len(sender.hear()))
    world.relay.use_limits(BhumiLimits(sends_per_second=1_000, sends_burst=1_000))
    world.pass_ms(1_000)

    assert held == (True, 2)
    assert sender.hear() == [SendResult(1)] * 2 and not sender.held


def test_more_commits_than_one_frame_holds():
    """A device may keep as many as the operator lets it, frame by frame."""
    world = World(rate_limits=False, limits=BhumiLimits(commits_per_identity=8_192))
    device = world.device(ALICE, commits=range(4_096))
    flood = range(4_096, 8_192 + 5)
    device.say(UpdateCommits(tuple(commit(number) for number in flood[:4_096])))
    device.say(UpdateCommits(tuple(commit(number) for number in flood[4_096:])))

    assert world.relay.sizes()["commits"] == 8_192
    assert world.refusals() == {"commits_over_limit": 5}
