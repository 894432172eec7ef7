"""Reading attributes, on one frame for all cases."""

import pytest

from waystation.pipeline.transforms.attributes import attribute, is_well_formed, number_or_none, reference

pytestmark = pytest.mark.spark

CASES = {
    "0": (0, True, None),
    "123456789012345": (123_456_789_012_345, True, None),
    "1234567890123456": (None, False, None),
    "-1": (None, False, None),
    "": (None, False, None),
    "1e3": (None, False, None),
    "ab" * 16: (None, False, b"\xab" * 16),
    "AB" * 16: (None, False, None),
    "ab" * 15: (None, False, None),
    "ab" * 17: (None, False, None),
}
"""Text of an attribute; its number, whether it is told well as one, and its reference."""


def test_only_plain_numbers_and_whole_references_are_read(spark) -> None:
    """Up to 15 digits are a number, 32 small hexadecimal digits a reference; all else is null, and never an error."""
    rows = [({"key": text},) for text in CASES]
    frame = spark.createDataFrame([*rows, ({},), (None,)], "attrs map<string,string>")
    found = frame.select(attribute("key"), number_or_none("key"), is_well_formed("key"), reference("key")).collect()
    plain = [(text, number, well, None if ref is None else bytes(ref)) for text, number, well, ref in found]

    assert plain == [*((text, *read) for text, read in CASES.items()), *[(None, None, True, None)] * 2]
