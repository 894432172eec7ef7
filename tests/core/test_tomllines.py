"""Laws of core.tomllines."""

import pytest

from waystation.core.tomllines import find_line

TEXT = '''\
# [bhumi] tls = "in a comment"
top = 1

[node]   # the node
name = """
[bhumi]
tls = 1
"""
home = 'it''s' # = [
"quoted key" = 2

  [bhumi]
tls = "a:1" # tls =
list = [
  "]", # ]
  "tls = 5",
]
after = { x = 1,
y = 2 }
last.part = 3

[strata.static_dids]
"did:strata:name" = "hex"

[[bsp.groups]]
format = "opaque"
'''.replace("'it''s'", "'[odd]'")


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("top",), 2),
        (("node",), 4),
        (("node", "name"), 5),
        (("node", "home"), 9),
        (("node", "quoted key"), 10),
        (("bhumi",), 12),
        (("bhumi", "tls"), 13),
        (("bhumi", "list"), 14),
        (("bhumi", "after"), 18),
        (("bhumi", "after", "x"), 18),
        (("bhumi", "last", "part"), 20),
        (("strata", "static_dids"), 22),
        (("strata", "static_dids", "did:strata:name"), 23),
        (("bsp", "groups", "format"), 26),
    ],
)
def test_key_is_found_on_its_line(path, line):
    """Comments, strings, brackets and inline tables do not mislead; a key in an inline table has that table's line."""
    assert find_line(TEXT, *path) == line


def test_absent_key_has_its_tables_line():
    """The nearest thing that stands in the text is named."""
    assert find_line(TEXT, "node", "absent") == 4


def test_absent_table_has_no_line():
    """Nothing of the path in the text, no line."""
    assert find_line(TEXT, "absent", "key") is None


def test_first_of_several_places_counts():
    """Later elements of an array of tables do not move the line."""
    assert find_line("[[a]]\nx = 1\n[[a]]\nx = 2\n", "a", "x") == 2
