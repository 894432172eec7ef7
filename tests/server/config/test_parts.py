"""Laws of server.config.parts: what holds for every setting of every table."""

import dataclasses

import pytest

from waystation.server.config.parts import PARTS, TABLES, fields_of
from waystation.server.config.settings import admit, allowed_values, plain_value


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.owner.__name__)
def test_every_default_is_allowed_and_explained(part):
    """A default passes its own check when written as the file writes it, and has help."""
    for field in dataclasses.fields(part.owner):
        default = getattr(part.owner(), field.name)

        assert admit(part.owner, field.name, plain_value(default)) == default
        assert allowed_values(part.owner, field.name)
        assert field.metadata["help"].endswith(".")


def test_no_key_is_declared_twice_in_one_table():
    """The listener part and the protocol part of a table share no key."""
    for table in TABLES:
        names = [field.name for _, field in fields_of(table)]

        assert len(names) == len(set(names))
