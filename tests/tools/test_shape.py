"""Laws of tools.shape: what is counted as what."""

import pytest

from tools.shape import ROOT, main, measure, mirror_of

SOURCE = '''\
"""A module
of two docstring lines."""

# a comment
X = 1  # another


class Thing:
    """One."""

    size: int
    """Two."""

    def grow(self):
        """Three."""
        assert self.size

        return self.size + 1


async def late():
    return 1
'''


@pytest.fixture
def source(tmp_path):
    """The sample, measured."""
    (tmp_path / "room").mkdir()
    path = tmp_path / "room" / "sample.py"
    path.write_text(SOURCE)
    return measure(path, tmp_path)


def test_lines_are_told_apart(source):
    """Docstrings (under fields too), comments and code are counted each on their own."""
    assert (source.room, source.lines, source.docstring, source.comment, source.code) == ("room", 22, 5, 2, 8)


def test_functions_are_measured_without_their_docstring(source):
    """A body is what stands below the docstring; asserts are counted, coroutines too."""
    assert [tuple(function) for function in source.functions] == [("late", 1, 0, False), ("grow", 3, 1, True)]


def test_mirror_of_a_module():
    """The tests of a module stand in the folder of its room."""
    assert mirror_of(ROOT / "src/waystation/server/hub.py") == ROOT / "tests/server/test_hub.py"


def test_program_prints_table_layout_and_line(tmp_path, capsys):
    """The program prints a row per room, then the layout, then one line, which it writes if asked."""
    for name in (
        "src/waystation/core/cursor.py",
        "src/waystation/protocols/" + "merk/merk_wire.py",
        "tests/core/test_cursor.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(SOURCE)
    (tmp_path / "ARCHITECTURE.md").write_text("<!-- shape -->\nold\n")

    code = main(["--write"], tmp_path)
    table, layout, line = capsys.readouterr().out.split("\n\n")

    assert code == 0
    assert [row.split()[0] for row in table.splitlines()] == ["room", "core", "protocols", "package", "tests"]
    assert "as prefix: 1\n" in layout and "import circles: 0\n" in layout and "lines of sdk: 0\n" in layout
    assert line.startswith("function body median ") and line.count("\n") == 1
    assert (tmp_path / "ARCHITECTURE.md").read_text() == f"<!-- shape -->\n{line}"
