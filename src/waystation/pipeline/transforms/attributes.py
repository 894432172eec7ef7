"""Spark expressions that read one attribute of an event; malformed text gives null and never fails a job.

Other transforms build their columns with them. ``attrs`` is a map of texts that nodes wrote.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["attribute", "is_well_formed", "number_or_none", "reference"]

_REFERENCE: Final = "^[0-9a-f]{32}$"
_NUMBER: Final = "^[0-9]{1,15}$"  # 31 years in microseconds; sums of thousands of them still fit 64 bits


def attribute(key: str) -> "Column":
    """Return the text of an attribute, null when the event has none."""
    return F.try_element_at("attrs", F.lit(key))


def reference(key: str) -> "Column":
    """Return the 16 bytes of an attribute, null when it is not their hexadecimal text."""
    return F.when(attribute(key).rlike(_REFERENCE), F.unhex(attribute(key)))


def number_or_none(key: str) -> "Column":
    """Return the number of an attribute, null when it is none."""
    return F.when(attribute(key).rlike(_NUMBER), attribute(key).cast("bigint"))


def is_well_formed(key: str) -> "Column":
    """Return whether an attribute is a number or missing; never null."""
    return attribute(key).isNull() | attribute(key).rlike(_NUMBER)
