"""Laws of Strata about relays whose disk refuses, or has lost rows."""

import pytest

from tests.sim.strata.build import asked, caught_up, event, kept, made, published
from tests.sim.strata.test_invariants import broken, refused, stored
from waystation.sim.disk import PACKETS, Row
from waystation.sim.observations import DiskLost, DiskRefused

LOST = DiskLost(0, frozenset({Row(PACKETS, made(1).packet_id)}))
ELSEWHERE = LOST._replace(node=1)
SIGNER = DiskLost(0, frozenset({Row("strata_signers", b"did:strata:a" + bytes(33))}))
KEY = made(1)._replace(content_type="KEY_EVENT")


@pytest.mark.parametrize(
    ("law", "history", "upstreams"),
    [
        ("promise-kept", [made(1), published(1), stored()], (None, 0)),
        ("no-gap", [made(1), published(1), caught_up(promised=1)], (None, 0)),
        ("no-repeat", [asked(), event(1, "a"), event(2, "b"), asked("a", line=2), event(1, "c", line=2)], (None, 0)),
        ("converged", [made(1), stored(final=True), stored(kept(1), relay=1, final=True)], (1, None)),
        ("received-at", [made(1), asked(), event(1, told=99), stored(kept(1), final=True)], (None,)),
    ],
)
def test_nothing_is_asked_of_a_packet_that_the_disk_lost(law, history, upstreams):
    """A law that a history breaks holds in it once the disk of that relay has lost the packet, and of no other."""
    assert broken(*history, upstreams=upstreams) == law
    assert broken(LOST, *history, upstreams=upstreams) is None
    if law != "received-at":
        assert broken(ELSEWHERE, *history, upstreams=upstreams) == law


@pytest.mark.parametrize("loss", [LOST, SIGNER])
def test_relay_that_lost_a_key_cannot_know_it(loss):
    """It may refuse what that key has signed, and nothing else; another relay may not."""
    bad_signature = refused("invalid_signature", "bad_signature")

    assert broken(KEY, loss, bad_signature) is None
    assert broken(KEY, bad_signature) == "fair-verdict"
    assert broken(KEY, loss._replace(node=1), bad_signature) == "fair-verdict"
    assert broken(KEY, loss, refused("invalid_schema")) == "fair-verdict"


def test_relay_that_lost_a_key_is_not_compared():
    """It takes its upstream for a forger."""
    ends = [stored(final=True), stored(kept(1), relay=1, final=True)]

    assert broken(made(1), *ends, upstreams=(1, None)) == "converged"
    assert broken(made(1), SIGNER, *ends, upstreams=(1, None)) is None


def test_relay_says_that_it_cannot_store_only_when_its_disk_refused():
    """Before the disk has refused, and at another relay, it is untrue."""
    not_stored = refused("internal_error", "not_stored")

    assert broken(made(1), DiskRefused(0), not_stored) is None
    assert broken(made(1), not_stored) == "fair-verdict"
    assert broken(made(1), DiskRefused(1), not_stored) == "fair-verdict"
