"""Measures the code against the targets of the style guide: ``python -m tools.shape``.

tests/test_layout.py and tests/test_tidy.py enforce some of the targets. A code line contains a statement and is not
blank, comment or docstring. The last printed line belongs in ARCHITECTURE.md under "Shape"; ``--write`` stores it
there.
"""

import argparse
import ast
import io
import re
import statistics
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tools.layout import circles, crowded, import_graph, lost_paths, prefixed, tracked
from tools.words import metaphors_in

__all__ = ["Function", "Source", "main", "mirror_of", "read_sources", "render_layout", "render_line", "render_table"]

ROOT: Final = Path(__file__).parents[1]
_MARK: Final = "<!-- shape -->"
_Def = ast.FunctionDef | ast.AsyncFunctionDef


class Function(NamedTuple):
    """One function or method."""

    name: str
    body_lines: int
    """Lines of its body without the docstring, nested functions included."""
    asserts: int
    has_docstring: bool


@dataclass(frozen=True, slots=True)
class Source:
    """One file, measured."""

    path: Path
    room: str
    lines: int
    code: int
    docstring: int
    comment: int
    functions: tuple[Function, ...]


def read_sources(folder: Path) -> list[Source]:
    """Measure every Python file under ``folder``, in the order of their paths."""
    return [measure(path, folder) for path in sorted(folder.rglob("*.py"))]


def measure(path: Path, folder: Path) -> Source:
    """Measure one file; its room is the first part of its path below ``folder``."""
    text = path.read_text()
    tree = ast.parse(text)
    below = path.relative_to(folder).parts
    docstring = {line for span in _docstring_spans(tree) for line in span}
    blank_or_comment, comment = _comment_lines(text)
    lines = text.count("\n")
    code = sum(number not in docstring and number not in blank_or_comment for number in range(1, lines + 1))
    functions = tuple(_functions(tree))
    return Source(path, below[0] if len(below) > 1 else ".", lines, code, len(docstring), comment, functions)


def _docstring_spans(tree: ast.AST) -> Iterator[range]:
    """Yield the line spans of docstrings, those under fields included."""
    for node in ast.walk(tree):
        body = getattr(node, "body", ())
        for statement in body if isinstance(body, list) else ():
            if _is_text(statement) and statement.end_lineno is not None:
                yield range(statement.lineno, statement.end_lineno + 1)


def _is_text(statement: ast.stmt) -> bool:
    expression = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(expression, ast.Constant) and isinstance(expression.value, str)


def _comment_lines(text: str) -> tuple[set[int], int]:
    """Return the lines that hold nothing but a comment or nothing at all, and the number of lines with a comment."""
    empty = {number for number, line in enumerate(text.splitlines(), 1) if not line.strip()}
    alone, count = set(), 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            count += 1
            if token.line.lstrip().startswith("#"):
                alone.add(token.start[0])
    return empty | alone, count


def _functions(tree: ast.AST) -> Iterator[Function]:
    for node in ast.walk(tree):
        if isinstance(node, _Def):
            documented = ast.get_docstring(node) is not None
            body = node.body[1:] if documented else node.body
            last = node.end_lineno or node.lineno
            size = last - body[0].lineno + 1 if body else 0
            asserts = sum(isinstance(part, ast.Assert) for part in ast.walk(node))
            yield Function(node.name, size, asserts, documented)


def mirror_of(path: Path, root: Path = ROOT) -> Path:
    """Return where the tests of a source file of the package stand."""
    below = path.relative_to(root / "src" / "waystation")
    return root / "tests" / below.parent / f"test_{below.name}"


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _percentile(numbers: Sequence[int], share: float) -> int:
    ordered = sorted(numbers)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0


class Totals(NamedTuple):
    """What a row of the table says about some files."""

    files: int
    code: int
    file_median: int
    file_max: int
    body_median: int
    body_p95: int
    body_max: int
    docstring_ratio: float
    comment_ratio: float
    asserts_per_function: float


def totals(sources: Sequence[Source]) -> Totals:
    """Sum files up."""
    bodies = [function.body_lines for source in sources for function in source.functions]
    code = sum(source.code for source in sources)
    return Totals(
        files=len(sources),
        code=code,
        file_median=int(statistics.median([source.lines for source in sources])),
        file_max=max(source.lines for source in sources),
        body_median=int(statistics.median(bodies)) if bodies else 0,
        body_p95=_percentile(bodies, 0.95),
        body_max=max(bodies, default=0),
        docstring_ratio=_ratio(sum(source.docstring for source in sources), code),
        comment_ratio=_ratio(sum(source.comment for source in sources), code),
        asserts_per_function=_ratio(
            sum(function.asserts for source in sources for function in source.functions), len(bodies)
        ),
    )


_COLUMNS: Final = (
    "room",
    "files",
    "code",
    "file med",
    "max",
    "body med",
    "p95",
    "max",
    "doc/code",
    "#/code",
    "asserts/f",
)


