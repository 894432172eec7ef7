"""Laws of sdk.bhumi.pairing.named: a named dialect is used where the pairing allows it, and refused elsewhere."""

import contextlib

import pytest

from tests.sdk.build import ALICE, PREIMAGE
from waystation.core.errors import LocalError
from waystation.protocols.bhumi.payload.invite import Invite
from waystation.protocols.bhumi.payload.pairing import PairedSuite
from waystation.sdk.bhumi import BhumiState, Dialect
from waystation.sdk.bhumi.pairing.named import dialect_for, dialect_of_invite
from waystation.sdk.bhumi.state import HandshakeFacts

LEGACY = Invite(ALICE.public, PREIMAGE)
PAIRED = Invite(ALICE.public, PREIMAGE, bytes(32), PairedSuite.CHACHA)


def peer(tmp_path, dialect, root=b""):
    """Return Alice as she was paired."""
    with contextlib.closing(BhumiState(tmp_path)) as state:
        state.finish(bytes(32), ALICE.public, (), HandshakeFacts("alice", "", dialect=dialect, root=root))
        return state.peer(ALICE.public)


def test_invite_says_what_its_handshake_is_in(tmp_path):
    """Without a wish the invite decides, and a known legacy peer keeps its dialect with a legacy invite."""
    known = peer(tmp_path, Dialect.SUITE_2)

    assert dialect_of_invite(None, PAIRED, None) is Dialect.SUITE_3
    assert dialect_of_invite(None, LEGACY, None) is Dialect.E2E
    assert dialect_of_invite(None, LEGACY, known) is Dialect.SUITE_2


@pytest.mark.parametrize(("named", "invite"), [(Dialect.SUITE_3, LEGACY), (Dialect.E2E, PAIRED)])
def test_invite_of_another_strength_is_refused(named, invite):
    """A suite that needs a secret, and a legacy dialect for an invite with one, are refused."""
    with pytest.raises(LocalError):
        dialect_of_invite(named, invite, None)


def test_request_is_in_the_form_of_the_pairing(tmp_path):
    """A peer paired in the clear may be asked in another legacy dialect, one with a root in another paired suite."""
    legacy = peer(tmp_path / "legacy", Dialect.E2E)
    paired = peer(tmp_path / "paired", Dialect.SUITE_3, bytes([1]) * 32)

    assert dialect_for(None, legacy) is Dialect.E2E
    assert dialect_for(Dialect.SUITE_1, legacy) is Dialect.SUITE_1
    assert dialect_for(Dialect.SUITE_4, paired) is Dialect.SUITE_4
    with pytest.raises(LocalError, match="takes nothing in bhumi-v1"):
        dialect_for(Dialect.E2E, paired)
    with pytest.raises(LocalError, match="without a secret"):
        dialect_for(Dialect.SUITE_4, legacy)
