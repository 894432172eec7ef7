"""How attributes of events are read: text out of anybody's journal, so that nothing in it can fail a step."""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["attribute", "number_or_none", "reference", "told_well"]

_REFERENCE: Final = "^[0-9a-f]{32}$"
_NUMBER: Final = "^[0-9]{1,15}$"  # 31 years in microseconds; sums of thousands of them still fit 64 bits


def attribute(key: str) -> "Column":
    """Return the text of an attribute, null when the event has none."""
    return F.try_element_at("attrs", F.lit(key))


def reference(key: str) -> "Column":
    """Return the 16 bytes of an attribute, null when it is not their hexadecimal text."""
    return F.when(attribute(key).rlike(_REFERENCE), F.unhex(attribute(key)))


def number_or_none(key: str) -> "Column":
    """Return the number that an attribute tells, null when it tells none."""
    return F.when(attribute(key).rlike(_NUMBER), attribute(key).cast("bigint"))


def told_well(key: str) -> "Column":
    """Return whether an attribute is a number or missing; never null."""
    return attribute(key).isNull() | attribute(key).rlike(_NUMBER)
