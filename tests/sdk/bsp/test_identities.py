"""One key for device and relay, unless told otherwise."""

import pytest

from waystation.core.errors import LocalError
from waystation.crypto.signing import KeyPair
from waystation.sdk.bsp.identities import Identities

ALICE, BOB, CAROL = (KeyPair.from_seed(bytes([each]) * 32) for each in (1, 2, 3))


def test_same_key_by_default():
    """Whoever is not named has one key for both, in either direction."""
    identities = Identities()

    assert identities.relay_key_of(ALICE.public) == ALICE.public
    assert identities.peer_of(ALICE.public) == ALICE.public


def test_mapped_key():
    """A named peer is found by its key at the relay, and the other way round; the others stay as they are."""
    identities = Identities({ALICE.public: CAROL.public})

    assert identities.relay_key_of(ALICE.public) == CAROL.public
    assert identities.peer_of(CAROL.public) == ALICE.public
    assert identities.peer_of(BOB.public) == BOB.public


def test_two_peers_with_one_key_are_refused():
    """A message of that key could be of either."""
    with pytest.raises(LocalError, match="one key"):
        Identities({ALICE.public: CAROL.public, BOB.public: CAROL.public})
