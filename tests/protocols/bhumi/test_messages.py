"""Laws of protocols.bhumi.messages."""

import dataclasses

import pytest

from waystation.protocols.bhumi import messages
from waystation.protocols.bhumi.messages import Feature, FrameType, Status


def test_type_numbers_are_those_of_the_spec():
    """Spec section 5 and BHUMI-M fix every type number."""
    assert {kind.name: kind.value for kind in FrameType} == {
        "HELLO": 1,
        "I_AM": 2,
        "SEND": 3,
        "DELIVER": 4,
        "ACK": 5,
        "KEEPALIVE": 6,
        "SEND_RESULT": 7,
        "UPDATE_COMMITS": 8,
        "OPTIONS": 0x40,
        "REVOKE_COMMITS": 0x41,
        "BIND": 0x42,
        "I_AM_OK": 0x43,
        "PRESENCE": 0x44,
        "WHERE": 0x45,
        "WHERE_RESULT": 0x46,
        "RELAY_AD": 0x47,
        "RELAYS_REQUEST": 0x48,
        "RELAYS": 0x49,
        "QA_REQUEST": 0x4A,
        "QA_REPORT": 0x4B,
        "GOSSIP": 0x4C,
        "WATCH": 0x4D,
        "WATCHED": 0x4E,
        "AUTHORITY": 0x4F,
    }


def test_status_numbers_are_those_of_the_spec():
    """Spec 5.7 knows five outcomes and BHUMI-28 forbids more."""
    assert [status.value for status in Status] == [0, 1, 2, 3, 4]


def test_preimage_in_deliver_is_bit_zero():
    """BHUMI-X gives the first bit to the layout of DELIVER."""
    assert Feature.DELIVER_WITH_PREIMAGE == 1


def test_version_on_the_wire_is_one():
    """The document is titled v2, the wire says 1 (BHUMI-1)."""
    assert messages.Hello(0, 0).protocol_version == 1


@pytest.mark.parametrize(
    "name", [name for name in messages.__all__ if dataclasses.is_dataclass(getattr(messages, name))]
)
def test_message_is_frozen_and_slotted(name):
    """A message that was decoded cannot change behind anybody's back."""
    kind = getattr(messages, name)

    assert kind.__dataclass_params__.frozen
    assert not hasattr(kind, "__weakref__") or "__dict__" not in dir(kind)
    assert "__slots__" in vars(kind)
