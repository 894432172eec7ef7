"""Laws of protocols.merk.settings."""

import dataclasses

import pytest

from waystation.core.errors import LocalError
from waystation.core.settings import check
from waystation.protocols.merk.settings import MerkSettings


def test_defaults_are_those_of_the_digest():
    """specs/merk.md 10: 8 MiB a frame, every node that proves its key is a peer, private addresses are not dialled."""
    assert dataclasses.asdict(MerkSettings()) == {
        "max_frame_bytes": 8 * 1024 * 1024,
        "mailbox": True,
        "peers": [],
        "accept_peers": True,
        "allow_private_peers": False,
        "public_url": "",
        "peers_ca": "",
    }


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(MerkSettings)])
def test_defaults_pass_their_own_check(field):
    """What we ship is allowed."""
    check(MerkSettings, field, getattr(MerkSettings(), field))


def test_no_two_settings_share_a_list():
    """Who adds a peer to one configuration adds it to no other."""
    MerkSettings().peers.append("ws://a")

    assert MerkSettings().peers == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_frame_bytes", 1_023),
        ("max_frame_bytes", 67_108_865),
        ("max_frame_bytes", True),
        ("accept_peers", 1),
        ("allow_private_peers", "no"),
    ],
)
def test_values_outside_are_refused(field, value):
    """A bound that is declared holds."""
    with pytest.raises(LocalError, match="allowed"):
        check(MerkSettings, field, value)
