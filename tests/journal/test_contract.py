"""The contract declares everything, and nothing that must not be written."""

import pytest

from tests.journal.build import ONE_OF_EACH
from waystation.journal import contract
from waystation.journal.contract import ATTRIBUTES, COLUMNS, FORBIDDEN_NAMES, KINDS, Privacy
from waystation.journal.events import EVENTS


def test_every_event_has_one_kind() -> None:
    """Each event type is declared exactly once."""
    assert [kind.event for kind in KINDS] == [*EVENTS.values()]


def test_kinds_are_named_uniquely() -> None:
    """Two kinds never share a name."""
    names = [kind.name for kind in KINDS]

    assert len(set(names)) == len(names)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_field_goes_to_a_declared_place(kind: contract.Kind) -> None:
    """Each field of an event goes to a column or an attribute that exists, and to one of them only."""
    columns = {column.name for column in COLUMNS}

    assert set(kind.attributes.values()) <= set(ATTRIBUTES)
    assert set(kind.columns.values()) <= columns
    assert not set(kind.columns) & set(kind.attributes)
    assert set(kind.columns) | set(kind.attributes) == set(kind.event._fields)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind_fills_what_may_not_be_null(kind: contract.Kind) -> None:
    """A column without nulls is filled by every kind."""
    required = {column.name for column in COLUMNS if not column.nullable}

    assert required <= set(kind.columns_filled())


def test_nothing_forbidden_is_declared() -> None:
    """No column, attribute or event field bears a forbidden name or class."""
    names = {column.name for column in COLUMNS} | {attribute.name for attribute in ATTRIBUTES}
    names |= {name for kind in KINDS for name in kind.event._fields}

    assert not names & FORBIDDEN_NAMES
    assert Privacy.FORBIDDEN not in {column.privacy for column in COLUMNS}


def test_every_reference_is_pseudonymous() -> None:
    """Whatever refers to a peer, a connection or an attempt has the class that expires."""
    classes = {entry.privacy for entry in (*COLUMNS, *ATTRIBUTES) if entry.name.endswith(("_ref", "_refs"))}

    assert classes == {Privacy.PSEUDONYMOUS}


def test_every_declared_attribute_is_used() -> None:
    """The list of attributes holds no key that no kind fills."""
    used = {key for keys in contract.allowed_attributes().values() for key in keys}

    assert used == {attribute.name for attribute in ATTRIBUTES}


def test_attribute_means_one_thing() -> None:
    """Facts that fill one key of ``attrs`` agree on its meaning and its privacy class."""
    names = [attribute.name for attribute in ATTRIBUTES]

    assert names == sorted(set(names))


def test_line_schema_lists_the_columns_in_order() -> None:
    """Spark reads lines by the contract's columns."""
    expected = [f"`{column.name}` {column.line_type}" for column in COLUMNS]

    assert contract.line_ddl() == ", ".join(expected)


def test_kind_of_an_event_is_found_by_its_type() -> None:
    """An event's declaration is the one that names its type."""
    names = [contract.kind_of(event).name for event in ONE_OF_EACH]

    assert names == [
        "node_started",
        "peer_identified",
        "peer_left",
        "delivery_accepted",
        "delivery_finished",
        "anonymous_counted",
        "refused",
        "node_stopped",
        "packet_judged",
        "subscription_opened",
        "subscription_ended",
        "mesh_lookup",
        "mesh_link_ended",
        "lease_changed",
        "work_judged",
        "message_stored",
        "message_changed",
        "message_held",
        "relay_observed",
        "node_sampled",
        "refused",
    ]
