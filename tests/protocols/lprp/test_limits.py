"""Laws of protocols.lprp.limits: the defaults are the wire reference's, and what an operator sets is what holds."""

from dataclasses import fields, replace

import pytest

from tests.protocols.lprp.build import SENDER, TENANT, VISITOR
from tests.protocols.lprp.build_relay import AFAR, Host, Person, commands, friends, world
from waystation.protocols.lprp.limits import DEFAULT_LIMITS, LprpLimits
from waystation.protocols.lprp.messages import Command
from waystation.protocols.lprp.refusals import Refusal


def test_defaults_are_those_of_the_wire_reference():
    """What specs/lprp.md 7 promises holds where the operator sets nothing."""
    of_tables = LprpLimits(
        whitelist_keys=256,
        queue_packets=256,
        unlisted_packets=64,
        unlisted_packets_per_sender=16,
        mail_bytes=512 * 1_048_576,
        challenges=16_384,
        challenges_per_network=32,
        challenges_per_key=4,
        challenges_per_recipient=64,
        stored_answers=32_768,
        known_packets=262_144,
        sources=65_536,
        networks=65_536,
    )
    of_rates = LprpLimits(
        work_refusals_per_challenge=32,
        refusals_per_second=10,
        checks_waiting=4_096,
        checks_waiting_per_network=1_024,
        checks_waiting_untrusted=512,
        checks_per_second=4_000,
        bad_signatures_per_second=100,
        bad_signatures_burst=256,
    )

    assert of_tables == of_rates == DEFAULT_LIMITS


@pytest.mark.parametrize("field", fields(LprpLimits), ids=lambda field: field.name)
def test_limit_has_a_use_that_the_relay_counts(field):
    """What a limit is compared with is a size of the relay, and its refusal one of the protocol's reasons."""
    declared = field.metadata

    assert declared["use"] in ("", *Host().sizes)
    assert declared["refusal"] in ("", *(refusal.value for refusal in Refusal))
    assert declared["at_most"] >= field.default


def test_queue_is_as_long_as_the_operator_says():
    """A smaller queue refuses earlier and names its owner, never the sender; a raised one takes the packet at once."""
    host, tenant, sender = friends(limits=LprpLimits(queue_packets=2))
    letters = [sender.letter(tenant, number.to_bytes(64, "big")) for number in range(3)]
    answers = [commands(sender.repeat(letter)) for letter in letters]
    host.relay.use_limits(LprpLimits(queue_packets=3))
    later = commands(sender.repeat(letters[2]))
    assert Command.RELAY_REFUSED in answers[2] and Command.RELAY_ACCEPTED in later
    assert [(fact.identity, fact.network) for fact in host.met if fact.reason == "queue_full"] == [
        (TENANT.public, None)
    ]


def test_newcomer_without_a_place_is_named():
    """Who is refused a lease is named by the key that asked for it."""
    host = Host(tenants_max=0)
    Person(host, VISITOR).say(Command.ASK_LEASE, bytes(64))

    assert [(fact.identity, fact.reason) for fact in host.met] == [(VISITOR.public, Refusal.TENANTS_FULL.value)]


def test_network_that_uses_up_its_checks_is_named():
    """Before a signature is checked nobody has proved a key, so the network of the address is named."""
    host, tenant, sender = friends()
    host.relay.use_limits(LprpLimits(checks_per_second=1))
    letters = [sender.letter(tenant, number.to_bytes(64, "big")) for number in range(4)]
    first = commands(sender.repeat(letters[0])) + commands(sender.repeat(letters[1]))
    host.relay.use_limits(replace(DEFAULT_LIMITS, checks_per_second=100))
    second = commands(sender.repeat(letters[2])) + commands(sender.repeat(letters[3]))
    named = {(fact.identity, fact.network) for fact in host.met if fact.reason == "verify_rate"}

    assert first.count(Command.RELAY_ACCEPTED) == 1 and second.count(Command.RELAY_ACCEPTED) == 2
    assert named == {(None, f"net:{AFAR[0].rpartition('.')[0]}.0/24".encode())}
    assert SENDER.public not in {fact.identity for fact in host.met}


def test_whitelist_over_a_lowered_limit_can_shrink():
    """A list that is longer than a new limit stays, loses keys, and takes no more."""
    host, tenant, _ = world()
    keys = [bytes([number]) * 32 for number in range(2, 5)]
    tenant.toggle(*keys)
    host.relay.use_limits(LprpLimits(whitelist_keys=1))
    host.pass_ms(600_000)
    more = tenant.toggle(b"\x09" * 32, current=keys)
    host.pass_ms(600_000)
    fewer = tenant.toggle(keys[0], current=keys)

    assert Command.WHITELIST_DONE not in commands(more) and Command.WHITELIST_DONE in commands(fewer)
