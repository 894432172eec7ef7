"""Metaphors are found in prose and in identifiers, and other words are left alone."""

import re
from pathlib import Path

import pytest

from tools.words import METAPHORS, metaphors_in


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("the relay tells its peer", "tells"),
        ("class LeftHanging:", "left hanging"),
        ("MERK_PATIENCE: Final = 3", "patience"),
        ("class ThrownOut:", "thrown out"),
    ],
)
def test_metaphor_is_found(line, word):
    """A listed word is seen in a sentence, in a class and in a constant."""
    assert list(metaphors_in(f"x = 1\n{line}\n")) == [(2, word)]


@pytest.mark.parametrize(
    "line", ["the peer intelligently opened it", "spare_preimages = 2", "expenses, houseware", "LPRP-SPARED"]
)
def test_other_words_are_left_alone(line):
    """Only whole words count."""
    assert not list(metaphors_in(line))


def test_every_metaphor_has_a_term():
    """The list says what to write instead."""
    assert all(METAPHORS.values())


def test_glossary_lists_what_is_refused():
    """docs/glossary.md has a row for every word that the gate knows, and the gate knows every row."""
    page = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", page.partition("## Words the code does not use")[2], re.MULTILINE)
    words = {word: term for names, term in rows for word in names.split(", ") if names != "not"}

    assert set(words.values()) == set(METAPHORS.values())
    assert not [word for word in words if list(metaphors_in(word)) != [(1, word)]]
