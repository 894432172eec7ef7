"""Laws of core.settings."""

from dataclasses import dataclass

import pytest

from waystation.core.errors import LocalError
from waystation.core.settings import check, describe_allowed, setting


@dataclass(frozen=True, slots=True)
class _Oven:
    heat: int = setting(180, "How hot.", unit="degrees", at_least=50, at_most=250, reload=True)
    shelves: int = setting(2, "How many.", at_least=1)
    doors: int = setting(1, "How many doors.")
    fan: bool = setting(default=True, help="Whether the fan turns.")
    mode: str = setting("bake", "What it does.", choices=("bake", "grill"))
    label: str = setting("", "What it is called.")
    trays: list[str] = setting(["low"], "Which trays.")
    cooks: list[dict[str, str]] = setting([], "Who may cook.")
    menus: list[dict[str, str | list[str]]] = setting([], "What is cooked.")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("heat", 50),
        ("heat", 250),
        ("shelves", 1),
        ("doors", -4),
        ("fan", False),
        ("mode", "grill"),
        ("label", "mine"),
        ("trays", []),
        ("trays", ["a", "b"]),
        ("cooks", [{"name": "Ann"}, {}]),
        ("menus", [{"name": "Monday", "courses": ["soup", "bread"]}, {"courses": []}]),
    ],
)
def test_allowed_value_passes(name, value):
    """Bounds themselves are allowed."""
    check(_Oven, name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("heat", 49),
        ("heat", 251),
        ("heat", True),
        ("heat", 180.0),
        ("heat", "180"),
        ("shelves", 0),
        ("fan", 1),
        ("fan", "true"),
        ("mode", "boil"),
        ("mode", 1),
        ("label", 3),
        ("trays", "low"),
        ("trays", [1]),
        ("cooks", {"name": "Ann"}),
        ("cooks", [{"name": ["Ann"]}]),
        ("menus", [{"courses": ["soup", 2]}]),
        ("menus", [{"courses": {"first": "soup"}}]),
        ("menus", ["soup"]),
    ],
)
def test_other_value_is_refused_with_what_is_allowed(name, value):
    """The text names the setting, the value and the allowed values."""
    with pytest.raises(LocalError) as caught:
        check(_Oven, name, value)

    assert str(caught.value) == f"{name} = {value!r} is not allowed; allowed: {describe_allowed(_Oven, name)}"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("heat", "a whole number from 50 to 250 (degrees)"),
        ("shelves", "a whole number of at least 1"),
        ("doors", "a whole number"),
        ("fan", "true or false"),
        ("mode", 'one of "bake", "grill"'),
        ("label", "text"),
        ("trays", "a list of text"),
        ("cooks", "a list of tables, each of names with texts"),
        ("menus", "a list of tables, each of names with texts or lists of text"),
    ],
)
def test_allowed_values_in_words(name, words):
    """An operator can act on the description."""
    assert describe_allowed(_Oven, name) == words


def test_list_defaults_are_not_shared():
    """Changing one instance's list leaves the next one's alone."""
    _Oven().trays.append("high")

    assert _Oven().trays == ["low"]