def render_table(package: Sequence[Source], tests: Sequence[Source]) -> str:
    """Return one row per room, then the package, then the tests."""
    rooms: dict[str, list[Source]] = {}
    for source in package:
        rooms.setdefault(source.room, []).append(source)
    rows = [_row(room, totals(sources)) for room, sources in rooms.items() if room != "."]
    rows += [_row("package", totals(package)), _row("tests", totals(tests))]
    widths = [max(len(row[column]) for row in [_COLUMNS, *rows]) for column in range(len(_COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) if column == 0 else cell.rjust(width) for column, (cell, width) in enumerate(pairs))
        for pairs in (list(zip(row, widths, strict=True)) for row in [_COLUMNS, *rows])
    )


def _row(name: str, of: Totals) -> tuple[str, ...]:
    counts = (of.files, of.code, of.file_median, of.file_max, of.body_median, of.body_p95, of.body_max)
    ratios = (of.docstring_ratio, of.comment_ratio, of.asserts_per_function)
    return (name, *(str(count) for count in counts), *(f"{ratio:.2f}" for ratio in ratios))


def render_line(package: Sequence[Source], tests: Sequence[Source], root: Path = ROOT) -> str:
    """Return what ARCHITECTURE.md shows."""
    whole = totals(package)
    modules = [source.path for source in package if source.path.name != "__init__.py"]
    mirrored = sum(mirror_of(path, root).exists() for path in modules)
    cases = [function for source in tests for function in source.functions if function.name.startswith("test_")]
    largest = max(package, key=lambda source: source.code)
    code = {room: sum(source.code for source in package if source.room == room) for room in sorted(_rooms(package))}
    adapters = code.get("transport", 0) + code.get("server", 0)
    return (
        f"function body median {whole.body_median}, p95 {whole.body_p95}, max {whole.body_max}; "
        f"file median {whole.file_median}, max {whole.file_max}; "
        f"largest share {_ratio(largest.code, whole.code):.1%} ({largest.path.name}); "
        f"tests {_ratio(totals(tests).code, whole.code):.2f} x source, test median {_median_case(cases)} lines; "
        f"mirrored {_ratio(mirrored, len(modules)):.0%}; "
        f"tests with docstring {_ratio(sum(case.has_docstring for case in cases), len(cases)):.0%}; "
        f"adapters {adapters} lines against {code.get('protocols', 0)} of protocols"
    )


def render_layout(package: Sequence[Source], root: Path = ROOT) -> str:
    """Return one line per figure of the layout: names, folders, circles, cited paths, metaphors, lines of rooms."""
    files = tracked(root)
    folder, size = crowded(files)
    lines: dict[str, int] = {}
    for path in files:
        room = "/".join(path.parts[: 3 if path.parts[:2] == ("src", "waystation") else 2])
        lines[room] = lines.get(room, 0) + _lines_of(root / path)
        lines[path.parts[0]] = lines.get(path.parts[0], 0) + _lines_of(root / path)
    texts = {source.path: source.path.read_text() for source in package}
    names = {path.relative_to(root / "src").with_suffix("").as_posix().replace("/", "."): path for path in texts}
    graph = import_graph({name.removesuffix(".__init__"): texts[path] for name, path in names.items()})
    protocols = totals([source for source in package if source.room == "protocols"])
    figures = {
        "file names with their folder's or protocol's name as prefix": len(prefixed(files)),
        "largest folder of code": f"{size} files ({folder})",
        "import circles": len(circles(graph)),
        "cited paths that do not exist": len(lost_paths(files, root)),
        "lines of sim": lines.get("src/waystation/sim", 0),
        "lines of sdk": lines.get("src/waystation/sdk", 0),
        "lines of fuzz, soak and bench": sum(lines.get(room, 0) for room in ("fuzz", "soak", "bench")),
        "lines of tests/sim": lines.get("tests/sim", 0),
        "comment/code in protocols": f"{protocols.comment_ratio:.3f}",
        "metaphors in src": sum(1 for text in texts.values() for _ in metaphors_in(text)),
    }
    return "\n".join(f"{name}: {figure}" for name, figure in figures.items())


def _lines_of(path: Path) -> int:
    return path.read_text().count("\n") if path.suffix == ".py" else 0


def _rooms(package: Sequence[Source]) -> set[str]:
    return {source.room for source in package}


def _median_case(cases: Sequence[Function]) -> int:
    return int(statistics.median([case.body_lines for case in cases])) if cases else 0


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Print the table, the layout and the line of the repository at ``root``; see ``--write``."""
    parser = argparse.ArgumentParser(prog="python -m tools.shape", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the line into ARCHITECTURE.md")
    chosen = parser.parse_args(arguments)
    package, tests = read_sources(root / "src" / "waystation"), read_sources(root / "tests")
    line = render_line(package, tests, root)
    sys.stdout.write(f"{render_table(package, tests)}\n\n{render_layout(package, root)}\n\n{line}\n")
    if chosen.write:
        page = root / "ARCHITECTURE.md"
        kept = re.sub(rf"({_MARK}\n).*", r"\1", page.read_text(), flags=re.DOTALL)
        page.write_text(f"{kept}{line}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
