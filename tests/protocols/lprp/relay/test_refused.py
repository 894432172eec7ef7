"""Laws of relay.refused: a peer that met a limit is named where it may be, and a flood of names stays bounded."""

import pytest

from tests.protocols.lprp.build import HOST, SENDER, TENANT, sealed
from waystation.core.facts import Refused
from waystation.protocols.lprp.messages import Command
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.relay.refused import NAMED_MAX, OF_NETWORKS, RefusedCounts

ASKED = sealed(SENDER, TENANT, Command.RELAY)
LEASE = sealed(SENDER, HOST, Command.ASK_LEASE, bytes(64))


@pytest.mark.parametrize("refusal", Refusal)
def test_datagram_names_its_network_at_limits_of_checks_only(refusal):
    """Its sender is not proved; a refusal that any junk gets names nobody."""
    counts = RefusedCounts()
    counts.note_datagram(refusal, "2001:db8:7:ab00::/56")
    network = b"net:2001:db8:7::/48" if refusal in OF_NETWORKS else None

    assert counts.take() == [Refused("lprp", None, refusal.value, 1, network)]
    assert counts.take() == []


@pytest.mark.parametrize("refusal", Refusal)
def test_sender_of_mail_is_never_named(refusal):
    """A refused 102 leaves a fact with its recipient, so none beside it may name its sender."""
    counts = RefusedCounts()
    counts.note_reply(refusal, ASKED)
    named = {fact.identity for fact in counts.take()} - {None}

    assert named <= {TENANT.public} or refusal.command in (Command.LEASE_REFUSED, Command.WHITELIST_DIFFERS)


def test_newcomer_is_named():
    """Whoever asks for a lease has signed that."""
    counts = RefusedCounts()
    counts.note_reply(Refusal.TENANTS_FULL, LEASE)

    assert counts.take() == [Refused("lprp", SENDER.public, "tenants_full")]


@pytest.mark.parametrize(
    ("command", "network"),
    [
        (Command.LEASE_REFUSED, b"net:192.0.2.0/24"),
        (Command.WORK_REFUSED, b"net:192.0.2.0/24"),
        (Command.RELAY_REFUSED, None),
    ],
)
def test_silence_names_the_network_where_no_mail_is_refused(command, network):
    """The ration of refusing answers is a network's."""
    counts = RefusedCounts()
    counts.note_silence(command, "192.0.2.0/24")

    assert counts.take() == [Refused("lprp", None, "refusal_rate", 1, network)]


def test_names_of_a_flood_are_bounded():
    """Beyond so many networks in one turn the rest is counted together, and nothing is lost."""
    counts = RefusedCounts()
    for number in range(1_000):
        counts.note_datagram(Refusal.VERIFY_RATE, f"10.{number >> 8}.{number & 255}.0/24")
    facts = counts.take()

    assert len(facts) == NAMED_MAX + 1 and sum(fact.times for fact in facts) == 1_000
