"""Laws of protocols.bsp.messages."""

import typing

from tests.protocols.bsp.build import SEED_VECTORS, every_record
from waystation.protocols.bsp import messages
from waystation.protocols.bsp.messages import Record, RecordType
from waystation.protocols.bsp.profile import BRIAR


def test_types_are_those_of_the_digest():
    """Four of the text, two of profile briar (specs/bsp.md 1 and 7)."""
    assert {kind.name: int(kind) for kind in RecordType} == {
        "ACK": 0,
        "MESSAGE": 1,
        "OFFER": 2,
        "REQUEST": 3,
        "VERSIONS": 4,
        "PRIORITY": 5,
    }


def test_numbers_are_those_of_the_digest():
    """Header 4, identifiers 32, 40 in front of a body of at most 32 KiB, times up to 2**63 - 1."""
    assert (messages.HEADER_BYTES, messages.ID_BYTES, messages.MESSAGE_HEAD_BYTES) == (4, 32, 32 + 8)
    assert messages.BODY_BYTES_MAX == 2**15
    assert max(entry["timestamp"] for entry in SEED_VECTORS["messages"]) == messages.TIMESTAMP_MAX


def test_records_are_a_closed_set():
    """Every type of record has one class, and the reader of profile briar shows all of them."""
    classes = {each.__name__.upper() for each in typing.get_args(Record)}

    assert classes == {kind.name for kind in RecordType}
    assert {type(record) for record in every_record(BRIAR)} == set(typing.get_args(Record))
