"""Laws of protocols.merk.messages."""

import dataclasses

import pytest

from waystation.protocols.merk import messages
from waystation.protocols.merk.messages import (
    DeliveryCode,
    Feature,
    InfoType,
    MailboxState,
    MailVerb,
    MessageType,
    PresenceKind,
    Role,
)


def test_type_numbers_are_those_of_the_seed():
    """The seed's table of message types fixes byte 2 of the header."""
    assert {kind.name: kind.value for kind in MessageType} == {
        "HANDSHAKE": 1,
        "DATA": 2,
        "NODE_INFO": 3,
        "SIGNED_DATA": 4,
        "ENCRYPTED_DATA": 5,
    }


def test_subtypes_of_the_original_and_ours_are_apart():
    """The original's subtypes are 2 to 6; ours begin at 0x80, which it ignores (specs/merk.md 7)."""
    numbers = [kind.value for kind in InfoType]

    assert numbers == [2, 3, 4, 5, 6, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8B]


def test_numbers_of_the_extensions_are_those_of_the_digest():
    """Roles, feature bits, codes, kinds and verbs are what specs/merk.md 6, 7 and 10 print."""
    assert [role.value for role in Role] == [0, 1]
    assert [feature.value for feature in Feature] == [1, 2, 4, 8, 16, 32, 64]
    assert [code.name for code in DeliveryCode] == [
        "DELIVERED",
        "UNKNOWN_TARGET",
        "QUEUE_FULL",
        "LOOKUP_TIMEOUT",
        "TOO_LARGE",
        "RATE",
        "STORED",
    ]
    assert [kind.value for kind in PresenceKind] == [0, 1]
    assert [verb.value for verb in MailVerb] == [1, 2, 3, 4, 5]
    assert [state.value for state in MailboxState] == [0, 1, 2]
    assert [code.value for code in DeliveryCode] == list(range(7))


def test_header_has_120_bytes():
    """Magic, version, type, 1 + 4 + 16 bytes, key and signature make the header of specs/merk.md 1."""
    fixed = 3 + 1 + 4 + 16

    assert fixed + messages.KEY_BYTES + messages.SIGNATURE_BYTES == messages.HEADER_BYTES == 120
    assert (messages.MAGIC, messages.VERSION, messages.CONFIRMATION) == (0x58, 1, b"\x01")


@pytest.mark.parametrize(
    "name", [name for name in messages.__all__ if dataclasses.is_dataclass(getattr(messages, name))]
)
def test_message_is_frozen_and_slotted(name):
    """A message that was decoded cannot change behind anybody's back."""
    kind = getattr(messages, name)

    assert kind.__dataclass_params__.frozen
    assert "__slots__" in vars(kind)
    assert "__dict__" not in dir(kind)
