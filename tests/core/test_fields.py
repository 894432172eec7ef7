"""Laws of core.fields: what a fact's declaration says of its place in the journal."""

from typing import Annotated, NamedTuple

import pytest

from waystation.core import fields
from waystation.core.fields import Attribute, Column, Field, Privacy, Protection, fields_of


class Moved(NamedTuple):
    """Something moved."""

    protocol: str
    identity: Annotated[bytes | None, fields.PEER]
    distance: Annotated[int, Column("bytes")]
    speed: Annotated[int | None, fields.operational("mph", "How fast it was.")] = None


def test_field_goes_where_its_marker_says() -> None:
    """A field without a marker fills the column of its own name; one that is replaced has the reference's name."""
    assert fields_of(Moved) == (
        Field("protocol", str, Column("protocol")),
        Field("peer_ref", bytes | None, fields.PEER),
        Field("distance", int, Column("bytes")),
        Field("speed", int | None, Attribute("mph", Privacy.OPERATIONAL, "How fast it was.")),
    )


@pytest.mark.parametrize(
    ("make", "privacy"), [(fields.operational, Privacy.OPERATIONAL), (fields.public, Privacy.PUBLIC)]
)
def test_plain_attribute_has_the_class_of_its_maker(make, privacy) -> None:
    """What is written as it is has a class and no protection."""
    assert make("name", "What it is.") == Attribute("name", privacy, "What it is.", None)


def test_keyed_attribute_is_pseudonymous() -> None:
    """What a reference replaces has the class that expires."""
    made = fields.keyed("some_ref", "Whose it is.", Protection.ONE_OFF)

    assert (made.privacy, made.protection) == (Privacy.PSEUDONYMOUS, Protection.ONE_OFF)
