"""Laws of how groups are handed on as text."""

import pytest

from waystation.core.errors import LocalError
from waystation.core.ids import encode_id52
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.invite import format_group, format_invitation, parse_group, parse_invitation
from waystation.protocols.bsp.profile import BRIAR, SEED

KEY = KeyPair.from_seed(bytes(32)).public


@pytest.mark.parametrize(
    "group",
    [
        SEED.group(b"\x01" * 32, b"", "opaque"),
        SEED.group(b"\x02" * 32, b"topic", "deps_v1"),
    ],
)
def test_group_is_written_and_read_back(group):
    """A line names the same group again, identifier included."""
    assert parse_group(format_group(group), SEED) == group


def test_group_of_briar_has_a_name_for_its_client():
    """In profile briar the client identifier is a name in UTF-8, written in hexadecimal too."""
    group = BRIAR.group(b"org.example.chat", b"", "opaque")

    assert parse_group(format_group(group), BRIAR) == group


@pytest.mark.parametrize("text", ["", "opaque", "opaque:zz", "opaque:00:00:00", "opaque:00", f"opaque:{'00' * 33}"])
def test_what_is_no_group_is_told(text):
    """Anything else is refused with a sentence."""
    with pytest.raises(LocalError):
        parse_group(text, SEED)


def test_invitation_names_place_key_and_group():
    """An invitation is an address with its key, and a group behind it."""
    group = SEED.group(b"\x01" * 32, b"", "opaque")
    invitation = parse_invitation(f" bsp+tls://{encode_id52(KEY)}@peer.example:1#{format_group(group)}\n", SEED)

    assert (invitation.url.key, invitation.url.place, invitation.group) == (KEY, "bsp+tls://peer.example:1", group)


@pytest.mark.parametrize("text", ["peer.example:1#opaque:00", f"{encode_id52(KEY)}@peer.example:1", "#", ""])
def test_what_is_no_invitation_is_told(text):
    """An address without a key, or without a group, is none."""
    with pytest.raises(LocalError):
        parse_invitation(text, SEED)


@pytest.mark.parametrize("name", ["", "ivan", "zoë o'neil; #1%"])
def test_invitation_says_who_invites(name):
    """What the one who invites calls itself comes back whole, in a line that a shell may quote."""
    group = SEED.group(bytes(32), b"d", "chat_v1")
    line = format_invitation(f"bsp+tls://{encode_id52(KEY)}@peer.example:1", group, name)

    assert parse_invitation(line, SEED)[1:] == (group, name)
    assert not set(" '\"") & set(line)
